//! The floor of latencies at a fixed rate: a thread only sleeps until each request would be due, and measures how late
//! it wakes. A latency that starts at the due time of a request includes this lateness.

use crate::measurement::Told;
use serde::Serialize;
use serde_json::json;
use std::io;
use std::time::{Duration, Instant};

/// Sleeps `per_second` times a second for `duration`, or until `is_over` returns true. Returns an error if there is no
/// timer.
pub(crate) fn measure(per_second: u32, duration: Duration, is_over: impl Fn() -> bool) -> io::Result<Told> {
    let alarm = Alarm::new()?;
    let began = Instant::now();
    let mut lateness_ns = Vec::new();
    loop {
        let due = Duration::from_secs(1) * u32::try_from(lateness_ns.len()).unwrap_or(u32::MAX) / per_second;
        if due >= duration || is_over() {
            break;
        }
        alarm.sleep(due.saturating_sub(began.elapsed()))?;
        lateness_ns.push(began.elapsed().saturating_sub(due).as_nanos());
    }
    Ok(told(per_second, duration, lateness_ns, format!("sleep {per_second} times a second")))
}

/// Builds the result of a measurement without a load generator, from a time for each operation: its duration, or how
/// late it was. `command` describes the operation, in place of a load generator's command line.
pub(crate) fn told(per_second: impl Serialize, duration: Duration, mut times_ns: Vec<u128>, command: String) -> Told {
    times_ns.sort_unstable();
    let ms = |share: f64| milliseconds(&times_ns, share);
    let json = json!({
        "requests_per_second": per_second,
        "measured_s": duration.as_secs_f64(),
        "latency": { "ms_p50": ms(0.5), "ms_p99": ms(0.99), "ms_p99_9": ms(0.999), "ms_max": ms(1.0) },
    });
    Told { json, command }
}

/// A timer descriptor, as in the load generator's event loop. An ordinary sleep may take 50 µs longer
/// (`PR_SET_TIMERSLACK`).
#[cfg(target_os = "linux")]
struct Alarm(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Alarm {
    fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?))
    }

    /// Returns after `time`. Returns at once if `time` is zero.
    fn sleep(&self, time: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        if time.is_zero() {
            return Ok(());
        }
        let it_value = Timespec::try_from(time).map_err(io::Error::other)?;
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        // The read returns the number of the timer's expirations, in eight bytes.
        rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut [0_u8; 8]))?;
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    fn sleep(&self, time: Duration) -> io::Result<()> {
        std::thread::sleep(time);
        Ok(())
    }
}

/// Returns the quantile `share` of sorted times, in milliseconds.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "there are some thousand of them, each far below a year"
)]
fn milliseconds(sorted_ns: &[u128], share: f64) -> Option<f64> {
    let rank = (sorted_ns.len() as f64 * share).ceil() as usize;
    sorted_ns.get(rank.checked_sub(1)?).map(|ns| *ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sleeper_sleeps_as_often_as_requested_and_never_too_briefly() {
        let began = Instant::now();
        let Told { json, .. } = measure(100, Duration::from_millis(100), || false).expect("a timer");
        // The last sleep ends at 90 ms.
        assert!(began.elapsed() >= Duration::from_millis(90));
        let [p50, p999, max] = ["ms_p50", "ms_p99_9", "ms_max"].map(|key| json["latency"][key].as_f64());
        assert!(p50 > Some(0.0) && p50 <= p999 && p999 == max, "{json}");
    }

    #[test]
    fn quantiles_of_sorted_times() {
        let times: Vec<u128> = (0..1_000).map(|ms| ms * 1_000_000).collect();
        assert_eq!(milliseconds(&times, 0.5), Some(499.0));
        assert_eq!(milliseconds(&times, 0.999), Some(998.0));
        assert_eq!(milliseconds(&times, 1.0), Some(999.0));
        assert_eq!(milliseconds(&[], 0.5), None);
    }
}
