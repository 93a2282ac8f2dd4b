//! All streams of a connection: found by id, named by key, and queued in the order of their turn to write.

mod queue;
mod store;

pub(super) use store::Store;
pub use store::StreamKey;
