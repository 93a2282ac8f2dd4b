//! Encodings of objects. Each format (JSON, protobuf, YAML) has a module. So has each object that is derived from a
//! Lease: the Table, the partial metadata and the bookmark. The other modules are shared.
//!
//! A codec depends on the Lease type and the error types, but not on HTTP or the table of stored Leases. A codec reads
//! slices, and appends to the caller's buffers. Between calls, a codec retains only scratch memory.

pub mod bookmark;
mod decoded;
pub mod discovery;
mod format;
mod gathered;
pub mod json;
pub mod list_meta;
pub mod partial;
pub mod protobuf;
mod refusal;
pub mod table;
pub mod template;
pub mod values;
mod warnings;
pub mod yaml;

pub use decoded::{DecodedLease, DeleteOptions, Preconditions};
pub use format::Format;
pub use refusal::unrecognized;
pub use warnings::FieldWarnings;

/// Returns the text that an encoder appends.
#[cfg(test)]
fn text(encode: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    encode(&mut out);
    String::from_utf8(out).expect("UTF-8")
}
