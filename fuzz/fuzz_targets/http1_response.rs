//! Fuzzes the client's side of HTTP/1.1. The parser returns the same responses whether the caller reads each response
//! as a whole or in pieces, if both ways find no error.
#![no_main]

use coordination_apiserver::http1::client::{Piece, ResponseParser};
use coordination_apiserver_fuzz::Cuts;
use libfuzzer_sys::fuzz_target;

const BODY_BYTES_MAX: usize = 1024;

/// Status and body of each response.
type Responses = Vec<(u16, Vec<u8>)>;

fn whole(pieces: Cuts<'_>) -> Option<Responses> {
    let mut parser = ResponseParser::new(BODY_BYTES_MAX);
    let (mut buf, mut seen) = (Vec::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        while let Some(response) = parser.poll_whole(&mut buf, false).ok()? {
            assert!(response.consumed <= buf.len() && response.body.len() <= BODY_BYTES_MAX);
            seen.push((response.head.status, buf[response.body].to_vec()));
            buf.drain(..response.consumed);
        }
    }
    if let Some(response) = parser.handle_eof(&buf).ok()? {
        seen.push((response.head.status, buf[response.body].to_vec()));
    }
    Some(seen)
}

fn in_pieces(pieces: Cuts<'_>) -> Option<Responses> {
    let mut parser = ResponseParser::new(BODY_BYTES_MAX);
    let mut buf = Vec::new();
    let mut seen: Responses = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            let (piece, consumed) = parser.poll_piece(&mut buf, false).ok()?;
            assert!(consumed <= buf.len());
            match &piece {
                Some(Piece::Head(head)) => seen.push((head.status, Vec::new())),
                Some(Piece::Body(range)) => {
                    seen.last_mut().expect("a body follows a head").1.extend_from_slice(&buf[range.clone()]);
                }
                Some(Piece::End) | None => {}
            }
            buf.drain(..consumed);
            if piece.is_none() {
                break;
            }
        }
    }
    parser.handle_eof(&buf).ok()?;
    Some(seen)
}

fuzz_target!(|data: &[u8]| {
    let Some((_, cuts)) = Cuts::of(data) else { return };
    let (whole, in_pieces) = (whole(cuts.clone()), in_pieces(cuts));
    // A body that is too large, or an input that ends within a response, may be noticed at different moments. So one
    // way may find an error where the other way finds none.
    if let (Some(whole), Some(in_pieces)) = (whole, in_pieces) {
        assert_eq!(whole, in_pieces);
    }
});
