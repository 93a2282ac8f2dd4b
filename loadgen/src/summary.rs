//! What a run came to, whatever its load: what the files of results are made of.

use crate::figures::per;
use crate::operation::Operation;
use crate::recorder::{Count, Recorder};
use crate::timeline::History;
use crate::usage::Window;
use loadgen_account::Limit;

/// A run that is over.
pub(crate) trait Outcome {
    /// Returns the table for people.
    fn table(&self) -> String;
    /// Returns one line of JSON, without its end.
    fn json_line(&self) -> String;
    /// Returns what both kinds of load have in common.
    fn summary(&self) -> Summary<'_>;

    /// Whether everything went well.
    fn is_fine(&self) -> bool {
        self.summary().is_fine()
    }
}

/// What both kinds of load have in common.
#[derive(Debug)]
pub(crate) struct Summary<'r> {
    /// What was run, in some words.
    pub(crate) title: String,
    /// The server.
    pub(crate) url: &'r str,
    /// The load and the machine: names and values.
    pub(crate) facts: Vec<(&'static str, String)>,
    /// Latencies, counts and errors.
    pub(crate) recorder: &'r Recorder,
    /// The operations of the results, and the seconds that the rate of each is over.
    pub(crate) rows: Vec<(Operation, f64)>,
    /// The operation that the run is about.
    pub(crate) main: Operation,
    /// The measured time.
    pub(crate) window: Window,
    /// Promises that were broken.
    pub(crate) violations: u64,
    /// The first of them, in words.
    pub(crate) first_violations: &'r [String],
    /// The run second by second.
    pub(crate) history: &'r History,
    /// The run was ended early.
    pub(crate) is_interrupted: bool,
}

impl<'r> Summary<'r> {
    /// Whether the run came to the measured time.
    pub(crate) fn is_measured(&self) -> bool {
        self.window.seconds() > 0.0
    }

    /// Whether everything went well. Nobody can say that of a run that ended before anything was measured.
    pub(crate) fn is_fine(&self) -> bool {
        self.is_measured() && self.recorder.errors_count() == 0 && self.violations == 0
    }

    /// Returns the server's share of a core in the measured time: by the kernel's account, or as the server has told.
    pub(crate) fn server_share(&self) -> Option<f64> {
        self.window.server_share().or_else(|| {
            let told = self.history.spans.iter().filter(|span| span.is_measured);
            let told = told.filter_map(|span| Some((span.server_share? * span.seconds(), span.seconds())));
            let (used, seconds) = told.fold((0.0, 0.0), |sum, span| (sum.0 + span.0, sum.1 + span.1));
            per(used, seconds)
        })
    }

    /// Returns what limited the run.
    pub(crate) fn limit(&self) -> Option<Limit> {
        Limit::of(self.window.server_share(), self.window.generator_share(), self.recorder.late_ms_p99())
    }

    /// Returns the operations that have latencies, with the seconds that their rates are over.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (Operation, &'r Count, f64)> {
        let rows = self.rows.iter().map(|&(operation, seconds)| (operation, self.recorder.total(operation), seconds));
        rows.filter(|(_, count, _)| !count.latencies.is_empty())
    }
}
