//! The time series of a run: a file of JSON lines, one for each span (a second of the run) and operation.
//! docs/loadgen.md describes the fields.
//!
//! The lines of a span are written when the span ends, so the file can be read during the run.

use crate::figures::{count, round};
use crate::span::Span;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

/// The time series of the run in progress.
#[derive(Debug)]
pub(crate) struct Series {
    path: PathBuf,
    out: BufWriter<File>,
    /// The first error in writing the file. After an error, nothing more is written.
    error: Option<io::Error>,
}

impl Series {
    /// Creates a time series that is written to `file`. Error messages name `path`.
    pub(crate) fn new(path: PathBuf, file: File) -> Self {
        Self { path, out: BufWriter::new(file), error: None }
    }

    /// Appends the lines of a span of the run. `epoch_us` is the start of the run, in microseconds since the Unix
    /// epoch.
    pub(crate) fn write(&mut self, span: &Span, epoch_us: u64) {
        if self.error.is_none() {
            self.error = self.write_lines(span, epoch_us).err();
        }
    }

    fn write_lines(&mut self, span: &Span, epoch_us: u64) -> io::Result<()> {
        for line in lines(span, epoch_us) {
            serde_json::to_writer(&mut self.out, &line)?;
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }

    /// Returns the first error in writing the file, as a sentence for the user.
    pub(crate) fn finish(self) -> Result<(), String> {
        self.error.map_or(Ok(()), |e| Err(format!("cannot write {}: {e}", self.path.display())))
    }
}

/// A line of the time series. The JSON has the fields in this order.
#[derive(Debug, Serialize)]
struct Line {
    time: f64,
    elapsed_s: f64,
    interval_s: f64,
    phase: &'static str,
    operation: &'static str,
    count: u64,
    errors: BTreeMap<String, u64>,
    us_p50: Option<f64>,
    us_p90: Option<f64>,
    us_p99: Option<f64>,
    us_p99_9: Option<f64>,
    us_max: Option<f64>,
    server_cpu_share: Option<f64>,
    generator_cpu_share: f64,
}

/// Returns the lines of a span. `epoch_us` is the start of the run, in microseconds since the Unix epoch.
fn lines(span: &Span, epoch_us: u64) -> impl Iterator<Item = Line> {
    span.samples.iter().map(move |sample| {
        let [p50, p90, p99, p999, max] = sample.ms.map_or([None; 5], |ms| ms.map(|ms| Some(round(ms * 1_000.0))));
        Line {
            time: round(count(epoch_us + span.since / 1_000) / 1e6),
            elapsed_s: round(count(span.since) / 1e9),
            interval_s: round(span.seconds()),
            phase: span.phase,
            operation: sample.operation.name(),
            count: sample.count,
            errors: sample.errors.iter().map(|(kind, number)| (kind.name(), *number)).collect(),
            us_p50: p50,
            us_p90: p90,
            us_p99: p99,
            us_p99_9: p999,
            us_max: max,
            server_cpu_share: span.server_share.map(round),
            generator_cpu_share: round(span.generator_share),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_kind::ErrorKind;
    use crate::operation::Operation;
    use crate::span::Sample;
    use crate::span::tests::second;

    #[test]
    fn a_line_has_the_time_the_operation_and_the_latencies() {
        let samples = vec![
            Sample { operation: Operation::Renew, count: 3, errors: vec![], ms: Some([0.06, 0.07, 0.08, 0.09, 1.5]) },
            Sample { operation: Operation::Read, count: 0, errors: vec![(ErrorKind::Status(500), 2)], ms: None },
        ];
        let span = Span { server_share: Some(0.25), ..second(2_500_000_000, samples) };
        let text = |line: Line| serde_json::to_string(&line).expect("JSON");
        let lines: Vec<String> = lines(&span, 1_700_000_000_000_000).map(text).collect();
        let expected = concat!(
            r#"{"time":1700000002.5,"elapsed_s":2.5,"interval_s":1.0,"phase":"measuring","operation":"renew","count":3,"#,
            r#""errors":{},"us_p50":60.0,"us_p90":70.0,"us_p99":80.0,"us_p99_9":90.0,"us_max":1500.0,"#,
            r#""server_cpu_share":0.25,"generator_cpu_share":0.5}"#
        );
        assert_eq!(lines[0], expected);
        assert!(lines[1].contains(r#""count":0,"errors":{"500":2},"us_p50":null"#), "{}", lines[1]);
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end() {
        let Ok(file) = File::options().write(true).open("/dev/full") else { return };
        let mut series = Series::new("/dev/full".into(), file);
        let sample = Sample { operation: Operation::Renew, count: 0, errors: vec![], ms: None };
        series.write(&second(0, vec![sample]), 0);
        let words = series.finish().expect_err("it is full");
        assert!(words.starts_with("cannot write /dev/full: "), "{words}");
    }
}
