//! Sending: heads, bodies, trailers, resets.

use super::Connection;
use crate::hpack::{FieldName, Indexing};
use crate::http2::error::{ErrorCode, Flood, StreamGone};
use crate::http2::frame::data::encode_data_head_into;
use crate::http2::frame::headers::{begin_headers_into, finish_headers};
use crate::http2::frame::rst_stream;
use crate::http2::limits::{FRAME_SIZE_MAX, WINDOW_UPDATE_OCTETS};
use crate::http2::stream::StreamState;
use crate::http2::streams::StreamKey;

/// A field to send.
#[derive(Clone, Copy, Debug)]
pub struct SendField<'f> {
    /// The name, in lower case.
    pub name: FieldName<'f>,
    /// The value.
    pub value: &'f [u8],
    /// How much of the field the encoder may put in the dynamic table.
    pub indexing: Indexing,
}

impl<'f> SendField<'f> {
    /// Creates a field whose value recurs.
    #[must_use]
    pub const fn repeated(name: FieldName<'f>, value: &'f [u8]) -> Self {
        Self { name, value, indexing: Indexing::Value }
    }

    /// Creates a field whose value differs each time.
    #[must_use]
    pub const fn varying(name: FieldName<'f>, value: &'f [u8]) -> Self {
        Self { name, value, indexing: Indexing::Name }
    }
}

impl Connection {
    /// Sends the head of a response. After a head with a status below 200, the caller must send one more head.
    ///
    /// # Errors
    /// The stream is closed.
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

    /// Sends trailers, which end our side of the stream. The caller must have sent all data before.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn send_trailers(
        &mut self,
        key: StreamKey,
        fields: &[SendField<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), StreamGone> {
        let stream = self.streams.get_mut(key).ok_or(StreamGone)?;
        debug_assert!(stream.head_sent && stream.state != StreamState::HalfClosedLocal, "trailers follow a body");
        let start = begin_headers_into(key.id(), true, out);
        self.encoder.begin_block(out);
        self.encode_fields(fields, out);
        finish_headers(key.id(), start, out);
        self.end_local(key);
        self.check_invariants();
        Ok(())
    }

    /// Sends as much of `data` as the windows allow, and returns the number of octets sent. `end_stream` is whether the
    /// stream ends after `data`. If octets are left, [`poll_writable`](Self::poll_writable) returns the stream once its
    /// windows are open again. The caller then passes the rest.
    ///
    /// # Errors
    /// The stream is closed.
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

    /// Like [`send_data`](Self::send_data), but appends only the head of one DATA frame to `out`. The caller must write
    /// the returned number of octets after the head. Use this method for data that is not copied to `out`, or that is
    /// generated in `out` itself.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn send_data_head(
        &mut self,
        key: StreamKey,
        offered: usize,
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, StreamGone> {
        let stream = self.streams.get_mut(key).ok_or(StreamGone)?;
        debug_assert!(stream.head_sent && stream.state != StreamState::HalfClosedLocal, "data is between head and end");
        let window = stream.send_window.available().min(self.send_window.available());
        let length = offered.min(window).min(FRAME_SIZE_MAX);
        let is_all = length == offered;
        let is_cut_by_window = !is_all && length == window;
        stream.send_window.consume(length);
        self.send_window.consume(length);
        // If a window has opened since the last call, the stream may still be in the write queue. It leaves the queue
        // if no data waits any more.
        let was_waiting = std::mem::replace(&mut stream.wants_write, is_cut_by_window);
        if is_cut_by_window {
            // If the stream's own window is open, the connection's window is closed. The stream then queues for the
            // connection's window.
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

    /// Returns the next stream that has unsent data and whose windows have opened. Removes the stream from the write
    /// queue. The caller must then send data, or call [`want_write`](Self::want_write) again.
    pub fn poll_writable(&mut self) -> Option<StreamKey> {
        if self.send_window.is_open() { self.streams.pop_ready() } else { None }
    }

    /// Whether [`poll_writable`](Self::poll_writable) may return a stream.
    #[must_use]
    pub fn has_writable(&self) -> bool {
        self.send_window.is_open() && self.streams.has_ready()
    }

    /// Makes [`poll_writable`](Self::poll_writable) return the stream once its windows are open. The stream joins the
    /// end of the write queue.
    pub fn want_write(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(key)
            && stream.state != StreamState::HalfClosedLocal
        {
            stream.wants_write = true;
            self.streams.queue_if_ready(key);
        }
        self.check_invariants();
    }

    /// Returns how many octets of body the windows allow on this stream now.
    #[must_use]
    pub fn send_window(&self, key: StreamKey) -> usize {
        self.streams.get(key).map_or(0, |stream| stream.send_window.available().min(self.send_window.available()))
    }

    /// Resets a stream. Sends nothing if the stream is already closed.
    pub fn reset(&mut self, key: StreamKey, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(key).is_some() {
            self.streams.remove(key);
            self.reset_memory.insert(key.id());
            rst_stream::encode_into(key.id(), code, out);
        }
        self.check_invariants();
    }

    /// Marks the rest of a request as unwanted, because the request already has a response (RFC 9113 §8.1). Later data
    /// of the request is dropped. This data counts for the connection's window, and the stream's window is not
    /// refilled. An immediate reset could destroy the response, since libcurl drops undelivered data when it reads the
    /// reset. So the caller resets the stream later ([`pop_refused`](Self::pop_refused)).
    pub fn refuse_rest(&mut self, key: StreamKey, now_ms: u64) {
        if self.refused.len() >= REFUSED_MIN + 2 * self.streams.len() {
            let streams = &self.streams;
            self.refused.retain(|(_, key)| streams.get(*key).is_some());
        }
        self.refused.push_back((now_ms, key));
    }

    /// Returns the time at which the oldest request with an unwanted rest got its response, in ms.
    #[must_use]
    pub fn refused_since_ms(&self) -> Option<u64> {
        self.refused.front().map(|(since_ms, _)| *since_ms)
    }

    /// Removes and returns the oldest stream with an unwanted rest, if its response was sent at `until_ms` or before.
    /// The caller resets the stream, which may be closed already.
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

    /// Ends our side of the stream.
    pub(in crate::http2) fn end_local(&mut self, key: StreamKey) {
        match self.streams.get_mut(key) {
            Some(stream) if stream.state == StreamState::Open => {
                stream.state = StreamState::HalfClosedLocal;
                if std::mem::take(&mut stream.wants_write) {
                    self.streams.unqueue(key);
                }
            }
            Some(_) => self.streams.remove(key),
            None => {}
        }
    }
}

/// Minimum length of a shortened DATA frame that allows the peer further WINDOW_UPDATE frames, in octets. A
/// flow-control window has shortened such a frame. Without this minimum, a peer could open its window octet by octet
/// for ever: each WINDOW_UPDATE would cause a DATA frame that allows the next one.
const LARGE_DATA: usize = 1024;

/// Number of entries that `refused` may contain beyond twice the number of open streams. Above this number, entries of
/// closed streams are removed.
const REFUSED_MIN: usize = 64;

/// Number of WINDOW_UPDATE frames that each DATA frame allows the peer: one for the stream and one for the connection.
const WINDOW_UPDATES_FOR_DATA: u32 = 2;
