//! The journal in etcd: a store that several replicas share.
//!
//! ```text
//!   loop ── Command ──► EtcdPort ──► thread: load     the state at startup, at one revision
//!        ◄── Event ────                      commits  one transaction each, sent until there is an answer
//!                                            looks    queries for the last entry
//!                                            follow   the watch of the journal and of the manifest
//! ```
//!
//! An entry is a key that is created once. The revision of the creation is the entry's position. So etcd orders all
//! entries, and a watch delivers them in this order to every replica. Each entry is written together with the key
//! `head`. The revision of `head` is the position of the last entry, so one linearizable read of `head` is a barrier.
//! This needs no progress notifications of the watch.
//!
//! The client consists of `tonic` and the messages in [`messages`]. Crates that provide all of etcd's messages need
//! `protoc` at build time.

mod background;
pub mod built_in;
mod client;
mod config;
mod follow;
mod housekeeping;
mod keys;
mod load;
mod messages;
mod port;
mod reader;
mod release;
mod state;
mod transaction;

pub use config::Config;
pub use port::EtcdPort;
pub use reader::EtcdReader;
