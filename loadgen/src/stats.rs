//! Counters of the simulated nodes' connections and watches.

/// Counters of the whole run.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Number of attempts to connect to servers, including those that failed.
    pub(crate) connections: u64,
    /// Number of broken connections that moved to another server.
    pub(crate) moves: u64,
    /// Number of TLS handshakes, and number of handshakes that resumed a TLS session.
    pub(crate) handshakes: u64,
    pub(crate) handshakes_resumed: u64,
    /// Number of watches that ended with 410 (an ERROR event, or the status of the response), so that the watcher had
    /// to list again.
    pub(crate) watches_expired: u64,
}
