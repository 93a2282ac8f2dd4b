//! One handler for each frame type, except the frame types with field blocks (see `field_block`).

use super::{Connection, Event, RecvContext, Role, SHUTDOWN_PING, Shutdown};
use crate::http2::error::{ConnectionError, Flood, FrameError, Initiator, Malformed, StreamError};
use crate::http2::frame::data::Data;
use crate::http2::frame::goaway::Goaway;
use crate::http2::frame::ping::Ping;
use crate::http2::frame::settings::{SettingsFrame, encode_ack_into};
use crate::http2::frame::{FrameHead, priority, rst_stream, window_update};
use crate::http2::stream::StreamState;
use crate::http2::stream_id::StreamId;

/// Result of handling a frame: the event that the frame causes, if any.
pub(super) type Handled<'i> = Result<Option<Event<'i>>, FrameError>;

impl Connection {
    pub(super) fn recv_data<'i>(
        &mut self,
        head: &FrameHead,
        payload: &'i [u8],
        cx: &mut RecvContext<'_>,
    ) -> Handled<'i> {
        let Data { data, end_stream } = Data::parse(head, payload)?;
        // The octets count for the connection's window even if the stream is closed (RFC 9113 §6.9).
        self.recv_window.recv(payload.len()).map_err(|_| ConnectionError::FlowControl)?;
        if let Some(increment) = self.recv_window.poll_update() {
            window_update::encode_into(StreamId::CONNECTION, increment, cx.out);
        }
        if data.is_empty() && !end_stream {
            self.flood_guard.count(Flood::EmptyFrames, cx.now_ms)?;
        }
        let Some(key) = self.streams.find(head.stream_id) else {
            return self.recv_data_on_no_stream(head.stream_id);
        };
        let stream = self.streams.get_mut(key).ok_or(ConnectionError::StreamClosed)?;
        if stream.state == StreamState::HalfClosedRemote {
            return Err(StreamError::StreamClosed.into());
        }
        if !stream.head_received {
            return Err(StreamError::Malformed(Malformed::Status).into());
        }
        stream.recv_window.recv(payload.len()).map_err(|_| StreamError::FlowControl)?;
        if !stream.take_body(data.len(), end_stream) {
            return Err(StreamError::Malformed(Malformed::ContentLength).into());
        }
        // A server that has sent the head of the response needs no more of the request's body, even while the response
        // waits for a window.
        let is_wanted = self.role == Role::Client || !stream.head_sent;
        if end_stream {
            self.end_remote(key);
        } else {
            if is_wanted && let Some(increment) = stream.recv_window.poll_update() {
                window_update::encode_into(head.stream_id, increment, cx.out);
            }
            if data.is_empty() {
                return Ok(None);
            }
        }
        Ok(is_wanted.then_some(Event::Data { stream: key, data, end_stream }))
    }

    #[cold]
    fn recv_data_on_no_stream<'i>(&self, id: StreamId) -> Handled<'i> {
        if self.is_idle(id) {
            Err(ConnectionError::StreamIdle.into())
        } else if self.is_ignored(id) {
            Ok(None)
        } else {
            Err(StreamError::StreamClosed.into())
        }
    }

    pub(super) fn recv_priority<'i>(&mut self, head: &FrameHead, payload: &[u8], cx: &RecvContext<'_>) -> Handled<'i> {
        self.flood_guard.count(Flood::IgnoredFrames, cx.now_ms)?;
        match priority::check(head, payload) {
            Ok(()) => Ok(None),
            // An idle stream cannot be reset (RFC 9113 §6.4), so the error ends the connection.
            Err(FrameError::Stream(error)) if self.is_idle(head.stream_id) => Err(match error {
                StreamError::PrioritySize => ConnectionError::FrameSize.into(),
                _ => ConnectionError::PrioritySelfDependency.into(),
            }),
            Err(error) => Err(error),
        }
    }

    pub(super) fn recv_rst_stream<'i>(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        cx: &RecvContext<'_>,
    ) -> Handled<'i> {
        let code = rst_stream::parse(head, payload)?;
        if self.is_idle(head.stream_id) {
            return Err(ConnectionError::StreamIdle.into());
        }
        // Resets of closed streams count too. In a rapid-reset attack, a stream may be closed already, because this
        // side responded quickly.
        self.flood_guard.count(Flood::Resets, cx.now_ms)?;
        let Some(key) = self.streams.find(head.stream_id) else { return Ok(None) };
        self.flood_guard.allow(Flood::Answers, 1);
        self.streams.remove(key);
        Ok(Some(Event::Reset { stream: key, code, by: Initiator::Remote }))
    }

    pub(super) fn recv_settings<'i>(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        cx: &mut RecvContext<'_>,
    ) -> Handled<'i> {
        let frame = SettingsFrame::parse(head, payload)?;
        self.flood_guard.count(Flood::Answers, cx.now_ms)?;
        let SettingsFrame::Values(values) = frame else {
            self.settings_acked = true;
            return Ok(None);
        };
        let window_delta = self.peer.apply(values, self.role == Role::Client, &mut self.encoder)?;
        if window_delta != 0 {
            // RFC 9113 §6.9.2: the change applies to the windows of all streams. An overflow is a connection error.
            for stream in self.streams.iter_mut() {
                stream.send_window.shift(window_delta).map_err(|_| ConnectionError::WindowOverflow)?;
            }
            self.streams.queue_ready();
        }
        encode_ack_into(cx.out);
        Ok(None)
    }

    pub(super) fn recv_ping<'i>(&mut self, head: &FrameHead, payload: &[u8], cx: &mut RecvContext<'_>) -> Handled<'i> {
        let ping = Ping::parse(head, payload)?;
        self.flood_guard.count(Flood::Answers, cx.now_ms)?;
        if !ping.ack {
            Ping { ack: true, ..ping }.encode_into(cx.out);
            return Ok(None);
        }
        if self.shutdown == Shutdown::Announced && ping.payload == SHUTDOWN_PING {
            self.finish_shutdown(cx.out);
        }
        // Acknowledgements of other PINGs do not matter.
        Ok(None)
    }

    pub(super) fn recv_goaway<'i>(&mut self, head: &FrameHead, payload: &[u8], cx: &RecvContext<'_>) -> Handled<'i> {
        let Goaway { last_stream_id, code } = Goaway::parse(head, payload)?;
        self.flood_guard.count(Flood::Answers, cx.now_ms)?;
        self.remote_goaway = Some(last_stream_id);
        Ok(Some(Event::Goaway { last_stream_id, code }))
    }

    pub(super) fn recv_window_update<'i>(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        cx: &RecvContext<'_>,
    ) -> Handled<'i> {
        self.flood_guard.count(Flood::WindowUpdates, cx.now_ms)?;
        if head.stream_id == StreamId::CONNECTION {
            let increment = window_update::parse(head, payload)?;
            self.send_window.widen(increment).map_err(|_| ConnectionError::WindowOverflow)?;
            return Ok(None);
        }
        if self.is_idle(head.stream_id) {
            return Err(ConnectionError::StreamIdle.into());
        }
        let key = self.streams.find(head.stream_id);
        let Some(stream) = key.and_then(|key| self.streams.get_mut(key)) else {
            // The stream is closed. The peer may have sent the WINDOW_UPDATE before it received the end of our side of
            // the stream. So the frame is no error, unless its size is wrong.
            return match window_update::parse(head, payload) {
                Err(FrameError::Connection(error)) => Err(error.into()),
                _ => Ok(None),
            };
        };
        let increment = window_update::parse(head, payload)?;
        stream.send_window.widen(increment).map_err(|_| StreamError::WindowOverflow)?;
        if let Some(key) = key {
            self.streams.queue_if_ready(key);
        }
        Ok(None)
    }

    /// Ignores a frame of unknown type (RFC 9113 §5.5).
    pub(super) fn recv_unknown<'i>(&mut self, cx: &RecvContext<'_>) -> Handled<'i> {
        self.flood_guard.count(Flood::IgnoredFrames, cx.now_ms)?;
        Ok(None)
    }

    /// Resets a stream because of the peer's error. The stream may be closed, or may never have been opened.
    #[cold]
    pub(super) fn fail_stream<'i>(
        &mut self,
        id: StreamId,
        error: StreamError,
        cx: &mut RecvContext<'_>,
    ) -> Result<Option<Event<'i>>, ConnectionError> {
        // A peer that provokes resets by this side costs as much as a peer that sends resets (CVE-2025-8671).
        self.flood_guard.count(Flood::Resets, cx.now_ms)?;
        let code = error.code();
        rst_stream::encode_into(id, code, cx.out);
        self.reset_memory.insert(id);
        let Some(key) = self.streams.find(id) else { return Ok(None) };
        self.streams.remove(key);
        Ok(Some(Event::Reset { stream: key, code, by: Initiator::Local }))
    }
}
