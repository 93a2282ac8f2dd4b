//! Inspects a store for an operator. The store is in etcd, where replicas may use it meanwhile, or in a file to which
//! no server writes. The inspection reads as much of the store as it can.
//!
//! The inspection never writes. It records damage as a complaint and continues to read. After damage, it is unknown
//! which changes were applied. So every later change counts as applied. The header of each later entry has the version
//! of its writer's table, and the inspection continues with this version.

mod known;
mod line;

use crate::engine::{Engine, EngineError, Entry, Position};
use crate::journal::applied::{Applied, EntryName, Rejections, Writers};
use crate::journal::chunk;
use crate::journal::entry::{EntryReader, Header, StoredChange};
use crate::journal::manifest::{Base, Manifest, SnapshotInfo};
use crate::journal::port::End;
use crate::journal::record::RecordReader;
use crate::journal::replay::{Expected, judge, name};
use crate::journal::seal::{self, Kind};
use crate::resource::ResourceVersion;
use known::Known;
use line::{EntryLine, change_line, damage_line};
use std::collections::VecDeque;
use std::fmt::{Display, Write as _};

/// The result of an inspection: a summary of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of the manifest's format; `None` if the manifest cannot be read.
    pub format: Option<u32>,
    /// Snapshots that the manifest names. The base snapshot, from which a server loads its table, comes first.
    pub snapshots: Vec<SnapshotSummary>,
    /// Number of snapshots in the store that the manifest does not name.
    pub stray_snapshots: usize,
    /// Version of the table in the base, from which a server loads its table; 0 if the manifest cannot be read. The
    /// store still contains all changes after this version.
    pub first_version: u64,
    /// Version of the table after the last change.
    pub last_version: u64,
    /// Number of Leases in the table after the last change.
    pub leases: usize,
    /// Number of entries in the store, including the entries that the base already contains.
    pub entries: u64,
    /// Size of the entries, in bytes.
    pub entry_bytes: u64,
    /// Position of the first entry.
    pub first_position: Option<u64>,
    /// Position of the last entry.
    pub last_position: Option<u64>,
    /// Number of applied changes in the entries after the base.
    pub applied: u64,
    /// Number of rejected changes in the entries after the base.
    pub rejected: u64,
    /// Descriptions of the damage in the store, each with its place. Without damage, a server would load the Leases at
    /// `last_version`.
    pub complaints: Vec<String>,
}

impl Summary {
    /// Formats the summary for an operator. `store` is the name of the store.
    #[must_use]
    pub fn report(&self, store: &dyn Display) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: &dyn Display| _ = writeln!(text, "{name:<20} {value}");
        row("store", store);
        row("format", &self.format.map_or_else(|| "unknown".to_owned(), |format| format.to_string()));
        row("Leases", &self.leases);
        row("resourceVersion", &self.last_version);
        row("watch window from", &self.first_version);
        row("journal entries", &self.entries);
        row("journal bytes", &self.entry_bytes);
        row("changes applied", &self.applied);
        row("changes rejected", &self.rejected);
        for snapshot in &self.snapshots {
            let SnapshotSummary { id, version, leases, chunks, bytes, .. } = snapshot;
            row("snapshot", &format_args!("{id}: {leases} Leases at {version}, {chunks} chunks, {bytes} bytes"));
        }
        if self.stray_snapshots > 0 {
            row("unfinished snapshots", &self.stray_snapshots);
        }
        row("complaints", &self.complaints.len());
        text
    }
}

/// A snapshot that the manifest names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSummary {
    /// Number of the snapshot.
    pub id: u64,
    /// Version of the table in the snapshot.
    pub version: u64,
    /// Position of the last entry in the snapshot.
    pub position: u64,
    /// Number of Leases in the snapshot.
    pub leases: u64,
    /// Number of chunks of the snapshot.
    pub chunks: u32,
    /// Size of the snapshot's chunks, in bytes.
    pub bytes: u64,
    /// Wall-clock time when the snapshot was begun, in microseconds.
    pub begun_us: i64,
}

/// A store under inspection: an iterator over its changes as lines of JSON, oldest first.
#[derive(Debug)]
pub struct Inspection<'e> {
    engine: &'e mut dyn Engine,
    /// Whether the store has one or several writers. [`judge`] needs this value to find damage.
    expected: Expected,
    summary: Summary,
    known: Known,
    /// Progress of the inspection in the journal. After damage, the progress is no longer kept up to date.
    applied: Applied,
    version: ResourceVersion,
    queue: VecDeque<Entry>,
    reading: Option<Reading>,
    /// Position of the last entry that was read.
    read: Position,
    /// Whether all entries were read.
    has_ended: bool,
}

/// An entry whose changes are being read.
#[derive(Debug)]
struct Reading {
    line: EntryLine,
    reader: EntryReader,
    /// Index of the next change.
    index: u64,
    rejections: Rejections,
}

/// Approximate size of the entries that one read returns, in bytes.
const READ_BYTES_MAX: usize = 1024 * 1024;

impl<'e> Inspection<'e> {
    /// Reads the manifest and the base of the store. `is_shared` says whether the store may have several writers.
    #[must_use]
    pub fn begin(engine: &'e mut dyn Engine, is_shared: bool) -> Self {
        let mut inspection = Self {
            engine,
            expected: Expected::stored(is_shared),
            summary: Summary::default(),
            known: Known::default(),
            applied: Applied::default(),
            version: ResourceVersion::default(),
            queue: VecDeque::new(),
            reading: None,
            read: Position::default(),
            has_ended: false,
        };
        inspection.read_manifest();
        inspection.summary.first_version = inspection.version.0;
        inspection
    }

    /// Reads the remaining changes without formatting them, and returns the summary.
    #[must_use]
    pub fn finish(mut self) -> Summary {
        while self.next_change(false).is_some() {}
        self.summary.last_version = self.version.0;
        self.summary.leases = self.known.len();
        self.summary
    }

    /// Whether all values that were read are intact.
    fn is_exact(&self) -> bool {
        self.summary.complaints.is_empty()
    }

    fn complain(&mut self, place: &str, what: &dyn Display) {
        self.summary.complaints.push(format!("{place}: {what}"));
    }

    fn read_manifest(&mut self) {
        let manifest = match self.engine.manifest() {
            Ok(Some(sealed)) => {
                self.summary.format = seal::open(Kind::Manifest, &sealed).ok().map(|opened| opened.format.into());
                Manifest::decode(&sealed).map_err(|error| error.to_string())
            }
            Ok(None) => Err("it is not there".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(error) => return self.complain("manifest", &error),
        };
        self.summary.snapshots = manifest.snapshots().map(summary_of).collect();
        match self.engine.snapshots() {
            Ok(stored) => {
                let is_stray = |id: &&_| manifest.snapshots().all(|info| info.id != **id);
                self.summary.stray_snapshots = stored.iter().filter(is_stray).count();
            }
            Err(error) => self.complain("snapshots", &error),
        }
        if let Some(newer) = &manifest.newer {
            // The newer snapshot is read only to find damage. Its Leases are not used.
            self.read_snapshot(newer, &mut Known::default());
        }
        match manifest.base {
            Base::Empty(version) => {
                self.version = version;
                self.applied = Applied::at(End::default(), version, 0, Writers::default());
            }
            Base::Snapshot(info) => {
                let mut known = Known::default();
                self.read_snapshot(&info, &mut known);
                (self.known, self.version) = (known, info.version);
                let SnapshotInfo { position, entries, version, chain, writers, .. } = info;
                self.applied = Applied::at(End { position, entries }, version, chain, writers);
            }
        }
    }

    /// Reads the Leases of a snapshot, up to the first damage.
    fn read_snapshot(&mut self, info: &SnapshotInfo, known: &mut Known) {
        let place = format!("snapshot {}", info.id.0);
        let mut reader = RecordReader::default();
        let mut leases = 0;
        for index in 0..info.chunks {
            let chunk = match self.engine.chunk(info.id, index) {
                Ok(Some(sealed)) => chunk::decode(&sealed).map_err(|error| error.to_string()),
                Ok(None) => Err("it is not there".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            match chunk {
                Ok(piece) => reader.push(&piece.bytes),
                Err(error) => {
                    let what = format!("chunk {index} of {}: {error}; {leases} Leases are before it", info.chunks);
                    return self.complain(&place, &what);
                }
            }
            loop {
                match reader.next() {
                    Ok(Some(record)) => {
                        leases += 1;
                        known.restore(&record);
                    }
                    Ok(None) => break,
                    Err(error) => return self.complain(&place, &format!("{error}; {leases} Leases are before it")),
                }
            }
        }
        if leases != info.records || !reader.is_empty() {
            self.complain(&place, &format!("it has {leases} Leases and not {}", info.records));
        }
    }

    /// Reads the next change or damage, and returns it as a line of JSON. For a change, the line is empty unless
    /// `wants_line`.
    fn next_change(&mut self, wants_line: bool) -> Option<String> {
        loop {
            if let Some(mut reading) = self.reading.take() {
                match reading.reader.next() {
                    Ok(Some(change)) => {
                        let line = self.on_change(&mut reading, &change, wants_line);
                        self.reading = Some(reading);
                        return Some(line);
                    }
                    Ok(None) => self.on_end(&reading),
                    Err(error) => return Some(self.on_damage(reading.line.position, &error)),
                }
                continue;
            }
            let Some(entry) = self.next_entry() else {
                self.has_ended = true;
                return None;
            };
            let position = entry.position;
            self.count(&entry);
            if position <= self.applied.position {
                continue;
            }
            match EntryReader::open(entry.payload) {
                Ok(reader) => {
                    if self.on_entry(position, &reader.header) {
                        let line = EntryLine::new(position, &reader.header);
                        self.reading = Some(Reading { line, reader, index: 0, rejections: Rejections::default() });
                    }
                }
                Err(error) => return Some(self.on_damage(position, &error)),
            }
        }
    }

    fn next_entry(&mut self) -> Option<Entry> {
        if self.queue.is_empty() && !self.has_ended {
            match self.engine.entries(self.read, READ_BYTES_MAX) {
                Ok(entries) => self.queue = entries.into(),
                Err(error) => self.complain(&format!("entries behind {}", self.read.0), &error),
            }
        }
        let entry = self.queue.pop_front()?;
        self.read = entry.position;
        Some(entry)
    }

    fn count(&mut self, entry: &Entry) {
        let summary = &mut self.summary;
        summary.entries += 1;
        summary.entry_bytes += entry.payload.len() as u64;
        summary.first_position.get_or_insert(entry.position.0);
        summary.last_position = Some(entry.position.0);
    }

    fn on_damage(&mut self, position: Position, error: &dyn Display) -> String {
        self.complain(&name(position), error);
        damage_line(position, error)
    }

    /// Handles the header of an entry. Returns whether a server would apply the entry.
    fn on_entry(&mut self, position: Position, header: &Header) -> bool {
        if self.is_exact() {
            match judge("", position, header, &self.applied, self.version, self.expected) {
                Ok(true) => return true,
                Ok(false) => {
                    self.applied.skip(position, self.version);
                    return false;
                }
                Err(EngineError::Damaged { what, .. }) => self.complain(&name(position), &what),
                Err(error) => self.complain(&name(position), &error),
            }
        }
        self.version = header.base;
        true
    }

    fn on_change(&mut self, reading: &mut Reading, change: &StoredChange, wants_line: bool) -> String {
        let next = ResourceVersion(self.version.0.wrapping_add(1));
        let key = self.known.key_of(change);
        let is_exact = self.is_exact();
        let is_applied = self.known.apply(change, next, is_exact);
        if is_applied {
            self.version = next;
            self.summary.applied += 1;
        } else {
            self.summary.rejected += 1;
            reading.rejections.push(reading.index);
        }
        reading.index += 1;
        if wants_line { change_line(reading.line, change, key, is_applied.then_some(next)) } else { String::new() }
    }

    /// Handles the end of an entry, after its last change.
    fn on_end(&mut self, reading: &Reading) {
        if self.is_exact() {
            let Reading { line, reader, rejections, .. } = reading;
            let Header { writer, sequence, .. } = reader.header;
            let entry = EntryName { writer, sequence, checksum: reader.checksum };
            self.applied.record(line.position, entry, *rejections, self.version);
        }
    }
}

impl Iterator for Inspection<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.next_change(true)
    }
}

fn summary_of(info: &SnapshotInfo) -> SnapshotSummary {
    SnapshotSummary {
        id: info.id.0,
        version: info.version.0,
        position: info.position.0,
        leases: info.records,
        chunks: info.chunks,
        bytes: info.bytes,
        begun_us: info.begun_us,
    }
}
