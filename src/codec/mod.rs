//! How objects stand in bytes: one module for each format, one for each form that is made of a Lease, and what they
//! share.
//!
//! A codec knows the Lease model and the errors; it knows neither HTTP nor the table. It appends to buffers that the
//! caller owns and reads from slices; it keeps no state but reusable scratch memory.

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
