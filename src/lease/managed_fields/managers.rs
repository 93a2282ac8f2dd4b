//! The field managers of one object, each with a tree of the fields that it owns. Only writes that change ownership
//! need these trees.

use super::path_element::PathElement;
use super::schema::reconcile;
use super::set::Set;
use super::typed::Comparison;
use super::{FieldsV1, ManagedFields, ManagedFieldsEntry, Operation, Subresource};
use crate::go::json::push_string;
use crate::limits::MANAGED_FIELDS_VALUES_MAX;
use crate::resource::ApiVersion;
use crate::timestamp::Time;
use compact_str::CompactString;
use memchr::{memchr3_iter, memmem};
use std::collections::BTreeMap;

/// Maximum number of `managedFields` entries of writes other than apply. Beyond this number, the oldest entries are
/// merged into one entry.
const UPDATERS_MAX: usize = 10;
/// Name of the manager in a merged entry.
const ANCIENT: &str = "ancient-changes";

/// An entry of `managedFields`, and the fields in the entry as a tree.
#[derive(Clone, Debug)]
pub(super) struct Manager {
    pub(super) entry: ManagedFieldsEntry,
    pub(super) set: Set,
    /// Whether `set` has changed since the entry was parsed. If so, `entry.fields` is outdated.
    changed: bool,
}

impl Manager {
    pub(super) fn new(name: &str, operation: Operation, api_version: &str, set: Set) -> Self {
        let entry = ManagedFieldsEntry {
            manager: CompactString::new(name),
            operation,
            api_version: CompactString::new(api_version),
            time: None,
            fields: FieldsV1::from_client(""),
            subresource: Subresource::default(),
        };
        Self { entry, set, changed: true }
    }

    pub(super) fn put(&mut self, set: Set) {
        if set != self.set {
            self.changed = true;
            self.set = set;
        }
    }

    /// Returns the identifier of the manager, as JSON. kube-apiserver sorts managers whose times are equal by their
    /// identifiers.
    pub(super) fn identifier(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        let (operation, manager, api_version, subresource) = self.entry.identity();
        let members = [
            ("manager", manager),
            ("operation", operation.as_str()),
            ("apiVersion", api_version),
            ("subresource", subresource),
        ];
        for (name, text) in members.into_iter().filter(|(_, text)| !text.is_empty()) {
            out.push(if out.is_empty() { b'{' } else { b',' });
            push_string(&mut out, name);
            out.push(b':');
            push_string(&mut out, text);
        }
        out.push(b'}');
        out
    }

    fn is_bucket(&self) -> bool {
        self.entry.manager == ANCIENT && self.entry.subresource.is_empty()
    }
}

/// All field managers of an object. Any two managers have different identities.
#[derive(Clone, Debug, Default)]
pub(super) struct Managers(pub(super) Vec<Manager>);

/// The error about a list `managedFields` that has an entry with a malformed API version. The string is
/// kube-apiserver's message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) String);

impl Managers {
    /// Parses the entries of a list. Drops an entry whose API version is no version of the Lease API.
    pub(super) fn read(list: &ManagedFields) -> Result<Self, Unreadable> {
        let mut managers = Vec::with_capacity(list.entries().len() + 1);
        for entry in list.entries() {
            if !is_known_version(&entry.api_version)? {
                continue;
            }
            let set = Set::parse(&entry.fields.as_json()).unwrap_or_default();
            managers.push(Manager { entry: entry.clone(), set, changed: false });
        }
        Ok(Self(managers))
    }

    /// Converts the managers back to the list `managedFields`.
    pub(super) fn into_list(self) -> ManagedFields {
        let entries = self.0.into_iter().map(|manager| {
            let mut entry = manager.entry;
            if manager.changed {
                entry.fields = FieldsV1::of(&manager.set);
            }
            entry
        });
        ManagedFields::stored(entries.collect())
    }

    /// Takes from all managers except `writer` the fields that a write modified, added or removed.
    pub(super) fn take_away(&mut self, comparison: &Comparison, writer: Option<usize>) {
        let taken = comparison.modified.union(&comparison.added).union(&comparison.removed);
        for (at, manager) in self.0.iter_mut().enumerate() {
            if Some(at) != writer && !taken.is_empty() {
                let rest = manager.set.difference(&taken);
                manager.put(rest);
            }
        }
    }

    /// Removes managers that own no fields.
    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|manager| !manager.set.is_empty());
    }

    /// Returns the index of the manager with the same identity as `wanted`.
    pub(super) fn position(&self, wanted: &ManagedFieldsEntry) -> Option<usize> {
        self.0.iter().position(|manager| manager.entry.is_of_same_manager(wanted))
    }

    /// Adds `set` to the fields that the manager `name` owns by its updates. Adds the manager if it is missing.
    pub(super) fn give(&mut self, name: &str, api_version: &str, set: Set, now: Time) {
        let mut manager = Manager::new(name, Operation::Update, api_version, set);
        manager.entry.time = Some(now);
        match self.position(&manager.entry).and_then(|at| self.0.get_mut(at)) {
            Some(previous) => {
                let both = previous.set.union(&manager.set);
                previous.put(both);
                previous.entry.time = Some(now);
            }
            None => self.0.push(manager),
        }
    }

    /// Merges the oldest entries of updates until at most [`UPDATERS_MAX`] are left. Each API version has its own
    /// merged entry, which belongs to the manager [`ANCIENT`]; this code calls the entry the bucket. If the list has no
    /// bucket of an API version, the oldest update of that version becomes the bucket. The result equals that of
    /// kube-apiserver's loop, including two oddities. If the list already has a bucket, the oldest update is not
    /// merged. If the bucket itself is the next update to merge, the bucket is dropped with all its fields.
    pub(super) fn cap_updaters(&mut self) {
        let is_update = |manager: &Manager| manager.entry.operation == Operation::Update;
        let mut excess = self.0.iter().filter(|manager| is_update(manager)).count().saturating_sub(UPDATERS_MAX);
        if excess == 0 {
            return;
        }
        let (mut updaters, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.0).into_iter().partition(is_update);
        let seconds = |manager: &Manager| manager.entry.time.map_or(0, |time| time.0);
        updaters.sort_by_cached_key(|manager| (seconds(manager), manager.identifier()));
        // The index of the first bucket of each API version in `updaters`.
        let there: BTreeMap<CompactString, usize> = (updaters.iter().enumerate().rev())
            .filter(|(_, manager)| manager.is_bucket())
            .map(|(place, manager)| (manager.entry.api_version.clone(), place))
            .collect();
        let mut buckets: BTreeMap<CompactString, Bucket> = BTreeMap::new();
        for at in 0..updaters.len() {
            if excess == 0 {
                break;
            }
            let version = updaters[at].entry.api_version.clone();
            let Some(bucket) = buckets.get_mut(&version) else {
                let place = there.get(&version).copied();
                buckets.insert(version, Bucket { oldest: at, place, joined: Vec::new() });
                continue;
            };
            excess -= 1;
            let (time, set) = (updaters[at].entry.time, std::mem::take(&mut updaters[at].set));
            if bucket.place == Some(at) {
                bucket.place = None;
                bucket.joined.clear();
                continue;
            }
            bucket.joined.push(set);
            let entry = &mut updaters[*bucket.place.get_or_insert(bucket.oldest)].entry;
            entry.manager = CompactString::const_new(ANCIENT);
            entry.subresource = Subresource::default();
            entry.time = time;
        }
        for bucket in buckets.into_values() {
            if let Some(manager) = bucket.place.and_then(|place| updaters.get_mut(place)) {
                let all = Set::union_of(&std::iter::once(&manager.set).chain(&bucket.joined).collect::<Vec<_>>());
                manager.put(all);
            }
        }
        self.0 = rest;
        self.0.extend(updaters);
        // Entries that were merged into a bucket have no fields left, so they are dropped.
        self.drop_empty();
    }
}

/// The merged entry of one API version, called the bucket. Both indexes are positions in the list of updates, which is
/// sorted by time.
struct Bucket {
    /// Index of the oldest update of this API version.
    oldest: usize,
    /// Index of the merged entry; `None` while there is none.
    place: Option<usize>,
    /// The sets to merge into this entry. They are merged all at once at the end, since there may be many.
    joined: Vec<Set>,
}

/// Whether this API version is a version of the Lease API; an error if it is malformed.
fn is_known_version(api_version: &str) -> Result<bool, Unreadable> {
    if ApiVersion::ALL.into_iter().any(|version| version.group_version() == api_version) {
        return Ok(true);
    }
    if api_version.matches('/').count() > 1 {
        return Err(Unreadable(format!("unexpected GroupVersion string: {api_version}")));
    }
    Ok(false)
}

/// Converts a client's list to the form of a stored list. The text of each set becomes canonical. If a manager has
/// several entries, the last one counts. Returns `None` if a set is malformed, or if the sets have more than
/// [`MANAGED_FIELDS_VALUES_MAX`] values. A set that equals the set of the same manager in the stored list `live` is
/// neither parsed nor counted. Such a set may exceed the limit, since applies can enlarge a stored set.
pub(super) fn normalized(sent: &[ManagedFieldsEntry], live: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let known: BTreeMap<_, _> = live.iter().map(|entry| (entry.identity(), &entry.fields)).collect();
    let mut entries = Vec::with_capacity(sent.len());
    let mut values = 0;
    for entry in sent {
        let mut entry = entry.clone();
        if let Some(fields) = known.get(&entry.identity()).filter(|fields| ***fields == entry.fields) {
            entry.fields = (*fields).clone();
            entries.push(entry);
            continue;
        }
        let json = entry.fields.as_json();
        // Counts each comma and each opening bracket as a value, even inside strings: the name of a list element (`k:…`
        // or `v:…`) contains JSON. A protobuf client may have escaped this JSON, so each `\u` counts too.
        values += memchr3_iter(b',', b'[', b'{', json.as_bytes()).count();
        values += memmem::find_iter(json.as_bytes(), "\\u").count();
        if values > MANAGED_FIELDS_VALUES_MAX {
            return None;
        }
        let mut set = Set::parse(&json)?;
        reconcile(&mut set);
        entry.fields = FieldsV1::of(&set);
        entries.push(entry);
    }
    let last: BTreeMap<_, _> = entries.iter().map(|entry| (entry.identity(), entry)).collect();
    Some(last.into_values().cloned().collect())
}

/// Returns `set` without the fields that no manager owns: the type, the identity of the object, and the fields that
/// only the server sets.
pub(super) fn without_system_fields(set: &Set) -> Set {
    let top = ["apiVersion", "kind", "metadata"].map(PathElement::field);
    let in_metadata = [
        "clusterName",
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    ]
    .map(PathElement::field);
    let below = Set::from_parts(in_metadata.to_vec(), Vec::new());
    set.difference(&Set::from_parts(top.to_vec(), vec![(PathElement::field("metadata"), below)]))
}

#[cfg(test)]
mod tests {
    use super::super::set::tests::text;
    use super::*;
    use crate::resource::API_VERSION;

    fn updater(name: &str, time: i64, json: &str) -> Manager {
        let mut manager = Manager::new(name, Operation::Update, API_VERSION, Set::parse(json).expect("a set"));
        manager.entry.time = Some(Time(time));
        manager
    }

    #[test]
    fn the_oldest_updates_are_joined() {
        let managers = (0..12).map(|n| updater(&format!("m{n:02}"), n, &format!("{{\"f:x{n:02}\":{{}}}}")));
        let mut managers = Managers(managers.rev().collect());
        managers.cap_updaters();
        let list = managers.into_list();
        assert_eq!(list.entries().len(), 10);
        let oldest = &list.entries()[0];
        assert_eq!((oldest.manager.as_str(), oldest.time), (ANCIENT, Some(Time(2))));
        assert_eq!(oldest.fields.as_json(), r#"{"f:x00":{},"f:x01":{},"f:x02":{}}"#);
        assert_eq!(list.entries()[1].manager, "m03");
    }

    #[test]
    fn an_old_bucket_takes_the_oldest_update() {
        let mut managers = Managers((0..10).map(|n| updater(&format!("m{n}"), 10 + n, "{\"f:x\":{}}")).collect());
        managers.0.push(updater(ANCIENT, 1, "{\"f:old\":{}}"));
        managers.cap_updaters();
        assert_eq!(managers.0.len(), 10);
        let bucket = managers.0.iter().find(|m| m.entry.manager == ANCIENT).expect("the bucket");
        assert_eq!((text(&bucket.set).as_str(), bucket.entry.time), (r#"{"f:old":{},"f:x":{}}"#, Some(Time(10))));
    }

    /// Goal: if the list already has a merged entry (the bucket), the oldest update is not merged into it, as in
    /// kube-apiserver. Thirteen managers, more than [`UPDATERS_MAX`], write within one second. The expected list is
    /// that of kube-apiserver.
    #[test]
    fn the_oldest_update_stays_beside_an_existing_bucket() {
        let mut managers = Managers::default();
        for n in 0..13 {
            managers.0.push(updater(&format!("A{n:02}"), 5, &format!("{{\"f:x{n:02}\":{{}}}}")));
            managers.cap_updaters();
        }
        let list = managers.into_list();
        let names: Vec<_> = list.entries().iter().map(|entry| entry.manager.as_str()).collect();
        assert_eq!(names, ["A02", "A05", "A06", "A07", "A08", "A09", "A10", "A11", "A12", ANCIENT]);
        assert_eq!(list.entries()[9].fields.as_json(), r#"{"f:x00":{},"f:x01":{},"f:x03":{},"f:x04":{}}"#);
    }

    #[test]
    fn a_bucket_that_is_itself_joined_is_lost() {
        let with_bucket_at = |bucket: i64, count: i64| {
            let mut managers: Vec<_> =
                (0..count).map(|n| updater(&format!("m{n:02}"), n * 10, &format!("{{\"f:x{n:02}\":{{}}}}"))).collect();
            managers.push(updater(ANCIENT, bucket, r#"{"f:old":{}}"#));
            let mut managers = Managers(managers);
            managers.cap_updaters();
            managers.0.sort_by_key(|manager| manager.entry.time.map(|time| time.0));
            let shown =
                |m: Manager| format!("{} {} {}", m.entry.manager, m.entry.time.map_or(-1, |t| t.0), text(&m.set));
            managers.0.into_iter().map(shown).take(3).collect::<Vec<_>>()
        };
        // The bucket receives two updates. Then the bucket itself is the next update to merge, and is dropped with
        // these two updates. So the oldest update becomes the new bucket.
        assert_eq!(
            with_bucket_at(25, 13),
            ["ancient-changes 30 {\"f:x00\":{},\"f:x03\":{}}", "m04 40 {\"f:x04\":{}}", "m05 50 {\"f:x05\":{}}"]
        );
        // The bucket itself is the last update to merge. So no bucket is left.
        assert_eq!(with_bucket_at(5, 10), ["m00 0 {\"f:x00\":{}}", "m01 10 {\"f:x01\":{}}", "m02 20 {\"f:x02\":{}}"]);
    }

    /// Goal: all updates are merged into the bucket in one step. One step for each update would copy the large set each
    /// time, which would take minutes.
    #[test]
    fn many_small_updates_are_joined_with_a_large_one_in_one_go() {
        let wide: Vec<_> = (0..50_000).map(|n| format!("\"f:{n}\":{{}}")).collect();
        let mut managers = vec![updater("0", 0, &format!("{{{}}}", wide.join(",")))];
        managers.extend((1..30_000).map(|n| updater(&n.to_string(), n, "{\"f:x\":{}}")));
        let mut managers = Managers(managers);
        managers.cap_updaters();
        assert_eq!(managers.0.len(), UPDATERS_MAX);
        assert_eq!(managers.0.iter().map(|manager| manager.set.members().len()).max(), Some(50_001));
    }

    #[test]
    fn appliers_are_never_joined() {
        let apply = |n: usize| Manager::new(&n.to_string(), Operation::Apply, API_VERSION, Set::default());
        let mut managers = Managers((0..20).map(apply).collect());
        managers.cap_updaters();
        assert_eq!(managers.0.len(), 20);
    }

    #[test]
    fn entries_of_other_versions_are_dropped_and_invalid_refused() {
        let mut entry = updater("m", 1, "{\"f:x\":{}}").entry;
        entry.fields = FieldsV1::from_client("{\"f:x\":{}}");
        let mut read = |version: &str| {
            entry.api_version = version.into();
            Managers::read(&ManagedFields::new(vec![entry.clone()])).map(|managers| managers.0.len())
        };
        assert_eq!(read("coordination.k8s.io/v1"), Ok(1));
        assert_eq!(read("coordination.k8s.io/v1beta1"), Ok(1));
        for other in ["v1", "apps/v1", "coordination.k8s.io/v2"] {
            assert_eq!(read(other), Ok(0), "{other}");
        }
        assert_eq!(read("a/b/c"), Err(Unreadable("unexpected GroupVersion string: a/b/c".to_owned())));
    }

    #[test]
    fn the_last_entry_of_a_manager_counts() {
        let of = |json: &str| {
            let mut entry = updater("m", 1, "{}").entry;
            entry.fields = FieldsV1::from_client(json);
            entry
        };
        let entries = normalized(&[of(r#"{"f:a":{}}"#), of(r#"{"f:c":{},"f:b":{}}"#)], &[]).expect("readable");
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].fields.as_json(), r#"{"f:b":{},"f:c":{}}"#);
        assert_eq!(normalized(&[of("5")], &[]), None);
    }

    #[test]
    fn managed_fields_sent_by_a_client_are_bounded() {
        let of = |elements: usize| {
            let json: Vec<_> = (0..elements).map(|n| format!(r#""v:[[{n}]]":{{}}"#)).collect();
            let mut entry = updater("m", 1, "{}").entry;
            entry.fields = FieldsV1::from_client(&format!("{{{}}}", json.join(",")));
            entry
        };
        // Each element counts as four values: two opening brackets, one opening brace, and a comma. The last element
        // has no comma, but the outermost brace counts in its place.
        let most = of(MANAGED_FIELDS_VALUES_MAX / 4);
        let above = of(MANAGED_FIELDS_VALUES_MAX / 4 + 1);
        assert!(normalized(std::slice::from_ref(&most), &[]).is_some());
        assert_eq!(normalized(std::slice::from_ref(&above), &[]), None);
        assert_eq!(normalized(&[most, of(1)], &[]), None, "all count together");
        let mut escaped = of(0);
        let elements = "\\u002c1".repeat(MANAGED_FIELDS_VALUES_MAX);
        escaped.fields = FieldsV1::from_client(&format!(r#"{{"v:\u005b1{elements}\u005d":{{}}}}"#));
        assert_eq!(normalized(&[escaped], &[]), None);
        // Any number of unchanged entries is accepted, in any order. Only the values in changed entries are counted.
        let mut other = of(1);
        other.manager = "a".into();
        let live = [above.clone(), other.clone()];
        assert_eq!(normalized(&[other, above.clone()], &live).map(|entries| entries.len()), Some(2));
        let mut renamed = above;
        renamed.manager = "b".into();
        assert_eq!(normalized(&[renamed], &live), None);
    }
}
