//! HTTP/1.1 (RFC 9112) as plain state machines over buffers: no socket, no clock.
//!
//! [`request`] and [`response`] are the server's side, [`client`] the load generator's and the tests', [`chunked`] the
//! coding that both share.

pub mod chunked;
pub mod client;
pub mod request;
pub mod response;
