//! YAML as kube-apiserver reads and writes it, with JSON as the intermediate form.
//!
//! Decoding converts applied configurations, bodies and patches to JSON values. Encoding converts complete JSON. YAML
//! is rare and for people, so only YAML responses cost this second pass.

mod decode;
mod encode;
mod scalar;
mod text;

pub use decode::{DecodeError, Document, check_json, decode, normalize_numbers};
pub use encode::push_yaml;
