//! The Huffman code of RFC 7541 §5.2 and Appendix B.
//!
//! Decoding looks up [`FAST_BITS`] bits at a time. An entry of [`FAST`] contains the symbol whose code begins these
//! bits. If the code of the next symbol is also complete in these bits, the entry contains that symbol too. The codes
//! of letters and digits have five to eight bits, so most look-ups yield two symbols. Longer codes are rare and go
//! through [`decode_long`]. That function needs no tree, since the code is canonical: all codes of one length are
//! consecutive numbers. All tables are computed from [`BITS`] at compile time.

use super::DecodeError;

/// Decodes `src` and appends the result to `out`. After an error, the octets after the former end of `out` are
/// unspecified.
pub(super) fn decode_into(src: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    // No code is shorter than five bits. The loop writes eight octets at a time, so it needs eight more octets of
    // space.
    out.resize(start + src.len() * 8 / 5 + 8, 0);
    let written = decode_to_slice(src, out.get_mut(start..).unwrap_or_default())?;
    out.truncate(start + written);
    Ok(())
}

/// Returns the number of octets that [`encode_into`] would append.
#[inline]
pub(super) fn encoded_len(src: &[u8]) -> usize {
    let bits: usize = src.iter().map(|&octet| usize::from(CODE_BITS[usize::from(octet)])).sum();
    bits.div_ceil(8)
}

/// Encodes `src`, pads it with the first bits of EOS, and appends the result to `out`.
pub(super) fn encode_into(src: &[u8], out: &mut Vec<u8>) {
    // The lowest `bits` bits of `acc` are not written yet. They are at most 31, and a code adds at most 30, so all fit
    // into 64 bits.
    let mut acc = 0_u64;
    let mut bits = 0_u32;
    for &octet in src {
        let (code, code_bits) = CODES[usize::from(octet)];
        acc = acc << code_bits | u64::from(code);
        bits += u32::from(code_bits);
        if bits >= 32 {
            bits -= 32;
            out.extend_from_slice(&(acc >> bits).to_be_bytes()[4..]);
        }
    }
    while bits >= 8 {
        bits -= 8;
        out.push((acc >> bits & 0xff) as u8);
    }
    if bits > 0 {
        out.push(((acc << (8 - bits) | (0xff >> bits)) & 0xff) as u8);
    }
}

/// The loop of [`decode_into`]. Returns the number of octets written to `dst`.
fn decode_to_slice(src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
    let mut at = 0;
    let mut rest = src;
    let mut input = Input { acc: 0, bits: 0 };
    loop {
        let symbols = if let Some(chunk) = rest.first_chunk::<8>() {
            rest = rest.get(input.fill(*chunk)..).unwrap_or_default();
            input.look_up::<{ Input::LOOKUPS_MAX }>()
        } else {
            while input.bits <= 56
                && let Some((&octet, after)) = rest.split_first()
            {
                input.push(octet);
                rest = after;
            }
            if input.bits < FAST_BITS {
                break;
            }
            input.look_up::<1>()
        };
        if let Some(octets) = dst.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *octets = symbols.octets.to_le_bytes();
        }
        at += (symbols.bits / 8) as usize;
        if symbols.end_in_long_code && (input.bits >= CODE_BITS_MAX || rest.is_empty()) {
            let (symbol, used) = decode_long(input.acc, input.bits)?;
            if let Some(octet) = dst.get_mut(at) {
                *octet = symbol;
            }
            at += 1;
            input.take(used);
        }
    }
    // Fewer bits remain than a look-up reads. They are complete short codes, and then padding of fewer than eight ones
    // (RFC 7541 §5.2).
    loop {
        let entry = FAST[(input.filled_with_ones() >> (64 - FAST_BITS)) as usize];
        let symbol = entry.first_symbol();
        let used = u32::from(CODE_BITS[usize::from(symbol)]);
        if entry.bits == 0 || used > input.bits {
            break;
        }
        if let Some(octet) = dst.get_mut(at) {
            *octet = symbol;
        }
        at += 1;
        input.take(used);
    }
    if input.bits < 8 && input.filled_with_ones() == u64::MAX { Ok(at) } else { Err(DecodeError::HuffmanPadding) }
}

/// The next bits of a Huffman string.
/// ```text
///  acc   |<---- bits: not yet decoded ---->|<- nothing yet, or a part of the next octet ->|
///        63                                                                               0
/// ```
struct Input {
    acc: u64,
    bits: u32,
}

/// What look-ups have found.
struct Symbols {
    /// The symbols. The lowest octet is the first one.
    octets: u64,
    /// Number of bits used in `octets`: 8 for each symbol.
    bits: u32,
    /// Whether the next code is longer than [`FAST_BITS`].
    end_in_long_code: bool,
}

impl Input {
    /// Number of look-ups that are possible after [`Input::fill`]. Their symbols fit into a `u64`.
    const LOOKUPS_MAX: usize = 4;

    /// Adds as many whole octets of `chunk` as fit. Returns their number.
    #[inline]
    fn fill(&mut self, chunk: [u8; 8]) -> usize {
        self.acc |= u64::from_be_bytes(chunk) >> self.bits;
        // The quotient is at most 7, so `% 8` does not change it. But `% 8` shows the compiler that `chunk` has enough
        // octets.
        let taken = (63 - self.bits) / 8 % 8;
        self.bits += taken * 8;
        taken as usize
    }

    /// Adds an octet, for which there must be space.
    #[inline]
    fn push(&mut self, octet: u8) {
        self.acc |= u64::from(octet) << (56 - self.bits);
        self.bits += 8;
    }

    /// Takes the symbols of `N` look-ups. There must be [`FAST_BITS`] bits for each.
    #[inline]
    fn look_up<const N: usize>(&mut self) -> Symbols {
        let mut found = Symbols { octets: 0, bits: 0, end_in_long_code: false };
        // An entry without symbols takes no bits, so the next look-ups find the same entry again, and add nothing.
        for _ in 0..N {
            let entry = FAST[(self.acc >> (64 - FAST_BITS)) as usize];
            found.octets |= u64::from(entry.symbols) << found.bits;
            found.bits += u32::from(entry.symbol_bits);
            found.end_in_long_code = entry.bits == 0;
            self.take(u32::from(entry.bits));
        }
        found
    }

    #[inline]
    fn take(&mut self, bits: u32) {
        self.acc <<= bits;
        self.bits -= bits;
    }

    /// Returns `acc` with ones in place of all but its upper `bits` bits.
    #[inline]
    fn filled_with_ones(&self) -> u64 {
        self.acc | u64::MAX.checked_shr(self.bits).unwrap_or(0)
    }
}

/// Decodes the symbol at the top of `acc` if its code is longer than [`FAST_BITS`]. Returns the symbol and the length
/// of its code. The upper `bits` bits of `acc` are valid. If they are fewer than [`CODE_BITS_MAX`], they are the last
/// bits of the input.
#[cold]
fn decode_long(acc: u64, bits: u32) -> Result<(u8, u32), DecodeError> {
    for used in FAST_BITS + 1..=CODE_BITS_MAX.min(bits) {
        let row = &LENGTHS[used as usize];
        let nth = (acc >> (64 - used)).wrapping_sub(row.first_code);
        if nth < row.symbol_count {
            let at = usize::try_from(row.first_symbol + nth).unwrap_or(usize::MAX);
            let symbol = SYMBOLS.get(at).and_then(|&symbol| u8::try_from(symbol).ok());
            return symbol.map(|symbol| (symbol, used)).ok_or(DecodeError::HuffmanEos);
        }
    }
    Err(DecodeError::HuffmanPadding)
}

/// Number of bits that one look-up reads. With 12 bits, the table [`FAST`] has 16 KiB, and the codes of two common
/// letters or digits (five or six bits each) fit into one look-up.
const FAST_BITS: u32 = 12;

/// Number of bits of the longest code.
const CODE_BITS_MAX: u32 = 30;

/// One entry of [`FAST`]. All zero if the code is longer than [`FAST_BITS`].
#[derive(Clone, Copy)]
struct FastEntry {
    /// One or two symbols. The lower octet is the first symbol.
    symbols: u16,
    /// Number of bits used in `symbols`: 8 for each symbol.
    symbol_bits: u8,
    /// Total length of the codes of all symbols in the entry, in bits.
    bits: u8,
}

impl FastEntry {
    /// Returns the symbol whose code begins the looked-up bits.
    const fn first_symbol(self) -> u8 {
        self.symbols.to_le_bytes()[0]
    }
}

/// The entry for each value of the next [`FAST_BITS`] bits.
static FAST: [FastEntry; 1 << FAST_BITS] = fast_table();

/// The codes of one length.
#[derive(Clone, Copy)]
struct LengthRow {
    first_code: u64,
    /// Index in [`SYMBOLS`] of the first symbol whose code has this length.
    first_symbol: u64,
    symbol_count: u64,
}

/// The codes of each length, indexed by the length in bits.
static LENGTHS: [LengthRow; CODE_BITS_MAX as usize + 1] = length_rows();

/// All symbols, ordered by code length, then by code. 256 is EOS.
static SYMBOLS: [u16; 257] = symbols_by_code();

/// The code lengths [`BITS`] in memory. [`encoded_len`] reads fewer cache lines here than in [`CODES`].
static CODE_BITS: [u8; 257] = BITS;

#[expect(clippy::cast_possible_truncation, reason = "a symbol below 256; `try_from` is not const")]
const fn fast_table() -> [FastEntry; 1 << FAST_BITS] {
    let size = 1_usize << FAST_BITS;
    let mut single = [FastEntry { symbols: 0, symbol_bits: 0, bits: 0 }; 1 << FAST_BITS];
    let mut symbol = 0;
    while symbol < 256 {
        let (code, bits) = CODES[symbol];
        if bits as u32 <= FAST_BITS {
            let spare = FAST_BITS - bits as u32;
            let mut suffix = 0;
            while suffix < 1_usize << spare {
                single[(code as usize) << spare | suffix] = FastEntry { symbols: symbol as u16, symbol_bits: 8, bits };
                suffix += 1;
            }
        }
        symbol += 1;
    }
    // An entry has a second symbol if the whole code of that symbol is within the looked-up bits.
    let mut table = single;
    let mut index = 0;
    while index < size {
        let first = single[index];
        let next = single[(index << first.bits) & (size - 1)];
        if first.bits > 0 && next.bits > 0 && (first.bits + next.bits) as u32 <= FAST_BITS {
            let symbols = first.symbols | next.symbols << 8;
            table[index] = FastEntry { symbols, symbol_bits: 16, bits: first.bits + next.bits };
        }
        index += 1;
    }
    table
}

const fn length_rows() -> [LengthRow; CODE_BITS_MAX as usize + 1] {
    let mut rows = [LengthRow { first_code: u64::MAX, first_symbol: 0, symbol_count: 0 }; CODE_BITS_MAX as usize + 1];
    let mut symbol = 0;
    while symbol < CODES.len() {
        let (code, bits) = CODES[symbol];
        let row = &mut rows[bits as usize];
        if (code as u64) < row.first_code {
            row.first_code = code as u64;
        }
        row.symbol_count += 1;
        symbol += 1;
    }
    let mut bits = 1;
    while bits < rows.len() {
        rows[bits].first_symbol = rows[bits - 1].first_symbol + rows[bits - 1].symbol_count;
        bits += 1;
    }
    rows
}

#[expect(clippy::cast_possible_truncation, reason = "at most 257 symbols; `try_from` is not const")]
const fn symbols_by_code() -> [u16; 257] {
    let rows = length_rows();
    let mut symbols = [0; 257];
    let mut symbol = 0;
    while symbol < CODES.len() {
        let (code, bits) = CODES[symbol];
        let row = rows[bits as usize];
        symbols[(row.first_symbol + (code as u64 - row.first_code)) as usize] = symbol as u16;
        symbol += 1;
    }
    symbols
}

/// The code of each octet, then of EOS, and its length in bits. The code is in the lowest bits. All codes of one length
/// are consecutive numbers, in the order of their symbols. The first of them is the last shorter code plus one, with
/// zeros appended.
const CODES: [(u32, u8); 257] = codes();

const fn codes() -> [(u32, u8); 257] {
    let mut codes = [(0, 0); 257];
    let mut code = 0;
    let mut bits = 1;
    while bits as u32 <= CODE_BITS_MAX {
        code <<= 1;
        let mut symbol = 0;
        while symbol < codes.len() {
            if BITS[symbol] == bits {
                codes[symbol] = (code, bits);
                code += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    codes
}

/// RFC 7541 Appendix B: length of the code of each octet, then of EOS, in bits.
#[rustfmt::skip]
const BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(src: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_into(src, &mut out);
        assert_eq!(out.len(), encoded_len(src));
        out
    }

    fn decoded(src: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut out = b"before".to_vec();
        decode_into(src, &mut out)?;
        Ok(out.split_off(6))
    }

    #[test]
    fn every_octet_round_trips_alone_and_between_others() {
        for first in 0..=255 {
            assert_eq!(decoded(&encoded(&[first])), Ok(vec![first]));
            for second in 0..=255 {
                let text = [first, second, b'e', first, b'\\', second, b'-', b'0', first];
                assert_eq!(decoded(&encoded(&text)), Ok(text.to_vec()));
            }
        }
    }

    #[test]
    fn texts_of_every_length_round_trip() {
        let text = b"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0123456789?timeout=10s{}|~";
        for end in 0..=text.len() {
            assert_eq!(decoded(&encoded(&text[..end])), Ok(text[..end].to_vec()));
        }
    }

    #[test]
    fn padding_is_checked() {
        // "a" is 00011 and three bits of padding.
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        assert_eq!(decoded(&[0b0001_1110]), Err(DecodeError::HuffmanPadding));
        assert_eq!(decoded(&[0b0001_1000]), Err(DecodeError::HuffmanPadding));
        assert_eq!(decoded(&[0b0001_1111, 0xff]), Err(DecodeError::HuffmanPadding), "eight bits and more");
        assert_eq!(decoded(&[0xff]), Err(DecodeError::HuffmanPadding));
        assert_eq!(decoded(&[0xff, 0xff]), Err(DecodeError::HuffmanPadding));
        assert_eq!(decoded(&[0xff; 8]), Err(DecodeError::HuffmanEos));
        assert_eq!(decoded(&[]), Ok(Vec::new()));
    }

    #[test]
    fn eos_is_refused() {
        assert_eq!(decoded(&[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff]), Err(DecodeError::HuffmanEos));
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xfc]), Err(DecodeError::HuffmanEos));
    }

    #[test]
    fn a_long_code_cut_short_is_refused() {
        // The first 24 of the 28 bits of the code of octet 2.
        assert_eq!(decoded(&[0xff, 0xff, 0xfe]), Err(DecodeError::HuffmanPadding));
    }
}
