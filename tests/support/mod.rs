//! What the tests that drive the server through a socket share: servers, clients, certificates, Leases.
//!
//! Nothing here uses the server's own protocol code, since a mistake made twice would not be seen, but for the HTTP/2
//! client: what its state machine does wrong at both ends is for h2spec and for the tests that write frames by hand.

#![allow(dead_code, reason = "every test binary compiles this module and uses a part of it")]

pub(crate) mod client;
pub(crate) mod exposition;
pub(crate) mod frames;
pub(crate) mod http2;
pub(crate) mod lease;
pub(crate) mod response;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod watch;

use std::time::{Duration, Instant};

/// How long anything may take that a working server does at once. Long, since CI machines stall.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `done`, looking often.
///
/// # Panics
/// After [`PATIENCE`], with `what`.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes as a failure message shows them: escaped, and cut in the middle if they are many.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 2_000;
    let escaped = |part: &[u8]| part.escape_ascii().to_string().replace("\\r\\n", "\\r\\n\n").replace("\\\"", "\"");
    if bytes.len() <= SHOWN_BYTES_MAX {
        return escaped(bytes);
    }
    let (head, tail) = (&bytes[..SHOWN_BYTES_MAX / 2], &bytes[bytes.len() - SHOWN_BYTES_MAX / 2..]);
    format!("{} … {} bytes … {}", escaped(head), bytes.len() - SHOWN_BYTES_MAX, escaped(tail))
}
