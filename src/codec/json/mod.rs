//! JSON, as kube-apiserver reads and writes it.
//!
//! Written is byte for byte what Go's encoder writes: field order, what is left out when empty, HTML-safe escapes. Read
//! is with simd-json, in one pass over its tape; a body that simd-json refuses goes to `syntax`, which follows Go's
//! scanner: it either words the refusal or repairs what only simd-json minds.

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
