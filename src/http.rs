//! Requests and responses (RFC 9110), independent of the HTTP version. The modules `http1` and `serve` convert between
//! these types and the bytes of a connection. The API uses this module, and neither `http1` nor `http2`.

use memchr::memchr;
use std::fmt;

/// Request methods that the API distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// DELETE
    Delete,
    /// GET
    Get,
    /// HEAD
    Head,
    /// OPTIONS
    Options,
    /// PATCH
    Patch,
    /// POST
    Post,
    /// PUT
    Put,
    /// Any other method; no path of the API accepts it.
    Other,
}

impl Method {
    /// Parses a method: the first token of a request line in HTTP/1.1, or `:method` in HTTP/2. Methods are
    /// case-sensitive (RFC 9110 §9.1).
    #[must_use]
    pub fn from_bytes(token: &[u8]) -> Self {
        match token {
            b"DELETE" => Self::Delete,
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"OPTIONS" => Self::Options,
            b"PATCH" => Self::Patch,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            _ => Self::Other,
        }
    }
}

/// Whether `byte` may occur in a token (RFC 9110 §5.6.2), such as a method or a field name.
#[must_use]
pub fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether `target` is allowed as a request target. Spaces and control characters are refused, since they would end the
/// target in an HTTP/1.1 request line. Each `%` in the path must begin an escape (RFC 3986 §2.1). Escapes in the query
/// are not checked here, since Go does not refuse a query with an invalid escape: it drops only the parameter with the
/// escape. Bytes beyond ASCII are accepted.
#[must_use]
pub fn is_target_well(target: &[u8]) -> bool {
    let (has_bad, has_escape) = match target.last_chunk::<BLOCK_BYTES>() {
        Some(last) => {
            let blocks = find_special(target.as_chunks::<BLOCK_BYTES>().0.as_flattened());
            let last = find_special(last);
            (blocks.0 | last.0, blocks.1 | last.1)
        }
        None => find_special(target),
    };
    !has_bad && (!has_escape || is_escaped_well(target))
}

/// Size of the blocks in which [`is_target_well`] checks a target, in bytes: that of a vector register of x86-64 or
/// AArch64. The last block may overlap the block before it, so that no byte is checked alone.
const BLOCK_BYTES: usize = 16;

/// Returns whether `bytes` contain a space or a control character, and whether they contain a `%`. Checks all bytes
/// without a branch for each byte.
#[inline]
fn find_special(bytes: &[u8]) -> (bool, bool) {
    let (mut has_bad, mut has_escape) = (false, false);
    for &byte in bytes {
        has_bad |= (byte <= b' ') | (byte == 0x7f);
        has_escape |= byte == b'%';
    }
    (has_bad, has_escape)
}

/// Splits a request target into path and query; the query is empty if absent.
#[must_use]
pub fn split_query(target: &str) -> (&str, &str) {
    match memchr(b'?', target.as_bytes()) {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, ""),
    }
}

/// Parses a decimal number of digits only (RFC 9110 §8.6). Returns `None` if the number exceeds [`u64::MAX`].
pub(crate) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, octet| match octet {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(octet - b'0')),
        _ => None,
    })
}

fn is_escaped_well(target: &[u8]) -> bool {
    let path = &target[..memchr(b'?', target).unwrap_or(target.len())];
    let mut escapes = path.split(|byte| *byte == b'%').skip(1);
    escapes.all(|rest| matches!(rest, [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit()))
}

/// All field lines of a request, for the few callers that need fields beyond those of [`RequestHead`].
pub trait FieldLines {
    /// Calls `each` with the name and the value of each line, in order. A name may have upper-case letters.
    fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8]));
}

/// Field lines with these names and values, for tests.
#[cfg(test)]
pub(crate) struct Lines<'a>(pub(crate) &'a [(&'a str, &'a [u8])]);

#[cfg(test)]
impl FieldLines for Lines<'_> {
    fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        self.0.iter().for_each(|(name, value)| each(name.as_bytes(), value));
    }
}

/// Field lines of a request that has none.
#[cfg(test)]
pub(crate) struct NoLines;

#[cfg(test)]
impl FieldLines for NoLines {
    fn for_each(&self, _each: &mut dyn FnMut(&[u8], &[u8])) {}
}

/// A request without its body, borrowed from its connection.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// Method of the request.
    pub method: Method,
    /// Path of the target, percent-encoded as received.
    pub path: &'a str,
    /// Query of the target without its `?`, percent-encoded as received.
    pub query: &'a str,
    /// `Accept`: the value of the first field line of that name.
    pub accept: Option<&'a [u8]>,
    /// `Accept-Encoding`: the value of the first field line of that name.
    pub accept_encoding: Option<&'a [u8]>,
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// All field lines of the request.
    pub fields: &'a dyn FieldLines,
}

impl<'a> RequestHead<'a> {
    /// Creates a head without the fields `Accept`, `Accept-Encoding`, `Content-Type` and `User-Agent`.
    #[must_use]
    pub fn bare(method: Method, path: &'a str, query: &'a str, fields: &'a dyn FieldLines) -> Self {
        let (accept, accept_encoding, content_type, user_agent) = (None, None, None, None);
        Self { method, path, query, accept, accept_encoding, content_type, user_agent, fields }
    }
}

impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("query", &self.query)
            .finish_non_exhaustive()
    }
}

/// A response with a body of type `B`.
#[derive(Clone, Debug)]
pub struct Response<B> {
    /// Status code.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Values of `Warning` fields, each a whole `warn-value` (RFC 7234 §5.5).
    pub warnings: Vec<String>,
    /// Value of `Retry-After`, in seconds; 0 omits the field.
    pub retry_after_seconds: u32,
    /// `Cache-Control`.
    pub cache_control: CacheControl,
    /// Further fields. Few responses have any. Names are lower case; values contain no control characters.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: B,
}

impl<B> Response<B> {
    /// Creates a response without optional fields.
    #[must_use]
    pub fn new(status: u16, content_type: &'static str, body: B) -> Self {
        Self {
            status,
            content_type,
            warnings: Vec::new(),
            retry_after_seconds: 0,
            cache_control: CacheControl::NoCache,
            fields: Vec::new(),
            body,
        }
    }

    /// Whether the head consists of `Cache-Control`, `Content-Type`, the date and, if known, the body's length, without
    /// further fields.
    #[must_use]
    pub fn has_plain_head(&self) -> bool {
        self.warnings.is_empty() && self.retry_after_seconds == 0 && self.fields.is_empty() && self.has_content_fields()
    }

    /// Whether the head contains fields that describe content. The head of a 304 contains none, since a 304 has no
    /// content (RFC 9110 §15.4.5).
    #[must_use]
    pub fn has_content_fields(&self) -> bool {
        self.status != 304
    }
}

/// Directives of `Cache-Control` (RFC 9111 §5.2.2): whether a shared cache may store the response, and whether a cache
/// may reuse it without asking the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheControl {
    /// `no-cache, private`: the response may change at any time.
    NoCache,
    /// `public`
    Public,
    /// `public, immutable`
    PublicImmutable,
}

impl CacheControl {
    /// Returns the value of the `Cache-Control` field.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoCache => "no-cache, private",
            Self::Public => "public",
            Self::PublicImmutable => "public, immutable",
        }
    }
}

/// Returns the reason phrase of a status code, in the words of Go's `http.StatusText`, as kube-apiserver sends it.
/// Returns an empty text for a code that this server never sends.
#[must_use]
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "Request Entity Too Large",
        414 => "Request URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards that a response has Go's reason phrases. RFC 9110 has other phrases for these three statuses.
    #[test]
    fn reason_phrases_are_those_of_go() {
        let phrases = [413, 414, 422].map(reason_phrase);
        assert_eq!(phrases, ["Request Entity Too Large", "Request URI Too Long", "Unprocessable Entity"]);
    }

    /// Goal: every byte of a target is checked, whatever the target's length. Method: each possible byte at each place
    /// of targets of up to three blocks.
    #[test]
    fn every_byte_of_a_target_is_checked() {
        for len in 1..=3 * BLOCK_BYTES {
            for place in 0..len {
                for byte in 0..=u8::MAX {
                    let mut target = vec![b'a'; len];
                    target[place] = byte;
                    // The letters after a `%` here are hexadecimal digits.
                    let is_well = match byte {
                        b'%' => place + 2 < len,
                        _ => byte > b' ' && byte != 0x7f,
                    };
                    assert_eq!(is_target_well(&target), is_well, "{byte:#x} at {place} of {len}");
                }
            }
        }
    }
}
