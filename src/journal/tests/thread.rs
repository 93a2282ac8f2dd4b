//! Tests of the worker on its own thread, and a measurement of the time that a renewal takes.

use super::super::testing::Store;
use super::super::{Command, Commit, Config, Journal, Limits, Outcome, Port, ThreadPort, Worker};
use super::rig::{FIRST_VERSION, Rig, create, times};
use crate::engine::EngineError;
use crate::resource::ResourceVersion;
use crate::table::Table;
use crate::table::change::Change;
use mio::{Events, Poll, Token, Waker};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_worker_on_its_thread_wakes_the_loop() {
    let mut poll = Poll::new().expect("a poll");
    let waker = Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
    let store = Store::default();
    let port = ThreadPort::start(Worker::new(Box::new(store.clone()), "memory"), waker).expect("a thread");
    let mut journal = Journal::new(Box::new(port), Config::new("memory", FIRST_VERSION), 1);
    let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
    let mut events = Events::with_capacity(4);
    let mut tickets = Vec::new();
    let begun = Instant::now();
    while tickets.len() < 50 || journal.settled() < 50 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the loop is not woken");
        if !journal.has_work() {
            poll.poll(&mut events, Some(Duration::from_secs(5))).expect("a poll");
        }
        journal.advance(&mut table, 0, 10).expect("fine");
        if !journal.is_loading() && tickets.len() < 50 {
            let name = tickets.len().to_string();
            tickets.push(journal.submit(&table, create("n", &name), None, 0).expect("taken"));
        }
        journal.end_turn(&table, 0);
    }
    assert!(tickets.iter().all(|ticket| matches!(ticket.take(), Outcome::Applied(_))));
    assert!(journal.take_commits().iter().map(|commit| commit.changes).sum::<usize>() == 50);
    drop(journal);
    // The drop of the journal has ended the thread and its worker. So the store can be opened again.
    assert_eq!(Rig::open(&store, Limits::default(), 100, 2).table.len(), 50);
}

#[test]
fn a_close_reports_a_commit_that_failed_after_the_last_turn() {
    let poll = Poll::new().expect("a poll");
    let waker = Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
    let store = Store::default();
    let mut port = ThreadPort::start(Worker::new(Box::new(store.clone()), "memory"), waker).expect("a thread");
    store.break_down();
    port.send(Command::Commit(Commit { append: Some(Vec::new()), ..Commit::default() }));
    let error = port.close().expect_err("the commit has failed");
    assert!(matches!(error, EngineError::Io { .. }), "{error}");
}

/// Prints the time that a renewal takes, once directly in the table and once through the journal. The time through the
/// journal includes the worker, which runs on the same thread over a store in memory.
#[test]
#[ignore = "a measurement; it says something in a release build only"]
fn renewal_cost_on_the_event_loop() {
    const LEASES: usize = 10_000;
    const ROUNDS: usize = 50;
    let limits = Limits { snapshot_bytes_min: u64::MAX, gather_ms_max: 0, ..Limits::default() };
    let mut rig = Rig::open(&Store::default(), limits, 20_000, 1);
    for n in 0..LEASES {
        drop(rig.submit(create("kube-node-lease", &format!("node-{n:06}"))));
    }
    rig.settle();
    let slots: Vec<_> =
        (0..LEASES).map(|n| rig.table.find("kube-node-lease", &format!("node-{n:06}")).expect("a Lease").0).collect();
    let mut direct = Duration::ZERO;
    let mut journaled = Duration::ZERO;
    for round in 0..ROUNDS {
        let micros = i64::try_from(round).expect("small") * 10_000_000;
        let begun = Instant::now();
        for slot in &slots {
            rig.table.apply(Change::Renew(rig.table.target(*slot), times(micros))).expect("applied");
        }
        direct += begun.elapsed();
        let begun = Instant::now();
        for slots in slots.chunks(64) {
            let tickets: Vec<_> = slots
                .iter()
                .map(|slot| rig.submit(Change::Renew(rig.table.target(*slot), times(micros + 1))))
                .collect();
            rig.journal.end_turn(&rig.table, 0);
            rig.journal.advance(&mut rig.table, 0, 1_000).expect("fine");
            assert!(tickets.iter().all(|ticket| matches!(ticket.take(), Outcome::Applied(_))));
        }
        journaled += begun.elapsed();
    }
    let each = |time: Duration| time.as_nanos() as f64 / (LEASES * ROUNDS) as f64;
    println!("{:.0} ns directly, {:.0} ns by the journal", each(direct), each(journaled));
}
