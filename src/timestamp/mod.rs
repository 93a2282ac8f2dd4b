//! The two time types of the API and their texts. `metav1.MicroTime` has exactly six digits in the fraction of its
//! second. `metav1.Time` is RFC 3339 without a fraction.
//!
//! Each parser has a fast path for the form that servers and Go clients write: 27 or 20 bytes, in UTC. The slow path
//! follows Go's `time.Parse` field by field. It returns Go's errors. It accepts unusual forms that Go accepts, such as
//! an hour of one digit or a comma before the fraction. The fast path accepts no text that the slow path would refuse
//! or would parse to another time.
//!
//! An offset can move a time out of the years 0 to 9999. Go's types then write a sign or a fifth digit of the year,
//! since Go's `Format` does not fail. The functions of this module write the same.

mod go;

use go::{MICRO_TIME_LAYOUT, TIME_LAYOUT, parse_as_go};

/// `metav1.Time`: whole seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// `metav1.MicroTime`: microseconds since the Unix epoch. A time before the epoch is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime(pub i64);

/// Parses a `metav1.MicroTime`.
///
/// # Errors
/// Go's error message.
#[inline]
pub fn parse_micro_time(text: &str) -> Result<MicroTime, String> {
    if let Ok(bytes) = text.as_bytes().try_into()
        && let Some(time) = parse_canonical_micro_time(bytes)
    {
        return Ok(time);
    }
    let (seconds, micros) = parse_as_go(text, &MICRO_TIME_LAYOUT)?;
    Ok(MicroTime(seconds * MICROS_PER_SECOND + micros))
}

/// Parses a `metav1.Time`.
///
/// # Errors
/// Go's error message.
#[inline]
pub fn parse_time(text: &str) -> Result<Time, String> {
    if let Ok(bytes) = text.as_bytes().try_into()
        && let Some(time) = parse_canonical_time(bytes)
    {
        return Ok(time);
    }
    let (seconds, _) = parse_as_go(text, &TIME_LAYOUT)?;
    Ok(Time(seconds))
}

/// Parses a `metav1.MicroTime` in the form that [`push_micro_time`] appends; `None` for any other form.
#[inline]
#[must_use]
pub fn parse_canonical_micro_time(text: &[u8; 27]) -> Option<MicroTime> {
    if text[19] != b'.' || text[26] != b'Z' {
        return None;
    }
    let micros = number([text[20], text[21], text[22], text[23], text[24], text[25]])?;
    Some(MicroTime(canonical_seconds(text)? * MICROS_PER_SECOND + micros))
}

/// Parses a `metav1.Time` in the form that [`push_time`] appends; `None` for any other form.
#[inline]
#[must_use]
pub fn parse_canonical_time(text: &[u8; 20]) -> Option<Time> {
    if text[19] == b'Z' { canonical_seconds(text).map(Time) } else { None }
}

/// Returns the text that [`push_time`] appends; `None` if the year does not have four digits.
#[inline]
#[must_use]
pub fn time_text(time: Time) -> Option<[u8; 20]> {
    let mut text = *b"0000-00-00T00:00:00Z";
    put_date_time(&mut text, time.0).is_ok().then_some(text)
}

/// Returns the text that [`push_micro_time`] appends; `None` if the year does not have four digits.
#[inline]
#[must_use]
pub fn micro_time_text(time: MicroTime) -> Option<[u8; 27]> {
    let mut text = fraction_text(time);
    put_date_time(&mut text, time.0.div_euclid(MICROS_PER_SECOND)).is_ok().then_some(text)
}

/// Appends a time in the form `2006-01-02T15:04:05.000000Z`, without quotes.
pub fn push_micro_time(out: &mut Vec<u8>, time: MicroTime) {
    push_date_time(out, fraction_text(time), time.0.div_euclid(MICROS_PER_SECOND));
}

/// Appends a time in the form `2006-01-02T15:04:05Z`, without quotes.
pub fn push_time(out: &mut Vec<u8>, time: Time) {
    push_date_time(out, *b"0000-00-00T00:00:00Z", time.0);
}

/// Go's zero time, 0001-01-01T00:00:00Z, in seconds since the epoch. Go's API types write this time as `null` in JSON,
/// and as an empty message in protobuf.
pub const ZERO_SECONDS: i64 = -62_135_596_800;

/// Whether a time is Go's zero time ([`ZERO_SECONDS`]).
#[must_use]
pub fn is_zero_micro_time(time: MicroTime) -> bool {
    time.0 == ZERO_SECONDS * MICROS_PER_SECOND
}

/// Whether a time is Go's zero time ([`ZERO_SECONDS`]).
#[must_use]
pub fn is_zero_time(time: Time) -> bool {
    time.0 == ZERO_SECONDS
}

// ---- Writing ----

/// Returns the text of a time with the fraction of its second and with zeros in place of all other digits.
#[inline]
fn fraction_text(time: MicroTime) -> [u8; 27] {
    let micros = small(time.0.rem_euclid(MICROS_PER_SECOND));
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    put_pair(&mut text, 20, micros / 10_000);
    put_pair(&mut text, 22, micros / 100 % 100);
    put_pair(&mut text, 24, micros % 100);
    text
}

/// Writes date and time of day into the first 19 bytes of `text`, and appends `text` to `out`.
#[inline]
fn push_date_time<const N: usize>(out: &mut Vec<u8>, mut text: [u8; N], seconds: i64) {
    match put_date_time(&mut text, seconds) {
        Ok(()) => out.extend_from_slice(&text),
        Err(year) => {
            push_wide_year(out, year);
            out.extend_from_slice(&text[4..]);
        }
    }
}

/// Writes date and time of day into the first 19 bytes of `text`. If the year does not have four digits, returns the
/// year as the error, and does not write the year.
#[inline]
fn put_date_time<const N: usize>(text: &mut [u8; N], seconds: i64) -> Result<(), i64> {
    let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
    let second = small(seconds.rem_euclid(SECONDS_PER_DAY));
    put_pair(text, 5, month);
    put_pair(text, 8, day);
    put_pair(text, 11, second / 3_600);
    put_pair(text, 14, second / 60 % 60);
    put_pair(text, 17, second % 60);
    match u32::try_from(year) {
        Ok(digits @ 0..=9_999) => {
            put_pair(text, 0, digits / 100);
            put_pair(text, 2, digits % 100);
            Ok(())
        }
        _ => Err(year),
    }
}

#[cold]
fn push_wide_year(out: &mut Vec<u8>, year: i64) {
    let sign = if year < 0 { "-" } else { "" };
    out.extend_from_slice(format!("{sign}{:04}", year.unsigned_abs()).as_bytes());
}

/// Writes the two digits of `n` to `text` at the offsets `at` and `at + 1`. `n` must be below 100.
#[inline]
fn put_pair<const N: usize>(text: &mut [u8; N], at: usize, n: u32) {
    let pair = usize::try_from(n).ok().and_then(|n| PAIRS.get(n)).unwrap_or(b"??");
    text[at] = pair[0];
    text[at + 1] = pair[1];
}

/// The two digits of each number below 100.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let (mut at, mut tens) = (0, b'0');
    while at < 100 {
        let mut ones = b'0';
        while ones <= b'9' {
            pairs[at] = [tens, ones];
            at += 1;
            ones += 1;
        }
        tens += 1;
    }
    pairs
};

// ---- The calendar ----

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Number of days in an era, which is 400 years. After an era, the Gregorian calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;

/// Number of days from 0000-03-01 to 1970-01-01. In this calculation, a year begins in March, so that a leap day is the
/// last day of a year.
const DAYS_TO_EPOCH: i64 = 719_468;

/// Converts a date of the proleptic Gregorian calendar to days since 1970-01-01.
#[inline]
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_TO_EPOCH
}

/// Converts a number of days since 1970-01-01 to year, month and day. Each step computes a linear function,
/// `(a * n + b) / c`. Where the numbers are small enough, `c` is a power of two, so that the step needs no division (C.
/// Neri and L. Schneider, "Euclidean affine functions and their application to calendar algorithms", 2022).
#[inline]
pub(crate) fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + DAYS_TO_EPOCH;
    let era = days.div_euclid(DAYS_PER_ERA);
    let quarters = 4 * small(days.rem_euclid(DAYS_PER_ERA)) + 3;
    let (century, quarters) = (quarters / QUARTERS_PER_CENTURY, (quarters % QUARTERS_PER_CENTURY) | 3);
    // A year has 1,461 quarters of a day on average. The factor is 2^32 / 1,461, rounded up, so the product is the
    // number of years in units of 2^-32. The upper half is the year within the century. The lower half is the elapsed
    // part of that year.
    let product = 2_939_745 * u64::from(quarters);
    let [b0, b1, b2, b3, year_of_century, ..] = product.to_le_bytes();
    let day_of_year = u32::from_le_bytes([b0, b1, b2, b3]) / 2_939_745 / 4;
    // The factor is 2^16 / 30.6, so the upper half of the sum is the month. From March on, any five months in a row
    // have 153 days, so a month has 30.6 days on average. (The year ends with February, whose length has no effect.)
    let [b0, b1, month_from_march, _] = (2_141 * day_of_year + 197_913).to_le_bytes();
    let day = u32::from(u16::from_le_bytes([b0, b1])) / 2_141 + 1;
    let is_next_year = month_from_march > 12;
    let month = u32::from(if is_next_year { month_from_march - 12 } else { month_from_march });
    let year = era * 400 + i64::from(century * 100) + i64::from(year_of_century) + i64::from(is_next_year);
    (year, month, day)
}

/// Number of quarters of a day in a century. A century has 36,524.25 days on average.
const QUARTERS_PER_CENTURY: u32 = 146_097;

/// Converts the remainder of a division by a day, an era or a second to 32 bits. So the later divisions of this number
/// take a third of the time of 64-bit divisions.
#[inline]
fn small(rest: i64) -> u32 {
    u32::try_from(rest).unwrap_or_default()
}

#[inline]
pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

// ---- Reading the form that servers and Go clients write ----

/// Parses the first 19 bytes, `2006-01-02T15:04:05`, to seconds since the epoch. Returns `None` if they are malformed
/// or out of range.
#[inline]
fn canonical_seconds<const N: usize>(text: &[u8; N]) -> Option<i64> {
    if [text[4], text[7], text[10], text[13], text[16]] != *b"--T::" {
        return None;
    }
    let year = number([text[0], text[1], text[2], text[3]])?;
    let month = number([text[5], text[6]])?;
    let day = number([text[8], text[9]])?;
    let hour = number([text[11], text[12]])?;
    let minute = number([text[14], text[15]])?;
    let second = number([text[17], text[18]])?;
    let in_range = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    in_range.then(|| seconds_from(year, month, day, hour * 3_600 + minute * 60 + second))
}

#[inline]
fn seconds_from(year: i64, month: i64, day: i64, second_of_day: i64) -> i64 {
    days_from_civil(year, month, day) * SECONDS_PER_DAY + second_of_day
}

#[inline]
fn number<const N: usize>(digits: [u8; N]) -> Option<i64> {
    let mut n = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n * 10 + i64::from(digit);
    }
    Some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micro_time_text(time: MicroTime) -> String {
        let mut out = Vec::new();
        push_micro_time(&mut out, time);
        String::from_utf8(out).expect("ASCII")
    }

    fn time_text(time: Time) -> String {
        let mut out = Vec::new();
        push_time(&mut out, time);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn canonical_times_round_trip() {
        for text in [
            "2026-01-02T03:04:05.678901Z",
            "1969-12-31T23:59:58.000001Z",
            "1970-01-01T00:00:00.000000Z",
            "2024-02-29T23:59:59.999999Z",
            "2000-02-29T00:00:00.000000Z",
            "0000-01-01T00:00:00.000000Z",
            "9999-12-31T23:59:59.999999Z",
        ] {
            let time = parse_micro_time(text).expect(text);
            assert_eq!(micro_time_text(time), text);
            let whole = format!("{}Z", &text[..19]);
            assert_eq!(time_text(parse_time(&whole).expect(text)), whole);
        }
        assert_eq!(parse_micro_time("1970-01-01T00:00:00.000000Z"), Ok(MicroTime(0)));
        assert_eq!(parse_micro_time("2000-02-29T00:00:00.000000Z"), Ok(MicroTime(951_782_400_000_000)));
        assert_eq!(parse_time("2001-09-09T01:46:40Z"), Ok(Time(1_000_000_000)));
    }

    #[test]
    fn the_canonical_parsers_refuse_every_other_form() {
        for text in [b"2026-02-30T00:00:00Z", b"2026-13-01T00:00:00Z", b"2026-01-02T24:00:00Z", b"2026-01-02 00:00:00Z"]
        {
            assert_eq!(parse_canonical_time(text), None, "{}", text.escape_ascii());
        }
        for text in [b"2026-01-02 03:04:05.123456Z", b"2026-01-02T03:04:05,123456Z", b"2026-01-02T03:04:05.12345+Z"] {
            assert_eq!(parse_canonical_micro_time(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn every_day_round_trips() {
        for days in -719_528..=2_932_896 {
            let (year, month, day) = civil_from_days(days);
            let (month, day) = (i64::from(month), i64::from(day));
            assert!((1..=days_in_month(year, month)).contains(&day));
            assert_eq!(days_from_civil(year, month, day), days);
        }
        assert_eq!(civil_from_days(2_932_896), (9_999, 12, 31));
        assert_eq!(civil_from_days(-719_528), (0, 1, 1));
    }

    #[test]
    fn offsets_become_utc() {
        for (text, utc) in [
            ("2026-01-02T03:04:05.000000+02:00", "2026-01-02T01:04:05.000000Z"),
            ("2026-01-02T03:04:05.999999-11:30", "2026-01-02T14:34:05.999999Z"),
            ("2026-01-02T03:04:05.000001+24:60", "2026-01-01T02:04:05.000001Z"),
            ("0000-01-01T00:00:00.000000+00:01", "-0001-12-31T23:59:00.000000Z"),
            ("9999-12-31T23:59:59.000000-00:01", "10000-01-01T00:00:59.000000Z"),
        ] {
            assert_eq!(micro_time_text(parse_micro_time(text).expect(text)), utc);
        }
        assert_eq!(time_text(parse_time("2026-01-02T03:04:05.9+02:00").expect("time")), "2026-01-02T01:04:05Z");
        assert_eq!(parse_time("1969-12-31T23:59:59.9Z"), Ok(Time(-1)));
    }

    /// If the fast path accepts a text, the slow path must parse the same time from it.
    #[test]
    fn mutated_times_never_panic_and_both_paths_agree() {
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..50_000 {
            let mut text =
                if round % 2 == 0 { b"2026-01-02T03:04:05.678901Z".to_vec() } else { b"2026-12-28T23:59:05Z".to_vec() };
            for _ in 0..random.usize(0..3) {
                let at = random.usize(..text.len());
                text[at] = *random.choice(b"0123456789.,:-+TZ x").expect("not empty");
            }
            if random.u8(..) < 20 {
                text.truncate(random.usize(..text.len()));
            }
            let text = String::from_utf8(text).expect("ASCII");
            let slow = parse_as_go(&text, &MICRO_TIME_LAYOUT).map(|(s, us)| MicroTime(s * MICROS_PER_SECOND + us));
            assert_eq!(parse_micro_time(&text), slow, "{text}");
            let slow = parse_as_go(&text, &TIME_LAYOUT).map(|(s, _)| Time(s));
            assert_eq!(parse_time(&text), slow, "{text}");
        }
    }

    #[test]
    fn extreme_values_are_written() {
        for n in [i64::MIN, i64::MAX] {
            assert!(!micro_time_text(MicroTime(n)).contains('?'));
        }
        assert!(is_zero_time(parse_time("0001-01-01T00:00:00Z").expect("time")));
        assert!(is_zero_micro_time(parse_micro_time("0001-01-01T00:00:00.000000Z").expect("time")));
    }
}
