//! One commit of redb: the positions of its entries, its transaction, and a check whether the database contains the
//! commit.
//!
//! The log (module `log`) is the part of the file before the database. It holds recent entries, until a commit of redb
//! moves them to the database. With this commit, the log's next generation begins.

use redb::{Database, Durability, ReadTransaction, Table};

use super::store::{CHUNKS, ENTRIES, LOG_GENERATION, MANIFEST, MARKS, META, NEXT, number};
use crate::engine::{Entry, Write};

/// The positions of a commit's entries, and the commit's effect on the counters in the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commit {
    /// Position of the commit's first entry.
    first: u64,
    /// Position of the next commit's first entry.
    pub(super) next: u64,
    /// Number of commits up to and including this one that did more than append entries.
    pub(super) marks: u64,
    /// Whether this commit does more than append entries.
    is_marked: bool,
    /// Number of the log's next generation, if the commit moves the log's entries to the database. The log is then
    /// empty, and its next records belong to this generation.
    pub(super) log_generation: Option<u64>,
}

impl Commit {
    /// Creates the commit of `writes`. `next` and `marks` are the values after the previous commit. `log_generation` is
    /// the log's next generation, if this commit moves the log's entries to the database.
    pub(super) fn of(writes: &[Write], log_generation: Option<u64>, next: u64, marks: u64) -> Self {
        let appended = writes.iter().filter(|write| matches!(write, Write::Append(_))).count();
        // The number `marks` in the database later shows whether the database contains the commit. A commit that only
        // appends entries does not store `marks`, since the commit's first entry shows the same. To store `marks` would
        // cost one more page write.
        let is_marked = log_generation.is_some() || appended < writes.len();
        let (next, marks) = (next + appended as u64, marks + u64::from(is_marked));
        Self { first: next - appended as u64, next, marks, is_marked, log_generation }
    }

    /// Makes `writes` and the entries in `log` durable. After an error, it is unknown whether they are durable.
    pub(super) fn write(&self, database: &Database, log: &[Entry], writes: &[Write]) -> Result<(), redb::Error> {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut position = self.first;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            for entry in log {
                entries.insert(entry.position.0, entry.payload.as_slice())?;
            }
            for write in writes {
                match write {
                    Write::Append(payload) => {
                        entries.insert(position, payload.as_slice())?;
                        position += 1;
                    }
                    Write::Truncate(last) => entries.retain_in(..=last.0, |_, _| false)?,
                    Write::PutChunk { snapshot, index, bytes } => {
                        transaction.open_table(CHUNKS)?.insert((snapshot.0, *index), bytes.as_slice())?;
                    }
                    Write::DropChunks { snapshot, below } => {
                        let chunks = (snapshot.0, 0)..(snapshot.0, *below);
                        transaction.open_table(CHUNKS)?.retain_in(chunks, |_, _| false)?;
                    }
                    Write::PutManifest(bytes) => {
                        transaction.open_table(META)?.insert(MANIFEST, bytes.as_slice())?;
                    }
                }
            }
        }
        if self.is_marked {
            let mut meta = transaction.open_table(META)?;
            put(&mut meta, MARKS, self.marks)?;
            // Without this number, the next position would be derived from the last entry in the database. But a
            // truncation can delete that entry.
            put(&mut meta, NEXT, self.next)?;
            if let Some(generation) = self.log_generation {
                put(&mut meta, LOG_GENERATION, generation)?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// Whether the database contains this commit.
    pub(super) fn is_in(&self, transaction: &ReadTransaction) -> Result<bool, redb::Error> {
        if self.is_marked {
            return Ok(number(&transaction.open_table(META)?, MARKS)? == Some(self.marks));
        }
        Ok(transaction.open_table(ENTRIES)?.get(self.first)?.is_some())
    }
}

fn put(meta: &mut Table<'_, &'static str, &'static [u8]>, key: &str, value: u64) -> Result<(), redb::Error> {
    meta.insert(key, value.to_le_bytes().as_slice())?;
    Ok(())
}
