//! JSON as kube-apiserver decodes and encodes it.
//!
//! The output equals the output of Go's encoder byte for byte: the order of fields, the omitted empty fields, and the
//! escapes for HTML. For input, simd-json parses the body, and the decoder makes one pass over simd-json's tape. If
//! simd-json refuses a body, `syntax` scans the body like Go's scanner. `syntax` returns Go's error, or rewrites a body
//! that Go accepts and simd-json refuses.

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
