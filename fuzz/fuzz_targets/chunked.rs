//! Fuzzes the decoder of chunked bodies. It decodes the same payload from the whole input, from pieces in one buffer,
//! and from pieces in separate buffers.
#![no_main]

use coordination_apiserver::http1::chunked::{ChunkError, ChunkedDecoder};
use coordination_apiserver_fuzz::Cuts;
use libfuzzer_sys::fuzz_target;

const BODY_BYTES_MAX: usize = 1024;

/// Payload of the body, whether it is complete, and the number of consumed bytes.
type Outcome = Result<(Vec<u8>, bool, usize), ChunkError>;

fn collected<'i>(pieces: impl Iterator<Item = &'i [u8]>) -> Outcome {
    let mut decoder = ChunkedDecoder::new(BODY_BYTES_MAX);
    let (mut buf, mut payload, mut read) = (Vec::new(), 0, 0);
    for piece in pieces {
        buf.extend_from_slice(piece);
        let progress = decoder.decode(&mut buf[payload..], read - payload)?;
        payload += progress.produced;
        read += progress.consumed;
        if progress.done {
            buf.truncate(payload);
            return Ok((buf, true, read));
        }
        assert_eq!(read, buf.len(), "the decoder reads the whole buffer");
    }
    buf.truncate(payload);
    Ok((buf, false, read))
}

fn streamed(pieces: Cuts<'_>) -> Outcome {
    let mut decoder = ChunkedDecoder::new(BODY_BYTES_MAX);
    let (mut payload, mut read) = (Vec::new(), 0);
    for piece in pieces {
        let mut piece = piece.to_vec();
        let progress = decoder.decode(&mut piece, 0)?;
        payload.extend_from_slice(&piece[..progress.produced]);
        read += progress.consumed;
        if progress.done {
            return Ok((payload, true, read));
        }
    }
    Ok((payload, false, read))
}

fuzz_target!(|data: &[u8]| {
    let Some((input, cuts)) = Cuts::of(data) else { return };
    let whole = collected(std::iter::once(input));
    assert_eq!(whole, collected(cuts.clone()));
    assert_eq!(whole, streamed(cuts));
    if let Ok((payload, ..)) = whole {
        assert!(payload.len() <= BODY_BYTES_MAX);
    }
});
