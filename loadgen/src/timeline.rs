//! The figures of each second of a run, for the progress line, the time series and the report.
//!
//! This module divides the run into time spans of one second; the last span of a phase is shorter. It owns the figures
//! of these spans, the processor time used until the last span's end, and the outputs. A run without such an output has
//! no spans.

use crate::figures::count;
use crate::latencies::Latencies;
use crate::operation::Operation;
use crate::progress::{Live, Progress};
use crate::recorder::{Recorder, Second};
use crate::series::Series;
use crate::span::{Sample, Span};
use crate::stage::Stage;
use crate::usage::Usage;
use std::time::Duration;

/// The time spans of one second that a run is divided into, and the outputs that show them.
#[derive(Debug)]
pub(crate) struct Timeline {
    progress: Progress,
    series: Option<Series>,
    /// Whether the figures of all spans are stored until the end of the run, for the HTML report.
    keeps: bool,
    server_pids: Vec<u32>,
    /// Start of the run, in microseconds since the Unix epoch.
    epoch_us: u64,
    spans: Vec<Span>,
    /// Operations that have occurred in this phase, and in the previous one. Each has a sample in every later span of
    /// this phase.
    seen: [Vec<Operation>; 2],
    stage: Stage,
    /// Figures for the progress line, of the last span that lasted at least [`LIVE_SECONDS_MIN`].
    live: Live,
    /// Start of the span in progress, in nanoseconds since the start of the run, and the processor time used until
    /// then.
    since: u64,
    usage: Usage,
    /// The servers' processor time as a share of a core, from their `/metrics`.
    told_share: Option<f64>,
    /// End of the span in progress, in nanoseconds since the start of the run.
    next: u64,
}

/// The figures of each second of a finished run.
#[derive(Debug)]
pub(crate) struct History {
    /// Start of the run, in microseconds since the Unix epoch.
    pub(crate) epoch_us: u64,
    /// The time spans of the run; empty if they were not stored.
    pub(crate) spans: Vec<Span>,
    /// Whether the time series was written. The error is a sentence for the user.
    pub(crate) series: Result<(), String>,
}

impl Timeline {
    /// Creates a timeline for these outputs. `keeps` is true if the HTML report needs the figures of all spans.
    /// `server_pids` are the server's processes.
    pub(crate) fn new(progress: Progress, series: Option<Series>, keeps: bool, server_pids: &[u32]) -> Self {
        Self {
            progress,
            series,
            keeps,
            server_pids: server_pids.to_vec(),
            epoch_us: 0,
            spans: Vec::new(),
            seen: Default::default(),
            stage: Stage::default(),
            live: Live::default(),
            since: 0,
            usage: Usage::default(),
            told_share: None,
            next: 0,
        }
    }

    /// Creates a timeline without outputs.
    #[cfg(test)]
    pub(crate) fn off() -> Self {
        Self::new(Progress::hidden(), None, false, &[])
    }

    /// Begins the run. `epoch_us` is the start of the run, in microseconds since the Unix epoch.
    pub(crate) fn begin(&mut self, recorder: &mut Recorder, epoch_us: u64) {
        if self.keeps || self.series.is_some() || !self.progress.is_hidden {
            recorder.count_seconds();
            self.usage = Usage::now(&self.server_pids);
        }
        self.epoch_us = epoch_us;
    }

    /// Records the stage of the run at `now`, and ends the span in progress if its time is over. `violations` is the
    /// number of violations so far. `told_share` is the servers' processor time as a share of a core, from their
    /// `/metrics`.
    pub(crate) fn look(
        &mut self,
        recorder: &mut Recorder,
        stage: Stage,
        violations: u64,
        told_share: Option<f64>,
        now: u64,
    ) {
        let errors = recorder.errors_count();
        let Some(second) = recorder.second() else { return };
        self.told_share = told_share;
        if stage.name != self.stage.name {
            self.cut(second, now);
            self.seen.swap(0, 1);
            self.seen[0].clear();
            self.next = now + SPAN_NS;
        } else if now >= self.next {
            self.cut(second, now);
            // Spans end a whole number of seconds after the phase's start. So delays of calls to this method do not add
            // up.
            self.next += SPAN_NS * (1 + (now - self.next) / SPAN_NS);
        }
        self.stage = stage;
        (self.live.errors, self.live.violations) = (errors, violations);
        self.progress.show(&stage, &self.live, now);
    }

    /// Ends the last span and the run, and returns the stored spans.
    pub(crate) fn finish(mut self, recorder: &mut Recorder, now: u64) -> History {
        if let Some(second) = recorder.second() {
            self.cut(second, now);
        }
        let series = self.series.map_or(Ok(()), Series::finish);
        History { epoch_us: self.epoch_us, spans: self.spans, series }
    }

    /// Ends the span in progress, passes its figures to the outputs, and begins the next span.
    fn cut(&mut self, second: &mut Second, now: u64) {
        let usage = Usage::now(&self.server_pids);
        let seconds = Duration::from_nanos(now.saturating_sub(self.since)).as_secs_f64();
        if seconds > 0.0 && !self.stage.name.is_empty() {
            let server_share = usage.server_since(&self.usage).map(|time| time.as_secs_f64() / seconds);
            let span = Span {
                since: self.since,
                until: now,
                phase: self.stage.name,
                is_measured: self.stage.is_measured,
                samples: self.samples(second),
                server_share: server_share.or(self.told_share),
                generator_share: usage.generator_since(&self.usage).as_secs_f64() / seconds,
            };
            self.live = live(second, &span, self.live);
            if let Some(series) = &mut self.series {
                series.write(&span, self.epoch_us);
            }
            if self.keeps {
                self.spans.push(span);
            }
        }
        second.clear();
        (self.since, self.usage) = (now, usage);
    }

    /// Returns the figures of each operation in the span that ends.
    fn samples(&mut self, second: &Second) -> Vec<Sample> {
        let samples = Operation::ALL.into_iter().zip(&second.counts).filter_map(|(operation, count)| {
            let errors: Vec<_> = second
                .errors
                .iter()
                .filter(|((of, _), _)| *of == operation)
                .map(|(&(_, kind), &number)| (kind, number))
                .collect();
            let [seen, before] = &mut self.seen;
            if count.answered > 0 || !errors.is_empty() {
                if !seen.contains(&operation) {
                    seen.push(operation);
                }
            } else if !seen.contains(&operation) && !before.contains(&operation) {
                return None;
            }
            let ms = (!count.latencies.is_empty()).then(|| count.latencies.ms());
            Some(Sample { operation, count: count.answered, errors, ms })
        });
        samples.collect()
    }
}

/// Returns the figures of a span for the progress line. A very short span leaves the former figures unchanged.
fn live(second: &Second, span: &Span, before: Live) -> Live {
    let seconds = span.seconds();
    if seconds < LIVE_SECONDS_MIN {
        return before;
    }
    let requests = || span.samples.iter().filter(|sample| sample.operation.is_request());
    let latencies = requests().filter_map(|sample| Some(&second.counts.get(sample.operation as usize)?.latencies));
    let mut all = Latencies::new();
    latencies.for_each(|latencies| all.add(latencies));
    let events = span.sample(Operation::WatchEvent);
    Live {
        requests: count(requests().map(|sample| sample.count).sum()) / seconds,
        ms: (!all.is_empty()).then(|| [all.ms()[0], all.ms_p99()]),
        events: events.map(|sample| count(sample.count) / seconds),
        ..before
    }
}

/// Length of a span, in nanoseconds.
const SPAN_NS: u64 = 1_000_000_000;
/// Shortest span whose rates the progress line shows, in seconds.
const LIVE_SECONDS_MIN: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_kind::ErrorKind;

    const SETTLING: Stage = Stage { name: "settling", is_measured: false, part: None, ends_at: None };
    const MEASURING: Stage = Stage { name: "measuring", is_measured: true, part: None, ends_at: None };

    #[test]
    fn spans_end_with_a_second_or_phase_and_list_all_operations() {
        let mut recorder = Recorder::new(&[]);
        let mut timeline = Timeline::new(Progress::hidden(), None, true, &[]);
        timeline.begin(&mut recorder, 0);
        timeline.look(&mut recorder, SETTLING, 0, None, 5);
        recorder.answered(Operation::Renew, 0, 1_000_000);
        timeline.look(&mut recorder, SETTLING, 0, None, 900_000_005);
        timeline.look(&mut recorder, MEASURING, 0, None, 950_000_005);
        recorder.failed(Operation::Read, ErrorKind::Reset, || "x".to_owned());
        timeline.look(&mut recorder, MEASURING, 0, None, 1_960_000_005);
        let History { spans, series, .. } = timeline.finish(&mut recorder, 2_000_000_005);
        assert_eq!(series, Ok(()));
        let told: Vec<_> = spans.iter().map(|span| (span.phase, span.is_measured, span.until - span.since)).collect();
        let expected =
            [("settling", false, 950_000_000), ("measuring", true, 1_010_000_000), ("measuring", true, 40_000_000)];
        assert_eq!(told, expected);
        let counts: Vec<Vec<_>> =
            spans.iter().map(|span| span.samples.iter().map(|s| (s.operation.name(), s.count)).collect()).collect();
        assert_eq!(counts, [vec![("renew", 1)], vec![("renew", 0), ("read", 0)], vec![("renew", 0), ("read", 0)]]);
        assert_eq!(spans[1].samples[1].errors, [(ErrorKind::Reset, 1)]);
        assert!(
            spans[0].samples[0].ms.is_some_and(|ms| (0.99..1.01).contains(&ms[4])) && spans[1].samples[0].ms.is_none()
        );
    }

    #[test]
    fn a_disabled_timeline_counts_nothing() {
        let mut recorder = Recorder::new(&[]);
        let mut timeline = Timeline::off();
        timeline.begin(&mut recorder, 0);
        assert!(recorder.second().is_none());
        timeline.look(&mut recorder, MEASURING, 0, None, 5_000_000_000);
        assert!(timeline.finish(&mut recorder, 6_000_000_000).spans.is_empty());
    }
}
