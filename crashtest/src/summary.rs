//! The results of a run, and the text that shows them to people.

use crate::checker::{Counts, Violations};
use crate::fault::Fault;
use crate::history::Outcome;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Counts and violations of a run.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) seed: u64,
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    /// Whether a signal ended the run before its last operation.
    pub(crate) is_interrupted: bool,
    pub(crate) kills: u32,
    pub(crate) kills_at_start: u32,
    pub(crate) kills_in_snapshot: u32,
    pub(crate) stops: u32,
    /// For each start of the server, the time until it was ready. A start is left out if the server was killed soon
    /// after it ([`Moment::Start`](crate::plan::Moment::Start)). In a run with replicas, only the first start of each
    /// replica counts.
    pub(crate) starts: Vec<Duration>,
    /// Number of faults in a run with replicas, by kind.
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// For each client of a killed replica, the time from noticing the kill until its next acknowledged write.
    pub(crate) takeovers: Vec<Duration>,
    /// For each kill of etcd's leader, two times since the kill: until etcd accepted a write, and until a replica
    /// acknowledged a write.
    pub(crate) leaders_lost: Vec<(Duration, Duration)>,
    pub(crate) acknowledged: u64,
    pub(crate) unknown: u64,
    /// Number of refused requests, by status code.
    pub(crate) refused: BTreeMap<u16, u64>,
    pub(crate) resumed: u64,
    pub(crate) gone: u64,
    pub(crate) checked: Counts,
    pub(crate) violations: Violations,
}

impl Summary {
    /// Counts the outcome of an operation.
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        let status = match outcome {
            Outcome::Lease(_) | Outcome::Deleted | Outcome::List { .. } => {
                self.acknowledged += 1;
                return;
            }
            Outcome::Unknown => {
                self.unknown += 1;
                return;
            }
            Outcome::NotFound => 404,
            Outcome::Conflict => 409,
            Outcome::Refused(status) => *status,
        };
        *self.refused.entry(status).or_default() += 1;
    }

    /// Whether the run did not end early and has no violation.
    pub(crate) fn is_fine(&self) -> bool {
        !self.is_interrupted && self.violations.is_empty()
    }

    /// Formats the number of refused requests, by status code.
    pub(crate) fn refused_text(&self) -> String {
        let refused: Vec<_> = self.refused.iter().map(|(status, count)| format!("{count} x {status}")).collect();
        if refused.is_empty() { "0".to_owned() } else { refused.join(", ") }
    }

    /// Formats the summary as lines of text.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| _ = writeln!(out, "{name:14} {text}");
        let seconds = self.elapsed.as_secs_f64();
        line("seed", self.seed.to_string());
        line("operations", format!("{} in {seconds:.1} s", self.operations));
        if self.is_interrupted {
            line("ended early", "by a signal".to_owned());
        }
        if self.faults.is_empty() {
            let (start, snapshot) = (self.kills_at_start, self.kills_in_snapshot);
            line("kills", format!("{} ({start} soon after a start, {snapshot} during a snapshot)", self.kills));
            if self.stops > 0 {
                line("clean stops", self.stops.to_string());
            }
            line("restarts", (self.kills + self.stops).to_string());
        } else {
            let faults: Vec<_> = self.faults.iter().map(|(fault, count)| format!("{count} x {fault}")).collect();
            line("faults", faults.join(", "));
        }
        let [p50, _, max] = spread_ms(&self.starts);
        line("time to ready", format!("p50 {p50:.1} ms, max {max:.1} ms"));
        if !self.takeovers.is_empty() {
            let [p50, p99, max] = spread_ms(&self.takeovers);
            let count = self.takeovers.len();
            line(
                "after a kill",
                format!("next write of {count} clients: p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms"),
            );
        }
        if !self.leaders_lost.is_empty() {
            let (etcd, replicas): (Vec<_>, Vec<_>) = self.leaders_lost.iter().copied().unzip();
            let later = self.leaders_lost.iter().map(|(etcd, replicas)| replicas.saturating_sub(*etcd)).collect();
            let [etcd_max, replicas_max, later] = [etcd, replicas, later].map(|times| spread_ms(&times)[2]);
            line(
                "leader killed",
                format!(
                    "next write: etcd max {etcd_max:.0} ms, replica max {replicas_max:.0} ms, replica at most {later:.0} ms after etcd"
                ),
            );
        }
        line("acknowledged", self.acknowledged.to_string());
        line("unknown", format!("{} ({} took effect)", self.unknown, self.checked.unknown_done));
        line("refused", self.refused_text());
        let Counts { states, events, lists, gone_beyond_window, .. } = self.checked;
        line("checked", format!("{states} states, {events} events of watchers, {lists} lists"));
        let beyond =
            if gone_beyond_window > 0 { format!(" ({gone_beyond_window} beyond the window)") } else { "".into() };
        line("watches", format!("{} resumed, {} answered with 410{beyond}", self.resumed, self.gone));
        let kinds: Vec<_> = self.violations.iter().map(|(kind, count, _)| format!("{count} x {kind:?}")).collect();
        line("violations", if kinds.is_empty() { "0".to_owned() } else { kinds.join(", ") });
        for (kind, _, texts) in self.violations.iter() {
            for text in texts {
                _ = writeln!(out, "  {kind:?}: {text}");
            }
        }
        out
    }
}

/// Returns the median, the 99th percentile and the maximum of `times`, in milliseconds; zeros if `times` is empty.
fn spread_ms(times: &[Duration]) -> [f64; 3] {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    [last.div_ceil(2), last * 99 / 100, last]
        .map(|index| sorted.get(index).map_or(0.0, |took| took.as_secs_f64() * 1_000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_ended_early_is_not_fine() {
        let mut summary = Summary::default();
        assert!(summary.is_fine() && !summary.text().contains("ended early"));
        summary.is_interrupted = true;
        assert!(!summary.is_fine() && summary.text().contains("ended early"), "{}", summary.text());
    }

    #[test]
    fn the_99th_percentile_of_a_hundred_times_is_the_last_but_one() {
        let times: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(spread_ms(&times), [51.0, 99.0, 100.0]);
        assert_eq!(spread_ms(&times[..1]), [100.0; 3]);
        assert_eq!(spread_ms(&[]), [0.0; 3]);
    }
}
