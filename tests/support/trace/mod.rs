//! Replays a conformance trace: what a real kube-apiserver was asked and answered, step by step.
//!
//! - [`format`](mod@format): the file, as types.
//! - [`symbols`]: `${uid:1}` and its like, and the values that they stand for here.
//! - [`compare`]: a recorded body beside the one that came.
//! - [`replay`]: the steps, against a server.

pub(crate) mod compare;
pub(crate) mod format;
pub(crate) mod replay;
pub(crate) mod symbols;
