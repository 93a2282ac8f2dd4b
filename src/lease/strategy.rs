//! Changes a Lease before it is stored: the server overwrites the fields that clients may not set (apiserver
//! `registry/rest`, `BeforeCreate` and `BeforeUpdate`).

use crate::lease::validation::validate_update;
use crate::lease::{Lease, ObjectMeta, OwnerReference};
use crate::timestamp::{Time, ZERO_SECONDS};
use compact_str::CompactString;
use std::collections::HashSet;

/// Maximum number of bytes of `generateName` that a generated name contains (apiserver `storage/names`).
const GENERATE_NAME_BYTES_MAX: usize = 58;
/// Number of random characters in a generated name.
const GENERATED_CHARS: usize = 5;
/// Letters and digits for generated names. They spell no words, and look different from each other (apimachinery
/// `util/rand`).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Finalizer for which the garbage collector retains the dependents of the object (Kubernetes, "Garbage Collection").
const ORPHAN: &str = "orphan";
/// Finalizer for which the garbage collector deletes the dependents before the object.
const FOREGROUND: &str = "foregroundDeletion";

/// Clears the fields that only the server sets. A client may send them in a creation, but they have no effect.
pub fn wipe_system_fields(meta: &mut ObjectMeta) {
    meta.creation_timestamp = None;
    meta.uid = CompactString::default();
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
    meta.self_link = CompactString::default();
}

/// Sets the fields of a new object that only the server sets. `uid` must be a UID that no object has.
pub fn prepare_for_create(lease: &mut Lease, uid: CompactString, now: Time) {
    let meta = &mut lease.metadata;
    wipe_system_fields(meta);
    meta.uid = uid;
    meta.creation_timestamp = Some(now);
    meta.resource_version = CompactString::default();
}

/// Removes each owner reference that equals an earlier one in the list. Returns the UIDs of the removed owner
/// references, for a warning.
pub fn drop_repeated_owners(owners: &mut Vec<OwnerReference>) -> Vec<CompactString> {
    let mut repeated = Vec::new();
    if owners.len() > 1 {
        let mut seen = HashSet::with_capacity(owners.len());
        let first: Vec<bool> = owners.iter().map(|owner| seen.insert(owner)).collect();
        if first.contains(&false) {
            let mut first = first.into_iter();
            owners.retain(|owner| {
                let stays = first.next().unwrap_or(true);
                if !stays {
                    repeated.push(owner.uid.clone());
                }
                stays
            });
        }
    }
    repeated
}

/// Generates a name from a prefix. If an object already has this name, the caller must call the function again.
#[must_use]
pub fn generated_name(prefix: &str, rng: &mut fastrand::Rng) -> CompactString {
    let mut end = prefix.len().min(GENERATE_NAME_BYTES_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = CompactString::from(&prefix[..end]);
    name.extend((0..GENERATED_CHARS).filter_map(|_| rng.choice(ALPHABET)).map(|byte| char::from(*byte)));
    name
}

/// Copies the fields that the client may not change, or may omit, from `old` to `new`. Call this function before the
/// validation of the update.
pub fn prepare_for_update(new: &mut Lease, old: &Lease) {
    let (new, old) = (&mut new.metadata, &old.metadata);
    new.generation = old.generation;
    if new.uid.is_empty() {
        new.uid = old.uid.clone();
    }
    if old.creation_timestamp.is_some() {
        new.creation_timestamp = old.creation_timestamp;
    }
    if old.deletion_timestamp.is_some() {
        new.deletion_timestamp = old.deletion_timestamp;
    }
    if new.deletion_grace_period_seconds.is_none() {
        new.deletion_grace_period_seconds = old.deletion_grace_period_seconds;
    }
}

/// Whether an update of `lease` to any other `renewTime` is valid and changes nothing but `renewTime`. If so, the
/// server recognizes a renewal by a comparison of bytes, and does not validate it.
#[must_use]
pub fn is_renewable(lease: &Lease) -> bool {
    let mut sent = lease.clone();
    sent.metadata.resource_version = "1".into();
    // Whether the text of a time parses to the same time. If it does not, a client that sends the text back changes the
    // time.
    let reads_back = |seconds: i64| seconds != ZERO_SECONDS && YEARS_OF_FOUR_DIGITS_SECONDS.contains(&seconds);
    let times = lease.metadata.managed_fields.entries().iter().filter_map(|entry| entry.time);
    lease.spec.renew_time.is_some()
        && lease.spec.acquire_time.is_none_or(|time| reads_back(time.0.div_euclid(1_000_000)))
        && times.map(|time| time.0).all(reads_back)
        && lease.metadata.creation_timestamp.is_none_or(|time| reads_back(time.0))
        && lease.metadata.deletion_timestamp.is_none()
        && drop_repeated_owners(&mut sent.metadata.owner_references).is_empty()
        && validate_update(&sent, lease).is_empty()
}

/// The times from 0000-01-01T00:00:00Z to 9999-12-31T23:59:59Z, in seconds since the epoch.
const YEARS_OF_FOUR_DIGITS_SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Whether a Lease that is being deleted has no finalizer left after an update, so that the server deletes it
/// (apiserver `registry/generic/registry`, `ShouldDeleteDuringUpdate`).
#[must_use]
pub fn is_finalized_by_update(new: &ObjectMeta, old: &ObjectMeta) -> bool {
    new.finalizers.is_empty()
        && old.deletion_timestamp.is_some()
        && matches!(old.deletion_grace_period_seconds, None | Some(0))
}

/// Effect of a deletion on the dependents of the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// The request does not specify the effect. The finalizers of the object decide.
    #[default]
    Unspecified,
    /// The garbage collector deletes the dependents after the object.
    Background,
    /// The garbage collector deletes the dependents before the object.
    Foreground,
    /// The garbage collector retains the dependents.
    Orphan,
}

/// Returns the finalizers of an object after a request to delete it (apiserver
/// `deletionFinalizersForGarbageCollection`). Adds or removes the two finalizers of the garbage collector. The order of
/// all other finalizers does not change.
#[must_use]
pub fn deletion_finalizers(finalizers: &[CompactString], propagation: Propagation) -> Vec<CompactString> {
    let has = |name: &str| finalizers.iter().any(|f| f == name);
    let (orphan, foreground) = match propagation {
        Propagation::Unspecified => (has(ORPHAN), has(FOREGROUND) && !has(ORPHAN)),
        Propagation::Background => (false, false),
        Propagation::Foreground => (false, true),
        Propagation::Orphan => (true, false),
    };
    let mut all: Vec<_> = finalizers.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    if orphan {
        all.push(ORPHAN.into());
    }
    if foreground {
        all.push(FOREGROUND.into());
    }
    if has(ORPHAN) == orphan && has(FOREGROUND) == foreground {
        return finalizers.to_vec();
    }
    all
}

/// Marks a Lease whose finalizers delay its deletion: sets `deletionTimestamp`, and replaces the finalizers by
/// `finalizers`. A second call with the same finalizers, at a later time, changes nothing.
#[must_use]
pub fn marked_for_deletion(old: &Lease, finalizers: Vec<CompactString>, now: Time) -> Lease {
    let mut lease = old.clone();
    let meta = &mut lease.metadata;
    meta.finalizers = finalizers;
    if meta.deletion_timestamp.is_none() && meta.generation > 0 {
        meta.generation = meta.generation.saturating_add(1);
    }
    // `deletionTimestamp` may already be a time in the future, which a client has sent. The deletion does not wait for
    // that time.
    meta.deletion_timestamp = Some(meta.deletion_timestamp.map_or(now, |asked| asked.min(now)));
    meta.deletion_grace_period_seconds = Some(0);
    lease
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::MicroTime;

    fn names(list: &[&str]) -> Vec<CompactString> {
        list.iter().map(|name| CompactString::from(*name)).collect()
    }

    #[test]
    fn a_lease_whose_time_does_not_round_trip_is_not_renewable() {
        let lease = |acquire_time: Option<i64>| {
            let mut lease = Lease::named("n", "a");
            lease.spec.renew_time = Some(MicroTime(0));
            lease.spec.acquire_time = acquire_time.map(|seconds| MicroTime(seconds * 1_000_000));
            lease
        };
        assert!(is_renewable(&lease(None)));
        assert!(is_renewable(&lease(Some(1_795_219_345))));
        for seconds in [ZERO_SECONDS, *YEARS_OF_FOUR_DIGITS_SECONDS.end() + 1] {
            assert!(!is_renewable(&lease(Some(seconds))), "{seconds}");
        }
    }

    #[test]
    fn a_generated_name_keeps_58_bytes_and_adds_5() {
        let mut rng = fastrand::Rng::with_seed(1);
        let name = generated_name(&"x".repeat(70), &mut rng);
        assert_eq!(name.len(), 63);
        assert!(name.starts_with(&"x".repeat(58)));
        assert!(name[58..].bytes().all(|b| ALPHABET.contains(&b)));
        // The 58 bytes are 29 characters. A cut within a character would panic.
        assert_eq!(generated_name(&"é".repeat(40), &mut rng).chars().count(), 29 + 5);
        assert_ne!(generated_name("a-", &mut rng), generated_name("a-", &mut rng));
    }

    #[test]
    fn a_repeated_owner_is_kept_once() {
        let owner = |uid: &str, name: &str| OwnerReference { uid: uid.into(), name: name.into(), ..Default::default() };
        let mut owners = vec![owner("1", "a"), owner("1", "b"), owner("1", "a"), owner("2", "a"), owner("2", "a")];
        assert_eq!(drop_repeated_owners(&mut owners), ["1", "2"]);
        assert_eq!(owners, [owner("1", "a"), owner("1", "b"), owner("2", "a")]);
        assert!(drop_repeated_owners(&mut owners).is_empty());
    }

    #[test]
    fn propagation_decides_the_collectors_finalizers() {
        let held = names(&["example.com/a", ORPHAN]);
        assert_eq!(deletion_finalizers(&held, Propagation::Unspecified), held);
        assert_eq!(deletion_finalizers(&held, Propagation::Background), names(&["example.com/a"]));
        assert_eq!(deletion_finalizers(&held, Propagation::Foreground), names(&["example.com/a", FOREGROUND]));
        assert_eq!(deletion_finalizers(&[], Propagation::Orphan), names(&[ORPHAN]));
        assert_eq!(deletion_finalizers(&[], Propagation::Unspecified), names(&[]));
    }

    #[test]
    fn an_update_cannot_take_a_deletion_back() {
        let old = marked_for_deletion(&Lease::default(), names(&["f"]), Time(7));
        let mut new = Lease::default();
        prepare_for_update(&mut new, &old);
        assert_eq!(new.metadata.deletion_timestamp, Some(Time(7)));
        assert!(is_finalized_by_update(&new.metadata, &old.metadata));
        assert!(!is_finalized_by_update(&old.metadata, &old.metadata));
        assert_eq!(marked_for_deletion(&old, names(&["f"]), Time(9)), old);
        assert_eq!(old.metadata.generation, 0);
        let mut counted = Lease::default();
        counted.metadata.generation = 3;
        counted.metadata.deletion_grace_period_seconds = Some(5);
        let marked = marked_for_deletion(&counted, names(&["f"]), Time(9));
        assert_eq!((marked.metadata.generation, marked.metadata.deletion_grace_period_seconds), (4, Some(0)));
        assert_eq!(marked_for_deletion(&marked, names(&["f"]), Time(5)).metadata.generation, 4);
    }
}
