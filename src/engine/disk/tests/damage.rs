//! The file changes on the disk. The next open notices the damage, unless only unused bytes have changed. After a
//! crash, the open may instead drop a damaged last commit.

use super::*;

/// The bytes of a store, the content of the store, and its content before the last commit.
struct Sample {
    bytes: Vec<u8>,
    last: Content,
    previous: Content,
    is_clean: bool,
}

fn sample(seed: u64, is_clean: bool) -> Sample {
    let mut random = fastrand::Rng::with_seed(seed);
    let (fake, mut disk) = Fake::opened();
    let (mut last, mut previous, mut next) = (Content::default(), Content::default(), 1);
    for _ in 0..40 {
        let mut writes = random_writes(&mut random, next);
        writes.push(Write::Append(b"always".to_vec()));
        previous = last.clone();
        last.apply(&writes, &mut next);
        commit(&mut disk, writes).unwrap();
    }
    let unclean = fake.bytes();
    drop(disk);
    Sample { bytes: if is_clean { fake.bytes() } else { unclean }, last, previous, is_clean }
}

impl Sample {
    /// Returns whether the open returns an error. The test fails if the open returns wrong content.
    fn is_refused(&self, bytes: Vec<u8>, context: &str) -> bool {
        let fake = Fake::new(bytes);
        let mut disk = match Disk::attach(Arc::new(fake), "fake", Absent::Refuse, None) {
            Ok(disk) => disk,
            Err(EngineError::Damaged { .. } | EngineError::NewerFormat { .. }) => return true,
            Err(error) => panic!("{context}: {error:?}"),
        };
        let found = Content::of(&mut disk).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        // After a crash, a damaged page of the last commit looks like a page that did not reach the disk. The open then
        // returns to the previous commit.
        assert!(found == self.last || (!self.is_clean && found == self.previous), "{context}: other content");
        append(&mut disk, &[b"more"]);
        false
    }
}

#[test]
fn a_flipped_bit_is_detected_or_harmless() {
    for (seed, is_clean) in [(1, true), (2, false)] {
        let sample = sample(seed, is_clean);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut refused = 0;
        for number in 0..600 {
            let mut bytes = sample.bytes.clone();
            // The database's header is small, but has most of the fields. So every fourth flipped bit is in the header.
            let at = if number % 4 == 0 { LOG_BYTES + random.usize(..320) } else { random.usize(..bytes.len()) };
            bytes[at] ^= 1 << random.u8(..8);
            refused += u32::from(sample.is_refused(bytes, &format!("seed {seed}, byte {at}")));
        }
        // After a crash, most damage in the header belongs to the last commit. The open drops this commit and returns
        // no error, so it refuses fewer files.
        assert!(refused > if is_clean { 50 } else { 10 }, "seed {seed}: {refused}");
    }
}

#[test]
fn a_lost_page_is_detected_or_harmless() {
    for (seed, is_clean) in [(3, true), (4, false)] {
        let sample = sample(seed, is_clean);
        let mut refused = 0;
        for page in 0..sample.bytes.len() / 4096 {
            for (fill, length) in [(0, 4096), (0xff, 4096), (0, 512)] {
                let mut bytes = sample.bytes.clone();
                bytes[page * 4096..][..length].fill(fill);
                refused += u32::from(sample.is_refused(bytes, &format!("seed {seed}, page {page}, {fill}")));
            }
        }
        assert!(refused > 10, "seed {seed}: {refused}");
    }
}

#[test]
fn a_truncated_file_is_detected_or_harmless() {
    for (seed, is_clean) in [(5, true), (6, false)] {
        let sample = sample(seed, is_clean);
        let mut random = fastrand::Rng::with_seed(seed);
        for number in 0..200 {
            let mut length = random.usize(..sample.bytes.len());
            if number % 2 == 0 {
                length -= length % 4096;
            }
            sample.is_refused(sample.bytes[..length].to_vec(), &format!("seed {seed}, length {length}"));
        }
    }
}
