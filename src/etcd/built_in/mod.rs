//! kube-apiserver's built-in Leases, in the etcd of the cluster: read for a takeover, and written while this server
//! serves the Leases and old watches of built-in storage are open.
//!
//! ```text
//!   loop ── Command ──► BuiltInPort ──► thread: read    what has changed since the read before
//!        ◄── Event ────                         write   transactions with two fences
//! ```
//!
//! Each write compares two revisions in the same transaction. The Lease must be as this process last saw it. The
//! APIService must be as this process last saw it, and name a Service then. So nothing is written once the APIService
//! has been given back, whoever did that and however long this process was paused.

mod fence;
mod storage;

use super::background::Background;
use super::client::{Client, Failure};
use super::config::Config;
use crate::engine::EngineError;
use crate::updates::{self, Updates};
use mio::Waker;
use std::sync::Arc;
use std::time::Duration;
use storage::Storage;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Longest time for one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A Lease in built-in storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// `namespace/name`
    pub key: String,
    /// Revision of the last write, which is the `resourceVersion` of the Lease.
    pub revision: u64,
    /// The object, in the form in which kube-apiserver stores it.
    pub value: Vec<u8>,
}

/// A Lease as built-in storage is to have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// `namespace/name`
    pub key: String,
    /// The object; none if it is to be deleted.
    pub value: Option<Vec<u8>>,
}

/// What the thread is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read what has changed since the read before.
    Read {
        /// Whether to read everything.
        is_complete: bool,
    },
    /// Look whether the APIService names a Service.
    Look,
    /// Write Leases.
    Write {
        /// The Leases.
        leases: Vec<Wanted>,
        /// Whether to delete all others too.
        is_complete: bool,
        /// Whether to write also what is there already. Nobody else's update of an older state succeeds then.
        is_forced: bool,
    },
}

/// What the thread tells, once for each command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// What a read has found.
    Read {
        /// Leases that are new or changed.
        changed: Vec<StoredLease>,
        /// Keys of Leases that are gone since the read before.
        deleted: Vec<String>,
        /// Whether everything was read.
        is_complete: bool,
    },
    /// What a write has done.
    Written {
        /// Keys of Leases that were not written, since somebody else has written them. The next read tells what.
        overtaken: Vec<String>,
    },
    /// The APIService names a Service.
    Ours,
    /// The APIService does not name a Service, and nothing more was written.
    NotOurs,
    /// The command has failed.
    Failed(String),
}

/// The loop's end of the way to built-in storage.
#[derive(Debug)]
pub struct BuiltInPort {
    commands: UnboundedSender<Command>,
    events: Updates<Event>,
    /// A write that is under way when this is dropped, and that takes effect all the same, has passed both fences.
    _thread: Background,
}

impl BuiltInPort {
    /// Starts the thread. `config` says where the cluster's etcd is; its prefix is that of kube-apiserver. `waker`
    /// wakes the loop after each event.
    ///
    /// # Errors
    /// The system gives no thread, or not what a runtime needs.
    pub fn start(config: Config, waker: Arc<Waker>) -> Result<Self, EngineError> {
        let (commands, received) = unbounded_channel();
        let (sender, events) = updates::queue(waker);
        let serve = move || serve(config, received, move |event| sender.send(event));
        Ok(Self { commands, events, _thread: Background::start("built-in", serve)? })
    }

    /// Asks for something. The answer comes by [`BuiltInPort::next`].
    pub fn send(&self, command: Command) {
        // The thread ends with this end, or after a panic, which its own end tells.
        _ = self.commands.send(command);
    }

    /// The next event, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<Event> {
        self.events.next()
    }
}

/// Does what commands ask for, until the loop's end is gone.
async fn serve(config: Config, mut commands: UnboundedReceiver<Command>, say: impl Fn(Event) -> bool) {
    let open = || Client::new(config.clone()).map(Storage::new);
    let mut storage = open();
    while let Some(command) = commands.recv().await {
        let event = match &mut storage {
            Ok(known) => match timeout(COMMAND_TIMEOUT, known.execute(command)).await {
                Ok(Ok(event)) => event,
                Ok(Err(failure)) => {
                    // Of a restored etcd nothing is known.
                    let is_lost = matches!(failure, Failure::Lost(_));
                    let event = Event::Failed(failure.into_error(&config).to_string());
                    if is_lost {
                        storage = open();
                    }
                    event
                }
                Err(_) => Event::Failed(format!("no answer from {}", config.store())),
            },
            Err(error) => Event::Failed(error.to_string()),
        };
        if !say(event) {
            return;
        }
    }
}
