//! Built-in storage: kube-apiserver's own Leases in the cluster's etcd. During a takeover, this server reads these
//! Leases, and writes the renewals that it receives to them. After the takeover, it still writes changes to them, since
//! clients may have old watches of built-in storage. A rollback writes all Leases back.
//!
//! ```text
//!   loop ── Command ──► BuiltInPort ──► thread: read    changes since the previous read
//!        ◄── Event ────                         write   transactions with two fences
//! ```
//!
//! The transaction of a write has two fences: it compares two revisions. The Lease must be unchanged since this process
//! last saw the Lease. The APIService must be unchanged since this process saw that it names a Service and has the
//! expected UID. So while the APIService is local, this process writes nothing, however long it was paused. Once the
//! expected UID is known, this process also writes nothing after a deletion of the APIService.
//!
//! A creation can only require that the Lease does not exist. So a creation that reaches etcd late also succeeds if
//! another replica has created and deleted the Lease meanwhile. The next replica that begins to copy deletes such a
//! Lease (`api::handover::worker`).

mod fence;
mod storage;

use super::background::Background;
use super::client::{Client, Failure};
use super::config::Config;
use crate::engine::EngineError;
use crate::handover::ReadLeases;
use crate::updates::{self, Updates};
use mio::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::BuiltInStorage;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Time without an answer of etcd after which a read request is not repeated. The last attempt ends within 30 s of the
/// first one. So the command `takeover`, which waits longer (`switch::SILENT_MAX`), learns why the read failed. A
/// [`BuiltInCommand`] has no timeout: a complete read of many Leases from a slow etcd may take minutes, one request for
/// each page.
const PATIENCE: Duration = Duration::from_secs(20);

/// The wanted state of a Lease in built-in storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Key of the Lease: `namespace/name`.
    pub key: String,
    /// Encoded Lease; `None` to delete the Lease.
    pub value: Option<Vec<u8>>,
}

/// A command to the thread that reads and writes built-in storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuiltInCommand {
    /// Reads the changes since the previous read.
    Read {
        /// Whether to read all Leases.
        is_complete: bool,
    },
    /// Checks whether the APIService names a Service, and has the expected UID.
    Look {
        /// UID that the APIService must have; `None` permits any UID.
        api_service: Option<String>,
    },
    /// Writes Leases.
    Write {
        /// The Leases.
        leases: Vec<Wanted>,
        /// Whether to delete all Leases that are not in `leases`.
        is_complete: bool,
        /// Whether to write unchanged Leases too. Such a write changes the `resourceVersion`, so updates that clients
        /// have based on the older `resourceVersion` fail.
        is_forced: bool,
        /// UID that the APIService must have; `None` permits any UID.
        api_service: Option<String>,
    },
}

/// An event from the thread of built-in storage, one for each command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuiltInEvent {
    /// The result of a read.
    Read {
        /// Leases that are new, changed or deleted since the previous read.
        leases: ReadLeases,
        /// Whether all Leases were read.
        is_complete: bool,
    },
    /// The result of a write.
    Written {
        /// Keys of Leases that were not written, because another writer has changed these Leases. The next read returns
        /// the changes.
        overtaken: Vec<String>,
    },
    /// Answer to [`BuiltInCommand::Look`]: the APIService names a Service, and has the expected UID.
    Ours {
        /// UID of the APIService.
        uid: String,
    },
    /// The APIService names no Service, or has another UID than the expected one. If the command was a write, the
    /// remaining Leases were not written.
    NotOurs,
    /// The command has failed.
    Failed {
        /// The reason.
        why: String,
        /// Whether etcd may have lost Leases that this process has read or written: etcd was restored from a backup.
        is_lost: bool,
    },
}

/// The event loop's port to built-in storage.
#[derive(Debug)]
pub struct BuiltInPort {
    commands: UnboundedSender<BuiltInCommand>,
    events: Updates<BuiltInEvent>,
    /// Whether the thread must end its current read or write of Leases.
    is_canceled: Arc<AtomicBool>,
    /// The thread that reads and writes built-in storage. A write in flight may take effect after this port is dropped,
    /// but only if both of its comparisons hold.
    _thread: Background,
}

impl BuiltInPort {
    /// Starts the thread. `config` is for the cluster's etcd, with kube-apiserver's prefix. `waker` wakes the event
    /// loop after each event.
    ///
    /// # Errors
    /// The system lacks the resources for a thread or a runtime.
    pub fn start(config: Config, waker: Arc<Waker>) -> Result<Self, EngineError> {
        let (commands, received) = unbounded_channel();
        let (sender, events) = updates::queue(waker);
        let is_canceled = Arc::<AtomicBool>::default();
        let of_thread = Arc::clone(&is_canceled);
        let config = Config { patience: Some(PATIENCE), ..config };
        let serve = move || serve(config, received, of_thread, move |event| sender.send(event));
        Ok(Self { commands, events, is_canceled, _thread: Background::start("built-in", serve)? })
    }

    /// Sends a command. [`BuiltInPort::next`] returns the answer. Send the next command only after this answer.
    pub fn send(&self, command: BuiltInCommand) {
        self.is_canceled.store(false, Ordering::Relaxed);
        // The channel is closed only after the thread has panicked. The thread's handle reports the panic.
        _ = self.commands.send(command);
    }

    /// Ends the current command early, if it reads or writes Leases. The thread waits for the requests in flight. It
    /// repeats no write, and neither reads nor writes further Leases. The answer is then [`BuiltInEvent::Failed`]. The
    /// next read returns what an unfinished read would have returned.
    pub fn cancel(&self) {
        self.is_canceled.store(true, Ordering::Relaxed);
    }

    /// Returns the next event, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<BuiltInEvent> {
        self.events.next()
    }
}

#[cfg(test)]
impl BuiltInPort {
    /// Creates a port for tests, without access to built-in storage. Also returns the other ends of its queues.
    pub(crate) fn fake() -> (Self, UnboundedReceiver<BuiltInCommand>, updates::UpdateSender<BuiltInEvent>) {
        let is_canceled = Arc::default();
        let (commands, received) = unbounded_channel();
        let poll = mio::Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let (sender, events) = updates::queue(Arc::new(waker));
        let thread = Background::start("built-in", || async {}).expect("a thread");
        (Self { commands, events, is_canceled, _thread: thread }, received, sender)
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.is_canceled.load(Ordering::Relaxed)
    }
}

/// Runs commands until the port is dropped.
async fn serve(
    config: Config,
    mut commands: UnboundedReceiver<BuiltInCommand>,
    is_canceled: Arc<AtomicBool>,
    say: impl Fn(BuiltInEvent) -> bool,
) {
    let open = || {
        // This client logs no warnings, since the event loop logs each failed command. The journal's client of the same
        // etcd may log a warning too.
        let client = Client::new(config.clone())?.without_warnings();
        Ok::<_, EngineError>(BuiltInStorage::new(client, Arc::clone(&is_canceled)))
    };
    let mut storage = open();
    while let Some(command) = commands.recv().await {
        let event = match &mut storage {
            Ok(known) => match known.execute(command).await {
                Ok(event) => event,
                Err(failure) => {
                    // After [`Failure::Lost`], for example because etcd was restored from a backup, everything that
                    // this process knows about built-in storage is discarded.
                    let is_lost = matches!(failure, Failure::Lost(_));
                    let event = BuiltInEvent::Failed { why: failure.into_error(&config).to_string(), is_lost };
                    if is_lost {
                        storage = open();
                    }
                    event
                }
            },
            Err(error) => BuiltInEvent::Failed { why: error.to_string(), is_lost: false },
        };
        if !say(event) {
            return;
        }
    }
}
