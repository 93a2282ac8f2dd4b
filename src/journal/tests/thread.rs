//! Tests of the worker on its own thread.

use super::super::testing::Store;
use super::super::{Command, Commit, Config, Journal, Limits, Outcome, Port, ThreadPort, Worker};
use super::rig::{FIRST_VERSION, Rig, create};
use crate::engine::EngineError;
use crate::resource::ResourceVersion;
use crate::table::Table;
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
