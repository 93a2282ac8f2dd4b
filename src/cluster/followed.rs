//! The time at which kube-apiserver last reported on a followed resource. The cluster thread writes this time, and the
//! event loop reads it for `/metrics`.

use crate::clock::wall_micros;
use crate::tls::config_map::CONFIG_MAP;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A followed resource, and the time of the last response about the resource. All clones share this time.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Name of the resource in the log and in `/metrics`.
    pub what: &'static str,
    /// Time of the last response to a list or watch of the resource, in seconds since 1970; 0 for never.
    last_heard: Arc<AtomicU64>,
}

impl Followed {
    /// Creates the value for kube-apiserver's authentication settings, before the first response about them.
    #[must_use]
    pub fn authentication() -> Self {
        Self { what: CONFIG_MAP, last_heard: Arc::default() }
    }

    /// Creates the value for the namespaces, before the first response about them.
    #[must_use]
    pub fn namespaces() -> Self {
        Self { what: "namespaces", last_heard: Arc::default() }
    }

    /// Creates the value for the EndpointSlices of this server's Service, before the first response about them.
    #[must_use]
    pub fn endpoints() -> Self {
        Self { what: "endpointslices", last_heard: Arc::default() }
    }

    /// Creates the value for the built-in Leases (those that kube-apiserver itself stores), before the first response
    /// about them. The server follows these Leases only during a takeover, so `/metrics` omits their time.
    #[must_use]
    pub fn built_in() -> Self {
        Self { what: "leases", last_heard: Arc::default() }
    }

    /// Returns the time of the last response to a list or watch of the resource, in seconds since 1970; 0 for never.
    #[must_use]
    pub fn last_heard(&self) -> u64 {
        self.last_heard.load(Ordering::Relaxed)
    }

    /// Records that a response about the resource has arrived now.
    pub(super) fn hear(&self) {
        self.last_heard.store(wall_micros() / 1_000_000, Ordering::Relaxed);
    }
}
