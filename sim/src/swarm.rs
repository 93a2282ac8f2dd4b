//! Load and faults of a run. Each seed draws them, so that rare combinations occur.

use crate::device::FailedSyncs;
use crate::kernel::{MS, SECOND};
use fastrand::Rng;

/// Load and faults of a run.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Number of replicas over etcd; 0 is one server with a disk.
    pub replicas: usize,
    /// Microseconds in which clients start work.
    pub duration_us: u64,
    /// Number of locks.
    pub locks: usize,
    /// Number of candidates for each lock.
    pub candidates: usize,
    /// Number of nodes whose kubelets renew.
    pub kubelets: usize,
    /// Microseconds between two renewals of a kubelet.
    pub renewal_us: u64,
    /// Number of clients that send all kinds of requests.
    pub cruds: usize,
    /// Number of names that these clients use.
    pub crud_names: usize,
    /// Maximum of the microseconds between two requests of such a client.
    pub crud_gap_us: u64,
    /// Bytes of an annotation that these clients set.
    pub text_bytes: usize,
    /// Microseconds after which clients abandon a request.
    pub within_us: u64,
    /// Number of watchers, besides the one that watches all Leases.
    pub watchers: usize,
    /// Number of clients that list at versions and in pages.
    pub listers: usize,
    /// Events that the server's event log keeps.
    pub window_events: usize,
    /// Maximum latency of the network in microseconds.
    pub latency_us_max: u64,
    /// Whether the network sometimes takes seconds.
    pub has_slow_net: bool,
    /// Whether requests arrive in pieces.
    pub cut_requests: bool,
    /// Whether the watchers read slowly, except for the one that sees everything.
    pub has_slow_readers: bool,
    /// Output bytes above which a server serves no request of a connection; `None` is the server's own limit.
    pub room: Option<usize>,
    /// Maximum duration of a commit in microseconds.
    pub commit_us_max: u64,
    /// Minimum bytes of entries between two snapshots.
    pub snapshot_bytes_min: u64,
    /// Bytes of the journal above which its oldest entries are truncated early.
    pub journal_bytes_max: u64,
    /// Maximum number of changes in a batch.
    pub batch_changes_max: usize,
    /// Maximum number of changes that wait for a batch.
    pub waiting_changes_max: usize,
    /// Maximum number of records that a server loads or applies in a turn of the event loop.
    pub records_max: usize,
    /// State of the page cache after a failed sync.
    pub failed_syncs: FailedSyncs,
    /// Whether replicas continue to run while etcd is restored. Operators must not let them: a request that a replica
    /// sent before the restore may fit the state that another replica wrote after it. Some seeds therefore fail.
    pub restores_live: bool,
    /// Number of faults of each kind in the run.
    pub faults: FaultRates,
}

/// Number of faults of each kind in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// Kills of the process.
    pub kills: usize,
    /// Power cuts between two events.
    pub power_cuts: usize,
    /// Power cuts during a write or a sync of the device.
    pub crash_points: usize,
    /// Orderly stops.
    pub stops: usize,
    /// Operations of the device that fail.
    pub io_errors: usize,
    /// Periods in which the device is full.
    pub full: usize,
    /// Syncs that take seconds.
    pub stuck: usize,
    /// Connections that are cut.
    pub resets: usize,
    /// Jumps of the wall clock.
    pub jumps: usize,
    /// Number of bits flipped while a server is down. Each is flipped in a copy of the store. After an orderly stop it
    /// is flipped in the store itself, too.
    pub flips: usize,
    /// Pauses of a process.
    pub pauses: usize,
    /// Periods in which etcd has no leader or no quorum.
    pub away: usize,
    /// Failures of the connection between a replica and etcd in one direction.
    pub parted: usize,
    /// Watches that break.
    pub broken_watches: usize,
    /// Watch events that are lost.
    pub lost_events: usize,
    /// Compactions.
    pub compactions: usize,
    /// Restores of a backup. They remove later writes, so the history is not checked.
    pub restores: usize,
}

impl FaultRates {
    /// No faults.
    pub const NONE: Self = Self {
        kills: 0,
        power_cuts: 0,
        crash_points: 0,
        stops: 0,
        io_errors: 0,
        full: 0,
        stuck: 0,
        resets: 0,
        jumps: 0,
        flips: 0,
        pauses: 0,
        away: 0,
        parted: 0,
        broken_watches: 0,
        lost_events: 0,
        compactions: 0,
        restores: 0,
    };
}

/// Draws a number up to `max` in half of the cases, else 0.
fn some(random: &mut Rng, max: usize) -> usize {
    if random.bool() { random.usize(1..=max) } else { 0 }
}

fn one_of<T: Copy>(random: &mut Rng, choices: &[T]) -> T {
    choices[random.usize(..choices.len())]
}

impl Swarm {
    /// Draws the load and the faults of a seed.
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
                ..FaultRates::NONE
            },
        }
    }

    /// Returns the same load for replicas over etcd, with the faults of replicas.
    #[must_use]
    pub fn with_replicas(self, random: &mut Rng) -> Self {
        let FaultRates { kills, stops, full, resets, jumps, .. } = self.faults;
        Self {
            replicas: random.usize(1..=5),
            // Small values make snapshots and changes of the base frequent.
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
                ..FaultRates::NONE
            },
            ..self
        }
    }

    /// Adds restores of etcd's backups to one of 16 seeds.
    #[must_use]
    pub fn with_restores(mut self, seed: u64) -> Self {
        let mut random = Rng::with_seed(!seed);
        if self.replicas > 0 && random.u8(..16) == 0 {
            self.faults.restores = random.usize(1..=3);
        }
        self
    }
}
