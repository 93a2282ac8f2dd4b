//! The slab of streams, its index by id, and the queue of streams that can write again.

use super::queue::Queue;
use crate::http2::stream::Stream;
use crate::http2::stream_id::StreamId;
use slab::Slab;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The key of a stream: its slot and its id. A slot is never reused with the same id. So no other stream gets the key
/// of a closed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    slot: u32,
    id: StreamId,
}

impl StreamKey {
    /// Returns a small number, unique among the connection's open streams. The caller can use it as an index into its
    /// own array of streams.
    #[must_use]
    pub fn slot(self) -> usize {
        usize::try_from(self.slot).unwrap_or(usize::MAX)
    }

    /// Returns the stream's id.
    #[must_use]
    pub fn id(self) -> StreamId {
        self.id
    }
}

/// All streams that are not closed.
#[derive(Debug, Default)]
pub(crate) struct Store {
    slab: Slab<Stream>,
    slots: HashMap<StreamId, u32, BuildHasherDefault<IdHasher>>,
    /// The stream that was found or inserted last. Most frames follow a frame of the same stream, so this saves a
    /// look-up.
    last_found: Option<StreamKey>,
    /// The write queue: streams that want to write. A stream joins only while its own window is open. The window may
    /// have closed since.
    ready: Queue,
}

impl Store {
    pub(in crate::http2) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(in crate::http2) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    pub(in crate::http2) fn insert(&mut self, stream: Stream) -> StreamKey {
        let id = stream.id;
        let slot = u32::try_from(self.slab.insert(stream)).unwrap_or(u32::MAX);
        debug_assert!(!self.slots.contains_key(&id), "a stream is opened once");
        self.slots.insert(id, slot);
        let key = StreamKey { slot, id };
        self.last_found = Some(key);
        key
    }

    pub(in crate::http2) fn remove(&mut self, key: StreamKey) {
        if self.get(key).is_none() {
            return;
        }
        self.slab.remove(key.slot());
        self.slots.remove(&key.id);
        self.ready.remove(key.slot);
        self.last_found = None;
    }

    #[inline]
    pub(in crate::http2) fn find(&mut self, id: StreamId) -> Option<StreamKey> {
        if let Some(key) = self.last_found
            && key.id == id
        {
            return Some(key);
        }
        let key = StreamKey { slot: *self.slots.get(&id)?, id };
        self.last_found = Some(key);
        Some(key)
    }

    #[inline]
    pub(in crate::http2) fn get(&self, key: StreamKey) -> Option<&Stream> {
        self.slab.get(key.slot()).filter(|stream| stream.id == key.id)
    }

    #[inline]
    pub(in crate::http2) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slab.get_mut(key.slot()).filter(|stream| stream.id == key.id)
    }

    /// Iterates over all streams, in no order, to check the invariants.
    #[cfg(debug_assertions)]
    pub(in crate::http2) fn iter(&self) -> impl Iterator<Item = (StreamKey, &Stream)> {
        self.slab
            .iter()
            .map(|(slot, stream)| (StreamKey { slot: u32::try_from(slot).unwrap_or(u32::MAX), id: stream.id }, stream))
    }

    /// Iterates over all streams, in no order, to change their windows. The caller must then call
    /// [`queue_ready`](Self::queue_ready).
    pub(in crate::http2) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slab.iter_mut().map(|(_, stream)| stream)
    }

    /// Puts each stream in the write queue if it wants to write and its own window is open.
    pub(in crate::http2) fn queue_ready(&mut self) {
        for (slot, stream) in &self.slab {
            if stream.wants_write && stream.send_window.is_open() {
                self.ready.push(u32::try_from(slot).unwrap_or(u32::MAX));
            }
        }
    }

    /// Puts the stream in the write queue if it wants to write and its own window is open.
    #[inline]
    pub(in crate::http2) fn queue_if_ready(&mut self, key: StreamKey) {
        if self.get(key).is_some_and(|stream| stream.wants_write && stream.send_window.is_open()) {
            self.ready.push(key.slot);
        }
    }

    /// Removes the stream from the write queue, because it no longer wants to write.
    #[inline]
    pub(in crate::http2) fn unqueue(&mut self, key: StreamKey) {
        self.ready.remove(key.slot);
    }

    /// Whether any stream is queued.
    pub(in crate::http2) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Removes and returns the first queued stream whose own window is open. Also removes the streams before it, whose
    /// windows have closed since they were queued.
    pub(in crate::http2) fn pop_ready(&mut self) -> Option<StreamKey> {
        while let Some(slot) = self.ready.pop() {
            let stream = usize::try_from(slot).ok().and_then(|slot| self.slab.get_mut(slot));
            if let Some(stream) = stream.filter(|stream| stream.send_window.is_open()) {
                stream.wants_write = false;
                return Some(StreamKey { slot, id: stream.id });
            }
        }
        None
    }

    /// Checks the invariants of [`Connection`](crate::http2::Connection) that concern the store.
    #[cfg(debug_assertions)]
    pub(in crate::http2) fn check_invariants(&self) {
        assert_eq!(self.slab.len(), self.slots.len(), "slab and index agree");
        let queued = self.iter().filter(|(key, _)| self.ready.contains(key.slot)).count();
        assert_eq!(self.ready.iter().count(), queued, "no closed stream is queued");
        for (key, stream) in self.iter() {
            assert_eq!(self.slots.get(&stream.id), Some(&key.slot));
            let is_queued = self.ready.contains(key.slot);
            assert!(!is_queued || stream.wants_write, "only streams that want to write are queued");
            let is_due = stream.wants_write && stream.send_window.is_open();
            assert!(is_queued || !is_due, "every stream that can write is queued");
        }
        assert!(self.last_found.is_none_or(|key| self.get(key).is_some()), "a cached key is not stale");
    }
}

/// Hashes ids, which are small odd numbers. One multiplication spreads the ids well enough. There are too few ids at
/// once for collisions to matter.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.write_u32(u32::from(*octet));
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        // The factor is 2^64 divided by the golden ratio. The hash map uses the lowest bits and the highest seven bits
        // of a hash. The rotation moves well-mixed high bits of the product to the bottom.
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::flow_control::{RecvWindow, SendWindow};
    use crate::http2::stream::StreamState;

    fn stream(id: u32, window: u32) -> Stream {
        let id = StreamId::from_wire(id.to_be_bytes());
        Stream::new(id, StreamState::Open, SendWindow::new(window), RecvWindow::new(0, 0))
    }

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut store = Store::default();
        let first = store.insert(stream(1, 0));
        store.remove(first);
        let second = store.insert(stream(3, 0));
        assert_eq!(first.slot(), second.slot());
        assert!(store.get(first).is_none() && store.get(second).is_some());
        assert_eq!(store.find(first.id()), None);
        store.remove(first);
        assert_eq!(store.len(), 1);
        store.check_invariants();
    }

    #[test]
    fn a_stream_is_ready_with_pending_output_and_an_open_window() {
        let mut store = Store::default();
        let keys: Vec<_> =
            [(1, 10), (3, 0), (5, 10), (7, 10)].iter().map(|(id, window)| store.insert(stream(*id, *window))).collect();
        for key in &keys[..3] {
            store.get_mut(*key).unwrap().wants_write = true;
            store.queue_if_ready(*key);
        }
        store.queue_if_ready(keys[3]);
        store.remove(keys[0]);
        assert_eq!(store.pop_ready(), Some(keys[2]));
        assert_eq!(store.pop_ready(), None);
        store.get_mut(keys[1]).unwrap().send_window.widen(1).unwrap();
        store.queue_ready();
        assert_eq!(store.pop_ready(), Some(keys[1]));
        store.check_invariants();
    }
}
