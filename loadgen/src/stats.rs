//! Counters of the simulated nodes' connections and watches.

/// Counters of the whole run.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Connections begun.
    pub(crate) connections: u64,
    /// Broken connections that moved to another server.
    pub(crate) moves: u64,
    /// TLS handshakes, and how many of them resumed a session.
    pub(crate) handshakes: u64,
    pub(crate) handshakes_resumed: u64,
    /// Watches whose version had expired, so that a new list was needed.
    pub(crate) watches_expired: u64,
}
