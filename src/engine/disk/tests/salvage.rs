//! Tests of the salvage, which reads the readable content of damaged and intact files.

use super::*;
use crate::engine::disk::walk::walk;

fn content(salvage: &Salvage) -> Content {
    Content {
        entries: salvage.entries.iter().map(|entry| (entry.position.0, entry.payload.clone())).collect(),
        chunks: salvage.chunks.iter().map(|chunk| (chunk.snapshot.0, chunk.index, chunk.bytes.clone())).collect(),
        manifest: salvage.manifest.clone(),
    }
}

/// Fills a store and returns its content.
fn fill(disk: &mut Disk, seed: u64) -> Content {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut next = 1;
    let mut expected = Content::default();
    for _ in 0..30 {
        let writes = random_writes(&mut random, next);
        expected.apply(&writes, &mut next);
        commit(disk, writes).unwrap();
    }
    // Enough entries for a tree of three levels.
    let many = (0..9000).map(|number: u32| Write::Append(number.to_le_bytes().repeat(100))).collect::<Vec<_>>();
    let others = vec![Write::PutManifest(b"manifest".to_vec()), put(1, 0, &[1; 50_000]), put(1, 1, b"small")];
    for writes in [many, others] {
        expected.apply(&writes, &mut next);
        commit(disk, writes).unwrap();
    }
    expected
}

#[test]
fn a_store_in_use_is_read_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = Disk::open(folder.path()).unwrap();
    let expected = fill(&mut disk, 1);
    let path = folder.path().join("journal.redb");
    let before = std::fs::read(&path).unwrap();
    let found = salvage(&path).unwrap();
    assert_eq!(content(&found), expected);
    assert!(found.complaints.is_empty(), "{:?}", found.complaints);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "the store and its lock");
}

#[test]
fn a_walk_finds_everything_in_an_intact_store() {
    let (fake, mut disk) = Fake::opened();
    let expected = fill(&mut disk, 2);
    let unclean = fake.bytes();
    drop(disk);
    for bytes in [unclean, fake.bytes()] {
        let found = walk(&bytes);
        assert_eq!(content(&found), expected);
        assert!(found.complaints.is_empty(), "{:?}", found.complaints);
    }
}

#[test]
fn one_damaged_page_loses_few_entries() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let mut disk = Disk::open(folder.path()).unwrap();
    let expected = fill(&mut disk, 3);
    drop(disk);
    let bytes = std::fs::read(&path).unwrap();
    // `fill` wrote entries whose payload is a number, 100 times. Find the payload of number 1000, and overwrite with
    // zeros the 4 KiB page in which the payload begins.
    let needle = 1000u32.to_le_bytes().repeat(100);
    let place = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    let mut damaged = bytes;
    damaged[place / 4096 * 4096..][..4096].fill(0);
    std::fs::write(&path, &damaged).unwrap();
    assert!(matches!(Disk::open(folder.path()).unwrap_err(), EngineError::Damaged { .. }));
    let found = salvage(&path).unwrap();
    assert!(found.complaints.len() >= 2, "{:?}", found.complaints);
    let found = content(&found);
    assert_eq!((&found.manifest, &found.chunks), (&expected.manifest, &expected.chunks));
    assert!(found.entries.len() < expected.entries.len());
    assert!(found.entries.len() > expected.entries.len() - 50);
    assert!(found.entries.iter().all(|entry| expected.entries.binary_search(entry).is_ok()));
}

#[test]
fn a_walk_of_random_bytes_does_not_panic() {
    let mut random = fastrand::Rng::with_seed(4);
    let fake = Fake::default();
    fill(&mut fake.open(), 4);
    let bytes = fake.bytes();
    for _ in 0..200 {
        let mut bytes = bytes.clone();
        for _ in 0..random.usize(1..2000) {
            let at = random.usize(..bytes.len());
            bytes[at] = if random.bool() { random.u8(..) } else { 0xff };
        }
        bytes.truncate(random.usize(..bytes.len() * 2).min(bytes.len()));
        walk(&bytes);
    }
    walk(&[]);
    walk(&[1; 4096]);
    walk(&[0xff; 1 << 20]);
}

#[test]
fn salvage_of_another_file_gives_complaints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "text").unwrap();
    let found = salvage(&path).unwrap();
    assert_eq!(content(&found), Content::default());
    assert_eq!(found.complaints[0], "the file is too short");
    let error = salvage(&folder.path().join("absent")).unwrap_err();
    assert!(error.to_string().starts_with("cannot read "), "{error}");
}
