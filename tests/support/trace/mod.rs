//! Replays a conformance trace: recorded requests and responses of a real kube-apiserver, step by step.
//!
//! - [`format`](mod@format): the file, as types.
//! - [`symbols`]: symbols such as `${uid:1}`, and their values in the replay.
//! - [`compare`]: the comparison of recorded and received bodies.
//! - [`replay`]: the steps, run against a server.

pub(crate) mod compare;
pub(crate) mod format;
pub(crate) mod replay;
pub(crate) mod symbols;
