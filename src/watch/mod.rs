//! Watchers: who sees which change, and how far each has come.
//!
//! A watcher is a cursor into the event log, not a queue: it is filled from the log when its connection can take more,
//! and costs nothing until then. One that falls off the log is ended with 410, and its client lists anew; never is a
//! single event left out. A watcher of one name or one namespace is found by an index, and keeps the few versions that
//! are for it, so that ten thousand of them cost a change no more than one.
//!
//! ```text
//!   Initial ──all given──► Scan ──reaches the head──► Synced ──pending overflows──► Scan
//!      │                     │                                                       │
//!      └── log forgot, ──────┴────────────────────► ended with an ERROR event ◄──────┘
//!          or took too long
//! ```
//!
//! A broad watcher has no `Synced`: reading the log from its cursor is all it ever does. Not owned here: sockets and
//! framing. [`Watchers::fill`] gives the bytes of events; `serve` puts them where they belong.

mod event;
mod recent;
mod watcher;

use recent::Recent;
use watcher::Watcher;

use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::Form;
use crate::permits::Permit;
use crate::resource::ResourceVersion;
use crate::selector::Selector;
use crate::table::Table;
use crate::table::snapshot::{Range, Snapshot};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Slot and generation of a watcher; a stale key finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatcherKey {
    slot: u32,
    generation: u32,
}

/// A watch as it was asked for.
#[derive(Debug)]
pub struct WatchSpec {
    /// Leases that it is about.
    pub range: Range,
    /// Which of them.
    pub selector: Selector,
    /// From where.
    pub start: WatchStart,
    /// Whether the client takes bookmarks.
    pub bookmarks: bool,
    /// Milliseconds after which it ends.
    pub timeout_ms: u64,
    /// How events are written.
    pub form: Form,
}

/// Where a watch begins.
#[derive(Debug)]
pub enum WatchStart {
    /// With the changes after a version that was given out.
    After(ResourceVersion),
    /// With the end: an ERROR event, since the stream comes before the look at what is there.
    Refused(Box<ApiError>),
    /// With all that is there, as ADDED events.
    Initial {
        /// What is there.
        snapshot: Box<Snapshot>,
        /// Whether a bookmark with the annotation `k8s.io/initial-events-end` follows them.
        end_bookmark: bool,
        /// If it is long: kept until all of it is out.
        permit: Option<Permit>,
    },
}

/// What [`Watchers::fill`] left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Nothing more until something changes.
    Idle,
    /// More, when there is room.
    More,
    /// The watch is over; the watcher is gone.
    Ended(WatchEnd),
}

/// Why a watch ended by the server's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// It read too slowly, or asked for too old a version, or for one that was never given out: 410.
    Expired,
    /// Its time was over.
    TimedOut,
    /// Its client opens no window, and too much waits for such.
    Unread,
    /// It wants what cannot be had: what is there at a version that does not exist yet, or events in a form that is one
    /// of lists. As with kube-apiserver, it has begun before that is found out.
    Unsuitable,
}

/// All watchers. `O` says to whose connection and stream one belongs.
#[derive(Debug)]
pub struct Watchers<O> {
    watchers: Slab<Entry<O>>,
    /// How watches end since the server stops; none if it does not.
    stopping: Option<StopKind>,
    generation: u32,
    /// By name and by namespace: `namespace/name` and `namespace/`.
    narrow: HashMap<String, Vec<u32>, RandomState>,
    broad: Vec<u32>,
    /// Those for whom there may be something; each is marked.
    dirty: VecDeque<WatcherKey>,
    /// Version up to which [`Watchers::notify`] has looked.
    notified: ResourceVersion,
    timers: BinaryHeap<Reverse<(u64, WatcherKey)>>,
    counts: Counts,
    recent: Recent,
}

/// A watcher, whose it is, and where it stands among the others.
#[derive(Debug)]
struct Entry<O> {
    watcher: Watcher,
    owner: O,
    generation: u32,
    /// Key in `narrow`; none for a broad one.
    group: Option<String>,
    /// Place in its group, or in `broad`.
    place: usize,
    is_dirty: bool,
    /// Milliseconds for which its timer is set.
    armed_ms: u64,
}

/// What has been done for all watchers since the start.
#[derive(Debug, Default)]
struct Counts {
    /// Events given, bookmarks and errors among them.
    events: u64,
    /// Bytes of these, but for bookmarks and errors with which a fill ends.
    bytes: u64,
    /// Events of the log and keys of the table, for a watcher each, by what its selector makes them cost.
    looks: u64,
}

impl<O: Copy> Watchers<O> {
    /// None yet, of a table that stands at `version`.
    #[must_use]
    pub fn new(version: ResourceVersion) -> Self {
        Self {
            watchers: Slab::new(),
            stopping: None,
            generation: 0,
            narrow: HashMap::default(),
            broad: Vec::new(),
            dirty: VecDeque::new(),
            notified: version,
            timers: BinaryHeap::new(),
            counts: Counts::default(),
            recent: Recent::default(),
        }
    }

    /// Events given to all watchers since the start, bookmarks and errors among them.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.counts.events
    }

    /// Bytes of events that [`Watchers::fill`] has written since the start, whether or not they have gone.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counts.bytes
    }

    /// Number of watchers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.watchers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Events of the log and keys of the table that [`Watchers::fill`] has looked at since the start, each counted by
    /// what the selector makes it cost.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.counts.looks
    }

    /// Takes a watcher in. It is dirty at once.
    pub fn add(&mut self, owner: O, mut spec: WatchSpec, now: Now) -> WatcherKey {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let vacant = self.watchers.vacant_entry();
        let slot = u32::try_from(vacant.key()).expect("memory ends long before 2^32 watchers");
        let group = match &spec.range {
            Range::All => None,
            Range::Namespace(namespace) => Some(format!("{namespace}/")),
            Range::Name(key) => Some(key.as_str().to_owned()),
        };
        let members = match &group {
            None => &mut self.broad,
            Some(group) => self.narrow.entry_ref(group.as_str()).or_default(),
        };
        members.push(slot);
        match self.stopping {
            Some(StopKind::Forgets) => spec.start = WatchStart::Refused(Box::new(stopping())),
            Some(StopKind::Resumes) => spec.timeout_ms = 0,
            None => {}
        }
        let watcher = Watcher::new(spec, self.notified, now);
        let initial_end_ms = watcher.initial_end_ms();
        let place = members.len() - 1;
        vacant.insert(Entry { watcher, owner, generation, group, place, is_dirty: false, armed_ms: 0 });
        let key = WatcherKey { slot, generation };
        if let Some(end_ms) = initial_end_ms {
            self.timers.push(Reverse((end_ms, key)));
        }
        self.arm_timer(key);
        self.mark_dirty(key);
        key
    }

    /// Takes a watcher out, whose client has gone. Without effect on one that is out.
    pub fn remove(&mut self, key: WatcherKey) {
        if self.entry(key).is_none() {
            return;
        }
        let gone = self.watchers.remove(key.slot as usize);
        let members = match &gone.group {
            None => &mut self.broad,
            Some(group) => match self.narrow.get_mut(group.as_str()) {
                Some(members) => members,
                None => return,
            },
        };
        members.swap_remove(gone.place);
        if let Some(moved) = members.get(gone.place) {
            self.watchers[*moved as usize].place = gone.place;
        } else if let (true, Some(group)) = (members.is_empty(), &gone.group) {
            self.narrow.remove(group.as_str());
        }
        // Its timer stays until it is due, which may be in an hour; many such are swept out together.
        if self.timers.len() > KEYS_SWEPT_MIN + 4 * self.watchers.len() {
            let watchers = &mut self.watchers;
            self.timers.retain(|Reverse((_, key))| find(watchers, *key).is_some());
        }
        self.check_invariants();
    }

    /// Finds out for whom the changes since the last call are. To be called at the end of each turn, before the log
    /// can forget them.
    pub fn notify(&mut self, table: &Table) {
        let head = table.version();
        if self.notified == head {
            return;
        }
        for at in 0..self.broad.len() {
            let slot = self.broad[at];
            let generation = self.watchers[slot as usize].generation;
            self.mark_dirty(WatcherKey { slot, generation });
        }
        if !self.narrow.is_empty() {
            match table.log().since(self.notified) {
                Some(events) => {
                    for event in events {
                        let key = event.after.key().as_str();
                        let namespace_end = key.len() - event.after.key().parts().1.len();
                        for group in [key, &key[..namespace_end]] {
                            self.note(group, event.version());
                        }
                    }
                }
                // The log is shorter than a turn: they must look themselves, and find out that they are too late.
                None => self.rescan_all(),
            }
        }
        self.notified = head;
    }

    /// Marks those whose bookmark or end is due. What was there first is let go of when its time is over, also if the
    /// connection has no room and its peer reads nothing.
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

    /// Milliseconds at which [`Watchers::on_timeout`] has something to do.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    /// Whether there is one for whom there may be something.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes the next watcher for whom there may be something, and whose it is.
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

    /// Leaves a watcher alone, whatever happens, until [`Watchers::unpark`]: its connection has no room.
    pub fn park(&mut self, key: WatcherKey) {
        if let Some(entry) = self.entry(key) {
            entry.is_dirty = true;
        }
    }

    /// Looks after a watcher again that was parked.
    pub fn unpark(&mut self, key: WatcherKey) {
        if self.entry(key).is_some_and(|entry| entry.is_dirty) {
            self.dirty.push_back(key);
        }
    }

    /// Marks a watcher for whom there may be something.
    pub fn mark_dirty(&mut self, key: WatcherKey) {
        if let Some(entry) = self.entry(key)
            && !entry.is_dirty
        {
            entry.is_dirty = true;
            self.dirty.push_back(key);
        }
    }

    /// Appends events for one watcher until nothing is left or `out` holds about `bytes_max`.
    pub fn fill(&mut self, key: WatcherKey, table: &Table, now: Now, out: &mut Vec<u8>, bytes_max: usize) -> Fill {
        let has_others = self.watchers.len() > 1;
        let Some(entry) = find(&mut self.watchers, key) else { return Fill::Idle };
        let recent = has_others.then_some(&mut self.recent);
        let fill = entry.watcher.fill(table, now, out, bytes_max, &mut self.counts, recent);
        match fill {
            Fill::Idle => self.arm_timer(key),
            Fill::More => {}
            Fill::Ended(_) => self.remove(key),
        }
        fill
    }

    /// Ends every watch that is open with an ERROR event.
    pub fn end_all(&mut self, error: &ApiError) {
        let end = |(slot, entry): (usize, &mut Entry<O>)| {
            entry.watcher.refuse(error);
            WatcherKey { slot: u32::try_from(slot).unwrap_or(u32::MAX), generation: entry.generation }
        };
        let keys: Vec<_> = self.watchers.iter_mut().map(end).collect();
        for key in keys {
            self.mark_dirty(key);
        }
    }

    /// From now on every watch that is opened ends at once, as the open ones do by [`Watchers::end_for_shutdown`].
    pub fn begin_shutdown(&mut self, kind: StopKind) {
        self.stopping = Some(kind);
    }

    /// Ends a watch because the server stops.
    pub fn end_for_shutdown(&mut self, key: WatcherKey, out: &mut Vec<u8>) {
        let Some(entry) = find(&mut self.watchers, key) else { return };
        if self.stopping == Some(StopKind::Forgets) {
            entry.watcher.push_error(&stopping(), out, &mut self.counts);
        }
        self.remove(key);
    }

    /// Tells the members of `group` of a change.
    fn note(&mut self, group: &str, version: ResourceVersion) {
        let Some(members) = self.narrow.get(group) else { return };
        for slot in members {
            let entry = &mut self.watchers[*slot as usize];
            entry.watcher.note(version);
            if !entry.is_dirty {
                entry.is_dirty = true;
                self.dirty.push_back(WatcherKey { slot: *slot, generation: entry.generation });
            }
        }
    }

    #[cold]
    fn rescan_all(&mut self) {
        let keys: Vec<_> = self
            .watchers
            .iter_mut()
            .map(|(slot, entry)| {
                entry.watcher.rescan();
                WatcherKey { slot: u32::try_from(slot).unwrap_or(u32::MAX), generation: entry.generation }
            })
            .collect();
        for key in keys {
            self.mark_dirty(key);
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

    fn entry(&mut self, key: WatcherKey) -> Option<&mut Entry<O>> {
        find(&mut self.watchers, key)
    }

    fn check_invariants(&self) {
        if cfg!(debug_assertions) && self.watchers.len() <= 64 {
            let narrow: usize = self.narrow.values().map(Vec::len).sum();
            assert_eq!(self.watchers.len(), self.broad.len() + narrow, "slab and groups");
            assert!(!self.narrow.values().any(Vec::is_empty), "a group without members");
            for (slot, entry) in &self.watchers {
                let members = entry.group.as_ref().map_or(&self.broad, |group| &self.narrow[group.as_str()]);
                assert_eq!(members.get(entry.place).map(|s| *s as usize), Some(slot), "place in the group");
            }
        }
    }
}

/// The watcher of this key, if it is still there.
fn find<O>(watchers: &mut Slab<Entry<O>>, key: WatcherKey) -> Option<&mut Entry<O>> {
    watchers.get_mut(key.slot as usize).filter(|entry| entry.generation == key.generation)
}

/// What becomes of the versions when the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopKind {
    /// The next server counts versions from another beginning. A watch that went on from its version there would miss
    /// events, so watches end with 410 and clients list anew.
    Forgets,
    /// The next server knows the versions. Watches end without an error, and clients resume from their last version.
    Resumes,
}

/// Keys in a queue below which it is not worth to look for those whose watchers have gone.
const KEYS_SWEPT_MIN: usize = 1024;

/// Why a watch ends, or does not begin, when the server stops.
#[cold]
fn stopping() -> ApiError {
    let message = "the server is stopping, and its resourceVersions end with it: list anew".into();
    ApiError::Expired { message, next: None }
}

#[cfg(test)]
mod tests;
