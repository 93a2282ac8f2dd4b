//! Counters of the simulated nodes' connections and watches.

/// Counters of the whole run.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Number of connections begun.
    pub(crate) connections: u64,
    /// Number of broken connections that moved to another server.
    pub(crate) moves: u64,
    /// Numbers of TLS handshakes, and of those that resumed a session.
    pub(crate) handshakes: u64,
    pub(crate) handshakes_resumed: u64,
    /// Number of watches whose version had expired, so that the watcher had to list again.
    pub(crate) watches_expired: u64,
}
