//! How long the turns of the server's loop took, by its own account: what a request waits at most before it is looked at,
//! whatever the machine and the load generator do meanwhile.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// The histogram of all turns since the start: milliseconds, and how many took no longer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turns(Vec<(f64, u64)>);

impl Turns {
    /// Asks the server at this address, in the clear.
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
        Self::parse(&text).ok_or_else(|| format!("{url}/metrics: no durations of turns"))
    }

    /// From Prometheus' text.
    fn parse(text: &str) -> Option<Self> {
        let bucket = |line: &str| {
            let (bound, count) = line.strip_prefix(BUCKET)?.split_once("\"} ")?;
            // That of the bucket without a bound is infinite, as f64 reads it.
            Some((bound.parse::<f64>().ok()? * 1_000.0, count.trim().parse().ok()?))
        };
        let buckets: Vec<(f64, u64)> = text.lines().filter_map(bucket).collect();
        (!buckets.is_empty()).then_some(Self(buckets))
    }

    /// Of the turns since `earlier`: p50, p99, p99.9 and the longest, each as the bound of its bucket, in milliseconds;
    /// infinite for those above the last bound.
    pub(crate) fn since(&self, earlier: &Self) -> [Option<f64>; 4] {
        let since: Vec<(f64, u64)> = self
            .0
            .iter()
            .zip(&earlier.0)
            .map(|((bound, now), (_, then))| (*bound, now.saturating_sub(*then)))
            .collect();
        let all = since.last().map_or(0, |(_, count)| *count);
        [500, 990, 999, 1_000].map(|per_mille| {
            let wanted = (all * per_mille).div_ceil(1_000);
            since.iter().find(|(_, count)| all > 0 && *count >= wanted).map(|(bound, _)| *bound)
        })
    }
}

const BUCKET: &str = "coordination_turn_duration_seconds_bucket{le=\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_since_is_told_by_its_buckets() {
        let text = |counts: [u64; 3]| {
            let [a, b, all] = counts;
            format!(
                "HTTP/1.1 200 OK\r\n\r\n# HELP x\nother 5\n{BUCKET}0.001\"}} {a}\n{BUCKET}0.0025\"}} {b}\n{BUCKET}+Inf\"}} {all}\n"
            )
        };
        let turns = |counts| Turns::parse(&text(counts)).expect("buckets");
        let start = turns([10, 10, 11]);
        assert_eq!(turns([110, 110, 111]).since(&start), [Some(1.0); 4]);
        assert_eq!(turns([109, 110, 111]).since(&start), [Some(1.0), Some(1.0), Some(2.5), Some(2.5)]);
        assert_eq!(turns([109, 109, 111]).since(&start)[3], Some(f64::INFINITY));
        assert_eq!(start.since(&start), [None; 4]);
        assert_eq!(Turns::parse("HTTP/1.1 403 Forbidden\r\n\r\n"), None);
    }
}
