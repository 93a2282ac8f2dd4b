//! JSON as kube-apiserver reads and writes it.
//!
//! The output equals that of Go's encoder byte for byte: field order, omitted empty fields, HTML-safe escapes.
//! simd-json parses the input, and the decoder makes one pass over its tape. A body that simd-json refuses goes to
//! `syntax`, which follows Go's scanner. `syntax` either returns Go's error, or rewrites a body that only Go accepts.

mod decode;
mod delete_options;
mod encode;
mod fields;
mod lease_fields;
mod marks;
mod pretty;
mod repeated;
mod syntax;
mod tape;
mod type_meta;

pub use decode::Decoder;
pub use encode::{encode_lease_into, encode_status_into, push_json_as, push_type_meta};
pub use marks::Marks;
pub use pretty::{Pretty, push_pretty};
pub use syntax::{Repaired, repaired};
pub(crate) use type_meta::other_version;
pub use type_meta::unrecognized;
