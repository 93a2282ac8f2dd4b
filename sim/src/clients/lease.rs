//! Paths, objects and times of Leases, as the clients write and parse them.

use crate::check::history::{Key, State};
use serde_json::{Value, json};
use twox_hash::XxHash3_64;

/// Returns the path of the Leases of a namespace.
#[must_use]
pub fn collection(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// Path of the Leases of all namespaces.
pub const ALL: &str = "/apis/coordination.k8s.io/v1/leases";

/// Returns the path of a Lease.
#[must_use]
pub fn path(key: &Key) -> String {
    format!("{}/{}", collection(&key.namespace), key.name)
}

/// Builds a Lease without the fields that the server sets. `tag` is its `renewTime`, in microseconds since 1970.
#[must_use]
pub fn new(key: &Key, holder: &str, tag: u64) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": micro_time(tag)},
    })
}

/// Converts a Lease that a server sent to a state for the history. Returns `None` if a field is missing.
#[must_use]
pub fn state(lease: &Value) -> Option<State> {
    let metadata = &lease["metadata"];
    let text = format!("{metadata}{}", lease["spec"]);
    Some(State {
        version: metadata["resourceVersion"].as_str()?.parse().ok()?,
        uid: metadata["uid"].as_str()?.to_owned(),
        tag: parse_micro_time(lease["spec"]["renewTime"].as_str()?)?,
        hash: XxHash3_64::oneshot(text.as_bytes()),
    })
}

/// Returns the key of a Lease that a server sent; `None` if a field is missing.
#[must_use]
pub fn key(lease: &Value) -> Option<Key> {
    let metadata = &lease["metadata"];
    Some(Key { namespace: metadata["namespace"].as_str()?.to_owned(), name: metadata["name"].as_str()?.to_owned() })
}

/// Formats microseconds since 1970 as a `MicroTime` of the API.
#[must_use]
pub fn micro_time(us: u64) -> String {
    let (days, rest) = (us / DAY_US, us % DAY_US);
    let (seconds, us) = (rest / 1_000_000, rest % 1_000_000);
    let (year, month, day) = civil(days);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{us:06}Z")
}

/// Parses a `MicroTime` that [`micro_time`] formatted. Returns microseconds since 1970.
#[must_use]
pub fn parse_micro_time(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let days = days(number(0..4)?, number(5..7)?, number(8..10)?);
    let seconds = number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?;
    Some(days * DAY_US + seconds * 1_000_000 + number(20..26)?)
}

const DAY_US: u64 = 86_400_000_000;

/// Returns the days from 1970 to a later date (H. Hinnant, `days_from_civil`).
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_time_parses_to_the_same_value() {
        for us in [0, 1_767_225_600_000_001, 1_709_164_800_000_000, 4_102_444_799_999_999] {
            assert_eq!(parse_micro_time(&micro_time(us)), Some(us));
        }
        assert_eq!(micro_time(1_767_225_600_000_001), "2026-01-01T00:00:00.000001Z");
    }
}
