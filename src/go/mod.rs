//! Numbers and strings as Go reads and writes them: what kube-apiserver's answers owe to its language and not to the API.

pub mod json;
pub mod number;
pub mod quote;
