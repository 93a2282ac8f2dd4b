//! Encodings of objects: one module for each format, one for each form derived from a Lease, and shared parts.
//!
//! A codec depends on the Lease model and the errors, but neither on HTTP nor on the table. It reads from slices and
//! appends to the caller's buffers. Its only state is reusable scratch memory.

pub mod bookmark;
mod decoded;
pub mod discovery;
mod format;
mod gathered;
pub mod json;
pub mod list_meta;
pub mod partial;
pub mod protobuf;
pub mod table;
pub mod template;
pub mod values;
mod warnings;
pub mod yaml;

pub use decoded::{DecodedLease, DeleteOptions, Preconditions};
pub use format::Format;
pub use warnings::FieldWarnings;
