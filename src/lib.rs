//! A Kubernetes API server for one resource, `leases.coordination.k8s.io`: one thread, one event loop, one table in
//! memory.
//!
//! `docs/architecture.md` shows the path of a request, the job of each module, and the layers of dependencies. The
//! protocol modules do not depend on the API, nor the API on them. `serve` connects them and has no rules of the API.
//!
//! The public items are those that the program, the tests and the tools use, and those that their documentation links
//! to.

pub mod api;
pub mod api_error;
pub mod auth;
pub mod buffer;
pub mod build_info;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod codec;
pub(crate) mod conn;
pub mod engine;
pub mod etcd;
pub mod features;
pub mod form;
pub(crate) mod go;
pub mod handover;
pub mod hpack;
pub mod http;
pub mod http1;
pub mod http2;
pub mod journal;
pub mod lease;
pub mod limits;
pub(crate) mod listener;
pub mod logging;
pub(crate) mod media_type;
pub(crate) mod metrics;
pub mod offline;
pub mod options;
pub mod patch;
pub(crate) mod permits;
pub mod pki;
pub mod resource;
pub mod route;
pub mod selector;
pub mod serve;
pub mod server;
pub mod switch;
pub mod table;
pub mod timestamp;
pub mod tls;
pub(crate) mod transport;
pub mod updates;
pub mod verb;
pub mod watch;
