//! HTTP/1.1 with pipelined requests. The server answers in the order of the requests (RFC 9112 §9.3.2). So a response
//! belongs to the oldest request in flight.

use super::{BODY_BYTES_MAX, Bodies, Broken, Request, Told, Verdict};
use crate::connection::Connection;
use crate::origin::Origin;
use coordination_apiserver::http1::client::{Piece, ResponseError, ResponseParser};
use std::collections::VecDeque;

/// The requests in flight on one HTTP/1.1 connection, and the parser of their responses.
#[derive(Debug)]
pub(crate) struct Http1<T> {
    bodies: Bodies,
    parser: ResponseParser,
    pub(super) in_flight: VecDeque<T>,
    /// Status of the response whose body is being received in pieces.
    status: u16,
    /// Whether the server closes the connection after the present response.
    pub(super) going_away: bool,
}

impl<T: Copy> Http1<T> {
    pub(super) fn new(bodies: Bodies) -> Self {
        let body_bytes_max = if bodies == Bodies::Whole { BODY_BYTES_MAX } else { usize::MAX };
        let parser = ResponseParser::new(body_bytes_max);
        Self { bodies, parser, in_flight: VecDeque::new(), status: 0, going_away: false }
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = T> {
        self.in_flight.iter().copied()
    }

    pub(super) fn take_in_flight(&mut self) -> Vec<T> {
        self.in_flight.drain(..).collect()
    }

    pub(super) fn send(&mut self, origin: &Origin, request: &Request<'_>, tag: T, out: &mut Vec<u8>) -> bool {
        if self.going_away {
            return false;
        }
        for part in [request.method, " ", request.target, &origin.fields] {
            out.extend_from_slice(part.as_bytes());
        }
        if let Some(body) = request.body {
            for part in ["Content-Type: ", origin.media_type.name(), "\r\nContent-Length: "] {
                out.extend_from_slice(part.as_bytes());
            }
            out.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(request.body.unwrap_or_default());
        self.in_flight.push_back(tag);
        true
    }

    pub(super) fn receive(
        &mut self,
        conn: &mut Connection,
        mut tell: impl FnMut(T, Told<'_>) -> Verdict,
    ) -> Result<(), Broken> {
        loop {
            let goes_on = match self.bodies {
                Bodies::Whole => self.receive_whole(conn, &mut tell),
                Bodies::Streamed => self.receive_piece(conn, &mut tell),
            };
            if !goes_on? {
                return Ok(());
            }
        }
    }

    /// Parses one whole response from the input; false if the input contains no complete response.
    fn receive_whole(
        &mut self,
        conn: &mut Connection,
        tell: &mut impl FnMut(T, Told<'_>) -> Verdict,
    ) -> Result<bool, Broken> {
        let input = conn.input();
        if input.is_empty() {
            return Ok(false);
        }
        let Some(answer) = self.parser.poll_whole(input, false).map_err(malformed)? else { return Ok(false) };
        let tag = self.in_flight.pop_front().ok_or_else(|| Broken::malformed(UNASKED))?;
        let body = input.get(answer.body).unwrap_or_default();
        tell(tag, Told::Answer { status: answer.head.status, body, end: true });
        conn.consume(answer.consumed);
        self.going_away |= !answer.head.keep_alive;
        self.refuse_the_rest(tell);
        Ok(!self.going_away)
    }

    /// Parses the next piece of a response from the input; false if the input contains no piece.
    fn receive_piece(
        &mut self,
        conn: &mut Connection,
        tell: &mut impl FnMut(T, Told<'_>) -> Verdict,
    ) -> Result<bool, Broken> {
        let (piece, consumed) = self.parser.poll_piece(conn.input(), false).map_err(malformed)?;
        let Some(piece) = piece else {
            conn.consume(consumed);
            return Ok(false);
        };
        let tag = *self.in_flight.front().ok_or_else(|| Broken::malformed(UNASKED))?;
        let (body, end) = match piece {
            Piece::Head(head) => {
                self.status = head.status;
                self.going_away |= !head.keep_alive;
                (&[][..], false)
            }
            Piece::Body(place) => (conn.input().get(place).unwrap_or_default(), false),
            Piece::End => {
                self.in_flight.pop_front();
                (&[][..], true)
            }
        };
        let verdict = tell(tag, Told::Answer { status: self.status, body, end });
        conn.consume(consumed);
        if end {
            self.refuse_the_rest(tell);
        } else if verdict == Verdict::Cancel {
            // HTTP/1.1 can cancel a response only by closing the connection.
            self.in_flight.pop_front();
            self.refuse_the_rest(tell);
            return Err(Broken { kind: None, why: "an answer that is not wanted any more".to_owned() });
        }
        Ok(true)
    }

    /// Reports the remaining requests as unserved if the present response closes the connection. RFC 9112 §9.6: the
    /// server does not process requests after such a response.
    fn refuse_the_rest(&mut self, tell: &mut impl FnMut(T, Told<'_>) -> Verdict) {
        if self.going_away {
            for tag in self.in_flight.drain(..) {
                tell(tag, Told::Unserved);
            }
        }
    }
}

const UNASKED: &str = "an answer that nobody asked for";

fn malformed(error: ResponseError) -> Broken {
    Broken::malformed(error.to_string())
}
