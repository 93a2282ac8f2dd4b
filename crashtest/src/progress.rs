//! The bar on standard error.

use crate::args::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;

/// The bar.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    kills: u32,
}

impl Progress {
    /// A bar, unless the user wants none or would not see it.
    pub(crate) fn new(args: &Args) -> Self {
        let hidden = args.quiet || !std::io::stderr().is_terminal();
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(args.operations), target);
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} operations, {per_sec}, {msg}, {eta}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, kills: args.kills }
    }

    /// Shows where the run stands.
    pub(crate) fn show(&self, operations: u64, kills: u32) {
        if !self.bar.is_hidden() {
            self.bar.set_position(operations);
            self.bar.set_message(format!("{kills}/{} kills", self.kills));
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
