//! Parses requests from the bytes that a server receives on a connection (RFC 9112 §2–§7).
//!
//! This module finds the end of each message, so it protects against request smuggling, together with
//! [`chunked`](crate::http1::chunked). If two readers could disagree where a message ends, the server refuses the
//! message and closes the connection. The bytes of a message stay in the connection's [`ByteBuf`] until the message is
//! served. The body is borrowed from this buffer, without a copy.

mod error;
mod fields;
mod line;

pub use error::RequestError;

use crate::buffer::ByteBuf;
use crate::http::{Method, RequestHead};
use crate::http1::chunked::{ChunkError, ChunkedDecoder};
use crate::limits::{HEAD_BYTES_MAX, PREFETCH_TARGET_BYTES_MAX, TARGET_BYTES_MAX};
use fields::{BodyLength, Fields};
use line::RequestLine;
use memchr::{memchr, memchr_iter};

/// Splits one connection's bytes into requests. Do not use the parser after an error, because the start of the next
/// message is unknown.
#[derive(Debug)]
pub struct RequestParser {
    /// Maximum length of an accepted request body, in bytes.
    body_bytes_max: usize,
    /// Number of bytes at the front of the buffer that were searched and contain no end of a request head.
    scanned_bytes: usize,
    /// The message at the front of the buffer, after its head was received and until it is consumed.
    awaited: Option<Awaited>,
    /// Field section of the last request head.
    fields: Fields,
}

/// A message whose head was received, and which is not consumed yet. Its body is incomplete, or the message was served
/// once and is kept to be served again ([`Bytes::Keep`]).
#[derive(Debug)]
struct Awaited {
    head_bytes: usize,
    framing: Framing,
    /// Whether the client waits for 100 (Continue), and the server has not sent it yet.
    owes_continue: bool,
}

/// Lengths of a head, in bytes.
#[derive(Clone, Copy, Debug)]
struct HeadLength {
    /// Length of the head, including the empty line that ends it.
    bytes: usize,
    /// Length of the request line, including its CRLF.
    line_bytes: usize,
}

/// How the end of a body is found (RFC 9112 §6.3).
#[derive(Debug)]
enum Framing {
    /// `Content-Length`, or 0 if that field is absent.
    Length(usize),
    /// `Transfer-Encoding: chunked`; `payload_bytes` decoded bytes follow the head in the buffer.
    Chunked { decoder: ChunkedDecoder, payload_bytes: usize },
}

/// Outcome of one parsing step.
#[derive(Debug)]
pub enum Step<R> {
    /// The message is incomplete.
    Incomplete {
        /// Whether the caller must send 100 (Continue) now. True at most once for each message.
        send_continue: bool,
    },
    /// A request was served, with this result.
    Served(R),
}

/// What the parser does with the bytes of a served request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// The bytes are consumed.
    Consume,
    /// The bytes stay, since the request waits, for example until the server knows the request's namespace. The request
    /// may then be served again. [`RequestParser::consume_kept`] consumes them.
    Keep,
}

/// The request's effect on the connection (RFC 9112 §9.3), and on the form of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// Whether more requests may follow.
    pub keep_alive: bool,
    /// Whether the client speaks HTTP/1.1, and so understands chunks.
    pub chunks: bool,
    /// Whether the method was HEAD, so that the response has no body.
    pub head_only: bool,
    /// Whether the client asks to upgrade to HTTP/2 (RFC 7540 §3.2).
    pub wants_h2c: bool,
}

impl RequestParser {
    /// Creates a parser that accepts bodies of at most `body_bytes_max` bytes.
    #[must_use]
    pub fn new(body_bytes_max: usize) -> Self {
        Self { body_bytes_max, scanned_bytes: 0, awaited: None, fields: Fields::default() }
    }

    /// Returns the maximum length of an accepted request body, in bytes.
    #[must_use]
    pub fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    /// If the first request in `buf` is whole, passes it to `serve` and consumes it. The body is borrowed from `buf`.
    ///
    /// # Errors
    /// See [`RequestError`]. A refused message is not passed to `serve`.
    pub fn next<R>(
        &mut self,
        buf: &mut ByteBuf,
        serve: impl FnOnce(&RequestHead<'_>, &[u8], Persistence) -> R,
    ) -> Result<Step<R>, RequestError> {
        self.next_or_keep(buf, |head, body, after| (serve(head, body, after), Bytes::Consume))
    }

    /// Like [`next`](Self::next), but `serve` decides whether the request is consumed or kept to be served again.
    ///
    /// # Errors
    /// See [`RequestParser::next`].
    #[inline]
    pub fn next_or_keep<R>(
        &mut self,
        buf: &mut ByteBuf,
        serve: impl FnOnce(&RequestHead<'_>, &[u8], Persistence) -> (R, Bytes),
    ) -> Result<Step<R>, RequestError> {
        let head = match &self.awaited {
            Some(awaited) => {
                if let Framing::Length(length) = awaited.framing
                    && buf.len() < awaited.head_bytes + length
                {
                    return Ok(self.incomplete());
                }
                HeadLength::of(buf.filled(), awaited.head_bytes)
            }
            None => match self.find_head(buf)? {
                Some(head) => head,
                None => return Ok(Step::Incomplete { send_continue: false }),
            },
        };

        let (line_and_section, rest) = buf.filled_mut().split_at_mut(head.bytes);
        let (line, section) = line_and_section.split_at(head.line_bytes);
        let line = RequestLine::parse(line)?;
        self.fields.read(section, line.is_1_1)?;
        let said = self.fields.said();
        let rest_bytes = rest.len();
        let mut awaited = match self.awaited.take() {
            Some(awaited) => awaited,
            None => Awaited {
                head_bytes: head.bytes,
                framing: Framing::of(said.body, self.body_bytes_max)?,
                owes_continue: said.expects_continue,
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
                    // The decoder has read all bytes in the buffer. So the decoded chunk framing behind the payload can
                    // be removed.
                    buf.remove(head.bytes + body_bytes, framed_bytes - body_bytes);
                    return Ok(self.incomplete());
                }
                (body_bytes, framed_bytes)
            }
        };

        let after = Persistence {
            keep_alive: said.keep_alive,
            chunks: line.is_1_1,
            head_only: line.method == Method::Head,
            wants_h2c: said.wants_h2c,
        };
        let request = self.fields.under(&line);
        let (result, bytes) = serve(&request, &rest[..body_bytes], after);
        match bytes {
            Bytes::Consume => {
                buf.consume(head.bytes + framed_bytes);
                self.fields.shrink();
            }
            Bytes::Keep => {
                // All chunks are decoded, so the body now has a known length.
                buf.remove(head.bytes + body_bytes, framed_bytes - body_bytes);
                let framing = Framing::Length(body_bytes);
                self.awaited = Some(Awaited { head_bytes: head.bytes, framing, owes_continue: false });
            }
        }
        Ok(Step::Served(result))
    }

    /// Consumes the request that was served and kept.
    pub fn consume_kept(&mut self, buf: &mut ByteBuf) {
        if let Some(Awaited { head_bytes, framing: Framing::Length(body_bytes), .. }) = self.awaited.take() {
            buf.consume(head_bytes + body_bytes);
            self.fields.shrink();
        }
    }

    /// Returns the head of the first message in `buf`, so that a refusal can have the form that the client asked for.
    /// Call it only if the body of this message is incomplete or was too large. After any other error, the stored
    /// fields may be those of an earlier message.
    #[must_use]
    pub fn refused_head<'b>(&'b self, buf: &'b ByteBuf) -> Option<RequestHead<'b>> {
        let line_end = memchr(b'\n', buf.filled())?;
        let line = RequestLine::parse(&buf.filled()[..=line_end]).ok()?;
        Some(self.fields.under(&line))
    }

    /// Whether a part of a message was received. This distinguishes a slow client from an idle client.
    #[must_use]
    pub fn is_within_message(&self, buf: &ByteBuf) -> bool {
        self.awaited.is_some() || !buf.is_empty()
    }

    /// Returns the target of the next request, if the request line was received up to the space after the target, and
    /// if the target is not unusually long. The target is not validated, so use it only to prefetch the named Lease
    /// into the processor's caches.
    #[must_use]
    pub fn peek_target<'b>(&self, buf: &'b ByteBuf) -> Option<&'b [u8]> {
        if self.awaited.is_some() {
            return None;
        }
        let start = buf.filled().get(..PREFETCH_TARGET_BYTES_MAX.min(buf.len()))?;
        let mut words = start.splitn(3, |byte| *byte == b' ');
        let (_method, target) = (words.next()?, words.next()?);
        words.next()?;
        Some(target)
    }

    /// Whether a head was received and its message is not consumed yet. Unless the message is [kept](Bytes::Keep), its
    /// body is incomplete.
    #[must_use]
    pub fn is_body_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Returns the lengths of the head at the front of `buf`, or `None` if the head is incomplete.
    fn find_head(&mut self, buf: &mut ByteBuf) -> Result<Option<HeadLength>, RequestError> {
        // Skips empty lines before a request line (RFC 9112 §2.2). A CR at the end of the buffer may be half of an
        // empty line, so it stays until its LF arrives.
        while let [b'\r', b'\n', ..] = buf.filled() {
            buf.consume(2);
            self.scanned_bytes = 0;
        }
        let bytes = buf.filled();
        let mut head = None;
        if self.scanned_bytes == 0 {
            head = self.repeated_head(bytes);
        }
        if head.is_none() {
            head = find_head_end(bytes, self.scanned_bytes.saturating_sub(3))?;
        }
        let head_bytes = head.map_or(bytes.len(), |head| head.bytes);
        if head_bytes > HEAD_BYTES_MAX {
            return Err(too_large(&bytes[..head_bytes]));
        }
        self.scanned_bytes = if head.is_some() { 0 } else { bytes.len() };
        Ok(head)
    }

    /// Returns the lengths of the head at the front of `bytes` if its fields equal the previous head's fields. The
    /// head then ends where those fields end.
    fn repeated_head(&self, bytes: &[u8]) -> Option<HeadLength> {
        let line_bytes = memchr(b'\n', bytes)? + 1;
        let section_bytes = self.fields.prefix_of(&bytes[line_bytes..])?;
        Some(HeadLength { bytes: line_bytes + section_bytes, line_bytes })
    }

    fn incomplete<R>(&mut self) -> Step<R> {
        let send_continue = self.awaited.as_mut().is_some_and(|a| std::mem::take(&mut a.owes_continue));
        Step::Incomplete { send_continue }
    }
}

/// Returns the lengths of the first head of `bytes`, or `None` if the head is incomplete. Searches only from position
/// `from` on. The caller has searched the bytes before `from`, and they contain no end of the head.
///
/// Readers disagree about a line that ends in a bare LF and about a bare CR (RFC 9112 §2.2). This function refuses a
/// bare LF. The line parsers refuse a bare CR.
fn find_head_end(bytes: &[u8], from: usize) -> Result<Option<HeadLength>, RequestError> {
    for at in memchr_iter(b'\n', &bytes[from..]) {
        let at = from + at;
        if at == 0 || bytes[at - 1] != b'\r' {
            return Err(RequestError::Malformed("a line ends without CR"));
        }
        if bytes[at + 1..].starts_with(b"\r\n") {
            return Ok(Some(HeadLength::of(bytes, at + 3)));
        }
    }
    Ok(None)
}

impl HeadLength {
    /// Measures the head of `bytes` bytes at the front of `filled`.
    fn of(filled: &[u8], bytes: usize) -> Self {
        Self { bytes, line_bytes: memchr(b'\n', filled).map_or(bytes, |at| at + 1) }
    }
}

impl Framing {
    fn of(body: BodyLength, body_bytes_max: usize) -> Result<Self, RequestError> {
        match body {
            BodyLength::Bytes(bytes) if bytes > body_bytes_max => Err(RequestError::BodyTooLarge),
            BodyLength::Bytes(bytes) => Ok(Self::Length(bytes)),
            BodyLength::Chunked => Ok(Self::Chunked { decoder: ChunkedDecoder::new(body_bytes_max), payload_bytes: 0 }),
        }
    }
}

/// Returns the error for an oversized head: either the target or the whole head is too long.
#[cold]
fn too_large(head: &[u8]) -> RequestError {
    let line = memchr(b'\r', head).unwrap_or(head.len());
    if line > TARGET_BYTES_MAX { RequestError::TargetTooLong } else { RequestError::HeadTooLarge }
}

#[cfg(test)]
mod tests;
