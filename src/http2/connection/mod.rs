//! One HTTP/2 connection, made of the parts in [`super`].
//!
//! This file defines the type [`Connection`], its start and its shutdown. It also parses received frames, and passes
//! each frame to the handler for its type, in `recv`. The methods in `send` send frames.

mod event;
mod field_block;
mod head_memo;
mod recv;
mod send;

pub use event::{Event, Received};
pub use send::SendField;

use super::PREFACE;
use super::client::OpenError;
use super::error::{ConnectionError, ErrorCode, FrameError};
use super::flood::FloodGuard;
use super::flow_control::{RecvWindow, SendWindow};
use super::frame::goaway::Goaway;
use super::frame::ping::Ping;
use super::frame::{self, FrameHead, FrameType};
use super::limits::{self, FieldBlocks};
use super::reset_memory::ResetMemory;
use super::settings::{Config, PeerSettings, UpgradeSettings};
use super::stream::{Stream, StreamState};
use super::stream_id::StreamId;
use super::streams::{Store, StreamKey};
use crate::hpack::{Decoder, DecoderLimits, Encoder, FieldBuf};
use field_block::PendingBlock;
use head_memo::HeadMemo;
use std::collections::VecDeque;

/// One connection, server or client.
///
/// # Order of calls
/// 1. Read from the peer into a buffer of at least [`limits::RECV_BUFFER_BYTES_MIN`] octets.
/// 2. Call [`recv`](Self::recv) with the unconsumed input until its event is `None`. Act on each event with
///    `send_*` and [`reset`](Self::reset). The remaining input is then a part of a frame.
/// 3. Call [`poll_writable`](Self::poll_writable) until it returns `None` or you have written enough. Send more
///    data of each stream that it returns.
/// 4. Write `out` to the peer. While much of `out` is unwritten, neither read nor call `recv`. So a peer that does
///    not read cannot make `out` grow.
/// 5. After an error, or once [`is_finished`](Self::is_finished), write `out` a last time and close.
///
/// `out` always receives whole frames. `now_ms` is the time of a monotonic clock, in milliseconds.
///
/// # Time limits
/// The caller enforces time limits, with [`reset`](Self::reset) and [`abort`](Self::abort), on:
/// - the preface and the first request;
/// - an incomplete request (an event without `end_stream`);
/// - an incomplete field block ([`awaits_continuation`](Self::awaits_continuation));
/// - a stream that waits for a window (from a [`send_data`](Self::send_data) that did not send all, until
///   `poll_writable` returns the stream);
/// - an idle connection ([`stream_count`](Self::stream_count));
/// - a request that got its response before its end ([`refused_since_ms`](Self::refused_since_ms)).
///
/// # Invariants
/// The slab of streams and the index of stream ids agree. A stream is in the write queue if it wants to write and its
/// window is open. A stream that does not want to write is not in the write queue. The peer has no more open streams
/// than this side allows.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    phase: Phase,
    shutdown: Shutdown,
    config: Config,
    /// Whether the peer has acknowledged our SETTINGS. Until then, the peer may use the protocol's default window on a
    /// new stream.
    settings_acked: bool,
    decoder: Decoder,
    encoder: Encoder,
    head_memo: HeadMemo,
    streams: Store,
    flood_guard: FloodGuard,
    peer: PeerSettings,
    send_window: SendWindow,
    recv_window: RecvWindow,
    /// Highest stream that the peer has opened.
    last_remote_id: StreamId,
    /// Id of the next stream that this side opens; `None` when all ids are used. A server opens no streams, so the
    /// value never changes on a server.
    next_local_id: Option<StreamId>,
    /// The last stream id of the peer's GOAWAY. The peer does not serve our streams above this id.
    remote_goaway: Option<StreamId>,
    pending_block: Option<PendingBlock>,
    /// Requests that got a response before their end, with the time of the response in ms; oldest first. Some of the
    /// streams may be closed.
    refused: VecDeque<(u64, StreamKey)>,
    reset_memory: ResetMemory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client's preface has not been received yet.
    Preface,
    /// The preface was received; the first frame must be SETTINGS.
    FirstFrame,
    Open,
    /// This side has sent GOAWAY with an error. It ignores further input.
    Failed,
}

/// Which GOAWAY frames without an error this side has sent (RFC 9113 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// The first GOAWAY was sent. The peer should open no more streams, but new streams may be in flight.
    Announced,
    /// The second GOAWAY was sent. Streams above this id are not served.
    Final(StreamId),
}

/// The arguments of [`Connection::recv`] that the frame handlers need.
struct RecvContext<'t> {
    now_ms: u64,
    fields: &'t mut FieldBuf,
    out: &'t mut Vec<u8>,
}

impl Connection {
    /// Creates the server's side of a new connection. Appends the server's SETTINGS to `out`, and a WINDOW_UPDATE that
    /// enlarges the window of the connection.
    #[must_use]
    pub fn server(config: Config, out: &mut Vec<u8>) -> Self {
        frame::settings::encode_into(&config.of_server(), out);
        Self::new(Role::Server, config, out)
    }

    /// Creates the server's side of a connection upgraded from HTTP/1.1 by `Upgrade: h2c` (RFC 7540 §3.2). The
    /// returned stream is for the response to the upgrade request. The body of that request has ended. The caller has
    /// already appended the 101 response to `out`.
    pub fn server_upgraded(config: Config, settings: &UpgradeSettings, out: &mut Vec<u8>) -> (Self, StreamKey) {
        let mut connection = Self::server(config, out);
        let applied = connection.peer.apply(settings.payload(), false, &mut connection.encoder);
        debug_assert!(applied.is_ok(), "the settings were checked when they were parsed");
        connection.last_remote_id = StreamId::FIRST;
        let mut stream = connection.new_stream(StreamId::FIRST, StreamState::HalfClosedRemote);
        stream.head_received = true;
        let key = connection.streams.insert(stream);
        (connection, key)
    }

    /// Creates the client's side of a new connection. Appends the preface and the client's SETTINGS to `out`, and a
    /// WINDOW_UPDATE that enlarges the window of the connection.
    #[must_use]
    pub fn client(config: Config, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        frame::settings::encode_into(&config.of_client(), out);
        Self::new(Role::Client, config, out)
    }

    fn new(role: Role, config: Config, out: &mut Vec<u8>) -> Self {
        let mut recv_window = RecvWindow::new(
            limits::WINDOW_DEFAULT,
            config.connection_window.clamp(limits::WINDOW_DEFAULT, limits::WINDOW_MAX),
        );
        if let Some(increment) = recv_window.poll_update() {
            frame::window_update::encode_into(StreamId::CONNECTION, increment, out);
        }
        let FieldBlocks { served_octets_max, list_octets_max, .. } = config.field_blocks();
        let list_limits = DecoderLimits { list_size_max: served_octets_max, list_size_abort: list_octets_max };
        Self {
            role,
            phase: if role == Role::Server { Phase::Preface } else { Phase::FirstFrame },
            shutdown: Shutdown::No,
            config,
            settings_acked: false,
            decoder: Decoder::new(limits::TABLE_SIZE_MAX, list_limits),
            encoder: Encoder::new(limits::TABLE_SIZE_MAX),
            head_memo: HeadMemo::default(),
            streams: Store::default(),
            flood_guard: FloodGuard::new(),
            peer: PeerSettings::default(),
            send_window: SendWindow::new(limits::WINDOW_DEFAULT),
            recv_window,
            last_remote_id: StreamId::CONNECTION,
            next_local_id: Some(StreamId::FIRST),
            remote_goaway: None,
            pending_block: None,
            refused: VecDeque::new(),
            reset_memory: ResetMemory::default(),
        }
    }

    /// Handles the peer's input up to the first event. Appends to `out` the frames that the protocol requires in
    /// return, such as acknowledgements. After an error, appends GOAWAY.
    ///
    /// # Errors
    /// The connection has failed. Write `out` and close.
    pub fn recv<'i>(
        &mut self,
        input: &'i [u8],
        now_ms: u64,
        fields: &mut FieldBuf,
        out: &mut Vec<u8>,
    ) -> Result<Received<'i>, ConnectionError> {
        let result = self.recv_to_event(input, &mut RecvContext { now_ms, fields, out });
        if let Err(error) = &result {
            self.abort(error.code(), out);
        }
        self.check_invariants();
        result
    }

    fn recv_to_event<'i>(
        &mut self,
        input: &'i [u8],
        cx: &mut RecvContext<'_>,
    ) -> Result<Received<'i>, ConnectionError> {
        let mut rest = input;
        if self.phase == Phase::Preface {
            let len = PREFACE.len().min(input.len());
            if input.get(..len) != PREFACE.get(..len) {
                return Err(ConnectionError::Preface);
            }
            let Some((_, after)) = input.split_first_chunk::<{ PREFACE.len() }>() else {
                return Ok(Received { consumed: 0, event: None });
            };
            self.phase = Phase::FirstFrame;
            rest = after;
        }
        let mut event = None;
        while event.is_none() {
            if self.phase == Phase::Failed {
                return Ok(Received { consumed: input.len(), event: None });
            }
            let Some((head, payload)) = frame::split_first(rest)? else { break };
            event = self.recv_frame(&head, payload, cx)?;
            rest = rest.get(frame::HEAD_BYTES + head.length..).unwrap_or_default();
        }
        Ok(Received { consumed: input.len() - rest.len(), event })
    }

    fn recv_frame<'i>(
        &mut self,
        head: &FrameHead,
        payload: &'i [u8],
        cx: &mut RecvContext<'_>,
    ) -> Result<Option<Event<'i>>, ConnectionError> {
        if self.phase == Phase::FirstFrame {
            if head.frame_type != FrameType::Settings || head.has(frame::ACK) {
                return Err(ConnectionError::FirstFrameNotSettings);
            }
            self.phase = Phase::Open;
        }
        if let Some(block) = &self.pending_block
            && (head.frame_type != FrameType::Continuation || head.stream_id != block.stream_id())
        {
            return Err(ConnectionError::FieldBlockInterrupted);
        }
        let result = match head.frame_type {
            FrameType::Data => self.recv_data(head, payload, cx),
            FrameType::Headers => self.recv_headers(head, payload, cx),
            FrameType::Priority => self.recv_priority(head, payload, cx),
            FrameType::RstStream => self.recv_rst_stream(head, payload, cx),
            FrameType::Settings => self.recv_settings(head, payload, cx),
            FrameType::PushPromise => Err(ConnectionError::PushPromise.into()),
            FrameType::Ping => self.recv_ping(head, payload, cx),
            FrameType::Goaway => self.recv_goaway(head, payload, cx),
            FrameType::WindowUpdate => self.recv_window_update(head, payload, cx),
            FrameType::Continuation => self.recv_continuation(payload, head.has(frame::END_HEADERS), cx),
            FrameType::Unknown => self.recv_unknown(cx),
        };
        match result {
            Ok(event) => Ok(event),
            Err(FrameError::Connection(error)) => Err(error),
            Err(FrameError::Stream(error)) => self.fail_stream(head.stream_id, error, cx),
        }
    }

    /// Begins a graceful shutdown with a GOAWAY, which asks the peer to open no more streams. Open streams continue.
    /// New streams are served until the peer has certainly read the GOAWAY, or until
    /// [`finish_shutdown`](Self::finish_shutdown). Later streams are ignored (RFC 9113 §6.8).
    pub fn begin_shutdown(&mut self, out: &mut Vec<u8>) {
        if self.shutdown != Shutdown::No || self.phase == Phase::Failed {
            return;
        }
        self.shutdown = Shutdown::Announced;
        Goaway { last_stream_id: StreamId::MAX, code: ErrorCode::NO_ERROR }.encode_into(out);
        Ping { payload: SHUTDOWN_PING, ack: false }.encode_into(out);
    }

    /// Sends the second GOAWAY, after which no new stream is served. Does not wait longer for the peer's
    /// acknowledgement of [`begin_shutdown`](Self::begin_shutdown).
    pub fn finish_shutdown(&mut self, out: &mut Vec<u8>) {
        if matches!(self.shutdown, Shutdown::Final(_)) || self.phase == Phase::Failed {
            return;
        }
        self.shutdown = Shutdown::Final(self.last_remote_id);
        Goaway { last_stream_id: self.last_remote_id, code: ErrorCode::NO_ERROR }.encode_into(out);
    }

    /// Ends the connection and all streams at once, with GOAWAY and `code`.
    pub fn abort(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        if self.phase == Phase::Failed {
            return;
        }
        self.phase = Phase::Failed;
        self.streams = Store::default();
        self.pending_block = None;
        // RFC 9113 §6.8: a later GOAWAY names no higher stream than an earlier one.
        let last_stream_id = match self.shutdown {
            Shutdown::Final(last) => last,
            Shutdown::No | Shutdown::Announced => self.last_remote_id,
        };
        Goaway { last_stream_id, code }.encode_into(out);
    }

    /// Whether the caller can close the connection once `out` is written. The connection must have failed, or its
    /// graceful shutdown must be complete.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self.phase {
            Phase::Failed => true,
            _ => matches!(self.shutdown, Shutdown::Final(_)) && self.streams.is_empty(),
        }
    }

    /// Whether the peer is a front proxy for many clients ([`Config::speaks_for_many`]).
    #[must_use]
    pub fn speaks_for_many(&self) -> bool {
        self.config.speaks_for_many
    }

    /// Returns the number of streams that are not closed.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Whether the stream is not closed.
    #[must_use]
    pub fn has_stream(&self, key: StreamKey) -> bool {
        self.streams.get(key).is_some()
    }

    /// Whether the peer's first SETTINGS were received.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether the peer has acknowledged our SETTINGS.
    #[cfg(test)]
    pub(super) fn settings_acked(&self) -> bool {
        self.settings_acked
    }

    /// Whether a field block is incomplete. Until its end, the peer may send only CONTINUATION frames.
    #[must_use]
    pub fn awaits_continuation(&self) -> bool {
        self.pending_block.is_some()
    }

    /// Returns the number of octets received of an incomplete field block; 0 if no field block is incomplete.
    #[must_use]
    pub fn field_block_octets(&self) -> usize {
        self.pending_block.as_ref().map_or(0, PendingBlock::octet_count)
    }

    /// Client: opens a stream.
    pub(super) fn open_stream(&mut self, is_head: bool) -> Result<StreamKey, OpenError> {
        let may_open = self.role == Role::Client && self.phase != Phase::Failed && self.shutdown == Shutdown::No;
        let id = self.next_local_id.filter(|_| may_open && self.remote_goaway.is_none()).ok_or(OpenError::GoingAway)?;
        if self.streams.len() >= usize::try_from(self.peer.streams_max).unwrap_or(usize::MAX) {
            return Err(OpenError::Concurrency);
        }
        self.next_local_id = id.next();
        let mut stream = self.new_stream(id, StreamState::Open);
        stream.head_sent = true;
        stream.is_bodiless = is_head;
        Ok(self.streams.insert(stream))
    }

    fn new_stream(&self, id: StreamId, state: StreamState) -> Stream {
        let announced = self.config.stream_window.min(limits::WINDOW_MAX);
        let recv_window = if self.settings_acked {
            RecvWindow::new(announced, announced)
        } else {
            RecvWindow::unacknowledged(announced, limits::WINDOW_DEFAULT)
        };
        Stream::new(id, state, SendWindow::new(self.peer.initial_window), recv_window)
    }

    /// Whether the stream is idle: neither side has opened it.
    #[inline]
    fn is_idle(&self, id: StreamId) -> bool {
        match self.role {
            Role::Server => !id.is_of_client() || id > self.last_remote_id,
            Role::Client => !id.is_of_client() || self.next_local_id.is_some_and(|next| id >= next),
        }
    }

    /// Whether to ignore frames on this closed stream. They are ignored if the id is above the last stream id of our
    /// GOAWAY, or if this side has or may have reset the stream ([`ResetMemory`]).
    fn is_ignored(&self, id: StreamId) -> bool {
        matches!(self.shutdown, Shutdown::Final(last) if self.role == Role::Server && id > last)
            || self.reset_memory.covers(id)
    }

    /// Sets the receive windows. Tests need windows that are nearly used up. A peer cannot cause this state, since
    /// windows are refilled as they are used.
    #[cfg(test)]
    pub(super) fn set_recv_windows(&mut self, key: StreamKey, stream_left: u32, connection_left: u32) {
        self.recv_window = RecvWindow::new(connection_left, 0);
        if let Some(stream) = self.streams.get_mut(key) {
            stream.recv_window = RecvWindow::new(stream_left, 0);
        }
    }

    pub(super) fn check_invariants(&self) {
        #[cfg(debug_assertions)]
        {
            // Above 100 streams, the check runs only if the number of streams is a multiple of 61. Otherwise tests
            // would take minutes. The number of streams often changes by sixteen, since requests are served sixteen at
            // a time. A multiple of a prime number such as 61 occurs nevertheless.
            if self.streams.len() > 100 && !self.streams.len().is_multiple_of(61) {
                return;
            }
            self.streams.check_invariants();
            let streams_max = match self.role {
                Role::Server => self.config.streams_max.max(1),
                Role::Client => u32::MAX,
            };
            assert!(self.streams.len() <= usize::try_from(streams_max).unwrap_or(usize::MAX));
            for (key, stream) in self.streams.iter() {
                assert!(!self.is_idle(key.id()), "the store contains no idle stream");
                assert!(stream.state != StreamState::HalfClosedLocal || stream.head_sent, "no end before the head");
                assert!(stream.state != StreamState::HalfClosedLocal || !stream.wants_write, "nothing after the end");
            }
            assert!(self.phase != Phase::Failed || self.streams.is_empty());
        }
    }
}

/// Payload of the PING that follows our first GOAWAY. The acknowledgement of this PING shows that the peer has read
/// the GOAWAY.
const SHUTDOWN_PING: [u8; 8] = *b"shutdown";
