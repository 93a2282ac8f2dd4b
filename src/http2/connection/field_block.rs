//! Assembles field blocks from HEADERS and CONTINUATION frames, and decodes them into requests, responses and trailers.

use super::recv::Handled;
use super::{Connection, Event, RecvContext, Role, Shutdown};
use crate::hpack::{Decoded, Field, FieldBuf};
use crate::http2::error::{ConnectionError, Flood, FrameError, Malformed, StreamError};
use crate::http2::frame::FrameHead;
use crate::http2::frame::headers::{Headers, begin_headers_into, finish_headers};
use crate::http2::head::{RequestHead, ResponseHead, check_trailers};
use crate::http2::limits::FIELD_LIST_BYTES_MAX;
use crate::http2::stream::StreamState;
use crate::http2::stream_id::StreamId;
use crate::http2::streams::StreamKey;

/// An incomplete field block. Only CONTINUATION frames of this block may follow (RFC 9113 §4.3).
#[derive(Debug)]
pub(super) struct PendingBlock {
    start: BlockStart,
    /// Number of CONTINUATION frames received.
    continuations: u32,
    /// Octets of the block that were received so far.
    octets: Vec<u8>,
}

/// The values of a HEADERS frame other than its field block.
#[derive(Clone, Copy, Debug)]
struct BlockStart {
    stream_id: StreamId,
    end_stream: bool,
    self_dependent: bool,
}

impl PendingBlock {
    pub(super) fn stream_id(&self) -> StreamId {
        self.start.stream_id
    }

    /// Returns the number of octets received.
    pub(super) fn octet_count(&self) -> usize {
        self.octets.len()
    }
}

impl Connection {
    pub(super) fn recv_headers<'i>(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        cx: &mut RecvContext<'_>,
    ) -> Handled<'i> {
        let headers = Headers::parse(head, payload)?;
        let start = BlockStart {
            stream_id: head.stream_id,
            end_stream: headers.end_stream,
            self_dependent: headers.self_dependent,
        };
        if headers.end_headers {
            return self.recv_field_block(start, headers.fragment, cx);
        }
        self.pending_block = Some(PendingBlock { start, continuations: 0, octets: headers.fragment.to_vec() });
        Ok(None)
    }

    /// Handles CONTINUATION. If a field block is pending, `recv_frame` has checked that the frame belongs to the
    /// block's stream.
    pub(super) fn recv_continuation<'i>(
        &mut self,
        fragment: &[u8],
        end_headers: bool,
        cx: &mut RecvContext<'_>,
    ) -> Handled<'i> {
        let mut block = self.pending_block.take().ok_or(ConnectionError::ContinuationUnexpected)?;
        let limits = self.config.field_blocks();
        block.continuations += 1;
        if block.continuations > limits.continuations_max {
            return Err(ConnectionError::ContinuationFlood.into());
        }
        if block.octets.len() + fragment.len() > limits.octets_max {
            return Err(ConnectionError::FieldBlockSize.into());
        }
        block.octets.extend_from_slice(fragment);
        if end_headers {
            return self.recv_field_block(block.start, &block.octets, cx);
        }
        self.pending_block = Some(block);
        Ok(None)
    }

    /// Handles a whole field block. Every block must be decoded, even if its stream is refused or closed: later blocks
    /// refer to the entries that the block adds to the dynamic table.
    fn recv_field_block<'i>(&mut self, start: BlockStart, block: &[u8], cx: &mut RecvContext<'_>) -> Handled<'i> {
        let decoded = self.decoder.decode(block, cx.fields).map_err(ConnectionError::Compression)?;
        let id = start.stream_id;
        if self.is_idle(id) {
            if self.role == Role::Client || !id.is_of_client() {
                return Err(ConnectionError::StreamIdle.into());
            }
            self.last_remote_id = id;
            return self.recv_request(start, decoded, cx);
        }
        match self.streams.find(id) {
            Some(key) if decoded == Decoded::Whole => self.recv_later_block(key, start, cx).map(Some),
            Some(_) => Err(StreamError::FieldListSize.into()),
            None if self.is_ignored(id) => {
                self.flood_guard.count(Flood::IgnoredFrames, cx.now_ms)?;
                Ok(None)
            }
            None => Err(ConnectionError::StreamClosed.into()),
        }
    }

    fn recv_request<'i>(&mut self, start: BlockStart, decoded: Decoded, cx: &mut RecvContext<'_>) -> Handled<'i> {
        if matches!(self.shutdown, Shutdown::Final(_)) {
            self.flood_guard.count(Flood::IgnoredFrames, cx.now_ms)?;
            return Ok(None);
        }
        if start.self_dependent {
            return Err(StreamError::SelfDependency.into());
        }
        if self.streams.len() >= usize::try_from(self.config.streams_max).unwrap_or(usize::MAX) {
            return Err(StreamError::Concurrency.into());
        }
        if self.config.speaks_for_many {
            self.flood_guard.allow(Flood::Resets, 1);
        }
        if decoded == Decoded::Oversized || has_oversized_field(cx.fields) {
            // RFC 6585 §5: 431 Request Header Fields Too Large.
            return self.refuse_request(431, start, cx);
        }
        let head = match RequestHead::check(cx.fields) {
            Ok(head) => head,
            Err(malformed) if malformed.is_of_the_client() => return self.refuse_request(400, start, cx),
            Err(malformed) => return Err(StreamError::Malformed(malformed).into()),
        };
        let state = if start.end_stream { StreamState::HalfClosedRemote } else { StreamState::Open };
        let mut stream = self.new_stream(start.stream_id, state);
        stream.head_received = true;
        stream.body_left = head.content_length;
        if !stream.take_body(0, start.end_stream) {
            return Err(StreamError::Malformed(Malformed::ContentLength).into());
        }
        let key = self.streams.insert(stream);
        Ok(Some(Event::Request { stream: key, head, end_stream: start.end_stream }))
    }

    /// Refuses a request with a response that consists only of `:status`. The caller gets no event. A status tells the
    /// client more than a reset.
    #[cold]
    fn refuse_request<'i>(&mut self, status: u16, start: BlockStart, cx: &mut RecvContext<'_>) -> Handled<'i> {
        self.flood_guard.count(Flood::Resets, cx.now_ms)?;
        let at = begin_headers_into(start.stream_id, true, cx.out);
        self.encoder.begin_block(cx.out);
        self.encoder.encode_status(status, cx.out);
        finish_headers(start.stream_id, at, cx.out);
        if !start.end_stream {
            if self.config.speaks_for_many {
                // The peer is a front proxy. It may reset the stream rather than send the rest of its client's body.
                // This reset must not count as an attack, so one more reset is allowed.
                self.flood_guard.allow(Flood::Resets, 1);
            }
            let mut stream = self.new_stream(start.stream_id, StreamState::HalfClosedLocal);
            (stream.head_received, stream.head_sent) = (true, true);
            let key = self.streams.insert(stream);
            self.refuse_rest(key, cx.now_ms);
        }
        Ok(None)
    }

    /// Handles a field block on an open stream: the response, or trailers.
    fn recv_later_block<'i>(
        &mut self,
        key: StreamKey,
        start: BlockStart,
        cx: &RecvContext<'_>,
    ) -> Result<Event<'i>, FrameError> {
        let stream = self.streams.get_mut(key).ok_or(ConnectionError::StreamClosed)?;
        if stream.state == StreamState::HalfClosedRemote {
            return Err(StreamError::StreamClosed.into());
        }
        if start.self_dependent {
            return Err(StreamError::SelfDependency.into());
        }
        let end_stream = start.end_stream;
        if stream.head_received {
            check_trailers(cx.fields).map_err(StreamError::Malformed)?;
            if !end_stream {
                return Err(StreamError::Malformed(Malformed::TrailersWithoutEnd).into());
            }
            if !stream.take_body(0, true) {
                return Err(StreamError::Malformed(Malformed::ContentLength).into());
            }
            self.end_remote(key);
            return Ok(Event::Trailers { stream: key });
        }
        let head = ResponseHead::check(cx.fields).map_err(StreamError::Malformed)?;
        if head.is_informational() {
            if end_stream {
                return Err(StreamError::Malformed(Malformed::Status).into());
            }
        } else {
            stream.head_received = true;
            // RFC 9110 §6.4.1: a response to HEAD, or with 204 or 304, has no body, even if it has a `Content-Length`.
            let is_bodiless = stream.is_bodiless || matches!(head.status, 204 | 304);
            stream.body_left = if is_bodiless { Some(0) } else { head.content_length };
            if !stream.take_body(0, end_stream) {
                return Err(StreamError::Malformed(Malformed::ContentLength).into());
            }
        }
        if end_stream {
            self.end_remote(key);
        }
        Ok(Event::Response { stream: key, head, end_stream })
    }

    /// Ends the peer's side of the stream.
    pub(super) fn end_remote(&mut self, key: StreamKey) {
        match self.streams.get_mut(key) {
            Some(stream) if stream.state == StreamState::Open => stream.state = StreamState::HalfClosedRemote,
            Some(_) => self.streams.remove(key),
            None => {}
        }
    }
}

/// Whether one field alone exceeds [`FIELD_LIST_BYTES_MAX`]. Only a front proxy's list can contain such a field: the
/// list of any other peer is limited to this size. The caller refuses the request. A `:path` or value of this length
/// would exceed limits of the API anyway, such as the limit of a selector.
fn has_oversized_field(fields: &FieldBuf) -> bool {
    let is_oversized = |field: Field<'_>| field.name.len() + field.value.len() > FIELD_LIST_BYTES_MAX;
    fields.list_size() > FIELD_LIST_BYTES_MAX && fields.iter().any(is_oversized)
}
