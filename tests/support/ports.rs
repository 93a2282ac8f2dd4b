//! Free ports for programs that tests start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// The first of the ports that tests use, and the number of these ports.
///
/// The ports lie below Linux's range for outgoing connections. A port of that range can become the source of a
/// connection before the program listens on the port.
const FIRST: u16 = 22_000;
const PORTS: u16 = 10_000;

/// Offset of the next port. It begins at a value from the process id. So test processes that run at the same time
/// rarely try the same ports.
static OFFSET: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new((std::process::id() % 1_000) as u16 * 10));

/// Returns an address that was free a moment ago, and that no other test of this process gets.
///
/// # Panics
/// If no port is free.
pub(crate) fn free_port() -> SocketAddr {
    let mut ports = (0..PORTS).map(|_| FIRST + OFFSET.fetch_add(1, Ordering::Relaxed) % PORTS);
    let free = ports.find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    (Ipv4Addr::LOCALHOST, free.expect("a port is free")).into()
}
