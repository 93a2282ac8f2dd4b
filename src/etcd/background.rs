//! A thread with its own `tokio` runtime. The thread ends when [`Background`], its handle, is dropped.

use crate::engine::EngineError;
use futures_util::future;
use std::pin::pin;
use std::thread::{self, JoinHandle};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

/// A runtime for one thread. Its drop does not wait for look-ups of host names, which may take half a minute.
#[derive(Debug)]
pub(super) struct LocalRuntime(Option<Runtime>);

impl LocalRuntime {
    /// Creates a runtime.
    ///
    /// # Errors
    /// The system lacks the resources.
    pub(super) fn new() -> Result<Self, EngineError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|cause| EngineError::Io { what: "cannot start a runtime".to_owned(), cause })?;
        Ok(Self(Some(runtime)))
    }

    /// Runs a future to its end on this thread.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.as_ref().expect("only the drop takes the runtime").block_on(future)
    }
}

impl Drop for LocalRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
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
        let runtime = LocalRuntime::new()?;
        let run = move || {
            runtime.block_on(LocalSet::new().run_until(future::select(pin!(work()), closed)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};
    use tokio::task::spawn_blocking;

    #[test]
    fn the_drop_of_a_runtime_does_not_wait_for_a_look_up() {
        let runtime = LocalRuntime::new().expect("a runtime");
        let (begun, has_begun) = mpsc::channel();
        let look_up = move || {
            begun.send(()).expect("the test waits");
            thread::sleep(Duration::from_secs(10));
        };
        runtime.block_on(async { drop(spawn_blocking(look_up)) });
        has_begun.recv().expect("the look-up begins");
        let dropped = Instant::now();
        drop(runtime);
        assert!(dropped.elapsed() < Duration::from_secs(5), "{:?}", dropped.elapsed());
    }
}
