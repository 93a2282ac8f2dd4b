//! The plan of the next kill: its moment and its signal.

use crate::gate::Gate;
use crate::process::Server;
use std::time::Duration;

/// The moment at which the server is killed or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// SIGKILL under full load, after a number of operations.
    Load,
    /// SIGKILL soon after a start, when the server may still load its store.
    Start,
    /// SIGKILL while the server writes a snapshot.
    Snapshot,
    /// SIGTERM under full load, for a clean stop.
    Stop,
}

/// Draws the moment of the next kill. For the first kill (`is_first`), [`Moment::Start`] is excluded, since some load
/// must have run before the first kill. `with_stops` permits [`Moment::Stop`].
pub(crate) fn draw(rng: &mut fastrand::Rng, is_first: bool, with_stops: bool) -> Moment {
    match rng.u32(0..100) {
        0..20 if !is_first => Moment::Start,
        20..45 => Moment::Snapshot,
        45..65 if with_stops => Moment::Stop,
        _ => Moment::Load,
    }
}

/// Waits for the moment of the kill. `kills_left` kills share the remaining operations. If the server takes no
/// snapshot, [`Moment::Snapshot`] ends its wait after twice its share of the operations. The wait also ends when
/// `goes_on`, which is called repeatedly, returns false.
///
/// # Errors
/// If no write was acknowledged for [`SILENCE_MAX`].
pub(crate) fn wait(
    moment: Moment,
    gate: &Gate,
    server: &mut Server,
    rng: &mut fastrand::Rng,
    operations_max: u64,
    kills_left: u32,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<(), String> {
    if moment == Moment::Start {
        std::thread::sleep(Duration::from_micros(rng.u64(0..START_US_MAX)));
        return Ok(());
    }
    let begun = gate.operations();
    let share = operations_max.saturating_sub(begun) / u64::from(kills_left + 1);
    let target = begun + share * if moment == Moment::Snapshot { 200 } else { rng.u64(20..150) } / 100;
    let opened = gate.now();
    while gate.operations() < target && server.is_running() && goes_on() {
        gate.check_writes(opened, SILENCE_MAX)?;
        if moment == Moment::Snapshot && server.is_taking_snapshot() {
            std::thread::sleep(Duration::from_micros(rng.u64(0..SNAPSHOT_US_MAX)));
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    // Without this random delay, all kills would come right after a look at the counters. With it, a kill can hit any
    // point of the server's work.
    std::thread::sleep(Duration::from_micros(rng.u64(0..JITTER_US_MAX)));
    Ok(())
}

/// Maximum time from a start of the server to the kill, in µs. With few Leases, the server may be ready by then.
const START_US_MAX: u64 = 80_000;
/// Maximum time from the beginning of a snapshot to the kill, in µs. A snapshot of 20,000 Leases takes ten times this
/// long on a busy machine. A snapshot of a thousand Leases takes a tenth of this time, so the kill may come after it.
const SNAPSHOT_US_MAX: u64 = 50_000;
const JITTER_US_MAX: u64 = 5_000;
/// Interval between two checks of the number of operations and of the server's log.
const LOOK: Duration = Duration::from_millis(2);
/// Maximum time without an acknowledged write, while clients send requests to a running server or to replicas.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(300);
