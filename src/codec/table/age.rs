//! Formats ages for people, such as `3h1m`, with two or three significant figures (apimachinery `util/duration`,
//! `HumanDuration`).

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Appends an age in seconds as a table cell, escaped for JSON but without quotes. The server's clock may be one second
/// behind the clock that has set the creation time. So only an age below -1 s is invalid.
pub(super) fn push_age(out: &mut Vec<u8>, seconds: i64) {
    match seconds {
        ..-1 => out.extend_from_slice(br"\u003cinvalid\u003e"),
        -1 => push(out, 0, b's'),
        0..120 => push(out, seconds, b's'),
        120..600 => push_two(out, seconds, (MINUTE, b'm'), (1, b's')),
        600..10_800 => push(out, seconds / MINUTE, b'm'),
        10_800..28_800 => push_two(out, seconds, (HOUR, b'h'), (MINUTE, b'm')),
        28_800..172_800 => push(out, seconds / HOUR, b'h'),
        172_800..691_200 => push_two(out, seconds, (DAY, b'd'), (HOUR, b'h')),
        691_200..63_072_000 => push(out, seconds / DAY, b'd'),
        63_072_000..252_288_000 => push_two(out, seconds, (YEAR, b'y'), (DAY, b'd')),
        252_288_000.. => push(out, seconds / YEAR, b'y'),
    }
}

/// Appends an age in two units. Omits the smaller unit if it is zero.
fn push_two(out: &mut Vec<u8>, seconds: i64, (large, large_letter): (i64, u8), (small, small_letter): (i64, u8)) {
    push(out, seconds / large, large_letter);
    let rest = seconds % large / small;
    if rest != 0 {
        push(out, rest, small_letter);
    }
}

fn push(out: &mut Vec<u8>, n: i64, letter: u8) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    out.push(letter);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_match_kubectl() {
        for (seconds, text) in [
            (i64::MIN, r"\u003cinvalid\u003e"),
            (-2, r"\u003cinvalid\u003e"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 61, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (48 * HOUR - 1, "47h"),
            (48 * HOUR, "2d"),
            (49 * HOUR, "2d1h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (i64::MAX, "292471208677y"),
        ] {
            let mut out = Vec::new();
            push_age(&mut out, seconds);
            assert_eq!(String::from_utf8(out).expect("ASCII"), text, "{seconds}");
        }
    }
}
