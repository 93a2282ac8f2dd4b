//! Finds the readable content of a file that redb cannot open: walks through the file's pages. The walk verifies each
//! offset and never stops early. For an invalid page, the walk adds a complaint and skips the pages below this page.
//!
//! The database follows the [log](super::log). The database's header names the roots of two commits. Below each root is
//! a tree of tables. The leaves of this tree name the root of each table. A page is a leaf or a branch:
//!
//! ```text
//! leaf    1, 0, count: u16, [key ends: u32 ...], value ends: u32 ..., keys, values
//! branch  2, 0, count: u16, 0: u32, checksums: 16 bytes x (count + 1), children: u64 x (count + 1), keys
//! ```
//!
//! Numbers are little-endian, and ends are offsets from the start of the page. Key ends exist only if the key length
//! varies.

use std::collections::{BTreeMap, HashSet};

use redb::TableHandle;

use super::log::{LOG_BYTES, Log};
use super::salvage::{Chunk, Salvage};
use super::store::{CHUNKS, ENTRIES, LOG_GENERATION, LOG_SEED, MANIFEST, META, PAGE_BYTES};
use crate::engine::{Entry, Position, SnapshotId};

/// Reads the intact parts of a file's bytes.
pub(super) fn walk(bytes: &[u8]) -> Salvage {
    let (log, database) = bytes.split_at_checked(LOG_BYTES).unwrap_or((bytes, &[]));
    let mut walk = Walk { bytes: database, ..Walk::default() };
    let mut slots = [0, 1].map(|slot| database.get(SLOTS + slot * SLOT_BYTES..).unwrap_or_default());
    // If the last commit is damaged, the previous commit may still contain the lost values. If both commits contain a
    // value of a key, the walk keeps the value that it finds first. So the walk reads the last commit first.
    slots.sort_by_key(|slot| std::cmp::Reverse(u64_at(slot, SLOT_TRANSACTION)));
    for slot in slots {
        let complaints = walk.complaints.len();
        if slot.get(SLOT_HAS_ROOT).is_some_and(|byte| *byte != 0) {
            walk.tables(slot);
        } else {
            walk.complaints.push("the header names no commit".to_owned());
        }
        if walk.complaints.len() == complaints {
            break;
        }
        walk.seen.clear();
    }
    walk.log(log);
    walk.finish()
}

/// A key and its value in a tree.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// A walk, and the content that it has found so far.
#[derive(Debug, Default)]
struct Walk<'a> {
    /// Bytes of the database.
    bytes: &'a [u8],
    /// Offsets of the pages that the walk has visited below the current commit. Without these offsets, a cycle of pages
    /// would make the walk endless.
    seen: HashSet<u64>,
    manifest: Option<Vec<u8>>,
    log_seed: Option<u64>,
    log_generation: Option<u64>,
    chunks: BTreeMap<(u64, u32), Vec<u8>>,
    entries: BTreeMap<u64, Vec<u8>>,
    complaints: Vec<String>,
}

impl<'a> Walk<'a> {
    fn tables(&mut self, slot: &[u8]) {
        let Some(root) = u64_at(slot, SLOT_ROOT) else { return };
        for (name, table) in self.tree(root, None) {
            let has_root = table.get(TABLE_HAS_ROOT).is_some_and(|byte| *byte != 0);
            let Some(root) = u64_at(table, TABLE_ROOT).filter(|_| has_root) else { continue };
            if name == ENTRIES.name().as_bytes() {
                for (key, payload) in self.tree(root, Some(8)) {
                    let Some(position) = u64_at(key, 0) else { continue };
                    self.entries.entry(position).or_insert_with(|| payload.to_vec());
                }
            } else if name == CHUNKS.name().as_bytes() {
                for (key, bytes) in self.tree(root, Some(12)) {
                    let (Some(snapshot), Some(index)) = (u64_at(key, 0), u32_at(key, 8)) else { continue };
                    self.chunks.entry((snapshot, index)).or_insert_with(|| bytes.to_vec());
                }
            } else if name == META.name().as_bytes() {
                for (key, bytes) in self.tree(root, None) {
                    if key == MANIFEST.as_bytes() {
                        self.manifest.get_or_insert_with(|| bytes.to_vec());
                    } else if key == LOG_SEED.as_bytes() {
                        self.log_seed = self.log_seed.or_else(|| u64_at(bytes, 0));
                    } else if key == LOG_GENERATION.as_bytes() {
                        self.log_generation = self.log_generation.or_else(|| u64_at(bytes, 0));
                    }
                }
            }
        }
    }

    /// Adds the entries of the log.
    fn log(&mut self, log: &[u8]) {
        let Some(seed) = self.log_seed else {
            self.complaints.push("the log cannot be read without the seed of its checksums".to_owned());
            return;
        };
        for (position, payload) in Log::salvage(log, seed, self.log_generation.unwrap_or(0)) {
            self.entries.entry(position).or_insert_with(|| payload.to_vec());
        }
    }

    /// Returns the pairs of a tree, in the order of their keys. `key_bytes` is the length of a key, if all keys have
    /// the same length.
    fn tree(&mut self, root: u64, key_bytes: Option<usize>) -> Vec<Pair<'a>> {
        let mut pairs = Vec::new();
        let mut pages = vec![root];
        while let Some(number) = pages.pop() {
            let Some((place, page)) = self.page(number) else {
                self.complaints.push(format!("page {number:#x} is not in the file"));
                continue;
            };
            if !self.seen.insert(place) {
                self.complaints.push(format!("the page at byte {} is used twice", place + LOG_BYTES as u64));
                continue;
            }
            let is_read = match page.first() {
                Some(1) => leaf(page, key_bytes, &mut pairs),
                Some(2) => branch(page).map(|children| pages.extend(children.rev())),
                _ => None,
            };
            if is_read.is_none() {
                self.complaints.push(format!("the page at byte {} is damaged", place + LOG_BYTES as u64));
            }
        }
        pairs
    }

    /// Returns the page with this number, and its offset. The number consists of the page's size as a power of two, its
    /// region, and its index among the pages of this size.
    fn page(&self, number: u64) -> Option<(u64, &'a [u8])> {
        let order = number >> 59;
        let index = number & (0xf_ffff_u64.checked_shr(u32::try_from(order).ok()?)?);
        let region = (number >> 20) & 0xf_ffff;
        let region_bytes = u64::from(u32_at(self.bytes, REGION_PAGES)?) * PAGE_BYTES as u64;
        let page_bytes = (PAGE_BYTES as u64).checked_shl(u32::try_from(order).ok()?)?;
        let place = region.checked_mul(region_bytes)?.checked_add(index.checked_mul(page_bytes)?)?;
        let place = place.checked_add(PAGE_BYTES as u64)?;
        let start = usize::try_from(place).ok()?;
        let page = self.bytes.get(start..start.checked_add(usize::try_from(page_bytes).ok()?)?)?;
        Some((place, page))
    }

    fn finish(self) -> Salvage {
        let entries = self.entries.into_iter();
        let chunks = self.chunks.into_iter();
        Salvage {
            manifest: self.manifest,
            chunks: chunks
                .map(|((snapshot, index), bytes)| Chunk { snapshot: SnapshotId(snapshot), index, bytes })
                .collect(),
            entries: entries.map(|(position, payload)| Entry { position: Position(position), payload }).collect(),
            complaints: self.complaints,
        }
    }
}

/// Adds the pairs of a leaf to `pairs`. Returns `None` if a pair is outside the page.
fn leaf<'a>(page: &'a [u8], key_bytes: Option<usize>, pairs: &mut Vec<Pair<'a>>) -> Option<()> {
    let count = usize::from(u16_at(page, 2)?);
    let value_ends = if key_bytes.is_some() { 4 } else { 4 + 4 * count };
    let keys = value_ends + 4 * count;
    let key_end = |index: usize| match key_bytes {
        Some(bytes) => Some(keys + bytes * (index + 1)),
        None => end_at(page, 4 + 4 * index),
    };
    let mut key_start = keys;
    let mut value_start = key_end(count.checked_sub(1)?)?;
    for index in 0..count {
        let (key_stop, value_stop) = (key_end(index)?, end_at(page, value_ends + 4 * index)?);
        pairs.push((page.get(key_start..key_stop)?, page.get(value_start..value_stop)?));
        (key_start, value_start) = (key_stop, value_stop);
    }
    Some(())
}

/// Returns the page numbers below a branch, in key order.
fn branch(page: &[u8]) -> Option<impl DoubleEndedIterator<Item = u64>> {
    let count = usize::from(u16_at(page, 2)?) + 1;
    let start = 8 + 16 * count;
    let children = page.get(start..start + 8 * count)?;
    Some(children.chunks_exact(8).filter_map(|bytes| u64_at(bytes, 0)))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn end_at(page: &[u8], at: usize) -> Option<usize> {
    u32_at(page, at).and_then(|end| usize::try_from(end).ok())
}

/// Offset in the header of the number of pages per region, in bytes.
const REGION_PAGES: usize = 20;
/// Offset of the first of the two commit slots in the header, in bytes.
const SLOTS: usize = 64;
/// Size of a commit in the header, in bytes.
const SLOT_BYTES: usize = 128;
/// Offsets in a commit slot: whether the commit has tables, the root of their tree, and the commit's number.
const SLOT_HAS_ROOT: usize = 1;
const SLOT_ROOT: usize = 8;
const SLOT_TRANSACTION: usize = 104;
/// Offsets in a table's description: whether the table has pairs, and the root of their tree.
const TABLE_HAS_ROOT: usize = 9;
const TABLE_ROOT: usize = 10;
