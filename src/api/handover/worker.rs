//! The work of the one replica that copies Leases between its table and built-in storage.
//!
//! ```text
//!   import          read, take in, say `imported`; again and again
//!   serve           read, take in, write every lock, say `serving`; then keep built-in storage up to date
//!   undo            read, take in, write everything, say `written-back`
//!   freeze          read, write everything, say `written-back`
//! ```
//!
//! A replica that takes the work over begins the phase again, with a complete read. Nothing in a phase does harm when
//! it is done twice.

use super::State;
use super::feed::Feed;
use super::merge::{decode, gone, taken_in};
use crate::api::identity::is_own;
use crate::api::storage::{Storage, Written};
use crate::clock::Now;
use crate::codec::json::Decoder;
use crate::codec::protobuf::encode_lease_into;
use crate::etcd::built_in::{BuiltInPort, Command, Event, StoredLease, Wanted};
use crate::handover::{MESSAGE, NAME, NAMESPACE, Phase, STEP, Step};
use crate::journal::{Outcome, Ticket};
use crate::resource::{API_VERSION, NODE_LEASE_NAMESPACE};
use crate::table::Table;
use crate::table::change::Change;
use crate::table::object::Object;
use crate::table::snapshot::{Range, Snapshot, Stepped};
use crate::timestamp::MicroTime;
use std::collections::{BTreeMap, HashSet};

/// Time between two reads of built-in storage while it is followed, in ms.
const READ_MS: u64 = 50;
/// Time before another attempt after a failure, in ms.
const RETRY_MS: u64 = 1_000;
/// Time between two looks at work that is done, in ms.
const REST_MS: u64 = 1_000;
/// Time between two looks at what is to be fed, in ms.
const FEED_MS: u64 = 200;
/// Longest time for which a watch from before a takeover may be open, in seconds. kube-apiserver ends a watch after an
/// hour at the latest, unless `--min-request-timeout` is longer than its default of 1,800 s.
const WATCH_SECONDS_MAX: i64 = 65 * 60;
/// Leases that are fed with one command.
const FEED_LEASES_MAX: usize = 2_000;
/// Leases that are taken in in one turn.
const TAKEN_IN_PER_TURN: usize = 256;
/// Changes that may be under way in the journal.
const SUBMITTED_MAX: usize = 1_024;
/// Keys that are looked at in one step.
const KEYS_PER_STEP: usize = 4_096;

/// The work of a hand-over.
#[derive(Debug)]
pub(super) struct Worker {
    port: BuiltInPort,
    /// What the stage belongs to.
    state: State,
    stage: Stage,
    /// Whether the thread has a command.
    is_busy: bool,
    /// Number of events that belong to work which another replica has taken over.
    ignored: u32,
    /// Whether the next read is to be complete: this replica does not know what another one has read.
    is_new: bool,
    /// What was read last of each Lease and is not in the table yet, by key.
    incoming: BTreeMap<String, Incoming>,
    /// Leases whose changes are under way.
    submitted: Vec<(String, Incoming, Ticket)>,
    /// Leases that cannot be read, by key.
    unreadable: BTreeMap<String, Incoming>,
    feed: Feed,
    /// When there is something to do, in ms.
    due_ms: u64,
}

/// How far the work of a phase has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A read is next.
    Read,
    /// What was read is being taken in.
    TakeIn,
    /// A write is under way.
    Write,
    /// The work is done, or goes on with a look now and then.
    Rest,
}

/// What was read of a Lease.
#[derive(Clone, Debug)]
enum Incoming {
    Present(StoredLease),
    Gone,
}

impl Worker {
    pub(super) fn new(port: BuiltInPort) -> Self {
        Self {
            port,
            state: State::default(),
            stage: Stage::Rest,
            is_busy: false,
            ignored: 0,
            is_new: true,
            incoming: BTreeMap::new(),
            submitted: Vec::new(),
            unreadable: BTreeMap::new(),
            feed: Feed::default(),
            due_ms: 0,
        }
    }

    /// When there is something to do, in ms.
    pub(super) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Goes on with the work of a phase. `is_confirmed` says whether every replica keeps to the phase.
    pub(super) fn work(
        &mut self,
        state: State,
        is_confirmed: bool,
        table: &mut Table,
        storage: &mut Storage,
        decoder: &mut Decoder,
        now: Now,
    ) {
        // A command that is run again asks for the same phase without a step.
        let is_asked_again = state.step.is_none() && self.state.step.is_some();
        if self.state.phase != state.phase || is_asked_again {
            self.begin(takes_in(state));
        }
        self.state = state;
        let Some(phase) = state.phase else { return };
        self.take_events(phase, state, table, storage, now);
        self.take_in(table, storage, decoder, now);
        if self.due_ms > now.ms && self.stage != Stage::TakeIn {
            return;
        }
        self.due_ms = now.ms + if self.stage == Stage::Rest { REST_MS } else { READ_MS };
        match self.stage {
            Stage::Read if is_confirmed && !self.is_busy => {
                let is_complete = std::mem::take(&mut self.is_new);
                self.send(Command::Read { is_complete });
            }
            Stage::TakeIn if self.has_taken_in() => self.after_read(phase, state, table, storage, now),
            Stage::Rest if phase == Phase::Serve => self.feed(state, table, now),
            Stage::Read | Stage::TakeIn | Stage::Write | Stage::Rest => {}
        }
    }

    /// Begins a phase. What was read before is still to be taken in, unless this server's state is the newer one.
    fn begin(&mut self, takes_in: bool) {
        self.stage = Stage::Read;
        self.incoming.append(&mut self.unreadable);
        if !takes_in {
            self.incoming.clear();
        }
        self.feed = Feed::default();
        self.due_ms = 0;
    }

    /// Leaves the work to another replica, and forgets all that was under way.
    pub(super) fn stand_by(&mut self) {
        if self.is_new {
            return;
        }
        self.ignored += u32::from(std::mem::take(&mut self.is_busy));
        self.incoming.clear();
        self.unreadable.clear();
        self.submitted.clear();
        self.state = State::default();
        self.is_new = true;
    }

    fn send(&mut self, command: Command) {
        self.is_busy = true;
        self.port.send(command);
    }

    /// Takes in what the thread tells.
    fn take_events(&mut self, phase: Phase, state: State, table: &mut Table, storage: &mut Storage, now: Now) {
        while let Some(event) = self.port.next() {
            if self.ignored > 0 {
                self.ignored -= 1;
                continue;
            }
            self.is_busy = false;
            match event {
                Event::Read { changed, deleted, is_complete, .. } => {
                    if takes_in(state) {
                        self.put_incoming(table, changed, deleted, is_complete);
                    }
                    if self.stage == Stage::Read {
                        self.stage = Stage::TakeIn;
                    }
                }
                Event::Written { overtaken, .. } if state.step == Some(Step::Serving) => {
                    if let Some(lease) = overtaken.first() {
                        tracing::warn!(lease, "built-in storage was written by another; writing again");
                        self.stage = Stage::Read;
                    }
                    self.feed.end(!overtaken.is_empty(), now);
                }
                Event::Written { overtaken, .. } if overtaken.is_empty() => {
                    self.after_write(phase, table, storage, now);
                }
                Event::Written { .. } => self.stage = Stage::Read,
                Event::NotOurs => {
                    self.stage = Stage::Rest;
                    self.feed = Feed::default();
                    let why = "the APIService does not name a Service";
                    say(table, storage, Some(Step::NotOurs), why, now);
                }
                Event::Failed(why) => {
                    tracing::warn!(why, "the hand-over of Leases waits");
                    self.stage = Stage::Read;
                    self.due_ms = now.ms + RETRY_MS;
                    self.feed.end(true, now);
                    say(table, storage, None, &why, now);
                }
            }
        }
    }

    /// Queues what was read. What a complete read does not have is gone.
    fn put_incoming(&mut self, table: &Table, changed: Vec<StoredLease>, deleted: Vec<String>, is_complete: bool) {
        let Self { incoming, unreadable, .. } = self;
        if is_complete {
            let present: HashSet<_> = changed.iter().map(|lease| lease.key.as_str()).collect();
            for_each(table, |object| {
                if !present.contains(object.key().as_str()) && !is_own(object.metadata()) {
                    incoming.insert(object.key().as_str().to_owned(), Incoming::Gone);
                }
            });
        }
        let deleted = deleted.into_iter().map(|key| (key, Incoming::Gone));
        let changed = changed.into_iter().map(|lease| (lease.key.clone(), Incoming::Present(lease)));
        for (key, read) in deleted.chain(changed) {
            unreadable.remove(&key);
            incoming.insert(key, read);
        }
    }

    fn has_taken_in(&self) -> bool {
        self.incoming.is_empty() && self.submitted.is_empty()
    }

    /// Takes some of what was read into the table. A change that another write came before is made again, unless the
    /// Lease was read again since.
    fn take_in(&mut self, table: &mut Table, storage: &mut Storage, decoder: &mut Decoder, now: Now) {
        let mut retried = Vec::new();
        self.submitted = std::mem::take(&mut self.submitted)
            .into_iter()
            .filter_map(|(key, read, ticket)| {
                if !ticket.is_settled() {
                    return Some((key, read, ticket));
                }
                if !matches!(ticket.take(), Outcome::Applied(_)) {
                    retried.push((key, read));
                }
                None
            })
            .collect();
        for _ in 0..TAKEN_IN_PER_TURN {
            if self.submitted.len() >= SUBMITTED_MAX {
                break;
            }
            let Some((key, read)) = self.incoming.pop_first() else { break };
            let change = match change_of(&key, &read, table, decoder) {
                Ok(Some(change)) => change,
                Ok(None) => continue,
                Err(why) => {
                    tracing::error!(why, "a built-in Lease cannot be read");
                    say(table, storage, None, &why, now);
                    self.unreadable.insert(key, read);
                    continue;
                }
            };
            match storage.write(table, change, now.ms) {
                Ok(Written::Applied(_)) => {}
                Ok(Written::Submitted(ticket)) => self.submitted.push((key, read, ticket)),
                Ok(Written::Busy(_)) => retried.push((key, read)),
                Err(_) => {
                    retried.push((key, read));
                    break;
                }
            }
        }
        for (key, read) in retried {
            self.incoming.entry(key).or_insert(read);
        }
    }

    /// Goes on when everything that was read is in the table.
    fn after_read(&mut self, phase: Phase, state: State, table: &mut Table, storage: &mut Storage, now: Now) {
        if !self.unreadable.is_empty() {
            self.stage = Stage::Read;
            return;
        }
        match phase {
            Phase::Import => {
                if state.step == Some(Step::Imported)
                    || say(table, storage, Some(Step::Imported), &imported(table), now)
                {
                    self.stage = Stage::Read;
                }
            }
            Phase::Serve if state.step == Some(Step::Serving) => self.stage = Stage::Rest,
            // A late update by kube-apiserver is of an older state then, and fails.
            Phase::Serve => self.write(table, |object| object.metadata().namespace != NODE_LEASE_NAMESPACE, false),
            Phase::Undo | Phase::Freeze => self.write(table, |_| true, true),
        }
    }

    fn write(&mut self, table: &Table, is_wanted: impl Fn(&Object) -> bool, is_complete: bool) {
        let mut leases = Vec::new();
        for_each(table, |object| {
            if !is_own(object.metadata()) && is_wanted(object) {
                leases.push(wanted(object));
            }
        });
        self.send(Command::Write { leases, is_complete, is_forced: !is_complete });
        self.stage = Stage::Write;
    }

    fn after_write(&mut self, phase: Phase, table: &mut Table, storage: &mut Storage, now: Now) {
        let (step, message) = match phase {
            Phase::Serve => (Step::Serving, "no request reaches built-in storage any more".to_owned()),
            Phase::Undo | Phase::Freeze => (Step::WrittenBack, format!("{} Leases written back", count(table))),
            Phase::Import => return,
        };
        self.stage = Stage::Rest;
        if !say(table, storage, Some(step), &message, now) {
            self.stage = Stage::Read;
        }
    }

    /// Keeps built-in storage up to date.
    fn feed(&mut self, state: State, table: &Table, now: Now) {
        if state.step != Some(Step::Serving) {
            return;
        }
        self.due_ms = now.ms + FEED_MS;
        let has_watches = state.since.is_some_and(|since| now.wall.0 < since.saturating_add(WATCH_SECONDS_MAX));
        self.feed.take_in(table, has_watches, now);
        if self.is_busy {
            return;
        }
        let keys = self.feed.take_due(FEED_LEASES_MAX, now);
        let leases: Vec<_> = keys
            .iter()
            .filter_map(|key| {
                let (namespace, name) = key.parts();
                match table.find(namespace, name) {
                    Some((_, object)) => (!is_own(object.metadata())).then(|| wanted(object)),
                    None => Some(Wanted { key: key.as_str().to_owned(), value: None }),
                }
            })
            .collect();
        if !leases.is_empty() {
            self.feed.begin(keys);
            self.send(Command::Write { leases, is_complete: false, is_forced: false });
        }
    }
}

/// Whether what is read is taken in: not when this server's state is the newer one.
fn takes_in(state: State) -> bool {
    match state.phase {
        Some(Phase::Import | Phase::Undo) => true,
        Some(Phase::Serve) => state.step != Some(Step::Serving),
        Some(Phase::Freeze) | None => false,
    }
}

/// The change that takes in what was read; none if nothing has changed.
///
/// # Errors
/// Why what was read is no Lease.
fn change_of(key: &str, read: &Incoming, table: &Table, decoder: &mut Decoder) -> Result<Option<Change>, String> {
    match read {
        Incoming::Present(stored) => Ok(taken_in(table, decode(stored, decoder)?)),
        Incoming::Gone => Ok(gone(table, key)),
    }
}

/// Gives `each` every Lease.
fn for_each(table: &Table, mut each: impl FnMut(&Object)) {
    let mut snapshot = Snapshot::now(table, Range::All);
    let mut step = |object: &Object| {
        each(object);
        true
    };
    while snapshot.next(table, KEYS_PER_STEP, &mut step) == Ok(Stepped::More) {}
}

/// A Lease as built-in storage has it.
fn wanted(object: &Object) -> Wanted {
    let mut value = Vec::new();
    encode_lease_into(&mut value, &object.lease(), None, API_VERSION);
    Wanted { key: object.key().as_str().to_owned(), value: Some(value) }
}

fn imported(table: &Table) -> String {
    format!("{} Leases are here", count(table))
}

fn count(table: &Table) -> usize {
    let mut count = 0;
    for_each(table, |object| count += usize::from(!is_own(object.metadata())));
    count
}

/// Writes a step and a message to the Lease of the hand-over. Whether the journal has taken the change.
fn say(table: &mut Table, storage: &mut Storage, step: Option<Step>, message: &str, now: Now) -> bool {
    let Some((slot, object)) = table.find(NAMESPACE, NAME) else { return false };
    let mut lease = object.lease().into_owned();
    if let Some(step) = step {
        lease.metadata.annotations.insert(STEP.into(), step.name().into());
    }
    lease.metadata.annotations.insert(MESSAGE.into(), message.into());
    if lease == *object.lease() {
        return true;
    }
    lease.spec.renew_time = Some(MicroTime(now.wall.0.saturating_mul(1_000_000)));
    let change = Change::Replace(table.target(slot), Box::new(lease));
    matches!(storage.write(table, change, now.ms), Ok(Written::Applied(_) | Written::Submitted(_)))
}
