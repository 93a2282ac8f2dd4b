//! Numbers, strings and JSON values as Go reads and writes them. This is behaviour of kube-apiserver that comes from
//! Go, not from the API.

pub(crate) mod json;
pub(crate) mod number;
pub(crate) mod print;
pub(crate) mod quote;
