//! The progress bar on standard error.

use crate::args::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;

/// The progress bar on standard error, with the number of kills.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    kills: u32,
}

impl Progress {
    /// Creates the progress bar. It is hidden with `--quiet`, and if standard error is no terminal.
    pub(crate) fn new(args: &Args) -> Self {
        let hidden = args.quiet || !std::io::stderr().is_terminal();
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(args.operations), target);
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} operations, {per_sec}, {msg}, {eta}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, kills: args.kills }
    }

    /// Shows the number of operations that have begun, and the number of kills.
    pub(crate) fn show(&self, operations: u64, kills: u32) {
        if !self.bar.is_hidden() {
            self.bar.set_position(operations);
            self.bar.set_message(format!("{kills}/{} kills", self.kills));
        }
    }

    /// Removes the progress bar from the terminal.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
