//! The progress bar on standard error, with the errors so far.

use crate::args::Args;
use crate::driver::Phase;
use crate::recorder::Recorder;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::Duration;

/// The progress bar.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    nodes_len: u32,
    duration_ms: u64,
}

impl Progress {
    /// Creates a bar, unless the user disabled it or would not see it.
    pub(crate) fn new(args: &Args) -> Self {
        let hidden = args.quiet || !std::io::stderr().is_terminal();
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(1), target);
        if let Ok(style) = ProgressStyle::with_template("{prefix:10} [{bar:30}] {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        let duration_ms = u64::try_from(args.duration.as_millis()).unwrap_or(u64::MAX);
        Self { bar, nodes_len: args.nodes, duration_ms }
    }

    /// Shows where the run stands; `started` nodes have a Lease.
    pub(crate) fn show(&self, phase: Phase, in_phase_ns: u64, started: u32, recorder: &Recorder) {
        if self.bar.is_hidden() {
            return;
        }
        let in_phase = Duration::from_nanos(in_phase_ns);
        let (name, position, length) = match phase {
            Phase::Connecting => ("connecting", 0, 1),
            Phase::Creating => ("creating", u64::from(started), u64::from(self.nodes_len)),
            Phase::Settling => ("settling", 0, 1),
            Phase::Measuring => {
                ("measuring", u64::try_from(in_phase.as_millis()).unwrap_or(u64::MAX), self.duration_ms)
            }
            Phase::Finishing => ("finishing", 1, 1),
            Phase::Draining => ("draining", 1, 1),
        };
        self.bar.set_prefix(name);
        self.bar.set_length(length);
        self.bar.set_position(position);
        self.bar.set_message(format!("{} errors", recorder.errors_count()));
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
