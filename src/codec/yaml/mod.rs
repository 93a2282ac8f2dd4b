//! YAML as kube-apiserver reads and writes it, by way of JSON.
//!
//! Decoding turns applied configurations, bodies and patches into JSON values. Encoding starts from finished JSON: YAML
//! is rare and for people, so only its readers pay for a second pass.

mod decode;
mod encode;
mod scalar;
mod text;

pub use decode::{DecodeError, Document, check_json, decode, normalize_numbers};
pub use encode::push_yaml;
