//! All streams of a connection. A stream is found by its id or its key. The write queue contains the streams that can
//! continue to send.

mod queue;
mod store;

pub(super) use store::Store;
pub use store::StreamKey;
