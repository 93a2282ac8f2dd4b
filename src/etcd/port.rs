//! The thread that talks to etcd, and [`EtcdPort`], the event loop's connection to this thread.

use super::background::{Background, LocalRuntime};
use super::client::{Client, Failure};
use super::config::Config;
use super::follow::follow;
use super::housekeeping;
use super::keys::Keys;
use super::load::{Load, check_format};
use super::messages::{KeyValue, ResponseOp};
use super::release;
use super::state::{SharedState, Wait};
use super::transaction::{self, Done, Transaction};
use crate::engine::{EngineError, Position};
use crate::journal::{COMMANDS_MAX, Command, Commit, End, Event, Port, base_end};
use crate::updates::{self, Updates};
use mio::Waker;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

/// The event loop's connection to the thread that reads and writes a store in etcd. Other processes also write to this
/// store.
#[derive(Debug)]
pub struct EtcdPort {
    commands: Sender<Command>,
    events: Updates<Event>,
    /// The thread that talks to etcd. A commit in flight may take effect after this port is dropped, but only once.
    _thread: Background,
}

/// Timeout of the checks at startup. It is longer than etcd needs to elect a leader.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which the thread checks how long requests have waited for etcd.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time without delivery after which an entry or a manifest that is in etcd counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// An undelivered entry or manifest counts as lost only after more than this number of queries. After a long pause of
/// the process, `LOST_AFTER` has passed, but few queries have run. The watch may then still deliver the entry or the
/// manifest.
const LOOKS_MIN: u32 = 4;

/// Puts in etcd that the watch has not delivered.
#[derive(Clone, Copy, Debug)]
struct Undelivered {
    /// Result of the query that first noticed these puts.
    found: Found,
    /// Time of the query that first noticed these puts.
    since: Instant,
    /// Number of queries since then, including the first one.
    looks: u32,
}

impl Undelivered {
    /// Compares `found`, which a query has found at `now`, with what the watch has delivered. Stores undelivered puts
    /// in `first`, until the watch has delivered all of them. Returns the puts if one of them counts as lost.
    fn look(
        first: &mut Option<Self>,
        is_delivered: impl Fn(Found) -> bool,
        found: Found,
        now: Instant,
    ) -> Option<Found> {
        let behind = first.filter(|first| !is_delivered(first.found)).unwrap_or(Self { found, since: now, looks: 0 });
        *first = (!is_delivered(found)).then_some(Self { looks: behind.looks + 1, ..behind });
        let is_lost = |first: &Self| now.duration_since(first.since) > LOST_AFTER && first.looks > LOOKS_MIN;
        first.filter(is_lost).map(|first| first.found)
    }
}

impl EtcdPort {
    /// Checks that a store can be used. A member must answer, and no member may be too old. The prefix must be readable
    /// and writable, and no other product may use the prefix. Waits up to [`CHECK_TIMEOUT`] for etcd.
    ///
    /// # Errors
    /// [`EngineError`] with the reason.
    pub fn check(config: &Config) -> Result<(), EngineError> {
        let keys = Keys::new(&config.prefix);
        LocalRuntime::new()?.block_on(async {
            let client = Client::new(config.clone())?;
            let checks = async {
                release::check(&client).await?;
                check_format(&client, &keys).await?;
                let rights = client.repeat_txn(&transaction::rights(&keys)).await;
                rights.map(drop).map_err(|failure| failure.into_error(config))
            };
            timeout(CHECK_TIMEOUT, checks).await.unwrap_or_else(|_| {
                let cause = io::Error::other(config.explained(client.last_failure()));
                Err(EngineError::Io { what: format!("cannot reach {}", config.store()), cause })
            })
        })
    }

    /// Starts the thread. `waker` wakes the event loop after each event.
    ///
    /// # Errors
    /// The system lacks the resources for a thread or a runtime.
    pub fn start(config: Config, waker: Arc<Waker>) -> Result<Self, EngineError> {
        let (commands, received) = channel(COMMANDS_MAX);
        let (sender, events) = updates::queue(waker);
        let serve = move || async move {
            match Client::new(config) {
                Ok(client) => serve(Rc::new(SharedState::new(client, sender)), received).await,
                Err(error) => _ = sender.send(Event::Failed(error)),
            }
        };
        Ok(Self { commands, events, _thread: Background::start("etcd", serve)? })
    }
}

impl Port for EtcdPort {
    fn send(&mut self, command: Command) {
        let is_full = matches!(self.commands.try_send(command), Err(TrySendError::Full(_)));
        assert!(!is_full, "more commands than may be under way");
    }

    fn next(&mut self) -> Option<Event> {
        self.events.next()
    }
}

/// Runs commands until the port is dropped.
async fn serve(state: Rc<SharedState>, mut commands: Receiver<Command>) {
    spawn_local(look_at_waits(Rc::clone(&state)));
    let undelivered = Rc::new(RefCell::new(None));
    let mut load = Load::default();
    let mut is_following = false;
    while let Some(command) = commands.recv().await {
        let read = match command {
            Command::Commit(commit) => {
                spawn_local(do_commit(Rc::clone(&state), commit));
                continue;
            }
            Command::FindEnd => {
                spawn_local(find_end(Rc::clone(&state), Rc::clone(&undelivered)));
                continue;
            }
            Command::Open => load.open(&state).await,
            Command::ReadChunk { snapshot, index } => load.chunk(&state, snapshot, index).await,
            Command::ReadEntries => load.entries(&state).await,
        };
        let is_end = matches!(&read, Ok(Event::Entries(entries)) if entries.is_empty());
        match read {
            Ok(event) => state.say(event),
            Err(failure) => state.fail(failure),
        }
        if is_end && !is_following {
            is_following = true;
            state.followed.set(load.revision());
            spawn_local(follow(Rc::clone(&state)));
            spawn_local(housekeeping::watch_size(Rc::clone(&state)));
            if let Some(interval) = state.client.config().compaction_interval {
                spawn_local(housekeeping::compact(Rc::clone(&state), interval));
            }
        }
    }
    state.is_over.set(true);
}

async fn look_at_waits(state: Rc<SharedState>) {
    while !state.is_over.get() {
        sleep(LOOK_EVERY).await;
        state.look_at_waits();
    }
}

/// Sends a commit. Repeats the commit until etcd gives a definite answer, within [`Config::patience`].
async fn do_commit(state: Rc<SharedState>, commit: Commit) {
    let is_manifest = commit.manifest.is_some();
    let base = commit.manifest.as_ref().map_or_else(End::default, |manifest| base_end(&manifest.bytes));
    let Some(transaction) = Transaction::of(commit, &state.keys, &state.known(&state.entries.borrow())) else {
        return state.fail(Failure::Lost("a commit that etcd cannot take".to_owned()));
    };
    if is_manifest {
        state.hold_manifests();
    }
    state.begin(Wait::Commit);
    let begun = Instant::now();
    let done = send(&state, &transaction).await;
    let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    state.end(Wait::Commit);
    let (answer, revision) = match done {
        Ok(Done::Committed { revision, deleted }) => {
            state.entries.borrow_mut().forget(&deleted);
            // An earlier attempt of the transaction may have deleted the last entry. The answer does not show this. So
            // later transactions must not require that entry.
            state.entries.borrow_mut().release_last(&transaction.truncated);
            state.note_base(base);
            if transaction.entry.is_some() {
                state.note_entry(Position(revision));
            }
            let chunk_bytes = transaction.chunk_bytes;
            state.chunk.set(transaction.chunk_after(state.chunk.get(), revision));
            let revision = if is_manifest { revision } else { 0 };
            (Event::Committed { entries: Vec::new(), revision, chunk_bytes, took_us }, revision)
        }
        Ok(Done::Overtaken) => (Event::Overtaken, 0),
        Ok(Done::Behind) => {
            return state.fail(Failure::Lost("an entry that was delivered is gone".to_owned()));
        }
        Ok(Done::Taken) => {
            return state.fail(Failure::Lost("another process has the name of this writer".to_owned()));
        }
        // etcd's answer to a commit is never too long. So this failure comes from a gRPC proxy that sends etcd only
        // smaller messages than etcd accepts. The commit is too large for the proxy, and only this commit fails.
        Err(Failure::TooLong(message)) => {
            (Event::Failed(Failure::TooLarge(message).into_error(state.client.config())), 0)
        }
        Err(failure) => (Event::Failed(failure.into_error(state.client.config())), 0),
    };
    if is_manifest {
        state.release_manifests(answer, revision);
    } else {
        state.say(answer);
    }
}

async fn send(state: &SharedState, transaction: &Transaction) -> Result<Done, Failure> {
    let begun = Instant::now();
    for attempt in 0.. {
        match state.client.txn(&transaction.request, attempt).await {
            Ok(answer) => return Ok(transaction.done(answer)),
            Err(Failure::Unknown(status)) => {
                tracing::debug!(%status, attempt, "etcd has not answered a commit");
                if state.is_over.get() || state.client.gives_up(begun.elapsed()) {
                    return Err(Failure::Unknown(status));
                }
                state.client.pause(attempt).await;
            }
            Err(Failure::NoSpace(message)) => {
                // etcd may also report that it has no space although the request took effect.
                let Some((key, payload)) = &transaction.entry else { return Err(Failure::NoSpace(message)) };
                let read = super::messages::RangeRequest { key: key.clone(), ..Default::default() };
                let found = state.client.range(read).await?.kvs;
                return match found.first() {
                    Some(found) if found.value == *payload => {
                        Ok(Done::Committed { revision: found.mod_revision.cast_unsigned(), deleted: Vec::new() })
                    }
                    _ => Err(Failure::NoSpace(message)),
                };
            }
            Err(failure) => return Err(failure),
        }
    }
    unreachable!("attempts do not end")
}

/// Finds the last entry in etcd. Repeats the query until etcd answers, within [`Config::patience`].
async fn find_end(state: Rc<SharedState>, undelivered: Rc<RefCell<Option<Undelivered>>>) {
    state.begin(Wait::Look);
    let request = transaction::find_end(&state.keys);
    let (delivered, manifest_before) = (state.delivered.get(), state.manifest_revision.get());
    let begun = Instant::now();
    for attempt in 0.. {
        match state.client.txn(&request, attempt).await {
            Ok(answer) => {
                let revision = answer.header.map_or(0, |header| header.revision.cast_unsigned());
                let mut found = answer.responses.into_iter().map(first_key);
                let (head, manifest) = (found.next().unwrap_or_default(), found.next().unwrap_or_default());
                let [entry, manifest] = [head.mod_revision, manifest.mod_revision].map(i64::cast_unsigned);
                let found = Found { entry, manifest, revision };
                if let Some(why) = found.went_back(delivered.0, manifest_before) {
                    return state.fail(Failure::Lost(why));
                }
                state.end(Wait::Look);
                state.note_entry(Position(entry));
                state.say(Event::End(End { position: Position(entry), entries: head.version.cast_unsigned() }));
                return look_behind(&state, &mut undelivered.borrow_mut(), found, Instant::now());
            }
            Err(Failure::Unknown(_)) if state.is_over.get() => return,
            Err(Failure::Unknown(_)) if !state.client.gives_up(begun.elapsed()) => state.client.pause(attempt).await,
            Err(failure) => return state.fail(failure),
        }
    }
}

fn first_key(answer: ResponseOp) -> KeyValue {
    answer.range.unwrap_or_default().kvs.into_iter().next().unwrap_or_default()
}

/// What a query has found in etcd.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Position of the last entry.
    entry: u64,
    /// Revision at which the manifest was put; 0 without a manifest.
    manifest: u64,
    /// Revision of etcd at the time of the query.
    revision: u64,
}

impl Found {
    /// Returns a text that says that etcd was restored, if the query found a lower revision than this process knew
    /// before the query. `entry` is the known revision of the last entry, and `manifest` that of the manifest. A
    /// linearizable read shows every earlier write, so only a restore can lower them.
    fn went_back(self, entry: u64, manifest: u64) -> Option<String> {
        let went_back = |what: &str, old: u64, new: u64| {
            (new < old).then(|| format!("{what} went back from revision {old} to {new}: etcd was restored"))
        };
        went_back("the last entry", entry, self.entry).or_else(|| went_back("the manifest", manifest, self.manifest))
    }
}

/// Compares what a query has found at `now` with what the watch has delivered. If a found entry or manifest stays
/// undelivered for too long ([`Undelivered::look`]), the port fails with [`Failure::Lost`].
fn look_behind(state: &SharedState, undelivered: &mut Option<Undelivered>, found: Found, now: Instant) {
    let (entry, manifest) = (state.delivered.get().0, state.manifest_revision.get());
    let is_delivered = |found: Found| entry >= found.entry && manifest >= found.manifest;
    if is_delivered(found) {
        // The watch has delivered everything up to `revision`. So a reopened watch can start after `revision`, which
        // etcd is less likely to have compacted than an earlier revision.
        state.followed.set(state.followed.get().max(found.revision));
    }
    if state.is_waiting(Wait::Watch) {
        // A closed watch delivers nothing. Once it is open again, it needs time to deliver what it has missed.
        *undelivered = None;
        return;
    }
    let lost = match Undelivered::look(undelivered, is_delivered, found, now) {
        Some(lost) if lost.entry > entry => format!("position {}", lost.entry),
        Some(lost) => format!("the manifest of revision {}", lost.manifest),
        None => return,
    };
    state.fail(Failure::Lost(format!("the watch has not delivered {lost}")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll, Token};

    /// Revision up to which everything is delivered.
    const DELIVERED: u64 = 10;

    /// Runs one query in each of ten seconds, which finds `found`. The watch is closed for the first `closed_seconds`.
    /// Returns the error, and the revision after which a reopened watch would start.
    fn after_ten_seconds(found: Found, closed_seconds: u64) -> (Option<String>, u64) {
        let poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(0)).expect("a waker");
        let (sender, events) = updates::queue(Arc::new(waker));
        let followed = LocalRuntime::new().expect("a runtime").block_on(async {
            let endpoints = vec!["http://127.0.0.1:1".to_owned()];
            let client = Client::new(Config { endpoints, ..Config::default() }).expect("a client");
            let state = SharedState::new(client, sender);
            state.delivered.set(Position(DELIVERED));
            state.note_manifest(DELIVERED);
            let (mut undelivered, begun) = (None, Instant::now());
            for seconds in 0..10 {
                let is_closed = seconds < closed_seconds;
                let note = if is_closed { SharedState::begin } else { SharedState::end };
                note(&state, Wait::Watch);
                look_behind(&state, &mut undelivered, found, begun + Duration::from_secs(seconds));
            }
            state.followed.get()
        });
        let error = events.next().map(|event| match event {
            Event::Failed(error) => error.to_string(),
            other => panic!("{other:?}"),
        });
        (error, followed)
    }

    #[test]
    fn a_request_beyond_the_patience_fails_with_the_reason() {
        let put = Commit { manifest: Some(Box::default()), ..Commit::default() };
        for command in [Command::Open, Command::Commit(put), Command::FindEnd] {
            let what = format!("{command:?}");
            let mut poll = Poll::new().expect("a poll");
            let waker = Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
            let config = Config {
                endpoints: vec!["http://127.0.0.1:1".to_owned()],
                prefix: "/p".to_owned(),
                patience: Some(Duration::from_millis(200)),
                ..Config::default()
            };
            let mut port = EtcdPort::start(config, waker).expect("a thread");
            port.send(command);
            let (mut events, deadline) = (Events::with_capacity(1), Instant::now() + Duration::from_secs(20));
            let error = loop {
                match port.next() {
                    Some(Event::Failed(error)) => break error.to_string(),
                    Some(_) => {}
                    None => poll.poll(&mut events, Some(Duration::from_secs(1))).expect("a poll"),
                }
                assert!(Instant::now() < deadline, "{what} has not failed");
            };
            assert!(error.starts_with("cannot reach etcd at http://127.0.0.1:1, /p: "), "{what}: {error}");
            assert!(error.contains("refused"), "{what}: {error}");
        }
    }

    #[test]
    fn a_lost_event_of_an_entry_or_of_the_manifest_is_noticed() {
        for (entry, manifest, lost) in [
            (DELIVERED, DELIVERED, None),
            (12, DELIVERED, Some("has not delivered position 12")),
            (DELIVERED, 12, Some("has not delivered the manifest of revision 12")),
        ] {
            let (error, followed) = after_ten_seconds(Found { entry, manifest, revision: 20 }, 0);
            match (&error, lost) {
                (Some(error), Some(lost)) => assert!(error.ends_with(lost), "{error}"),
                _ => assert_eq!((error.is_none(), lost.is_none()), (true, true), "{error:?} {lost:?}"),
            }
            assert_eq!(followed, if lost.is_none() { 20 } else { 0 });
        }
    }

    #[test]
    fn a_restored_etcd_shows_in_the_last_entry_or_in_the_manifest() {
        let found = Found { entry: 30, manifest: 20, revision: 40 };
        assert_eq!(found.went_back(30, 20), None);
        assert_eq!(found.went_back(29, 0), None, "the watch is behind");
        for (entry, manifest, what) in [(31, 20, "the last entry"), (30, 21, "the manifest"), (0, 21, "the manifest")] {
            let why = found.went_back(entry, manifest).unwrap_or_default();
            assert!(why.starts_with(&format!("{what} went back from revision ")), "{why}");
        }
    }

    #[test]
    fn a_reopened_watch_gets_time_to_deliver_what_it_has_missed() {
        for (entry, manifest) in [(12, DELIVERED), (DELIVERED, 12)] {
            let found = Found { entry, manifest, revision: 20 };
            assert_eq!(after_ten_seconds(found, 6), (None, 0));
            assert!(after_ten_seconds(found, 2).0.is_some());
        }
    }

    #[test]
    fn a_late_put_is_not_lost() {
        let (mut first, begun) = (None, Instant::now());
        let mut look = |delivered: u64, entry, seconds| {
            let found = Found { entry, manifest: 0, revision: entry };
            let now = begun + Duration::from_secs(seconds);
            let lost = Undelivered::look(&mut first, |found| delivered >= found.entry, found, now);
            assert!(lost.is_none(), "{lost:?} after {seconds} s");
        };
        look(10, 12, 0);
        // The process was paused. So too few queries have run for the put of revision 12 to count as lost.
        look(10, 13, 60);
        for seconds in 61..64 {
            // The put of revision 12 was delivered meanwhile. The next put is new.
            look(12, 14, seconds);
        }
        look(14, 14, 64);
        assert!(first.is_none());
    }
}
