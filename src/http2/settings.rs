//! What each side has told the other by SETTINGS (RFC 9113 §6.5.2).

use super::error::ConnectionError;
use super::frame::settings::{self, Setting};
use super::limits;
use crate::hpack::Encoder;

/// What we tell the peer, where it is to differ from [`limits`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Streams that the peer may have open at once.
    pub streams_max: u32,
    /// Octets of body on one stream before the peer must wait for us.
    pub stream_window: u32,
    /// The same for all streams together; at least [`limits::WINDOW_DEFAULT`].
    pub connection_window: u32,
    /// The peer speaks for many, as a front proxy does: what one of them cancels is not held against the others. Each
    /// request allows for one more of [`limits::RESETS`].
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
    /// The settings that a server announces.
    pub(super) fn of_server(&self) -> [Setting; 3] {
        [
            (settings::MAX_CONCURRENT_STREAMS, self.streams_max),
            (settings::INITIAL_WINDOW_SIZE, self.stream_window.min(limits::WINDOW_MAX)),
            (settings::MAX_HEADER_LIST_SIZE, FIELD_LIST_BYTES_MAX),
        ]
    }

    /// The settings that a client announces.
    pub(super) fn of_client(&self) -> [Setting; 3] {
        [
            (settings::ENABLE_PUSH, 0),
            (settings::INITIAL_WINDOW_SIZE, self.stream_window.min(limits::WINDOW_MAX)),
            (settings::MAX_HEADER_LIST_SIZE, FIELD_LIST_BYTES_MAX),
        ]
    }
}

/// What the peer told us, as far as it changes what we do. Its largest frame does not: we send none above the smallest
/// value that it can have.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    /// Window of a new stream; at most [`limits::WINDOW_MAX`].
    pub(super) initial_window: u32,
    /// Streams that we may have open at once.
    pub(super) streams_max: u32,
    /// Its first SETTINGS are there.
    is_known: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self { initial_window: limits::WINDOW_DEFAULT, streams_max: limits::STREAMS_BEFORE_SETTINGS, is_known: false }
    }
}

impl PeerSettings {
    /// Takes the payload of a SETTINGS frame. Gives by how much the windows of all streams change: once for a frame,
    /// however often it stands there, since a change goes over all streams.
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
                // A server may say 0, which changes nothing; only a client may allow pushes.
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

/// The settings of a client that asks to go on in HTTP/2, as `HTTP2-Settings` has them decoded (RFC 7540 §3.2.1).
#[derive(Debug)]
pub struct UpgradeSettings(Vec<u8>);

impl UpgradeSettings {
    /// `None` if they would be refused in a SETTINGS frame.
    #[must_use]
    pub fn parse(payload: Vec<u8>) -> Option<Self> {
        let settings = Self(payload);
        let is_whole = settings.0.len().is_multiple_of(settings::SETTING_BYTES);
        let mut encoder = Encoder::new(limits::TABLE_SIZE_MAX);
        (is_whole && PeerSettings::default().apply(&settings.0, false, &mut encoder).is_ok()).then_some(settings)
    }

    /// As they would stand in a SETTINGS frame.
    pub(super) fn payload(&self) -> &[u8] {
        &self.0
    }
}

/// The values that `SETTINGS_MAX_FRAME_SIZE` can have.
const MAX_FRAME_SIZES: std::ops::RangeInclusive<u32> = 1 << 14..=(1 << 24) - 1;

const FIELD_LIST_BYTES_MAX: u32 = 65_536;
const _: () = assert!(FIELD_LIST_BYTES_MAX as usize == limits::FIELD_LIST_BYTES_MAX);

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
    fn the_last_window_counts() {
        let window = settings::INITIAL_WINDOW_SIZE;
        assert_eq!(apply(&[(window, 0), (window, 65_540)], false), Ok(5));
        assert_eq!(apply(&[(window, 0)], false), Ok(-65_535));
    }
}
