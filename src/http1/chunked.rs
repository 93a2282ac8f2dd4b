//! The chunked transfer coding (RFC 9112 §7.1): an incremental decoder that works on slices, and a function that
//! writes chunk heads.
//!
//! The decoder stores its position in the coding, and what is left of each limit. The caller owns the buffer of
//! received bytes, which may end anywhere in the coding. The decoder moves the payload to the front of this buffer.
//!
//! The decoder refuses every body that two readers could read differently, since such a body allows request smuggling.
//! Every line must end with CRLF. A size may contain only hexadecimal digits. CRLF must follow the data of a chunk.
//! The decoder checks the form of trailer fields and drops the fields, as RFC 9110 §6.5.1 allows.

use crate::http::is_token_byte;
use thiserror::Error;

/// Decodes one body. Do not use the decoder after an error, or after it has reported [`Progress::done`].
#[derive(Debug)]
pub struct ChunkedDecoder {
    state: State,
    /// Number of further payload bytes that the decoder accepts.
    body_bytes_left: usize,
    /// Number of further bytes that the decoder accepts in chunk extensions, over all chunks.
    extension_bytes_left: usize,
    /// Number of further bytes that the decoder accepts in the trailer section.
    trailer_bytes_left: usize,
}

/// Outcome of one call of [`ChunkedDecoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of source bytes read: all of them, unless the body is done. The bytes after the end of the body belong to
    /// the next message.
    pub consumed: usize,
    /// Number of payload bytes that this call put at the front of the buffer. Never more than `consumed`.
    pub produced: usize,
    /// Whether the last chunk and the trailer section were read.
    pub done: bool,
}

/// Why a body cannot be decoded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ChunkError {
    /// The coding is malformed: respond 400 and close, since the start of the next message is unknown.
    #[error("malformed chunked body")]
    Malformed,
    /// The payload exceeds the limit: respond 413 and close.
    #[error("chunked body too large")]
    TooLarge,
}

/// Position in the coding. A chunk is `size [BWS ; extension] CR LF data CR LF`. The chunk of size 0 has no data.
/// After it come trailer lines, `name : value CR LF`, and an empty line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Within the digits of the size; `digits` is the number of digits read.
    Size { size: usize, digits: u8 },
    /// In the blanks between the size and the semicolon.
    SizeBlank { size: usize },
    /// In an extension, up to its CR.
    Extension { size: usize },
    /// At the LF that ends the size's line.
    SizeLf { size: usize },
    /// In the data, with `bytes_left` bytes missing.
    Data { bytes_left: usize },
    /// At the CR after the data.
    DataCr,
    /// At the LF after the data.
    DataLf,
    /// At the start of a trailer line.
    TrailerStart,
    /// In the name of a trailer field.
    TrailerName,
    /// In the value of a trailer field.
    TrailerValue,
    /// At the LF of a trailer field.
    TrailerLf,
    /// At the LF of the empty line that ends the body.
    EndLf,
    /// Past the body.
    Done,
}

impl ChunkedDecoder {
    /// Creates a decoder for one body of at most `body_bytes_max` payload bytes. `usize::MAX` means no limit, for a
    /// caller that does not collect the body.
    #[must_use]
    pub fn new(body_bytes_max: usize) -> Self {
        Self {
            state: State::Size { size: 0, digits: 0 },
            body_bytes_left: body_bytes_max,
            extension_bytes_left: EXTENSION_BYTES_MAX,
            trailer_bytes_left: TRAILER_BYTES_MAX,
        }
    }

    /// Decodes `buf` from position `gap` on, and moves the payload to the front. Earlier calls have freed the bytes
    /// before `gap`.
    ///
    /// ```text
    ///   before   | gap bytes, free | 5 CRLF h e l l o CRLF 3 CRLF w o |
    ///            ^ 0               ^ gap                              ^ buf.len()
    ///
    ///   after    | h e l l o w o | free: produced .. gap + consumed   |
    ///            ^ 0             ^ produced                           ^ gap + consumed
    /// ```
    ///
    /// A caller that collects the body passes the buffer from the end of the collected payload on. The gap of the next
    /// call is then `gap + consumed - produced`, or 0 if the caller removes the gap. A caller that does not collect
    /// the body passes gap 0 and takes `buf[..produced]`. An incomplete body is no error: `done` is false, and the
    /// next call continues.
    ///
    /// # Errors
    /// See [`ChunkError`]. The contents of `buf` are then unspecified.
    pub fn decode(&mut self, buf: &mut [u8], gap: usize) -> Result<Progress, ChunkError> {
        let mut read = gap;
        let mut write = 0;
        while self.state != State::Done {
            if let State::Data { bytes_left } = self.state {
                let take = bytes_left.min(buf.len().saturating_sub(read));
                if write != read {
                    buf.copy_within(read..read + take, write);
                }
                read += take;
                write += take;
                if take < bytes_left {
                    self.state = State::Data { bytes_left: bytes_left - take };
                    break;
                }
                self.state = State::DataCr;
            }
            let Some(&byte) = buf.get(read) else { break };
            read += 1;
            self.state = self.next_state(byte)?;
        }
        Ok(Progress { consumed: read - gap, produced: write, done: self.state == State::Done })
    }

    /// Returns the decoder's state after one byte that is not data of a chunk.
    fn next_state(&mut self, byte: u8) -> Result<State, ChunkError> {
        let malformed = Err(ChunkError::Malformed);
        match (self.state, byte) {
            (State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == SIZE_DIGITS_MAX {
                    return malformed;
                }
                let size = size.checked_mul(16).and_then(|s| s.checked_add(hex_value(byte)));
                Ok(State::Size { size: size.ok_or(ChunkError::TooLarge)?, digits: digits + 1 })
            }
            (State::Size { digits: 0, .. }, _) => malformed,
            (State::Size { size, .. } | State::SizeBlank { size } | State::Extension { size }, b'\r') => {
                Ok(State::SizeLf { size })
            }
            (State::Size { size, .. } | State::SizeBlank { size }, b' ' | b'\t') => {
                take_one(&mut self.extension_bytes_left)?;
                Ok(State::SizeBlank { size })
            }
            (State::Size { size, .. } | State::SizeBlank { size }, b';') => {
                take_one(&mut self.extension_bytes_left)?;
                Ok(State::Extension { size })
            }
            (State::Extension { .. }, _) if is_field_byte(byte) => {
                take_one(&mut self.extension_bytes_left)?;
                Ok(self.state)
            }
            (State::SizeLf { size: 0 }, b'\n') => Ok(State::TrailerStart),
            (State::SizeLf { size }, b'\n') => {
                self.body_bytes_left = self.body_bytes_left.checked_sub(size).ok_or(ChunkError::TooLarge)?;
                Ok(State::Data { bytes_left: size })
            }
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size { size: 0, digits: 0 }),
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerName, b':') => {
                take_one(&mut self.trailer_bytes_left)?;
                Ok(State::TrailerValue)
            }
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => {
                take_one(&mut self.trailer_bytes_left)?;
                Ok(State::TrailerName)
            }
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if is_field_byte(byte) => {
                take_one(&mut self.trailer_bytes_left)?;
                Ok(State::TrailerValue)
            }
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::Done),
            _ => malformed,
        }
    }
}

/// Appends the line that opens a chunk of `bytes_len` bytes. The writer puts [`CRLF`] after the data and
/// [`LAST_CHUNK`] after the last chunk. A chunk of size 0 would end the body. So for 0 this function writes nothing,
/// and the caller must omit the CRLF too.
pub fn push_chunk_head(out: &mut Vec<u8>, bytes_len: usize) {
    let digits = (usize::BITS - bytes_len.leading_zeros()).div_ceil(4);
    for digit in (0..digits).rev() {
        let nibble = (bytes_len >> (digit * 4)) & 0xf;
        out.push(HEX_DIGITS[nibble]);
    }
    if digits > 0 {
        out.extend_from_slice(CRLF);
    }
}

/// The end of every line of the coding, and of the data of a chunk.
pub const CRLF: &[u8] = b"\r\n";
/// The chunk of size 0 and an empty trailer section, which end a body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Subtracts one byte from the rest of the limit on extensions or on the trailer section.
fn take_one(bytes_left: &mut usize) -> Result<(), ChunkError> {
    *bytes_left = bytes_left.checked_sub(1).ok_or(ChunkError::Malformed)?;
    Ok(())
}

/// Returns the value of a hexadecimal digit, which the caller has checked.
fn hex_value(digit: u8) -> usize {
    usize::from(match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10),
    })
}

/// Whether `byte` may occur in a field value or an extension: HTAB, SP, VCHAR, obs-text (RFC 9110 §5.5). CR, LF and
/// NUL may not.
fn is_field_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
/// Maximum number of digits of a chunk size. 16 digits are enough for 64 bits; more digits could only be leading
/// zeros.
const SIZE_DIGITS_MAX: u8 = 16;
/// Maximum bytes of the extensions of all chunks of a body, like the limit of Go's `net/http` on chunk overhead.
const EXTENSION_BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes of the trailer section.
const TRAILER_BYTES_MAX: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `source` in pieces that end at `cuts`. Collects the payload as `ResponseParser::poll_whole` does: the
    /// payload is at the front, and the gap follows it. Returns the payload, the number of source bytes used, and
    /// whether the body is done.
    fn decode_cut(source: &[u8], cuts: &[usize], body_bytes_max: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let mut decoder = ChunkedDecoder::new(body_bytes_max);
        let mut buf: Vec<u8> = Vec::new();
        let (mut payload_len, mut gap, mut used, mut start) = (0, 0, 0, 0);
        for &end in cuts.iter().chain([&source.len()]) {
            buf.extend_from_slice(&source[start..end]);
            start = end;
            let progress = decoder.decode(&mut buf[payload_len..], gap)?;
            payload_len += progress.produced;
            gap = gap + progress.consumed - progress.produced;
            used += progress.consumed;
            if progress.done {
                buf.truncate(payload_len);
                return Ok((buf, used, true));
            }
            assert_eq!(payload_len + gap, buf.len(), "all is consumed until the body is done");
        }
        buf.truncate(payload_len);
        Ok((buf, used, false))
    }

    /// Decodes the source whole, byte by byte and at random cuts, and checks that the outcomes are equal.
    fn decode_all_ways(source: &[u8], body_bytes_max: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let whole = decode_cut(source, &[], body_bytes_max);
        let every: Vec<usize> = (1..source.len()).collect();
        assert_eq!(decode_cut(source, &every, body_bytes_max), whole);
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..50 {
            let mut cuts: Vec<usize> = (0..rng.usize(0..6)).map(|_| rng.usize(0..=source.len())).collect();
            cuts.sort_unstable();
            assert_eq!(decode_cut(source, &cuts, body_bytes_max), whole, "cuts {cuts:?}");
        }
        whole
    }

    #[test]
    fn decodes_chunks_extensions_and_trailers_and_stops_at_the_next_message() {
        let source = b"5;a=\"b c\"\r\nhello\r\n00A \t;x\r\n, world!!!\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\nGET / HTTP/1.1\r\n";
        let (payload, used, done) = decode_all_ways(source, 15).expect("well-formed");
        assert_eq!(payload, b"hello, world!!!");
        assert_eq!(&source[used..], b"GET / HTTP/1.1\r\n");
        assert!(done);
    }

    #[test]
    fn an_empty_body_is_done_at_once() {
        assert_eq!(decode_all_ways(LAST_CHUNK, 0), Ok((Vec::new(), 5, true)));
    }

    #[test]
    fn an_unfinished_body_waits_for_more() {
        for source in [&b""[..], b"5", b"5\r\nhel", b"5\r\nhello\r\n", b"0\r\n", b"0\r\nX: y\r\n", b"0\r\n\r"] {
            assert!(!decode_all_ways(source, 100).expect("well-formed so far").2, "{source:?}");
        }
    }

    #[test]
    fn ambiguous_chunked_bodies_are_refused() {
        for source in [
            &b"5\nhello\r\n0\r\n\r\n"[..],     // bare LF after the size
            b"5\r\nhello\n0\r\n\r\n",          // bare LF after the data
            b"5\r\nhello0\r\n\r\n",            // no end of data
            b"5\r\nhelloXX",                   // size and data disagree
            b"5;a\nb\r\nhello\r\n",            // LF inside an extension
            b"5;a\rb\r\nhello\r\n",            // CR inside an extension
            b"\r\nhello",                      // no size
            b"0x5\r\nhello\r\n",               // a prefix that some parsers know
            b"+5\r\nhello\r\n",                // a sign
            b" 5\r\nhello\r\n",                // leading blank
            b"5 5\r\nhello\r\n",               // blank, then no semicolon
            b"5_0\r\nhello\r\n",               // digit separator
            b"00000000000000005\r\nhello\r\n", // too many digits
            b"0\r\n\n",                        // bare LF at the end
            b"0\r\nX: a\n\r\n",                // bare LF in a trailer
            b"0\r\n folded\r\n\r\n",           // line folding
            b"0\r\nX : a\r\n\r\n",             // blank before the colon
            b"0\r\nno colon\r\n\r\n",
            b"0\r\n: no name\r\n\r\n",
            b"0\r\nX: \0\r\n\r\n",
        ] {
            assert_eq!(decode_all_ways(source, 100), Err(ChunkError::Malformed), "{}", source.escape_ascii());
        }
    }

    #[test]
    fn bounds_the_payload_over_all_chunks() {
        let source = b"5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n";
        assert!(decode_all_ways(source, 10).is_ok());
        assert_eq!(decode_all_ways(source, 9), Err(ChunkError::TooLarge));
        assert_eq!(decode_all_ways(b"ffffffffffffffff\r\n", 9), Err(ChunkError::TooLarge));
        assert!(!decode_all_ways(b"ffffffffffffffff\r\nabc", usize::MAX).expect("no bound").2);
    }

    #[test]
    fn bounds_extensions_in_all_chunks_together_and_trailers() {
        let chunk = |extension_len: usize| [b"1;", "e".repeat(extension_len - 1).as_bytes(), b"\r\nx\r\n"].concat();
        let two = |a, b| [chunk(a), chunk(b), LAST_CHUNK.to_vec()].concat();
        assert!(decode_cut(&two(8192, 8192), &[], 9).is_ok());
        assert_eq!(decode_cut(&two(8192, 8193), &[], 9), Err(ChunkError::Malformed));

        let trailers = |len: usize| [b"0\r\nX:", "v".repeat(len - 2).as_bytes(), b"\r\n\r\n"].concat();
        assert!(decode_cut(&trailers(TRAILER_BYTES_MAX), &[], 9).is_ok());
        assert_eq!(decode_cut(&trailers(TRAILER_BYTES_MAX + 1), &[], 9), Err(ChunkError::Malformed));
    }

    #[test]
    fn a_chunked_body_round_trips() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let (mut body, mut source) = (Vec::new(), Vec::new());
            for _ in 0..rng.usize(0..5) {
                let data: Vec<u8> = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
                push_chunk_head(&mut source, data.len());
                source.extend_from_slice(&data);
                source.extend_from_slice(CRLF);
                body.extend_from_slice(&data);
            }
            source.extend_from_slice(LAST_CHUNK);
            assert_eq!(decode_all_ways(&source, body.len()), Ok((body, source.len(), true)));
        }
    }

    #[test]
    fn chunk_heads_are_hexadecimal_without_leading_zeros() {
        for (bytes_len, head) in [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (0xabc, "abc\r\n"), (0, "")] {
            let mut out = Vec::new();
            push_chunk_head(&mut out, bytes_len);
            assert_eq!(out, head.as_bytes());
        }
        let mut out = Vec::new();
        push_chunk_head(&mut out, usize::MAX);
        assert_eq!(out, b"ffffffffffffffff\r\n");
    }
}
