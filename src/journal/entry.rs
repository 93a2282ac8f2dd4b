//! An entry: one batch of changes by one writer.
//!
//! ```text
//!   0    start of a sealed value, kind `E` (module `seal`)
//!   2    u64   writer: a number that is new at each start of a process
//!   10   u64   sequence: number of this entry among those of its writer, from 1
//!   18   u64   after: position of the last entry that the writer had applied; 0 before the first entry
//!   26   u64   base: version of the writer's table after the entry at position `after`
//!   34   u64   chain: hash of all entries that the writer had applied, see `applied`
//!   42   i64   time, in microseconds, to which the times of renewals are relative
//!   50   u32   number of changes
//!   54   changes
//!        checksum
//! ```
//!
//! A change is a byte for its kind, followed by these fields. A version is a `resourceVersion`. `number` is the version
//! of the Lease's creation. `from` is the version of the Lease before the change:
//!
//! ```text
//!   renewal      base - number, base - from, renewTime - time; if bit 2 of the kind is set, also the time of the last
//!                managedFields entry minus `time`, in seconds
//!   replacement  base - number, base - from, length of the Lease in bytes, Lease
//!   creation     length of the Lease in bytes, Lease
//!   deletion     base - number, base - from
//! ```
//!
//! Differences of versions are unsigned, and differences of times are signed. Each difference wraps around at 64 bits,
//! so that every value can be encoded.

use super::applied::EntryName;
use super::lease_form::{put_lease, read_lease};
use super::seal::{self, Kind};
use super::wire::{FormError, Reader, put_length, put_signed, put_varint};
use crate::engine::Position;
use crate::lease::Lease;
use crate::resource::ResourceVersion;
use crate::table::change::Change;
use crate::table::object::RenewedTimes;
use crate::timestamp::{MicroTime, Time};

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) writer: u64,
    pub(super) sequence: u64,
    pub(super) after: Position,
    pub(super) base: ResourceVersion,
    pub(super) chain: u64,
    pub(super) time: MicroTime,
}

/// Bytes before the first change.
pub(super) const HEADER_BYTES: usize = 54;
/// Offset of the number of changes. This number is written last.
const COUNT_AT: usize = HEADER_BYTES - size_of::<u32>();

const RENEW: u8 = 0;
const REPLACE: u8 = 1;
const CREATE: u8 = 2;
const DELETE: u8 = 3;
/// Flag of a renewal: the time of the last entry of `managedFields` follows.
const HAS_MANAGED_TIME: u8 = 4;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// An entry under construction.
#[derive(Debug)]
pub(super) struct EntryWriter {
    header: Header,
    bytes: Vec<u8>,
    changes: u32,
}

impl EntryWriter {
    /// Begins an entry without changes.
    pub(super) fn new(header: Header, format: u8) -> Self {
        let mut bytes = Vec::with_capacity(4 * 1024);
        seal::begin(Kind::Entry, format, &mut bytes);
        let Header { writer, sequence, after, base, chain, time } = header;
        for number in [writer, sequence, after.0, base.0, chain, time.0.cast_unsigned()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&[0; size_of::<u32>()]);
        debug_assert_eq!(bytes.len(), HEADER_BYTES);
        Self { header, bytes, changes: 0 }
    }

    /// Appends a change, unless the entry would then exceed `bytes_max`. The first change always fits.
    #[inline]
    #[must_use]
    pub(super) fn try_push(&mut self, change: &Change, bytes_max: usize) -> bool {
        let before = self.bytes.len();
        self.put(change);
        if self.changes > 0 && self.bytes.len() + seal::SEAL_BYTES > bytes_max {
            self.bytes.truncate(before);
            return false;
        }
        self.changes += 1;
        true
    }

    #[inline]
    fn put(&mut self, change: &Change) {
        let Header { base, time, .. } = self.header;
        let out = &mut self.bytes;
        let (kind, target) = match change {
            Change::Create(lease) => {
                out.push(CREATE);
                return put_sized_lease(out, lease);
            }
            Change::Renew(target, RenewedTimes { managed_time: Some(_), .. }) => (RENEW | HAS_MANAGED_TIME, target),
            Change::Renew(target, _) => (RENEW, target),
            Change::Replace(target, _) => (REPLACE, target),
            Change::Delete(target) => (DELETE, target),
        };
        out.push(kind);
        put_varint(out, base.0.wrapping_sub(target.number.0));
        put_varint(out, base.0.wrapping_sub(target.from.0));
        match change {
            Change::Renew(_, times) => {
                put_signed(out, times.renew_time.0.wrapping_sub(time.0));
                if let Some(managed_time) = times.managed_time {
                    put_signed(out, managed_time.0.wrapping_sub(seconds(time)));
                }
            }
            Change::Replace(_, lease) => put_sized_lease(out, lease),
            Change::Create(_) | Change::Delete(_) => {}
        }
    }

    /// Returns the sealed entry and its checksum.
    pub(super) fn finish(mut self) -> (Vec<u8>, u64) {
        self.bytes[COUNT_AT..HEADER_BYTES].copy_from_slice(&self.changes.to_le_bytes());
        let checksum = seal::seal(&mut self.bytes);
        (self.bytes, checksum)
    }
}

fn put_sized_lease(out: &mut Vec<u8>, lease: &Lease) {
    // The length precedes the Lease, but is known only after the Lease is encoded. So the length is appended and then
    // moved before the Lease.
    let start = out.len();
    put_lease(out, lease);
    let end = out.len();
    put_length(out, end - start);
    let length_bytes = out.len() - end;
    out[start..].rotate_right(length_bytes);
}

fn seconds(time: MicroTime) -> i64 {
    time.0.div_euclid(MICROS_PER_SECOND)
}

/// A change as stored in an entry. Unlike a [`Change`], it does not refer to a slot in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoredChange {
    Create(Box<Lease>),
    Replace(Origin, Box<Lease>),
    Renew(Origin, RenewedTimes),
    Delete(Origin),
}

impl StoredChange {
    /// Returns the state from which the change was made; `None` for a creation.
    pub(super) fn origin(&self) -> Option<Origin> {
        match self {
            Self::Create(_) => None,
            Self::Replace(origin, _) | Self::Renew(origin, _) | Self::Delete(origin) => Some(*origin),
        }
    }
}

/// The state of a Lease from which a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// Version of the Lease's creation.
    pub(super) number: ResourceVersion,
    /// Version of the Lease in this state.
    pub(super) from: ResourceVersion,
}

/// Reads the changes of an entry one by one.
#[derive(Debug)]
pub(super) struct EntryReader {
    pub(super) header: Header,
    pub(super) checksum: u64,
    /// Number of unread changes.
    changes: u32,
    payload: Vec<u8>,
    /// Number of payload bytes that have been read.
    at: usize,
}

impl EntryReader {
    /// Opens a sealed entry.
    ///
    /// # Errors
    /// [`FormError`]
    pub(super) fn open(payload: Vec<u8>) -> Result<Self, FormError> {
        let seal::Opened { mut reader, checksum, .. } = seal::open(Kind::Entry, &payload)?;
        let header = Header {
            writer: reader.u64()?,
            sequence: reader.u64()?,
            after: Position(reader.u64()?),
            base: ResourceVersion(reader.u64()?),
            chain: reader.u64()?,
            time: MicroTime(reader.i64()?),
        };
        let changes = reader.u32()?;
        let at = reader.offset();
        Ok(Self { header, checksum, changes, payload, at })
    }

    /// Returns the number of unread changes.
    pub(super) fn remaining(&self) -> u32 {
        self.changes
    }

    /// Returns the next change; `None` at the end.
    ///
    /// # Errors
    /// [`FormError`]
    pub(super) fn next(&mut self) -> Result<Option<StoredChange>, FormError> {
        let end = self.payload.len().saturating_sub(seal::SEAL_BYTES);
        let mut reader = Reader::new(self.payload.get(..end).unwrap_or_default(), self.at);
        if self.changes == 0 {
            return reader.finish().map(|()| None);
        }
        let change = read_change(&mut reader, &self.header)?;
        self.changes -= 1;
        self.at = reader.offset();
        Ok(Some(change))
    }
}

fn read_change(reader: &mut Reader<'_>, header: &Header) -> Result<StoredChange, FormError> {
    let error = reader.damaged("a change of no known kind");
    let kind = reader.u8()?;
    if kind == CREATE {
        return read_sized_lease(reader).map(StoredChange::Create);
    }
    if kind & !HAS_MANAGED_TIME != RENEW && kind != REPLACE && kind != DELETE {
        return Err(error);
    }
    let number = ResourceVersion(header.base.0.wrapping_sub(reader.varint()?));
    let from = ResourceVersion(header.base.0.wrapping_sub(reader.varint()?));
    let origin = Origin { number, from };
    match kind {
        REPLACE => Ok(StoredChange::Replace(origin, read_sized_lease(reader)?)),
        DELETE => Ok(StoredChange::Delete(origin)),
        _ => {
            let renew_time = MicroTime(reader.signed()?.wrapping_add(header.time.0));
            let managed_time = match kind & HAS_MANAGED_TIME {
                0 => None,
                _ => Some(Time(reader.signed()?.wrapping_add(seconds(header.time)))),
            };
            Ok(StoredChange::Renew(origin, RenewedTimes { renew_time, managed_time }))
        }
    }
}

fn read_sized_lease(reader: &mut Reader<'_>) -> Result<Box<Lease>, FormError> {
    let end_error = reader.damaged("a Lease that is shorter than its length");
    let length = reader.length()?;
    let end = reader.offset() + length;
    let lease = read_lease(reader)?;
    if reader.offset() == end { Ok(Box::new(lease)) } else { Err(end_error) }
}

/// Returns the writer and sequence of a sealed entry, if they can be read.
pub(crate) fn entry_name(payload: &[u8]) -> Option<(u64, u64)> {
    peek(payload).map(|name| (name.writer, name.sequence))
}

/// Returns the writer, sequence and checksum of a sealed entry, if the entry is long enough. Does not verify the
/// checksum. So the caller must have sealed the entry itself, or must compare the name with the name of an entry that
/// it has sealed.
pub(super) fn peek(payload: &[u8]) -> Option<EntryName> {
    let mut reader = Reader::new(payload, seal::START_BYTES);
    let (writer, sequence) = (reader.u64().ok()?, reader.u64().ok()?);
    let checksum = u64::from_le_bytes(*payload.last_chunk()?);
    Some(EntryName { writer, sequence, checksum })
}
