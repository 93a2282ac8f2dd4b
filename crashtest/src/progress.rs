//! The progress bar on standard error.

use crate::args::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;

/// The progress bar on standard error, with the number of kills or faults.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Value of `--kills`; `None` in a run with replicas, where faults replace the kills.
    kills: Option<u32>,
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
        Self { bar, kills: (args.replicas == 0).then_some(args.kills) }
    }

    /// Shows the number of operations that have begun, and the number of kills. In a run with replicas, `kills` is the
    /// number of faults of all kinds.
    pub(crate) fn show(&self, operations: u64, kills: u32) {
        if !self.bar.is_hidden() {
            self.bar.set_position(operations);
            self.bar.set_message(self.message(kills));
        }
    }

    fn message(&self, kills: u32) -> String {
        match self.kills {
            Some(all) => format!("{kills}/{all} kills"),
            None => format!("{kills} faults"),
        }
    }

    /// Removes the progress bar from the terminal.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_run_with_replicas_shows_faults_instead_of_kills() {
        for (flag, expected) in [("--kills=50", "17/50 kills"), ("--replicas=3", "17 faults")] {
            let args = Args::try_parse_from(["crashtest", "--quiet", flag]).expect("a command line");
            assert_eq!(Progress::new(&args).message(17), expected);
        }
    }
}
