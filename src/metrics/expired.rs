//! How many Leases have expired: a question to the whole table, and a million Leases must not stop the loop. So it is
//! answered in steps, begun when somebody asks; a small table is counted at once, a large one for the next who asks.

use crate::clock::Now;
use crate::lease::LeaseSpec;
use crate::table::Table;
use crate::table::snapshot::{Range, Snapshot, Stepped};
use crate::timestamp::{MicroTime, Time};

/// Leases looked at in one step; some tenths of a millisecond if none of them is in the processor's caches.
const KEYS_PER_STEP: usize = 2048;

/// Milliseconds between two steps. A million Leases take five seconds, and a fiftieth of the loop's time.
const STEP_INTERVAL_MS: u64 = 10;

/// The last count, and the one under way.
#[derive(Debug, Default)]
pub(super) struct ExpiredScan {
    known: Option<Known>,
    pass: Option<Pass>,
}

/// A count of the whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) expired: u64,
    /// When it was complete. What changed while it went on may or may not be in it.
    pub(super) at: Time,
}

/// A count under way.
#[derive(Debug)]
struct Pass {
    /// The key to go on with.
    start: String,
    expired: u64,
    due_ms: u64,
}

impl ExpiredScan {
    /// The last complete count; none if there has not been one.
    pub(super) fn known(&self) -> Option<Known> {
        self.known
    }

    /// Somebody wants to know: begins a count, unless one is under way.
    pub(super) fn on_asked(&mut self, table: &Table, now: Now) {
        if self.pass.is_none() {
            self.pass = Some(Pass { start: String::new(), expired: 0, due_ms: now.ms });
            self.step(table, now);
        }
    }

    /// Goes on, if it is time.
    pub(super) fn step(&mut self, table: &Table, now: Now) {
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.due_ms <= now.ms) else { return };
        let left = Snapshot::now(table, Range::All).from_key(&pass.start, None);
        let more = left.is_some_and(|mut left| {
            let stepped = left.next(table, KEYS_PER_STEP, |object| {
                pass.expired += u64::from(is_expired(object.renew_time(), &object.unrenewed().spec, now.wall));
                true
            });
            left.start().clone_into(&mut pass.start);
            // A snapshot of this very moment needs nothing of the log, so it cannot come too late.
            stepped == Ok(Stepped::More)
        });
        pass.due_ms = now.ms + STEP_INTERVAL_MS;
        if !more {
            self.known = Some(Known { expired: pass.expired, at: now.wall });
            self.pass = None;
        }
    }

    /// Milliseconds at which the next step is due.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.pass.as_ref().map(|pass| pass.due_ms)
    }
}

/// Whether the holder has not renewed in time. A Lease that nobody holds, or that does not say until when, does not
/// expire.
fn is_expired(renewed: Option<MicroTime>, spec: &LeaseSpec, now: Time) -> bool {
    if spec.holder_identity.as_deref().is_none_or(str::is_empty) {
        return false;
    }
    let (Some(renewed), Some(seconds)) = (renewed, spec.lease_duration_seconds) else { return false };
    renewed.0.saturating_add(i64::from(seconds).saturating_mul(1_000_000)) < now.0.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Lease;
    use crate::resource::ResourceVersion;

    fn spec(renewed: Option<i64>, seconds: Option<i32>) -> LeaseSpec {
        let renew_time = renewed.map(|seconds| MicroTime(seconds * 1_000_000));
        let holder_identity = Some("h".into());
        LeaseSpec { holder_identity, renew_time, lease_duration_seconds: seconds, ..LeaseSpec::default() }
    }

    #[test]
    fn a_lease_expires_when_its_duration_is_over() {
        let is_expired = |spec: &LeaseSpec, now| is_expired(spec.renew_time, spec, now);
        assert!(is_expired(&spec(Some(100), Some(40)), Time(141)));
        assert!(!is_expired(&spec(Some(100), Some(40)), Time(140)));
        assert!(!is_expired(&spec(None, Some(40)), Time(1000)));
        assert!(!is_expired(&spec(Some(100), None), Time(1000)));
        assert!(!is_expired(&spec(Some(i64::MAX / 1_000_000), Some(i32::MAX)), Time(i64::MAX)));
        // As client-go leaves one that it gives back.
        for holder_identity in [None, Some("".into())] {
            assert!(!is_expired(&LeaseSpec { holder_identity, ..spec(Some(100), Some(1)) }, Time(1000)));
        }
    }

    fn table(leases: usize) -> Table {
        let mut table = Table::new(ResourceVersion(0), 10, usize::MAX);
        for at in 0..leases {
            let mut lease =
                Lease { spec: spec(Some(100), Some(if at % 3 == 0 { 10 } else { 1000 })), ..Lease::default() };
            lease.metadata.namespace = "n".into();
            lease.metadata.name = format!("l{at}").into();
            table.create(lease);
        }
        table
    }

    #[test]
    fn a_small_table_is_counted_at_once() {
        let mut scan = ExpiredScan::default();
        let now = Now { ms: 5, wall: Time(200) };
        scan.on_asked(&table(30), now);
        assert_eq!((scan.known(), scan.due_ms()), (Some(Known { expired: 10, at: Time(200) }), None));
    }

    #[test]
    fn a_large_table_is_counted_in_steps() {
        let mut table = table(3 * KEYS_PER_STEP);
        let mut scan = ExpiredScan::default();
        let mut now = Now { ms: 5, wall: Time(200) };
        scan.on_asked(&table, now);
        assert_eq!((scan.known(), scan.due_ms()), (None, Some(5 + STEP_INTERVAL_MS)));
        scan.step(&table, now);
        scan.on_asked(&table, now);
        assert_eq!(scan.due_ms(), Some(5 + STEP_INTERVAL_MS), "it is neither early nor begun anew");
        let mut steps = 1;
        while let Some(due_ms) = scan.due_ms() {
            // What changes meanwhile, and what the log forgets, does not stop it.
            let (slot, object) = table.find("n", "l0").expect("it is there");
            let lease = object.lease().into_owned();
            for _ in 0..20 {
                table.replace(slot, lease.clone());
            }
            now = Now { ms: due_ms, wall: Time(200) };
            scan.step(&table, now);
            steps += 1;
        }
        assert!((3..=4).contains(&steps), "{steps}");
        assert_eq!(scan.known().map(|known| known.expired), Some(KEYS_PER_STEP as u64));
    }
}
