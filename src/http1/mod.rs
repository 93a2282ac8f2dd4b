//! HTTP/1.1 (RFC 9112) as plain state machines over buffers: no socket, no clock.
//!
//! [`request`] and [`response`] are the server's side. [`client`] serves the load generator and the tests. Both sides
//! share the coding in [`chunked`].

pub mod chunked;
pub mod client;
pub mod request;
pub mod response;
