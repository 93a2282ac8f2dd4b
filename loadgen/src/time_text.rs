//! The text of times in Lease objects, in JSON: `metav1.Time` (`2026-01-02T03:04:05Z`) and `metav1.MicroTime`
//! (`2026-01-02T03:04:05.000006Z`). The corresponding numbers are seconds or microseconds since the Unix epoch. The
//! parsers accept only the text that kube-apiserver writes.

use coordination_apiserver::timestamp::{self, MicroTime, Time};

/// Length of the text of a `metav1.Time`, in bytes.
pub(crate) const SECONDS_LEN: usize = 20;
/// Length of the text of a `metav1.MicroTime`, in bytes.
pub(crate) const MICROS_LEN: usize = 27;

/// Appends the text of a `metav1.Time`. `seconds` is the time since the Unix epoch.
pub(crate) fn push_seconds(out: &mut Vec<u8>, seconds: u64) {
    timestamp::push_time(out, Time(seconds.cast_signed()));
}

/// Appends the text of a `metav1.MicroTime`. `micros` is the time since the Unix epoch, in microseconds.
pub(crate) fn push_micros(out: &mut Vec<u8>, micros: u64) {
    timestamp::push_micro_time(out, MicroTime(micros.cast_signed()));
}

/// Parses the text of a `metav1.Time`. Returns seconds since the Unix epoch; `None` for any other text.
pub(crate) fn parse_seconds(text: &[u8]) -> Option<u64> {
    let Time(seconds) = timestamp::parse_canonical_time(text.try_into().ok()?)?;
    u64::try_from(seconds).ok()
}

/// Parses the text of a `metav1.MicroTime`. Returns microseconds since the Unix epoch; `None` for any other text.
pub(crate) fn parse_micros(text: &[u8]) -> Option<u64> {
    let MicroTime(micros) = timestamp::parse_canonical_micro_time(text.try_into().ok()?)?;
    u64::try_from(micros).ok()
}
