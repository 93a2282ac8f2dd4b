//! The wall clock for rustls. rustls panics if the time is before 1970, so this module hides such a time from rustls.

use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock, but never a time before 1970. No certificate is valid before 1970 anyway.
#[derive(Debug)]
pub(super) struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}

/// Makes session tickets, unless the wall clock is before 1970. To change the ticket keys, rustls reads the system
/// clock itself and not [`WallClock`], and would panic before 1970.
#[derive(Debug)]
pub(super) struct Tickets(Arc<dyn ProducesTickets>);

impl Tickets {
    /// Makes new ticket keys with `make`.
    ///
    /// # Errors
    /// rustls's error: the system gives no random numbers, or the wall clock is before 1970.
    pub(super) fn new(
        make: impl FnOnce() -> Result<Arc<dyn ProducesTickets>, rustls::Error>,
    ) -> Result<Self, rustls::Error> {
        if is_before_1970() { Err(rustls::Error::FailedToGetCurrentTime) } else { make().map(Self) }
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        !is_before_1970() && self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if is_before_1970() { None } else { self.0.encrypt(plain) }
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        if is_before_1970() { None } else { self.0.decrypt(cipher) }
    }
}

fn is_before_1970() -> bool {
    SystemTime::now() < UNIX_EPOCH
}
