//! Integers with an N-bit prefix (RFC 7541 §5.1).

use super::DecodeError;

/// Maximum number of octets after the prefix. Four octets encode 28 bits, which suffice for every integer in a field
/// block.
const CONTINUATION_OCTETS_MAX: usize = 4;

/// Decodes the integer whose prefix is the bits `prefix_max` (2^N - 1) of `first`. Returns the value and the octets
/// after it.
#[inline]
pub(super) fn decode(first: u8, prefix_max: u8, rest: &[u8]) -> Result<(usize, &[u8]), DecodeError> {
    let prefix = first & prefix_max;
    if prefix < prefix_max {
        return Ok((usize::from(prefix), rest));
    }
    decode_continuation(prefix_max, rest)
}

fn decode_continuation(prefix_max: u8, rest: &[u8]) -> Result<(usize, &[u8]), DecodeError> {
    let mut value = usize::from(prefix_max);
    for (at, &octet) in rest.iter().take(CONTINUATION_OCTETS_MAX).enumerate() {
        value += usize::from(octet & 0x7f) << (7 * at);
        if octet & 0x80 == 0 {
            return Ok((value, rest.get(at + 1..).unwrap_or_default()));
        }
    }
    Err(if rest.len() < CONTINUATION_OCTETS_MAX { DecodeError::Truncated } else { DecodeError::IntegerOverflow })
}

/// Appends `value` with a prefix of N bits; `prefix_max` is 2^N - 1. `pattern` contains the bits above the prefix.
#[inline]
pub(super) fn encode_into(pattern: u8, prefix_max: u8, value: usize, out: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(small) if small < prefix_max => out.push(pattern | small),
        _ => encode_continuation(pattern, prefix_max, value, out),
    }
}

fn encode_continuation(pattern: u8, prefix_max: u8, value: usize, out: &mut Vec<u8>) {
    out.push(pattern | prefix_max);
    let mut value = value - usize::from(prefix_max);
    while value >= 0x80 {
        out.push(0x80 | low_seven_bits(value));
        value >>= 7;
    }
    out.push(low_seven_bits(value));
}

fn low_seven_bits(value: usize) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_match_the_examples_of_the_rfc() {
        // RFC 7541 C.1.1 to C.1.3
        for (value, prefix_max, octets) in [(10, 31, &[0x0a][..]), (1337, 31, &[0x1f, 0x9a, 0x0a]), (42, 255, &[0x2a])]
        {
            let mut out = Vec::new();
            encode_into(0, prefix_max, value, &mut out);
            assert_eq!(out, octets);
            assert_eq!(decode(out[0], prefix_max, &out[1..]), Ok((value, &[][..])));
        }
    }

    #[test]
    fn integers_of_every_prefix_size_round_trip() {
        for bits in 1..=8_u32 {
            let prefix_max = u8::try_from((1_u32 << bits) - 1).unwrap();
            for value in (0..600).chain([16_383, 16_384, 65_535, 1 << 20, (1 << 28) - 1]) {
                let mut out = Vec::new();
                encode_into(0, prefix_max, value, &mut out);
                out.push(0xaa);
                assert_eq!(decode(out[0], prefix_max, &out[1..]), Ok((value, &[0xaa][..])));
            }
        }
    }

    #[test]
    fn too_long_and_cut_integers_have_different_errors() {
        assert_eq!(decode(0x1f, 31, &[0xff, 0xff, 0xff, 0xff, 0x01]), Err(DecodeError::IntegerOverflow));
        assert_eq!(decode(0x1f, 31, &[0x80, 0x80, 0x80, 0x80, 0x00]), Err(DecodeError::IntegerOverflow));
        assert_eq!(decode(0x1f, 31, &[0xff, 0xff]), Err(DecodeError::Truncated));
        assert_eq!(decode(0x1f, 31, &[]), Err(DecodeError::Truncated));
    }
}
