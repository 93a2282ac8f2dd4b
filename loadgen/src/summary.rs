//! The results of a run of simulated nodes or of a bench, from which the files of results are made.

use crate::figures::per;
use crate::operation::Operation;
use crate::recorder::{Count, Recorder};
use crate::timeline::History;
use crate::usage::Window;
use loadgen_account::Limit;

/// The results of a finished run, of simulated nodes or of a bench.
pub(crate) trait Outcome {
    /// Returns the table for people.
    fn table(&self) -> String;
    /// Returns one line of JSON, without the newline.
    fn json_line(&self) -> String;
    /// Returns the results that simulated nodes and benches have in common.
    fn summary(&self) -> Summary<'_>;

    /// Whether the warm-up ended, so that the run was measured, and whether it had no errors and no violations.
    fn is_fine(&self) -> bool {
        self.summary().is_fine()
    }
}

/// The results that simulated nodes and benches have in common.
#[derive(Debug)]
pub(crate) struct Summary<'r> {
    /// Short description of the load.
    pub(crate) title: String,
    /// URL of the server; URLs of several servers are separated by commas.
    pub(crate) url: &'r str,
    /// Facts about the load and the machine: names and values.
    pub(crate) facts: Vec<(&'static str, String)>,
    /// Latencies, counts and errors of all operations.
    pub(crate) recorder: &'r Recorder,
    /// The operations in the results. Each has the length of the time over which its rate is computed, in seconds. With
    /// a length of 0, the results show no rate.
    pub(crate) rows: Vec<(Operation, f64)>,
    /// The operation that the run mainly measures.
    pub(crate) main: Operation,
    /// The measured time, and the processor time used in it.
    pub(crate) window: &'r Window,
    /// Number of violations: wrong behaviour of the server that a check found.
    pub(crate) violations: u64,
    /// Descriptions of the first violations.
    pub(crate) first_violations: &'r [String],
    /// The figures of each second of the run.
    pub(crate) history: &'r History,
    /// Whether the run was ended early.
    pub(crate) is_interrupted: bool,
}

impl<'r> Summary<'r> {
    /// Whether the warm-up ended, so that the run was measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.window.seconds() > 0.0
    }

    /// Whether the warm-up ended, so that the run was measured, and whether it had no errors and no violations.
    pub(crate) fn is_fine(&self) -> bool {
        self.is_measured() && self.recorder.errors_count() == 0 && self.violations == 0
    }

    /// Returns the server's processor time in the measured time, as a share of a core. It is from the kernel or,
    /// without `--pid`, from the server's `/metrics`. `None` if it is unknown, for example because a process of `--pid`
    /// ended in the measured time.
    pub(crate) fn server_share(&self) -> Option<f64> {
        if self.window.has_server() {
            return self.window.server_share();
        }
        let told = self.history.spans.iter().filter(|span| span.is_measured);
        let told = told.filter_map(|span| Some((span.server_share? * span.seconds(), span.seconds())));
        let (used, seconds) = told.fold((0.0, 0.0), |sum, span| (sum.0 + span.0, sum.1 + span.1));
        per(used, seconds)
    }

    /// Returns which process limited the run, the server or the generator; `None` if neither is known as the limit. The
    /// server can be known as the limit only with `--pid`: its processor time from `--metrics` does not count.
    pub(crate) fn limit(&self) -> Option<Limit> {
        Limit::of(self.window.busiest_server_share(), self.window.generator_share(), self.recorder.late_ms_p99())
    }

    /// Returns the operations that have latencies. Each has the length of the time over which its rate is computed, in
    /// seconds.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (Operation, &'r Count, f64)> {
        let rows = self.rows.iter().map(|&(operation, seconds)| (operation, self.recorder.total(operation), seconds));
        rows.filter(|(_, count, _)| !count.latencies.is_empty())
    }
}
