//! Metrics, for `/metrics`.
//!
//! The count of a request must be cheap. So the server only increments an array element, chosen by kind and status. It
//! computes no hash, allocates no memory and reads no clock for the count. The server measures the time once per turn
//! of the event loop. The duration of a request is the duration of the turn that responds to the request, from wake-up
//! to last write. If an earlier turn read the request, the duration counts from that turn. The API counts a request
//! when it responds to the request. The server reads the values of the table, the journal and the watchers at the end
//! of a turn or at a scrape.

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
use crate::table::{NamespaceQuota, Table};
use crate::timestamp::Time;
use crate::watch::WatchEnd;
use histogram::Histogram;
use holders::{ByNamespace, HolderScan};
use process::OpenFds;
use request::RequestCounts;
use text::Exposition;

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    /// Wall-clock start of the process; `None` before the first scrape.
    started: Option<Time>,
    open_fds: OpenFds,
    requests: RequestCounts,
    turns: Histogram<{ TURN_BOUNDS_US.len() }>,
    turns_cpu: Histogram<{ TURN_BOUNDS_US.len() }>,
    /// Numbers of events, which other modules count.
    pub counts: Counts,
    /// Last second at which the serving certificate is valid; `None` without TLS.
    pub serving_last: Option<Time>,
    /// Flag and last second of validity of each watched certificate, except the serving certificate.
    pub certs_last: Vec<(&'static str, Time)>,
    /// Watched resources of the cluster. For each of them, `/metrics` shows the time of the last response.
    pub followed: Vec<Followed>,
    watches: WatchCounts,
    /// Numbers of watches at the end of the previous turn. `last` has the number of open watches at the same moment.
    /// The started watches that are not expired, timed out or open are the closed watches.
    watches_last: WatchCounts,
    last: TurnEnd,
    holders: HolderScan,
    holder_changes: ByNamespace<u64>,
    journal: JournalCounts,
}

/// Numbers of events since the server's start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Accepted connections.
    pub connections_accepted: u64,
    /// Accepts that failed because descriptors or memory were exhausted.
    pub accept_errors: u64,
    /// Connections of anonymous peers that were closed at the connection limit, to accept other connections.
    pub connections_evicted: u64,
    /// TLS handshakes that succeeded.
    pub handshakes: u64,
    /// TLS handshakes that failed.
    pub handshake_errors: u64,
    /// Malformed requests. Each of them ended its connection.
    pub requests_malformed: u64,
    /// Failed reloads of certificates or CAs. A lasting failure counts again every hour.
    pub reload_failures: u64,
}

/// Numbers of watches that began, expired and timed out since the server's start.
#[derive(Clone, Copy, Debug, Default)]
struct WatchCounts {
    started: u64,
    expired: u64,
    timed_out: u64,
}

/// The values that the event loop reports at the end of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnEnd {
    /// Time from wake-up to last write, in µs.
    pub duration_us: u64,
    /// CPU time of the turn, in µs; `None` if the turn waited for events. To read the CPU time costs more than all
    /// other measurements, so the event loop reads it only in turns that continue the work of the previous turn.
    pub cpu_us: Option<u64>,
    /// Open connections.
    pub connections: usize,
    /// Open watches.
    pub watchers: usize,
    /// Open watches with a shard selector.
    pub sharded_watchers: usize,
    /// Events sent to watches since the start, including bookmarks and errors.
    pub watch_events: u64,
    /// Connections with a list or a deletion of a collection in progress, as of a scan once a second.
    pub connections_with_jobs: usize,
    /// Number of long responses in progress: long lists, collection deletions, and watches that still send initial
    /// events.
    pub long_responses: usize,
    /// Number of long responses that the server has ended since the start, because the peer did not read them. Each
    /// time, another user needed the permit of the response.
    pub long_responses_revoked: u64,
    /// Bytes of output that wait for a flow-control window or a socket, on all connections. Bytes that TLS has already
    /// encrypted do not count.
    pub queued_bytes: usize,
    /// Received bytes of unanswered requests on all connections.
    pub received_bytes: usize,
    /// Number of requests that wait, for example for the journal, for an earlier change of the same Lease, or for a
    /// namespace. Requests of one connection that wait for the same event count once.
    pub waiting_requests: usize,
}

/// The values that metrics show about a hand-over: the move of Leases from or to kube-apiserver's own (built-in)
/// storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoverStats {
    /// Whether this server serves the Leases without restrictions. The value is false during a takeover or a rollback.
    /// After a rollback or a cancelled takeover, kube-apiserver serves the Leases, so the value stays false.
    pub serves: bool,
    /// Whether the command `takeover` or `rollback` holds back clients' writes. After a rollback, this server refuses
    /// writes too, but no command is at work, so the value is false.
    pub holds_writes: bool,
    /// Number of failed reads and writes of built-in storage since the start.
    pub errors: u64,
    /// Number of Leases of built-in storage that this server cannot import now.
    pub refused_leases: usize,
}

/// Bounds of the durations of turns, in µs: from a turn with one request to a turn that stalls all connections.
const TURN_BOUNDS_US: [u64; 14] =
    [10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000];

impl Metrics {
    /// Creates metrics whose values are all zero.
    pub(crate) fn new() -> Self {
        Self {
            started: None,
            open_fds: OpenFds::default(),
            requests: RequestCounts::new(),
            turns: Histogram::new(&TURN_BOUNDS_US),
            turns_cpu: Histogram::new(&TURN_BOUNDS_US),
            counts: Counts::default(),
            serving_last: None,
            certs_last: Vec::new(),
            followed: Vec::new(),
            watches: WatchCounts::default(),
            watches_last: WatchCounts::default(),
            last: TurnEnd::default(),
            holders: HolderScan::default(),
            holder_changes: ByNamespace::default(),
            journal: JournalCounts::new(),
        }
    }

    /// Counts a batch of changes that became durable.
    pub fn count_commit(&mut self, commit: CommitStats) {
        self.journal.count_commit(commit);
    }

    /// Counts a change of a Lease's holder in a namespace.
    pub fn count_holder_change(&mut self, namespace: &str) {
        *self.holder_changes.of(namespace) += 1;
    }

    /// Counts a request that got its response, or a watch that begins, `waited_ms` after the request arrived.
    #[inline]
    pub fn count_request(&mut self, kind: RequestKind, version: ApiVersion, status: u16, waited_ms: u64) {
        self.requests.count(kind, version, status, waited_ms);
    }

    /// Counts a response that begins. The caller must call [`Metrics::count_end`] at its end.
    pub fn count_begin(&mut self, kind: RequestKind, version: ApiVersion, status: u16) {
        self.requests.count_begin(kind, version, status);
    }

    /// Counts the end of a response, `waited_ms` after its request arrived.
    pub fn count_end(&mut self, kind: RequestKind, version: ApiVersion, waited_ms: u64) {
        self.requests.count_end(kind, version, waited_ms);
    }

    /// Counts a reload of the store after this replica lost track of the store. The new journal counts from 0, so the
    /// metrics add the counts of the former journal `replaced`.
    pub fn count_reload(&mut self, replaced: &Journal) {
        self.journal.count_reload(replaced);
    }

    /// Counts a watch that begins.
    pub fn count_watch(&mut self) {
        self.watches.started += 1;
    }

    /// Counts a watch that the server ended because the event log no longer had its next event, or because its timeout
    /// passed. Watches that ended for other reasons are not counted: their number is the rest of all ended watches.
    pub fn count_watch_end(&mut self, why: WatchEnd) {
        let count = match why {
            WatchEnd::Expired => &mut self.watches.expired,
            WatchEnd::TimedOut => &mut self.watches.timed_out,
            WatchEnd::Unread | WatchEnd::Unsuitable => return,
        };
        *count += 1;
    }

    /// Counts a turn that ended.
    pub fn end_turn(&mut self, end: TurnEnd) {
        self.turns.observe(end.duration_us);
        if let Some(cpu_us) = end.cpu_us {
            self.turns_cpu.observe(cpu_us);
        }
        self.requests.end_turn(end.duration_us);
        self.last = end;
        self.watches_last = self.watches;
    }

    /// Continues the count of Leases by holder, which is made in steps. The event loop calls this function in each
    /// turn.
    pub fn step(&mut self, table: &Table, now: Now) {
        self.holders.step(table, now);
    }

    /// Returns the time at which [`Metrics::step`] has work, in ms.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.holders.due_ms()
    }

    /// Returns all metrics in the Prometheus text format, version 0.0.4. `checks` are the results of the health checks:
    /// the name of the endpoint, the name of the check, and whether the check passes.
    #[must_use]
    pub fn encode(
        &mut self,
        table: &Table,
        journal: Option<&Journal>,
        handover: HandoverStats,
        checks: impl Iterator<Item = (&'static str, &'static str, bool)>,
        now: Now,
    ) -> Vec<u8> {
        self.holders.on_asked(table, now);
        let mut out = Exposition::new();
        self.requests.encode(&mut out);
        self.encode_watches(&mut out);
        self.encode_table(&mut out, table);
        self.encode_holders(&mut out);
        out.single_gauge(
            "coordination_handover_serves",
            "1 while this server serves the Leases without restrictions; 0 during a takeover or a rollback, and \
             afterwards as long as kube-apiserver serves the Leases.",
            u8::from(handover.serves),
        );
        out.single_gauge(
            "coordination_handover_holds_writes",
            "1 while a takeover or rollback holds back clients' writes; else 0.",
            u8::from(handover.holds_writes),
        );
        out.single_counter(
            "coordination_handover_errors_total",
            "Failed reads and writes of built-in storage by the replica that copies Leases.",
            handover.errors,
        );
        out.single_gauge(
            "coordination_handover_refused_leases",
            "Built-in Leases that this replica cannot import; 0 if another replica copies Leases.",
            handover.refused_leases,
        );
        if let Some(journal) = journal {
            self.journal.encode(&mut out, journal);
        }
        self.encode_loop(&mut out);
        out.gauge("kubernetes_healthcheck", "1 if the health check passes, 0 if it fails.");
        for (endpoint, check, passes) in checks {
            out.sample("kubernetes_healthcheck", &[("name", check), ("type", endpoint)], u8::from(passes));
        }
        encode_build_info(&mut out);
        let since_start = i64::try_from(now.ms / 1000).unwrap_or(i64::MAX);
        let started = *self.started.get_or_insert_with(|| Time(now.wall.0.saturating_sub(since_start)));
        process::encode(&mut out, started, self.open_fds.count(self.last.connections as u64));
        out.finish()
    }

    fn encode_watches(&self, out: &mut Exposition) {
        const ENDED: &str = "coordination_watches_ended_total";
        let resource = [("group", GROUP), ("version", VERSION), ("resource", RESOURCE)];
        out.gauge("apiserver_longrunning_requests", "Open watches.");
        let labels = [
            &[("verb", "WATCH")][..],
            &resource,
            &[("subresource", ""), ("scope", ""), ("component", request::COMPONENT)],
        ];
        out.sample("apiserver_longrunning_requests", &labels.concat(), self.last.watchers);
        out.gauge("apiserver_watch_shards_total", "Open watches with a shardSelector.");
        let resource_alone = [("group", GROUP), ("resource", RESOURCE)];
        out.sample("apiserver_watch_shards_total", &resource_alone, self.last.sharded_watchers);
        out.counter("apiserver_watch_events_total", "Events sent to watches, including bookmarks and errors.");
        out.sample("apiserver_watch_events_total", &resource, self.last.watch_events);
        let WatchCounts { started, expired, timed_out } = self.watches_last;
        out.single_counter("coordination_watches_started_total", "Started watches.", started);
        out.counter(
            ENDED,
            "Ended watches, by reason: the event log no longer had their next event (expired), their timeout passed \
             (timeout), or the client or the server closed them (closed).",
        );
        let closed = started.saturating_sub(expired + timed_out).saturating_sub(self.last.watchers as u64);
        for (reason, count) in [("closed", closed), ("expired", expired), ("timeout", timed_out)] {
            out.sample(ENDED, &[("reason", reason)], count);
        }
    }

    fn encode_table(&self, out: &mut Exposition, table: &Table) {
        // Kubernetes has hidden this older name of the metric. This server has promised to keep it.
        out.gauge("apiserver_storage_objects", "Objects in the table.");
        out.sample("apiserver_storage_objects", &[("resource", "leases.coordination.k8s.io")], table.len());
        out.gauge("apiserver_resource_objects", "Objects in the table.");
        out.sample("apiserver_resource_objects", &[("group", GROUP), ("resource", RESOURCE)], table.len());
        out.single_gauge("coordination_leases", "Leases in the table.", table.len());
        let (used, limited) = table.metered_bytes();
        out.single_gauge("coordination_lease_quota_used_bytes", "Bytes of Leases that count towards the quota.", used);
        out.single_gauge("coordination_lease_quota_bytes", "Quota of Leases, in bytes.", limited);
        let NamespaceQuota { namespace, used, limited } = table.fullest_namespace();
        let labels = [("namespace", namespace.as_str())];
        out.gauge(
            "coordination_lease_quota_namespace_used_bytes",
            "Bytes that count towards the quota in the namespace that has most of them.",
        );
        out.sample("coordination_lease_quota_namespace_used_bytes", &labels, used);
        out.gauge(
            "coordination_lease_quota_namespace_bytes",
            "Bytes that this namespace may have: half of the quota that the other namespaces do not use.",
        );
        out.sample("coordination_lease_quota_namespace_bytes", &labels, limited);
        let log = table.log();
        out.single_gauge(
            "coordination_event_log_floor",
            "Oldest resourceVersion from which a watch can resume.",
            log.floor().0,
        );
        out.single_gauge("coordination_event_log_head", "resourceVersion of the last change.", log.head().0);
        out.single_gauge("coordination_event_log_events", "Events in the log.", log.len());
        out.single_gauge(
            "coordination_event_log_bytes",
            "Estimated memory of the events in the log, in bytes.",
            log.bytes(),
        );
    }

    fn encode_holders(&self, out: &mut Exposition) {
        const LEASES: &str = "coordination_namespace_leases";
        const CHANGES: &str = "coordination_lease_holder_changes_total";
        if let Some(known) = self.holders.known() {
            out.single_gauge(
                "coordination_leases_expired",
                "Leases whose holder has not renewed in time. A large table is counted in steps between two scrapes.",
                known.leases.iter().map(|(_, counts)| counts.expired).sum::<u64>(),
            );
            out.single_gauge(
                "coordination_leases_expired_timestamp_seconds",
                "Time at which the count of expired Leases was complete, in seconds since 1970.",
                known.at.0,
            );
            out.gauge(LEASES, "Leases by namespace and state: held, expired or unheld. Counted with the expired ones.");
            for (namespace, counts) in known.leases.iter() {
                for (state, count) in [("held", counts.held), ("expired", counts.expired), ("unheld", counts.unheld)] {
                    out.sample(LEASES, &[("namespace", namespace), ("state", state)], count);
                }
            }
        }
        out.counter(CHANGES, "Changes of a Lease's holder by clients of this server.");
        for (namespace, count) in self.holder_changes.iter() {
            out.sample(CHANGES, &[("namespace", namespace)], count);
        }
    }

    fn encode_loop(&self, out: &mut Exposition) {
        const TURNS: &str = "coordination_turn_duration_seconds";
        const TURNS_CPU: &str = "coordination_busy_turn_cpu_seconds";
        out.histogram(TURNS, "Duration of the event loop's turns, from wake-up to last write.");
        self.turns.encode(out, TURNS, &[]);
        out.histogram(
            TURNS_CPU,
            "Processor time of turns that continued work of the last turn: requests, accepts, handshakes, lists, \
             deletions or watches. If a turn's duration is far above it, other processes used the core.",
        );
        self.turns_cpu.encode(out, TURNS_CPU, &[]);
        out.single_gauge("coordination_connections", "Open connections.", self.last.connections);
        out.single_gauge(
            "coordination_connections_with_jobs",
            "Connections with a list or collection deletion in progress, as of a scan once a second.",
            self.last.connections_with_jobs,
        );
        out.single_gauge(
            "coordination_long_responses",
            "Long lists, deletions of a collection and watches with initial events in progress.",
            self.last.long_responses,
        );
        out.single_gauge(
            "coordination_queued_bytes",
            "Bytes of output on all connections that wait for a window or a socket.",
            self.last.queued_bytes,
        );
        if let Some(last) = self.serving_last {
            out.single_gauge(
                "coordination_serving_certificate_expiration_timestamp_seconds",
                "Expiration of the serving certificate, in seconds since 1970.",
                last.0,
            );
        }
        if !self.certs_last.is_empty() {
            const EXPIRATION: &str = "coordination_certificate_expiration_timestamp_seconds";
            out.gauge(EXPIRATION, "Expiration of CAs and client certificates, in seconds since 1970, by flag.");
            for &(flag, last) in &self.certs_last {
                out.sample(EXPIRATION, &[("flag", flag)], last.0);
            }
        }
        if !self.followed.is_empty() {
            const HEARD: &str = "coordination_cluster_heard_timestamp_seconds";
            out.gauge(
                HEARD,
                "Time of the cluster's last answer about a watched resource, in seconds since 1970; 0 for never.",
            );
            for followed in &self.followed {
                out.sample(HEARD, &[("what", followed.what)], followed.last_heard());
            }
        }
        out.single_gauge(
            "coordination_received_bytes",
            "Received bytes of unanswered requests on all connections.",
            self.last.received_bytes,
        );
        out.single_gauge(
            "coordination_waiting_requests",
            "Requests that wait for the journal, for another change of their Lease, for changes of other replicas, for \
             a resourceVersion, for a namespace, or during a takeover for built-in storage.",
            self.last.waiting_requests,
        );
        let counts = self.counts;
        out.single_counter(
            "coordination_long_responses_revoked_total",
            "Long responses that ended because their client did not read them and another user needed their place.",
            self.last.long_responses_revoked,
        );
        out.single_counter(
            "coordination_connections_accepted_total",
            "Accepted connections.",
            counts.connections_accepted,
        );
        out.single_counter(
            "coordination_accept_errors_total",
            "Accepts that failed for want of descriptors or memory.",
            counts.accept_errors,
        );
        out.single_counter(
            "coordination_connections_evicted_total",
            "Connections of peers without rights that were closed at the connection limit to accept others.",
            counts.connections_evicted,
        );
        out.single_counter("coordination_tls_handshakes_total", "Successful TLS handshakes.", counts.handshakes);
        out.single_counter("apiserver_tls_handshake_errors_total", "Failed TLS handshakes.", counts.handshake_errors);
        out.single_counter(
            "coordination_malformed_requests_total",
            "Connections closed because of a malformed request.",
            counts.requests_malformed,
        );
        out.single_counter(
            "coordination_certificate_reload_errors_total",
            "Failed reloads of a serving certificate or an authority, after which the old one stays in use. A \
             lasting failure counts every hour.",
            counts.reload_failures,
        );
    }
}

fn encode_build_info(out: &mut Exposition) {
    const BUILD: &str = "kubernetes_build_info";
    out.gauge(BUILD, "1, with the build information as labels.");
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
    fn metrics_export_the_counts_of_finished_turns() {
        let table = Table::new(ResourceVersion(7), 10, 1000);
        let mut metrics = Metrics::new();
        for _ in 0..3 {
            metrics.count_watch();
        }
        metrics.count_watch_end(WatchEnd::Expired);
        metrics.counts.handshakes += 1;
        metrics.counts.handshake_errors += 1;
        metrics.counts.reload_failures += 1;
        metrics.serving_last = Some(Time(1_800_000_000));
        metrics.certs_last = vec![("etcd-certfile", Time(1_900_000_000))];
        metrics.followed = vec![Followed::namespaces()];
        metrics.end_turn(TurnEnd {
            duration_us: 30,
            cpu_us: Some(20),
            connections: 2,
            watchers: 1,
            sharded_watchers: 1,
            watch_events: 2,
            connections_with_jobs: 0,
            long_responses: 3,
            long_responses_revoked: 6,
            queued_bytes: 7,
            received_bytes: 5,
            waiting_requests: 4,
        });
        // The new watch does not count yet, since the current turn has not ended. Otherwise `started` and the number of
        // open watches would be from two different moments.
        metrics.count_watch();
        let handover = HandoverStats { serves: true, refused_leases: 8, ..HandoverStats::default() };
        let checks = [("livez", "ping", true), ("readyz", "journal", false)].into_iter();
        let text = String::from_utf8(metrics.encode(&table, None, handover, checks, Now::default())).expect("text");
        for (series, value) in [
            ("coordination_watches_started_total", 3),
            ("kubernetes_healthcheck{name=\"ping\",type=\"livez\"}", 1),
            ("kubernetes_healthcheck{name=\"journal\",type=\"readyz\"}", 0),
            ("apiserver_watch_events_total{group=\"coordination.k8s.io\",version=\"v1\",resource=\"leases\"}", 2),
            ("coordination_watches_ended_total{reason=\"closed\"}", 1),
            ("coordination_watches_ended_total{reason=\"expired\"}", 1),
            ("coordination_watches_ended_total{reason=\"timeout\"}", 0),
            ("coordination_turn_duration_seconds_bucket{le=\"0.000025\"}", 0),
            ("coordination_turn_duration_seconds_bucket{le=\"0.00005\"}", 1),
            ("coordination_turn_duration_seconds_count", 1),
            ("coordination_busy_turn_cpu_seconds_bucket{le=\"0.00001\"}", 0),
            ("coordination_busy_turn_cpu_seconds_bucket{le=\"0.000025\"}", 1),
            ("coordination_long_responses", 3),
            ("coordination_long_responses_revoked_total", 6),
            ("coordination_handover_refused_leases", 8),
            ("coordination_queued_bytes", 7),
            ("coordination_received_bytes", 5),
            ("coordination_waiting_requests", 4),
            ("coordination_connections", 2),
            ("coordination_tls_handshakes_total", 1),
            ("apiserver_tls_handshake_errors_total", 1),
            ("coordination_certificate_reload_errors_total", 1),
            ("coordination_serving_certificate_expiration_timestamp_seconds", 1_800_000_000),
            ("coordination_certificate_expiration_timestamp_seconds{flag=\"etcd-certfile\"}", 1_900_000_000),
            ("coordination_cluster_heard_timestamp_seconds{what=\"namespaces\"}", 0),
            ("coordination_handover_serves", 1),
            ("coordination_handover_holds_writes", 0),
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
