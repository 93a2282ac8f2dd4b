//! TLS: the configuration, the peer's identity, and the driver of rustls sessions.

pub mod config;
pub mod identity;
