//! TLS: certificates, keys and CAs with their reload, trust in peers, and the identity of peers.

pub mod authorities;
pub mod config;
pub mod config_map;
pub(crate) mod expiry;
pub mod identity;
pub mod reload;
pub mod source;
pub mod trust;
mod wall_clock;
