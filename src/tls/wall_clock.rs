//! The wall clock for rustls. rustls panics if the time is before 1970, so this module hides such a time from rustls.

use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock, but never a time before 1970. No certificate is valid before 1970 anyway.
#[derive(Debug)]
pub(super) struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}
