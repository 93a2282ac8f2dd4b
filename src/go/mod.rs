//! Numbers, strings and JSON values as Go parses and prints them. kube-apiserver has this behaviour from Go and not
//! from the API.

pub(crate) mod json;
pub(crate) mod number;
pub(crate) mod print;
pub(crate) mod quote;
