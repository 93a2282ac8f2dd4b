//! Content of the file after a power cut.

use super::Unsynced;
use fastrand::Rng;
use std::ops::Range;

/// Which of the unsynced changes survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerCut {
    /// All changes survive, as if only the process had been killed and the operating system had continued.
    All,
    /// All changes survive except at most one.
    AllButOne,
    /// Of each randomly chosen write, a random range of bytes survives.
    AnyBytes,
    /// Randomly chosen changes survive as a whole.
    AnyChanges,
    /// Randomly chosen sectors of each write survive, and all changes of the file's length.
    AnySectors,
    /// No change survives.
    Nothing,
    /// The first changes survive, and a part of the next change, which ends at any byte.
    Prefix,
}

impl PowerCut {
    /// Draws at random which changes survive a power cut.
    #[must_use]
    pub fn draw(random: &mut Rng) -> Self {
        let all = [
            Self::AllButOne,
            Self::AnyBytes,
            Self::AnyChanges,
            Self::AnySectors,
            Self::Nothing,
            Self::Prefix,
            Self::All,
        ];
        all[random.usize(..all.len())]
    }
}

const SECTOR_BYTES: usize = 512;

/// Builds the file as it is after a power cut.
pub(super) fn image(random: &mut Rng, how: PowerCut, durable: &[u8], unsynced: &[Unsynced]) -> Vec<u8> {
    let mut bytes = durable.to_vec();
    let chosen = random.usize(..=unsynced.len());
    for (index, change) in unsynced.iter().enumerate() {
        let survives = match how {
            PowerCut::All | PowerCut::AnySectors => true,
            PowerCut::AllButOne => index != chosen,
            PowerCut::AnyBytes | PowerCut::AnyChanges => random.bool(),
            PowerCut::Nothing => false,
            PowerCut::Prefix => index <= chosen,
        };
        match (change, how) {
            _ if !survives => {}
            (Unsynced::Bytes(offset, data), PowerCut::AnyBytes) => {
                let (one, other) = (random.usize(..=data.len()), random.usize(..=data.len()));
                part(&mut bytes, *offset, data, one.min(other)..one.max(other));
            }
            (Unsynced::Bytes(offset, data), PowerCut::AnySectors) => {
                for start in (0..data.len()).step_by(SECTOR_BYTES) {
                    if random.bool() {
                        part(&mut bytes, *offset, data, start..data.len().min(start + SECTOR_BYTES));
                    }
                }
            }
            (Unsynced::Bytes(offset, data), PowerCut::Prefix) if index == chosen => {
                part(&mut bytes, *offset, data, 0..random.usize(..=data.len()));
            }
            _ => change.apply(&mut bytes),
        }
    }
    bytes
}

fn part(bytes: &mut Vec<u8>, offset: usize, data: &[u8], place: Range<usize>) {
    if !place.is_empty() {
        Unsynced::Bytes(offset + place.start, data[place].to_vec()).apply(bytes);
    }
}
