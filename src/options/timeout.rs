//! Checks the parameter `timeout`, which all requests except watches may have (apiserver
//! `endpoints/filters/request_deadline.go`). Before any other check, the server refuses a request whose `timeout` is
//! not a valid duration. Otherwise the server does not use the parameter, and its own limits apply: for example, a
//! write waits for the journal for at most 60 s.

use super::Query;
use crate::api_error::ApiError;
use crate::go::quote::go_quoted_ascii;

/// Checks the parameter `timeout`, if the query contains it.
///
/// # Errors
/// 400 with kube-apiserver's message.
pub fn check_timeout(query: &Query<'_>) -> Result<(), ApiError> {
    let timeout = query.value("timeout").unwrap_or_default();
    if timeout.is_empty() {
        return Ok(());
    }
    check_duration(&timeout).map_err(|why| ApiError::BadRequest {
        message: format!("invalid timeout specified in the request URL - time: {why}"),
    })
}

/// Checks that a text is a duration, like Go's `time.ParseDuration`. Does not compute the duration.
fn check_duration(text: &str) -> Result<(), String> {
    let shown = go_quoted_ascii(text.as_bytes());
    let invalid = || format!("invalid duration {shown}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanoseconds = 0u64;
    while !rest.is_empty() {
        let whole;
        (whole, rest) = digits(rest);
        let fraction = match rest.strip_prefix('.') {
            Some(after) => {
                let fraction;
                (fraction, rest) = digits(after);
                fraction
            }
            None => "",
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(end);
        let scale = match unit {
            "" => return Err(format!("missing unit in duration {shown}")),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(format!("unknown unit {} in duration {shown}", go_quoted_ascii(unit.as_bytes()))),
        };
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let sum = whole.checked_mul(scale).and_then(|part| nanoseconds.checked_add(part));
        nanoseconds = sum.filter(|sum| *sum <= 1 << 63).ok_or_else(invalid)?;
        rest = after;
    }
    Ok(())
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for text in ["0", "+0", "5s", "1h2m3.5s", ".5s", "5.s", "1ns", "-3us", "3µs", "2562047h"] {
            assert_eq!(check_duration(text), Ok(()), "{text}");
        }
        for (text, words) in [
            ("x", "invalid duration \"x\""),
            ("-", "invalid duration \"-\""),
            (".s", "invalid duration \".s\""),
            ("5", "missing unit in duration \"5\""),
            ("5 s", "unknown unit \" s\" in duration \"5 s\""),
            ("1y2s", "unknown unit \"y\" in duration \"1y2s\""),
            ("3000000h", "invalid duration \"3000000h\""),
            ("99999999999999999999s", "invalid duration \"99999999999999999999s\""),
            ("é\"", "invalid duration \"\\xc3\\xa9\\\"\""),
        ] {
            assert_eq!(check_duration(text), Err(words.to_owned()), "{text}");
        }
    }

    #[test]
    fn only_a_timeout_with_a_value_is_checked() {
        for raw in ["", "timeout=", "timeoutSeconds=x", "timeout=5s&timeout=x"] {
            assert_eq!(check_timeout(&Query::new(raw)), Ok(()), "{raw}");
        }
        let message = "invalid timeout specified in the request URL - time: invalid duration \"x\"".to_owned();
        assert_eq!(check_timeout(&Query::new("timeout=x")), Err(ApiError::BadRequest { message }));
    }
}
