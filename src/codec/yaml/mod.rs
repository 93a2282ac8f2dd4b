//! YAML as kube-apiserver reads and writes it, with JSON as the intermediate form.
//!
//! Decoding converts YAML bodies to JSON values. Encoding converts JSON to YAML. Clients rarely use YAML, and only
//! for people to read. So only YAML responses have the cost of the second conversion.

mod decode;
mod encode;
mod scalar;
mod text;

pub use decode::{DecodeError, Document, check_json, decode, normalize_numbers};
pub use encode::push_yaml;
