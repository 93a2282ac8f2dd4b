//! YAML as kube-apiserver decodes and encodes it, with JSON as the intermediate form.
//!
//! The decoder converts a YAML body to a JSON value. The encoder converts JSON to YAML. Clients rarely use YAML, and
//! only for people to read. So only YAML responses cost the second conversion.

mod decode;
mod encode;
mod scalar;
mod text;

pub use decode::{DecodeError, Document, check_json, decode, normalize_numbers};
pub use encode::push_yaml;
