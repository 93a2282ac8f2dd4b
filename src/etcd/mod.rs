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
//! entries, and a watch delivers them in this order to every replica. A transaction that writes an entry also writes
//! the key `head`. So the revision of `head` is the position of the last entry. A linearizable read of `head` tells a
//! replica which entries it must have applied before a consistent read of its Leases. So the replica needs no progress
//! notifications of the watch.
//!
//! The client consists of `tonic` and the messages in [`messages`].

mod background;
pub mod built_in;
mod client;
mod config;
mod follow;
mod housekeeping;
mod keys;
mod load;
mod messages;
mod pages;
mod port;
mod reader;
mod release;
mod state;
mod transaction;

pub use config::Config;
pub use port::EtcdPort;
pub use reader::EtcdReader;
