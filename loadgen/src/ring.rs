//! The order in which a connection sends requests for its share of the Leases.

/// A connection's share of the Leases, and the next Lease in this share.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Index of the first Lease of the share. Every `step`th Lease after it belongs to the share too.
    first: u32,
    step: u32,
    /// Number of Leases in the share.
    len: u32,
    /// Distance of two consecutive Leases in the rounds of [`next_taken`](Self::next_taken), in Leases of the share.
    stride: u64,
    /// Number of Leases that the current round has returned or passed over.
    turn: u32,
}

impl Ring {
    /// Creates the share of the connection with number `connection`, if `connections` connections share `leases`
    /// Leases.
    pub(crate) fn new(connection: u32, connections: u32, leases: u32) -> Self {
        let len = (leases - connection).div_ceil(connections);
        Self { first: connection, step: connections, len, stride: stride(len.into()), turn: 0 }
    }

    /// Returns the number of Leases in the share.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Starts a new round at the first Lease of the share.
    pub(crate) fn restart(&mut self) {
        self.turn = 0;
    }

    /// Takes the first turn of the round for a request that is not about a single Lease, such as the deletion of all.
    /// Returns false if a turn of this round was taken before: a connection sends only one such request in a round.
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

    /// Returns the next Lease that `begin` accepts, in endless rounds over the share. A round has every Lease once.
    /// Consecutive Leases of a round are far apart in the share. Returns `None` if `begin` accepts none of the next
    /// [`PASSED_OVER_MAX`] Leases.
    pub(crate) fn next_taken(&mut self, mut begin: impl FnMut(u32) -> bool) -> Option<u32> {
        for _ in 0..self.len.min(PASSED_OVER_MAX) {
            let place = u64::from(self.turn) * self.stride % u64::from(self.len);
            // `place` is less than `len`, so it fits into a `u32`.
            let lease = self.first + u32::try_from(place).unwrap_or(0) * self.step;
            self.turn = (self.turn + 1) % self.len;
            if begin(lease) {
                return Some(lease);
            }
        }
        None
    }
}

/// Returns a stride of about 61.8 % of the length (the golden section) that has no common divisor with the length. So a
/// round has every Lease once, and Leases of a few consecutive turns are far apart.
fn stride(len: u64) -> u64 {
    let golden = (len * 618 / 1_000).max(1);
    (golden..).find(|&stride| common_divisor(stride, len) == 1).unwrap_or(1)
}

/// Returns the greatest common divisor of two numbers.
fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

/// Maximum number of Leases that are tried in search of a Lease without a request in flight.
const PASSED_OVER_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_every_lease_once_and_no_neighbours_in_turn() {
        for len in [1, 2, 100, 1_320, 3_960, 7_918, 7_919, 7_920, 15_625] {
            let mut ring = Ring::new(0, 1, len);
            let mut leases: Vec<u32> = (0..len).filter_map(|_| ring.next_taken(|_| true)).collect();
            let is_near = |pair: &[u32]| {
                let distance = pair[0].abs_diff(pair[1]);
                distance.min(len - distance) <= len / 4
            };
            assert!(len < 100 || !leases.windows(2).any(is_near), "{len}");
            leases.sort_unstable();
            assert!(leases.into_iter().eq(0..len), "{len}");
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
