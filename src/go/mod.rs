//! Numbers, strings and JSON values as Go reads and writes them: what kube-apiserver's answers owe to its language and
//! not to the API.

pub(crate) mod json;
pub(crate) mod number;
pub(crate) mod print;
pub(crate) mod quote;
