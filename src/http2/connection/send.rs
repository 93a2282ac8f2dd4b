//! What goes out: heads, bodies, trailers, resets.

use super::Connection;
use crate::hpack::{FieldName, Indexing};
use crate::http2::error::{ErrorCode, Flood, StreamGone};
use crate::http2::frame::data::encode_data_head_into;
use crate::http2::frame::headers::{begin_headers_into, finish_headers};
use crate::http2::frame::rst_stream;
use crate::http2::limits::{FRAME_SIZE_MAX, WINDOW_UPDATE_OCTETS};
use crate::http2::stream::State;
use crate::http2::streams::StreamKey;

/// A field to send.
#[derive(Clone, Copy, Debug)]
pub struct SendField<'f> {
    /// Its name, in lower case.
    pub name: FieldName<'f>,
    /// Its value.
    pub value: &'f [u8],
    /// What the compression may keep of it.
    pub indexing: Indexing,
}

impl<'f> SendField<'f> {
    /// A field whose value comes again.
    #[must_use]
    pub const fn repeated(name: FieldName<'f>, value: &'f [u8]) -> Self {
        Self { name, value, indexing: Indexing::Value }
    }

    /// A field whose value is another one each time.
    #[must_use]
    pub const fn varying(name: FieldName<'f>, value: &'f [u8]) -> Self {
        Self { name, value, indexing: Indexing::Name }
    }
}

impl Connection {
    /// Sends the head of a response; one with a status below 200 is followed by another.
    ///
    /// # Errors
    /// The stream is over.
    pub fn send_head(
        &mut self,
        key: StreamKey,
        status: u16,
        fields: &[SendField<'_>],
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), StreamGone> {
        let stream = self.streams.get_mut(key).ok_or(StreamGone)?;
        debug_assert!(!stream.head_sent, "a response has one head");
        stream.head_sent = status >= 200;
        let start = begin_headers_into(key.id(), end_stream, out);
        let changes = self.encoder.changes();
        if !self.head_memo.replay(status, fields, changes, out) {
            let block_start = out.len();
            self.encoder.begin_block(out);
            self.encoder.encode_status(status, out);
            self.encode_fields(fields, out);
            if self.encoder.changes() == changes {
                self.head_memo.keep(status, fields, changes, out.get(block_start..).unwrap_or_default());
            }
        }
        finish_headers(key.id(), start, out);
        if end_stream {
            self.end_local(key);
        }
        self.check_invariants();
        Ok(())
    }

    /// Sends trailers, which end our side of the stream. All data must have been sent.
    ///
    /// # Errors
    /// The stream is over.
    pub fn send_trailers(
        &mut self,
        key: StreamKey,
        fields: &[SendField<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), StreamGone> {
        let stream = self.streams.get_mut(key).ok_or(StreamGone)?;
        debug_assert!(stream.head_sent && stream.state != State::HalfClosedLocal, "trailers follow a body");
        let start = begin_headers_into(key.id(), true, out);
        self.encoder.begin_block(out);
        self.encode_fields(fields, out);
        finish_headers(key.id(), start, out);
        self.end_local(key);
        self.check_invariants();
        Ok(())
    }

    /// Sends of `data` as much as the windows let through, and says how much that is; `end_stream`: nothing follows
    /// `data`. If it is less than all, [`poll_writable`](Self::poll_writable) will name the stream when there is room
    /// again; the rest is to be offered then.
    ///
    /// # Errors
    /// The stream is over.
    pub fn send_data(
        &mut self,
        key: StreamKey,
        data: &[u8],
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, StreamGone> {
        let mut rest = data;
        loop {
            let length = self.send_data_head(key, rest.len(), end_stream, out)?;
            let (now, later) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            out.extend_from_slice(now);
            rest = later;
            if rest.is_empty() || length == 0 {
                return Ok(data.len() - rest.len());
            }
        }
    }

    /// Like [`send_data`](Self::send_data), but for one frame of which only the head goes to `out`: as many octets as
    /// this gives must follow it. For data that is to be written from where it is, or made in `out` itself.
    ///
    /// # Errors
    /// The stream is over.
    pub fn send_data_head(
        &mut self,
        key: StreamKey,
        offered: usize,
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, StreamGone> {
        let stream = self.streams.get_mut(key).ok_or(StreamGone)?;
        debug_assert!(stream.head_sent && stream.state != State::HalfClosedLocal, "data is between head and end");
        let room = stream.send_window.available().min(self.send_window.available());
        let length = offered.min(room).min(FRAME_SIZE_MAX);
        let is_all = length == offered;
        let is_cut_by_window = !is_all && length == room;
        stream.send_window.consume(length);
        self.send_window.consume(length);
        // Between two such calls a stream may have been queued by a window that has opened since.
        let was_waiting = std::mem::replace(&mut stream.wants_write, is_cut_by_window);
        if is_cut_by_window {
            // If its own window is open the connection's is not: then it waits in line for that.
            self.streams.queue_if_ready(key);
        } else if was_waiting {
            self.streams.unqueue(key);
        }
        if length > 0 || (is_all && end_stream) {
            encode_data_head_into(key.id(), length, is_all && end_stream, out);
            if is_all || length >= LARGE_DATA {
                let of_octets = u32::try_from(length / WINDOW_UPDATE_OCTETS).unwrap_or(u32::MAX);
                self.flood_guard.allow(Flood::WindowUpdates, WINDOW_UPDATES_FOR_DATA.saturating_add(of_octets));
            }
        }
        if is_all && end_stream {
            self.end_local(key);
        }
        self.check_invariants();
        Ok(length)
    }

    /// The next stream that has sent less than it was offered and now has room. It is taken from the queue: offer its
    /// data, or [`want_write`](Self::want_write) again.
    pub fn poll_writable(&mut self) -> Option<StreamKey> {
        if self.send_window.is_open() { self.streams.pop_ready() } else { None }
    }

    /// Whether [`poll_writable`](Self::poll_writable) may name a stream.
    #[must_use]
    pub fn has_writable(&self) -> bool {
        self.send_window.is_open() && self.streams.has_ready()
    }

    /// Asks for the stream to be named by [`poll_writable`](Self::poll_writable) once it has room, at the end of the
    /// queue.
    pub fn want_write(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(key)
            && stream.state != State::HalfClosedLocal
        {
            stream.wants_write = true;
            self.streams.queue_if_ready(key);
        }
        self.check_invariants();
    }

    /// Octets of body that the windows would let through on this stream now.
    #[must_use]
    pub fn send_room(&self, key: StreamKey) -> usize {
        self.streams.get(key).map_or(0, |stream| stream.send_window.available().min(self.send_window.available()))
    }

    /// Resets a stream. Nothing is sent if it is over already.
    pub fn reset(&mut self, key: StreamKey, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(key).is_some() {
            self.streams.remove(key);
            self.reset_memory.insert(key.id());
            rst_stream::encode_into(key.id(), code, out);
        }
        self.check_invariants();
    }

    /// The rest of a request that is answered is not wanted (RFC 9113 §8.1). What comes of it all the same goes through
    /// the connection's window and is dropped; the stream's window is not opened again. To reset the stream at once
    /// could destroy the answer: libcurl drops what it has not handed on when it reads the reset.
    pub fn refuse_rest(&mut self, key: StreamKey, now_ms: u64) {
        if self.refused.len() >= REFUSED_MIN + 2 * self.streams.len() {
            let streams = &self.streams;
            self.refused.retain(|(_, key)| streams.get(*key).is_some());
        }
        self.refused.push_back((now_ms, key));
    }

    /// Milliseconds at which the first of the requests was answered whose rest is not wanted.
    #[must_use]
    pub fn refused_since_ms(&self) -> Option<u64> {
        self.refused.front().map(|(since_ms, _)| *since_ms)
    }

    /// The stream of the first of those, to be reset, if it was answered by `until_ms`. It may be over.
    pub fn pop_refused(&mut self, until_ms: u64) -> Option<StreamKey> {
        self.refused.pop_front_if(|(since_ms, _)| *since_ms <= until_ms).map(|(_, key)| key)
    }

    pub(in crate::http2) fn begin_block(&mut self, out: &mut Vec<u8>) {
        self.encoder.begin_block(out);
    }

    pub(in crate::http2) fn encode_fields(&mut self, fields: &[SendField<'_>], out: &mut Vec<u8>) {
        for field in fields {
            self.encoder.encode_field(field.name, field.value, field.indexing, out);
        }
    }

    /// We have sent all that we will on this stream.
    pub(in crate::http2) fn end_local(&mut self, key: StreamKey) {
        match self.streams.get_mut(key) {
            Some(stream) if stream.state == State::Open => {
                stream.state = State::HalfClosedLocal;
                if std::mem::take(&mut stream.wants_write) {
                    self.streams.unqueue(key);
                }
            }
            Some(_) => self.streams.remove(key),
            None => {}
        }
    }
}

/// A frame that a window cut short at less than this allows for no more WINDOW_UPDATEs: or a peer that opens its
/// window by one octet at a time would pay with one frame for one.
const LARGE_DATA: usize = 1024;

/// Streams that are over and may stand among the refused, beside as many as twice those that are open.
const REFUSED_MIN: usize = 64;

/// WINDOW_UPDATE frames that a DATA frame may bring however short it is: one for the stream, one for the connection.
const WINDOW_UPDATES_FOR_DATA: u32 = 2;
