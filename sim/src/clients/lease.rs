//! Paths, objects and times of Leases, as the clients write and parse them.

use crate::check::history::{Key, State};
use serde_json::{Value, json};
use std::time::Duration;
use time::{Date, Month, OffsetDateTime};
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
    let time = OffsetDateTime::UNIX_EPOCH + Duration::from_micros(us);
    let ((year, month, day), (hours, minutes, seconds, us)) = (time.to_calendar_date(), time.to_hms_micro());
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{us:06}Z")
}

/// Parses a `MicroTime` that [`micro_time`] formatted. Returns microseconds since 1970.
#[must_use]
pub fn parse_micro_time(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u8>().ok();
    let month = Month::try_from(number(5..7)?).ok()?;
    let date = Date::from_calendar_date(text.get(..4)?.parse().ok()?, month, number(8..10)?).ok()?;
    let us = text.get(20..26)?.parse().ok()?;
    let time = date.with_hms_micro(number(11..13)?, number(14..16)?, number(17..19)?, us).ok()?;
    u64::try_from(time.assume_utc().unix_timestamp_nanos() / 1_000).ok()
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
