//! Tests of the checker: a correct history has no violation, and each broken history has one.

use super::*;
use crate::history::{Action, Event, EventKind, Outcome, Space};

const A: Key = Key { space: Space::Locks, number: 0 };
const B: Key = Key { space: Space::Locks, number: 1 };
const UID_A: u128 = 0xa;
const UID_B: u128 = 0xb;

fn seen(key: Key, version: u64, op: u64, holder: u32) -> Seen {
    let uid = if key == A { UID_A } else { UID_B };
    Seen { key, version, uid, op, holder, hash: version * 31 }
}

fn event(kind: EventKind, seen: Seen, at: Nanos) -> Watched {
    Watched::Event(Event { kind, seen, at })
}

/// A history of operations and events, which a test can break.
struct History {
    epoch: Epoch,
    watched: [Vec<Watched>; 2],
}

impl History {
    /// Client 1 creates A (version 11), client 2 takes A over (version 12), and a patch of A gets no response but takes
    /// effect (version 15). Lease B is created (version 13) and deleted (version 14). The first watcher watches all
    /// Leases, the second only A.
    fn honest() -> Self {
        let op = |id, client, action, begin, outcome| {
            let end = if outcome == Outcome::Unknown { 200 } else { begin + 10 };
            Op { id, client, action, begin, end, outcome }
        };
        let list = Outcome::List { version: 15, items: vec![seen(A, 15, 6, 2)] };
        let ops = vec![
            op(1, 1, Action::Create(A), 10, Outcome::Lease(seen(A, 11, 1, 1))),
            op(2, 2, Action::Put { key: A, uid: UID_A, from: 11 }, 30, Outcome::Lease(seen(A, 12, 2, 2))),
            op(3, 3, Action::Get(A), 50, Outcome::Lease(seen(A, 12, 2, 2))),
            op(4, 1, Action::Create(B), 70, Outcome::Lease(seen(B, 13, 4, 1))),
            op(5, 1, Action::Delete { key: B, uid: UID_B, from: Some(13) }, 90, Outcome::Deleted),
            op(6, 3, Action::Patch(A), 110, Outcome::Unknown),
            op(7, 1, Action::Get(B), 130, Outcome::NotFound),
            op(8, 1, Action::Put { key: A, uid: UID_A, from: 11 }, 130, Outcome::Conflict),
            op(Op::BOUNDARY, 0, Action::List(None), 300, list),
        ];
        let all = vec![
            Watched::Listed { version: 10, gone: None },
            event(EventKind::Added, seen(A, 11, 1, 1), 21),
            event(EventKind::Modified, seen(A, 12, 2, 2), 41),
            event(EventKind::Added, seen(B, 13, 4, 1), 81),
            event(EventKind::Deleted, seen(B, 14, 4, 1), 101),
            event(EventKind::Modified, seen(A, 15, 6, 2), 125),
        ];
        let one = all.iter().filter(|entry| !matches!(entry, Watched::Event(e) if e.seen.key == B)).cloned();
        let one = one.collect();
        Self { epoch: Epoch { ops, boundary: 15, log_line: String::new() }, watched: [all, one] }
    }

    fn op(&mut self, id: u64) -> &mut Op {
        self.epoch.ops.iter_mut().find(|op| op.id == id).expect("an operation")
    }

    fn list(&mut self) -> &mut Vec<Seen> {
        match &mut self.op(Op::BOUNDARY).outcome {
            Outcome::List { items, .. } => items,
            other => panic!("{other:?}"),
        }
    }

    fn add(&mut self, op: Op) {
        self.epoch.ops.insert(0, op);
    }

    fn check(self) -> Checker {
        let mut checker = Checker::new(&[Scope::All, Scope::One(A)], 2);
        for (number, entries) in self.watched.into_iter().enumerate() {
            checker.watched(number, entries);
        }
        checker.check(&self.epoch);
        checker
    }
}

/// Asserts that the checker finds a violation of this kind in a correct history, after `breaks` has changed the
/// history.
#[track_caller]
fn assert_found(kind: Kind, breaks: impl FnOnce(&mut History)) {
    let mut history = History::honest();
    breaks(&mut history);
    let checker = history.check();
    assert!(checker.violations.iter().any(|(found, ..)| found == kind), "{kind:?}: {:#?}", checker.violations);
}

fn op(id: u64, action: Action, begin: Nanos, end: Nanos, outcome: Outcome) -> Op {
    Op { id, client: 1, action, begin, end, outcome }
}

#[test]
fn a_correct_history_has_no_violation() {
    let checker = History::honest().check();
    assert!(checker.violations.is_empty(), "{:#?}", checker.violations);
    assert_eq!((checker.counts.states, checker.counts.events, checker.counts.unknown_done), (5, 8, 1));
}

#[test]
fn an_unknown_operation_may_have_had_no_effect() {
    let mut history = History::honest();
    history.watched.iter_mut().for_each(|entries| drop(entries.pop()));
    *history.list() = vec![seen(A, 12, 2, 2)];
    // The patch, operation 6, had no effect: no watcher and no list shows version 15.
    history.epoch.boundary = 14;
    history.op(Op::BOUNDARY).outcome = Outcome::List { version: 14, items: vec![seen(A, 12, 2, 2)] };
    let checker = history.check();
    assert!(checker.violations.is_empty(), "{:#?}", checker.violations);
}

#[test]
fn a_lost_acknowledged_write_is_found() {
    assert_found(Kind::Lost, |history| history.list().clear());
    assert_found(Kind::Lost, |history| *history.list() = vec![seen(A, 12, 2, 2)]);
    // The broken history: the list at its end still shows B, although an event shows B's deletion.
    assert_found(Kind::Lost, |history| history.list().push(seen(B, 13, 4, 1)));
    assert_found(Kind::Lost, |history| drop(history.watched[0].remove(4)));
    assert_found(Kind::Lost, |history| {
        let all = Action::DeleteCollection(Space::Locks);
        history.add(op(9, all, 280, 290, Outcome::Deleted));
    });
}

#[test]
fn an_invented_state_is_found() {
    let other = Key { number: 9, ..A };
    assert_found(Kind::Invented, |history| history.list().push(seen(other, 9, 9, 1)));
    assert_found(Kind::Invented, |history| history.op(6).outcome = Outcome::Conflict);
    assert_found(Kind::Invented, |history| history.op(5).outcome = Outcome::NotFound);
    // The broken history: client 1 sent the PUT, but the state that it wrote names client 2 as the holder.
    assert_found(Kind::Invented, |history| history.op(2).client = 1);
    // The broken history: operation 6 was sent at 126, but an event at 125 shows its effect.
    assert_found(Kind::Invented, |history| history.op(6).begin = 126);
    // The broken history: operation 5 was sent at 102, but an event at 101 shows its effect.
    for outcome in [Outcome::Deleted, Outcome::Unknown] {
        assert_found(Kind::Invented, |history| {
            let deletion = history.op(5);
            (deletion.begin, deletion.end, deletion.outcome) = (102, 110, outcome);
        });
    }
    // The broken history: operation 6 took effect twice, at the versions 15 and 16.
    assert_found(Kind::Invented, |history| {
        let again = seen(A, 16, 6, 2);
        history.watched.iter_mut().for_each(|entries| entries.push(event(EventKind::Modified, again, 130)));
        history.op(Op::BOUNDARY).outcome = Outcome::List { version: 16, items: vec![again] };
        history.epoch.boundary = 16;
    });
    // The broken history: the response to operation 2 shows a state of operation 7.
    assert_found(Kind::Invented, |history| history.op(2).outcome = Outcome::Lease(seen(A, 12, 7, 2)));
}

#[test]
fn two_contents_of_one_version_are_found() {
    let other = Seen { hash: 1, ..seen(A, 12, 2, 2) };
    assert_found(Kind::TwoContents, |history| history.op(3).outcome = Outcome::Lease(other));
    assert_found(Kind::TwoContents, |history| history.watched[1][2] = event(EventKind::Modified, other, 41));
    assert_found(Kind::TwoContents, |history| {
        history.watched[1][2] = event(EventKind::Added, seen(A, 12, 2, 2), 41);
    });
}

#[test]
fn versions_out_of_real_time_order_are_found() {
    assert_found(Kind::VersionOrder, |history| (history.op(2).begin, history.op(2).end) = (1, 5));
}

#[test]
fn stale_reads_are_found() {
    assert_found(Kind::StaleRead, |history| history.op(3).outcome = Outcome::Lease(seen(A, 11, 1, 1)));
    assert_found(Kind::StaleRead, |history| history.op(3).outcome = Outcome::NotFound);
    assert_found(Kind::StaleRead, |history| history.op(7).outcome = Outcome::Lease(seen(B, 13, 4, 1)));
    assert_found(Kind::StaleRead, |history| {
        let old = Outcome::List { version: 12, items: vec![seen(A, 12, 2, 2)] };
        history.add(op(9, Action::List(Some(Space::Locks)), 85, 90, old));
    });
}

#[test]
fn writes_that_violate_their_precondition_are_found() {
    assert_found(Kind::Precondition, |history| history.op(2).action = Action::Put { key: A, uid: UID_A, from: 10 });
    // The broken history: one Lease is deleted twice.
    assert_found(Kind::Precondition, |history| {
        let again = Op { id: 9, ..history.op(5).clone() };
        history.add(again);
    });
    // The broken history: a Lease that exists is created.
    assert_found(Kind::Precondition, |history| {
        history.op(2).action = Action::Create(A);
        history.watched.iter_mut().for_each(|entries| {
            entries[2] = event(EventKind::Added, seen(A, 12, 2, 2), 41);
        });
    });
}

#[test]
fn a_reused_uid_is_found() {
    assert_found(Kind::OldUid, |history| {
        let again = seen(B, 16, 9, 1);
        history.add(op(9, Action::Create(B), 150, 160, Outcome::Lease(again)));
        history.watched[0].push(event(EventKind::Added, again, 161));
        let items = vec![seen(A, 15, 6, 2), again];
        history.op(Op::BOUNDARY).outcome = Outcome::List { version: 16, items };
        history.epoch.boundary = 16;
    });
    // The broken history: a deleted Lease is patched.
    assert_found(Kind::OldUid, |history| {
        let again = seen(B, 16, 9, 1);
        history.add(op(9, Action::Patch(B), 150, 160, Outcome::Lease(again)));
        history.epoch.boundary = 16;
    });
}

#[test]
fn refusals_without_a_reason_are_found() {
    assert_found(Kind::FalseRefusal, |history| history.op(8).action = Action::Put { key: A, uid: UID_A, from: 15 });
    assert_found(Kind::FalseRefusal, |history| history.op(8).action = Action::Create(B));
}

#[test]
fn watchers_that_miss_or_repeat_are_found() {
    assert_found(Kind::Missed, |history| drop(history.watched[1].remove(2)));
    assert_found(Kind::Missed, |history| drop(history.watched[1].pop()));
    assert_found(Kind::Twice, |history| {
        let again = history.watched[1][2].clone();
        history.watched[1].insert(3, again);
    });
    assert_found(Kind::Twice, |history| history.watched[0].swap(1, 2));
    assert_found(Kind::Gone, |history| {
        history.watched[1][3] = Watched::Listed { version: 15, gone: Some(13) };
    });
    let mut history = History::honest();
    history.watched[1][3] = Watched::Listed { version: 15, gone: Some(12) };
    let checker = history.check();
    assert_eq!((checker.violations.is_empty(), checker.counts.gone_beyond_window), (true, 1));
}

#[test]
fn observations_before_a_restart_are_checked_after_it() {
    let next = |ops: Vec<Op>, boundary| {
        let mut checker = History::honest().check();
        checker.check(&Epoch { ops, boundary, log_line: "loaded".to_owned() });
        checker.violations.iter().map(|(kind, ..)| kind).collect::<Vec<_>>()
    };
    let get = |seen| vec![op(21, Action::Get(A), 400, 410, Outcome::Lease(seen))];
    assert_eq!(next(get(seen(A, 15, 6, 2)), 15), []);
    assert_eq!(next(get(seen(A, 12, 2, 2)), 15), [Kind::StaleRead]);
    assert_eq!(next(get(Seen { hash: 1, ..seen(A, 15, 6, 2) }), 15), [Kind::TwoContents]);
    let create = |version| vec![op(21, Action::Create(B), 400, 410, Outcome::Lease(seen(B, version, 21, 1)))];
    assert!(next(create(14), 15).contains(&Kind::VersionOrder), "a version is given out again");
    assert!(next(create(16), 16).contains(&Kind::OldUid), "a deleted Lease comes back");
}
