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

#[cfg(test)]
mod tests {
    use super::*;

    fn micros_text(micros: u64) -> String {
        let mut out = Vec::new();
        push_micros(&mut out, micros);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn writes_known_times() {
        assert_eq!(micros_text(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(micros_text(951_782_399_000_001), "2000-02-28T23:59:59.000001Z");
        assert_eq!(micros_text(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(micros_text(1_767_323_045_678_901), "2026-01-02T03:04:05.678901Z");
    }

    #[test]
    fn reads_back_what_it_writes() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..2_000 {
            let micros = rng.u64(0..253_402_300_800_000_000);
            let text = micros_text(micros);
            assert_eq!(parse_micros(text.as_bytes()), Some(micros), "{text}");
            let mut seconds = Vec::new();
            push_seconds(&mut seconds, micros / 1_000_000);
            assert_eq!(parse_seconds(&seconds), Some(micros / 1_000_000), "{text}");
        }
    }

    #[test]
    fn refuses_every_other_form() {
        for text in ["", "2026-01-02", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-02T24:00:00Z"] {
            assert_eq!(parse_seconds(text.as_bytes()), None, "{text}");
        }
        for text in ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123Z", "2026-01-02 03:04:05.123456Z"] {
            assert_eq!(parse_micros(text.as_bytes()), None, "{text}");
        }
    }
}
