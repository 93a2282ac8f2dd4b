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
use crate::journal::{COMMANDS_MAX, Command, Commit, End, Event, Port, base_position};
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

/// A store in etcd that other processes also write to.
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
/// Time without delivery after which an entry that is in etcd counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// Number of queries that must be exceeded before an undelivered entry counts as lost. After a long pause of the
/// process, `LOST_AFTER` has passed, but few queries have run. The watch may then still deliver the entry.
const LOOKS_MIN: u32 = 4;

/// An entry that is in etcd, but that the watch has not delivered.
#[derive(Clone, Copy, Debug)]
struct Behind {
    position: Position,
    since: Instant,
    /// Number of queries that have found the entry undelivered.
    looks: u32,
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
    let behind = Rc::new(RefCell::new(None));
    let mut load = Load::default();
    let mut is_following = false;
    while let Some(command) = commands.recv().await {
        let read = match command {
            Command::Commit(commit) => {
                spawn_local(do_commit(Rc::clone(&state), commit));
                continue;
            }
            Command::FindEnd => {
                spawn_local(find_end(Rc::clone(&state), Rc::clone(&behind)));
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

/// Sends a commit. Repeats the commit until etcd gives a definite answer.
async fn do_commit(state: Rc<SharedState>, commit: Commit) {
    let is_manifest = commit.manifest.is_some();
    let base = commit.manifest.as_ref().and_then(|manifest| base_position(&manifest.bytes));
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
        Ok(Done::Committed { revision }) => {
            state.entries.borrow_mut().forget(&transaction.truncated);
            state.note_base(base);
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
        // A gRPC proxy before etcd has a lower limit. Only this commit fails.
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
    for attempt in 0.. {
        match state.client.txn(&transaction.request, attempt).await {
            Ok(answer) => return Ok(transaction.done(answer)),
            Err(Failure::Unknown(status)) => {
                tracing::debug!(%status, attempt, "etcd has not answered a commit");
                if state.is_over.get() {
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
                    Some(found) if found.value == *payload => Ok(Done::Committed { revision: 0 }),
                    _ => Err(Failure::NoSpace(message)),
                };
            }
            Err(failure) => return Err(failure),
        }
    }
    unreachable!("attempts do not end")
}

/// Finds the last entry in etcd. Repeats the query until etcd answers.
async fn find_end(state: Rc<SharedState>, behind: Rc<RefCell<Option<Behind>>>) {
    state.begin(Wait::Look);
    let request = transaction::find_end(&state.keys);
    let delivered = state.delivered.get();
    for attempt in 0.. {
        match state.client.txn(&request, attempt).await {
            Ok(answer) => {
                let revision = answer.header.map_or(0, |header| header.revision.cast_unsigned());
                let mut found = answer.responses.into_iter().map(first_key);
                let (head, manifest) = (found.next().unwrap_or_default(), found.next().unwrap_or_default());
                let position = Position(head.mod_revision.cast_unsigned());
                // A linearizable read shows every entry that was delivered before the read. So an earlier position
                // means that etcd was restored.
                if position < delivered {
                    let (old, new) = (delivered.0, position.0);
                    let why = format!("the last entry went back from revision {old} to {new}: etcd was restored");
                    return state.fail(Failure::Lost(why));
                }
                state.end(Wait::Look);
                state.say(Event::End(End { position, entries: head.version.cast_unsigned() }));
                let manifest = manifest.mod_revision.cast_unsigned();
                return look_behind(&state, &mut behind.borrow_mut(), position, manifest, revision);
            }
            Err(Failure::Unknown(_)) if state.is_over.get() => return,
            Err(Failure::Unknown(_)) => state.client.pause(attempt).await,
            Err(failure) => return state.fail(failure),
        }
    }
}

fn first_key(answer: ResponseOp) -> KeyValue {
    answer.range.unwrap_or_default().kvs.into_iter().next().unwrap_or_default()
}

/// Compares the state of etcd at `revision` with what the watch has delivered. `end` is the position of the last entry
/// in etcd, and `manifest` the revision of the manifest. Fails if the watch has not delivered an entry for too long.
fn look_behind(state: &SharedState, behind: &mut Option<Behind>, end: Position, manifest: u64, revision: u64) {
    if state.delivered.get() >= end {
        *behind = None;
        if state.manifest_revision.get() >= manifest {
            // The watch has delivered everything up to `revision`. So a reopened watch can start after `revision`,
            // which etcd is less likely to have compacted than an earlier revision.
            state.followed.set(state.followed.get().max(revision));
        }
        return;
    }
    let now = Behind { position: end, since: Instant::now(), looks: 0 };
    let first = behind.get_or_insert(now);
    if state.delivered.get() >= first.position {
        *first = now;
    }
    first.looks += 1;
    let is_late = first.since.elapsed() > LOST_AFTER && first.looks > LOOKS_MIN;
    if is_late && !state.is_waiting(Wait::Watch) {
        state.fail(Failure::Lost(format!("the watch has not delivered position {}", first.position.0)));
    }
}
