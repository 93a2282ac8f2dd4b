//! Encodings of objects. There is one module for each format, one for each form derived from a Lease, and some shared
//! parts.
//!
//! A codec depends on the Lease type and the error types, but not on HTTP or the table. A codec reads from slices and
//! appends to the caller's buffers. Between calls, a codec keeps only scratch memory.

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
