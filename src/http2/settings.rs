//! The settings of both sides (RFC 9113 §6.5.2).

use super::error::ConnectionError;
use super::frame::settings::{self, Setting};
use super::limits::{self, FieldBlocks};
use crate::hpack::Encoder;

/// Our settings that may differ from the defaults in [`limits`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Maximum number of streams that the peer may have open at once.
    pub streams_max: u32,
    /// Receive window of a stream, in octets.
    pub stream_window: u32,
    /// Receive window of the connection, in octets; at least [`limits::WINDOW_DEFAULT`].
    pub connection_window: u32,
    /// Whether the peer is a front proxy for many clients. The cancellations of one client must not count against the
    /// other clients. So each request adds one to the allowance [`limits::RESETS`]. Nor may a long head of one client
    /// end the connection of the others, and a user may have many groups. So the limits
    /// [`limits::FIELD_BLOCKS_OF_FRONT_PROXY`] apply.
    pub speaks_for_many: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams_max: limits::STREAMS_MAX,
            stream_window: limits::STREAM_WINDOW,
            connection_window: limits::CONNECTION_WINDOW,
            speaks_for_many: false,
        }
    }
}

impl Config {
    /// Returns the limits of the peer's field blocks.
    pub(super) fn field_blocks(&self) -> FieldBlocks {
        if self.speaks_for_many { limits::FIELD_BLOCKS_OF_FRONT_PROXY } else { limits::FIELD_BLOCKS }
    }

    /// Returns the setting for the largest field list that is served.
    fn field_list_size(&self) -> Setting {
        let octets_max = self.field_blocks().served_octets_max;
        (settings::MAX_HEADER_LIST_SIZE, u32::try_from(octets_max).unwrap_or(u32::MAX))
    }

    /// Returns the settings that a server announces.
    pub(super) fn of_server(&self) -> [Setting; 3] {
        [
            (settings::MAX_CONCURRENT_STREAMS, self.streams_max),
            (settings::INITIAL_WINDOW_SIZE, self.stream_window.min(limits::WINDOW_MAX)),
            self.field_list_size(),
        ]
    }

    /// Returns the settings that a client announces.
    pub(super) fn of_client(&self) -> [Setting; 3] {
        [
            (settings::ENABLE_PUSH, 0),
            (settings::INITIAL_WINDOW_SIZE, self.stream_window.min(limits::WINDOW_MAX)),
            self.field_list_size(),
        ]
    }
}

/// The peer's settings that affect us. The peer's maximum frame size is not among them, because we send no frame above
/// the smallest maximum that a peer can set.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    /// Send window of a new stream, in octets; at most [`limits::WINDOW_MAX`].
    pub(super) initial_window: u32,
    /// Maximum number of streams that we may have open at once.
    pub(super) streams_max: u32,
    /// Whether the peer's first SETTINGS were received.
    is_known: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self { initial_window: limits::WINDOW_DEFAULT, streams_max: limits::STREAMS_BEFORE_SETTINGS, is_known: false }
    }
}

impl PeerSettings {
    /// Applies the payload of a SETTINGS frame. Returns the change of the send window of every stream, in octets. There
    /// is only one change for each frame, even if the frame repeats `SETTINGS_INITIAL_WINDOW_SIZE`, since applying a
    /// change visits all streams.
    pub(super) fn apply(
        &mut self,
        payload: &[u8],
        is_from_server: bool,
        encoder: &mut Encoder,
    ) -> Result<i64, ConnectionError> {
        let window_before = self.initial_window;
        if !std::mem::replace(&mut self.is_known, true) {
            self.streams_max = u32::MAX;
        }
        for (id, value) in settings::iter(payload) {
            match id {
                settings::HEADER_TABLE_SIZE => {
                    encoder.set_peer_table_size(usize::try_from(value).unwrap_or(usize::MAX));
                }
                // RFC 9113 §6.5.2: a server may send only 0. A client may send 0 or 1, which changes nothing here,
                // since we never push.
                settings::ENABLE_PUSH if value > u32::from(!is_from_server) => {
                    return Err(ConnectionError::SettingValue);
                }
                settings::MAX_CONCURRENT_STREAMS => self.streams_max = value,
                settings::INITIAL_WINDOW_SIZE if value > limits::WINDOW_MAX => {
                    return Err(ConnectionError::SettingWindow);
                }
                settings::INITIAL_WINDOW_SIZE => self.initial_window = value,
                settings::MAX_FRAME_SIZE if !MAX_FRAME_SIZES.contains(&value) => {
                    return Err(ConnectionError::SettingValue);
                }
                _ => {}
            }
        }
        Ok(i64::from(self.initial_window) - i64::from(window_before))
    }
}

/// The settings of a client that asks to upgrade, decoded from `HTTP2-Settings` (RFC 7540 §3.2.1).
#[derive(Debug)]
pub struct UpgradeSettings(Vec<u8>);

impl UpgradeSettings {
    /// Checks the settings. Returns `None` if a SETTINGS frame with these settings would be refused.
    #[must_use]
    pub fn parse(payload: Vec<u8>) -> Option<Self> {
        let settings = Self(payload);
        let is_whole = settings.0.len().is_multiple_of(settings::SETTING_BYTES);
        let mut encoder = Encoder::new(limits::TABLE_SIZE_MAX);
        (is_whole && PeerSettings::default().apply(&settings.0, false, &mut encoder).is_ok()).then_some(settings)
    }

    /// Returns the settings as the payload of a SETTINGS frame.
    pub(super) fn payload(&self) -> &[u8] {
        &self.0
    }
}

/// The values allowed for `SETTINGS_MAX_FRAME_SIZE`.
const MAX_FRAME_SIZES: std::ops::RangeInclusive<u32> = 1 << 14..=(1 << 24) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(settings: &[Setting], is_from_server: bool) -> Result<i64, ConnectionError> {
        let mut frame = Vec::new();
        settings::encode_into(settings, &mut frame);
        PeerSettings::default().apply(&frame[9..], is_from_server, &mut Encoder::new(4096))
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(apply(&[(settings::ENABLE_PUSH, 1), (settings::ENABLE_PUSH, 0)], false), Ok(0));
        assert_eq!(apply(&[(settings::ENABLE_PUSH, 2)], false), Err(ConnectionError::SettingValue));
        assert_eq!(apply(&[(settings::ENABLE_PUSH, 1)], true), Err(ConnectionError::SettingValue));
        assert_eq!(apply(&[(settings::MAX_FRAME_SIZE, 16_384)], false), Ok(0));
        assert_eq!(apply(&[(settings::MAX_FRAME_SIZE, 16_383)], false), Err(ConnectionError::SettingValue));
        assert_eq!(apply(&[(settings::MAX_FRAME_SIZE, 1 << 24)], false), Err(ConnectionError::SettingValue));
        assert_eq!(apply(&[(settings::INITIAL_WINDOW_SIZE, 1 << 31)], false), Err(ConnectionError::SettingWindow));
        assert_eq!(apply(&[(0x99, 1), (0, 0)], false), Ok(0), "unknown ones");
    }

    #[test]
    fn a_front_proxy_may_send_longer_field_lists() {
        for (speaks_for_many, octets_max) in [(false, 65_536), (true, 262_144)] {
            let announced = Config { speaks_for_many, ..Config::default() }.of_server();
            assert!(announced.contains(&(settings::MAX_HEADER_LIST_SIZE, octets_max)), "{announced:?}");
        }
    }

    #[test]
    fn the_last_window_counts() {
        let window = settings::INITIAL_WINDOW_SIZE;
        assert_eq!(apply(&[(window, 0), (window, 65_540)], false), Ok(5));
        assert_eq!(apply(&[(window, 0)], false), Ok(-65_535));
    }
}
