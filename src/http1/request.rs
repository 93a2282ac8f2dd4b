//! Requests out of a connection's bytes (RFC 9112 §2–§7), the server's side.
//!
//! Owned here: where one message ends and the next begins, and so every guard against request smuggling. A message
//! whose end two readers could see in two places is refused and the connection with it. Not owned: the bytes, which
//! stay in the connection's [`ByteBuf`] until a message is whole; head and body are lent from there, without a copy.

use crate::buffer::ByteBuf;
use crate::http::{FieldLines, Method, RequestHead};
use crate::http1::chunked::{ChunkError, ChunkedDecoder};
use crate::limits::{HEAD_BYTES_MAX, HEAD_FIELDS_MAX, TARGET_BYTES_MAX};
use memchr::{memchr, memchr_iter, memmem};
use std::mem::MaybeUninit;

/// Cuts one connection's bytes into requests. After an error it must not be called again: where the next message
/// would start is unknown.
#[derive(Debug)]
pub struct RequestParser {
    /// Bytes of a body; more is refused.
    body_bytes_max: usize,
    /// Bytes at the front that are known to hold no end of a head.
    scanned_bytes: usize,
    /// A head has come and its body is awaited.
    awaited: Option<Awaited>,
}

/// A message whose head is here and whose body is not.
#[derive(Debug)]
struct Awaited {
    head_bytes: usize,
    framing: Framing,
    /// The client waits for 100 (Continue) and has not been told.
    owes_continue: bool,
}

/// How the length of a body is known (RFC 9112 §6.3).
#[derive(Debug)]
enum Framing {
    /// `Content-Length`, or 0 if there is none.
    Length(usize),
    /// `Transfer-Encoding: chunked`; `payload_bytes` stand decoded behind the head.
    Chunked { decoder: ChunkedDecoder, payload_bytes: usize },
}

/// What became of the bytes at hand.
#[derive(Debug)]
pub enum Step<R> {
    /// A message is not whole yet.
    Incomplete {
        /// 100 (Continue) is to be sent now. Said once for a message.
        send_continue: bool,
    },
    /// A request was served and its bytes consumed.
    Served {
        /// What serving it gave.
        result: R,
        /// How the connection goes on.
        after: Persistence,
    },
}

/// What the request said of the connection (RFC 9112 §9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// Further requests may follow.
    pub keep_alive: bool,
    /// The client is of HTTP/1.1 and understands chunks.
    pub chunks: bool,
    /// Method was HEAD: the response has no body.
    pub head_only: bool,
    /// The client would go on in HTTP/2 (RFC 7540 §3.2).
    pub wants_h2c: bool,
}

/// Why a request is refused before the API sees it. The connection ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// 400: the message breaks the grammar or its framing is ambiguous.
    Malformed(&'static str),
    /// The first bytes are no request line of any HTTP: there is nobody to read an answer in HTTP/1.1.
    NotHttp,
    /// 413: the body is longer than is taken.
    BodyTooLarge,
    /// 414: the target is longer than [`TARGET_BYTES_MAX`].
    TargetTooLong,
    /// 417: an expectation other than `100-continue`.
    ExpectationUnknown,
    /// 431: the head is longer than [`HEAD_BYTES_MAX`] or has more lines than [`HEAD_FIELDS_MAX`].
    HeadTooLarge,
    /// 501: a transfer coding other than chunked.
    CodingUnknown,
    /// 505: not HTTP/1.0 or HTTP/1.1.
    VersionUnknown,
}

impl RequestError {
    /// Status code of the refusal.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) | Self::NotHttp => 400,
            Self::BodyTooLarge => 413,
            Self::TargetTooLong => 414,
            Self::ExpectationUnknown => 417,
            Self::HeadTooLarge => 431,
            Self::CodingUnknown => 501,
            Self::VersionUnknown => 505,
        }
    }

    /// A few words on it.
    #[must_use]
    pub fn detail(self) -> &'static str {
        match self {
            Self::Malformed(what) => what,
            Self::NotHttp => "this is not HTTP",
            Self::BodyTooLarge => "the body is too large",
            Self::TargetTooLong => "the request target is too long",
            Self::ExpectationUnknown => "unknown expectation",
            Self::HeadTooLarge => "the request head is too large",
            Self::CodingUnknown => "unknown transfer coding",
            Self::VersionUnknown => "unknown HTTP version",
        }
    }
}

impl RequestParser {
    /// A parser that takes bodies of at most `body_bytes_max`.
    #[must_use]
    pub fn new(body_bytes_max: usize) -> Self {
        Self { body_bytes_max, scanned_bytes: 0, awaited: None }
    }

    /// Serves the first request in `buf` with `serve` if it is whole, and consumes it. Head and body are lent to
    /// `serve` from `buf`; the body may be changed in place.
    ///
    /// # Errors
    /// See [`RequestError`]; nothing of the refused message has reached `serve`.
    pub fn next<R>(
        &mut self,
        buf: &mut ByteBuf,
        serve: impl FnOnce(&RequestHead<'_>, &mut [u8], Persistence) -> R,
    ) -> Result<Step<R>, RequestError> {
        let head_bytes = match &self.awaited {
            Some(awaited) => {
                if let Framing::Length(length) = awaited.framing
                    && buf.len() < awaited.head_bytes + length
                {
                    return Ok(self.incomplete());
                }
                awaited.head_bytes
            }
            None => match self.find_head(buf)? {
                Some(head_bytes) => head_bytes,
                None => return Ok(Step::Incomplete { send_continue: false }),
            },
        };

        let (head, rest) = buf.filled_mut().split_at_mut(head_bytes);
        let mut storage = [const { MaybeUninit::uninit() }; HEAD_FIELDS_MAX];
        let parsed = ParsedHead::parse(head, &mut storage)?;
        let rest_bytes = rest.len();
        let mut awaited = match self.awaited.take() {
            Some(awaited) => awaited,
            None => Awaited {
                head_bytes,
                framing: parsed.framing(self.body_bytes_max)?,
                owes_continue: parsed.expects_continue,
            },
        };

        let (body_bytes, framed_bytes) = match &mut awaited.framing {
            Framing::Length(length) if rest_bytes < *length => {
                self.awaited = Some(awaited);
                return Ok(self.incomplete());
            }
            Framing::Length(length) => (*length, *length),
            Framing::Chunked { decoder, payload_bytes } => {
                let source = rest.get_mut(*payload_bytes..).unwrap_or_default();
                let progress = decoder.decode(source, 0).map_err(|e| match e {
                    ChunkError::Malformed => RequestError::Malformed("the chunked coding is broken"),
                    ChunkError::TooLarge => RequestError::BodyTooLarge,
                })?;
                let framed_bytes = *payload_bytes + progress.consumed;
                *payload_bytes += progress.produced;
                let body_bytes = *payload_bytes;
                if !progress.done {
                    self.awaited = Some(awaited);
                    // Everything was read: what is left behind the payload is free.
                    buf.remove(head_bytes + body_bytes, framed_bytes - body_bytes);
                    return Ok(self.incomplete());
                }
                (body_bytes, framed_bytes)
            }
        };

        let after = parsed.persistence();
        let (path, query) = parsed.path_and_query();
        let request = RequestHead {
            method: parsed.method,
            path,
            query,
            accept: parsed.accept,
            content_type: parsed.content_type,
            user_agent: parsed.user_agent,
            fields: &parsed,
        };
        let result = serve(&request, &mut rest[..body_bytes], after);
        buf.consume(head_bytes + framed_bytes);
        Ok(Step::Served { result, after })
    }

    /// Whether a message has begun and is not whole: what tells a slow client from an idle one.
    #[must_use]
    pub fn is_within_message(&self, buf: &ByteBuf) -> bool {
        self.awaited.is_some() || !buf.is_empty()
    }

    /// Whether a head is here whose body is not.
    #[must_use]
    pub fn is_body_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Length of the head at the front of `buf`, once it is all there.
    fn find_head(&mut self, buf: &mut ByteBuf) -> Result<Option<usize>, RequestError> {
        // Empty lines before a request line are skipped (RFC 9112 §2.2); a CR alone may be half of one.
        while let [b'\r', b'\n', ..] = buf.filled() {
            buf.consume(2);
            self.scanned_bytes = 0;
        }
        let bytes = buf.filled();
        let from = self.scanned_bytes.saturating_sub(3);
        let mut end = None;
        // A line that ends in LF alone, or a bare CR, is where two readers disagree (RFC 9112 §2.2). `httparse` takes
        // the first and refuses the second.
        for at in memchr_iter(b'\n', &bytes[from..]) {
            let at = from + at;
            if at == 0 || bytes[at - 1] != b'\r' {
                return Err(RequestError::Malformed("a line ends without CR"));
            }
            if bytes[at + 1..].starts_with(b"\r\n") {
                end = Some(at + 3);
                break;
            }
        }
        let head = &bytes[..end.unwrap_or(bytes.len())];
        if head.len() > HEAD_BYTES_MAX {
            return Err(too_large(head));
        }
        self.scanned_bytes = if end.is_some() { 0 } else { bytes.len() };
        Ok(end)
    }

    fn incomplete<R>(&mut self) -> Step<R> {
        let send_continue = self.awaited.as_mut().is_some_and(|a| std::mem::take(&mut a.owes_continue));
        Step::Incomplete { send_continue }
    }
}

/// Which part of an oversized head is at fault.
#[cold]
fn too_large(head: &[u8]) -> RequestError {
    let line = memchr(b'\r', head).unwrap_or(head.len());
    if line > TARGET_BYTES_MAX { RequestError::TargetTooLong } else { RequestError::HeadTooLarge }
}

/// A request line and its fields, with what framing and routing need picked out.
struct ParsedHead<'h> {
    method: Method,
    target: &'h str,
    /// 1.1 and not 1.0.
    is_1_1: bool,
    fields: &'h [httparse::Header<'h>],
    accept: Option<&'h [u8]>,
    content_type: Option<&'h [u8]>,
    user_agent: Option<&'h [u8]>,
    content_length: Option<&'h [u8]>,
    transfer_encoding: Option<&'h [u8]>,
    close: bool,
    keep_alive: bool,
    /// `Connection` names `upgrade`.
    upgrade: bool,
    /// `Upgrade` names `h2c`.
    upgrades_to_h2c: bool,
    expects_continue: bool,
}

impl<'h> ParsedHead<'h> {
    /// Parses `head`, which ends with the empty line.
    fn parse(
        head: &'h [u8],
        storage: &'h mut [MaybeUninit<httparse::Header<'h>>; HEAD_FIELDS_MAX],
    ) -> Result<Self, RequestError> {
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(head, storage) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Err(RequestError::Malformed("the head does not end")),
            Err(httparse::Error::TooManyHeaders) => return Err(RequestError::HeadTooLarge),
            Err(_) if !names_http(head) => return Err(RequestError::NotHttp),
            Err(httparse::Error::Version) => return Err(RequestError::VersionUnknown),
            Err(_) => return Err(RequestError::Malformed("malformed request head")),
        }
        let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
            return Err(RequestError::Malformed("malformed request line"));
        };
        if target.len() > TARGET_BYTES_MAX {
            return Err(RequestError::TargetTooLong);
        }
        // RFC 9112 §3.2: origin form, absolute form, or the asterisk.
        if !target.starts_with('/') && target != "*" && !target.contains("://") {
            return Err(RequestError::Malformed("malformed request target"));
        }
        let mut parsed = Self {
            method: Method::from_bytes(method.as_bytes()),
            target,
            is_1_1: minor == 1,
            fields: request.headers,
            accept: None,
            content_type: None,
            user_agent: None,
            content_length: None,
            transfer_encoding: None,
            close: false,
            keep_alive: false,
            upgrade: false,
            upgrades_to_h2c: false,
            expects_continue: false,
        };
        parsed.pick_fields()?;
        Ok(parsed)
    }

    /// Picks out the fields that matter here. The length of the name comes first, so that most lines cost one compare.
    fn pick_fields(&mut self) -> Result<(), RequestError> {
        let mut hosts = 0_u32;
        for field in self.fields {
            let (name, value) = (field.name, field.value);
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            match name.len() {
                4 if is("host") => {
                    hosts += 1;
                    if !is_host(value) {
                        return Err(RequestError::Malformed("malformed Host"));
                    }
                }
                6 if is("accept") => _ = self.accept.get_or_insert(value),
                6 if is("expect") => {
                    if !value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(RequestError::ExpectationUnknown);
                    }
                    self.expects_continue = self.is_1_1;
                }
                7 if is("upgrade") => {
                    let mut protocols = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
                    self.upgrades_to_h2c |= protocols.any(|protocol| protocol == b"h2c");
                }
                10 if is("user-agent") => _ = self.user_agent.get_or_insert(value),
                10 if is("connection") => {
                    for token in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                        self.close |= token.eq_ignore_ascii_case(b"close");
                        self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                        self.upgrade |= token.eq_ignore_ascii_case(b"upgrade");
                    }
                }
                12 if is("content-type") => _ = self.content_type.get_or_insert(value),
                14 if is("content-length") && self.content_length.replace(value).is_some() => {
                    return Err(RequestError::Malformed("Content-Length stands twice"));
                }
                17 if is("transfer-encoding") && self.transfer_encoding.replace(value).is_some() => {
                    return Err(RequestError::Malformed("Transfer-Encoding stands twice"));
                }
                _ => {}
            }
        }
        // RFC 9112 §3.2: exactly one, which HTTP/1.0 may leave out.
        if hosts > 1 || (hosts == 0 && self.is_1_1) {
            return Err(RequestError::Malformed("Host must stand once"));
        }
        Ok(())
    }

    /// How long the body is (RFC 9112 §6.3), and whether that is acceptable.
    fn framing(&self, body_bytes_max: usize) -> Result<Framing, RequestError> {
        if let Some(coding) = self.transfer_encoding {
            // RFC 9112 §6.1: with both fields, or from HTTP/1.0, the framing is not to be trusted.
            if self.content_length.is_some() {
                return Err(RequestError::Malformed("both Content-Length and Transfer-Encoding"));
            }
            if !self.is_1_1 {
                return Err(RequestError::Malformed("Transfer-Encoding in HTTP/1.0"));
            }
            if coding.eq_ignore_ascii_case(b"chunked") {
                return Ok(Framing::Chunked { decoder: ChunkedDecoder::new(body_bytes_max), payload_bytes: 0 });
            }
            let mut codings = coding.split(|b| *b == b',').map(<[u8]>::trim_ascii);
            let last_only =
                codings.next_back().is_some_and(|c| c.eq_ignore_ascii_case(b"chunked")) && codings.all(is_known_coding);
            return Err(if last_only {
                RequestError::CodingUnknown
            } else {
                RequestError::Malformed("Transfer-Encoding does not end with chunked")
            });
        }
        let Some(digits) = self.content_length else { return Ok(Framing::Length(0)) };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(RequestError::Malformed("Content-Length is no number"));
        }
        let length = digits.iter().try_fold(0_usize, |n, d| n.checked_mul(10)?.checked_add(usize::from(d - b'0')));
        match length {
            Some(length) if length <= body_bytes_max => Ok(Framing::Length(length)),
            Some(_) | None => Err(RequestError::BodyTooLarge),
        }
    }

    fn persistence(&self) -> Persistence {
        Persistence {
            keep_alive: !self.close && (self.is_1_1 || self.keep_alive),
            chunks: self.is_1_1,
            head_only: self.method == Method::Head,
            wants_h2c: self.upgrade && self.is_1_1 && self.upgrades_to_h2c,
        }
    }

    /// Path and query of the target, in origin form or in absolute form (RFC 9112 §3.2).
    fn path_and_query(&self) -> (&'h str, &'h str) {
        let absolute = if self.target.starts_with('/') { None } else { self.target.split_once("://") };
        let target = match absolute {
            Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphabetic()) && !scheme.is_empty() => {
                rest.find(['/', '?']).map_or("/", |at| &rest[at..])
            }
            _ => self.target,
        };
        match memchr(b'?', target.as_bytes()) {
            Some(at) => (&target[..at], &target[at + 1..]),
            None => (target, ""),
        }
    }
}

impl FieldLines for ParsedHead<'_> {
    fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for field in self.fields {
            each(field.name.as_bytes(), field.value);
        }
    }
}

/// Whether the first line ends in something like an HTTP version.
fn names_http(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    memmem::find(line, b"HTTP/").is_some()
}

/// Whether a `Host` can be `uri-host [":" port]` (RFC 9110 §7.2, RFC 3986 §3.2.2), empty if the target has no authority.
/// The host is of no use here, so its form alone is checked.
fn is_host(value: &[u8]) -> bool {
    value.iter().all(|byte| HOST_BYTES[usize::from(*byte)])
}

/// Bytes that can stand in a `Host`.
static HOST_BYTES: [bool; 256] = {
    let others = b"-._~!$&'()*+,;=:[]%";
    let (mut table, mut at) = ([false; 256], 0_u8);
    while at < 128 {
        table[at as usize] = at.is_ascii_alphanumeric();
        at += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// Codings that stand in the registry (RFC 9112 §7.2) and are not implemented: 501, not 400.
fn is_known_coding(coding: &[u8]) -> bool {
    [&b"gzip"[..], b"x-gzip", b"deflate", b"compress", b"x-compress"].iter().any(|c| coding.eq_ignore_ascii_case(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Pool;
    use crate::limits::BODY_BYTES_MAX;

    /// What a served request looked like.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Seen {
        method: Method,
        path: String,
        query: String,
        body: Vec<u8>,
        keep_alive: bool,
    }

    /// Feeds `pieces` one after the other and collects what is served, up to an error.
    #[expect(single_use_lifetimes, reason = "an elided one is not allowed in `impl Trait`")]
    fn feed<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> (Vec<Seen>, Option<RequestError>) {
        let (mut parser, mut buf, mut pool) = (RequestParser::new(BODY_BYTES_MAX), ByteBuf::default(), Pool::default());
        let mut seen = Vec::new();
        for mut piece in pieces {
            while !piece.is_empty() {
                let spare = buf.spare_mut(&mut pool);
                let n = spare.len().min(piece.len());
                spare[..n].copy_from_slice(&piece[..n]);
                buf.fill(n);
                piece = &piece[n..];
            }
            loop {
                let step = parser.next(&mut buf, |head, body, after| Seen {
                    method: head.method,
                    path: head.path.into(),
                    query: head.query.into(),
                    body: body.to_vec(),
                    keep_alive: after.keep_alive,
                });
                match step {
                    Ok(Step::Served { result, .. }) => seen.push(result),
                    Ok(Step::Incomplete { .. }) => break,
                    Err(e) => return (seen, Some(e)),
                }
            }
        }
        (seen, None)
    }

    /// The same whole, byte by byte, and at random cuts; all must agree.
    fn all_ways(input: &[u8]) -> (Vec<Seen>, Option<RequestError>) {
        let whole = feed(std::iter::once(input));
        assert_eq!(feed(input.chunks(1)), whole, "byte by byte");
        let mut rng = fastrand::Rng::with_seed(input.len() as u64);
        for _ in 0..50 {
            let mut rest = input;
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(rng.usize(1..=rest.len()));
                pieces.push(piece);
                rest = more;
            }
            assert_eq!(feed(pieces.into_iter()), whole, "random cuts");
        }
        whole
    }

    fn refused(input: &str) -> u16 {
        let (seen, error) = all_ways(input.as_bytes());
        assert_eq!(seen, [], "{input:?} reached the API");
        error.unwrap_or_else(|| panic!("{input:?} was not refused")).status()
    }

    #[test]
    fn pipelined_requests_of_each_framing_come_out_in_order() {
        let input = b"\r\nGET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n\
            PUT /b HTTP/1.1\r\nhost:h\r\nContent-Length: 5\r\n\r\nhello\
            POST http://h:1/c?y HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: u\r\n\r\n\
            DELETE /d HTTP/1.0\r\n\r\n";
        let (seen, error) = all_ways(input);
        assert_eq!(error, None);
        let of = |method, path: &str, query: &str, body: &[u8], keep_alive| Seen {
            method,
            path: path.into(),
            query: query.into(),
            body: body.to_vec(),
            keep_alive,
        };
        assert_eq!(
            seen,
            [
                of(Method::Get, "/a", "x=1", b"", true),
                of(Method::Put, "/b", "", b"hello", true),
                of(Method::Post, "/c", "y", b"abcde", true),
                of(Method::Delete, "/d", "", b"", false),
            ]
        );
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        let with = |lines: &str| {
            format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
        };
        for lines in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: +5",
            "Content-Length: -5",
            "Content-Length: 5, 5",
            "Content-Length: ",
            "Content-Length: 0x5",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: chunked, gzip",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding : chunked",
            "Content-Length : 5",
            "X: y\r\n folded",
            "X: a\rb",
            "X: a\0b",
            "X: a\nContent-Length: 5",
            "Host: again",
        ] {
            assert_eq!(refused(&with(lines)), 400, "{lines:?}");
        }
        assert_eq!(refused(&with("Transfer-Encoding: gzip, chunked")), 501);
        assert_eq!(refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
        assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(refused("GET / HTTP/1.1\nHost: h\n\n"), 400);
    }

    #[test]
    fn limits_have_their_own_codes() {
        let long = "x".repeat(HEAD_BYTES_MAX);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: h\r\nX: {long}\r\n\r\n")), 431);
        assert_eq!(refused(&format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n")), 414);
        let many = "X: y\r\n".repeat(HEAD_FIELDS_MAX);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: h\r\n{many}\r\n")), 431);
        let length = BODY_BYTES_MAX + 1;
        assert_eq!(refused(&format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n")), 413);
        assert_eq!(refused("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\n"), 413);
        assert_eq!(
            refused(&format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n")),
            413
        );
        assert_eq!(refused("GET / HTTP/1.1\r\nHost: h\r\nExpect: a-pony\r\n\r\n"), 417);
        assert_eq!(refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
        assert_eq!(refused("\x16\x03\x01\x02\0\x01\0\r\n\r\n"), 400);
    }

    #[test]
    fn continue_is_owed_once_and_only_while_the_body_is_awaited() {
        let (mut parser, mut buf, mut pool) = (RequestParser::new(BODY_BYTES_MAX), ByteBuf::default(), Pool::default());
        let mut put = |buf: &mut ByteBuf, bytes: &[u8]| {
            buf.spare_mut(&mut pool)[..bytes.len()].copy_from_slice(bytes);
            buf.fill(bytes.len());
        };
        put(&mut buf, b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
        let mut step = |buf: &mut ByteBuf| parser.next(buf, |_, body, _| body.to_vec()).expect("well-formed");
        assert!(matches!(step(&mut buf), Step::Incomplete { send_continue: true }));
        assert!(matches!(step(&mut buf), Step::Incomplete { send_continue: false }));
        put(&mut buf, b"ok");
        assert!(matches!(step(&mut buf), Step::Served { result, .. } if result == b"ok"));
        put(&mut buf, b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok");
        assert!(matches!(step(&mut buf), Step::Served { .. }));
    }

    #[test]
    fn random_bytes_and_mutations_never_panic() {
        let seed = b"PUT /b?c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut input = seed.to_vec();
            for _ in 0..rng.usize(1..6) {
                let at = rng.usize(0..input.len());
                input[at] = rng.u8(..);
            }
            let cut = rng.usize(1..input.len());
            feed([&input[..cut], &input[cut..]].into_iter());
        }
    }
}
