//! The log: text or JSON lines on standard error, written by a separate thread.
//!
//! The event loop must never wait for a terminal or a pipe that nobody reads. So lines go to a bounded queue. While
//! the queue is full, lines are dropped and counted. The log's thread then logs the count.

use crate::limits::LOG_LINES_QUEUED_MAX;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

/// Format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts the log of this process. The log ends when the guard is dropped. The drop waits until queued lines are
/// written, for a second at most.
///
/// # Errors
/// The thread cannot be started, or the process has a log already.
pub fn init(format: LogFormat, verbosity: u8) -> io::Result<LogGuard> {
    start(format, targets_of(verbosity))
}

/// Starts a log that shows only warnings and errors, for a command that prints its result itself.
///
/// # Errors
/// The errors of [`init`].
pub fn init_for_command() -> io::Result<LogGuard> {
    start(LogFormat::Text, Targets::new().with_default(LevelFilter::WARN))
}

fn start(format: LogFormat, targets: Targets) -> io::Result<LogGuard> {
    let (writer, guard) = LineQueue::start(io::stderr())?;
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let log = tracing_subscriber::registry().with(lines.with_filter(targets));
    // tracing-subscriber's `init()` would also log the records of libraries that use the `log` crate.
    tracing::subscriber::set_global_default(log).map_err(io::Error::other)?;
    Ok(guard)
}

/// Returns the level of each log target. Targets of this program have the level that corresponds to `verbosity`. Below
/// [`LIBRARIES_VERBOSITY`], libraries log only warnings and errors, and [`TOLD_OURSELVES`] is off.
fn targets_of(verbosity: u8) -> Targets {
    let level = level_of(verbosity);
    let of_libraries = if verbosity >= LIBRARIES_VERBOSITY { level } else { level.min(LevelFilter::WARN) };
    let of_requests = if verbosity >= LIBRARIES_VERBOSITY { level } else { LevelFilter::OFF };
    Targets::new()
        .with_default(of_libraries)
        .with_target(TOLD_OURSELVES, of_requests)
        .with_target(env!("CARGO_CRATE_NAME"), level)
}

/// Target under which the kube library logs each failed request to the cluster. Module `cluster` already logs these
/// failures, with their reason.
const TOLD_OURSELVES: &str = "kube_client::client::builder";

/// Lowest verbosity at which libraries log their work ("Logging Conventions", `-v`: 8 is for the content of requests).
const LIBRARIES_VERBOSITY: u8 = 8;

/// Converts Kubernetes' verbosity to a level. In its conventions ("Logging Conventions", `-v`), 0 to 3 are for
/// operators, 4 and 5 for debugging, and higher numbers for tracing.
#[must_use]
pub fn level_of(verbosity: u8) -> LevelFilter {
    match verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// The sending end of the queue of log lines.
#[derive(Clone, Debug)]
struct LineQueue {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// Guard of the log. The log runs until this value is dropped.
#[derive(Debug)]
pub struct LogGuard {
    lines: SyncSender<Message>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// A request to acknowledge that all earlier lines are written.
    Flush(SyncSender<()>),
}

impl LineQueue {
    /// Starts the log's thread, which owns `out` and writes all log lines to it.
    fn start(out: impl Write + Send + 'static) -> io::Result<(Self, LogGuard)> {
        let (lines, queue) = sync_channel(LOG_LINES_QUEUED_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        thread::Builder::new().name("log".to_owned()).spawn(move || write_lines(out, &queue, &counter))?;
        Ok((Self { lines: lines.clone(), dropped }, LogGuard { lines }))
    }
}

impl Write for LineQueue {
    /// Queues one whole line. Never blocks and never fails.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Message::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LineQueue {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let deadline = Instant::now() + FLUSH_MAX;
        let (done, flushed) = sync_channel(1);
        let mut message = Message::Flush(done);
        while let Err(TrySendError::Full(back)) = self.lines.try_send(message) {
            if Instant::now() >= deadline {
                return;
            }
            message = back;
            thread::sleep(Duration::from_millis(5));
        }
        _ = flushed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Runs the log's thread, which alone may block on `out`. A failed write loses its line. There is no other place to
/// report the failure.
fn write_lines(mut out: impl Write, queue: &Receiver<Message>, dropped: &AtomicU64) {
    while let Ok(message) = queue.recv() {
        match message {
            Message::Line(line) => _ = out.write_all(&line),
            Message::Flush(done) => {
                _ = out.flush();
                _ = done.try_send(());
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            // This warning goes through the queue too, so that it has the log's format. If the queue is full again,
            // the warning is lost, and counts as a dropped line.
            tracing::warn!(lines = lost, "log lines were dropped because standard error was not read fast enough");
        }
    }
}

/// Longest wait for queued lines to be written when the log ends.
const FLUSH_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc};
    use tracing::Level;

    /// A sink that reports each write, and then waits until the test permits the write.
    struct Gate {
        reached: mpsc::Sender<()>,
        open: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            _ = self.reached.send(());
            _ = self.open.recv();
            self.written.lock().expect("lock").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_blocked_log_sink_drops_lines_instead_of_blocking() {
        let (reached_tx, reached) = mpsc::channel();
        let (open, open_rx) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let gate = Gate { reached: reached_tx, open: open_rx, written: Arc::clone(&written) };
        let (mut queue, guard) = LineQueue::start(gate).expect("a thread");

        queue.write_all(b"first\n").expect("never fails");
        reached.recv().expect("the thread writes");
        for _ in 0..LOG_LINES_QUEUED_MAX + 7 {
            queue.write_all(b"x\n").expect("never fails");
        }
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 7);

        // Without the sender `open`, the sink waits for no further permit. So the drop of the guard finds all lines
        // written.
        drop(open);
        drop(guard);
        let written = written.lock().expect("lock");
        assert_eq!(written.len(), b"first\n".len() + 2 * LOG_LINES_QUEUED_MAX);
        assert!(written.starts_with(b"first\nx\n"));
    }

    #[test]
    fn shutdown_waits_a_bounded_time_for_a_blocked_sink() {
        let (reached_tx, reached) = mpsc::channel();
        let (_open, open_rx) = mpsc::channel();
        let gate = Gate { reached: reached_tx, open: open_rx, written: Arc::default() };
        let (mut queue, guard) = LineQueue::start(gate).expect("a thread");
        queue.write_all(b"stuck\n").expect("never fails");
        reached.recv().expect("the thread writes");
        let before = Instant::now();
        drop(guard);
        assert!(before.elapsed() < FLUSH_MAX + Duration::from_secs(2));
    }

    #[test]
    fn libraries_log_only_warnings_below_the_library_verbosity() {
        let tells = |verbosity, who, level| targets_of(verbosity).would_enable(who, &level);
        assert!(tells(0, "coordination_apiserver::server", Level::INFO));
        assert!(tells(0, "hyper_util", Level::WARN));
        assert!(!tells(0, "hyper_util", Level::INFO));
        assert!(!tells(5, "kube_client::client", Level::DEBUG));
        assert!(tells(0, "kube_client::client::tls", Level::WARN));
        assert!(!tells(5, TOLD_OURSELVES, Level::ERROR));
        assert!(tells(LIBRARIES_VERBOSITY, TOLD_OURSELVES, Level::TRACE));
        assert!(tells(5, "coordination_apiserver::tls::reload", Level::DEBUG));
        assert!(tells(LIBRARIES_VERBOSITY, "kube_client::client", Level::TRACE));
    }

    #[test]
    fn verbosity_follows_kubernetes() {
        assert_eq!(level_of(0), LevelFilter::INFO);
        assert_eq!(level_of(3), LevelFilter::INFO);
        assert_eq!(level_of(4), LevelFilter::DEBUG);
        assert_eq!(level_of(6), LevelFilter::TRACE);
        assert_eq!(level_of(255), LevelFilter::TRACE);
    }
}
