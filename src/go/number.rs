//! Parses decimal numbers like Go's `strconv`. kube-apiserver includes the error messages of `strconv` in its
//! responses.

use crate::go::quote::go_quoted;
use std::fmt;

/// The reason why a text is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberError<'a> {
    /// Name of the Go function: `ParseInt` or `ParseUint`.
    function: &'static str,
    text: &'a str,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    OutOfRange,
    Syntax,
}

impl fmt::Display for NumberError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.problem {
            Problem::OutOfRange => "value out of range",
            Problem::Syntax => "invalid syntax",
        };
        write!(f, "strconv.{}: parsing {}: {problem}", self.function, go_quoted(self.text))
    }
}

/// Parses like `strconv.ParseInt(text, 10, 64)`.
///
/// # Errors
/// If `text` is not an optional sign and digits, or the number does not fit into 64 bits.
pub(crate) fn parse_int(text: &str) -> Result<i64, NumberError<'_>> {
    let error = |problem| NumberError { function: "ParseInt", text, problem };
    let (negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let magnitude = magnitude(digits).map_err(error)?;
    let value = if negative { 0i64.checked_sub_unsigned(magnitude) } else { 0i64.checked_add_unsigned(magnitude) };
    value.ok_or_else(|| error(Problem::OutOfRange))
}

/// Parses like `strconv.ParseUint(text, 10, 64)`.
///
/// # Errors
/// If `text` contains characters other than digits, or the number does not fit into 64 bits.
pub(crate) fn parse_uint(text: &str) -> Result<u64, NumberError<'_>> {
    magnitude(text.as_bytes()).map_err(|problem| NumberError { function: "ParseUint", text, problem })
}

/// Parses digits from the left, and stops at the first problem. So a number that is too large gives `OutOfRange`, even
/// if a character other than a digit follows.
fn magnitude(digits: &[u8]) -> Result<u64, Problem> {
    if digits.is_empty() {
        return Err(Problem::Syntax);
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        if !digit.is_ascii_digit() {
            return Err(Problem::Syntax);
        }
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
        next.ok_or(Problem::OutOfRange)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_parsed_as_in_go() {
        assert_eq!(parse_int("-5"), Ok(-5));
        assert_eq!(parse_int("+5"), Ok(5));
        assert_eq!(parse_int("007"), Ok(7));
        assert_eq!(parse_int(&i64::MIN.to_string()), Ok(i64::MIN));
        assert_eq!(parse_uint(&u64::MAX.to_string()), Ok(u64::MAX));
    }

    #[test]
    fn invalid_integers_get_the_errors_of_go() {
        let int = |text| parse_int(text).expect_err(text).to_string();
        assert_eq!(int("x"), "strconv.ParseInt: parsing \"x\": invalid syntax");
        assert_eq!(int(""), "strconv.ParseInt: parsing \"\": invalid syntax");
        assert_eq!(int("-"), "strconv.ParseInt: parsing \"-\": invalid syntax");
        assert_eq!(int("1_0"), "strconv.ParseInt: parsing \"1_0\": invalid syntax");
        assert_eq!(int("9223372036854775808"), "strconv.ParseInt: parsing \"9223372036854775808\": value out of range");
        let uint = |text| parse_uint(text).expect_err(text).to_string();
        assert_eq!(uint("-1"), "strconv.ParseUint: parsing \"-1\": invalid syntax");
        assert_eq!(uint("+1"), "strconv.ParseUint: parsing \"+1\": invalid syntax");
        assert_eq!(
            uint("18446744073709551616x"),
            "strconv.ParseUint: parsing \"18446744073709551616x\": value out of range"
        );
    }
}
