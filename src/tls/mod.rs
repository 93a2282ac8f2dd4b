//! TLS: what it is made of and how that is kept fresh, whom it trusts, and who a peer is.

pub mod authorities;
pub mod config;
pub mod config_map;
pub mod identity;
pub mod reload;
pub mod source;
pub mod trust;
