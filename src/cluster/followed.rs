//! When the cluster last told of what is followed: stamped by the thread that asks, read by the loop for `/metrics`.

use crate::clock::wall_micros;
use crate::tls::config_map::CONFIG_MAP;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that is followed. All copies are the same.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Its name in the log and in `/metrics`.
    pub what: &'static str,
    /// Seconds since 1970; 0 for never.
    last_heard: Arc<AtomicU64>,
}

impl Followed {
    /// How the cluster authenticates.
    #[must_use]
    pub fn authentication() -> Self {
        Self { what: CONFIG_MAP, last_heard: Arc::default() }
    }

    /// Which namespaces there are.
    #[must_use]
    pub fn namespaces() -> Self {
        Self { what: "namespaces", last_heard: Arc::default() }
    }

    /// Where the Service of this server leads to.
    #[must_use]
    pub fn endpoints() -> Self {
        Self { what: "endpointslices", last_heard: Arc::default() }
    }

    /// When the cluster last answered, in seconds since 1970; 0 if it never did.
    #[must_use]
    pub fn last_heard(&self) -> u64 {
        self.last_heard.load(Ordering::Relaxed)
    }

    /// It has just answered.
    pub(super) fn hear(&self) {
        self.last_heard.store(wall_micros() / 1_000_000, Ordering::Relaxed);
    }
}
