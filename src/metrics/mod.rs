//! What is counted, for `/metrics`.
//!
//! Counting must cost the request next to nothing, so a request is one index into an array, found by its kind and its
//! status; nothing is hashed, allocated or timed for it. Time is measured once a turn: all requests that a turn answers
//! took as long as the turn, from its wake-up to the last write, and those that an earlier turn has taken in as long as
//! from there. What happens inside the rules is not counted there but
//! seen from outside, at the end of a turn or when somebody asks.

mod histogram;
mod holders;
mod journal;
mod process;
mod request;
mod text;

pub(crate) use request::RequestKind;

use self::journal::JournalCounts;
use crate::build_info::BuildInfo;
use crate::clock::Now;
use crate::cluster::Followed;
use crate::journal::{CommitStats, Journal};
use crate::resource::{ApiVersion, GROUP, RESOURCE, VERSION};
use crate::table::Table;
use crate::timestamp::Time;
use crate::watch::WatchEnd;
use histogram::Histogram;
use holders::{ByNamespace, HolderScan};
use request::RequestCounts;
use text::Exposition;

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    /// When the process started, by the wall clock; known once somebody has asked.
    started: Option<Time>,
    requests: RequestCounts,
    turns: Histogram<{ TURN_BOUNDS_US.len() }>,
    turns_cpu: Histogram<{ TURN_BOUNDS_US.len() }>,
    connections_accepted: u64,
    accept_errors: u64,
    connections_evicted: u64,
    tls_handshakes: u64,
    tls_handshake_errors: u64,
    requests_malformed: u64,
    reload_failures: u64,
    serving_last: Option<Time>,
    followed: Vec<Followed>,
    watches: WatchCounts,
    /// As at the end of the turn before, when what is open was counted too.
    watches_last: WatchCounts,
    last: TurnEnd,
    holders: HolderScan,
    holder_changes: ByNamespace<u64>,
    journal: JournalCounts,
}

/// Watches since the start.
#[derive(Clone, Copy, Debug, Default)]
struct WatchCounts {
    started: u64,
    expired: u64,
    timed_out: u64,
}

/// How things stand at the end of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnEnd {
    /// Microseconds from the wake-up to the last write.
    pub duration_us: u64,
    /// Microseconds of processor time in it, if it went on with what the turn before had left undone.
    pub cpu_us: Option<u64>,
    /// Open connections.
    pub connections: usize,
    /// Open watches.
    pub watchers: usize,
    /// Events given to watches since the start, bookmarks and errors among them.
    pub watch_events: u64,
    /// Connections with a long response under way that is no watch.
    pub connections_with_jobs: usize,
    /// Bytes that wait, on all connections, until a window opens or a socket takes them.
    pub queued_bytes: usize,
    /// Bytes received, on all connections, of requests that are not answered yet.
    pub received_bytes: usize,
    /// Requests that wait for the journal, for another change of their Lease, or for a namespace.
    pub waiting_requests: usize,
}

/// Bounds of the turns' durations, in microseconds: from a turn that found one request to one that stalls the others.
const TURN_BOUNDS_US: [u64; 14] =
    [10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000];

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Nothing has happened.
    #[must_use]
    pub fn new() -> Self {
        Self {
            started: None,
            requests: RequestCounts::new(),
            turns: Histogram::new(&TURN_BOUNDS_US),
            turns_cpu: Histogram::new(&TURN_BOUNDS_US),
            connections_accepted: 0,
            accept_errors: 0,
            connections_evicted: 0,
            tls_handshakes: 0,
            tls_handshake_errors: 0,
            requests_malformed: 0,
            reload_failures: 0,
            serving_last: None,
            followed: Vec::new(),
            watches: WatchCounts::default(),
            watches_last: WatchCounts::default(),
            last: TurnEnd::default(),
            holders: HolderScan::default(),
            holder_changes: ByNamespace::default(),
            journal: JournalCounts::new(),
        }
    }

    /// A batch of changes became durable.
    pub fn count_commit(&mut self, commit: CommitStats) {
        self.journal.count_commit(commit);
    }

    /// The holder of a Lease in a namespace has changed.
    pub fn count_holder_change(&mut self, namespace: &str) {
        *self.holder_changes.of(namespace) += 1;
    }

    /// A request was answered, or a watch begins, `waited_ms` after the request was taken in.
    #[inline]
    pub fn count_request(&mut self, kind: RequestKind, version: ApiVersion, status: u16, waited_ms: u64) {
        self.requests.count(kind, version, status, waited_ms);
    }

    /// The response to a request begins, and [`Metrics::count_end`] is to follow.
    pub fn count_begin(&mut self, kind: RequestKind, version: ApiVersion, status: u16) {
        self.requests.count_begin(kind, version, status);
    }

    /// The last of a response was made, `waited_ms` after its request was taken in.
    pub fn count_end(&mut self, kind: RequestKind, version: ApiVersion, waited_ms: u64) {
        self.requests.count_end(kind, version, waited_ms);
    }

    /// What came was no request, and the connection ends.
    pub fn count_malformed_request(&mut self) {
        self.requests_malformed += 1;
    }

    /// A connection was accepted.
    pub fn count_connection(&mut self) {
        self.connections_accepted += 1;
    }

    /// The system has no connection to give, for want of descriptors or memory.
    pub fn count_accept_error(&mut self) {
        self.accept_errors += 1;
    }

    /// An anonymous peer's connection was ended to make place for another.
    pub fn count_evicted_connection(&mut self) {
        self.connections_evicted += 1;
    }

    /// A TLS handshake is over, well or not.
    pub fn count_tls_handshake(&mut self, is_ok: bool) {
        let count = if is_ok { &mut self.tls_handshakes } else { &mut self.tls_handshake_errors };
        *count += 1;
    }

    /// This replica has lost track of the store, and loads it again.
    pub fn count_reload(&mut self) {
        self.journal.count_reload();
    }

    /// Certificates could not be loaded anew, or still cannot.
    pub fn count_reload_failure(&mut self) {
        self.reload_failures += 1;
    }

    /// What of the cluster is followed.
    pub fn set_followed(&mut self, followed: Vec<Followed>) {
        self.followed = followed;
    }

    /// The last second at which the serving certificate is valid; none without TLS.
    pub fn set_serving_last(&mut self, last: Option<Time>) {
        self.serving_last = last;
    }

    /// A watch has begun.
    pub fn count_watch(&mut self) {
        self.watches.started += 1;
    }

    /// The server has ended a watch. Of those that end otherwise nothing needs to be said: they are what is missing.
    pub fn count_watch_end(&mut self, why: WatchEnd) {
        let count = match why {
            WatchEnd::Expired => &mut self.watches.expired,
            WatchEnd::TimedOut => &mut self.watches.timed_out,
            WatchEnd::Unread | WatchEnd::Unsuitable => return,
        };
        *count += 1;
    }

    /// A turn is over.
    pub fn end_turn(&mut self, end: TurnEnd) {
        self.turns.observe(end.duration_us);
        if let Some(cpu_us) = end.cpu_us {
            self.turns_cpu.observe(cpu_us);
        }
        self.requests.end_turn(end.duration_us);
        self.last = end;
        self.watches_last = self.watches;
    }

    /// Goes on with what is found out in steps. To be called each turn.
    pub fn step(&mut self, table: &Table, now: Now) {
        self.holders.step(table, now);
    }

    /// Milliseconds at which [`Metrics::step`] has something to do.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.holders.due_ms()
    }

    /// Everything, in Prometheus' text format, version 0.0.4. `holds_writes` says whether a hand-over holds clients'
    /// writes back.
    #[must_use]
    pub fn encode(&mut self, table: &Table, journal: Option<&Journal>, holds_writes: bool, now: Now) -> Vec<u8> {
        self.holders.on_asked(table, now);
        let mut out = Exposition::new();
        self.requests.encode(&mut out);
        self.encode_watches(&mut out);
        self.encode_table(&mut out, table);
        self.encode_holders(&mut out);
        out.single_gauge(
            "coordination_handover_holds_writes",
            "1 while a takeover or a rollback holds clients' writes back, also after a rollback. Else 0.",
            u8::from(holds_writes),
        );
        if let Some(journal) = journal {
            self.journal.encode(&mut out, journal);
        }
        self.encode_loop(&mut out);
        encode_build_info(&mut out);
        let since_start = i64::try_from(now.ms / 1000).unwrap_or(i64::MAX);
        let started = *self.started.get_or_insert_with(|| Time(now.wall.0.saturating_sub(since_start)));
        process::encode(&mut out, started);
        out.finish()
    }

    fn encode_watches(&self, out: &mut Exposition) {
        const ENDED: &str = "coordination_watches_ended_total";
        let resource = [("group", GROUP), ("version", VERSION), ("resource", RESOURCE)];
        out.gauge("apiserver_longrunning_requests", "Watches that are open.");
        let labels = [
            &[("verb", "WATCH")][..],
            &resource,
            &[("subresource", ""), ("scope", ""), ("component", request::COMPONENT)],
        ];
        out.sample("apiserver_longrunning_requests", &labels.concat(), self.last.watchers);
        out.counter("apiserver_watch_events_total", "Events given to watches, bookmarks and errors among them.");
        out.sample("apiserver_watch_events_total", &resource, self.last.watch_events);
        out.counter("coordination_watches_started_total", "Watches that have begun.");
        let WatchCounts { started, expired, timed_out } = self.watches_last;
        out.sample("coordination_watches_started_total", &[], started);
        out.counter(
            ENDED,
            "Watches that have ended: because the event log had forgotten what they needed next (expired), because \
             their time was over (timeout), or because the client or the server hung up (closed).",
        );
        let closed = started.saturating_sub(expired + timed_out).saturating_sub(self.last.watchers as u64);
        for (reason, count) in [("closed", closed), ("expired", expired), ("timeout", timed_out)] {
            out.sample(ENDED, &[("reason", reason)], count);
        }
    }

    fn encode_table(&self, out: &mut Exposition, table: &Table) {
        // Kubernetes has hidden the older name; here it was promised to stay.
        out.gauge("apiserver_storage_objects", "Objects in the table.");
        out.sample("apiserver_storage_objects", &[("resource", "leases.coordination.k8s.io")], table.len());
        out.gauge("apiserver_resource_objects", "Objects in the table.");
        out.sample("apiserver_resource_objects", &[("group", GROUP), ("resource", RESOURCE)], table.len());
        out.single_gauge("coordination_leases", "Leases in the table.", table.len());
        let (used, limited) = table.metered_bytes();
        out.single_gauge("coordination_lease_quota_used_bytes", "What counts towards the quota of Leases.", used);
        out.single_gauge("coordination_lease_quota_bytes", "The quota of Leases.", limited);
        let log = table.log();
        out.single_gauge(
            "coordination_event_log_floor",
            "The oldest resourceVersion from which a watch can go on.",
            log.floor().0,
        );
        out.single_gauge("coordination_event_log_head", "The resourceVersion of the last change.", log.head().0);
        out.single_gauge("coordination_event_log_events", "Events that the log keeps.", log.len());
        out.single_gauge("coordination_event_log_bytes", "Memory that the events hold, as an estimate.", log.bytes());
    }

    fn encode_holders(&self, out: &mut Exposition) {
        const LEASES: &str = "coordination_namespace_leases";
        const CHANGES: &str = "coordination_lease_holder_changes_total";
        if let Some(known) = self.holders.known() {
            out.single_gauge(
                "coordination_leases_expired",
                "Leases whose holder has not renewed them in time. Of a large table it is counted in steps, between \
                 one scrape and the next.",
                known.leases.iter().map(|(_, counts)| counts.expired).sum::<u64>(),
            );
            out.single_gauge(
                "coordination_leases_expired_timestamp_seconds",
                "When the count of expired Leases was complete, in seconds since 1970.",
                known.at.0,
            );
            out.gauge(LEASES, "Leases by namespace: held, expired or without a holder. Counted with the expired ones.");
            for (namespace, counts) in known.leases.iter() {
                for (state, count) in [("held", counts.held), ("expired", counts.expired), ("unheld", counts.unheld)] {
                    out.sample(LEASES, &[("namespace", namespace), ("state", state)], count);
                }
            }
        }
        out.counter(CHANGES, "Changes of a Lease's holder that clients of this server made.");
        for (namespace, count) in self.holder_changes.iter() {
            out.sample(CHANGES, &[("namespace", namespace)], count);
        }
    }

    fn encode_loop(&self, out: &mut Exposition) {
        const TURNS: &str = "coordination_turn_duration_seconds";
        const TURNS_CPU: &str = "coordination_busy_turn_cpu_seconds";
        out.histogram(TURNS, "Duration of the event loop's turns, from the wake-up to the last write.");
        self.turns.encode(out, TURNS, &[]);
        out.histogram(
            TURNS_CPU,
            "Processor time of those turns that went on with what the one before had left: requests, connections to be \
             accepted, handshakes, lists, deletions, watches that catch up. Where a turn's duration is far above it, something else had the core.",
        );
        self.turns_cpu.encode(out, TURNS_CPU, &[]);
        out.single_gauge("coordination_connections", "Open connections.", self.last.connections);
        out.single_gauge(
            "coordination_connections_with_jobs",
            "Connections on which a list or a deletion of a collection is under way; looked at once a second.",
            self.last.connections_with_jobs,
        );
        out.single_gauge(
            "coordination_queued_bytes",
            "Bytes that wait, on all connections, until a window opens or a socket takes them.",
            self.last.queued_bytes,
        );
        if let Some(last) = self.serving_last {
            out.single_gauge(
                "coordination_serving_certificate_expiration_timestamp_seconds",
                "When the serving certificate expires, in seconds since 1970.",
                last.0,
            );
        }
        if !self.followed.is_empty() {
            const HEARD: &str = "coordination_cluster_heard_timestamp_seconds";
            out.gauge(HEARD, "When the cluster last told of what is followed, in seconds since 1970; 0 for never.");
            for followed in &self.followed {
                out.sample(HEARD, &[("what", followed.what)], followed.last_heard());
            }
        }
        out.single_gauge(
            "coordination_received_bytes",
            "Bytes received, on all connections, of requests that are not answered yet.",
            self.last.received_bytes,
        );
        out.single_gauge(
            "coordination_waiting_requests",
            "Requests that wait for the journal, for another change of their Lease, or for a namespace.",
            self.last.waiting_requests,
        );
        for (name, help, count) in [
            (
                "coordination_connections_accepted_total",
                "Connections that have been accepted.",
                self.connections_accepted,
            ),
            (
                "coordination_accept_errors_total",
                "Times that a connection could not be accepted for want of descriptors or memory.",
                self.accept_errors,
            ),
            (
                "coordination_connections_evicted_total",
                "Connections of peers without a certificate ended to make place for others.",
                self.connections_evicted,
            ),
            ("coordination_tls_handshakes_total", "TLS handshakes that have succeeded.", self.tls_handshakes),
            ("apiserver_tls_handshake_errors_total", "TLS handshakes that have failed.", self.tls_handshake_errors),
            (
                "coordination_malformed_requests_total",
                "Connections ended because what came was no request that is taken.",
                self.requests_malformed,
            ),
            (
                "coordination_certificate_reload_errors_total",
                "Times that a serving certificate or an authority could not be loaded, so that the one of before stays; \
                 each counts again every hour for as long as it is so.",
                self.reload_failures,
            ),
        ] {
            out.counter(name, help);
            out.sample(name, &[], count);
        }
    }
}

fn encode_build_info(out: &mut Exposition) {
    const BUILD: &str = "kubernetes_build_info";
    out.gauge(BUILD, "1, with what the program was built from as labels.");
    let info = BuildInfo::get();
    let labels = [
        ("build_date", info.build_date),
        ("compiler", info.compiler),
        ("git_commit", info.git_commit),
        ("git_tree_state", info.git_tree_state),
        ("git_version", info.git_version),
        ("go_version", info.go_version),
        ("major", info.major),
        ("minor", info.minor),
        ("platform", info.platform),
    ];
    out.sample(BUILD, &labels, 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceVersion;

    fn sample(text: &str, series: &str) -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    #[test]
    fn what_was_counted_is_told() {
        let table = Table::new(ResourceVersion(7), 10, 1000);
        let mut metrics = Metrics::new();
        for _ in 0..3 {
            metrics.count_watch();
        }
        metrics.count_watch_end(WatchEnd::Expired);
        metrics.count_tls_handshake(true);
        metrics.count_tls_handshake(false);
        metrics.count_reload_failure();
        metrics.set_serving_last(Some(Time(1_800_000_000)));
        metrics.set_followed(vec![Followed::namespaces()]);
        metrics.end_turn(TurnEnd {
            duration_us: 30,
            cpu_us: Some(20),
            connections: 2,
            watchers: 1,
            watch_events: 2,
            connections_with_jobs: 0,
            queued_bytes: 7,
            received_bytes: 5,
            waiting_requests: 4,
        });
        // Of a turn that is not over it tells nothing, or what it is made of would be of two moments.
        metrics.count_watch();
        let text = String::from_utf8(metrics.encode(&table, None, false, Now::default())).expect("text");
        for (series, value) in [
            ("coordination_watches_started_total", 3),
            ("apiserver_watch_events_total{group=\"coordination.k8s.io\",version=\"v1\",resource=\"leases\"}", 2),
            ("coordination_watches_ended_total{reason=\"closed\"}", 1),
            ("coordination_watches_ended_total{reason=\"expired\"}", 1),
            ("coordination_watches_ended_total{reason=\"timeout\"}", 0),
            ("coordination_turn_duration_seconds_bucket{le=\"0.000025\"}", 0),
            ("coordination_turn_duration_seconds_bucket{le=\"0.00005\"}", 1),
            ("coordination_turn_duration_seconds_count", 1),
            ("coordination_busy_turn_cpu_seconds_bucket{le=\"0.00001\"}", 0),
            ("coordination_busy_turn_cpu_seconds_bucket{le=\"0.000025\"}", 1),
            ("coordination_queued_bytes", 7),
            ("coordination_received_bytes", 5),
            ("coordination_waiting_requests", 4),
            ("coordination_connections", 2),
            ("coordination_tls_handshakes_total", 1),
            ("apiserver_tls_handshake_errors_total", 1),
            ("coordination_certificate_reload_errors_total", 1),
            ("coordination_serving_certificate_expiration_timestamp_seconds", 1_800_000_000),
            ("coordination_cluster_heard_timestamp_seconds{what=\"namespaces\"}", 0),
            ("coordination_leases", 0),
            ("coordination_leases_expired", 0),
            ("coordination_lease_quota_used_bytes", 0),
            ("coordination_event_log_floor", 7),
            ("coordination_event_log_head", 7),
        ] {
            assert_eq!(sample(&text, series), Some(value), "{series}\n{text}");
        }
    }
}
