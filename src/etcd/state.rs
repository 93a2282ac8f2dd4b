//! [`SharedState`]: the state that the tasks of the etcd thread share.

use super::client::{Client, Failure};
use super::keys::Keys;
use super::transaction::{Entries, Known, PutChunk};
use crate::engine::Position;
use crate::journal::{End, Event, StoredManifest, base_end};
use crate::updates::UpdateSender;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// The state that the tasks of the etcd thread share.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) client: Client,
    pub(super) keys: Keys,
    events: UpdateSender<Event>,
    /// Entries of the journal that etcd may still hold.
    pub(super) entries: RefCell<Entries>,
    /// Position of the last entry that the watch has delivered to the event loop, or that the startup has loaded.
    pub(super) delivered: Cell<Position>,
    /// Position of the newest entry that etcd is known to have, delivered or not.
    pub(super) newest: Cell<Position>,
    /// Number of entries from the creation of the store up to `delivered`.
    pub(super) numbered: Cell<u64>,
    /// Revision of the last manifest that was delivered, loaded or put.
    pub(super) manifest_revision: Cell<u64>,
    /// Position of the base (the snapshot that a startup loads) in the last manifest that was delivered, loaded or put;
    /// 0 if the base is an empty table.
    base: Cell<Position>,
    /// The chunk of a snapshot that this process last put into etcd; see [`Known::chunk`].
    pub(super) chunk: Cell<Option<PutChunk>>,
    /// Revision up to which the watch has delivered all entries and manifests.
    pub(super) followed: Cell<u64>,
    /// Manifests from the watch that are held back while this process puts a manifest, since the answer to its own
    /// manifest must come first; `None` at other times.
    held: RefCell<Option<Vec<StoredManifest>>>,
    /// For each kind of request, the time since which a request of this kind waits for etcd; `None` if none waits.
    waits: [Cell<Option<Instant>>; 3],
    is_reachable: Cell<bool>,
    /// Whether the thread must end: the event loop takes no more events, or got an error after which the store is
    /// unusable.
    pub(super) is_over: Cell<bool>,
}

/// A kind of request to etcd whose waiting time is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// A commit.
    Commit,
    /// A query of the last entry in etcd.
    Look,
    /// The opening of the watch of the store.
    Watch,
}

/// Time without an answer to a request after which etcd counts as unreachable.
pub(super) const UNREACHABLE_AFTER: Duration = Duration::from_secs(2);

impl SharedState {
    pub(super) fn new(client: Client, events: UpdateSender<Event>) -> Self {
        let keys = Keys::new(&client.config().prefix);
        Self {
            client,
            keys,
            events,
            entries: RefCell::default(),
            delivered: Cell::default(),
            newest: Cell::default(),
            numbered: Cell::default(),
            manifest_revision: Cell::default(),
            base: Cell::default(),
            chunk: Cell::default(),
            followed: Cell::default(),
            held: RefCell::default(),
            waits: [const { Cell::new(None) }; 3],
            is_reachable: Cell::new(true),
            is_over: Cell::new(false),
        }
    }

    /// Returns what this process knows about the store in etcd.
    pub(super) fn known<'a>(&self, entries: &'a Entries) -> Known<'a> {
        Known {
            entries,
            delivered: self.delivered.get(),
            manifest_revision: self.manifest_revision.get(),
            chunk: self.chunk.get(),
        }
    }

    /// Sends an event to the event loop.
    pub(super) fn say(&self, event: Event) {
        let is_failure = matches!(event, Event::Failed(ref error) if !error.leaves_store_usable());
        if !self.is_over.get() && (!self.events.send(event) || is_failure) {
            self.is_over.set(true);
        }
    }

    /// Reports to the event loop that a request to etcd has failed and is not repeated.
    pub(super) fn fail(&self, failure: Failure) {
        self.say(Event::Failed(failure.into_error(self.client.config())));
    }

    /// Records that a request of this kind waits for etcd.
    pub(super) fn begin(&self, wait: Wait) {
        let since = &self.waits[wait as usize];
        since.set(since.get().or_else(|| Some(Instant::now())));
    }

    /// Whether a request of this kind waits for etcd.
    pub(super) fn is_waiting(&self, wait: Wait) -> bool {
        self.waits[wait as usize].get().is_some()
    }

    /// Records that etcd has answered the request of this kind.
    pub(super) fn end(&self, wait: Wait) {
        self.waits[wait as usize].set(None);
        self.look_at_waits();
    }

    /// Reports whether etcd is reachable, if that has changed. While etcd is unreachable, logs the reason.
    pub(super) fn look_at_waits(&self) {
        let is_late =
            |since: &Cell<Option<Instant>>| since.get().is_some_and(|since| since.elapsed() > UNREACHABLE_AFTER);
        let is_reachable = !self.waits.iter().any(is_late);
        if is_reachable {
            self.client.note_reachable();
        } else {
            self.client.warn_unanswered();
        }
        if self.is_reachable.replace(is_reachable) != is_reachable {
            self.say(Event::Reachable(is_reachable));
        }
    }

    /// Holds delivered manifests back until [`SharedState::release_manifests`]. So the event loop gets the answer to
    /// this process's own manifest before any later manifest.
    pub(super) fn hold_manifests(&self) {
        self.held.replace(Some(Vec::new()));
    }

    /// Reports the answer to a commit with a manifest. Then delivers the held manifests that were put after `revision`,
    /// the revision of this commit.
    pub(super) fn release_manifests(&self, answer: Event, revision: u64) {
        self.note_manifest(revision);
        self.say(answer);
        for manifest in self.held.take().into_iter().flatten() {
            if manifest.revision > revision {
                self.say_replaced(manifest);
            }
        }
    }

    /// Delivers a manifest, unless manifests are held back.
    pub(super) fn deliver_manifest(&self, manifest: StoredManifest) {
        self.note_manifest(manifest.revision);
        match &mut *self.held.borrow_mut() {
            Some(held) => held.push(manifest),
            None => self.say_replaced(manifest),
        }
    }

    /// Reports another writer's manifest. That writer deletes the entries up to the manifest's base (the snapshot that
    /// a startup loads). Of these entries, this process then remembers only the last one of each writer.
    fn say_replaced(&self, manifest: StoredManifest) {
        let base = base_end(&manifest.bytes).position;
        if base > self.base.get() {
            self.base.set(base);
            self.entries.borrow_mut().thin(base);
        }
        self.say(Event::Replaced(manifest));
    }

    /// Records the base (the snapshot that a startup loads) of a manifest that this process has loaded or put. This
    /// process deletes the entries up to this base itself, so it must still remember them.
    pub(super) fn note_base(&self, base: End) {
        self.base.set(self.base.get().max(base.position));
    }

    /// Records that etcd has an entry at this position.
    pub(super) fn note_entry(&self, position: Position) {
        self.newest.set(self.newest.get().max(position));
    }

    pub(super) fn note_manifest(&self, revision: u64) {
        self.manifest_revision.set(self.manifest_revision.get().max(revision));
    }
}
