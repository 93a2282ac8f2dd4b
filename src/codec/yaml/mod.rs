//! YAML as kube-apiserver decodes and encodes it, with JSON as the intermediate form.
//!
//! The decoder converts a YAML body to a JSON value. The encoder converts JSON to YAML. So the server encodes a YAML
//! response twice: to JSON, and then to YAML. Clients rarely request YAML, and only for people to read. So the cost
//! does not matter.

mod decode;
mod encode;
mod scalar;
mod text;

pub use decode::{DecodeError, Document, check_json, decode, normalize_numbers};
pub use encode::push_yaml;
