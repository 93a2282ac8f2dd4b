//! The power fails at any moment. Afterwards the store has every acknowledged commit. It has every unacknowledged
//! commit completely or not at all.

use super::fake::{Change, Cut};
use super::*;

/// Returns a disk image after a power failure. The image has each unsynced change completely, in part or not at all.
fn image(random: &mut fastrand::Rng, cut: &Cut) -> Vec<u8> {
    let mut bytes = cut.synced.clone();
    let style = random.u8(..4);
    let prefix = random.usize(..=cut.unsynced.len());
    for (index, change) in cut.unsynced.iter().enumerate() {
        let survives = match style {
            // Only the first changes, the last of them incomplete.
            0 => index <= prefix,
            // All changes but one.
            1 => index != prefix,
            2 | 3 => random.bool(),
            _ => true,
        };
        if !survives {
            continue;
        }
        match change {
            Change::Bytes(offset, data) if (style == 0 && index == prefix) || (style == 3 && random.bool()) => {
                let (start, end) = (random.usize(..=data.len()), random.usize(..=data.len()));
                let (start, end) = (start.min(end), start.max(end));
                Change::Bytes(offset + start as u64, data[start..end].to_vec()).apply(&mut bytes);
            }
            change => change.apply(&mut bytes),
        }
    }
    bytes
}

fn run(seed: u64, commits: usize, images: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut fake = Fake::default();
    let mut content = Content::default();
    let mut next = 1;
    let mut disk = fake.open();
    fake.take_earlier_cuts();
    for number in 0..commits {
        let context = format!("seed {seed}, commit {number}");
        let writes = random_writes(&mut random, next);
        let (before, before_next) = (content.clone(), next);
        content.apply(&writes, &mut next);
        let delivered = commit(&mut disk, writes).unwrap();
        assert_eq!(delivered.len() as u64, next - before_next, "{context}");
        // If the power fails before the commit's last sync, the store may have the commit or not. After this sync, the
        // store must have the commit.
        let cuts = fake.take_earlier_cuts().into_iter().map(|cut| (cut, true)).chain([(fake.cut(), false)]);
        let mut survivor = None;
        for (cut, is_open) in cuts {
            for _ in 0..images {
                let bytes = image(&mut random, &cut);
                let after = Fake::new(bytes);
                let mut disk = after.try_open().unwrap_or_else(|error| panic!("{context}: {error}"));
                let found = Content::of(&mut disk).unwrap();
                let is_old = is_open && found == before;
                assert!(is_old || found == content, "{context}: neither the state before nor the one after");
                // The next entry gets the position after the last entry of the commits that the store has.
                let position = append(&mut disk, &[b"next"])[0];
                let expected = if is_old { before_next } else { next };
                // A commit can leave the content as it was, for example if it appends entries and deletes them again.
                // Then only the next position shows whether the store has the commit.
                assert!(position == expected || (before == content && position == next), "{context}");
                if survivor.is_none() && random.u8(..100) == 0 {
                    let mut content = found;
                    content.entries.push((position, b"next".to_vec()));
                    survivor = Some((after, disk, content, position + 1));
                }
            }
        }
        match survivor {
            Some(survivor) => (fake, disk, content, next) = survivor,
            None if random.u8(..30) == 0 => {
                // The power can also fail while the store closes or opens.
                fake.take_earlier_cuts();
                drop(disk);
                disk = fake.open();
                for cut in fake.take_earlier_cuts() {
                    let after = Fake::new(image(&mut random, &cut));
                    assert_eq!(Content::of(&mut after.open()).unwrap(), content, "{context}");
                }
            }
            None => {}
        }
        fake.take_earlier_cuts();
    }
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    for seed in 0..5 {
        run(seed, 40, 4);
    }
}

#[test]
fn a_power_cut_in_a_creation_leaves_a_store_or_none() {
    let mut random = fastrand::Rng::with_seed(1);
    let fake = Fake::default();
    drop(fake.open());
    for cut in fake.take_earlier_cuts() {
        for _ in 0..50 {
            let after = Fake::new(image(&mut random, &cut));
            let mut disk = after.open();
            assert_eq!(Content::of(&mut disk).unwrap(), Content::default());
            assert_eq!(append(&mut disk, &[b"a"]), [1]);
            drop(disk);
            assert_eq!(entries(&mut after.open()), [(1, b"a".to_vec())]);
        }
    }
}
