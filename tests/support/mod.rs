//! Shared code of tests over sockets: servers, clients, certificates, Leases.
//!
//! This code does not use the server's protocol code, because the same mistake at both ends would go unnoticed. The
//! exceptions are the HTTP/2 client, and the HPACK decoder in `frames`. h2spec and the tests with handwritten frames
//! find the mistakes of the client's state machine.

#![allow(dead_code, reason = "every test binary compiles this module and uses a part of it")]

pub(crate) mod aggregated;
pub(crate) mod client;
pub(crate) mod etcd;
pub(crate) mod exposition;
pub(crate) mod frames;
pub(crate) mod handover;
pub(crate) mod http2;
pub(crate) mod lease;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod response;
pub(crate) mod server;
pub(crate) mod sources;
pub(crate) mod stream;
pub(crate) mod switch;
pub(crate) mod tls;
pub(crate) mod watch;

use std::time::{Duration, Instant};

/// Time after which a wait for a quick operation fails. Long, since CI machines stall.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `done` returns true.
///
/// # Panics
/// After [`PATIENCE`], with `what`.
pub(crate) fn eventually(what: &str, done: impl FnMut() -> bool) {
    eventually_within(PATIENCE, what, done);
}

/// Waits until `done` returns true.
///
/// # Panics
/// After `limit`, with `what`.
pub(crate) fn eventually_within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Formats bytes for a failure message: escaped, and shortened in the middle if they are many.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 2_000;
    let escaped = |part: &[u8]| part.escape_ascii().to_string().replace("\\r\\n", "\\r\\n\n").replace("\\\"", "\"");
    if bytes.len() <= SHOWN_BYTES_MAX {
        return escaped(bytes);
    }
    let (head, tail) = (&bytes[..SHOWN_BYTES_MAX / 2], &bytes[bytes.len() - SHOWN_BYTES_MAX / 2..]);
    format!("{} … {} bytes … {}", escaped(head), bytes.len() - SHOWN_BYTES_MAX, escaped(tail))
}
