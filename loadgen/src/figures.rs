//! Conversion, rounding and formatting of the numbers in results.

/// Converts a count to a floating-point number.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn count(number: u64) -> f64 {
    number as f64
}

/// Divides `value` by `of` and rounds the quotient; `None` if `of` is 0.
pub(crate) fn per(value: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| round(value / of))
}

/// Rounds to four decimals.
pub(crate) fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// Formats an integer with commas between thousands: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number of things: `1 error`, `2 requests in flight`. The plural changes the first word of `thing`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let (noun, rest) = thing.split_at(thing.find(' ').unwrap_or(thing.len()));
    format!("{} {noun}{}{rest}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats a ratio of things: `1 read`, `0.5 reads`.
pub(crate) fn counted_ratio(ratio: f64, thing: &str) -> String {
    format!("{ratio} {thing}{}", if ratio == 1.0 { "" } else { "s" })
}

/// Rounds a non-negative number to an integer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates and lengths, far below 2^52")]
pub(crate) fn whole(value: f64) -> u64 {
    value.round().max(0.0) as u64
}

/// Formats a time in milliseconds with about three significant digits: `61 µs`, `1.28 ms`, `2.50 s`.
pub(crate) fn time_text(ms: f64) -> String {
    match ms {
        _ if ms >= 10_000.0 => format!("{:.1} s", ms / 1_000.0),
        _ if ms >= 1_000.0 => format!("{:.2} s", ms / 1_000.0),
        _ if ms >= 100.0 => format!("{ms:.0} ms"),
        _ if ms >= 10.0 => format!("{ms:.1} ms"),
        _ if ms >= 1.0 => format!("{ms:.2} ms"),
        _ if ms >= 0.01 => format!("{:.0} µs", ms * 1_000.0),
        _ => format!("{:.1} µs", ms * 1_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_and_a_count_of_one_is_singular() {
        let texts = [0, 7, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "7", "999", "1,000", "1,234,567"]);
        let texts = [0, 1, 2, 1_000].map(|number| counted(number, "error"));
        assert_eq!(texts, ["0 errors", "1 error", "2 errors", "1,000 errors"]);
    }

    #[test]
    fn a_time_has_about_three_digits() {
        let texts = [0.0, 0.0015, 0.0612, 1.284, 12.84, 128.4, 2_500.0, 60_000.0].map(time_text);
        assert_eq!(texts, ["0.0 µs", "1.5 µs", "61 µs", "1.28 ms", "12.8 ms", "128 ms", "2.50 s", "60.0 s"]);
    }
}
