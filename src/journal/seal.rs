//! The first and last bytes of every stored value: its kind and format, and its checksum.
//!
//! ```text
//!   0       kind: `E` an entry, `C` a chunk of a snapshot, `M` a manifest
//!   1       number of the format of this kind
//!   2       content, which depends on the kind
//!   n - 8   XXH3 of all earlier bytes, 64 bits
//! ```
//!
//! Kind, format and checksum stay at these offsets in all later formats. So a newer format is not mistaken for damage.

use super::wire::{FormError, Reader};
use twox_hash::XxHash3_64;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Entry,
    Chunk,
    Manifest,
}

impl Kind {
    const fn byte(self) -> u8 {
        match self {
            Self::Entry => b'E',
            Self::Chunk => b'C',
            Self::Manifest => b'M',
        }
    }
}

/// Number of the newest format, for every kind of value. In format 1, a manifest lacked the fields that module
/// `manifest` marks with "since format 2".
pub const FORMAT: u8 = 2;
/// Number of the oldest format that this release can write.
pub const FORMAT_WRITTEN_MIN: u8 = 2;
/// Length of the kind and the format, in bytes.
pub(super) const START_BYTES: usize = 2;
/// Length of the checksum, in bytes.
pub(super) const SEAL_BYTES: usize = 8;

/// Begins a value with its kind and its format.
pub(super) fn begin(kind: Kind, format: u8, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[kind.byte(), format]);
}

/// Appends the checksum of `value`, and returns the checksum.
pub(super) fn seal(value: &mut Vec<u8>) -> u64 {
    let checksum = hash(value);
    value.extend_from_slice(&checksum.to_le_bytes());
    checksum
}

/// A sealed value whose checksum is valid.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    /// Reader of the bytes between the format and the checksum.
    pub(super) reader: Reader<'a>,
    pub(super) checksum: u64,
    /// Number of the format, from 1 to [`FORMAT`].
    pub(super) format: u8,
}

/// Opens a sealed value.
pub(super) fn open(kind: Kind, sealed: &[u8]) -> Result<Opened<'_>, FormError> {
    let (value, checksum) =
        sealed.split_last_chunk::<SEAL_BYTES>().ok_or(FormError::Damaged { offset: 0, what: "an early end" })?;
    let checksum = u64::from_le_bytes(*checksum);
    if hash(value) != checksum {
        return Err(FormError::Damaged { offset: value.len(), what: "a wrong checksum" });
    }
    let mut reader = Reader::new(value, 0);
    if reader.u8()? != kind.byte() {
        return Err(FormError::Damaged { offset: 0, what: "a value of another kind" });
    }
    match reader.u8()? {
        format @ 1..=FORMAT => Ok(Opened { reader, checksum, format }),
        0 => Err(FormError::Damaged { offset: 1, what: "a format that no release has written" }),
        newer => Err(FormError::Newer { found: newer.into() }),
    }
}

/// Hashes bytes for checksums and chains.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(bytes: &[u8]) -> Vec<u8> {
        let mut value = bytes.to_vec();
        seal(&mut value);
        value
    }

    #[test]
    fn a_flipped_bit_and_a_missing_byte_are_damage() {
        let mut value = Vec::new();
        begin(Kind::Entry, FORMAT, &mut value);
        value.extend_from_slice(b"what is in it");
        let checksum = seal(&mut value);
        let mut opened = open(Kind::Entry, &value).expect("a sealed value");
        assert_eq!((opened.reader.take(13), opened.checksum), (Ok(&b"what is in it"[..]), checksum));
        for at in 0..value.len() {
            for bit in 0..8 {
                let mut flipped = value.clone();
                flipped[at] ^= 1 << bit;
                assert!(matches!(open(Kind::Entry, &flipped), Err(FormError::Damaged { .. })), "{at} {bit}");
            }
            assert!(matches!(open(Kind::Entry, &value[..at]), Err(FormError::Damaged { .. })), "{at}");
        }
    }

    #[test]
    fn a_later_format_is_named_and_another_kind_is_damage() {
        assert_eq!(open(Kind::Entry, &sealed(b"E\x03")).map(|_| ()), Err(FormError::Newer { found: 3 }));
        for wrong in [&b"C\x02"[..], b"E\x00", b"E", b""] {
            let value = sealed(wrong);
            let found = open(Kind::Entry, &value);
            assert!(matches!(found, Err(FormError::Damaged { .. })), "{wrong:?}");
        }
    }

    /// Stores outlive releases, so every release must compute the same checksum for the same bytes.
    #[test]
    fn the_checksum_is_xxh3() {
        assert_eq!(hash(b""), 0x2d06_8005_38d3_94c2);
    }
}
