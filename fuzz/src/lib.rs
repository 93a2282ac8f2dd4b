//! Code that the fuzz targets share: it cuts the input of a target into pieces of random lengths. The last bytes of the
//! input are the seed, so the same input always has the same pieces.

/// Cuts an input into pieces, as a network might. The last four bytes of the data seed the random lengths of pieces.
#[derive(Clone, Debug)]
pub struct Cuts<'i> {
    rest: &'i [u8],
    state: u32,
}

impl<'i> Cuts<'i> {
    /// Returns the input without its seed, and the iterator of its pieces. Returns `None` if the data is shorter than
    /// the seed.
    #[must_use]
    pub fn of(data: &'i [u8]) -> Option<(&'i [u8], Self)> {
        let (input, seed) = data.split_last_chunk::<4>()?;
        Some((input, Self { rest: input, state: u32::from_le_bytes(*seed) | 1 }))
    }

    /// Returns the next random number.
    pub fn number(&mut self) -> u32 {
        // Marsaglia's xorshift.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        self.state
    }
}

impl<'i> Iterator for Cuts<'i> {
    type Item = &'i [u8];

    fn next(&mut self) -> Option<&'i [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        // Most pieces have a few bytes. Some pieces have many.
        let number = self.number();
        let length = 1 + (number >> 8) as usize % (1 << (number % 12));
        let (piece, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        Some(piece)
    }
}
