//! YAML, as kube-apiserver reads and writes it, by way of JSON.
//!
//! Read are applied configurations, bodies and patches: a document becomes a JSON value. Written is what has been
//! written in JSON first: YAML is for people and rare, so it costs its readers a second pass and nobody else anything.

mod decode;
mod encode;
mod scalar;
mod text;

pub use decode::{DecodeError, Document, check_json, decode, normalize_numbers};
pub use encode::push_yaml;
