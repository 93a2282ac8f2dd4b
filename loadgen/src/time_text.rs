//! Times as in Lease objects: `metav1.Time` (`2026-01-02T03:04:05Z`) and `metav1.MicroTime` (with six more digits).
//! Every request has one, so they are written and read without a date library's allocations and generality.
//!
//! A time is parsed only if it round-trips: writing it again gives the same bytes.

/// Length of a time in seconds, in bytes.
pub(crate) const SECONDS_LEN: usize = 20;
/// Length of a time in microseconds, in bytes.
pub(crate) const MICROS_LEN: usize = 27;

/// Appends `seconds` since the Unix epoch.
pub(crate) fn push_seconds(out: &mut Vec<u8>, seconds: u64) {
    push_civil(out, seconds);
    out.push(b'Z');
}

/// Appends `micros` since the Unix epoch.
pub(crate) fn push_micros(out: &mut Vec<u8>, micros: u64) {
    push_civil(out, micros / 1_000_000);
    out.push(b'.');
    push_digits(out, micros % 1_000_000, 6);
    out.push(b'Z');
}

/// Parses the output of [`push_seconds`].
pub(crate) fn parse_seconds(text: &[u8]) -> Option<u64> {
    match text.split_last_chunk() {
        Some((civil, b"Z")) => parse_civil(civil),
        _ => None,
    }
}

/// Parses the output of [`push_micros`].
pub(crate) fn parse_micros(text: &[u8]) -> Option<u64> {
    let (civil, rest) = text.split_at_checked(SECONDS_LEN - 1)?;
    let digits = rest.strip_prefix(b".")?.strip_suffix(b"Z")?;
    if digits.len() != 6 {
        return None;
    }
    Some(parse_civil(civil)? * 1_000_000 + parse_digits(digits)?)
}

/// Appends `2026-01-02T03:04:05`.
fn push_civil(out: &mut Vec<u8>, seconds: u64) {
    let (year, month, day) = civil_of_days(seconds / 86_400);
    for (value, width, end) in [
        (year, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (seconds / 3_600 % 24, 2, b':'),
        (seconds / 60 % 60, 2, b':'),
    ] {
        push_digits(out, value, width);
        out.push(end);
    }
    push_digits(out, seconds % 60, 2);
}

fn parse_civil(text: &[u8]) -> Option<u64> {
    let [y, m, d, hour, minute, second] = [0..4, 5..7, 8..10, 11..13, 14..16, 17..19].map(|place| text.get(place));
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if text.len() != SECONDS_LEN - 1 || separators.iter().any(|&(at, byte)| text.get(at) != Some(&byte)) {
        return None;
    }
    let days = days_of_civil(parse_digits(y?)?, parse_digits(m?)?, parse_digits(d?)?)?;
    let (hour, minute, second) = (parse_digits(hour?)?, parse_digits(minute?)?, parse_digits(second?)?);
    (hour < 24 && minute < 60 && second < 60).then_some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Converts days since 1970-01-01 to year, month and day. Eras of 400 years begin on 1 March, so the leap day is the
/// last of its year.
fn civil_of_days(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The inverse of [`civil_of_days`]; `None` for an invalid day, or before 1970.
fn days_of_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * DAYS_OF_ERA + day_of_era).checked_sub(DAYS_TO_1970)?;
    (civil_of_days(days).2 == day).then_some(days)
}

/// Days in 400 years.
const DAYS_OF_ERA: u64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: u64 = 719_468;

/// Appends the last `width` decimal digits of `value`.
fn push_digits(out: &mut Vec<u8>, value: u64, width: u32) {
    for place in (0..width).rev() {
        // The remainder is a digit.
        let digit = u8::try_from(value / 10_u64.pow(place) % 10).unwrap_or(0);
        out.push(b'0' + digit);
    }
}

fn parse_digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |value, b| b.is_ascii_digit().then(|| value * 10 + u64::from(b - b'0')))
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
