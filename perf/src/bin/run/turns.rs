//! Durations of the turns of the server's event loop, from the server's metrics. A long turn delays the requests that
//! arrive during the turn. The durations do not depend on the load generator. The metrics also contain the processor
//! time of busy turns, which continue work that the previous turn had left. This time does not depend on other
//! processes.

use perf::results::Latency;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Histograms of the event-loop turns since the server's start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turns {
    /// Durations of all turns, from the wake-up of the event loop to its last write.
    pub(crate) duration: Histogram,
    /// Processor time of the turns that continued work which the previous turn had left.
    pub(crate) cpu: Histogram,
}

/// The buckets of a histogram: the upper bound in milliseconds, and the number of turns up to this bound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Histogram(Vec<(f64, u64)>);

impl Turns {
    /// Reads the metrics of the server at this URL, over cleartext HTTP.
    pub(crate) fn read(url: &str) -> Result<Self, String> {
        let told = || -> std::io::Result<String> {
            let mut socket = TcpStream::connect(url.trim_start_matches("http://"))?;
            socket.set_read_timeout(Some(Duration::from_secs(10)))?;
            socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            socket.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = told().map_err(|e| format!("{url}/metrics: {e}"))?;
        Self::parse(&text).ok_or_else(|| format!("{url}/metrics: no histogram of turns"))
    }

    fn parse(text: &str) -> Option<Self> {
        Some(Self { duration: Histogram::parse(text, DURATION)?, cpu: Histogram::parse(text, CPU)? })
    }
}

impl Histogram {
    /// Parses the histogram `name` in Prometheus' text format.
    fn parse(text: &str, name: &str) -> Option<Self> {
        let bucket = |line: &str| {
            let (bound, count) = line.strip_prefix(name)?.strip_prefix("_bucket{le=\"")?.split_once("\"} ")?;
            // The bound of the last bucket is `+Inf`, which f64 parses.
            Some((bound.parse::<f64>().ok()? * 1_000.0, count.trim().parse().ok()?))
        };
        let buckets: Vec<(f64, u64)> = text.lines().filter_map(bucket).collect();
        (!buckets.is_empty()).then_some(Self(buckets))
    }

    /// Returns p50, p99, p99.9 and the maximum of the turns since `earlier`. Each is the upper bound of its bucket, in
    /// milliseconds. A turn above the last bound gives infinity.
    pub(crate) fn since(&self, earlier: &Self) -> Latency {
        let since: Vec<(f64, u64)> = self
            .0
            .iter()
            .zip(&earlier.0)
            .map(|((bound, now), (_, then))| (*bound, now.saturating_sub(*then)))
            .collect();
        let all = since.last().map_or(0, |(_, count)| *count);
        let [ms_p50, ms_p99, ms_p99_9, ms_max] = [500, 990, 999, 1_000].map(|per_mille| {
            let wanted = (all * per_mille).div_ceil(1_000);
            since.iter().find(|(_, count)| all > 0 && *count >= wanted).map(|(bound, _)| *bound)
        });
        Latency { ms_p50, ms_p99, ms_p99_9, ms_max }
    }
}

const DURATION: &str = "coordination_turn_duration_seconds";
const CPU: &str = "coordination_busy_turn_cpu_seconds";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_since_a_reading_are_counted_by_bucket() {
        let text = |counts: [u64; 3]| {
            let buckets = |name| {
                let [a, b, all] = counts;
                let bucket = format!("{name}_bucket{{le=");
                format!("{bucket}\"0.001\"}} {a}\n{bucket}\"0.0025\"}} {b}\n{bucket}\"+Inf\"}} {all}\n")
            };
            format!("HTTP/1.1 200 OK\r\n\r\n# HELP x\n{}other 5\n{}", buckets(DURATION), buckets(CPU))
        };
        let turns = |counts| Turns::parse(&text(counts)).expect("buckets");
        let start = turns([10, 10, 11]);
        for of in [|turns: Turns| turns.duration, |turns: Turns| turns.cpu] {
            let since = |counts| {
                let Latency { ms_p50, ms_p99, ms_p99_9, ms_max } = of(turns(counts)).since(&of(start.clone()));
                [ms_p50, ms_p99, ms_p99_9, ms_max]
            };
            assert_eq!(since([110, 110, 111]), [Some(1.0); 4]);
            assert_eq!(since([109, 110, 111]), [Some(1.0), Some(1.0), Some(2.5), Some(2.5)]);
            assert_eq!(since([109, 109, 111])[3], Some(f64::INFINITY));
            assert_eq!(since([10, 10, 11]), [None; 4]);
        }
        assert_eq!(Turns::parse("HTTP/1.1 403 Forbidden\r\n\r\n"), None);
    }
}
