//! The order in which a connection sends requests for its share of the Leases.

/// A connection's share of the Leases, and the next Lease in this share.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Index of the first Lease of the share. Every `step`th Lease after it belongs to the share too.
    first: u32,
    step: u32,
    /// Number of Leases in the share.
    len: u32,
    /// Number of Leases that the current round has returned or passed over.
    turn: u32,
}

impl Ring {
    /// Creates the share of the connection with number `connection`, if `connections` connections share `leases`
    /// Leases.
    pub(crate) fn new(connection: u32, connections: u32, leases: u32) -> Self {
        Self { first: connection, step: connections, len: (leases - connection).div_ceil(connections), turn: 0 }
    }

    /// Returns the number of Leases in the share.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Starts a new round at the first Lease of the share.
    pub(crate) fn restart(&mut self) {
        self.turn = 0;
    }

    /// Takes the first turn of the round, for a request that is not about a single Lease. A connection sends only one
    /// such request in a round. Returns false if a turn of this round was taken before.
    pub(crate) fn take_first_turn(&mut self) -> bool {
        std::mem::replace(&mut self.turn, 1) == 0
    }

    /// Returns the Lease that [`next_once`](Self::next_once) returns next; `None` after the last.
    pub(crate) fn peek(&self) -> Option<u32> {
        (self.turn < self.len).then(|| self.first + self.turn * self.step)
    }

    /// Returns the next Lease of the share. Each Lease comes once, in order; `None` after the last.
    pub(crate) fn next_once(&mut self) -> Option<u32> {
        let lease = self.peek()?;
        self.turn += 1;
        Some(lease)
    }

    /// Returns the next Lease that `begin` accepts, in endless rounds over the share. At most [`PASSED_OVER_MAX`] are
    /// tried.
    pub(crate) fn next_taken(&mut self, mut begin: impl FnMut(u32) -> bool) -> Option<u32> {
        for _ in 0..self.len.min(PASSED_OVER_MAX) {
            let lease = self.first + place(self.turn, self.len) * self.step;
            self.turn = (self.turn + 1) % self.len;
            if begin(lease) {
                return Some(lease);
            }
        }
        None
    }
}

/// Returns the `turn`th place of a round over a ring of `ring_len` places. A round has every place once. For most
/// lengths, consecutive places are far apart, so that consecutive requests are not for neighbouring Leases.
fn place(turn: u32, ring_len: u32) -> u32 {
    let place = u64::from(turn) * stride(ring_len) % u64::from(ring_len.max(1));
    // The place is less than the length.
    u32::try_from(place).unwrap_or(0)
}

/// Returns a step that has no common divisor with the length of the ring.
fn stride(ring_len: u32) -> u64 {
    STRIDES.into_iter().find(|&stride| !u64::from(ring_len).is_multiple_of(stride)).unwrap_or(1)
}

/// Possible steps of a round, which are prime numbers.
const STRIDES: [u64; 3] = [7_919, 104_729, 611_953];
/// Maximum number of Leases that are tried in search of a Lease without a request in flight.
const PASSED_OVER_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_visits_every_place_once() {
        for len in [1, 2, 100, 7_919, 2 * 7_919, 15_625] {
            let mut places: Vec<u32> = (0..len).map(|turn| place(turn, len)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..len), "{len}");
        }
    }

    #[test]
    fn connections_together_cover_every_lease_once() {
        for connections in 1..=10 {
            let mut rings: Vec<Ring> = (0..connections).map(|index| Ring::new(index, connections, 10)).collect();
            let all = |leases: Vec<u32>| {
                let mut leases = leases;
                leases.sort_unstable();
                assert!(leases.into_iter().eq(0..10), "{connections}");
            };
            all(rings.iter_mut().flat_map(|ring| std::iter::from_fn(|| ring.next_once())).collect());
            let mut free = [true; 10];
            rings.iter_mut().for_each(Ring::restart);
            let mut take = |lease: u32| std::mem::replace(&mut free[lease as usize], false);
            all(rings
                .iter_mut()
                .flat_map(|ring| std::iter::from_fn(|| ring.next_taken(&mut take)).collect::<Vec<_>>())
                .collect());
        }
    }
}
