//! Times as in Lease objects, as unsigned numbers since the Unix epoch: `metav1.Time` (`2026-01-02T03:04:05Z`) and
//! `metav1.MicroTime` (with six more digits). Parsers accept only the form that the server writes.

use coordination_apiserver::timestamp::{self, MicroTime, Time};

/// Length of a time in seconds, in bytes.
pub(crate) const SECONDS_LEN: usize = 20;
/// Length of a time in microseconds, in bytes.
pub(crate) const MICROS_LEN: usize = 27;

/// Appends `seconds` since the Unix epoch.
pub(crate) fn push_seconds(out: &mut Vec<u8>, seconds: u64) {
    timestamp::push_time(out, Time(seconds.cast_signed()));
}

/// Appends `micros` since the Unix epoch.
pub(crate) fn push_micros(out: &mut Vec<u8>, micros: u64) {
    timestamp::push_micro_time(out, MicroTime(micros.cast_signed()));
}

/// Parses the output of [`push_seconds`].
pub(crate) fn parse_seconds(text: &[u8]) -> Option<u64> {
    let Time(seconds) = timestamp::parse_canonical_time(text.try_into().ok()?)?;
    u64::try_from(seconds).ok()
}

/// Parses the output of [`push_micros`].
pub(crate) fn parse_micros(text: &[u8]) -> Option<u64> {
    let MicroTime(micros) = timestamp::parse_canonical_micro_time(text.try_into().ok()?)?;
    u64::try_from(micros).ok()
}
