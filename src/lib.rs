//! A Kubernetes API server for one resource, `leases.coordination.k8s.io`. One thread with an event loop serves all
//! requests from a table in memory.
//!
//! `docs/architecture.md` shows the path of a request, the job of each module, and the layers of dependencies. The
//! protocol modules (HTTP, HPACK, TLS) do not depend on the API. The API does not depend on the protocol modules.
//! `serve` connects both and contains no rules of the API.
//!
//! An item is public if the program, the tests or the tools use it, or if the documentation of a public item links to
//! it.

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
pub mod pki;
pub mod resource;
pub mod route;
pub mod schedule;
pub mod selector;
pub mod serve;
pub mod server;
pub(crate) mod shards;
pub mod switch;
pub mod table;
pub mod timestamp;
pub mod tls;
pub(crate) mod transport;
pub mod updates;
pub mod verb;
pub mod watch;
