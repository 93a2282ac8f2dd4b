//! A thread with its own `tokio` runtime. The thread ends when [`Background`], its handle, is dropped.

use crate::engine::EngineError;
use futures_util::future;
use std::pin::pin;
use std::thread::{self, JoinHandle};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

/// Creates a runtime for one thread.
///
/// # Errors
/// The system lacks the resources.
pub(super) fn runtime() -> Result<Runtime, EngineError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|cause| EngineError::Io { what: "cannot start a runtime".to_owned(), cause })
}

/// The handle of a background thread.
#[derive(Debug)]
pub(super) struct Background {
    name: &'static str,
    /// Sender of a channel. When the sender is dropped, the thread ends, whatever the thread waits for.
    open: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a thread called `name`. The thread runs the future that `work` returns.
    ///
    /// # Errors
    /// The system lacks the resources for a thread or a runtime.
    pub(super) fn start<W: Future<Output = ()>>(
        name: &'static str,
        work: impl FnOnce() -> W + Send + 'static,
    ) -> Result<Self, EngineError> {
        let (open, closed) = oneshot::channel();
        let runtime = runtime()?;
        let run = move || {
            LocalSet::new().block_on(&runtime, future::select(pin!(work()), closed));
            // A look-up of a name may take half a minute. The thread must end without it.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|cause| EngineError::Io { what: "cannot start a thread".to_owned(), cause })?;
        Ok(Self { name, open: Some(open), thread: Some(thread) })
    }
}

impl Drop for Background {
    /// Cancels the future, and waits for the end of the thread.
    fn drop(&mut self) {
        self.open = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(thread = self.name, "a thread panicked");
        }
    }
}
