//! A model of etcd and of the replicas' client for it. It puts all transactions in one order, and a watch delivers them
//! to every replica.
//!
//! ```text
//!   command ──► on its way ──► effect ──► on its way ──► answer
//!                  late, twice     in the order of revisions     late
//!                                    └──► watch ──► each replica, in order; late, broken, compacted, with a loss
//! ```
//!
//! The real client (the port) repeats a request that got no response. So in the model a request may take effect twice.
//! The second effect of an append changes nothing, because its key exists.
//!
//! The replicas' common store in etcd has entries (batches of changes), snapshots in chunks, and one manifest, which
//! names the valid snapshots.

use crate::bugs::Bug;
use crate::kernel::{Event as SimEvent, MS, SECOND, Sim};
use coordination_apiserver::engine::{EngineError, Entry, Position, SnapshotId, Write};
use coordination_apiserver::journal::{Command, Commit, End, Event, Piece, StoredManifest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use twox_hash::XxHash3_64;

/// An event in etcd, or between etcd and a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdEvent {
    /// The request with this number takes effect. The `bool` tells whether the model sends the response.
    Effect(u64, bool),
    /// The response to the request with this number arrives at the replica.
    Answer(u64),
    /// The watch of a replica delivers all puts whose index in `puts` is below a limit. The values are the index of the
    /// replica, the number of its start, and the limit.
    Watch(usize, u64, usize),
    /// A port compares etcd's entries with those that its watch delivered. The values are the index of the replica, and
    /// the number of its start.
    Look(usize, u64),
    /// A port learns whether etcd is reachable. The values are the index of the replica, the number of its start, and
    /// whether etcd is reachable.
    Reachable(usize, u64, bool),
    /// A replica detects that etcd was restored from a backup. The values are the index of the replica, and the number
    /// of its start.
    WentBack(usize, u64),
}

/// The model of etcd, with its connections to all replicas.
#[derive(Debug, Default)]
pub struct Etcd {
    bug: Option<Bug>,
    revision: u64,
    stored: Stored,
    /// All puts of entries and manifests, in the order of their revisions.
    puts: Vec<Put>,
    /// Number of entries ever appended.
    appended: u64,
    /// Revision of the last compaction: a watch cannot start at this revision or below.
    compacted: u64,
    requests: BTreeMap<u64, Request>,
    answers: BTreeMap<u64, (usize, u64, Event)>,
    last_request: u64,
    followers: BTreeMap<usize, Follower>,
    /// End of the period in which no request takes effect, in microseconds since the start of the run.
    away_until_us: u64,
    /// End of the period in which etcd has no space, in microseconds since the start of the run.
    full_until_us: u64,
    /// The last backup, to which a restore can return.
    backup: Option<Backup>,
    /// The states before each of the last changes, if the run has restores. A restore to one of them loses only the
    /// last changes, as a power failure of all members does if their disks have not synced these changes.
    recent: VecDeque<Backup>,
    /// Entries that [`Bug::SequenceReused`] renamed, each with the payload that its writer sent.
    renamed: BTreeMap<(usize, u64, Vec<u8>), Vec<u8>>,
    /// Entries that [`Bug::AnswerBeforeQuorum`] has lost. Each is delivered only to the replica that wrote it.
    lost: Vec<(usize, Put)>,
}

/// Maximum number of states in [`Etcd::recent`].
const RECENT_MAX: usize = 8;

/// A backup of etcd: all keys at one revision.
#[derive(Debug)]
struct Backup {
    revision: u64,
    stored: Stored,
    appended: u64,
    /// Number of puts before the backup.
    puts: usize,
}

/// The keys in etcd that belong to the store.
#[derive(Clone, Debug, Default)]
struct Stored {
    /// Payload of each entry, by its position.
    entries: BTreeMap<u64, Vec<u8>>,
    /// Position of each entry, by the entry's writer and sequence number.
    keys: BTreeMap<(u64, u64), u64>,
    /// Position of the last entry; 0 before the first entry.
    head: u64,
    manifest: Option<StoredManifest>,
    /// The chunks of snapshots, each with the revision at which it was put.
    chunks: BTreeMap<(SnapshotId, u32), (Piece, u64)>,
}

#[derive(Clone, Debug)]
enum Put {
    Entry(u64, Vec<u8>),
    Manifest(StoredManifest),
}

impl Put {
    fn revision(&self) -> u64 {
        match self {
            Self::Entry(position, _) => *position,
            Self::Manifest(manifest) => manifest.revision,
        }
    }
}

#[derive(Debug)]
struct Request {
    node: usize,
    epoch: u64,
    /// The command of the replica. A commit may take effect more than once, since the port repeats a commit that got no
    /// response.
    command: Command,
    /// What the port knew of etcd's content when it sent the request.
    known: Known,
    /// Position of the last entry that was delivered to the port before it sent the request.
    reached: Position,
    /// Revision at which the request last changed etcd; 0 if it has changed nothing yet.
    effect: u64,
}

/// What a port knows of etcd's content. A commit of the port takes effect only if etcd still has the part of this
/// content on which the commit builds.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Name and position of the last entry delivered to the port. `None` if there is none, or the port truncated it.
    last: Option<((u64, u64), u64)>,
    /// Revision of the manifest that the port has seen last.
    manifest: u64,
    /// Last chunk that the port has put since its last manifest, with the revision of the put.
    chunk: Option<((SnapshotId, u32), u64)>,
}

impl Stored {
    /// Returns the revision of the manifest; 0 if there is no manifest.
    fn manifest_revision(&self) -> u64 {
        self.manifest.as_ref().map_or(0, |manifest| manifest.revision)
    }
}

impl Known {
    /// Records that a commit of the port took effect at `revision`.
    fn learn(&mut self, commit: &Commit, revision: u64) {
        for write in &commit.writes {
            match write {
                Write::Truncate(up_to) => self.last = self.last.filter(|(_, position)| *position > up_to.0),
                Write::DropChunks { snapshot, .. } => self.chunk = self.chunk.filter(|((of, _), _)| of != snapshot),
                Write::Append(_) | Write::PutChunk { .. } | Write::PutManifest(_) => {}
            }
        }
        if let Some(piece) = &commit.piece {
            self.chunk = Some(((piece.snapshot, piece.index), revision));
        } else if commit.manifest.is_some() {
            self.chunk = None;
            self.manifest = self.manifest.max(revision);
        }
    }
}

/// The port of one start of a replica, and its watch.
#[derive(Debug, Default)]
struct Follower {
    epoch: u64,
    /// Content of etcd at the time when this start opened the store.
    opened: Stored,
    /// Index of the next put that the watch delivers. `None` before this start has opened the store, or after the watch
    /// has failed.
    next: Option<usize>,
    /// Whether this start has read all entries, so that the watch may deliver later ones.
    follows: bool,
    /// Time at which the response to the port's last read arrives, in microseconds since the start of the run. A port's
    /// reads are answered one after the other.
    read_us: u64,
    /// Time at which the watch delivers the last put so far, in microseconds since the start of the run.
    watch_us: u64,
    /// End of the period in which the watch is broken, in microseconds since the start of the run.
    broken_until_us: u64,
    /// End of the period in which no response arrives at the replica, in microseconds since the start of the run.
    deaf_until_us: u64,
    /// End of the period in which no request of the replica arrives at etcd, in microseconds since the start of the
    /// run.
    mute_until_us: u64,
    /// Whether the watch loses the next entry.
    loses_next: bool,
    /// Whether the watch has lost an entry that the replica has not noticed yet.
    misses: bool,
    /// Manifests of other replicas that the port holds back while its own commit of a manifest is in flight. `None` if
    /// no such commit is in flight.
    held: Option<VecDeque<StoredManifest>>,
    /// Position of the last delivered entry, and the number of all entries up to it.
    delivered: End,
    known: Known,
    /// Positions of entries that [`Bug::OwnEntryEarly`] delivered early.
    early: BTreeSet<u64>,
}

/// Time after which an entry that etcd has appended, but that the watch has not delivered, counts as lost, in
/// microseconds.
const LOST_AFTER_US: u64 = 5 * SECOND;
/// Time after which a port reports that etcd is unreachable, in microseconds.
const UNREACHABLE_AFTER_US: u64 = 2 * SECOND;

impl Etcd {
    /// Creates a model of an empty etcd. It has the deliberate bug `bug`, if that is a bug of etcd.
    #[must_use]
    pub fn new(bug: Option<Bug>) -> Self {
        Self { bug, ..Self::default() }
    }

    /// Connects a new start of a replica. Responses to earlier starts are lost.
    pub fn start(&mut self, node: usize, epoch: u64) {
        self.followers.insert(node, Follower { epoch, ..Follower::default() });
    }

    /// Accepts a command of a replica.
    pub fn send(&mut self, sim: &Sim, node: usize, epoch: u64, mut command: Command) {
        self.last_request += 1;
        if let (Some(Bug::SequenceReused), Command::Commit(commit)) = (self.bug, &mut command)
            && let Some(payload) = &mut commit.append
        {
            let written = renamed(payload, node as u64 + 1, name_of(payload).1);
            self.renamed.insert((node, epoch, written.clone()), std::mem::replace(payload, written));
        }
        let is_commit = matches!(command, Command::Commit(_));
        if let (Command::Commit(commit), Some(follower)) = (&command, self.followers.get_mut(&node))
            && commit.manifest.is_some()
        {
            follower.held = Some(VecDeque::new());
        }
        let id = self.last_request;
        let is_read = matches!(command, Command::Open | Command::ReadChunk { .. } | Command::ReadEntries);
        let follower = self.followers.get(&node);
        let (known, reached) = follower.map(|of| (of.known, of.delivered.position)).unwrap_or_default();
        self.requests.insert(id, Request { node, epoch, command, known, reached, effect: 0 });
        let mut delay_us = self.way_us(sim, node);
        if let Some(follower) = self.followers.get_mut(&node).filter(|_| is_read) {
            follower.read_us = follower.read_us.max(sim.now_us() + delay_us) + 1;
            delay_us = follower.read_us - sim.now_us();
        }
        // Sometimes a commit takes effect without a response, and the port repeats it. The first attempt may even
        // arrive after the repeated one.
        if is_commit && sim.random(|random| random.u8(..8)) == 0 {
            let late_us = sim.random(|random| random.u64(..10 * SECOND));
            sim.schedule(delay_us + late_us, SimEvent::Etcd(EtcdEvent::Effect(id, false)));
            let again_us = delay_us + sim.random(|random| random.u64(SECOND..3 * SECOND));
            sim.schedule(again_us, SimEvent::Etcd(EtcdEvent::Effect(id, true)));
        } else {
            sim.schedule(delay_us, SimEvent::Etcd(EtcdEvent::Effect(id, true)));
        }
    }

    fn way_us(&self, sim: &Sim, node: usize) -> u64 {
        let until_us = self.followers.get(&node).map_or(0, |follower| follower.mute_until_us);
        until_us.saturating_sub(sim.now_us()) + sim.random(|random| random.u64(100..3 * MS))
    }

    /// Applies an event. Returns the journal events that it causes: for each, the index of the replica, the number of
    /// its start, and the event.
    pub fn on_event(&mut self, sim: &Sim, what: EtcdEvent) -> Vec<(usize, u64, Event)> {
        match what {
            EtcdEvent::Effect(id, is_answered) => {
                self.effect(sim, id, is_answered);
                Vec::new()
            }
            EtcdEvent::Answer(id) => self.answer(id),
            EtcdEvent::Watch(node, epoch, up_to) => self.bring(sim, node, epoch, up_to),
            EtcdEvent::Look(node, epoch) => self.look(sim, node, epoch),
            EtcdEvent::Reachable(node, epoch, is_reachable) => vec![(node, epoch, Event::Reachable(is_reachable))],
            EtcdEvent::WentBack(node, epoch) => vec![(node, epoch, lost("revisions went back"))],
        }
    }

    fn effect(&mut self, sim: &Sim, id: u64, is_answered: bool) {
        if sim.now_us() < self.away_until_us {
            let in_us = self.away_until_us - sim.now_us() + sim.random(|random| random.u64(..50 * MS));
            return sim.schedule(in_us, SimEvent::Etcd(EtcdEvent::Effect(id, is_answered)));
        }
        let Some(mut request) = self.requests.remove(&id) else { return };
        let (node, epoch) = (request.node, request.epoch);
        let (before, revision_before) = (self.puts.len(), self.revision);
        let answer = match &request.command {
            Command::Commit(commit) => self.commit(sim, &request, commit),
            Command::FindEnd => Event::End(End { position: Position(self.stored.head), entries: self.appended }),
            read @ (Command::Open | Command::ReadChunk { .. } | Command::ReadEntries) => self.read(node, epoch, read),
        };
        // A repeated request may change nothing. Then `effect` stays the revision of its first effect.
        if self.revision > revision_before {
            request.effect = self.revision;
        }
        self.requests.insert(id, request);
        if self.puts.len() > before {
            self.watch(sim);
        }
        if is_answered {
            let is_read = matches!(answer, Event::Opened { .. } | Event::Piece(_) | Event::Entries(_));
            let deaf_until_us = self.followers.get(&node).map_or(0, |follower| follower.deaf_until_us);
            let mut in_us = deaf_until_us.saturating_sub(sim.now_us()) + sim.random(|random| random.u64(100..3 * MS));
            if let Some(follower) = self.followers.get_mut(&node).filter(|_| is_read) {
                follower.read_us = follower.read_us.max(sim.now_us() + in_us) + 1;
                in_us = follower.read_us - sim.now_us();
            }
            self.answers.insert(id, (node, epoch, answer));
            sim.schedule(in_us, SimEvent::Etcd(EtcdEvent::Answer(id)));
        }
    }

    fn read(&mut self, node: usize, epoch: u64, command: &Command) -> Event {
        let Some(follower) = self.followers.get_mut(&node).filter(|follower| follower.epoch == epoch) else {
            return Event::Overtaken;
        };
        match command {
            Command::ReadChunk { snapshot, index } => match follower.opened.chunks.get(&(*snapshot, *index)) {
                Some((piece, _)) => Event::Piece(piece.clone()),
                None => Event::Failed(EngineError::Damaged {
                    place: format!("snapshot {} chunk {index}", snapshot.0),
                    what: "the chunk is missing".to_owned(),
                }),
            },
            Command::ReadEntries => {
                let mut entries = std::mem::take(&mut follower.opened.entries);
                if self.bug == Some(Bug::FirstEntrySkipped) {
                    entries.pop_first();
                }
                if let Some((position, payload)) = entries.last_key_value() {
                    follower.known.last = Some((name_of(payload), *position));
                }
                let entries = entries.into_iter();
                Event::Entries(entries.map(|(at, payload)| Entry { position: Position(at), payload }).collect())
            }
            _ => {
                follower.opened = self.stored.clone();
                follower.next = Some(self.puts.len());
                let manifest = self.stored.manifest_revision();
                follower.known = Known { manifest, ..Known::default() };
                follower.delivered = End { position: Position(self.stored.head), entries: self.appended };
                let mut snapshots: Vec<_> = self.stored.chunks.keys().map(|(id, _)| *id).collect();
                snapshots.dedup();
                let has_entries = !self.stored.entries.is_empty();
                Event::Opened { manifest: self.stored.manifest.clone(), snapshots, has_entries }
            }
        }
    }

    fn commit(&mut self, sim: &Sim, request: &Request, commit: &Commit) -> Event {
        let Request { node, known, reached, .. } = *request;
        let name = commit.append.as_deref().map(name_of);
        if let Some(manifest) = &commit.manifest {
            let present = self.stored.manifest.as_ref();
            let is_ours = present.is_some_and(|present| present.bytes == manifest.bytes);
            let is_replaced = self.stored.manifest_revision() != manifest.revision;
            if is_replaced && self.bug != Some(Bug::ManifestNotCompared) {
                if is_ours {
                    return committed(self.stored.manifest_revision(), 0);
                }
                sim.count("manifests overtaken");
                return Event::Overtaken;
            }
        }
        let chunk_bytes = commit.piece.as_ref().map_or(0, |piece| piece.bytes.len());
        if name.is_some_and(|name| self.stored.keys.contains_key(&name)) {
            sim.count("appends repeated");
            if let (Some(Bug::DuplicateApplied), Some(payload)) = (self.bug, &commit.append) {
                self.revision += 1;
                self.put(self.revision, renamed(payload, self.revision, 1));
            }
            return committed(0, chunk_bytes);
        }
        let manifest = self.stored.manifest_revision();
        let has_last = match known.last {
            Some((name, position)) => self.stored.keys.get(&name) == Some(&position),
            None => known.manifest == manifest && reached.0 <= self.stored.head,
        } && (commit.writes.is_empty() || known.manifest <= manifest);
        // If the port put the chunk twice, the chunk may have a higher revision than `put`.
        let has_chunk =
            known.chunk.is_none_or(|(chunk, put)| self.stored.chunks.get(&chunk).is_some_and(|(_, at)| *at >= put));
        let continues = |piece: &Piece| known.chunk.is_some_and(|((snapshot, _), _)| snapshot == piece.snapshot);
        let needs_chunk = commit.manifest.is_some() || commit.piece.as_ref().is_some_and(continues);
        if !has_last || needs_chunk && !has_chunk {
            sim.count("commits after a loss of entries");
            return lost("a delivered entry is gone");
        }
        let puts = commit.append.is_some() || commit.manifest.is_some() || commit.piece.is_some();
        if puts && sim.now_us() < self.full_until_us {
            let cause = io::Error::other("mvcc: database space exceeded");
            return Event::Failed(EngineError::NoSpace { store: "etcd".to_owned(), cause });
        }
        if sim.swarm.faults.restores > 0 {
            let present = self.present();
            self.recent.push_back(present);
            if self.recent.len() > RECENT_MAX {
                self.recent.pop_front();
            }
        }
        self.revision += 1;
        let mut revision = 0;
        if let Some(piece) = &commit.piece {
            self.stored.chunks.insert((piece.snapshot, piece.index), (piece.clone(), self.revision));
        }
        for write in &commit.writes {
            self.write(write);
        }
        if let Some(manifest) = &commit.manifest {
            revision = self.revision;
            let manifest = StoredManifest { bytes: manifest.bytes.clone(), revision };
            self.stored.manifest = Some(manifest.clone());
            self.puts.push(Put::Manifest(manifest));
        }
        if let (Some(payload), Some(name)) = (&commit.append, name) {
            if self.bug == Some(Bug::AnswerBeforeQuorum) && sim.random(|random| random.u8(..20)) == 0 {
                self.lost.push((node, Put::Entry(self.revision, payload.clone())));
                return committed(revision, chunk_bytes);
            }
            self.stored.keys.insert(name, self.revision);
            self.put(self.revision, payload.clone());
        }
        committed(revision, chunk_bytes)
    }

    fn put(&mut self, position: u64, payload: Vec<u8>) {
        self.appended += 1;
        self.stored.head = position;
        self.stored.entries.insert(position, payload.clone());
        self.puts.push(Put::Entry(position, payload));
    }

    fn write(&mut self, write: &Write) {
        match write {
            Write::Truncate(up_to) => {
                let up_to = if self.bug == Some(Bug::TruncationBeyondBase) { self.revision } else { up_to.0 };
                self.stored.entries.retain(|position, _| *position > up_to);
                self.stored.keys.retain(|_, position| *position > up_to);
            }
            Write::DropChunks { snapshot, below } => {
                self.stored.chunks.retain(|(id, index), _| id != snapshot || index >= below);
            }
            Write::Append(_) | Write::PutChunk { .. } | Write::PutManifest(_) => {}
        }
    }

    /// Schedules the delivery of the new puts by every watch.
    fn watch(&mut self, sim: &Sim) {
        let up_to = self.puts.len();
        for (node, follower) in &mut self.followers {
            if follower.next.is_some() {
                let lag_us = sim.random(|random| match random.u8(..100) {
                    0 => random.u64(..2 * SECOND),
                    1..5 => random.u64(..100 * MS),
                    _ => random.u64(200..4 * MS),
                });
                follower.watch_us = follower.watch_us.max(sim.now_us() + lag_us);
                let event = EtcdEvent::Watch(*node, follower.epoch, up_to);
                sim.schedule_at(follower.watch_us, SimEvent::Etcd(event));
            }
        }
    }

    fn bring(&mut self, sim: &Sim, node: usize, epoch: u64, up_to: usize) -> Vec<(usize, u64, Event)> {
        let Self { followers, puts, compacted, bug, renamed, .. } = self;
        let Some(follower) = followers.get_mut(&node).filter(|follower| follower.epoch == epoch) else {
            return Vec::new();
        };
        // A restore may have removed puts since the event was scheduled.
        let up_to = up_to.min(puts.len());
        let Some(next) = follower.next.filter(|next| *next < up_to) else { return Vec::new() };
        if sim.now_us() < follower.broken_until_us || !follower.follows {
            let at_us = follower.broken_until_us.max(sim.now_us() + 10 * MS);
            sim.schedule_at(at_us, SimEvent::Etcd(EtcdEvent::Watch(node, epoch, up_to)));
            return Vec::new();
        }
        // A watch that was broken resumes at its next put. If a compaction has removed the revision of this put, the
        // watch fails.
        if follower.broken_until_us > 0 && puts[next].revision() <= *compacted {
            sim.count("watches compacted");
            follower.next = None;
            return vec![(node, epoch, lost("etcd was compacted during the watch"))];
        }
        let mut heard = Vec::new();
        for put in &puts[next..up_to] {
            match put {
                Put::Manifest(manifest) => {
                    follower.known.manifest = follower.known.manifest.max(manifest.revision);
                    match &mut follower.held {
                        Some(held) => held.push_back(manifest.clone()),
                        None => heard.push((node, epoch, Event::Replaced(manifest.clone()))),
                    }
                }
                // The watch has lost an entry before this one. The port counts entries and compares its count with
                // etcd's, so it notices the gap.
                Put::Entry(..) if follower.misses => {
                    sim.count("lost events seen by the next");
                    follower.next = None;
                    heard.push((node, epoch, lost("the watch has skipped an entry")));
                    return heard;
                }
                Put::Entry(position, _) if follower.early.remove(position) => follower.delivered.entries += 1,
                Put::Entry(..) if std::mem::take(&mut follower.loses_next) => {
                    sim.count("watch events lost");
                    if *bug == Some(Bug::GapNotNoticed) {
                        continue;
                    }
                    follower.misses = true;
                    sim.schedule(LOST_AFTER_US + SECOND, SimEvent::Etcd(EtcdEvent::Look(node, epoch)));
                }
                Put::Entry(position, payload) => {
                    follower.delivered.position = Position(*position);
                    follower.delivered.entries += 1;
                    follower.known.last = Some((name_of(payload), *position));
                    let payload = renamed.remove(&(node, epoch, payload.clone())).unwrap_or_else(|| payload.clone());
                    let entry = Entry { position: Position(*position), payload: payload.clone() };
                    heard.push((node, epoch, Event::Delivered(vec![entry])));
                    if *bug == Some(Bug::EntryDeliveredTwice) && sim.random(|random| random.u8(..20)) == 0 {
                        let again = Entry { position: Position(*position + 1), payload: payload.clone() };
                        heard.push((node, epoch, Event::Delivered(vec![again])));
                    }
                }
            }
        }
        follower.next = Some(up_to);
        heard
    }

    /// Compares the number of entries in etcd with the number that the watch has delivered, as the port does.
    fn look(&mut self, sim: &Sim, node: usize, epoch: u64) -> Vec<(usize, u64, Event)> {
        let Some(follower) = self.followers.get_mut(&node).filter(|follower| follower.epoch == epoch) else {
            return Vec::new();
        };
        if follower.delivered.entries == self.appended || follower.next.is_none() {
            return Vec::new();
        }
        sim.count("lost events seen by the port");
        follower.next = None;
        vec![(node, epoch, lost("the watch has not delivered an entry"))]
    }

    fn answer(&mut self, id: u64) -> Vec<(usize, u64, Event)> {
        let Some((node, epoch, mut answer)) = self.answers.remove(&id) else { return Vec::new() };
        let follower = self.followers.get_mut(&node).filter(|follower| follower.epoch == epoch);
        let Some(follower) = follower else { return Vec::new() };
        if let (Event::End(end), Some(Bug::BarrierSkipped)) = (&mut answer, self.bug) {
            *end = follower.delivered;
        }
        let commit = match self.requests.get(&id) {
            Some(Request { command: Command::Commit(commit), effect, .. }) => Some((commit, *effect)),
            _ => None,
        };
        let revision = match &answer {
            Event::Committed { revision, .. } => *revision,
            _ => 0,
        };
        if let (Event::Committed { .. }, Some((commit, effect))) = (&answer, commit) {
            follower.known.learn(commit, effect);
        }
        follower.follows |= matches!(&answer, Event::Entries(entries) if entries.is_empty());
        let mut heard = vec![(node, epoch, answer)];
        if let (Some(Bug::OwnEntryEarly), Some((commit, _))) = (self.bug, commit)
            && let Some(payload) = &commit.append
            && let Some(position) = self.stored.keys.get(&name_of(payload))
            && follower.delivered.position.0 < *position
        {
            follower.early.insert(*position);
            let entry = Entry { position: Position(*position), payload: payload.clone() };
            heard.push((node, epoch, Event::Delivered(vec![entry])));
        }
        for (_, put) in self.lost.extract_if(.., |(writer, _)| *writer == node) {
            if let Put::Entry(position, payload) = put {
                heard.push((node, epoch, Event::Delivered(vec![Entry { position: Position(position), payload }])));
            }
        }
        if commit.is_some_and(|(commit, _)| commit.manifest.is_some()) {
            let held = follower.held.take().unwrap_or_default();
            let later = held.into_iter().filter(|manifest| manifest.revision > revision);
            heard.extend(later.map(|manifest| (node, epoch, Event::Replaced(manifest))));
        }
        heard
    }

    /// Prevents all requests from taking effect for `for_us` microseconds, as if etcd had no leader or no quorum.
    pub fn go_away(&mut self, sim: &Sim, for_us: u64) {
        self.away_until_us = self.away_until_us.max(sim.now_us() + for_us);
        if for_us > UNREACHABLE_AFTER_US {
            for (node, follower) in &self.followers {
                for (in_us, is_reachable) in [(UNREACHABLE_AFTER_US, false), (for_us + 10 * MS, true)] {
                    let event = EtcdEvent::Reachable(*node, follower.epoch, is_reachable);
                    sim.schedule(in_us, SimEvent::Etcd(event));
                }
            }
        }
    }

    /// Makes etcd full for `for_us` microseconds.
    pub fn fill(&mut self, sim: &Sim, for_us: u64) {
        self.full_until_us = self.full_until_us.max(sim.now_us() + for_us);
    }

    /// Compacts etcd: removes all old revisions.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
    }

    /// Makes a backup, to which the next restore can return. It replaces the backup before.
    pub fn back_up(&mut self) {
        self.backup = Some(self.present());
    }

    fn present(&self) -> Backup {
        let Self { revision, appended, .. } = *self;
        Backup { revision, stored: self.stored.clone(), appended, puts: self.puts.len() }
    }

    /// Drops all requests and responses that are on their way.
    pub fn lose_requests(&mut self) {
        self.requests.clear();
        self.answers.clear();
    }

    /// Restores the backup or, in up to half of the cases, one of the states before the last changes. Each running
    /// replica detects this within a second, and may send writes until then.
    pub fn restore(&mut self, sim: &Sim) {
        let chosen = sim.random(|random| random.usize(..2 * RECENT_MAX));
        let (recent, backup) = (self.recent.drain(..).nth(chosen), self.backup.take());
        let Some(backup) = recent.or(backup) else { return };
        sim.count("backups restored");
        self.revision = backup.revision;
        self.stored = backup.stored;
        self.appended = backup.appended;
        self.puts.truncate(backup.puts);
        self.compacted = self.compacted.min(backup.revision);
        for (node, follower) in &mut self.followers {
            follower.next = None;
            let in_us = sim.random(|random| random.u64(..SECOND));
            sim.schedule(in_us, SimEvent::Etcd(EtcdEvent::WentBack(*node, follower.epoch)));
        }
    }

    /// Breaks the watch of a replica for `for_us` microseconds.
    pub fn break_watch(&mut self, sim: &Sim, node: usize, for_us: u64) {
        if let Some(follower) = self.followers.get_mut(&node) {
            follower.broken_until_us = follower.broken_until_us.max(sim.now_us() + for_us);
        }
    }

    /// Makes the watch of a replica lose the next entry.
    pub fn lose_next(&mut self, node: usize) {
        if let Some(follower) = self.followers.get_mut(&node) {
            follower.loses_next = true;
        }
    }

    /// For `for_us` microseconds, holds up a replica's requests to etcd (`is_mute`) or the responses to the replica.
    pub fn part(&mut self, sim: &Sim, node: usize, is_mute: bool, for_us: u64) {
        if let Some(follower) = self.followers.get_mut(&node) {
            let until_us = if is_mute { &mut follower.mute_until_us } else { &mut follower.deaf_until_us };
            *until_us = (*until_us).max(sim.now_us() + for_us);
        }
    }

    /// Ends all faults.
    pub fn heal(&mut self, sim: &Sim) {
        self.full_until_us = 0;
        self.away_until_us = self.away_until_us.min(sim.now_us());
        for follower in self.followers.values_mut() {
            (follower.deaf_until_us, follower.mute_until_us, follower.loses_next) = (0, 0, false);
            follower.broken_until_us = follower.broken_until_us.min(sim.now_us());
        }
    }
}

fn lost(what: &str) -> Event {
    Event::Failed(EngineError::Lost { store: "etcd".to_owned(), what: what.to_owned() })
}

fn committed(revision: u64, chunk_bytes: usize) -> Event {
    Event::Committed { entries: Vec::new(), revision, chunk_bytes, took_us: 0 }
}

/// Returns a copy of an entry that has another writer and sequence number as its name, with a correct checksum.
fn renamed(payload: &[u8], writer: u64, sequence: u64) -> Vec<u8> {
    let mut entry = payload[..payload.len() - 8].to_vec();
    entry[2..10].copy_from_slice(&writer.to_le_bytes());
    entry[10..18].copy_from_slice(&sequence.to_le_bytes());
    let checksum = XxHash3_64::oneshot(&entry);
    entry.extend_from_slice(&checksum.to_le_bytes());
    entry
}

/// Returns the name of an entry: its writer and its sequence number, which are at fixed offsets.
fn name_of(payload: &[u8]) -> (u64, u64) {
    let number = |at: usize| payload[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (number(2), number(10))
}
