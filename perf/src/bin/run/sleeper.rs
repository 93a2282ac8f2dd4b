//! The floor of lateness: how late a thread is woken that does nothing but sleep until each request would be due. No
//! latency that runs from when a request was due can be told apart from it.

use crate::measurement::Told;
use serde_json::json;
use std::time::{Duration, Instant};

/// Sleeps so many times a second, for this time, or until `is_over`.
pub(crate) fn measure(per_second: u32, duration: Duration, is_over: impl Fn() -> bool) -> Told {
    let began = Instant::now();
    let mut lateness_ns = Vec::new();
    loop {
        let due = Duration::from_secs(1) * u32::try_from(lateness_ns.len()).unwrap_or(u32::MAX) / per_second;
        if due >= duration || is_over() {
            break;
        }
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        lateness_ns.push(began.elapsed().saturating_sub(due).as_nanos());
    }
    lateness_ns.sort_unstable();
    let ms = |share: f64| milliseconds(&lateness_ns, share);
    let json = json!({
        "requests_per_second": per_second,
        "measured_s": duration.as_secs_f64(),
        "latency": { "ms_p50": ms(0.5), "ms_p99": ms(0.99), "ms_p99_9": ms(0.999), "ms_max": ms(1.0) },
    });
    Told { json, command: format!("sleep {per_second} times a second") }
}

/// What this share of the times, which are in their order, does not pass.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "there are some thousand of them, each far below a year"
)]
fn milliseconds(sorted_ns: &[u128], share: f64) -> Option<f64> {
    let at = (sorted_ns.len() as f64 * share) as usize;
    sorted_ns.get(at.min(sorted_ns.len().checked_sub(1)?)).map(|ns| *ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_as_often_as_was_asked_for_and_never_too_short() {
        let began = Instant::now();
        let Told { json, .. } = measure(100, Duration::from_millis(100), || false);
        // The last is due at 90 ms.
        assert!(began.elapsed() >= Duration::from_millis(90));
        let [p50, p999, max] = ["ms_p50", "ms_p99_9", "ms_max"].map(|key| json["latency"][key].as_f64());
        assert!(p50 > Some(0.0) && p50 <= p999 && p999 == max, "{json}");
    }

    #[test]
    fn the_share_that_is_not_passed() {
        let times: Vec<u128> = (0..1_000).map(|ms| ms * 1_000_000).collect();
        assert_eq!(milliseconds(&times, 0.5), Some(500.0));
        assert_eq!(milliseconds(&times, 0.999), Some(999.0));
        assert_eq!(milliseconds(&times, 1.0), Some(999.0));
        assert_eq!(milliseconds(&[], 0.5), None);
    }
}
