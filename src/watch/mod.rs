//! Watchers: which watcher sees which change, and how far each watcher has read. A version in this module is a
//! `resourceVersion`.
//!
//! A watcher is a cursor into the event log, not a queue of events. When the watcher's connection has room for more
//! output, [`Watchers::fill`] reads events from the log and writes them to the connection. If the log has dropped
//! events after the cursor, the watch ends with 410, and its client lists again. No event is ever skipped.
//!
//! An index finds the watchers of one name, one namespace, or one shard (the Leases whose UID or namespace has a hash
//! in given ranges). Each of these watchers stores the versions of the few changes that concern it. So a change costs
//! nothing for the watchers of other names, namespaces and shards.
//!
//! ```text
//!   Initial ──all sent───► Scan ──reaches the head──► Synced ──pending overflows──► Scan
//!      │                     │                                                       │
//!      └── log forgot, ──────┴────────────────────► ended with an ERROR event ◄──────┘
//!          or took too long
//! ```
//!
//! A broad watcher watches all Leases without a shard selector. It is never `Synced`, but always reads the log from its
//! cursor. This module owns no sockets and no framing. [`Watchers::fill`] appends the bytes of events to a buffer, and
//! the module `serve` queues these bytes on the connection.

mod event;
mod index;
mod recent;
mod watcher;

use index::{Index, Places};
use recent::Recent;
use watcher::{Source, Watcher};

use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::Form;
use crate::limits::UNDELIVERED_SHARE;
use crate::resource::ResourceVersion;
use crate::schedule::Permit;
use crate::selector::Selector;
use crate::table::Table;
use crate::table::snapshot::{Range, Snapshot};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Identifies a watcher by its slot and its generation. No watcher has the key of a removed watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatcherKey {
    slot: u32,
    generation: u32,
}

/// A watch as the client requested it.
#[derive(Debug)]
pub struct WatchSpec {
    /// Leases to watch.
    pub range: Range,
    /// Selector for Leases within the range.
    pub selector: Selector,
    /// Where the watch begins.
    pub start: WatchStart,
    /// Whether the client accepts bookmarks.
    pub bookmarks: bool,
    /// Time after which the watch ends, in ms.
    pub timeout_ms: u64,
    /// Form in which events are written.
    pub form: Form,
}

/// The start of a watch.
#[derive(Debug)]
pub enum WatchStart {
    /// The watch sends the changes after this version, which the server has issued.
    After(ResourceVersion),
    /// The watch sends this error as an ERROR event, and ends. A status cannot report the error: as in kube-apiserver,
    /// the head of the response, with status 200, is sent before the start of the watch is checked.
    Refused(Box<ApiError>),
    /// The watch first sends the existing Leases (the initial state), as ADDED events.
    Initial {
        /// The existing Leases.
        snapshot: Box<Snapshot>,
        /// Whether a bookmark with the annotation `k8s.io/initial-events-end` follows the existing Leases.
        end_bookmark: bool,
        /// Permit for a long initial state, one of a limited number. The watcher holds the permit until the whole
        /// initial state is sent.
        permit: Option<Permit>,
    },
}

/// Outcome of [`Watchers::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Nothing remains to send until the next change or the next bookmark.
    Idle,
    /// More events remain. The connection has no room for them, or this call has examined enough events.
    More,
    /// The watch has ended, and its watcher is removed.
    Ended(WatchEnd),
}

/// Why the server ended a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// Error 410. For example, the log has dropped the next events of the watch, or the client read the initial state
    /// too slowly.
    Expired,
    /// The watch's timeout passed.
    TimedOut,
    /// The client does not open the HTTP/2 flow-control window, and too much output waits for such clients.
    Unread,
    /// The request cannot be served: it asks for initial events at a version that does not exist yet, or for events in
    /// a list form, such as `PartialObjectMetadataList`. As in kube-apiserver, the response has begun before this is
    /// detected.
    Unsuitable,
}

/// All watchers. `O` identifies the connection and stream of a watcher.
#[derive(Debug)]
pub struct Watchers<O> {
    watchers: Slab<WatcherEntry<O>>,
    /// How watches end while the server stops; `None` while the server runs.
    stopping: Option<StopKind>,
    generation: u32,
    index: Index,
    /// Dirty watchers: watchers that may have something to send. Each of them has `is_dirty` set.
    dirty: VecDeque<WatcherKey>,
    /// Watchers that began with a long initial state. [`Watchers::check_long`] removes those that have sent it or are
    /// gone.
    long: Vec<WatcherKey>,
    /// Version up to which [`Watchers::notify`] has read the event log.
    notified: ResourceVersion,
    /// Whether the last [`Watchers::notify`] left changes for the next call.
    is_behind: bool,
    timers: BinaryHeap<Reverse<(u64, WatcherKey)>>,
    counts: Counts,
    recent: Recent,
}

/// A watcher, its owner, and its places in the index.
#[derive(Debug)]
struct WatcherEntry<O> {
    watcher: Watcher,
    owner: O,
    generation: u32,
    places: Places,
    is_dirty: bool,
    /// Whether the watcher's connection has no room for more output.
    is_parked: bool,
    /// Deadline for which the watcher's timer is set, in ms.
    armed_ms: u64,
}

/// Totals over all watchers since the start.
#[derive(Debug, Default)]
struct Counts {
    /// Events written, including bookmarks and errors.
    events: u64,
    /// Bytes of events. A bookmark or an error at the end of a fill is not counted.
    bytes: u64,
    /// Work of all watchers: the number of log events and table keys examined, weighted by selector cost, and the
    /// number of hashes compared with shard selectors.
    looks: u64,
}

impl<O: Copy> Watchers<O> {
    /// Creates an empty set of watchers for a table at `version`.
    #[must_use]
    pub fn new(version: ResourceVersion) -> Self {
        Self {
            watchers: Slab::new(),
            stopping: None,
            generation: 0,
            index: Index::default(),
            dirty: VecDeque::new(),
            long: Vec::new(),
            notified: version,
            is_behind: false,
            timers: BinaryHeap::new(),
            counts: Counts::default(),
            recent: Recent::default(),
        }
    }

    /// Returns the number of events written to all watchers since the start, including bookmarks and errors.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.counts.events
    }

    /// Returns the bytes of events that [`Watchers::fill`] has written since the start, whether or not they have been
    /// sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counts.bytes
    }

    /// Returns the number of watchers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.watchers.len()
    }

    /// Returns the number of watchers with a shard selector.
    #[must_use]
    pub fn sharded(&self) -> usize {
        self.index.sharded()
    }

    /// Whether there are no watchers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Returns the number of log events and table keys that [`Watchers::fill`] has examined since the start, weighted
    /// by selector cost. Also counts the hashes that [`Watchers::notify`] has compared with shard selectors.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.counts.looks
    }

    /// Adds a watcher. The watcher is dirty at once: it may have something to send.
    pub fn add(&mut self, owner: O, mut spec: WatchSpec, now: Now) -> WatcherKey {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let vacant = self.watchers.vacant_entry();
        let slot = u32::try_from(vacant.key()).expect("memory ends long before 2^32 watchers");
        let places = self.index.add(slot, &spec.range, spec.selector.shard.as_deref());
        match self.stopping {
            Some(StopKind::Forgets) => spec.start = WatchStart::Refused(Box::new(stopping())),
            Some(StopKind::Resumes) => spec.timeout_ms = 0,
            None => {}
        }
        let watcher = Watcher::new(spec, self.notified, now);
        let (initial_end_ms, is_long) = (watcher.initial_end_ms(), watcher.is_long());
        let (is_dirty, is_parked) = (false, false);
        vacant.insert(WatcherEntry { watcher, owner, generation, places, is_dirty, is_parked, armed_ms: 0 });
        let key = WatcherKey { slot, generation };
        if let Some(end_ms) = initial_end_ms {
            self.timers.push(Reverse((end_ms, key)));
        }
        if is_long {
            self.long.push(key);
        }
        self.arm_timer(key);
        self.mark_dirty(key);
        key
    }

    /// Removes a watcher whose client has gone. Has no effect if the watcher is already removed.
    pub fn remove(&mut self, key: WatcherKey) {
        if self.entry(key).is_none() {
            return;
        }
        let gone = self.watchers.remove(key.slot as usize);
        let Self { index, watchers, .. } = self;
        index.remove(&gone.places, |member, place| watchers[member.slot as usize].places.moved(member, place));
        // The removed watcher's timer stays in the heap until it is due, which may take an hour. If too many such
        // timers exist, all of them are removed at once.
        if self.timers.len() > KEYS_SWEPT_MIN + 4 * self.watchers.len() {
            let watchers = &mut self.watchers;
            self.timers.retain(|Reverse((_, key))| find(watchers, *key).is_some());
        }
        self.check_invariants();
    }

    /// Finds the watchers that the changes since the last call concern, and marks them as dirty: they may have
    /// something to send. Must be called at the end of each turn of the event loop.
    ///
    /// Stops after the change with which the call has found `marks_max` watchers. A watcher that three changes concern
    /// counts three times. The next call continues with the next change. But while more than one in
    /// [`UNDELIVERED_SHARE`] events of the log is unread, the call goes on: otherwise the log could drop a change that
    /// `notify` has not read.
    pub fn notify(&mut self, table: &Table, marks_max: usize) {
        let head = table.version();
        self.is_behind = false;
        if self.notified == head {
            return;
        }
        let Self { index, watchers, dirty, counts, notified, .. } = self;
        for member in index.broad() {
            watchers[member.slot as usize].mark_dirty(member.slot, dirty);
        }
        if watchers.len() == index.broad().len() {
            *notified = head;
            return;
        }
        let Some(mut events) = table.log().since(*notified) else {
            // The log has dropped some of the changes already. So each watcher must scan the log, and may find that it
            // has missed events.
            *notified = head;
            return self.change_all(Watcher::rescan);
        };
        let backlog_max = table.log().len() / UNDELIVERED_SHARE;
        let mut marks = 0;
        while let Some(event) = events.next() {
            index.find(event, |member, hash| {
                let entry = &mut watchers[member.slot as usize];
                counts.looks += u64::from(hash.is_some());
                marks += 1;
                if hash.is_none_or(|hash| entry.watcher.has(hash)) {
                    entry.watcher.note_change(event.version());
                    entry.mark_dirty(member.slot, dirty);
                }
            });
            *notified = event.version();
            self.is_behind = marks >= marks_max && (1..=backlog_max).contains(&events.len());
            if self.is_behind {
                break;
            }
        }
        debug_assert!(self.is_behind || self.notified == head, "changes that no watcher was notified of");
    }

    /// If the bookmark or the end of a watcher is due, marks the watcher as dirty, so that it is filled soon. Drops an
    /// initial state that is past its deadline, even if the connection has no room for output and its peer reads
    /// nothing.
    pub fn on_timeout(&mut self, now: Now) {
        while let Some(Reverse((due_ms, key))) = self.timers.peek().copied() {
            if due_ms > now.ms {
                break;
            }
            self.timers.pop();
            let Some(entry) = self.entry(key) else { continue };
            entry.watcher.on_timeout(now);
            self.mark_dirty(key);
        }
    }

    /// Returns the time at which [`Watchers::on_timeout`] is next due, in ms.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    /// Whether a watcher may have something to send.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.is_behind
    }

    /// Removes the next dirty watcher, which may have something to send, from the queue. Returns the watcher and its
    /// owner.
    pub fn pop_dirty(&mut self) -> Option<(WatcherKey, O)> {
        while let Some(key) = self.dirty.pop_front() {
            if let Some(entry) = self.entry(key)
                && std::mem::take(&mut entry.is_dirty)
            {
                return Some((key, entry.owner));
            }
        }
        None
    }

    /// Parks a watcher whose connection has no room for more output. Until [`Watchers::unpark`],
    /// [`Watchers::pop_dirty`] does not return this watcher.
    pub fn park(&mut self, key: WatcherKey) {
        if let Some(entry) = self.entry(key) {
            (entry.is_dirty, entry.is_parked) = (true, true);
        }
    }

    /// Resumes a parked watcher.
    pub fn unpark(&mut self, key: WatcherKey) {
        let Some(entry) = self.entry(key) else { return };
        entry.is_parked = false;
        if entry.is_dirty {
            self.dirty.push_back(key);
        }
    }

    /// Whether a watcher may have a long initial state.
    #[must_use]
    pub fn has_long(&self) -> bool {
        !self.long.is_empty()
    }

    /// Checks which clients leave a long initial state unread. A watcher holds one of a few permits while it sends a
    /// long initial state. If the client leaves it unread, the permit may go to another client, and this function then
    /// ends the watch. Between two calls, a second or more must pass, so that a client has time to read.
    pub fn check_long(&mut self) {
        let watchers = &mut self.watchers;
        self.long.retain(|key| find(watchers, *key).is_some_and(|entry| entry.watcher.check_reading(entry.is_parked)));
    }

    /// Marks a watcher as dirty: it may have something to send.
    pub fn mark_dirty(&mut self, key: WatcherKey) {
        if let Some(entry) = find(&mut self.watchers, key) {
            entry.mark_dirty(key.slot, &mut self.dirty);
        }
    }

    /// Appends events for one watcher to `out`, until no event remains, `out` contains about `bytes_max` bytes, or
    /// enough events were examined.
    pub fn fill(&mut self, key: WatcherKey, table: &Table, now: Now, out: &mut Vec<u8>, bytes_max: usize) -> Fill {
        let has_others = self.watchers.len() > 1;
        let Some(entry) = find(&mut self.watchers, key) else { return Fill::Idle };
        let recent = has_others.then_some(&mut self.recent);
        let source = Source { table, notified: self.notified, now };
        let fill = entry.watcher.write_events(source, out, bytes_max, &mut self.counts, recent);
        match fill {
            Fill::Idle => self.arm_timer(key),
            Fill::More => {}
            Fill::Ended(_) => self.remove(key),
        }
        fill
    }

    /// Makes every open watch end with an ERROR event, at its next [`Watchers::fill`].
    pub fn end_all(&mut self, error: &ApiError) {
        self.change_all(|watcher| watcher.refuse(error));
    }

    /// Makes every watch that is opened later end at once, in the same way as [`Watchers::end_for_shutdown`] ends open
    /// watches.
    pub fn begin_shutdown(&mut self, kind: StopKind) {
        self.stopping = Some(kind);
    }

    /// Ends a watch because the server stops. With [`StopKind::Forgets`], appends the ERROR event to `out` first.
    pub fn end_for_shutdown(&mut self, key: WatcherKey, out: &mut Vec<u8>) {
        let Some(entry) = find(&mut self.watchers, key) else { return };
        if self.stopping == Some(StopKind::Forgets) {
            entry.watcher.push_error(&stopping(), out, &mut self.counts);
        }
        self.remove(key);
    }

    /// Calls `change` for each watcher, and marks the watcher as dirty.
    #[cold]
    fn change_all(&mut self, change: impl Fn(&mut Watcher)) {
        for (slot, entry) in &mut self.watchers {
            change(&mut entry.watcher);
            entry.mark_dirty(u32::try_from(slot).unwrap_or(u32::MAX), &mut self.dirty);
        }
    }

    fn arm_timer(&mut self, key: WatcherKey) {
        let Some(entry) = self.entry(key) else { return };
        let due_ms = entry.watcher.due_ms();
        if entry.armed_ms != due_ms {
            entry.armed_ms = due_ms;
            self.timers.push(Reverse((due_ms, key)));
        }
    }

    fn entry(&mut self, key: WatcherKey) -> Option<&mut WatcherEntry<O>> {
        find(&mut self.watchers, key)
    }

    fn check_invariants(&self) {
        if cfg!(debug_assertions) && self.watchers.len() <= 64 {
            self.index.check_invariants(&mut self.watchers.iter().map(|(slot, entry)| (slot, &entry.places)));
        }
    }
}

impl<O> WatcherEntry<O> {
    /// Marks this watcher as dirty. `slot` is the slot of the watcher.
    fn mark_dirty(&mut self, slot: u32, dirty: &mut VecDeque<WatcherKey>) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            dirty.push_back(WatcherKey { slot, generation: self.generation });
        }
    }
}

/// Returns the watcher with this key, if the watcher still exists.
fn find<O>(watchers: &mut Slab<WatcherEntry<O>>, key: WatcherKey) -> Option<&mut WatcherEntry<O>> {
    watchers.get_mut(key.slot as usize).filter(|entry| entry.generation == key.generation)
}

/// Whether a `resourceVersion` stays valid after the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopKind {
    /// The next server starts its versions anew. A watch that resumes there from an old version would miss events. So
    /// watches end with 410, and clients list again.
    Forgets,
    /// The next server has the same versions. Watches end without an error, and clients resume from their last version.
    Resumes,
}

/// Number of timers that the heap may have in addition to four for each watcher. The timers of a removed watcher stay
/// in the heap until they are due. If the heap has more timers, those of all removed watchers are removed at once.
const KEYS_SWEPT_MIN: usize = 1024;

/// Returns the error of a watch that ends, or does not begin, because the server stops.
#[cold]
fn stopping() -> ApiError {
    let message = "the server is stopping, and its resourceVersions end with it: list anew".into();
    ApiError::Expired { message, next: None }
}

#[cfg(test)]
mod tests;
