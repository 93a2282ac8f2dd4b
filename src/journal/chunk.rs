//! A chunk: one piece of a snapshot's stream of records, compressed and sealed with a checksum.
//!
//! ```text
//!   0    start of a sealed value, kind `C` (module `seal`)
//!   2    u64     number of the snapshot
//!   10   u32     index of the chunk
//!   14   u32     length of the piece before compression, in bytes
//!   18   piece, as raw deflate (RFC 1951)
//!        checksum
//! ```

use super::error::{damaged, unreadable};
use super::port::Piece;
use super::seal::{self, Kind};
use super::wire::FormError;
use crate::engine::{EngineError, SnapshotId};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Maximum size of a piece of a snapshot before compression, in bytes.
pub(super) const PIECE_BYTES: usize = 64 * 1024;
/// Maximum size of a sealed chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 512 * 1024;

/// Upper bound of the bytes that deflate, the header and the checksum add to an incompressible piece. Deflate's fixed
/// code takes up to nine bits for a byte (RFC 1951 §3.2.6).
const OVERHEAD_BYTES: usize = PIECE_BYTES / 8 + 1024;
const _: () = assert!(PIECE_BYTES + OVERHEAD_BYTES <= CHUNK_BYTES_MAX);

/// Compresses a piece of a snapshot, and seals it as a chunk.
pub(crate) fn seal_piece(piece: &Piece) -> Vec<u8> {
    encode(piece.snapshot, piece.index, piece.format, &piece.bytes)
}

/// Opens a chunk that was read from `store`.
///
/// # Errors
/// [`EngineError`] if the chunk is missing or damaged, or if the store has another chunk at this index.
pub(crate) fn open_piece(
    store: &str,
    snapshot: SnapshotId,
    index: u32,
    sealed: Option<&[u8]>,
) -> Result<Piece, EngineError> {
    let what = || format!("chunk {index} of snapshot {}", snapshot.0);
    let sealed = sealed.ok_or_else(|| damaged(store, &what(), "it is not there"))?;
    let piece = decode(sealed).map_err(|error| unreadable(store, &what(), error))?;
    if (piece.snapshot, piece.index) != (snapshot, index) {
        return Err(damaged(store, &what(), "another chunk is in its place"));
    }
    Ok(piece)
}

/// Compresses a piece of a snapshot's stream, and seals it as a chunk.
pub(super) fn encode(snapshot: SnapshotId, index: u32, format: u8, piece: &[u8]) -> Vec<u8> {
    assert!(piece.len() <= PIECE_BYTES, "a piece that is too long");
    let mut chunk = Vec::with_capacity(PIECE_BYTES + OVERHEAD_BYTES);
    seal::begin(Kind::Chunk, format, &mut chunk);
    chunk.extend_from_slice(&snapshot.0.to_le_bytes());
    chunk.extend_from_slice(&index.to_le_bytes());
    chunk.extend_from_slice(&u32::try_from(piece.len()).unwrap_or(u32::MAX).to_le_bytes());
    let status = Compress::new(Compression::fast(), false).compress_vec(piece, &mut chunk, FlushCompress::Finish);
    assert!(matches!(status, Ok(Status::StreamEnd)), "the buffer has space for the compressed piece");
    seal::seal(&mut chunk);
    chunk.shrink_to_fit();
    chunk
}

/// Decodes a sealed chunk, and returns its piece.
///
/// # Errors
/// [`FormError`]
pub(super) fn decode(sealed: &[u8]) -> Result<Piece, FormError> {
    let seal::Opened { mut reader, format, .. } = seal::open(Kind::Chunk, sealed)?;
    let snapshot = SnapshotId(reader.u64()?);
    let index = reader.u32()?;
    let too_long = reader.damaged("a piece that is too long");
    let length = usize::try_from(reader.u32()?).ok().filter(|length| *length <= PIECE_BYTES).ok_or(too_long)?;
    let damaged = reader.damaged("bytes that cannot be decompressed");
    let compressed = reader.take(reader.remaining())?;
    // The buffer is one byte larger than the expected length. So a piece that is too long is noticed.
    let mut bytes = Vec::with_capacity(length + 1);
    let status = Decompress::new(false).decompress_vec(compressed, &mut bytes, FlushDecompress::Finish);
    if !matches!(status, Ok(Status::StreamEnd)) || bytes.len() != length {
        return Err(damaged);
    }
    Ok(Piece { snapshot, index, format, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::seal::FORMAT;

    #[test]
    fn pieces_round_trip_and_no_chunk_is_too_long() {
        let mut random = fastrand::Rng::with_seed(7);
        for length in [0, 1, 1000, PIECE_BYTES] {
            let noise: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            for bytes in [noise, b"name".repeat(length / 4)] {
                let chunk = encode(SnapshotId(3), 17, FORMAT, &bytes);
                assert!(chunk.len() <= PIECE_BYTES + OVERHEAD_BYTES);
                assert_eq!(decode(&chunk), Ok(Piece { snapshot: SnapshotId(3), index: 17, format: FORMAT, bytes }));
            }
        }
    }

    #[test]
    fn a_wrong_length_is_damage() {
        for lie in [0_u32, 9, 11, u32::MAX] {
            let mut chunk = encode(SnapshotId(3), 17, FORMAT, b"ten bytes.");
            chunk.truncate(chunk.len() - seal::SEAL_BYTES);
            chunk[14..18].copy_from_slice(&lie.to_le_bytes());
            seal::seal(&mut chunk);
            assert!(matches!(decode(&chunk), Err(FormError::Damaged { .. })), "{lie}");
        }
    }
}
