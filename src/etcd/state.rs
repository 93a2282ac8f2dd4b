//! What the tasks of the thread share.

use super::client::{Client, Failure};
use super::keys::Keys;
use super::transaction::{Entries, Known, PutChunk};
use crate::engine::Position;
use crate::journal::{Event, StoredManifest};
use crate::updates::UpdateSender;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// What the tasks of the thread share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) client: Client,
    pub(super) keys: Keys,
    events: UpdateSender<Event>,
    /// Entries that the store may hold.
    pub(super) entries: RefCell<Entries>,
    /// Position of the last entry that was delivered or loaded.
    pub(super) delivered: Cell<Position>,
    /// Number of that entry.
    pub(super) numbered: Cell<u64>,
    /// Revision of the last manifest that was delivered or put.
    pub(super) manifest_revision: Cell<u64>,
    /// The last chunk that was put since the last manifest.
    pub(super) chunk: Cell<Option<PutChunk>>,
    /// Revision up to which everything was delivered.
    pub(super) followed: Cell<u64>,
    /// Manifests that are held back while one is put; none if none is.
    held: RefCell<Option<Vec<StoredManifest>>>,
    /// What waits for etcd, each since when.
    waits: [Cell<Option<Instant>>; 3],
    is_reachable: Cell<bool>,
    /// Whether the thread is to end, since what it says is of no use any more.
    pub(super) is_over: Cell<bool>,
}

/// What can wait for etcd.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// A commit.
    Commit,
    /// A look for the last entry.
    Look,
    /// The watch, which is broken.
    Watch,
}

/// Time without an answer after which etcd counts as unreachable.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(2);

impl State {
    pub(super) fn new(client: Client, events: UpdateSender<Event>) -> Self {
        let keys = Keys::new(&client.config().prefix);
        Self {
            client,
            keys,
            events,
            entries: RefCell::default(),
            delivered: Cell::default(),
            numbered: Cell::default(),
            manifest_revision: Cell::default(),
            chunk: Cell::default(),
            followed: Cell::default(),
            held: RefCell::default(),
            waits: [const { Cell::new(None) }; 3],
            is_reachable: Cell::new(true),
            is_over: Cell::new(false),
        }
    }

    /// What is known of the store.
    pub(super) fn known<'a>(&self, entries: &'a Entries) -> Known<'a> {
        Known {
            entries,
            delivered: self.delivered.get(),
            manifest_revision: self.manifest_revision.get(),
            chunk: self.chunk.get(),
        }
    }

    /// Says something to the loop.
    pub(super) fn say(&self, event: Event) {
        let is_failure = matches!(event, Event::Failed(ref error) if !error.is_no_space());
        if !self.is_over.get() && (!self.events.send(event) || is_failure) {
            self.is_over.set(true);
        }
    }

    /// Says that a request failed for good.
    pub(super) fn fail(&self, failure: Failure) {
        self.say(Event::Failed(failure.into_error(self.client.config())));
    }

    /// Something begins to wait for etcd.
    pub(super) fn begin(&self, wait: Wait) {
        let since = &self.waits[wait as usize];
        since.set(since.get().or_else(|| Some(Instant::now())));
    }

    /// Whether something waits for etcd.
    pub(super) fn is_waiting(&self, wait: Wait) -> bool {
        self.waits[wait as usize].get().is_some()
    }

    /// It has its answer.
    pub(super) fn end(&self, wait: Wait) {
        self.waits[wait as usize].set(None);
        self.look_at_waits();
    }

    /// Says whether etcd can be reached, if that has changed.
    pub(super) fn look_at_waits(&self) {
        let is_late =
            |since: &Cell<Option<Instant>>| since.get().is_some_and(|since| since.elapsed() > UNREACHABLE_AFTER);
        let is_reachable = !self.waits.iter().any(is_late);
        if self.is_reachable.replace(is_reachable) != is_reachable {
            if !is_reachable {
                tracing::warn!(reason = self.client.last_failure(), "etcd has not answered for two seconds");
            }
            self.say(Event::Reachable(is_reachable));
        }
    }

    /// A manifest is to be put: others are held back until the answer.
    pub(super) fn hold_manifests(&self) {
        self.held.replace(Some(Vec::new()));
    }

    /// Says the answer to a commit with a manifest, and which manifests were put since.
    pub(super) fn release_manifests(&self, answer: Event, revision: u64) {
        self.note_manifest(revision);
        self.say(answer);
        for manifest in self.held.take().into_iter().flatten() {
            if manifest.revision > revision {
                self.say(Event::Replaced(manifest));
            }
        }
    }

    /// A manifest was put.
    pub(super) fn deliver_manifest(&self, manifest: StoredManifest) {
        self.note_manifest(manifest.revision);
        match &mut *self.held.borrow_mut() {
            Some(held) => held.push(manifest),
            None => self.say(Event::Replaced(manifest)),
        }
    }

    pub(super) fn note_manifest(&self, revision: u64) {
        self.manifest_revision.set(self.manifest_revision.get().max(revision));
    }
}
