//! HTTP/1.1 (RFC 9112) as plain state machines over buffers: no socket, no clock.
//!
//! [`request`] and [`response`] are for the server. [`client`] is for the load generator and the tests. Server and
//! client share [`chunked`].

pub mod chunked;
pub mod client;
pub mod request;
pub mod response;
