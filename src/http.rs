//! What a request and a response are, whichever protocol carries them (RFC 9110). `http1` and `serve` read and write
//! these; the API knows only these.

use memchr::memchr;
use std::fmt;

/// Request methods that the API tells apart.
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
    /// Any other token; no path takes it.
    Other,
}

impl Method {
    /// The method of a request line's first token. Methods are case-sensitive (RFC 9110 §9.1).
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

/// Whether `byte` can stand in a token (RFC 9110 §5.6.2), of which methods and the names of fields are made.
#[must_use]
pub fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether `target` can stand in a request line: it has no space or control character, which would end it in HTTP/1.1,
/// and each `%` in its path begins an escape (RFC 3986 §2.1). Of a query Go asks that later, and leaves out what is
/// none. Bytes beyond ASCII are let through.
#[must_use]
pub fn is_target_well(target: &[u8]) -> bool {
    // Of all bytes, without a branch for each.
    let (mut has_bad, mut has_escape) = (false, false);
    for &byte in target {
        has_bad |= (byte <= b' ') | (byte == 0x7f);
        has_escape |= byte == b'%';
    }
    !has_bad && (!has_escape || is_escaped_well(target))
}

/// Path and query of a request target; the query is empty if there is none.
#[must_use]
pub fn split_query(target: &str) -> (&str, &str) {
    match memchr(b'?', target.as_bytes()) {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, ""),
    }
}

fn is_escaped_well(target: &[u8]) -> bool {
    let path = &target[..memchr(b'?', target).unwrap_or(target.len())];
    let mut escapes = path.split(|byte| *byte == b'%').skip(1);
    escapes.all(|rest| matches!(rest, [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit()))
}

/// All field lines of a request, for the few that look past the ones picked out in [`RequestHead`].
pub trait FieldLines {
    /// Calls `each` with every name (in any case) and value, in order.
    fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8]));
}

/// A request without further field lines.
#[cfg(test)]
pub(crate) struct NoLines;

#[cfg(test)]
impl FieldLines for NoLines {
    fn for_each(&self, _each: &mut dyn FnMut(&[u8], &[u8])) {}
}

/// A request without its body, borrowed from its connection.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// Method.
    pub method: Method,
    /// Path of the target, percent-encoded as it came.
    pub path: &'a str,
    /// Query of the target without its `?`, percent-encoded as it came.
    pub query: &'a str,
    /// `Accept`, the first line of that name.
    pub accept: Option<&'a [u8]>,
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// Every field line.
    pub fields: &'a dyn FieldLines,
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

/// A response whose body is at hand, as a `B`.
#[derive(Clone, Debug)]
pub struct Response<B> {
    /// Status code.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Values of `Warning` fields, each a whole `warn-value` (RFC 7234 §5.5).
    pub warnings: Vec<String>,
    /// Seconds for `Retry-After`; 0 is none.
    pub retry_after_seconds: u32,
    /// `Cache-Control`.
    pub cache_control: CacheControl,
    /// Further fields, names in lower case; of few responses. Values hold no control characters.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: B,
}

impl<B> Response<B> {
    /// A response with nothing special.
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

    /// Whether the head has the fields that all have, and no others.
    #[must_use]
    pub fn has_plain_head(&self) -> bool {
        self.warnings.is_empty() && self.retry_after_seconds == 0 && self.fields.is_empty() && self.has_content_fields()
    }

    /// Whether the head tells of content. That of a 304 would speak of what is not sent (RFC 9110 §15.4.5).
    #[must_use]
    pub fn has_content_fields(&self) -> bool {
        self.status != 304
    }
}

/// How long a response may be kept (RFC 9111 §5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheControl {
    /// `no-cache, private`: it may be another thing the next time.
    NoCache,
    /// `public`
    Public,
    /// `public, immutable`
    PublicImmutable,
}

impl CacheControl {
    /// As it stands in the field.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoCache => "no-cache, private",
            Self::Public => "public",
            Self::PublicImmutable => "public, immutable",
        }
    }
}

/// Reason phrase of a status code (RFC 9110 §15).
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
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
