//! The order in which a connection's Leases are renewed.

/// The place in a ring that comes at `turn`: every place once in a round, and neighbours in memory are no neighbours in time.
pub(super) fn place(turn: u32, ring_len: u32) -> u32 {
    let place = u64::from(turn) * stride(ring_len) % u64::from(ring_len.max(1));
    // Less than the length.
    u32::try_from(place).unwrap_or(0)
}

/// A step that has no divisor in common with the length.
fn stride(ring_len: u32) -> u64 {
    STRIDES.into_iter().find(|&stride| !u64::from(ring_len).is_multiple_of(stride)).unwrap_or(1)
}

/// Primes.
const STRIDES: [u64; 3] = [7_919, 104_729, 611_953];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_comes_once() {
        for len in [1, 2, 100, 7_919, 2 * 7_919, 15_625] {
            let mut places: Vec<u32> = (0..len).map(|turn| place(turn, len)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..len), "{len}");
        }
    }
}
