//! Request lines (RFC 9112 §3): method, target and version.

use super::error::RequestError;
use crate::http::{Method, is_target_well, is_token_byte, split_query};
use crate::limits::TARGET_BYTES_MAX;
use memchr::{memchr, memrchr};

/// A request line, borrowed from the connection's buffer.
#[derive(Debug)]
pub(super) struct RequestLine<'h> {
    pub(super) method: Method,
    target: &'h str,
    /// Whether the version is HTTP/1.1. Otherwise, the version is HTTP/1.0.
    pub(super) is_1_1: bool,
}

impl<'h> RequestLine<'h> {
    /// Parses `line`, which ends with its CRLF.
    ///
    /// # Errors
    /// [`RequestError`] if the line is malformed, its HTTP version is not 1.0 or 1.1, or its target is too long.
    pub(super) fn parse(line: &'h [u8]) -> Result<Self, RequestError> {
        let text = line.strip_suffix(b"\r\n").ok_or_else(|| malformed(line))?;
        let (rest, is_1_1) = match (text.strip_suffix(b" HTTP/1.1"), text.strip_suffix(b" HTTP/1.0")) {
            (Some(rest), _) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (None, None) => return Err(without_version(line, text)),
        };
        // One space separates the parts. A target contains no space.
        let method_end = memchr(b' ', rest).ok_or_else(|| malformed(line))?;
        let (token, target) = (&rest[..method_end], &rest[method_end + 1..]);
        let method = Method::from_bytes(token);
        if method == Method::Other && (token.is_empty() || !token.iter().copied().all(is_token_byte)) {
            return Err(malformed(line));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(RequestError::TargetTooLong);
        }
        Ok(Self { method, target: checked_target(target)?, is_1_1 })
    }

    /// Returns path and query of a target in origin form or absolute form (RFC 9112 §3.2).
    pub(super) fn path_and_query(&self) -> (&'h str, &'h str) {
        let absolute = if self.target.starts_with('/') { None } else { self.target.split_once("://") };
        let target = match absolute {
            Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphabetic()) && !scheme.is_empty() => {
                rest.find(['/', '?']).map_or("/", |at| &rest[at..])
            }
            _ => self.target,
        };
        split_query(target)
    }
}

/// Returns the error for a line that does not end with a known version. `text` is the line without its CRLF.
#[cold]
fn without_version(line: &[u8], text: &[u8]) -> RequestError {
    let is_version = |end: usize| text[end + 1..].starts_with(b"HTTP/");
    if memrchr(b' ', text).is_some_and(is_version) { RequestError::VersionUnknown } else { malformed(line) }
}

/// Returns the error for a malformed line. A malformed HTTP request gets a response. Bytes that are not HTTP get none.
#[cold]
fn malformed(line: &[u8]) -> RequestError {
    if line.windows(5).any(|name| name.eq_ignore_ascii_case(b"HTTP/")) {
        RequestError::Malformed("malformed request line")
    } else {
        RequestError::NotHttp
    }
}

/// Checks that the target has origin form or absolute form, or is the asterisk (RFC 9112 §3.2). UTF-8 beyond ASCII is
/// accepted, as in Go. The router decides which paths are valid.
fn checked_target(target: &[u8]) -> Result<&str, RequestError> {
    let malformed = RequestError::Malformed("malformed request target");
    let text = if is_target_well(target) { str::from_utf8(target).ok() } else { None }.ok_or(malformed)?;
    if text.starts_with('/') || text == "*" || text.contains("://") { Ok(text) } else { Err(malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_is_split_into_its_parts() {
        for (line, method, path, query, is_1_1) in [
            ("GET / HTTP/1.1\r\n", Method::Get, "/", "", true),
            ("PUT /a/b?c=d?e HTTP/1.0\r\n", Method::Put, "/a/b", "c=d?e", false),
            ("POST http://h:1/c?y HTTP/1.1\r\n", Method::Post, "/c", "y", true),
            ("GET http://h HTTP/1.1\r\n", Method::Get, "/", "", true),
            ("GET http://h?q HTTP/1.1\r\n", Method::Get, "", "q", true),
            ("GET /%2f%Aa?%z HTTP/1.1\r\n", Method::Get, "/%2f%Aa", "%z", true),
            ("OPTIONS * HTTP/1.1\r\n", Method::Options, "*", "", true),
            ("get /x HTTP/1.1\r\n", Method::Other, "/x", "", true),
            ("M-SEARCH /\u{e4} HTTP/1.1\r\n", Method::Other, "/\u{e4}", "", true),
        ] {
            let parsed = RequestLine::parse(line.as_bytes()).unwrap_or_else(|error| panic!("{line:?}: {error:?}"));
            assert_eq!((parsed.method, parsed.path_and_query()), (method, (path, query)), "{line:?}");
            assert_eq!(parsed.is_1_1, is_1_1, "{line:?}");
        }
    }

    #[test]
    fn an_invalid_request_line_gets_400_or_505() {
        for (line, status) in [
            (&b"GET / HTTP/1.2\r\n"[..], 505),
            (b"GET / HTTP/2.0\r\n", 505),
            (b" HTTP/2.0\r\n", 505),
            (b"HTTP/1.1\r\n", 400),
            (b"GET / HTTP/1.1", 400),
            (b"GET / HTTP/1.1 \r\n", 400),
            (b"GET  / HTTP/1.1\r\n", 400),
            (b"GET /  HTTP/1.1\r\n", 400),
            (b"GET / a HTTP/1.1\r\n", 400),
            (b"GET /\ta HTTP/1.1\r\n", 400),
            (b"GET /\ra HTTP/1.1\r\n", 400),
            (b"GET /\x7f HTTP/1.1\r\n", 400),
            (b"GET /\xff HTTP/1.1\r\n", 400),
            (b"GET /\0 HTTP/1.1\r\n", 400),
            (b"GET /% HTTP/1.1\r\n", 400),
            (b"GET /%2 HTTP/1.1\r\n", 400),
            (b"GET /%2f%zz HTTP/1.1\r\n", 400),
            (b"GET /%%20 HTTP/1.1\r\n", 400),
            (b"GET /%2?f HTTP/1.1\r\n", 400),
            (b"GET HTTP/1.1\r\n", 400),
            (b"GET  HTTP/1.1\r\n", 400),
            (b" / HTTP/1.1\r\n", 400),
            (b" HTTP/1.1\r\n", 400),
            (b"G(T / HTTP/1.1\r\n", 400),
            (b"GET a HTTP/1.1\r\n", 400),
            (b"GET / http/1.1\r\n", 400),
            (b"\r\n", 400),
        ] {
            let error = RequestLine::parse(line).expect_err("no request line");
            assert_eq!(error.status(), status, "{:?}: {error:?}", String::from_utf8_lossy(line));
            let names_http = line.windows(5).any(|name| name.eq_ignore_ascii_case(b"http/"));
            assert_eq!(error != RequestError::NotHttp, names_http, "only a line with HTTP/ gets a response: {error:?}");
        }
        assert_eq!(RequestLine::parse(b"GET /x\r\n").expect_err("HTTP/0.9"), RequestError::NotHttp);
        assert_eq!(RequestLine::parse(b"\x16\x03\x01\x02\0\r\n").expect_err("TLS"), RequestError::NotHttp);
    }
}
