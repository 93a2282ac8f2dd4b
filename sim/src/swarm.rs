//! The load and the faults of a run. Each seed draws them at random, so that rare combinations occur (swarm testing).

use crate::device::FailedSyncs;
use crate::kernel::{MS, SECOND};
use fastrand::Rng;

/// The load and the faults of a run, as drawn from its seed.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Number of replicas over etcd; 0 is one server with a disk.
    pub replicas: usize,
    /// Time in which clients start new work, in microseconds.
    pub duration_us: u64,
    /// Number of locks, each a Lease of a leader election.
    pub locks: usize,
    /// Number of candidates for each lock.
    pub candidates: usize,
    /// Number of nodes whose kubelets renew their Leases.
    pub kubelets: usize,
    /// Time between two renewals of a kubelet, in microseconds.
    pub renewal_us: u64,
    /// Number of crud clients, which send all kinds of requests for a few Leases.
    pub cruds: usize,
    /// Number of Lease names that the crud clients use.
    pub crud_names: usize,
    /// Maximum time between two requests of a crud client, in microseconds.
    pub crud_gap_us: u64,
    /// Size of an annotation that the crud clients set, in bytes; 0 if they set none.
    pub text_bytes: usize,
    /// Time after which a kubelet or a crud client abandons a request, in microseconds.
    pub within_us: u64,
    /// Number of watchers, besides the one that watches all Leases in every run.
    pub watchers: usize,
    /// Number of clients that list in pages, or at an older version.
    pub listers: usize,
    /// Maximum number of events in the server's event log.
    pub window_events: usize,
    /// Maximum latency of data on the network, in microseconds. With `has_slow_net`, some data takes longer.
    pub latency_us_max: u64,
    /// Whether data on the network sometimes takes seconds to arrive.
    pub has_slow_net: bool,
    /// Whether some requests arrive in two pieces.
    pub cut_requests: bool,
    /// Whether the watchers read slowly, except for the one that watches all Leases in every run.
    pub has_slow_readers: bool,
    /// Number of unsent bytes of a connection's output at which the server serves no further request of the connection.
    /// `None` is the server's own limit.
    pub room: Option<usize>,
    /// Maximum duration of a commit on disk, in microseconds, except for the commits of the fault `stuck`.
    pub commit_us_max: u64,
    /// Number of bytes of entries that the journal must have after its newest snapshot before the next snapshot may
    /// begin.
    pub snapshot_bytes_min: u64,
    /// Size of the journal, in bytes, above which the journal deletes the entries before its newest snapshot. It
    /// deletes them even if a watch could still resume from their events after a restart.
    pub journal_bytes_max: u64,
    /// Maximum number of changes in a batch of the journal.
    pub batch_changes_max: usize,
    /// Maximum number of changes that wait for a batch of the journal.
    pub waiting_changes_max: usize,
    /// Approximate maximum number of Leases and changes that a server loads or applies in a turn of the event loop.
    pub records_max: usize,
    /// State of the dirty pages in the page cache after a failed sync: still dirty, or clean but not durable.
    pub failed_syncs: FailedSyncs,
    /// Whether replicas continue to run while etcd is restored from a backup. Operators must not allow it: a request
    /// that a replica sent before the restore may fit the state that another replica wrote after the restore. So with
    /// `true`, some seeds fail.
    pub restores_live: bool,
    /// Number of faults of each kind in the run.
    pub faults: FaultRates,
}

/// Number of faults of each kind in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// Number of kills of the server's process.
    pub kills: usize,
    /// Number of power cuts between two events.
    pub power_cuts: usize,
    /// Number of power cuts during a write or a sync of the device.
    pub crash_points: usize,
    /// Number of orderly stops of the server.
    pub stops: usize,
    /// Number of device operations that fail.
    pub io_errors: usize,
    /// Number of periods in which the device or etcd is full.
    pub full: usize,
    /// Number of commits that take seconds. At most one of them takes more than a minute.
    pub stuck: usize,
    /// Number of connections between clients and servers that are cut.
    pub resets: usize,
    /// Number of jumps of the wall clock.
    pub jumps: usize,
    /// Maximum number of bits that are flipped at once while a server is down. The bits are flipped in a copy of the
    /// store; after an orderly stop, also in the store itself.
    pub flips: usize,
    /// Number of pauses of a server's process.
    pub pauses: usize,
    /// Number of periods in which etcd has no leader or no quorum.
    pub away: usize,
    /// Number of periods in which no requests of a replica reach etcd, or no responses reach the replica.
    pub parted: usize,
    /// Number of etcd watches that break.
    pub broken_watches: usize,
    /// Number of events that an etcd watch loses.
    pub lost_events: usize,
    /// Number of compactions of etcd.
    pub compactions: usize,
    /// Number of restores of etcd from a backup. A restore removes later writes, so the history is then not checked.
    pub restores: usize,
}

/// Draws a number from 1 to `max` in half of the cases. In the other half the number is 0.
fn some(random: &mut Rng, max: usize) -> usize {
    if random.bool() { random.usize(1..=max) } else { 0 }
}

fn one_of<T: Copy>(random: &mut Rng, choices: &[T]) -> T {
    choices[random.usize(..choices.len())]
}

impl Swarm {
    /// Draws the load and the faults of a run with one server and a disk.
    #[must_use]
    pub fn draw(random: &mut Rng) -> Self {
        let locks = random.usize(0..=2);
        Self {
            replicas: 0,
            duration_us: one_of(random, &[20, 20, 30, 30, 40, 100]) * SECOND,
            locks,
            candidates: random.usize(2..=3),
            kubelets: random.usize(0..=5),
            renewal_us: one_of(random, &[SECOND, 5 * SECOND, 10 * SECOND]),
            cruds: random.usize(1..=3),
            crud_names: random.usize(1..=6),
            crud_gap_us: one_of(random, &[400 * MS, SECOND, 3 * SECOND]),
            text_bytes: one_of(random, &[0, 0, 0, 0, 100, 2_000, 2_000, 20_000]),
            within_us: one_of(random, &[2 * SECOND, 10 * SECOND, 10 * SECOND, 90 * SECOND]),
            watchers: random.usize(0..=2),
            listers: random.usize(0..=1),
            window_events: one_of(random, &[4, 8, 32, 256, 4096, 4096]),
            latency_us_max: one_of(random, &[200, 2 * MS, 50 * MS]),
            has_slow_net: random.u8(..4) == 0,
            cut_requests: random.u8(..3) == 0,
            has_slow_readers: random.u8(..4) == 0,
            room: one_of(random, &[None, None, None, Some(1)]),
            commit_us_max: one_of(random, &[MS, 10 * MS, 100 * MS]),
            snapshot_bytes_min: one_of(random, &[200, 1_000, 5_000, 1 << 22]),
            journal_bytes_max: one_of(random, &[2_000, 20_000, u64::MAX, u64::MAX, u64::MAX]),
            batch_changes_max: one_of(random, &[1, 2, 16_384, 16_384]),
            waiting_changes_max: one_of(random, &[2, 131_072, 131_072, 131_072]),
            records_max: one_of(random, &[1, 7, 16_384]),
            failed_syncs: FailedSyncs::default(),
            restores_live: false,
            faults: FaultRates {
                kills: some(random, 3),
                power_cuts: some(random, 3),
                crash_points: some(random, 4),
                stops: some(random, 3),
                io_errors: if random.u8(..4) == 0 { random.usize(1..=2) } else { 0 },
                full: if random.u8(..3) == 0 { random.usize(1..=2) } else { 0 },
                stuck: if random.u8(..3) == 0 { random.usize(1..=2) } else { 0 },
                resets: some(random, 6),
                jumps: some(random, 4),
                flips: some(random, 3),
                ..FaultRates::default()
            },
        }
    }

    /// Returns the same load for a run with replicas over etcd. It has the faults of etcd instead of those of a disk.
    #[must_use]
    pub fn with_replicas(self, random: &mut Rng) -> Self {
        let FaultRates { kills, stops, full, resets, jumps, .. } = self.faults;
        Self {
            replicas: random.usize(1..=5),
            // Small values make snapshots frequent. So runs also test how each new snapshot replaces the one before it.
            snapshot_bytes_min: one_of(random, &[200, 1_000, 5_000, 5_000]),
            faults: FaultRates {
                kills: kills * 2,
                stops,
                full,
                resets,
                jumps,
                pauses: some(random, 4),
                away: some(random, 4),
                parted: some(random, 4),
                broken_watches: some(random, 6),
                lost_events: some(random, 2),
                compactions: some(random, 4),
                ..FaultRates::default()
            },
            ..self
        }
    }

    /// Adds restores of etcd from a backup to the faults of one seed in 16.
    #[must_use]
    pub fn with_restores(mut self, seed: u64) -> Self {
        let mut random = Rng::with_seed(!seed);
        if self.replicas > 0 && random.u8(..16) == 0 {
            self.faults.restores = random.usize(1..=3);
        }
        self
    }
}
