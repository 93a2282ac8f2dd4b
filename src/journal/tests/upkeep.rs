//! Tests of snapshots, of the change of the base (the snapshot that startup loads first), and of the deletions after
//! it.

use super::super::manifest::{Base, Manifest};
use super::super::seal::FORMAT;
use super::super::testing::{Store, Stored};
use super::super::{Failure, Limits, Outcome, Stats};
use super::rig::{self, Rig, create, load, small_limits};
use crate::clock::Now;
use crate::engine::{SnapshotId, Write};
use crate::metrics::{HandoverStats, Metrics};
use crate::table::change::Change;

fn manifest(stored: &Stored) -> Manifest {
    Manifest::decode(stored.manifest.as_ref().expect("a manifest")).expect("a manifest")
}

fn filled(limits: Limits, window: usize) -> Rig {
    let mut rig = Rig::open(&Store::default(), limits, window, 1);
    rig.fill();
    rig
}

/// Opens a store with 30 Leases of 8 KiB. Its next snapshot has several pieces of 64 KiB, and begins in the first turn.
fn filled_with_large_leases(limits: Limits) -> Rig {
    let without_snapshots = Limits { snapshot_bytes_min: u64::MAX, ..limits };
    let mut rig = Rig::open(&Store::default(), without_snapshots, 100, 1);
    for n in 0..30 {
        let mut lease = rig::lease("n", &format!("{n}"));
        lease.spec.holder_identity = Some("x".repeat(8 * 1024).into());
        rig.write(Change::Create(Box::new(lease)));
    }
    rig.restart(limits, 2)
}

#[test]
fn entries_before_a_snapshot_stay_for_the_watch_window() {
    let mut rig = filled(small_limits(), 100);
    rig.renew_all(0..2);
    let found = manifest(&rig.store.stored());
    let newer = found.newer.expect("a complete snapshot");
    assert!(matches!(found.base, Base::Empty(_)) && rig.table.log().floor() < newer.version);
    assert_eq!(*rig.store.stored().entries.keys().next().expect("entries"), crate::engine::Position(1));
    let commits = rig.store.commits();
    let chunks = commits.iter().flatten().filter(|write| matches!(write, Write::PutChunk { .. })).count();
    assert_eq!(u32::try_from(chunks), Ok(newer.chunks));
    rig.renew_all(10..14);
    let found = manifest(&rig.store.stored());
    let Base::Snapshot(base) = found.base else { panic!("the snapshot is not the base") };
    assert_eq!(base.id, newer.id);
    let first = *rig.store.stored().entries.keys().next().expect("entries");
    assert!(first.0 + 4 > base.position.0, "{first:?} is left of those before {:?}", base.position);
    let stats = rig.journal.stats();
    assert_eq!(stats.journal_entries, rig.store.stored().entries.len() as u64);
    let bytes: usize = rig.store.stored().entries.values().map(Vec::len).sum();
    assert_eq!(stats.journal_bytes, bytes as u64);
    assert!(stats.journal_bytes_since_snapshot <= stats.journal_bytes);
}

#[test]
fn snapshots_bound_the_size_of_the_store() {
    let mut rig = filled(small_limits(), 100);
    let mut largest = (0, 0);
    for micros in 0..300 {
        rig.renew_all(micros..micros + 1);
        let stored = rig.store.stored();
        largest = (largest.0.max(stored.entries.len()), largest.1.max(stored.chunks.len()));
    }
    assert!(largest.0 < 150 && largest.1 <= 3, "{largest:?} entries and chunks");
    assert!(rig.journal.stats().snapshots > 10);
    let dump = rig.dump();
    let rig = rig.restart(small_limits(), 2);
    assert_eq!((rig.dump(), rig.table.log().len()), (dump, 100));
}

#[test]
fn a_journal_over_its_size_limit_is_truncated_early() {
    let limits = Limits { journal_bytes_max: 32 * 1024, ..small_limits() };
    let mut rig = filled(limits, 1_000_000);
    let mut largest = 0;
    for micros in 0..300 {
        rig.renew_all(micros..micros + 1);
        largest = largest.max(rig.journal.stats().journal_bytes);
    }
    // Only a size above the limit makes the journal replace the base and delete entries. So the size exceeds the limit
    // for a while.
    assert!(largest < 40 * 1024, "{largest} bytes");
    let dump = rig.dump();
    let rig = rig.restart(limits, 2);
    assert_eq!(rig.dump(), dump);
    assert!(rig.table.log().len() < 30 * 300, "the start fills what is left of the watch window");
}

#[test]
fn a_commit_deletes_few_entries_and_a_manifest_is_alone() {
    let mut rig = filled(small_limits(), 50);
    rig.renew_all(0..100);
    let (mut entries, mut stored) = (std::collections::VecDeque::new(), std::collections::BTreeSet::new());
    let mut next = 1;
    let (mut truncations, mut drops) = (0, 0);
    for commit in rig.store.commits() {
        if commit.iter().any(|write| matches!(write, Write::PutManifest(_))) {
            assert_eq!(commit.len(), 1, "a manifest with something beside it");
        }
        let chunks = commit.iter().filter(|write| matches!(write, Write::PutChunk { .. })).count();
        assert!(chunks <= 1, "{chunks} chunks in one commit");
        for write in commit {
            match write {
                Write::Append(_) => {
                    entries.push_back(next);
                    next += 1;
                }
                Write::Truncate(up_to) => {
                    let before = entries.len();
                    entries.retain(|position| *position > up_to.0);
                    assert!((1..=4).contains(&(before - entries.len())));
                    truncations += 1;
                }
                Write::PutChunk { snapshot, index, .. } => _ = stored.insert((snapshot, index)),
                Write::DropChunks { snapshot, below } => {
                    let before = stored.len();
                    stored.retain(|(id, index)| *id != snapshot || *index >= below);
                    assert_eq!(before - stored.len(), 1);
                    drops += 1;
                }
                Write::PutManifest(_) => {}
            }
        }
    }
    assert!(truncations > 10 && drops > 3, "{truncations} {drops}");
}

#[test]
fn a_snapshot_shows_one_version_despite_changes() {
    let limits = Limits { snapshot_bytes_min: 300_000, ..Limits::default() };
    let mut rig = Rig::open(&Store::default(), limits, 100_000, 1);
    let name = |n: u64| format!("{n:05}");
    for n in 0..3_000_u64 {
        let mut lease = rig::lease("n", &name(n));
        lease.spec.strategy = Some(format!("{:x}", fastrand::Rng::with_seed(n).u128(..)).repeat(3).into());
        drop(rig.submit(Change::Create(Box::new(lease))));
    }
    rig.store.keep_history();
    let mut random = fastrand::Rng::with_seed(1);
    let mut turns = 0;
    while manifest(&rig.store.stored()).newer.is_none() {
        rig.turn();
        for _ in 0..5 {
            let name = name(random.u64(..3_000));
            if rig.table.find("n", &name).is_some() && rig.journal.in_flight("n", &name).is_none() {
                let change = if random.u8(..3) == 0 { rig.deletion("n", &name) } else { rig.renewal("n", &name, 9) };
                drop(rig.submit(change));
            }
        }
        turns += 1;
        assert!(turns < 10_000, "no snapshot");
    }
    rig.settle();
    let found = manifest(&rig.store.stored());
    let newer = found.newer.clone().expect("a snapshot");
    assert!(newer.chunks > 2 && newer.version < rig.table.version());
    // Starts first with the snapshot as the base, and then with the empty table as the base.
    let dump = rig.dump();
    let mut stored = rig.store.stored();
    stored.manifest = Some(Manifest { base: Base::Snapshot(newer), newer: None, ..found }.encode(FORMAT));
    for stored in [stored, rig.store.stored()] {
        assert_eq!(load(&stored, 10).expect("a store").dump(), dump);
    }
}

#[test]
fn unreferenced_chunks_are_deleted_at_the_next_start() {
    let mut rig = filled(Limits::default(), 100);
    let chunk = super::super::chunk::encode(SnapshotId(41), 0, FORMAT, b"of a process that crashed");
    rig.store.change(|stored| {
        stored.chunks.insert((SnapshotId(41), 0), chunk.clone());
        stored.chunks.insert((SnapshotId(41), 7), chunk);
    });
    rig = rig.restart(small_limits(), 2);
    rig.settle();
    assert!(rig.store.stored().chunks.keys().all(|(id, _)| *id != SnapshotId(41)));
    rig.renew_all(0..4);
    let ids: Vec<_> = manifest(&rig.store.stored()).snapshots().map(|info| info.id.0).collect();
    assert!(!ids.is_empty(), "no snapshot");
}

#[test]
fn counters_go_on_after_a_reload() {
    let mut rig = filled(small_limits(), 100);
    rig.renew_all(0..4);
    rig.store.fill(1);
    drop(rig.write(create("n", "late")));
    let Stats { snapshots, storage_errors, .. } = rig.journal.stats();
    assert!(snapshots > 0 && storage_errors > 0, "{snapshots} snapshots, {storage_errors} errors");
    rig.store.break_down();
    rig.now_ms += 10_000;
    drop(rig.submit(create("n", "lost")));
    rig.journal.end_turn(&rig.table, rig.now_ms);
    rig.journal.advance(&mut rig.table, rig.now_ms, 5).expect_err("the store is broken");
    let mut metrics = Metrics::new();
    metrics.count_reload(&rig.journal);
    let again = filled(small_limits(), 100);
    let own = again.journal.stats();
    let text = metrics.encode(
        &again.table,
        Some(&again.journal),
        HandoverStats::default(),
        std::iter::empty(),
        Now::default(),
    );
    let text = String::from_utf8(text).expect("text");
    for (name, total) in [
        ("snapshots_total", snapshots + own.snapshots),
        ("storage_errors_total", storage_errors + own.storage_errors),
        ("reloads_total", 1),
    ] {
        assert!(text.contains(&format!("\ncoordination_journal_{name} {total}\n")), "{name} {total}\n{text}");
    }
}

#[test]
fn a_snapshot_without_room_fails_no_write_and_is_tried_again() {
    let mut rig = filled(Limits::default(), 100);
    rig.store.fill_for_chunks(true);
    rig = rig.restart(small_limits(), 2);
    for micros in 0..4 {
        for n in 0..30 {
            let change = rig.renewal("n", &format!("{n}"), micros);
            let ticket = rig.submit(change);
            rig.turn();
            rig.turn();
            rig.turn();
            assert!(matches!(ticket.take(), Outcome::Applied(_)), "{n}");
        }
    }
    assert!(rig.journal.is_writable() && rig.journal.stats().storage_errors > 0);
    assert!(manifest(&rig.store.stored()).newer.is_none());
    rig.store.fill_for_chunks(false);
    let due_ms = rig.journal.due_ms().expect("it tries again");
    rig.now_ms = due_ms + small_limits().snapshot_retry_ms;
    rig.settle();
    assert!(manifest(&rig.store.stored()).newer.is_some());
    assert!(rig.journal.due_ms().is_none());
}

/// etcd without space refuses puts, but accepts deletions. So a deletion that succeeds must not end the pause of
/// writes.
#[test]
fn a_deletion_does_not_show_that_the_store_has_space() {
    let limits = Limits { upkeep_pause_ms_min: 0, ..Limits::default() };
    let mut rig = Rig::open(&Store::default(), limits, 100, 1);
    let chunk = super::super::chunk::encode(SnapshotId(41), 0, FORMAT, b"of a process that crashed");
    rig.store.change(|stored| _ = stored.chunks.insert((SnapshotId(41), 0), chunk));
    rig = rig.restart(limits, 2);
    // The store refuses three commits: the batch with the deletion, the batch alone, and the first probe.
    rig.store.fill(3);
    assert!(matches!(rig.write(create("n", "a")), Outcome::Failed(Failure::NoSpace)));
    rig.now_ms = rig.journal.due_ms().expect("it tries again");
    rig.settle();
    assert!(rig.store.stored().chunks.is_empty(), "the chunk is not deleted");
    assert!(!rig.journal.is_writable());
    rig.now_ms = rig.journal.due_ms().expect("it tries again");
    rig.settle();
    assert!(rig.journal.is_writable());
}

/// A disk may have space for a piece of a snapshot, but not for the next entry. So a piece that is stored must not end
/// the pause of writes.
#[test]
fn a_piece_of_a_snapshot_does_not_show_that_the_store_has_space() {
    let mut rig =
        filled_with_large_leases(Limits { upkeep_pause_ms_min: 50, upkeep_pause_ms_max: 50, ..small_limits() });
    rig.settle();
    assert_eq!(rig.store.stored().chunks.len(), 1, "the snapshot pauses after its first piece");
    // The store refuses the batch, and accepts the next piece.
    rig.store.fill(1);
    assert!(matches!(rig.write(create("n", "a")), Outcome::Failed(Failure::NoSpace)));
    rig.now_ms += 50;
    rig.settle();
    assert_eq!(rig.store.stored().chunks.len(), 2, "the snapshot goes on");
    assert!(!rig.journal.is_writable());
    rig.now_ms += Limits::default().no_space_ms;
    rig.settle();
    assert!(rig.journal.is_writable());
}

#[test]
fn an_empty_table_has_a_snapshot_too() {
    let limits = small_limits();
    let mut rig = Rig::open(&Store::default(), limits, 5, 1);
    for n in 0..40 {
        rig.write(create("n", "a"));
        let outcome = rig.write(rig.deletion("n", "a"));
        assert!(matches!(outcome, Outcome::Applied(_)), "{n}");
    }
    assert!(rig.table.is_empty() && rig.journal.stats().snapshots > 0);
    let version = rig.table.version();
    let rig = rig.restart(limits, 2);
    assert_eq!((rig.table.len(), rig.table.version()), (0, version));
}

#[test]
fn the_statistics_show_age_and_size_of_a_snapshot() {
    let mut rig = filled(small_limits(), 100);
    rig.renew_all(0..2);
    rig.now_ms += 60_000;
    rig.turn();
    let snapshot = rig.journal.stats().snapshot.expect("a snapshot");
    assert!((60_000..61_000).contains(&snapshot.age_ms) && snapshot.bytes > 0, "{snapshot:?}");
    assert!((1..=30).contains(&snapshot.leases) && snapshot.duration_ms.is_some(), "{snapshot:?}");
    let snapshot = rig.restart(small_limits(), 2).journal.stats().snapshot.expect("a snapshot");
    assert_eq!(snapshot.duration_ms, None, "another process has taken the snapshot");
}

#[test]
fn a_snapshot_pauses_after_each_piece() {
    let mut rig =
        filled_with_large_leases(Limits { upkeep_pause_ms_min: 50, upkeep_pause_ms_max: 50, ..small_limits() });
    let (mut pieces, mut rounds) = (0, 0);
    while rig.journal.stats().snapshots == 0 {
        let before = rig.store.stored().chunks.len();
        rig.settle();
        let after = rig.store.stored().chunks.len();
        assert!(after <= before + 1, "{} pieces without a pause", after - before);
        pieces += after - before;
        rig.now_ms = rig.journal.due_ms().map_or(rig.now_ms, |due_ms| due_ms.max(rig.now_ms));
        rounds += 1;
        assert!(rounds < 100, "the snapshot does not end");
    }
    assert!(pieces > 2, "{pieces}");
}

#[test]
fn chunks_of_a_snapshot_that_is_given_up_are_deleted_in_steps() {
    let mut rig =
        filled_with_large_leases(Limits { upkeep_pause_ms_min: 50, upkeep_pause_ms_max: 50, ..small_limits() });
    while rig.store.stored().chunks.len() < 3 {
        rig.settle();
        rig.now_ms = rig.journal.due_ms().expect("the snapshot goes on");
    }
    rig.store.fill_for_chunks(true);
    rig.settle();
    let drops = |rig: &Rig| -> Vec<u32> {
        let below = |write: &Write| if let Write::DropChunks { below, .. } = write { Some(*below) } else { None };
        rig.store.commits().iter().flatten().filter_map(below).collect()
    };
    // Each commit deletes one chunk (`dropped_chunks_max`). The fourth deletion is for the fourth piece, which the
    // store has refused.
    for count in 1..=4 {
        rig.now_ms = rig.journal.due_ms().expect("upkeep goes on");
        rig.settle();
        assert_eq!(drops(&rig), (1..=count).collect::<Vec<_>>(), "a pause follows each deletion");
    }
    assert!(rig.store.stored().chunks.is_empty());
}
