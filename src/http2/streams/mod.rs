//! All streams of a connection: found by id, named by key, and queued for writing.

mod queue;
mod store;

pub(super) use store::Store;
pub use store::StreamKey;
