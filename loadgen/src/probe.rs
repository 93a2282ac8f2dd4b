//! Reads the processor time of each server from its `/metrics`, once a second.
//!
//! This module owns one connection to each server for these reads, and the last two values of each server. A server
//! that lacks or denies the metric is asked only once. The results count neither these responses nor their errors.

use crate::http::{Bodies, Broken, Request, Told, Verdict};
use crate::link::{Connect as _, Link};
use crate::origin::Origin;
use crate::target::Target;
use memchr::memmem;
use mio::event::Event;
use mio::{Registry, Token};
use std::time::Duration;

/// Connections for `/metrics`, one to each server.
#[derive(Debug)]
pub(crate) struct Probes {
    probes: Vec<Probe>,
    /// Number of the first of these connections among all connections of the run.
    first: usize,
}

/// The connection for `/metrics` of one server.
#[derive(Debug)]
struct Probe {
    /// The connection. The tag of a request is its send time, in nanoseconds since the start of the run.
    link: Link<u64>,
    account: Account,
    /// When the next request may be sent, in nanoseconds since the start of the run.
    next: u64,
}

/// Processor time that a server reports.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Processor time in seconds in the last response, and the send time of its request in nanoseconds since the start
    /// of the run.
    last: Option<(f64, u64)>,
    /// Processor time between the last two responses, as a share of a core; `None` if it is unknown.
    share: Option<f64>,
}

impl Account {
    /// Records the processor time in a response whose request was sent at `now`. `seconds` is `None` if the response
    /// lacks the metric.
    fn note(&mut self, seconds: Option<f64>, now: u64) {
        let told = seconds.map(|seconds| (seconds, now));
        self.share = told.zip(self.last).and_then(|((seconds, at), (before, since))| {
            let elapsed = Duration::from_nanos(at.saturating_sub(since)).as_secs_f64();
            // The processor time of a server that was restarted begins at 0 again, so the share is unknown.
            (elapsed > 0.0 && seconds >= before).then(|| (seconds - before) / elapsed)
        });
        self.last = told;
    }

    /// Returns the processor time at `now` as a share of a core; `None` if the last response is too old.
    fn share(&self, now: u64) -> Option<f64> {
        let (_, told_at) = self.last?;
        self.share.filter(|_| now.saturating_sub(told_at) <= AGE_MAX_NS)
    }
}

impl Probes {
    /// Creates a probe for each server, without connections. The connections are numbered from `first` on.
    pub(crate) fn new(servers_len: usize, first: usize) -> Self {
        Self { probes: std::iter::repeat_with(Probe::new).take(servers_len).collect(), first }
    }

    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.probes.len()
    }

    /// Records the readiness of the connection with this number, if the connection is a probe's.
    pub(crate) fn handle_readiness(&mut self, index: usize, event: &Event) {
        if let Some(probe) = index.checked_sub(self.first).and_then(|place| self.probes.get_mut(place)) {
            probe.link.handle_readiness(event);
        }
    }

    /// Opens missing connections, receives responses, and sends each due request. The driver (the event loop of the
    /// run) calls this method periodically.
    pub(crate) fn run(&mut self, targets: &[Target], registry: &Registry, scratch: &mut [u8], now: u64) {
        for ((probe, target), index) in self.probes.iter_mut().zip(targets).zip(self.first..) {
            // A probe's error does not count in the results. A later attempt may succeed.
            if probe.link.is_due(now) && probe.link.open(target, registry, Token(index), now).is_err()
                || probe.run(&target.origin, scratch, now).is_err()
            {
                probe.link.take_in_flight();
                probe.link.close(registry, now);
            }
        }
    }

    /// Returns the processor time of all servers together, as a share of a core, between their last two responses.
    /// `None` if the share of a server is not known at `now`.
    pub(crate) fn share(&self, now: u64) -> Option<f64> {
        let (first, others) = self.probes.split_first()?;
        others.iter().try_fold(first.account.share(now)?, |sum, probe| Some(sum + probe.account.share(now)?))
    }
}

impl Probe {
    fn new() -> Self {
        Self { link: Link::new(Bodies::Whole, 1), account: Account::default(), next: 0 }
    }

    fn run(&mut self, origin: &Origin, scratch: &mut [u8], now: u64) -> Result<(), Broken> {
        let (account, next) = (&mut self.account, &mut self.next);
        self.link.receive(origin, scratch, now, |asked_at, told| {
            let (status, seconds) = match told {
                Told::Answer { status, body, .. } => (status, cpu_seconds_in(body).filter(|_| status == 200)),
                Told::Unserved | Told::Refused | Told::Lost { .. } => return Verdict::GoOn,
            };
            // The server reads its processor time soon after the request arrives, so the request's send time is
            // recorded.
            account.note(seconds, asked_at);
            if seconds.is_none() && is_final(status) {
                *next = u64::MAX;
            }
            Verdict::GoOn
        })?;
        self.link.expire(now, |asked_at| asked_at)?;
        if now >= self.next && self.link.has_room() {
            let request = Request { method: "GET", target: "/metrics", body: None };
            if self.link.send(origin, &request, now) {
                self.next = now + INTERVAL_NS;
            }
        }
        self.link.flush(origin)
    }
}

/// Whether a server will never report the metric, after a response with this status and without the metric.
fn is_final(status: u16) -> bool {
    matches!(status, 200 | 401 | 403 | 404)
}

/// Returns the processor time in a response to `/metrics`, in seconds.
fn cpu_seconds_in(body: &[u8]) -> Option<f64> {
    let at = memmem::find(body, METRIC)? + METRIC.len();
    let rest = body.get(at..)?;
    std::str::from_utf8(rest.get(..memchr::memchr(b'\n', rest)?)?).ok()?.trim().parse().ok()
}

/// Start of a sample of `process_cpu_seconds_total`, which all servers of Kubernetes have.
const METRIC: &[u8] = b"\nprocess_cpu_seconds_total ";
/// Time between two requests, in nanoseconds.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Maximum age of the last response at which the share is still known, in nanoseconds.
const AGE_MAX_NS: u64 = 2 * INTERVAL_NS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use crate::link::{SCRATCH_BYTES, TIMEOUT_NS};
    use crate::origin::MediaType;
    use crate::reactor::Reactor;
    use clap::Parser as _;
    use std::net::TcpListener;

    #[test]
    fn the_cpu_time_is_parsed_from_the_metrics() {
        let text = "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 12.5\nx 1\n";
        assert_eq!(cpu_seconds_in(text.as_bytes()), Some(12.5));
        assert_eq!(cpu_seconds_in(b"x 1\n"), None);
        assert_eq!(cpu_seconds_in(b"\nprocess_cpu_seconds_total "), None);
    }

    #[test]
    fn the_cpu_share_covers_two_scrapes_of_the_same_process() {
        let mut account = Account::default();
        account.note(Some(1.0), 0);
        assert_eq!(account.share, None);
        account.note(Some(1.5), 2_000_000_000);
        assert_eq!(account.share, Some(0.25));
        account.note(Some(0.1), 3_000_000_000);
        assert_eq!(account.share, None);
        account.note(Some(1.1), 4_000_000_000);
        assert_eq!(account.share, Some(1.0));
    }

    #[test]
    fn a_server_with_an_old_scrape_has_no_cpu_share() {
        let mut probes = Probes::new(2, 0);
        for (probe, seconds) in probes.probes.iter_mut().zip([0.25, 0.5]) {
            probe.account.note(Some(1.0), 0);
            probe.account.note(Some(1.0 + seconds), INTERVAL_NS);
        }
        assert_eq!(probes.share(INTERVAL_NS + AGE_MAX_NS), Some(0.75));
        probes.probes[0].account.note(Some(1.5), 2 * INTERVAL_NS);
        assert_eq!(probes.share(INTERVAL_NS + AGE_MAX_NS + 1), None);
    }

    /// The server never answers: it does not call `accept`, and only its kernel completes the TCP handshake.
    #[test]
    fn an_overdue_scrape_frees_its_connection() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let url = format!("http://{}", silent.local_addr().expect("an address"));
        let args = Args::try_parse_from(["loadgen", "--server", &url, "--http1"]).expect("valid flags");
        let targets = Target::of_args(&args.server, MediaType::Json).expect("a target");
        let mut reactor = Reactor::new(1).expect("a reactor");
        let (mut probes, mut scratch) = (Probes::new(1, 0), vec![0; SCRATCH_BYTES]);
        while probes.probes[0].link.len() == 0 {
            probes.run(&targets, reactor.registry(), &mut scratch, 0);
            let until = reactor.now() + 10_000_000;
            reactor.wait(until, |index, event| probes.handle_readiness(index, event)).expect("a wait");
        }
        probes.run(&targets, reactor.registry(), &mut scratch, TIMEOUT_NS + 1);
        assert_eq!(probes.probes[0].link.len(), 0);
    }

    #[test]
    fn a_scrape_is_repeated_unless_its_status_is_final() {
        assert!([200, 401, 403, 404].into_iter().all(is_final));
        assert!(![429, 500, 503, 504].into_iter().any(is_final));
    }
}
