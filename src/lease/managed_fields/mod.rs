//! Ownership of the fields of a Lease (Kubernetes, "Server-Side Apply", "Field management"). A field manager, or
//! manager for short, owns the fields that it has set.
//!
//! This module defines the type of `managedFields`, its change by each kind of write, and the merge of a server-side
//! apply. Its functions are pure: they use neither the table of stored Leases nor any encoding but JSON.
//!
//! While `managedFields` do not change, all states of a Lease share one list in memory. Each entry stores its fields as
//! the text of `fieldsV1`, for three reasons. The lists of a million Leases fit in memory. A response copies the text.
//! A list that a client sends back is compared as bytes. Trees of fields are built only when a write changes ownership.
//!
//! Invariant: a stored list is sorted, its entries have different identities, and each entry has fields.

mod apply;
mod compare;
mod convert;
mod fields;
mod managers;
mod path_element;
mod schema;
mod set;
mod typed;
mod update;

pub use apply::apply;
pub use convert::{Conversion, lease_from_value};
pub use fields::{FieldsV1, SharedTexts};
pub use update::{Writer, settle_times, time_after_renewal, track};

use crate::go::quote::is_unprintable;
use crate::lease::LeaseSpec;
use crate::lease::validation::FIELD_MANAGER_BYTES_MAX;
use crate::timestamp::Time;
use compact_str::CompactString;
use set::Set;
use std::cmp::Ordering;
use std::ops::{BitOr, BitOrAssign, Deref};
use std::rc::Rc;

/// `metadata.managedFields`. A clone copies only a pointer.
#[derive(Clone, Debug, Default)]
pub struct ManagedFields(Option<Rc<[ManagedFieldsEntry]>>);

/// `metav1.ManagedFieldsEntry`: the fields that one manager owns by one kind of write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFieldsEntry {
    /// Name of the manager.
    pub manager: CompactString,
    /// Kind of the writes by which the manager owns the fields.
    pub operation: Operation,
    /// API version of the write.
    pub api_version: CompactString,
    /// Time of this manager's last write that changed the object. An update that only removes fields does not count.
    pub time: Option<Time>,
    /// The fields that the manager owns.
    pub fields: FieldsV1,
    /// Subresource that the manager wrote; empty if it wrote the object itself.
    pub subresource: Subresource,
}

impl ManagedFieldsEntry {
    /// Reads some of the entry's fields, to bring all its cache lines into the processor's caches. The result has no
    /// meaning.
    #[inline]
    #[must_use]
    pub fn touch(&self) -> usize {
        let flags = [self.fields.spec.is_some(), self.operation == Operation::Update, self.time.is_some()];
        self.manager.len() + self.api_version.len() + flags.map(usize::from).iter().sum::<usize>()
    }
}

/// Name of a subresource. Leases have no subresources, so nearly all names are empty, and an empty name takes only the
/// memory of a pointer. But a client may send a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subresource(Option<Box<CompactString>>);

impl From<CompactString> for Subresource {
    fn from(name: CompactString) -> Self {
        Self(Some(name).filter(|name| !name.is_empty()).map(Box::new))
    }
}

impl Deref for Subresource {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_deref().map_or("", CompactString::as_str)
    }
}

/// `metav1.ManagedFieldsOperationType`. The order of the variants is the order of entries in `managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Any write other than a server-side apply.
    Update,
}

impl Operation {
    /// Returns the name of the operation in encodings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl PartialEq for ManagedFields {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Rc::ptr_eq(a, b) || a == b,
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for ManagedFields {}

impl ManagedFields {
    /// The absent list. By an empty list, a client removes all entries; an absent list leaves them unchanged.
    pub const ABSENT: Self = Self(None);

    /// Creates a list that is present but empty. A client sends such a list to remove all entries.
    #[must_use]
    pub fn reset() -> Self {
        Self(Some(Rc::from([])))
    }

    /// Creates a list that is present, even if it has no entries.
    #[must_use]
    pub fn new(entries: Vec<ManagedFieldsEntry>) -> Self {
        Self(Some(entries.into()))
    }

    /// Returns the entries, in the order in which they are encoded.
    #[must_use]
    pub fn entries(&self) -> &[ManagedFieldsEntry] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether the list is absent. An empty list is not absent.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Sets the time in the last entry, as a renewal does.
    pub fn set_last_time(&mut self, time: Time) {
        let Some(shared) = &self.0 else { return };
        let mut entries: Rc<[ManagedFieldsEntry]> = Rc::from(&**shared);
        if let Some(last) = Rc::get_mut(&mut entries).and_then(<[_]>::last_mut) {
            last.time = Some(time);
        }
        self.0 = Some(entries);
    }

    /// Replaces the texts of `fieldsV1` by texts that Leases share. Skips a list that several states of a Lease share,
    /// since its texts are already replaced.
    pub fn share_texts(&mut self, shared: &mut SharedTexts) {
        for entry in self.0.as_mut().and_then(Rc::get_mut).into_iter().flatten() {
            if let Some(fields) = shared.share(&entry.fields) {
                entry.fields = fields;
            }
        }
    }

    /// Returns the approximate memory of the list, in bytes. Counts the whole of each text, even if the text is shared.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // A short string takes no memory beyond its `CompactString` value.
        let long = |text: &str| if text.len() > size_of::<CompactString>() { text.len() } else { 0 };
        let bytes = |entry: &ManagedFieldsEntry| {
            let names = [&*entry.manager, &*entry.api_version, &*entry.subresource].map(long);
            size_of::<ManagedFieldsEntry>() + 16 + names.iter().sum::<usize>() + entry.fields.json_bytes()
        };
        self.entries().iter().map(bytes).sum()
    }

    /// Creates the list of a stored object: sorts the entries. A list without entries becomes absent.
    fn stored(mut entries: Vec<ManagedFieldsEntry>) -> Self {
        if entries.is_empty() {
            return Self::ABSENT;
        }
        entries.sort_by(ManagedFieldsEntry::list_order);
        Self(Some(entries.into()))
    }
}

impl ManagedFieldsEntry {
    fn list_order(&self, other: &Self) -> Ordering {
        let seconds = |entry: &Self| entry.time.map_or(0, |time| time.0);
        self.operation
            .cmp(&other.operation)
            .then_with(|| seconds(self).cmp(&seconds(other)))
            .then_with(|| self.manager.cmp(&other.manager))
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    /// Returns the identity of the manager: operation, name, API version and subresource. No two entries of a stored
    /// list have the same identity. In the identity of an `Apply` entry, the API version is empty.
    #[inline]
    fn identity(&self) -> (Operation, &str, &str, &str) {
        let api_version = match self.operation {
            Operation::Apply => "",
            Operation::Update => self.api_version.as_str(),
        };
        (self.operation, &self.manager, api_version, &self.subresource)
    }

    /// Whether two entries have the same [`Self::identity`].
    #[inline]
    fn is_of_same_manager(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// Whether two entries are equal except for their times.
    fn is_same_but_for_time(&self, other: &Self) -> bool {
        self.is_of_same_manager(other) && self.api_version == other.api_version && self.fields == other.fields
    }
}

/// A list that a client has sent. The decoder adds its entries one by one.
#[derive(Debug, Default)]
pub struct SentManagedFields {
    entries: Vec<ManagedFieldsEntry>,
    /// Whether the first entry is empty. A list of only one empty entry is a client's request to remove all entries.
    first_is_empty: bool,
    /// Whether some entry is invalid. If so, the server ignores the whole list.
    is_bad: bool,
    count: usize,
}

/// An entry as the client has sent it. An empty string means that the field is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentEntry {
    /// `manager`
    pub manager: CompactString,
    /// `operation`
    pub operation: CompactString,
    /// `apiVersion`
    pub api_version: CompactString,
    /// `time`
    pub time: Option<Time>,
    /// `fieldsType`
    pub fields_type: CompactString,
    /// `fieldsV1`
    pub fields: Option<FieldsV1>,
    /// `subresource`
    pub subresource: CompactString,
}

impl SentManagedFields {
    /// Adds the next entry of the list.
    pub fn push(&mut self, entry: SentEntry) {
        self.count += 1;
        self.first_is_empty |= self.count == 1 && entry == SentEntry::default();
        let operation = match entry.operation.as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return self.is_bad = true,
        };
        if entry.api_version.is_empty() || entry.fields_type != FieldsV1::TYPE {
            return self.is_bad = true;
        }
        if self.entries.is_empty() {
            // Nearly all lists have only one entry.
            self.entries.reserve_exact(1);
        }
        self.entries.push(ManagedFieldsEntry {
            manager: entry.manager,
            operation,
            api_version: entry.api_version,
            time: entry.time,
            fields: entry.fields.unwrap_or_else(|| FieldsV1::from_client("{}")),
            subresource: entry.subresource.into(),
        });
    }

    /// Returns the list. If the list is invalid, returns the absent list, so that the stored list of the object stays
    /// unchanged.
    #[must_use]
    pub fn finish(self) -> ManagedFields {
        match self.count {
            0 => ManagedFields::reset(),
            1 if self.first_is_empty => ManagedFields::reset(),
            _ if self.is_bad => ManagedFields::ABSENT,
            _ => ManagedFields::new(self.entries),
        }
    }
}

/// A set of fields of a Lease's spec, one bit for each field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SpecFields(u8);

impl BitOr for SpecFields {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for SpecFields {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl SpecFields {
    const ACQUIRE_TIME: Self = Self(1);
    const HOLDER_IDENTITY: Self = Self(1 << 1);
    const LEASE_DURATION_SECONDS: Self = Self(1 << 2);
    const LEASE_TRANSITIONS: Self = Self(1 << 3);
    const PREFERRED_HOLDER: Self = Self(1 << 4);
    const RENEW_TIME: Self = Self(1 << 5);
    const STRATEGY: Self = Self(1 << 6);

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn in_set(set: &Set) -> Self {
        let mut fields = Self::default();
        if let Some(spec) = set.child(&PathElement::field("spec")) {
            for (bit, name) in LeaseSpec::FIELDS.iter().enumerate() {
                if spec.has_member(&PathElement::field(name)) {
                    fields |= Self(1 << bit);
                }
            }
        }
        fields
    }

    fn to_set(self) -> Set {
        let names = LeaseSpec::FIELDS.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        Set::from_parts(names.map(|(_, name)| PathElement::field(name)).collect(), Vec::new())
    }
}

use path_element::PathElement;

/// Derives the name of a field manager from a user agent: the part before the first slash, without unprintable
/// characters.
#[must_use]
pub fn manager_of_user_agent(user_agent: &[u8]) -> CompactString {
    let product = user_agent.split(|byte| *byte == b'/').next().unwrap_or_default();
    let mut manager = CompactString::default();
    for c in String::from_utf8_lossy(product).chars().filter(|c| !is_unprintable(*c)) {
        if manager.len() + c.len_utf8() > FIELD_MANAGER_BYTES_MAX {
            break;
        }
        manager.push(c);
    }
    manager
}

/// Whether [`manager_of_user_agent`] derives the name `manager` from this user agent. If the derived name is empty,
/// `manager` must be `unknown`.
#[inline]
#[must_use]
pub fn is_manager_of_user_agent(manager: &str, user_agent: &[u8]) -> bool {
    let plain = manager.as_bytes();
    if plain.len() <= FIELD_MANAGER_BYTES_MAX
        && plain.iter().all(|byte| (b' '..=b'~').contains(byte) && *byte != b'/')
        && let Some(rest) = user_agent.strip_prefix(plain)
        && !plain.is_empty()
        && matches!(rest.first(), None | Some(b'/'))
    {
        return true;
    }
    match manager_of_user_agent(user_agent).as_str() {
        "" => manager == UNKNOWN,
        name => manager == name,
    }
}

/// Name of the field manager of a writer that has no manager name.
const UNKNOWN: &str = "unknown";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_name_is_recognized_in_its_user_agent() {
        let agents: [&[u8]; 10] = [
            b"kubelet/v1.34.0 (linux/amd64)",
            b"kubelet",
            b"kubelet2/v1",
            b"",
            b"/x",
            b"unknown/1",
            b"my agent\t1/2",
            &[b'x'; 300],
            &[0xff, b'a'],
            "é".as_bytes(),
        ];
        for agent in agents {
            for other in agents {
                let manager = match manager_of_user_agent(other) {
                    name if name.is_empty() => UNKNOWN.into(),
                    name => name,
                };
                let own = manager_of_user_agent(agent);
                let own = if own.is_empty() { UNKNOWN } else { own.as_str() };
                assert_eq!(is_manager_of_user_agent(&manager, agent), own == manager, "{manager} {agent:?}");
            }
        }
    }

    #[test]
    fn a_manager_without_a_name_is_called_by_its_user_agent() {
        assert_eq!(manager_of_user_agent(b"kubelet/v1.34.0 (linux/amd64)"), "kubelet");
        assert_eq!(manager_of_user_agent(b"my agent\t1/2"), "my agent1");
        assert_eq!(manager_of_user_agent(b""), "");
        assert_eq!(manager_of_user_agent(b"/x"), "");
        assert_eq!(manager_of_user_agent("é".repeat(100).as_bytes()).len(), 128);
        assert_eq!(manager_of_user_agent(&[b'x'; 300]).len(), 128);
        assert_eq!(manager_of_user_agent(&[0xff, b'a']), "\u{fffd}a");
    }

    #[test]
    fn fields_of_the_spec_are_known_by_their_bits() {
        for (bit, name) in LeaseSpec::FIELDS.iter().enumerate() {
            let mut set = Set::default();
            set::tests::insert(&mut set, &[PathElement::field("spec"), PathElement::field(name)]);
            assert_eq!(SpecFields::in_set(&set), SpecFields(1 << bit));
            assert_eq!(Some(&SpecFields(1 << bit).to_set()), set.child(&PathElement::field("spec")));
        }
    }
}
