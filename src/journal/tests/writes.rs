//! Tests of the outcome of changes, with and without a working store.

use super::super::testing::Store;
use super::super::{CommitStats, Failure, Limits, Outcome, Refusal};
use super::rig::{Rig, create, lease};
use crate::engine::{EngineError, Write};
use crate::table::Reserved;
use crate::table::change::Change;

fn rig() -> Rig {
    Rig::open(&Store::default(), Limits::default(), 1_000, 1)
}

fn version(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Applied(object) => object.version.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_visible_before_it_is_durable() {
    let mut rig = rig();
    let before = rig.table.version();
    let ticket = rig.submit(create("n", "a"));
    assert!(rig.journal.in_flight("n", "a").is_some() && rig.journal.in_flight("n", "b").is_none());
    assert!(rig.journal.has_work() && !rig.journal.is_idle());
    rig.journal.end_turn(&rig.table, 1);
    // The change is durable, but the journal has not taken the worker's event yet.
    assert_eq!(rig.store.stored().entries.len(), 1);
    assert_eq!((rig.table.version(), rig.journal.settled()), (before, 0));
    assert!(matches!(ticket.take(), Outcome::Pending));
    rig.turn();
    assert_eq!(version(&ticket.take()), before.0 + 1);
    assert_eq!((rig.journal.settled(), ticket.number()), (1, 1));
    assert!(rig.journal.in_flight("n", "a").is_none() && rig.journal.is_idle());
    assert_eq!(rig.journal.take_commits().len(), 1);
}

#[test]
fn changes_of_one_turn_share_a_batch_and_those_of_the_next_wait() {
    let mut rig = rig();
    let first: Vec<_> = (0..5).map(|n| rig.submit(create("n", &format!("a{n}")))).collect();
    rig.journal.end_turn(&rig.table, 1);
    let second: Vec<_> = (0..3).map(|n| rig.submit(create("n", &format!("b{n}")))).collect();
    rig.journal.end_turn(&rig.table, 1);
    assert_eq!(rig.store.stored().entries.len(), 1, "one batch at a time");
    rig.settle();
    assert_eq!(rig.store.stored().entries.len(), 2);
    let versions: Vec<_> = first.iter().chain(&second).map(|ticket| version(&ticket.take())).collect();
    assert!(versions.is_sorted() && versions[7] == versions[0] + 7);
    let commits: Vec<_> = rig.journal.take_commits().iter().map(|commit| commit.changes).collect();
    assert_eq!(commits, [5, 3]);
}

#[test]
fn a_batch_of_many_changes_waits_for_the_clients_of_the_last_batch() {
    let limits = Limits { gathered_changes_min: 3, gather_ms_max: 4, ..Limits::default() };
    let mut rig = Rig::open(&Store::default(), limits, 1_000, 1);
    let mut tickets = Vec::new();
    // Submits `changes` new changes and ends the turn at `now_ms`. Returns the number of entries in the store.
    let mut turn = |rig: &mut Rig, now_ms, changes| {
        rig.journal.advance(&mut rig.table, now_ms, 1_000).expect("a store");
        let first = tickets.len();
        tickets.extend((first..first + changes).map(|n| rig.submit(create("n", &format!("{n}")))));
        rig.journal.end_turn(&rig.table, now_ms);
        rig.store.stored().entries.len()
    };
    assert_eq!(turn(&mut rig, 10, 5), 1, "no batch came before");
    assert_eq!(turn(&mut rig, 10, 4), 1, "five changes are expected");
    assert!(!rig.journal.has_work() && rig.journal.due_ms() == Some(14), "the loop may sleep");
    assert_eq!(turn(&mut rig, 11, 1), 2, "they are here");
    assert_eq!((turn(&mut rig, 20, 3), turn(&mut rig, 23, 0), turn(&mut rig, 24, 0)), (2, 2, 3), "not for longer");
    assert_eq!(turn(&mut rig, 30, 2), 4, "few go at once");
    assert_eq!(turn(&mut rig, 40, 4), 5, "the last batch had few changes");
    rig.settle();
    let commits: Vec<_> = rig.journal.take_commits().iter().map(|commit| commit.changes).collect();
    assert_eq!(commits, [5, 5, 3, 2, 4]);
    assert!(tickets.iter().all(|ticket| matches!(ticket.take(), Outcome::Applied(_))));
}

#[test]
fn renewals_are_delayed_but_leave_with_any_other_change() {
    let limits = Limits { renewal_wait_ms: 30, ..Limits::default() };
    let mut rig = Rig::open(&Store::default(), limits, 100, 1);
    for name in ["a", "b"] {
        rig.write(create("n", name));
    }
    let commits = rig.store.commit_count();
    drop(rig.submit(rig.renewal("n", "a", 1)));
    let begun_ms = rig.now_ms;
    rig.turn();
    while rig.store.commit_count() == commits {
        assert!(!rig.journal.has_work() && rig.journal.due_ms() == Some(begun_ms + 30), "the loop may sleep");
        rig.turn();
    }
    assert_eq!(rig.now_ms - begun_ms, 30);
    rig.settle();
    let commits = rig.store.commit_count();
    let renewal = rig.submit(rig.renewal("n", "b", 2));
    rig.turn();
    assert_eq!(rig.store.commit_count(), commits);
    drop(rig.submit(create("n", "c")));
    rig.turn();
    assert_eq!(rig.store.commit_count(), commits + 1, "a creation does not wait");
    rig.settle();
    assert!(matches!(renewal.take(), Outcome::Applied(_)));
}

#[test]
fn a_batch_stays_below_its_maximum_size() {
    for (batch_changes_max, batch_bytes_max) in [(7, 1_000), (100, 300)] {
        let limits = Limits { batch_changes_max, batch_bytes_max, ..Limits::default() };
        let mut rig = Rig::open(&Store::default(), limits, 1_000, 1);
        let tickets: Vec<_> = (0..40).map(|n| rig.submit(create("n", &format!("{n}")))).collect();
        rig.settle();
        assert!(tickets.iter().all(|ticket| matches!(ticket.take(), Outcome::Applied(_))));
        let commits = rig.journal.take_commits();
        for (at, CommitStats { changes, bytes, .. }) in commits.iter().copied().enumerate() {
            assert!(changes <= batch_changes_max && bytes <= batch_bytes_max, "{commits:?}");
            // A change takes less than a quarter of `batch_bytes_max`. So a batch with more space than that could have
            // taken another change.
            let is_full = changes == batch_changes_max || bytes > batch_bytes_max * 3 / 4;
            assert!(is_full || at + 1 == commits.len(), "{commits:?}");
        }
        assert!(commits.len() > 2, "{commits:?}");
    }
}

#[test]
fn a_second_change_of_a_key_in_flight_is_refused() {
    let mut rig = rig();
    let first = rig.submit(create("n", "a"));
    assert_eq!(
        rig.journal.submit(&rig.table, create("n", "a"), None, 0).map(|_| ()),
        Err(Refusal::Busy(first.number()))
    );
    rig.settle();
    assert!(matches!(first.take(), Outcome::Applied(_)));
}

/// A change becomes outdated if another process changes the Lease first. This store has no other process. So the test
/// makes a change, but submits it only after a later change of the same Lease.
#[test]
fn a_change_of_an_outdated_state_is_rejected() {
    let mut rig = rig();
    rig.write(create("n", "a"));
    let late = rig.deletion("n", "a");
    rig.write(rig.renewal("n", "a", 7));
    assert!(matches!(rig.write(late), Outcome::Rejected));
    assert!(matches!(rig.write(create("n", "a")), Outcome::Rejected));
    let applied = rig.write(rig.renewal("n", "a", 8));
    let dump = rig.dump();
    assert_eq!(dump["n/a"].1, version(&applied));
    // A replay of the entries rejects the same changes.
    assert_eq!(rig.restart(Limits::default(), 2).dump(), dump);
}

#[test]
fn a_dropped_ticket_does_not_stop_its_change() {
    let mut rig = rig();
    drop(rig.submit(create("n", "a")));
    rig.settle();
    assert!(rig.table.find("n", "a").is_some() && rig.journal.is_idle());
}

#[test]
fn too_many_changes_are_refused_until_some_are_settled() {
    let limits = Limits { waiting_changes_max: 3, ..Limits::default() };
    let mut rig = Rig::open(&Store::default(), limits, 1_000, 1);
    for n in 0..3 {
        drop(rig.submit(create("n", &format!("{n}"))));
    }
    assert_eq!(rig.journal.submit(&rig.table, create("n", "x"), None, 0).map(|_| ()), Err(Refusal::Full));
    rig.journal.end_turn(&rig.table, 1);
    assert!(rig.journal.submit(&rig.table, create("n", "x"), None, 0).is_ok());
    rig.settle();
    let limits = Limits { waiting_bytes_max: 1_000, ..Limits::default() };
    let mut rig = Rig::open(&Store::default(), limits, 1_000, 1);
    let mut long = lease("n", "long");
    long.spec.holder_identity = Some("x".repeat(2_000).into());
    drop(rig.submit(Change::Create(Box::new(long))));
    assert_eq!(rig.journal.submit(&rig.table, create("n", "x"), None, 0).map(|_| ()), Err(Refusal::Full));
}

#[test]
fn changes_in_flight_count_towards_the_quota() {
    let mut rig = rig();
    let (used, _) = rig.table.metered_bytes();
    let _a = rig.submit(create("n", "a"));
    let one = rig.journal.reserved("n").bytes;
    assert!(one > 0);
    let _b = rig.submit(create("n", "b"));
    let _c = rig.submit(create("kube-node-lease", "c"));
    let _d = rig.submit(create("m", "d"));
    assert_eq!(rig.journal.reserved("n"), Reserved { bytes: 3 * one, in_namespace: 2 * one });
    assert_eq!(rig.journal.reserved("kube-node-lease"), Reserved { bytes: 3 * one, in_namespace: 0 });
    rig.settle();
    let used = used + one;
    assert_eq!((rig.journal.reserved("n").bytes, rig.table.metered_bytes().0), (0, used + 2 * one));
    let mut long = lease("n", "a");
    long.spec.holder_identity = Some("x".repeat(20_000).into());
    let (slot, _) = rig.table.find("n", "a").expect("there");
    let _a = rig.submit(Change::Replace(rig.table.target(slot), Box::new(long)));
    let _b = rig.submit(rig.renewal("n", "b", 1));
    let growth = rig.journal.reserved("n").bytes;
    assert!(growth > 20_000);
    rig.settle();
    assert_eq!((rig.journal.reserved("n").bytes, rig.table.metered_bytes().0), (0, used + 2 * one + growth));
}

#[test]
fn without_room_changes_fail_and_later_ones_work_again() {
    let mut rig = rig();
    rig.write(create("n", "a"));
    let before = rig.dump();
    rig.store.fill(1);
    let failing = [rig.submit(create("n", "b")), rig.submit(rig.renewal("n", "a", 5))];
    rig.journal.end_turn(&rig.table, rig.now_ms);
    let behind = rig.submit(create("n", "c"));
    rig.settle();
    for ticket in failing.iter().chain([&behind]) {
        assert!(matches!(ticket.take(), Outcome::Failed(Failure::NoSpace)));
    }
    assert_eq!((rig.dump(), rig.journal.settled(), rig.journal.reserved("n").bytes), (before, 4, 0));
    assert!(rig.journal.in_flight("n", "b").is_none() && !rig.journal.is_writable());
    assert_eq!(rig.journal.stats().storage_errors, 1);
    assert_eq!(rig.journal.submit(&rig.table, create("n", "b"), None, rig.now_ms).map(|_| ()), Err(Refusal::NoSpace));
    let due_ms = rig.journal.due_ms().expect("it tries again");
    assert!((900..=1_000).contains(&(due_ms - rig.now_ms)), "{due_ms} at {}", rig.now_ms);
    rig.now_ms = due_ms;
    assert!(matches!(rig.write(create("n", "b")), Outcome::Applied(_)));
    assert!(rig.journal.is_writable() && rig.journal.due_ms().is_none());
    let dump = rig.dump();
    assert_eq!(rig.restart(Limits::default(), 2).dump(), dump, "the sequence has no gap");
}

#[test]
fn a_full_store_is_probed_until_there_is_room_again() {
    let mut rig = rig();
    rig.store.fill(3);
    rig.write(create("n", "a"));
    for _ in 0..2 {
        rig.now_ms = rig.journal.due_ms().expect("it tries again");
        rig.settle();
        assert!(!rig.journal.is_writable());
    }
    rig.now_ms = rig.journal.due_ms().expect("it tries again");
    rig.settle();
    assert!(rig.journal.is_writable());
    assert_eq!(rig.journal.stats().storage_errors, 3);
    assert!(rig.table.is_empty());
}

#[test]
fn a_commit_that_does_not_end_shows_its_age() {
    let mut rig = rig();
    rig.now_ms = 500;
    rig.turn();
    let begun_ms = rig.now_ms;
    assert!(!rig.journal.is_stuck(u64::MAX) && rig.journal.stats().commit_age_ms == 0);
    let ticket = rig.submit(create("n", "a"));
    rig.journal.end_turn(&rig.table, begun_ms);
    // The journal does not take the answer of the worker yet.
    rig.journal.end_turn(&rig.table, begun_ms + 9_999);
    assert_eq!(rig.journal.stats().commit_age_ms, 9_999);
    assert!(!rig.journal.is_stuck(begun_ms + 9_999) && rig.journal.is_stuck(begun_ms + 10_000));
    rig.now_ms = begun_ms + 10_000;
    rig.turn();
    assert!(matches!(ticket.take(), Outcome::Applied(_)) && rig.journal.is_idle());
    assert!(!rig.journal.is_stuck(u64::MAX) && rig.journal.stats().commit_age_ms == 0);
}

#[test]
fn an_error_of_the_store_ends_the_journal() {
    let mut rig = rig();
    let ticket = rig.submit(create("n", "a"));
    rig.store.break_down();
    rig.journal.end_turn(&rig.table, 1);
    let error = rig.journal.advance(&mut rig.table, 2, 100).expect_err("fatal");
    assert!(matches!(error, EngineError::Io { .. }));
    assert!(matches!(ticket.take(), Outcome::Pending) && rig.table.is_empty());
    assert_eq!(rig.journal.submit(&rig.table, create("n", "b"), None, 3).map(|_| ()), Err(Refusal::Stopped));
    assert!(!rig.journal.has_work() && rig.journal.due_ms().is_none() && !rig.journal.is_writable());
}

#[test]
fn a_stopped_journal_finishes_changes_in_flight() {
    let mut rig = rig();
    let ticket = rig.submit(create("n", "a"));
    rig.journal.stop();
    assert_eq!(rig.journal.submit(&rig.table, create("n", "b"), None, 0).map(|_| ()), Err(Refusal::Stopped));
    rig.settle();
    assert!(matches!(ticket.take(), Outcome::Applied(_)) && rig.journal.is_idle());
}

#[test]
fn a_new_store_gets_its_version_once() {
    let mut rig = rig();
    assert_eq!(rig.table.version().0, super::rig::FIRST_VERSION);
    assert!(matches!(rig.store.commits()[0][..], [Write::PutManifest(_)]));
    rig.write(create("n", "a"));
    // `restart` offers the same first version again, as a clock that was set back would. But the store is not new, so
    // the table continues at its last version.
    let rig = rig.restart(Limits::default(), 2);
    assert_eq!((rig.table.version().0, rig.store.commits().len()), (super::rig::FIRST_VERSION + 1, 2));
}

#[test]
fn a_large_batch_is_applied_in_steps() {
    let limits = Limits { gather_ms_max: 0, ..Limits::default() };
    let mut rig = Rig::open(&Store::default(), limits, 1_000, 1);
    let tickets: Vec<_> = (0..20).map(|n| rig.submit(create("n", &format!("{n}")))).collect();
    rig.journal.end_turn(&rig.table, 1);
    let advanced = rig.journal.advance(&mut rig.table, 2, 8).expect("fine");
    assert_eq!((advanced.settled, rig.journal.settled(), rig.table.len()), (8, 8, 8));
    assert!(
        rig.journal.has_work()
            && rig.journal.in_flight("n", "8").is_some()
            && rig.journal.in_flight("n", "7").is_none()
    );
    // No further batch is sent to the worker before the whole batch is applied.
    let _next = rig.submit(create("n", "next"));
    rig.journal.end_turn(&rig.table, 3);
    assert_eq!(rig.store.stored().entries.len(), 1);
    rig.settle();
    assert!(tickets.iter().all(|ticket| matches!(ticket.take(), Outcome::Applied(_))));
    assert_eq!(rig.table.len(), 21);
}
