//! Forms for people, made from the JSON: indented JSON and YAML. Both are rare, so they cost their readers a second
//! pass and nobody else anything.

mod pretty;
mod yaml;
mod yaml_scalar;

pub use pretty::{Pretty, push_pretty};
pub use yaml::push_yaml;
