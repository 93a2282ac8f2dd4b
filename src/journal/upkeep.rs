//! Keeps the store small: takes snapshots, makes a newer snapshot the base (what a startup loads first), and deletes
//! the entries and chunks before the base.
//!
//! ```text
//!   base ──────── entries ──────── newer ──────── entries ────────►
//!        │ at startup, the entries from here on fill the watch window
//!        └ deleted when the event log has dropped all events up to `newer`; `newer` is then the base
//! ```
//!
//! The watch window is the events from which watches can resume. A commit contains at most one task of upkeep beside
//! the waiting batch. So no batch waits long. A commit that replaces the manifest contains nothing else.
//!
//! Several writers may share a store. The writer that replaces the manifest also does the work that follows: it takes
//! the snapshot that the new manifest claims for it, or deletes the entries and chunks before its new base. The other
//! writers receive the new manifest. A writer that was paused for minutes does no harm. Its next manifest is refused if
//! another writer has replaced the manifest that it knows. It deletes only entries and chunks that were unneeded before
//! the pause. And the chunks of its snapshot overwrite no others, since the snapshot's number is unique.

use super::applied::Applied;
use super::config::Config;
use super::error::unreadable;
use super::manifest::{Base, Manifest};
use super::port::{Commit, StoredManifest};
use super::retained::{Amount, Retained};
use super::stats::{SnapshotStats, Stats};
use super::taking::Taking;
use crate::engine::{EngineError, Position, SnapshotId, Write};
use crate::table::Table;
use std::collections::VecDeque;
use tracing::{info, warn};

/// The upkeep of a store: snapshots, new bases and deletions.
#[derive(Debug)]
pub(super) struct Upkeep {
    /// The last manifest that this writer put or received.
    manifest: Manifest,
    /// Revision of `manifest` in the store.
    revision: u64,
    /// Time at which `manifest` was put or received, in ms.
    put_ms: u64,
    retained: Retained,
    /// Number and size of the entries after the newest snapshot.
    since: Amount,
    taking: Option<Taking>,
    drops: VecDeque<Drop>,
    /// The task of upkeep in the worker's current commit.
    under_way: Option<Task>,
    /// Snapshot that this writer has claimed but not begun.
    claimed: Option<SnapshotId>,
    /// Whether this writer deletes the entries that precede the base. False if another writer has put the base since
    /// this writer loaded the store: that other writer then deletes them.
    truncates: bool,
    /// Time at which this writer found that some writer must replace the manifest, in ms.
    wanted_ms: Option<u64>,
    /// Time after `wanted_ms` for which this writer waits for another writer to replace the manifest, in ms.
    patience_ms: u64,
    /// Time before which no task of upkeep is started, in ms. Set when the store refused a commit with a task of
    /// upkeep, or when another writer replaced the manifest first.
    retry_ms: Option<u64>,
    /// Time before which no snapshot is begun, in ms. Set when the store has refused a piece of a snapshot.
    snapshot_retry_ms: Option<u64>,
    /// Size of the entries that were appended since the last truncation, in bytes.
    appended_bytes: u64,
    /// Time before which the next piece of a snapshot or the next deletion is not started, in ms. Meanwhile, the
    /// processor and the store serve requests.
    pause_ms: Option<u64>,
    /// Duration of the newest snapshot, in ms; `None` if this process has not taken it.
    duration_ms: Option<u64>,
}

/// A snapshot whose chunks are no longer needed, and are deleted in steps.
#[derive(Clone, Copy, Debug)]
struct Drop {
    snapshot: SnapshotId,
    /// Number of chunks that were deleted so far.
    done: u32,
    /// Number of chunks of the snapshot. If it is unknown, one commit deletes all chunks.
    chunks: Option<u32>,
}

impl Drop {
    fn new(snapshot: SnapshotId, chunks: Option<u32>) -> Self {
        Self { snapshot, done: 0, chunks }
    }

    /// Returns the index below which the next commit deletes the chunks.
    fn below(self, config: &Config) -> u32 {
        let next = self.done.saturating_add(config.limits.dropped_chunks_max);
        self.chunks.map_or(u32::MAX, |chunks| chunks.min(next))
    }
}

/// A task of upkeep that one commit contains.
#[derive(Debug)]
enum Task {
    Piece,
    Manifest(Box<Manifest>),
    Drop,
    Truncate(Position),
}

/// The work of upkeep in the next commit.
#[derive(Debug)]
pub(super) enum Work {
    /// Work that takes the whole commit. The commit must contain no batch.
    Alone(Commit),
    /// Writes that may be in one commit with a batch.
    Beside(Commit),
}

impl Upkeep {
    /// Creates the upkeep of a loaded store. The tuple has the store's manifest, the manifest's revision, and the time
    /// at which the manifest was read, in ms. `stored` has the snapshots with chunks in the store. The chunks of
    /// unneeded snapshots are queued for deletion.
    pub(super) fn new(
        config: &Config,
        (manifest, revision, put_ms): (Manifest, u64, u64),
        retained: Retained,
        since: Amount,
        stored: &[SnapshotId],
    ) -> Self {
        let is_wanted = |id: &SnapshotId| {
            let is_claimed = config.is_shared && manifest.taker.is_some() && *id == manifest.last_claimed;
            is_claimed || manifest.snapshots().any(|info| info.id == *id)
        };
        let stale = stored.iter().filter(|id| !is_wanted(id));
        let drops = stale.map(|id| Drop::new(*id, None)).collect();
        Self {
            manifest,
            revision,
            put_ms,
            retained,
            since,
            taking: None,
            drops,
            under_way: None,
            claimed: None,
            truncates: true,
            wanted_ms: None,
            patience_ms: 0,
            retry_ms: None,
            snapshot_retry_ms: None,
            appended_bytes: 0,
            pause_ms: None,
            duration_ms: None,
        }
    }

    /// Counts a new entry of the journal.
    pub(super) fn count_entry(&mut self, position: Position, bytes: usize) {
        self.retained.push(position, bytes);
        self.appended_bytes += bytes as u64;
        self.since.add(bytes);
        if let Some(taking) = &mut self.taking {
            taking.since.add(bytes);
        }
    }

    /// Whether a snapshot can continue now, without a further event of the worker, which writes to the store. If so,
    /// the next turn of the event loop must begin at once.
    pub(super) fn has_work(&self) -> bool {
        let is_free = self.under_way.is_none() && self.retry_ms.is_none() && self.pause_ms.is_none();
        is_free && (self.claimed.is_some() || self.taking.as_ref().is_some_and(Taking::has_work))
    }

    /// Returns the next time for which a task of upkeep waits, in ms.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let wanted_ms = self.wanted_ms.map(|since_ms| since_ms.saturating_add(self.patience_ms));
        self.retry_ms.or_else(|| [self.snapshot_retry_ms, self.pause_ms, wanted_ms].into_iter().flatten().min())
    }

    /// Returns a commit that writes the unchanged manifest. Its result shows whether the store has space for entries
    /// again ([`Write::PutManifest`]).
    pub(super) fn probe(&self, config: &Config) -> Commit {
        self.replacement(config, &self.manifest)
    }

    /// Returns a commit that writes `manifest`. The commit replaces the manifest at the revision that this writer
    /// knows.
    fn replacement(&self, config: &Config, manifest: &Manifest) -> Commit {
        let manifest = StoredManifest { bytes: manifest.encode(config.limits.format), revision: self.revision };
        Commit { manifest: Some(Box::new(manifest)), ..Commit::default() }
    }

    /// Returns the next work, if there is any. `applied` is the progress of `table` in the journal.
    pub(super) fn next(
        &mut self,
        config: &Config,
        table: &Table,
        applied: &Applied,
        own_writer: u64,
        now_ms: u64,
    ) -> Option<Work> {
        assert!(self.under_way.is_none(), "one task of upkeep at a time");
        for wait_ms in [&mut self.retry_ms, &mut self.snapshot_retry_ms, &mut self.pause_ms] {
            *wait_ms = wait_ms.filter(|at| *at > now_ms);
        }
        if self.retry_ms.is_some() {
            return None;
        }
        if let Some(manifest) = self.next_manifest(config, table, own_writer, now_ms) {
            let commit = self.replacement(config, &manifest);
            self.under_way = Some(Task::Manifest(Box::new(manifest)));
            return Some(Work::Alone(commit));
        }
        if self.pause_ms.is_some() {
            return None;
        }
        // A commit may take effect although etcd has reported it as failed. If it completes a snapshot, this writer
        // receives its own manifest like that of another writer: it gives up the snapshot, and queues the snapshot's
        // chunks for deletion. But the chunks of every snapshot that the current manifest names must stay. So they are
        // removed from the queue.
        let named: Vec<_> = self.manifest.snapshots().map(|info| info.id).collect();
        self.drops.retain(|drop| !named.contains(&drop.snapshot));
        if let Some(drop) = self.drops.front() {
            self.under_way = Some(Task::Drop);
            return Some(beside(Write::DropChunks { snapshot: drop.snapshot, below: drop.below(config) }));
        }
        if self.truncates
            && let Base::Snapshot(base) = &self.manifest.base
            && let Some(up_to) = self.retained.truncation(base.position)
        {
            self.under_way = Some(Task::Truncate(up_to));
            return Some(beside(Write::Truncate(up_to)));
        }
        if let Some(id) = self.claimed.take() {
            info!(
                snapshot = id.0,
                version = table.version().0,
                leases = table.len(),
                journal_bytes = self.since.bytes,
                "snapshot begun"
            );
            self.taking =
                Some(Taking::begin((id, config.limits.format), table, applied.clone(), now_ms, config.wall_us(now_ms)));
        }
        let piece = self.taking.as_mut()?.piece(table)?;
        self.under_way = Some(Task::Piece);
        Some(Work::Beside(Commit { piece: Some(piece), ..Commit::default() }))
    }

    /// Returns the manifest that should replace the current manifest, if there is one.
    fn next_manifest(&mut self, config: &Config, table: &Table, own_writer: u64, now_ms: u64) -> Option<Manifest> {
        if let Some(taking) = &self.taking {
            if let Some(newer) = taking.info() {
                return Some(Manifest { newer: Some(newer), taker: None, ..self.manifest.clone() });
            }
            // This writer puts the unchanged manifest to renew its claim. So no other writer takes over the claim.
            let is_due = config.is_shared && now_ms.saturating_sub(self.put_ms) > config.limits.claim_ms_max / 3;
            return is_due.then(|| self.manifest.clone());
        }
        let Some(manifest) = self.wanted_manifest(config, table, own_writer, now_ms) else {
            self.wanted_ms = None;
            return None;
        };
        self.patience_ms = match config.limits.claim_spread_ms {
            spread_ms if config.is_shared && spread_ms > 0 => own_writer.rotate_right(32) % spread_ms,
            _ => 0,
        };
        let since_ms = *self.wanted_ms.get_or_insert(now_ms);
        (now_ms.saturating_sub(since_ms) >= self.patience_ms).then_some(manifest)
    }

    /// Returns the manifest that this writer would put now, if one is due. The manifest names another base, or claims
    /// the next snapshot for this writer. Other writers may put such a manifest too, so one of them may be first.
    fn wanted_manifest(&self, config: &Config, table: &Table, own_writer: u64, now_ms: u64) -> Option<Manifest> {
        if let Some(newer) = &self.manifest.newer {
            let is_forgotten = table.log().floor() >= newer.version;
            let is_too_long = self.retained.total().bytes > config.limits.journal_bytes_max;
            let base = Base::Snapshot(newer.clone());
            return (is_forgotten || is_too_long).then(|| Manifest { base, newer: None, ..self.manifest.clone() });
        }
        let is_free = !config.is_shared
            || self.manifest.taker.is_none_or(|taker| taker == own_writer)
            || now_ms.saturating_sub(self.put_ms) >= config.limits.claim_ms_max;
        (is_free && self.claimed.is_none() && self.is_snapshot_due(config)).then(|| Manifest {
            last_claimed: SnapshotId(self.manifest.last_claimed.0 + 1),
            taker: Some(own_writer),
            ..self.manifest.clone()
        })
    }

    fn is_snapshot_due(&self, config: &Config) -> bool {
        let last = self.manifest.newest().map_or(0, |info| info.bytes);
        // A snapshot begins at the latest when the entries fill half of `journal_bytes_max`. The other half is for the
        // entries that arrive before the snapshot is finished.
        let due = last.max(config.limits.snapshot_bytes_min).min(config.limits.journal_bytes_max / 2);
        self.snapshot_retry_ms.is_none() && self.since.bytes > due
    }

    /// Completes the task of upkeep whose commit is now durable. `took_us` is the duration of the commit, in
    /// microseconds. Returns whether the task has finished a snapshot.
    pub(super) fn on_durable(
        &mut self,
        config: &Config,
        chunk_bytes: usize,
        revision: u64,
        took_us: u64,
        now_ms: u64,
    ) -> bool {
        self.revision = self.revision.max(revision);
        match self.under_way.take() {
            None => return false,
            Some(Task::Manifest(manifest)) => return self.on_manifest(*manifest, now_ms),
            Some(Task::Piece) => {
                if let Some(taking) = &mut self.taking {
                    taking.on_durable(chunk_bytes);
                }
            }
            Some(Task::Drop) => {
                if let Some(drop) = self.drops.front_mut() {
                    drop.done = drop.below(config);
                    if drop.chunks.is_none_or(|chunks| drop.done == chunks) {
                        info!(snapshot = drop.snapshot.0, "chunks of a snapshot deleted");
                        self.drops.pop_front();
                    }
                }
            }
            Some(Task::Truncate(up_to)) => {
                let deleted_bytes = self.on_truncated(up_to);
                // A pause would let the journal grow without a limit while entries are appended faster than deleted.
                if std::mem::take(&mut self.appended_bytes) >= deleted_bytes {
                    return false;
                }
            }
        }
        let pause_ms = config.limits.upkeep_pause_ms(took_us);
        self.pause_ms = (pause_ms > 0).then(|| now_ms.saturating_add(pause_ms));
        false
    }

    /// Counts the entries up to `up_to` as deleted. Returns their size in bytes.
    fn on_truncated(&mut self, up_to: Position) -> u64 {
        let before = self.retained.total();
        self.retained.on_truncated(up_to);
        let Amount { entries, bytes } = self.retained.total();
        if let Base::Snapshot(base) = &self.manifest.base
            && self.retained.truncation(base.position).is_none()
        {
            info!(up_to = up_to.0, entries, bytes, "journal truncated");
        }
        before.bytes - bytes
    }

    /// Handles the manifest of a durable commit. Returns whether the manifest has finished a snapshot.
    fn on_manifest(&mut self, manifest: Manifest, now_ms: u64) -> bool {
        let old = std::mem::replace(&mut self.manifest, manifest);
        self.put_ms = now_ms;
        self.wanted_ms = None;
        if self.manifest.last_claimed != old.last_claimed {
            self.claimed = Some(self.manifest.last_claimed);
            // The previous taker can no longer finish its snapshot, so its chunks are not needed.
            if old.taker.is_some() && old.taker != self.manifest.taker {
                self.drops.push_back(Drop::new(old.last_claimed, None));
            }
            return false;
        }
        if self.manifest == old {
            return false;
        }
        if let Some(taking) = self.taking.take() {
            self.since = taking.since;
            let duration_ms = now_ms.saturating_sub(taking.begun_ms);
            self.duration_ms = Some(duration_ms);
            if let Some(info) = self.manifest.newest() {
                let (leases, bytes, chunks) = (info.records, info.bytes, info.chunks);
                info!(
                    snapshot = info.id.0,
                    version = info.version.0,
                    leases,
                    bytes,
                    chunks,
                    ms = duration_ms,
                    "snapshot finished"
                );
            }
            return true;
        }
        if let Some(info) = self.manifest.newest() {
            info!(snapshot = info.id.0, version = info.version.0, "the journal before the snapshot is not needed");
        }
        self.truncates = true;
        if let Base::Snapshot(old) = old.base {
            self.drops.push_back(Drop::new(old.id, Some(old.chunks)));
        }
        false
    }

    /// Handles a manifest that any writer has put, including this writer.
    ///
    /// # Errors
    /// [`EngineError`] if the manifest cannot be read.
    pub(super) fn on_replaced(
        &mut self,
        config: &Config,
        stored: &StoredManifest,
        now_ms: u64,
    ) -> Result<(), EngineError> {
        if stored.revision <= self.revision {
            return Ok(());
        }
        let manifest = Manifest::decode(&stored.bytes).map_err(|error| unreadable(&config.store, "manifest", error))?;
        self.revision = stored.revision;
        let old = std::mem::replace(&mut self.manifest, manifest);
        self.put_ms = now_ms;
        self.wanted_ms = None;
        if self.manifest.last_claimed != old.last_claimed || self.manifest.taker.is_none() {
            self.claimed = None;
            self.give_up();
        }
        let [newest, newest_before] =
            [&self.manifest, &old].map(|manifest| manifest.newest().map(|info| info.position));
        if let Some(position) = newest
            && newest != newest_before
        {
            self.since = self.retained.since(position);
            self.duration_ms = None;
        }
        if let Base::Snapshot(base) = &self.manifest.base
            && self.manifest.base != old.base
        {
            self.truncates = false;
            self.retained.forget(base.position);
        }
        Ok(())
    }

    /// Handles a commit that failed because another writer replaced the manifest first. The port delivers the other
    /// writer's manifest.
    pub(super) fn on_overtaken(&mut self, config: &Config, now_ms: u64) {
        self.under_way = None;
        self.retry_ms = Some(now_ms.saturating_add(config.limits.no_space_ms));
    }

    /// Handles a commit that the store refused. Returns whether the commit contained a task of upkeep.
    pub(super) fn on_refused(&mut self, config: &Config, now_ms: u64) -> bool {
        let Some(task) = self.under_way.take() else { return false };
        self.retry_ms = Some(now_ms.saturating_add(config.limits.no_space_ms));
        if matches!(task, Task::Piece) {
            self.snapshot_retry_ms = Some(now_ms.saturating_add(config.limits.snapshot_retry_ms));
            warn!("snapshot given up: the store has refused a commit");
            self.give_up();
        }
        true
    }

    fn give_up(&mut self) {
        if let Some(taking) = self.taking.take()
            && taking.pieces() > 0
        {
            self.drops.push_back(Drop::new(taking.id(), Some(taking.pieces())));
        }
    }

    /// Fills in the statistics of upkeep.
    pub(super) fn fill(&self, stats: &mut Stats, config: &Config, now_ms: u64) {
        let total = self.retained.total();
        (stats.journal_entries, stats.journal_bytes) = (total.entries, total.bytes);
        stats.journal_entries_since_snapshot = self.since.entries;
        stats.journal_bytes_since_snapshot = self.since.bytes;
        stats.snapshot = self.manifest.newest().map(|info| {
            let age_us = u64::try_from(config.wall_us(now_ms).saturating_sub(info.begun_us)).unwrap_or(0);
            let (bytes, leases) = (info.bytes, info.records);
            SnapshotStats { age_ms: age_us / 1000, duration_ms: self.duration_ms, bytes, leases }
        });
    }
}

fn beside(write: Write) -> Work {
    Work::Beside(Commit { writes: vec![write], ..Commit::default() })
}
