//! Damage prevents startup, and the error names the damaged place.

use super::super::seal::FORMAT;
use super::super::testing::{Store, Stored};
use super::super::{Limits, seal};
use super::rig::{Rig, create, load, small_limits};
use crate::engine::{EngineError, Position, SnapshotId};

/// Creates a store with a snapshot and later entries.
fn stored() -> Stored {
    let mut rig = Rig::open(&Store::default(), small_limits(), 50, 1);
    rig.fill();
    rig.renew_all(0..6);
    assert!(!rig.store.stored().chunks.is_empty());
    rig.store.stored()
}

#[track_caller]
fn damage(stored: &Stored) -> (String, String) {
    match load(stored, 50) {
        Err(EngineError::Damaged { place, what }) => (place, what),
        other => panic!("{:?}", other.map(|rig| rig.table.version())),
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let whole = stored();
    let version = load(&whole, 50).expect("a store").table.version();
    let mut random = fastrand::Rng::with_seed(1);
    let mut flip = |bytes: &mut Vec<u8>| {
        let at = random.usize(..bytes.len());
        bytes[at] ^= 1 << random.u8(..8);
    };
    for _ in 0..20 {
        let mut changed = whole.clone();
        flip(changed.manifest.as_mut().expect("a manifest"));
        assert_eq!(damage(&changed).0, "memory: manifest");
    }
    let base = *whole.chunks.keys().next().expect("chunks");
    let mut changed = whole.clone();
    flip(changed.chunks.get_mut(&base).expect("a chunk"));
    assert_eq!(damage(&changed).0, format!("memory: chunk {} of snapshot {}", base.1, base.0.0));
    for position in whole.entries.keys() {
        let mut changed = whole.clone();
        flip(changed.entries.get_mut(position).expect("an entry"));
        match load(&changed, 50) {
            Err(EngineError::Damaged { place, .. }) => assert_eq!(place, format!("memory: entry {}", position.0)),
            // Entries whose changes are already in the base (the snapshot that startup loads first) are not decoded. So
            // their damage is not noticed. At most the first four are such entries, since the journal deletes entries
            // in segments of four (`small_limits`).
            Ok(rig) => assert!(
                position.0 < whole.entries.keys().next().expect("entries").0 + 4 && rig.table.version() == version
            ),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_missing_chunk_or_manifest_is_damage() {
    let whole = stored();
    let mut changed = whole.clone();
    changed.chunks.pop_first();
    assert!(damage(&changed).1.contains("not there"));
    changed = whole.clone();
    changed.manifest = None;
    assert_eq!(damage(&changed).0, "memory: manifest");
    changed.chunks.clear();
    assert_eq!(damage(&changed).0, "memory: manifest");
    // Another chunk is in the place of the first chunk.
    changed = whole;
    let (key, _) = changed.chunks.first_key_value().expect("chunks");
    let (id, index) = *key;
    changed.chunks.insert((id, index), super::super::chunk::encode(SnapshotId(id.0 + 1), index, FORMAT, b""));
    assert!(damage(&changed).1.contains("another chunk"));
}

/// Creates a store with six entries of one writer: a creation and five renewals. The store has no snapshot.
fn entries() -> Stored {
    let mut rig = Rig::open(&Store::default(), Limits::default(), 50, 1);
    rig.write(create("n", "a"));
    for micros in 0..5 {
        rig.write(rig.renewal("n", "a", micros));
    }
    rig.store.stored()
}

#[test]
fn a_missing_entry_is_a_gap() {
    let whole = entries();
    for missing in 1..=5 {
        let mut changed = whole.clone();
        changed.entries.remove(&Position(missing));
        let (place, what) = damage(&changed);
        assert_eq!(place, format!("memory: entry {}", missing + 1));
        assert_eq!(what, format!("it has sequence {} of its writer instead of {missing}", missing + 1));
    }
    // The journal cannot notice that the last entry is missing. It need not, since an engine never loses durable
    // entries.
    let mut changed = whole;
    changed.entries.remove(&Position(6));
    assert!(load(&changed, 50).is_ok());
}

#[test]
fn an_entry_that_was_appended_twice_is_applied_once() {
    let mut changed = entries();
    let dump = load(&changed, 50).expect("a store").dump();
    let again = changed.entries[&Position(4)].clone();
    changed.entries.insert(Position(9), again);
    let mut rig = load(&changed, 50).expect("a store");
    assert_eq!(rig.dump(), dump);
    // The journal writes the next entry after the duplicate, and a restart loads this entry.
    rig.write(rig.renewal("n", "a", 77));
    let dump = rig.dump();
    assert_eq!(rig.restart(Limits::default(), 100).dump(), dump);
}

/// Entries with changed content and a valid checksum, as a bug in an earlier process might write them. The offsets 18,
/// 26 and 34 are those of `after`, `base` and `chain` in the header.
#[test]
fn entries_with_a_broken_chain_are_detected() {
    let whole = entries();
    for (at, words) in [(18, "after position"), (26, "at version"), (34, "chains are not equal")] {
        let mut changed = whole.clone();
        let entry = changed.entries.get_mut(&Position(3)).expect("an entry");
        entry.truncate(entry.len() - seal::SEAL_BYTES);
        entry[at] ^= 1;
        seal::seal(entry);
        let (place, what) = damage(&changed);
        assert_eq!(place, "memory: entry 3");
        assert!(what.contains(words), "{what}");
    }
    // The content of entry 3 has changed. The chain (a hash of all earlier entries) in the header of entry 4 reveals
    // the change.
    let mut changed = whole;
    let entry = changed.entries.get_mut(&Position(3)).expect("an entry");
    entry.truncate(entry.len() - seal::SEAL_BYTES);
    *entry.last_mut().expect("a time") ^= 2;
    seal::seal(entry);
    assert_eq!(damage(&changed).0, "memory: entry 4");
}

#[test]
fn a_later_format_is_refused_by_its_number() {
    let whole = entries();
    let newer = |value: &mut Vec<u8>| {
        value.truncate(value.len() - seal::SEAL_BYTES);
        value[1] = 9;
        seal::seal(value);
    };
    let mut in_manifest = whole.clone();
    newer(in_manifest.manifest.as_mut().expect("a manifest"));
    let mut in_entry = whole;
    newer(in_entry.entries.get_mut(&Position(2)).expect("an entry"));
    for (stored, place) in [(in_manifest, "memory: manifest"), (in_entry, "memory: entry 2")] {
        match load(&stored, 50) {
            Err(EngineError::NewerFormat { store, found: 9, known: 2 }) => assert_eq!(store, place),
            other => panic!("{:?}", other.map(|rig| rig.table.version())),
        }
    }
}

#[test]
fn a_snapshot_that_ends_early_is_found() {
    let mut changed = stored();
    let (base, _) = *changed.chunks.keys().next().expect("chunks");
    let base_key = *changed.chunks.keys().rfind(|(id, _)| *id == base).expect("the last chunk of the base");
    let piece = super::super::chunk::decode(&changed.chunks[&base_key]).expect("a chunk");
    let cut = super::super::chunk::encode(piece.snapshot, piece.index, FORMAT, &piece.bytes[..piece.bytes.len() - 1]);
    changed.chunks.insert(base_key, cut);
    let (place, what) = damage(&changed);
    assert!(place.contains("snapshot") && what.contains("Leases of 30"), "{place}: {what}");
}
