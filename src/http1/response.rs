//! Appends response heads and chunks to the output of a server's connection (RFC 9112 §4, §7.1).

use crate::http::{Response, reason_phrase};

/// The interim response that asks the client for the body of its request (RFC 9110 §15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How the client learns where the body ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// `Content-Length`, in bytes.
    Known(usize),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The connection closes after the body, for HTTP/1.0.
    UntilClose,
}

/// Appends the status line and the fields. `date` is an IMF-fixdate (RFC 9110 §5.6.7).
pub fn push_head<B>(out: &mut Vec<u8>, response: &Response<B>, length: Length, keep_alive: bool, date: &[u8]) {
    match response.status {
        200 => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        201 => out.extend_from_slice(b"HTTP/1.1 201 Created\r\n"),
        status => {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
            out.push(b' ');
            out.extend_from_slice(reason_phrase(status).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
    out.extend_from_slice(b"Cache-Control: ");
    out.extend_from_slice(response.cache_control.as_str().as_bytes());
    if response.has_content_fields() {
        out.extend_from_slice(b"\r\nContent-Type: ");
        out.extend_from_slice(response.content_type.as_bytes());
    }
    out.extend_from_slice(b"\r\nDate: ");
    out.extend_from_slice(date);
    match length {
        Length::Known(_) if !response.has_content_fields() => {}
        Length::Known(bytes) => {
            out.extend_from_slice(b"\r\nContent-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
        }
        Length::Chunked => out.extend_from_slice(b"\r\nTransfer-Encoding: chunked"),
        Length::UntilClose => {}
    }
    for warning in &response.warnings {
        out.extend_from_slice(b"\r\nWarning: ");
        // A warning quotes what the client sent. A line break in the warning would start a new line of the head.
        out.extend(warning.bytes().filter(|b| !b.is_ascii_control()));
    }
    for (name, value) in &response.fields {
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
    }
    if response.retry_after_seconds != 0 {
        out.extend_from_slice(b"\r\nRetry-After: ");
        out.extend_from_slice(itoa::Buffer::new().format(response.retry_after_seconds).as_bytes());
    }
    if !keep_alive {
        out.extend_from_slice(b"\r\nConnection: close");
    }
    out.extend_from_slice(b"\r\n\r\n");
}

/// A chunk whose size is not known at its start. The size is written when the chunk ends.
///
/// ```text
///   0 0 0 1 a 4 f 0 CR LF | data | CR LF
///   size, 8 digits
/// ```
///
/// Leading zeros are allowed in a size (RFC 9112 §7.1: `chunk-size = 1*HEXDIG`).
#[derive(Debug)]
pub struct OpenChunk {
    data_start: usize,
}

const SIZE_DIGITS: usize = 8;

impl OpenChunk {
    /// Number of bytes of a chunk before its data.
    pub const HEAD_BYTES: usize = SIZE_DIGITS + 2;

    /// Begins a chunk at the end of `out`.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(b"00000000\r\n");
        Self { data_start: out.len() }
    }

    /// Ends the chunk. A chunk without data is removed, since it would end the body.
    pub fn end(self, out: &mut Vec<u8>) {
        let mut size = out.len() - self.data_start;
        let head_start = self.data_start - SIZE_DIGITS - 2;
        if size == 0 {
            out.truncate(head_start);
            return;
        }
        for digit in out[head_start..head_start + SIZE_DIGITS].iter_mut().rev() {
            *digit = b"0123456789abcdef"[size & 0xf];
            size >>= 4;
        }
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunked::LAST_CHUNK;
    use super::*;
    use crate::http::CacheControl;
    use crate::http1::chunked::ChunkedDecoder;

    #[test]
    fn a_response_head_has_length_warning_and_connection() {
        let mut response = Response::new(409, "application/json", ());
        response.warnings.push("299 - \"a\r\nX: y\"".into());
        let mut out = Vec::new();
        push_head(&mut out, &response, Length::Known(7), false, b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(
            String::from_utf8(out).expect("ASCII"),
            "HTTP/1.1 409 Conflict\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 7\r\nWarning: 299 - \"aX: y\"\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_304_response_head_has_no_content_fields() {
        let mut response = Response::new(304, "application/json", ());
        response.cache_control = CacheControl::Public;
        response.fields.push(("etag", "\"a\"".into()));
        let mut out = Vec::new();
        push_head(&mut out, &response, Length::Known(0), true, b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(
            String::from_utf8(out).expect("ASCII"),
            "HTTP/1.1 304 Not Modified\r\nCache-Control: public\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\netag: \"a\"\r\n\r\n"
        );
    }

    #[test]
    fn an_open_chunk_decodes_to_its_data_and_an_empty_one_vanishes() {
        let mut out = Vec::new();
        for data in [&b"hello"[..], b"", &[7; 70_000]] {
            let chunk = OpenChunk::begin(&mut out);
            out.extend_from_slice(data);
            chunk.end(&mut out);
        }
        out.extend_from_slice(LAST_CHUNK);
        let progress = ChunkedDecoder::new(usize::MAX).decode(&mut out, 0).expect("well-formed");
        assert!(progress.done);
        assert_eq!(progress.produced, 70_005);
        assert_eq!(&out[..5], b"hello");
    }
}
