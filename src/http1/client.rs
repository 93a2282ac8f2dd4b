//! The client's side of HTTP/1.1 (RFC 9112): a parser for the responses of one connection, with keep-alive and
//! pipelining. The load generator uses this module.
//!
//! The parser stores its position in the stream of responses. The caller owns the socket and the buffer. The caller
//! also knows which request a response belongs to: responses come in the order of the requests (RFC 9112 §9.3.2).

use super::chunked::{ChunkError, ChunkedDecoder};
use crate::http::parse_decimal;
use std::ops::Range;
use thiserror::Error;

/// Parses the responses of one connection from a buffer that the caller owns.
///
/// The caller appends received bytes, and calls one of two functions until that function needs more bytes.
/// [`Self::poll_whole`] returns a complete response. [`Self::poll_piece`] returns pieces of a response, for example of
/// a watch, which never completes. The caller then drops the reported `consumed` bytes from the front of the buffer,
/// and drops nothing before that. The two functions must not be mixed within one response. The caller calls
/// [`Self::handle_eof`] at the end of the stream.
#[derive(Debug)]
pub struct ResponseParser {
    state: ResponseState,
    body_bytes_max: usize,
}

#[derive(Debug)]
enum ResponseState {
    /// Between two responses, or in a head.
    Head,
    /// In a body.
    Body { head: ResponseHead, framing: Framing, whole: WholeProgress },
}

/// The framing of a body (RFC 9112 §6.3), and the state of reading it.
#[derive(Debug)]
enum Framing {
    Length { bytes_left: usize },
    Chunked(ChunkedDecoder),
    UntilClose,
}

/// Positions in the caller's buffer while [`ResponseParser::poll_whole`] reads a body. The buffer contains `| heads |
/// payload | gap of decoded chunk framing | unread |`. These parts begin at 0, `payload_start`, `payload_end` and
/// `read`; the unread part ends the buffer.
#[derive(Clone, Copy, Debug, Default)]
struct WholeProgress {
    payload_start: usize,
    payload_end: usize,
    read: usize,
}

/// A response without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code; never 1xx, since those are skipped.
    pub status: u16,
    /// Whether a further response can follow on this connection.
    pub keep_alive: bool,
}

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeResponse {
    /// Head of the response.
    pub head: ResponseHead,
    /// Position of the body in the buffer.
    pub body: Range<usize>,
    /// Number of bytes at the front of the buffer that belong to the response, and that the caller drops.
    pub consumed: usize,
}

/// Result of [`ResponseParser::poll_piece`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The head of a response.
    Head(ResponseHead),
    /// A part of the body, at this position in the buffer; never empty.
    Body(Range<usize>),
    /// The end of the body.
    End,
}

/// Why the stream of responses cannot be parsed. The connection is unusable afterwards.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ResponseError {
    /// The stream ended within a response.
    #[error("connection closed inside a response")]
    EndedEarly,
    /// The bytes are not a response, or are a response whose end is ambiguous.
    #[error("malformed response")]
    Malformed,
    /// The head or the body exceeds its limit.
    #[error("response too large")]
    TooLarge,
}

impl ResponseParser {
    /// Creates a parser for a new connection. A body larger than `body_bytes_max` is an error. `usize::MAX` means no
    /// limit, for a caller that does not collect bodies.
    #[must_use]
    pub fn new(body_bytes_max: usize) -> Self {
        Self { state: ResponseState::Head, body_bytes_max }
    }

    /// Returns the next response if `buf` contains the whole response, else `None`. `to_head` is whether the request
    /// was HEAD. The response to HEAD has no body, whatever its fields say. [`Self::handle_eof`] returns a response
    /// whose body ends with the connection.
    ///
    /// # Errors
    /// See [`ResponseError`].
    pub fn poll_whole(&mut self, buf: &mut [u8], to_head: bool) -> Result<Option<WholeResponse>, ResponseError> {
        if matches!(self.state, ResponseState::Head) {
            let Some(parsed) = self.parse_head(buf, to_head)? else { return Ok(None) };
            let at = parsed.consumed;
            let whole = WholeProgress { payload_start: at, payload_end: at, read: at };
            self.state = ResponseState::Body { head: parsed.head, framing: parsed.framing, whole };
        }
        let ResponseState::Body { head, framing, whole } = &mut self.state else { return Ok(None) };
        match framing {
            Framing::Length { bytes_left } => {
                let end = whole.payload_start.saturating_add(*bytes_left);
                if buf.len() < end {
                    return Ok(None);
                }
                (whole.payload_end, whole.read) = (end, end);
            }
            Framing::Chunked(decoder) => {
                let unpacked = buf.get_mut(whole.payload_end..).ok_or(ResponseError::Malformed)?;
                let progress = decoder.decode(unpacked, whole.read - whole.payload_end)?;
                whole.payload_end += progress.produced;
                whole.read += progress.consumed;
                if !progress.done {
                    return Ok(None);
                }
            }
            Framing::UntilClose => {
                if buf.len().saturating_sub(whole.payload_start) > self.body_bytes_max {
                    return Err(ResponseError::TooLarge);
                }
                return Ok(None);
            }
        }
        let body = whole.payload_start..whole.payload_end;
        let response = WholeResponse { head: head.clone(), body, consumed: whole.read };
        self.state = ResponseState::Head;
        Ok(Some(response))
    }

    /// Returns the next piece of a response, or `None` if more bytes are needed. Also returns how many bytes of `buf`
    /// the caller may drop once it has used the piece. See [`Self::poll_whole`] for `to_head`.
    ///
    /// # Errors
    /// See [`ResponseError`].
    pub fn poll_piece(&mut self, buf: &mut [u8], to_head: bool) -> Result<(Option<Piece>, usize), ResponseError> {
        let ResponseState::Body { framing, .. } = &mut self.state else {
            let Some(parsed) = self.parse_head(buf, to_head)? else { return Ok((None, 0)) };
            let head = parsed.head.clone();
            self.state =
                ResponseState::Body { head: parsed.head, framing: parsed.framing, whole: WholeProgress::default() };
            return Ok((Some(Piece::Head(head)), parsed.consumed));
        };
        let (produced, consumed) = match framing {
            Framing::Length { bytes_left: 0 } => {
                self.state = ResponseState::Head;
                return Ok((Some(Piece::End), 0));
            }
            Framing::Length { bytes_left } => {
                let take = buf.len().min(*bytes_left);
                *bytes_left -= take;
                (take, take)
            }
            Framing::Chunked(decoder) => {
                let progress = decoder.decode(buf, 0)?;
                if progress.done && progress.produced == 0 {
                    self.state = ResponseState::Head;
                    return Ok((Some(Piece::End), progress.consumed));
                }
                if progress.done {
                    // Return the payload first; the next call reports the end.
                    *framing = Framing::Length { bytes_left: 0 };
                }
                (progress.produced, progress.consumed)
            }
            Framing::UntilClose => (buf.len(), buf.len()),
        };
        let piece = if produced > 0 { Some(Piece::Body(0..produced)) } else { None };
        Ok((piece, consumed))
    }

    /// Handles the end of the stream. `buf` contains the received bytes that the caller has not dropped. If the body of
    /// a response ends with the connection, this function returns the response. For a response read with
    /// [`Self::poll_piece`], the returned body is empty.
    ///
    /// # Errors
    /// [`ResponseError::EndedEarly`] if the stream ends within a response.
    pub fn handle_eof(&mut self, buf: &[u8]) -> Result<Option<WholeResponse>, ResponseError> {
        match std::mem::replace(&mut self.state, ResponseState::Head) {
            ResponseState::Head if buf.is_empty() => Ok(None),
            ResponseState::Body { head, framing: Framing::UntilClose, whole } => {
                Ok(Some(WholeResponse { head, body: whole.payload_start..buf.len(), consumed: buf.len() }))
            }
            ResponseState::Head | ResponseState::Body { .. } => Err(ResponseError::EndedEarly),
        }
    }

    /// Parses a head, skipping any 1xx before it (RFC 9110 §15.2).
    fn parse_head(&self, buf: &[u8], to_head: bool) -> Result<Option<ParsedHead>, ResponseError> {
        let mut start = 0;
        loop {
            let rest = buf.get(start..).unwrap_or_default();
            let mut slots = [httparse::EMPTY_HEADER; HEAD_FIELDS_MAX];
            let mut response = httparse::Response::new(&mut slots);
            let head_len = match response.parse(rest) {
                Ok(httparse::Status::Complete(head_len)) => head_len,
                Ok(httparse::Status::Partial) if rest.len() > HEAD_BYTES_MAX => return Err(ResponseError::TooLarge),
                Ok(httparse::Status::Partial) => return Ok(None),
                Err(httparse::Error::TooManyHeaders) => return Err(ResponseError::TooLarge),
                Err(_) => return Err(ResponseError::Malformed),
            };
            let status = response.code.ok_or(ResponseError::Malformed)?;
            let end = start + head_len;
            match status {
                // 101 is the response to an `Upgrade` request. The callers never send such a request, so a 101 is an
                // error.
                101 => return Err(ResponseError::Malformed),
                100..=199 => start = end,
                _ => return self.parsed_head(&response, status, to_head, end).map(Some),
            }
        }
    }

    /// Determines where the body ends. Refuses a head that leaves the end of the body unclear.
    fn parsed_head(
        &self,
        response: &httparse::Response<'_, '_>,
        status: u16,
        to_head: bool,
        consumed: usize,
    ) -> Result<ParsedHead, ResponseError> {
        let mut content_length = None;
        let mut chunked = false;
        let mut keep_alive = response.version == Some(1);
        for field in response.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                let value = parse_decimal(field.value).and_then(|value| usize::try_from(value).ok());
                let value = value.ok_or(ResponseError::Malformed)?;
                if content_length.replace(value).is_some_and(|other| other != value) {
                    return Err(ResponseError::Malformed);
                }
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                // No request offers another coding in `TE`, so a response with another coding is malformed.
                if chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(ResponseError::Malformed);
                }
                chunked = true;
            } else if field.name.eq_ignore_ascii_case("connection") {
                for option in field.value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                    if option.eq_ignore_ascii_case(b"close") {
                        keep_alive = false;
                    } else if option.eq_ignore_ascii_case(b"keep-alive") {
                        keep_alive = true;
                    }
                }
            }
        }
        // The rules of RFC 9112 §6.3 for the length of a body, in the same order.
        let framing = if to_head || status == 204 || status == 304 {
            Framing::Length { bytes_left: 0 }
        } else if chunked && content_length.is_some() {
            return Err(ResponseError::Malformed);
        } else if chunked {
            Framing::Chunked(ChunkedDecoder::new(self.body_bytes_max))
        } else if let Some(bytes_left) = content_length {
            if bytes_left > self.body_bytes_max {
                return Err(ResponseError::TooLarge);
            }
            Framing::Length { bytes_left }
        } else {
            keep_alive = false;
            Framing::UntilClose
        };
        Ok(ParsedHead { head: ResponseHead { status, keep_alive }, framing, consumed })
    }
}

/// A head, the framing of its body, and the number of bytes before the body.
struct ParsedHead {
    head: ResponseHead,
    framing: Framing,
    consumed: usize,
}

impl From<ChunkError> for ResponseError {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Malformed => Self::Malformed,
            ChunkError::TooLarge => Self::TooLarge,
        }
    }
}

/// Largest head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of field lines in a head. Each line takes memory on the stack while the head is parsed.
const HEAD_FIELDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::chunked::{CRLF, LAST_CHUNK, push_chunk_head};

    /// One response as the tests look at it: status, keep-alive, body.
    type Seen = (u16, bool, Vec<u8>);

    /// Reads all responses of `source`. The bytes arrive in parts that end at `cuts`. `pieces` selects
    /// [`ResponseParser::poll_piece`]. `heads` shows for each response whether its request was HEAD. A missing element
    /// counts as false.
    fn read_cut(source: &[u8], cuts: &[usize], heads: &[bool], pieces: bool) -> Result<Vec<Seen>, ResponseError> {
        let mut parser = ResponseParser::new(100_000);
        let (mut buf, mut seen, mut start) = (Vec::new(), Vec::<Seen>::new(), 0);
        let mut ended = 0;
        let to_head = |index: usize| heads.get(index).copied().unwrap_or(false);
        for &end in cuts.iter().chain([&source.len()]) {
            buf.extend_from_slice(&source[start..end]);
            start = end;
            loop {
                let got = if pieces {
                    let (piece, consumed) = parser.poll_piece(&mut buf, to_head(ended))?;
                    match &piece {
                        Some(Piece::Head(head)) => seen.push((head.status, head.keep_alive, Vec::new())),
                        Some(Piece::Body(place)) => seen[ended].2.extend_from_slice(&buf[place.clone()]),
                        Some(Piece::End) => ended += 1,
                        None => {}
                    }
                    buf.drain(..consumed);
                    piece.is_some()
                } else if let Some(whole) = parser.poll_whole(&mut buf, to_head(seen.len()))? {
                    seen.push((whole.head.status, whole.head.keep_alive, buf[whole.body].to_vec()));
                    buf.drain(..whole.consumed);
                    true
                } else {
                    false
                };
                if !got {
                    break;
                }
            }
        }
        let last = parser.handle_eof(&buf)?;
        if let Some(last) = last.filter(|_| !pieces) {
            seen.push((last.head.status, last.head.keep_alive, buf[last.body].to_vec()));
        }
        Ok(seen)
    }

    /// Reads the source whole, byte by byte and at random cuts, with [`ResponseParser::poll_whole`] and with
    /// [`ResponseParser::poll_piece`]. Checks that all outcomes are equal.
    fn read_all_ways(source: &[u8], heads: &[bool]) -> Result<Vec<Seen>, ResponseError> {
        let outcome = read_cut(source, &[], heads, false);
        let every: Vec<usize> = (1..source.len()).collect();
        let mut rng = fastrand::Rng::with_seed(11);
        for pieces in [false, true] {
            assert_eq!(read_cut(source, &every, heads, pieces), outcome, "pieces {pieces}");
            assert_eq!(read_cut(source, &[], heads, pieces), outcome, "pieces {pieces}");
            for _ in 0..50 {
                let mut cuts: Vec<usize> = (0..rng.usize(0..8)).map(|_| rng.usize(0..=source.len())).collect();
                cuts.sort_unstable();
                assert_eq!(read_cut(source, &cuts, heads, pieces), outcome, "pieces {pieces}, cuts {cuts:?}");
            }
        }
        outcome
    }

    #[test]
    fn reads_pipelined_responses_of_every_framing() {
        let mut source = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec();
        source.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n");
        source.extend_from_slice(b"HTTP/1.1 201 Created\r\ntransfer-encoding: Chunked\r\n\r\n");
        for data in ["some ", "thing"] {
            push_chunk_head(&mut source, data.len());
            source.extend_from_slice(data.as_bytes());
            source.extend_from_slice(CRLF);
        }
        source.extend_from_slice(LAST_CHUNK);
        source.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 700\r\n\r\n"); // to a HEAD
        source.extend_from_slice(
            b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n",
        );
        source.extend_from_slice(b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n");
        source.extend_from_slice(b"HTTP/1.1 500 X\r\nConnection: foo, Close\r\n\r\nuntil the end");
        let expected: Vec<Seen> = vec![
            (200, true, b"hello".to_vec()),
            (201, true, b"some thing".to_vec()),
            (200, true, Vec::new()),
            (204, true, Vec::new()),
            (304, true, Vec::new()),
            (409, true, Vec::new()),
            (500, false, b"until the end".to_vec()),
        ];
        assert_eq!(read_all_ways(&source, &[false, false, true]), Ok(expected));
    }

    #[test]
    fn an_http_1_0_response_closes_unless_it_has_keep_alive() {
        let of = |fields: &str| {
            let source = format!("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
            read_all_ways(source.as_bytes(), &[]).expect("well-formed")[0].1
        };
        assert!(!of(""));
        assert!(of("Connection: keep-alive\r\n"));
    }

    #[test]
    fn a_response_with_ambiguous_framing_is_refused() {
        for fields in [
            "Content-Length: 3\r\nContent-Length: 4\r\n",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999999\r\n",
        ] {
            let source = format!("HTTP/1.1 200 OK\r\n{fields}\r\n0\r\n\r\n");
            assert_eq!(read_all_ways(source.as_bytes(), &[]), Err(ResponseError::Malformed), "{fields}");
        }
        assert_eq!(read_all_ways(b"SSH-2.0-x\r\n\r\n", &[]), Err(ResponseError::Malformed));
        assert_eq!(read_all_ways(b"HTTP/1.1 101 Up\r\n\r\n", &[]), Err(ResponseError::Malformed));
    }

    #[test]
    fn bounds_head_and_body() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(read_cut(long.as_bytes(), &[], &[], false), Err(ResponseError::TooLarge));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(HEAD_FIELDS_MAX + 1));
        assert_eq!(read_cut(many.as_bytes(), &[], &[], false), Err(ResponseError::TooLarge));
        let body = b"HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n";
        assert_eq!(read_all_ways(body, &[]), Err(ResponseError::TooLarge));
        let endless = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[b'x'; 100_001]].concat();
        assert_eq!(read_cut(&endless, &[], &[], false), Err(ResponseError::TooLarge));
    }

    #[test]
    fn an_end_of_input_inside_a_response_is_an_error() {
        for source in [&b"HTTP/1.1 2"[..], b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"] {
            assert_eq!(read_all_ways(source, &[]), Err(ResponseError::EndedEarly));
        }
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
        assert_eq!(read_all_ways(chunked, &[]), Err(ResponseError::EndedEarly));
        assert_eq!(read_all_ways(b"", &[]), Ok(Vec::new()));
    }

    #[test]
    fn a_watch_yields_partial_chunks_as_they_arrive() {
        let mut buf = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: a/b\r\n\r\n4\r\n{}\n{".to_vec();
        let mut parser = ResponseParser::new(usize::MAX);
        let (piece, consumed) = parser.poll_piece(&mut buf, false).expect("well-formed");
        assert_eq!(piece, Some(Piece::Head(ResponseHead { status: 200, keep_alive: true })));
        buf.drain(..consumed);
        let (piece, consumed) = parser.poll_piece(&mut buf, false).expect("well-formed");
        assert_eq!(piece, Some(Piece::Body(0..4)));
        assert_eq!(&buf[..4], b"{}\n{");
        buf.drain(..consumed);
        assert!(buf.is_empty());
    }
}
