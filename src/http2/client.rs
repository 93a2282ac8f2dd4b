//! The part of HTTP/2 that only a client needs: opening streams. Client and server share everything else.

use super::connection::{Connection, SendField};
use super::frame::headers::{begin_headers_into, finish_headers};
use super::streams::StreamKey;
use crate::hpack::{FieldName, Indexing};
use thiserror::Error;

/// The pseudo-header fields of a request (RFC 9113 §8.3.1).
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'r> {
    /// `:method`.
    pub method: &'r [u8],
    /// `:scheme`.
    pub scheme: &'r [u8],
    /// `:authority`.
    pub authority: &'r [u8],
    /// `:path`, with the query.
    pub path: &'r [u8],
    /// How much of the path the encoder may put in the dynamic table. Go's client puts the whole path there.
    pub path_indexing: Indexing,
}

/// Why no stream can be opened.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// The peer allows no more streams at once; a later attempt may succeed.
    #[error("the peer allows no more streams at once")]
    Concurrency,
    /// The connection is shutting down; a new connection is needed.
    #[error("the connection is shutting down")]
    GoingAway,
}

impl Connection {
    /// Sends the head of a request on a new stream.
    ///
    /// # Errors
    /// [`OpenError`] if no stream can be opened now, or ever on this connection.
    pub fn send_request(
        &mut self,
        request: &RequestLine<'_>,
        fields: &[SendField<'_>],
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<StreamKey, OpenError> {
        let key = self.open_stream(request.method == b"HEAD")?;
        let start = begin_headers_into(key.id(), end_stream, out);
        let pseudo = [
            SendField::repeated(METHOD, request.method),
            SendField::repeated(SCHEME, request.scheme),
            SendField { name: PATH, value: request.path, indexing: request.path_indexing },
            SendField::repeated(AUTHORITY, request.authority),
        ];
        self.begin_block(out);
        self.encode_fields(&pseudo, out);
        self.encode_fields(fields, out);
        finish_headers(key.id(), start, out);
        if end_stream {
            self.end_local(key);
        }
        Ok(key)
    }
}

const METHOD: FieldName<'static> = FieldName::new(b":method");
const SCHEME: FieldName<'static> = FieldName::new(b":scheme");
const PATH: FieldName<'static> = FieldName::new(b":path");
const AUTHORITY: FieldName<'static> = FieldName::new(b":authority");
