//! Compresses long bodies for clients that accept gzip. Like kube-apiserver's response writer, the server uses the
//! fastest level, and only for bodies above a minimum size (apiserver `endpoints/handlers/responsewriters`).
//!
//! ```text
//!   Waiting ──longer than the minimum──► Packing ──whole body compressed──► Done
//!      └──────whole before that────────► Plain
//! ```
//!
//! Compression costs far more than the generation of the text. So one step compresses at most
//! [`GZIP_BYTES_PER_STEP`]. Later steps compress the rest.

use crate::form::Response;
use crate::http::FieldLines;
use crate::limits::{GZIP_BYTES_MIN, GZIP_BYTES_PER_STEP};
use crate::permits::Permit;
use crate::table::snapshot::Stepped;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt;
use std::io::{self, Write};

/// Whether a client accepts gzip. Like kube-apiserver, this function looks for the bare word `gzip` in the first
/// `Accept-Encoding` field. The word `gzip` with a quality value does not count.
pub(super) fn is_accepted(fields: &dyn FieldLines) -> bool {
    let mut accepted = None;
    fields.for_each(&mut |name, value| {
        if accepted.is_none() && name.eq_ignore_ascii_case(b"accept-encoding") {
            accepted = Some(value.split(|byte| *byte == b',').any(|token| token.trim_ascii() == b"gzip"));
        }
    });
    accepted.unwrap_or(false)
}

/// Adds the header fields of a compressed body to a response.
pub(super) fn mark(head: &mut Response) {
    head.fields.push(("content-encoding", "gzip".to_owned()));
    head.fields.push(("vary", "Accept-Encoding".to_owned()));
}

/// A body that is sent compressed if it is long.
#[derive(Debug)]
pub(super) struct Gzip {
    _permit: Permit,
    /// Bytes of the body that are not yet sent or compressed. While `state` is [`GzipState::Waiting`], this is the
    /// whole body so far.
    made: Vec<u8>,
    /// Number of bytes of `made` that are already compressed.
    packed: usize,
    /// Whether the caller has generated the whole body.
    is_whole: bool,
    state: GzipState,
}

#[derive(Default)]
enum GzipState {
    /// The server does not know yet whether the body is long.
    #[default]
    Waiting,
    /// The body is short, so it is sent uncompressed.
    Plain,
    Packing(Box<GzEncoder<Vec<u8>>>),
    Done,
}

impl fmt::Debug for GzipState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "Waiting",
            Self::Plain => "Plain",
            Self::Packing(_) => "Packing",
            Self::Done => "Done",
        })
    }
}

impl Gzip {
    /// Creates an empty body.
    pub(super) fn new(permit: Permit) -> Self {
        Self { _permit: permit, made: Vec::new(), packed: 0, is_whole: false, state: GzipState::Waiting }
    }

    /// Whether it is known if the body is sent compressed.
    #[must_use]
    pub(super) fn is_decided(&self) -> bool {
        !matches!(self.state, GzipState::Waiting)
    }

    /// Whether the body is compressed.
    #[must_use]
    pub(super) fn is_packed(&self) -> bool {
        matches!(self.state, GzipState::Packing(_) | GzipState::Done)
    }

    /// Returns a buffer, and the maximum length of the buffer. The caller appends more of the body to the buffer
    /// before the next [`Gzip::step`]. Returns `None` if the caller must not append more. No other code may change
    /// the buffer.
    pub(super) fn buffer_to_fill(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let bytes_max = match self.state {
            _ if self.is_whole => return None,
            GzipState::Waiting => GZIP_BYTES_MIN + 1,
            GzipState::Plain | GzipState::Packing(_) | GzipState::Done if self.packed < self.made.len() => return None,
            GzipState::Plain | GzipState::Packing(_) | GzipState::Done => {
                self.made.clear();
                self.packed = 0;
                GZIP_BYTES_PER_STEP
            }
        };
        Some((&mut self.made, bytes_max))
    }

    /// Marks the body as complete: the caller appends no more bytes.
    pub(super) fn end(&mut self) {
        self.is_whole = true;
    }

    /// Compresses some bytes if the body is long, and appends the bytes to send to `out`.
    ///
    /// # Errors
    /// Never in practice, since the encoder writes into memory.
    pub(super) fn step(&mut self, out: &mut Vec<u8>) -> io::Result<Stepped> {
        if matches!(self.state, GzipState::Waiting) {
            if self.made.len() > GZIP_BYTES_MIN {
                let encoder = GzEncoder::new(Vec::with_capacity(GZIP_BYTES_PER_STEP / 4), Compression::fast());
                self.state = GzipState::Packing(Box::new(encoder));
            } else if self.is_whole {
                self.state = GzipState::Plain;
            } else {
                return Ok(Stepped::More);
            }
        }
        let GzipState::Packing(encoder) = &mut self.state else {
            out.append(&mut self.made);
            return Ok(if self.is_whole { Stepped::Done } else { Stepped::More });
        };
        let rest = self.made.get(self.packed..).unwrap_or_default();
        let piece = rest.get(..GZIP_BYTES_PER_STEP).unwrap_or(rest);
        encoder.write_all(piece)?;
        self.packed += piece.len();
        let is_end = self.is_whole && self.packed == self.made.len();
        if is_end {
            encoder.try_finish()?;
        }
        out.append(encoder.get_mut());
        if !is_end {
            return Ok(Stepped::More);
        }
        self.state = GzipState::Done;
        self.made = Vec::new();
        self.packed = 0;
        Ok(Stepped::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permits::{Permits, Requester};
    use flate2::read::GzDecoder;
    use std::io::Read;

    struct Lines(&'static [(&'static str, &'static str)]);

    impl FieldLines for Lines {
        fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
            for (name, value) in self.0 {
                each(name.as_bytes(), value.as_bytes());
            }
        }
    }

    #[test]
    fn only_the_bare_word_asks_for_gzip() {
        for (lines, accepted) in [
            (&[("Accept-Encoding", "gzip")][..], true),
            (&[("accept-encoding", "deflate, gzip , br")], true),
            (&[("Accept", "gzip")], false),
            (&[("Accept-Encoding", "gzip;q=1.0")], false),
            (&[("Accept-Encoding", "gzip;q=0, *")], false),
            (&[("Accept-Encoding", "GZIP")], false),
            (&[("Accept-Encoding", "x-gzip,identity")], false),
            (&[("Accept-Encoding", "br"), ("Accept-Encoding", "gzip")], false),
            (&[], false),
        ] {
            assert_eq!(is_accepted(&Lines(lines)), accepted, "{lines:?}");
        }
    }

    /// Compresses a body in pieces of random size. Returns the output, and whether the output is compressed.
    fn through(body: &[u8], rng: &mut fastrand::Rng) -> (Vec<u8>, bool) {
        let permit = Permits::new(1).take(Requester::Unnamed).expect("one is free");
        let (mut gzip, mut out, mut at) = (Gzip::new(permit), Vec::new(), 0);
        for _ in 0..100_000 {
            if let Some((made, bytes_max)) = gzip.buffer_to_fill() {
                // A job also fills the buffer unevenly: a piece may be small, or its last item may exceed the
                // maximum.
                let room = bytes_max.saturating_sub(made.len()) + 100;
                let end = body.len().min(at + rng.usize(..=room));
                made.extend_from_slice(&body[at..end]);
                at = end;
                if at == body.len() {
                    gzip.end();
                }
            }
            let before = out.len();
            let stepped = gzip.step(&mut out).expect("memory takes everything");
            assert!(gzip.is_decided() || out.is_empty());
            assert!(out.len() - before <= GZIP_BYTES_MIN + 200, "a step is bounded");
            if stepped == Stepped::Done {
                return (out, gzip.is_packed());
            }
        }
        panic!("no end of {} bytes", body.len());
    }

    #[test]
    fn a_long_body_is_packed_and_a_short_one_is_not() {
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        for size in [0, 1, GZIP_BYTES_MIN, GZIP_BYTES_MIN + 1, 3 * GZIP_BYTES_MIN, 1_000_000] {
            let body: Vec<u8> = (0..size).map(|_| *rng.choice(b"abcdefgh0123").expect("a byte")).collect();
            let (out, is_packed) = through(&body, &mut rng);
            assert_eq!(is_packed, size > GZIP_BYTES_MIN, "{size}; seed {seed}");
            if is_packed {
                let mut unpacked = Vec::new();
                GzDecoder::new(out.as_slice()).read_to_end(&mut unpacked).expect("gzip");
                assert!(unpacked == body && out.len() < body.len(), "{size}; seed {seed}");
            } else {
                assert!(out == body, "{size}; seed {seed}");
            }
        }
    }
}
