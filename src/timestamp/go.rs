//! Parses times like Go's `time.Parse`: accepts each form that Go accepts, and returns Go's error messages.
//!
//! This parser is the slow path of both parsers in the parent module. Their fast paths may accept only texts that this
//! parser accepts.

use super::{days_in_month, number, seconds_from};
use crate::go::quote::go_quoted_ascii;

/// The differences between Go's layouts of `metav1.Time` and of `metav1.MicroTime`.
pub(super) struct Layout {
    /// The layout, as Go's error messages show it.
    text: &'static str,
    /// Number of digits that the fraction of a second must have; `None` if any number is allowed.
    fraction_digits: Option<usize>,
}

pub(super) const MICRO_TIME_LAYOUT: Layout =
    Layout { text: "2006-01-02T15:04:05.000000Z07:00", fraction_digits: Some(6) };
pub(super) const TIME_LAYOUT: Layout = Layout { text: "2006-01-02T15:04:05Z07:00", fraction_digits: None };

/// Parses each form that Go's `time.Parse` accepts. Returns the seconds since the epoch, and the microseconds in the
/// second.
#[cold]
pub(super) fn parse_as_go(text: &str, layout: &'static Layout) -> Result<(i64, i64), String> {
    let mut reader = GoReader { text, rest: text.as_bytes(), layout };
    let year = reader.year()?;
    reader.separator("-")?;
    let month = reader.two_digits("01", "month", 1, 12)?;
    reader.separator("-")?;
    // The maximum day depends on the month and the year. So Go checks the day at the end.
    let day = reader.two_digits("02", "day", 0, 99)?;
    reader.separator("T")?;
    let hour = reader.hour()?;
    reader.separator(":")?;
    let minute = reader.two_digits("04", "minute", 0, 59)?;
    reader.separator(":")?;
    let second = reader.two_digits("05", "second", 0, 59)?;
    let micros = match layout.fraction_digits {
        Some(digits) => reader.fraction(digits)?,
        None => reader.optional_fraction(),
    };
    let offset = reader.offset()?;
    if !reader.rest.is_empty() {
        return Err(reader.out_of_form(&format!(": extra text: {}", go_quoted_ascii(reader.rest))));
    }
    if day < 1 || day > days_in_month(year, month) {
        return Err(reader.out_of_form(": day out of range"));
    }
    let seconds = seconds_from(year, month, day, hour * 3_600 + minute * 60 + second);
    Ok((seconds - offset, micros))
}

/// Reads the fields of a time one after another. `rest` is the part of `text` that is not read yet.
struct GoReader<'a> {
    text: &'a str,
    rest: &'a [u8],
    layout: &'static Layout,
}

impl GoReader<'_> {
    fn separator(&mut self, separator: &'static str) -> Result<(), String> {
        match self.rest.strip_prefix(separator.as_bytes()) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.cannot_parse(separator)),
        }
    }

    fn year(&mut self) -> Result<i64, String> {
        let Some((digits, rest)) = self.rest.split_first_chunk::<4>() else {
            return Err(self.cannot_parse("2006"));
        };
        let Some(year) = number(*digits) else {
            return Err(self.cannot_parse("2006"));
        };
        self.rest = rest;
        Ok(year)
    }

    fn two_digits(&mut self, element: &'static str, name: &str, min: i64, max: i64) -> Result<i64, String> {
        let Some((n, rest)) = self.rest.split_first_chunk::<2>().and_then(|(d, rest)| Some((number(*d)?, rest))) else {
            return Err(self.cannot_parse(element));
        };
        self.rest = rest;
        if n < min || n > max { Err(self.out_of_range(name)) } else { Ok(n) }
    }

    /// Reads the hour, which may consist of one digit.
    fn hour(&mut self) -> Result<i64, String> {
        let (n, rest) = match *self.rest {
            [tens @ b'0'..=b'9', ones @ b'0'..=b'9', ref rest @ ..] => {
                (i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), rest)
            }
            [ones @ b'0'..=b'9', ref rest @ ..] => (i64::from(ones - b'0'), rest),
            _ => return Err(self.cannot_parse("15")),
        };
        self.rest = rest;
        if n > 23 { Err(self.out_of_range("hour")) } else { Ok(n) }
    }

    /// Reads a point or a comma, and then `digits` digits. Go parses the digits as a signed number, so a sign may take
    /// the place of the first digit. A plus is accepted. A minus is out of range unless all digits are zero.
    fn fraction(&mut self, digits: usize) -> Result<i64, String> {
        let element = ".000000";
        let Some((field, rest)) = self.rest.split_at_checked(1 + digits) else {
            return Err(self.cannot_parse(element));
        };
        let (sign, digits) = match field {
            [b'.' | b',', sign @ (b'+' | b'-'), digits @ ..] => (Some(*sign), digits),
            [b'.' | b',', digits @ ..] => (None, digits),
            _ => return Err(self.cannot_parse(element)),
        };
        let mut micros = 0;
        for digit in digits {
            let Some(digit) = number([*digit]) else {
                return Err(self.cannot_parse(element));
            };
            micros = micros * 10 + digit;
        }
        self.rest = rest;
        if sign == Some(b'-') && micros != 0 { Err(self.out_of_range("fractional second")) } else { Ok(micros) }
    }

    /// Skips a point or a comma and any number of digits, if they are present. The digits have no effect, since
    /// `metav1.Time` has whole seconds and Go does not round.
    fn optional_fraction(&mut self) -> i64 {
        if let [b'.' | b',', b'0'..=b'9', ..] = self.rest {
            let digits = self.rest.iter().skip(1).take_while(|b| b.is_ascii_digit()).count();
            self.rest = self.rest.get(1 + digits..).unwrap_or_default();
        }
        0
    }

    /// Reads the time zone: `Z`, or a sign with hours and minutes. Returns the offset in seconds east of UTC.
    fn offset(&mut self) -> Result<i64, String> {
        let element = "Z07:00";
        if let [b'Z', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(0);
        }
        let Some((&[sign, h1, h2, b':', m1, m2], rest)) = self.rest.split_first_chunk::<6>() else {
            return Err(self.cannot_parse(element));
        };
        let (hours, minutes) = (number([h1, h2]), number([m1, m2]));
        // Go parses the minutes only if the hours are digits, and checks the ranges before the sign. Go checks the
        // minutes after the hours, so an error about the minutes replaces an error about the hours. Go accepts 24 hours
        // and 60 minutes.
        let out_of_range = match (hours, minutes) {
            (Some(_), Some(61..)) => Some("time zone offset minute"),
            (Some(25..), _) => Some("time zone offset hour"),
            _ => None,
        };
        if let Some(name) = out_of_range {
            return Err(self.out_of_range(name));
        }
        let (Some(hours), Some(minutes)) = (hours, minutes) else {
            return Err(self.cannot_parse(element));
        };
        let offset = match sign {
            b'+' => hours * 3_600 + minutes * 60,
            b'-' => -(hours * 3_600 + minutes * 60),
            _ => return Err(self.cannot_parse(element)),
        };
        self.rest = rest;
        Ok(offset)
    }

    fn cannot_parse(&self, element: &str) -> String {
        let layout = self.layout.text;
        let text = go_quoted_ascii(self.text.as_bytes());
        format!("parsing time {text} as \"{layout}\": cannot parse {} as \"{element}\"", go_quoted_ascii(self.rest))
    }

    fn out_of_range(&self, name: &str) -> String {
        self.out_of_form(&format!(": {name} out of range"))
    }

    fn out_of_form(&self, message: &str) -> String {
        format!("parsing time {}{message}", go_quoted_ascii(self.text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use crate::timestamp::{MicroTime, Time, parse_micro_time, parse_time};

    #[test]
    fn unusual_times_that_go_accepts_are_parsed() {
        assert_eq!(parse_micro_time("1970-01-01T1:00:00,000001Z"), Ok(MicroTime(3_600_000_001)));
        assert_eq!(parse_micro_time("1970-01-01T00:00:00.+00001Z"), Ok(MicroTime(1)));
        assert_eq!(parse_micro_time("1970-01-01T00:00:00.-00000Z"), Ok(MicroTime(0)));
        assert_eq!(parse_time("1970-01-01T1:00:00,5Z"), Ok(Time(3_600)));
        assert_eq!(parse_time("1970-01-01T00:00:01.1234567890123Z"), Ok(Time(1)));
    }

    #[test]
    fn micro_times_are_refused_in_the_words_of_go() {
        let layout = "2006-01-02T15:04:05.000000Z07:00";
        for (text, rest, element) in [
            ("yesterday", "yesterday", "2006"),
            ("", "", "2006"),
            ("2026-01-02 03:04:05", " 03:04:05", "T"),
            ("2026-01-02T03:04:05Z", "Z", ".000000"),
            ("2026-01-02T03:04:05.1Z", ".1Z", ".000000"),
            ("2026-01-02T03:04:05.123456789Z", "789Z", "Z07:00"),
            ("0001-01-01T00:00:00Z", "Z", ".000000"),
            ("2026-02-30T00:00:00Z", "Z", ".000000"),
            ("2026-1-02T03:04:05.000000Z", "1-02T03:04:05.000000Z", "01"),
            ("2026-01-02T03:04:05.000000", "", "Z07:00"),
            ("2026-01-02T03:04:05.000000z", "z", "Z07:00"),
            ("2026-01-02T03:04:05.000000*01:00", "*01:00", "Z07:00"),
        ] {
            let expected = format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{element}\"");
            assert_eq!(parse_micro_time(text), Err(expected));
        }
        for (text, what) in [
            ("2026-01-02T03:04:60Z", "second out of range"),
            ("2026-13-02T03:04:05.000000Z", "month out of range"),
            ("2026-01-02T24:00:00.000000Z", "hour out of range"),
            ("2026-01-02T03:60:00.000000Z", "minute out of range"),
            ("2026-02-29T00:00:00.000000Z", "day out of range"),
            ("2026-01-00T00:00:00.000000Z", "day out of range"),
            ("2026-01-02T03:04:05.-00001Z", "fractional second out of range"),
            ("2026-01-02T03:04:05.000000+25:00", "time zone offset hour out of range"),
            ("2026-01-02T03:04:05.000000+00:61", "time zone offset minute out of range"),
            ("2026-01-02T03:04:05.000000+25:61", "time zone offset minute out of range"),
            ("2026-01-02T03:04:05.000000ZZ", "extra text: \"Z\""),
        ] {
            assert_eq!(parse_micro_time(text), Err(format!("parsing time \"{text}\": {what}")));
        }
    }

    #[test]
    fn times_are_refused_in_the_words_of_go() {
        assert_eq!(
            parse_time("a\"\\é\n").expect_err("no time"),
            r#"parsing time "a\"\\\xc3\xa9\x0a" as "2006-01-02T15:04:05Z07:00": cannot parse "a\"\\\xc3\xa9\x0a" as "2006""#
        );
        assert_eq!(
            parse_time("2026-02-30T00:00:00Z").expect_err("no day"),
            "parsing time \"2026-02-30T00:00:00Z\": day out of range"
        );
    }
}
