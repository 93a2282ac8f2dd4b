//! The fields of a request head (RFC 9110 §5, RFC 9112 §5), and what they mean for the message and the connection.
//!
//! A client sends the same fields with every request, except for the length of the body. So the parser stores the last
//! field section and its meaning. If the next section consists of the same bytes, a comparison replaces the parsing.
//! This saves a third of the CPU instructions of a renewal.

use super::error::RequestError;
use super::line::RequestLine;
use crate::http::{FieldLines, RequestHead};
use crate::limits::{FIELDS_KEPT_BYTES_MAX, HEAD_FIELDS_MAX};

/// The parsed field section of the last request.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// Bytes of the section as received, including the empty line at its end. Empty if no section is stored.
    section: Vec<u8>,
    lines: Vec<Line>,
    /// Whether the request was HTTP/1.1. In HTTP/1.0 the same fields have another meaning. For example, the connection
    /// closes even if `Connection` does not name `close`.
    is_1_1: bool,
    said: Said,
}

/// Position of a field line in its field section.
#[derive(Clone, Copy, Debug)]
struct Line {
    name: Span,
    value: Span,
}

/// Position of a part of the section, in bytes.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u16,
    end: u16,
}

impl Span {
    /// Returns the position of `part` in `section`. `part` must be borrowed from `section`. A position fits in 16 bits,
    /// since the length of a head is limited.
    fn of(part: &[u8], section: &[u8]) -> Result<Self, RequestError> {
        let start = part.as_ptr().addr().wrapping_sub(section.as_ptr().addr());
        match (u16::try_from(start), u16::try_from(start.wrapping_add(part.len()))) {
            (Ok(start), Ok(end)) => Ok(Self { start, end }),
            _ => Err(RequestError::HeadTooLarge),
        }
    }
}

/// Meaning of a section for the message and the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    accept: Option<Span>,
    accept_encoding: Option<Span>,
    content_type: Option<Span>,
    user_agent: Option<Span>,
    /// How the length of the body is known.
    pub(super) body: BodyLength,
    /// Whether more requests may follow (RFC 9112 §9.3).
    pub(super) keep_alive: bool,
    /// Whether `Upgrade` names `h2c`, and `Connection` names `Upgrade` (RFC 7540 §3.2).
    pub(super) wants_h2c: bool,
    /// Whether the client waits for 100 (Continue).
    pub(super) expects_continue: bool,
}

/// How the length of a body is known (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    /// `Content-Length`, or 0 if that field is absent. A value that overflows becomes `usize::MAX`.
    Bytes(usize),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

impl Default for BodyLength {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl Fields {
    /// Returns the length of the stored section if `bytes` begins with that section.
    pub(super) fn prefix_of(&self, bytes: &[u8]) -> Option<usize> {
        (!self.section.is_empty() && bytes.starts_with(&self.section)).then_some(self.section.len())
    }

    /// Parses `section`, unless it equals the stored section. `section` includes the empty line at its end.
    ///
    /// # Errors
    /// [`RequestError`] if a line is malformed or lines contradict each other. Then no section is stored.
    pub(super) fn read(&mut self, section: &[u8], is_1_1: bool) -> Result<(), RequestError> {
        if self.is_1_1 == is_1_1 && self.section == section {
            return Ok(());
        }
        self.section.clear();
        self.lines.clear();
        let mut storage = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
        let fields = match httparse::parse_headers(section, &mut storage) {
            Ok(httparse::Status::Complete((_, fields))) => fields,
            Err(httparse::Error::TooManyHeaders) => return Err(RequestError::HeadTooLarge),
            Ok(httparse::Status::Partial) | Err(_) => return Err(RequestError::Malformed("malformed field line")),
        };
        self.said = Said::of(section, fields, is_1_1)?;
        self.lines.reserve_exact(fields.len());
        for field in fields {
            self.lines
                .push(Line { name: Span::of(field.name.as_bytes(), section)?, value: Span::of(field.value, section)? });
        }
        self.section.extend_from_slice(section);
        self.is_1_1 = is_1_1;
        Ok(())
    }

    /// Returns the meaning of the field section.
    pub(super) fn said(&self) -> &Said {
        &self.said
    }

    /// Combines the fields with `line` into a request head.
    pub(super) fn under<'h>(&'h self, line: &RequestLine<'h>) -> RequestHead<'h> {
        let (path, query) = line.path_and_query();
        let value = |span: Option<Span>| span.map(|span| self.part(span));
        RequestHead {
            method: line.method,
            path,
            query,
            accept: value(self.said.accept),
            accept_encoding: value(self.said.accept_encoding),
            content_type: value(self.said.content_type),
            user_agent: value(self.said.user_agent),
            fields: self,
        }
    }

    /// Frees the stored section if it is too long to store until the next request.
    pub(super) fn shrink(&mut self) {
        if self.section.len() > FIELDS_KEPT_BYTES_MAX {
            *self = Self::default();
        }
    }

    fn part(&self, span: Span) -> &[u8] {
        self.section.get(usize::from(span.start)..usize::from(span.end)).unwrap_or_default()
    }
}

impl FieldLines for Fields {
    fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for line in &self.lines {
            each(self.part(line.name), self.part(line.value));
        }
    }
}

impl Said {
    /// Reads the fields that the server uses. The code compares the length of a name first, so most lines cost only
    /// this comparison.
    fn of(section: &[u8], fields: &[httparse::Header<'_>], is_1_1: bool) -> Result<Self, RequestError> {
        let mut said = Self::default();
        let (mut content_length, mut coding) = (None, None);
        let (mut close, mut upgrade, mut names_h2c) = (false, false, false);
        let mut hosts = 0_u32;
        for field in fields {
            let (name, value) = (field.name, field.value);
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            match name.len() {
                4 if is("host") => {
                    hosts += 1;
                    if !is_host(value) {
                        return Err(RequestError::Malformed("malformed Host"));
                    }
                }
                6 if is("accept") && said.accept.is_none() => said.accept = Some(Span::of(value, section)?),
                6 if is("expect") && !value.is_empty() => {
                    if !value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(RequestError::ExpectationUnknown);
                    }
                    // RFC 9110 §10.1.1: an expectation in HTTP/1.0 must be ignored.
                    said.expects_continue = is_1_1;
                }
                7 if is("upgrade") => names_h2c |= tokens(value).any(|protocol| protocol == b"h2c"),
                10 if is("user-agent") && said.user_agent.is_none() => {
                    said.user_agent = Some(Span::of(value, section)?);
                }
                10 if is("connection") => {
                    for token in tokens(value) {
                        close |= token.eq_ignore_ascii_case(b"close");
                        upgrade |= token.eq_ignore_ascii_case(b"upgrade");
                    }
                }
                12 if is("content-type") && said.content_type.is_none() => {
                    said.content_type = Some(Span::of(value, section)?);
                }
                14 if is("content-length") && content_length.replace(value).is_some() => {
                    return Err(RequestError::Malformed("Content-Length occurs more than once"));
                }
                15 if is("accept-encoding") && said.accept_encoding.is_none() => {
                    said.accept_encoding = Some(Span::of(value, section)?);
                }
                17 if is("transfer-encoding") && coding.replace(value).is_some() => {
                    return Err(RequestError::Malformed("Transfer-Encoding occurs more than once"));
                }
                _ => {}
            }
        }
        // RFC 9112 §3.2: exactly one Host; HTTP/1.0 may omit it.
        if hosts > 1 || (hosts == 0 && is_1_1) {
            return Err(RequestError::Malformed("Host must occur exactly once"));
        }
        said.body = BodyLength::of(content_length, coding, is_1_1)?;
        // RFC 9112 §9.3: a server may ignore `keep-alive` in HTTP/1.0. If the server kept the connection open, it would
        // have to send `keep-alive` too.
        said.keep_alive = !close && is_1_1;
        said.wants_h2c = upgrade && names_h2c && is_1_1;
        Ok(said)
    }
}

impl BodyLength {
    /// Combines `Content-Length` and `Transfer-Encoding`.
    fn of(content_length: Option<&[u8]>, coding: Option<&[u8]>, is_1_1: bool) -> Result<Self, RequestError> {
        if let Some(coding) = coding {
            // RFC 9112 §6.1: framing by both fields, or by Transfer-Encoding in HTTP/1.0, cannot be trusted.
            if content_length.is_some() {
                return Err(RequestError::Malformed("both Content-Length and Transfer-Encoding"));
            }
            if !is_1_1 {
                return Err(RequestError::Malformed("Transfer-Encoding in HTTP/1.0"));
            }
            if coding.eq_ignore_ascii_case(b"chunked") {
                return Ok(Self::Chunked);
            }
            let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
            let mut codings = tokens(coding);
            return Err(if codings.next_back().is_some_and(is_chunked) && codings.all(is_known_coding) {
                RequestError::CodingUnknown
            } else {
                RequestError::Malformed("Transfer-Encoding does not end with chunked")
            });
        }
        let Some(digits) = content_length else { return Ok(Self::Bytes(0)) };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(RequestError::Malformed("Content-Length is no number"));
        }
        let append = |bytes: usize, digit: &u8| bytes.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
        Ok(Self::Bytes(digits.iter().fold(0, append)))
    }
}

/// Splits a list without quoted strings into its members (RFC 9110 §5.6.1).
fn tokens(list: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether a `Host` can be `uri-host [":" port]` (RFC 9110 §7.2, RFC 3986 §3.2.2). An empty value is valid too: it
/// belongs to a target without an authority. The server does not use the host, so only the characters are checked.
fn is_host(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(byte))
}

/// Whether the coding is registered (RFC 9112 §7.2) but not implemented here. Such a coding gets a 501, not a 400.
fn is_known_coding(coding: &[u8]) -> bool {
    [&b"gzip"[..], b"x-gzip", b"deflate", b"compress", b"x-compress"].iter().any(|c| coding.eq_ignore_ascii_case(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Method;

    const RENEWAL: &[u8] =
        b"Host: h:1\r\nuser-agent: u\r\nAccept: a\r\naccept: b\r\nAccept-Encoding: e\r\nAccept-Encoding: f\r\n\
          Content-Type: c\r\nContent-Length: 12\r\n\r\n";

    fn lines(fields: &Fields) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut lines = Vec::new();
        fields.for_each(&mut |name, value| lines.push((name.to_vec(), value.to_vec())));
        lines
    }

    #[test]
    fn known_fields_are_extracted_and_all_lines_are_kept() {
        let mut fields = Fields::default();
        fields.read(RENEWAL, true).expect("well-formed");
        let line = RequestLine::parse(b"PUT /a?b HTTP/1.1\r\n").expect("a request line");
        let head = fields.under(&line);
        assert_eq!((head.method, head.path, head.query), (Method::Put, "/a", "b"));
        assert_eq!([head.accept, head.accept_encoding], [Some(&b"a"[..]), Some(b"e")]);
        assert_eq!([head.content_type, head.user_agent], [Some(&b"c"[..]), Some(b"u")]);
        assert_eq!(fields.said().body, BodyLength::Bytes(12));
        assert!(fields.said().keep_alive);
        assert_eq!(lines(&fields).len(), 8);
        assert_eq!(lines(&fields)[3], (b"accept".to_vec(), b"b".to_vec()));
    }

    #[test]
    fn only_an_identical_field_section_is_reused() {
        let mut fields = Fields::default();
        assert_eq!(fields.prefix_of(RENEWAL), None);
        fields.read(RENEWAL, true).expect("well-formed");
        assert_eq!(fields.prefix_of(&[RENEWAL, b"body"].concat()), Some(RENEWAL.len()));
        assert_eq!(fields.prefix_of(&RENEWAL[..RENEWAL.len() - 1]), None);
        fields.read(RENEWAL, false).expect("well-formed");
        assert!(!fields.said().keep_alive, "HTTP/1.0 closes the connection");
        fields.read(b"\r\n", false).expect("no field at all");
        let line = RequestLine::parse(b"GET / HTTP/1.0\r\n").expect("a request line");
        assert_eq!((fields.under(&line).accept, lines(&fields)), (None, vec![]));
        assert_eq!(fields.said().body, BodyLength::Bytes(0));
    }

    #[test]
    fn a_refused_field_section_leaves_nothing_to_reuse() {
        let mut fields = Fields::default();
        fields.read(RENEWAL, true).expect("well-formed");
        for broken in [&b"Host: h\r\nContent-Length: x\r\n\r\n"[..], b"Host: h\r\nX : y\r\n\r\n", b"\r\n"] {
            fields.read(broken, true).expect_err("broken");
            assert_eq!(fields.prefix_of(broken), None);
            assert_eq!(fields.prefix_of(RENEWAL), None);
            fields.read(broken, true).expect_err("still broken");
        }
    }

    #[test]
    fn a_long_section_is_not_kept() {
        let long = format!("Host: h\r\nX: {}\r\n\r\n", "x".repeat(FIELDS_KEPT_BYTES_MAX));
        let mut fields = Fields::default();
        fields.read(long.as_bytes(), true).expect("well-formed");
        fields.shrink();
        assert_eq!((fields.prefix_of(long.as_bytes()), fields.section.capacity()), (None, 0));
        fields.read(RENEWAL, true).expect("well-formed");
        fields.shrink();
        assert_eq!(fields.prefix_of(RENEWAL), Some(RENEWAL.len()));
    }
}
