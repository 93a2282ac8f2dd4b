//! Inspection of intact and damaged stores.

use super::super::FORMAT;
use super::super::applied::Applied;
use super::super::entry::{EntryWriter, Header};
use super::super::inspect::{Inspection, Summary};
use super::super::testing::{Store, Stored};
use super::rig::{Rig, create, small_limits};
use crate::engine::Position;
use crate::timestamp::MicroTime;
use serde_json::Value;

/// Creates a store with a base (the snapshot that startup loads first), possibly a newer snapshot, and some entries.
fn rig() -> Rig {
    let mut rig = Rig::open(&Store::default(), small_limits(), 60, 1);
    rig.fill();
    rig.renew_all(0..7);
    rig.write(rig.deletion("n", "7"));
    rig
}

fn look(stored: &Stored, is_shared: bool) -> (Summary, Vec<Value>) {
    let mut store = Store::of(stored.clone());
    let summary = Inspection::begin(&mut store, is_shared).finish();
    let mut inspection = Inspection::begin(&mut store, is_shared);
    let lines = inspection.by_ref().map(|line| serde_json::from_str(&line).expect("JSON")).collect();
    assert_eq!(inspection.finish(), summary);
    (summary, lines)
}

#[test]
fn an_intact_store_is_reported_as_it_would_be_loaded() {
    let mut rig = rig();
    let late = rig.deletion("n", "8");
    rig.write(rig.renewal("n", "8", 7));
    rig.write(late);
    let stored = rig.store.stored();
    let (summary, lines) = look(&stored, false);
    assert!(summary.complaints.is_empty(), "{:?}", summary.complaints);
    assert_eq!((summary.leases, summary.last_version), (rig.table.len(), rig.table.version().0));
    assert_eq!((summary.entries, summary.rejected, summary.format), (stored.entries.len() as u64, 1, Some(2)));
    assert_eq!(summary.first_version + summary.applied, summary.last_version);
    assert!(!summary.snapshots.is_empty() && summary.stray_snapshots == 0);
    assert_eq!(lines.len() as u64, summary.applied + summary.rejected);
    let log = super::rig::log(&rig.table);
    for (version, key, is_deleted, _) in log {
        let line = lines.iter().find(|line| line["version"] == version).expect("a line");
        let name = line["name"].as_str().expect("a name");
        assert_eq!((format!("n/{name}"), line["kind"] == "delete"), (key, is_deleted));
    }
    let last = lines.last().expect("lines");
    assert_eq!(
        (&last["version"], &last["kind"], &last["writer"]),
        (&Value::Null, &"delete".into(), &"0000000000000001".into())
    );
    let renewal = lines.iter().rfind(|line| line["kind"] == "renew").expect("a renewal");
    assert_eq!(renewal["renewTime"], "1970-01-01T00:00:00.000007Z");
    assert!(renewal["number"].as_u64() < renewal["from"].as_u64());
}

/// Writers 2 and 3 had applied the same entries and append at the same time. Both create `x`, so the second creation is
/// rejected. The entry of writer 2 is in the store twice, and the second copy is skipped.
#[test]
fn a_store_of_several_writers_is_reported_as_loaded() {
    let mut rig = Rig::open(&Store::default(), super::super::Limits::default(), 60, 1);
    rig.write(create("n", "a"));
    let mut stored = rig.store.stored();
    let Applied { position, chain, .. } = rig.journal.applied.clone();
    let base = rig.table.version();
    let entry = |writer, names: &[&str]| {
        let header = Header { writer, sequence: 1, after: position, base, chain, time: MicroTime(0) };
        let mut entry = EntryWriter::new(header, FORMAT);
        assert!(names.iter().all(|name| entry.try_push(&create("n", name), usize::MAX)));
        entry.finish().0
    };
    let entries = [entry(2, &["x"]), entry(3, &["x", "y"]), entry(2, &["x"])];
    stored.entries.extend((position.0 + 1..).map(Position).zip(entries));
    let (summary, lines) = look(&stored, true);
    assert!(summary.complaints.is_empty(), "{:?}", summary.complaints);
    assert_eq!((summary.leases, summary.entries), (3, 4));
    assert_eq!((summary.applied, summary.rejected, summary.last_version), (3, 1, base.0 + 2));
    let versions: Vec<_> = lines.iter().map(|line| line["version"].as_u64()).collect();
    assert_eq!(versions, [Some(base.0), Some(base.0 + 1), None, Some(base.0 + 2)]);
}

/// A replica may append an entry before it has applied the last entry, or from a table that differs. Every replica
/// applies such an entry at startup. In a store with one writer, such an entry is damage.
#[test]
fn an_entry_of_another_table_is_damage_only_with_one_writer() {
    let mut rig = Rig::open(&Store::default(), super::super::Limits::default(), 60, 1);
    rig.write(create("n", "a"));
    let Applied { position, chain, .. } = rig.journal.applied.clone();
    let base = rig.table.version();
    rig.write(create("n", "b"));
    for chain in [chain, chain ^ 1] {
        let header = Header { writer: 2, sequence: 1, after: position, base, chain, time: MicroTime(0) };
        let mut entry = EntryWriter::new(header, FORMAT);
        assert!(entry.try_push(&create("n", "c"), usize::MAX));
        let mut stored = rig.store.stored();
        stored.entries.insert(Position(position.0 + 2), entry.finish().0);
        let (summary, _) = look(&stored, true);
        assert!(summary.complaints.is_empty(), "{:?}", summary.complaints);
        assert_eq!((summary.leases, summary.last_version), (3, base.0 + 2));
        let (summary, _) = look(&stored, false);
        assert_eq!(summary.complaints.len(), 1, "{:?}", summary.complaints);
    }
}

#[test]
fn a_creation_is_reported_with_its_whole_lease() {
    let mut rig = Rig::open(&Store::default(), super::super::Limits::default(), 60, 1);
    rig.write(create("n", "a"));
    let (_, lines) = look(&rig.store.stored(), false);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["lease"]["spec"]["holderIdentity"], "a");
    assert_eq!(lines[0]["lease"]["metadata"]["resourceVersion"], lines[0]["version"].to_string());
}

#[test]
fn entries_behind_damage_are_reported() {
    let whole = rig().store.stored();
    let (sound, lines) = look(&whole, false);
    let positions: Vec<_> = lines.iter().filter_map(|line| line["position"].as_u64()).collect();
    let damaged = positions[positions.len() / 2];
    let mut changed = whole.clone();
    changed.entries.get_mut(&Position(damaged)).expect("an entry")[60] ^= 1;
    let (summary, lines) = look(&changed, false);
    assert!(summary.complaints.len() == 1, "{:?}", summary.complaints);
    assert!(summary.complaints[0].starts_with(&format!("entry {damaged}: ")));
    assert_eq!(
        (summary.last_version, summary.entries, summary.leases),
        (sound.last_version, sound.entries, sound.leases)
    );
    assert!(lines.iter().any(|line| line["position"] == damaged && line["damage"].is_string()));
    assert_eq!(lines.last().expect("lines")["kind"], "delete");
    // In the next store, all chunks are missing, so the base cannot be read. In the last store, the manifest is
    // missing.
    changed = whole.clone();
    changed.chunks.clear();
    let (summary, lines) = look(&changed, false);
    assert!(!summary.complaints.is_empty() && summary.last_version == sound.last_version && !lines.is_empty());
    changed = whole;
    changed.manifest = None;
    let (summary, lines) = look(&changed, false);
    assert_eq!((summary.format, summary.last_version, summary.complaints.len()), (None, sound.last_version, 1));
    assert!(lines.last().expect("lines")["name"].is_null() || lines.last().expect("lines")["name"] == "7");
}

#[test]
fn mutated_stores_are_inspected_without_a_panic() {
    let whole = rig().store.stored();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..200 {
        let mut changed = whole.clone();
        for value in changed.entries.values_mut().chain(changed.chunks.values_mut()).chain(&mut changed.manifest) {
            if random.u8(..10) == 0 {
                let at = random.usize(..value.len());
                value[at] = random.u8(..);
                value.truncate(random.usize(..=value.len()));
            }
        }
        look(&changed, false);
    }
}
