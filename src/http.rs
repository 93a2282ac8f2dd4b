//! What a request and a response are, whichever protocol carries them (RFC 9110). `http1` and `http2` read and
//! write these; the API knows only these.

use crate::api_error::{ApiError, Status};
use crate::codec::Format;
use crate::form::Form;
use crate::media_type::DiscoveryVersion;
use crate::table::object::Object;
use bytes::Bytes;
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

/// Whether each `%` in the path of `target` begins an escape (RFC 3986 §2.1). Of a query Go asks that later, and leaves out
/// what is none.
#[must_use]
pub fn is_escaped_well(target: &[u8]) -> bool {
    let Some(first) = memchr(b'%', target) else { return true };
    let path = &target[..memchr(b'?', target).unwrap_or(target.len())];
    let escapes = path.get(first..).unwrap_or_default().split(|byte| *byte == b'%').skip(1);
    escapes
        .into_iter()
        .all(|rest| matches!(rest, [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit()))
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

/// Media types of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// Aggregated discovery.
    Discovery(Format, DiscoveryVersion),
    /// `application/json`
    Json,
    /// Prometheus' text format, version 0.0.4.
    Metrics,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
    /// `application/vnd.kubernetes.protobuf;stream=watch`
    ProtobufWatch,
    /// `text/plain; charset=utf-8`
    Text,
    /// `application/yaml`
    Yaml,
}

impl ContentType {
    /// As it stands in the field.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Discovery(Format::Json, DiscoveryVersion::V2) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            Self::Discovery(Format::Json, DiscoveryVersion::V2Beta1) => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            Self::Discovery(Format::Yaml, DiscoveryVersion::V2) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            Self::Discovery(Format::Yaml, DiscoveryVersion::V2Beta1) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            Self::Discovery(Format::Protobuf, DiscoveryVersion::V2) => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            Self::Discovery(Format::Protobuf, DiscoveryVersion::V2Beta1) => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            Self::Json => "application/json",
            Self::Metrics => "text/plain; version=0.0.4; charset=utf-8",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::ProtobufWatch => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Text => "text/plain; charset=utf-8",
            Self::Yaml => "application/yaml",
        }
    }
}

impl From<Format> for ContentType {
    fn from(format: Format) -> Self {
        match format {
            Format::Json => Self::Json,
            Format::Yaml => Self::Yaml,
            Format::Protobuf => Self::Protobuf,
        }
    }
}

/// The body of a response.
#[derive(Clone, Debug)]
pub enum Body {
    /// Bytes.
    Bytes(Bytes),
    /// A Lease of the table, in JSON or protobuf, which is made of its template on the way out.
    Lease(Object, Format),
}

impl Body {
    /// The bytes; those of a Lease are made in `scratch`.
    #[must_use]
    pub fn bytes<'a>(&'a self, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Lease(object, format) => {
                scratch.clear();
                object.push_body(scratch, *format);
                scratch
            }
        }
    }

    /// The bytes from `start` on, for whoever keeps them; `bytes` are those of [`Body::bytes`].
    #[must_use]
    pub fn rest(&self, bytes: &[u8], start: usize) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.slice(start.min(bytes.len())..),
            Self::Lease(..) => Bytes::copy_from_slice(bytes.get(start..).unwrap_or_default()),
        }
    }

    /// The bytes, for whoever keeps them.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Lease(object, format) => {
                let mut bytes = Vec::new();
                object.push_body(&mut bytes, format);
                bytes.into()
            }
        }
    }

    /// Number of bytes, or more: whoever asks wants to know whether there can be so many.
    #[must_use]
    pub fn len_max(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Lease(object, format) if object.is_encoded_in(*format) => object.body_bytes(*format) + TIMES_BYTES,
            Self::Lease(object, format) => object.body_bytes(*format) * ESCAPED_BYTES + SKELETON_BYTES,
        }
    }
}

/// Bytes by which one state of a Lease may be longer than another, between which there are renewals only.
const TIMES_BYTES: usize = 16;
/// Bytes of JSON for one of protobuf: an escape.
const ESCAPED_BYTES: usize = 6;
/// Bytes of a Lease in JSON that are names of members and times.
const SKELETON_BYTES: usize = 4096;

impl Default for Body {
    fn default() -> Self {
        Self::Bytes(Bytes::new())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Bytes(Bytes::from_static(text.as_bytes()))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

/// A response whose body is at hand.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: ContentType,
    /// Values of `Warning` fields, each a whole `warn-value` (RFC 7234 §5.5).
    pub warnings: Vec<String>,
    /// Seconds for `Retry-After`; 0 is none.
    pub retry_after_seconds: u32,
    /// `Cache-Control`.
    pub cache_control: &'static str,
    /// Further fields, names in lower case; of few responses. Values hold no control characters.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: Body,
}

impl Response {
    /// The `Status` of an error, in JSON.
    #[cold]
    #[must_use]
    pub fn from_error(error: &ApiError) -> Self {
        Self::from_status(&error.status(), Form::default())
    }

    /// A `Status` that tells of an error.
    #[cold]
    #[must_use]
    pub fn from_status(status: &Status, form: Form) -> Self {
        let retry_after_seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Self { retry_after_seconds, ..Self::new(status.code, form.content_type(), form.status_body(status)) }
    }

    /// A response with nothing special.
    #[must_use]
    pub fn new(status: u16, content_type: ContentType, body: Body) -> Self {
        Self {
            status,
            content_type,
            warnings: Vec::new(),
            retry_after_seconds: 0,
            cache_control: NOT_TO_BE_KEPT,
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

/// `Cache-Control` of all that may be another thing the next time.
const NOT_TO_BE_KEPT: &str = "no-cache, private";

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
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
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
