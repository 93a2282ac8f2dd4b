//! The store on disk: commits, faults of the disk, and the lock of the folder. Most tests use a backend in memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod crash;
mod damage;
mod fake;
mod log;
mod salvage;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use self::fake::Fake;
use super::backend::BehindLog;
use super::log::LOG_BYTES;
use super::*;

/// The content of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    entries: Vec<(u64, Vec<u8>)>,
    chunks: Vec<(u64, u32, Vec<u8>)>,
    manifest: Option<Vec<u8>>,
}

impl Content {
    fn of(disk: &mut Disk) -> Result<Self, EngineError> {
        let entries = disk.entries(Position(0), usize::MAX)?;
        let mut content = Self {
            entries: entries.into_iter().map(|entry| (entry.position.0, entry.payload)).collect(),
            chunks: Vec::new(),
            manifest: disk.manifest()?,
        };
        for snapshot in disk.snapshots()? {
            // The tests that call this function use only the chunk indexes 0 to 3.
            for index in 0..4 {
                content.chunks.extend(disk.chunk(snapshot, index)?.map(|bytes| (snapshot.0, index, bytes)));
            }
        }
        Ok(content)
    }

    /// Applies the writes of a commit to this content.
    fn apply(&mut self, writes: &[Write], next: &mut u64) {
        for write in writes {
            match write {
                Write::Append(payload) => {
                    self.entries.push((*next, payload.clone()));
                    *next += 1;
                }
                Write::Truncate(last) => self.entries.retain(|(position, _)| *position > last.0),
                Write::PutChunk { snapshot, index, bytes } => {
                    self.chunks.retain(|chunk| (chunk.0, chunk.1) != (snapshot.0, *index));
                    self.chunks.push((snapshot.0, *index, bytes.clone()));
                    self.chunks.sort();
                }
                Write::DropChunks { snapshot, below } => {
                    self.chunks.retain(|chunk| chunk.0 != snapshot.0 || chunk.1 >= *below);
                }
                Write::PutManifest(bytes) => self.manifest = Some(bytes.clone()),
            }
        }
    }
}

/// Returns the random writes of one commit. `next` is the position of the next entry.
fn random_writes(random: &mut fastrand::Rng, next: u64) -> Vec<Write> {
    let mut bytes = |max: usize| -> Vec<u8> {
        let length = if random.u8(..4) == 0 { random.usize(..max) } else { random.usize(..100) };
        std::iter::repeat_with(|| random.u8(..)).take(length).collect()
    };
    let appended = [bytes(3000), bytes(9000), bytes(100)];
    let (chunk, manifest) = (bytes(30_000), bytes(500));
    let mut writes: Vec<Write> = appended.into_iter().take(random.usize(..4)).map(Write::Append).collect();
    match random.u8(..8) {
        0 => writes.push(put(random.u64(..3), random.u32(..4), &chunk)),
        1 => writes.push(Write::DropChunks { snapshot: SnapshotId(random.u64(..3)), below: random.u32(..8) }),
        2 => writes.push(Write::PutManifest(manifest)),
        3 => writes.push(Write::Truncate(Position(next.saturating_sub(random.u64(..30))))),
        _ => {}
    }
    writes
}

fn append(disk: &mut Disk, payloads: &[&[u8]]) -> Vec<u64> {
    let writes = payloads.iter().map(|payload| Write::Append(payload.to_vec())).collect();
    commit(disk, writes).unwrap().iter().map(|entry| entry.position.0).collect()
}

fn commit(disk: &mut Disk, writes: Vec<Write>) -> Result<Vec<Entry>, EngineError> {
    let mut delivered = Vec::new();
    disk.commit(writes, &mut |entry| delivered.push(entry))?;
    Ok(delivered)
}

fn entries(disk: &mut Disk) -> Vec<(u64, Vec<u8>)> {
    let entries = disk.entries(Position(0), usize::MAX).unwrap();
    entries.into_iter().map(|entry| (entry.position.0, entry.payload)).collect()
}

fn put(snapshot: u64, index: u32, bytes: &[u8]) -> Write {
    Write::PutChunk { snapshot: SnapshotId(snapshot), index, bytes: bytes.to_vec() }
}

#[test]
fn entries_are_delivered_and_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = Disk::open(folder.path()).unwrap();
    assert_eq!(disk.manifest().unwrap(), None);
    let delivered = commit(&mut disk, vec![Write::Append(b"a".to_vec()), Write::Append(Vec::new())]).unwrap();
    let expected = [(1, b"a".to_vec()), (2, Vec::new())];
    assert_eq!(delivered.into_iter().map(|entry| (entry.position.0, entry.payload)).collect::<Vec<_>>(), expected);
    drop(disk);
    let mut disk = Disk::open(folder.path()).unwrap();
    assert_eq!(entries(&mut disk), expected);
    assert_eq!(append(&mut disk, &[b"c"]), [3]);
}

#[test]
fn entries_come_in_parts_of_about_the_bytes_asked_for() {
    let mut disk = Fake::default().open();
    append(&mut disk, &[&[1; 100], &[2; 100], &[3; 300], &[4; 100]]);
    let mut read = |after, bytes_max| -> Vec<u64> {
        let entries = disk.entries(Position(after), bytes_max).unwrap();
        entries.iter().map(|entry| entry.position.0).collect()
    };
    assert_eq!(read(0, 250), [1, 2]);
    assert_eq!(read(2, 250), [3], "at least one");
    assert_eq!(read(2, 0), [3], "at least one");
    assert_eq!(read(3, 250), [4]);
    assert!(read(4, 250).is_empty());
    assert!(read(u64::MAX, 250).is_empty());
}

#[test]
fn a_position_is_never_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = Disk::open(folder.path()).unwrap();
    append(&mut disk, &[b"a", b"b", b"c"]);
    commit(&mut disk, vec![Write::Truncate(Position(2))]).unwrap();
    assert_eq!(entries(&mut disk), [(3, b"c".to_vec())]);
    commit(&mut disk, vec![Write::Truncate(Position(3))]).unwrap();
    drop(disk);
    let mut disk = Disk::open(folder.path()).unwrap();
    assert!(entries(&mut disk).is_empty());
    // One commit may append entries and truncate them.
    let writes = vec![Write::Append(b"d".to_vec()), Write::Truncate(Position(u64::MAX))];
    assert_eq!(commit(&mut disk, writes).unwrap()[0].position, Position(4));
    drop(disk);
    let mut disk = Disk::open(folder.path()).unwrap();
    assert_eq!(append(&mut disk, &[b"e"]), [5]);
}

#[test]
fn chunks_are_kept_by_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = Disk::open(folder.path()).unwrap();
    let big = vec![7; 100_000];
    commit(&mut disk, vec![put(1, 0, b"a"), put(1, 1, &big), put(u64::MAX, 0, b"z")]).unwrap();
    commit(&mut disk, vec![put(5, u32::MAX, b"m"), Write::PutManifest(b"first".to_vec())]).unwrap();
    commit(
        &mut disk,
        vec![Write::DropChunks { snapshot: SnapshotId(1), below: u32::MAX }, Write::PutManifest(b"second".to_vec())],
    )
    .unwrap();
    drop(disk);
    let mut disk = Disk::open(folder.path()).unwrap();
    assert_eq!(disk.snapshots().unwrap(), [SnapshotId(5), SnapshotId(u64::MAX)]);
    assert_eq!(disk.chunk(SnapshotId(1), 1).unwrap(), None);
    assert_eq!(disk.chunk(SnapshotId(5), u32::MAX).unwrap(), Some(b"m".to_vec()));
    assert_eq!(disk.chunk(SnapshotId(u64::MAX), 0).unwrap(), Some(b"z".to_vec()));
    assert_eq!(disk.manifest().unwrap(), Some(b"second".to_vec()));
}

#[test]
fn the_store_stays_locked_without_its_lock_file() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path()).unwrap();
    std::fs::remove_file(folder.path().join("lock")).unwrap();
    let busy = Disk::open(folder.path()).unwrap_err();
    assert!(matches!(&busy, EngineError::Busy { store, holder: None } if store.ends_with(FILE)), "{busy}");
    drop(disk);
    Disk::open(folder.path()).unwrap();
}

#[test]
fn the_folder_is_open_in_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path()).unwrap();
    let busy = Disk::open(folder.path()).unwrap_err();
    let EngineError::Busy { store, holder } = busy else { panic!("{busy}") };
    assert_eq!((store, holder), (folder.path().display().to_string(), Some(std::process::id())));
    drop(disk);
    Disk::open(folder.path()).unwrap();
}

#[test]
fn only_the_owner_reads_the_folder() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    drop(Disk::open(&folder).unwrap());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("journal.redb")), 0o600);
    assert_eq!(mode(&folder.join("lock")), 0o600);
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = |folder: &Path, expected: &str| {
        let error = Disk::open(folder).unwrap_err();
        assert!(matches!(error, EngineError::Io { .. }), "{error:?}");
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    refused(&file, &format!("cannot create {}: ", file.display()));
    refused(&file.join("below"), &format!("cannot create {}: ", file.join("below").display()));
    let taken = parent.path().join("taken");
    std::fs::create_dir_all(taken.join("journal.redb")).unwrap();
    refused(&taken, &format!("cannot open {}/journal.redb: ", taken.display()));
    if cfg!(target_os = "linux") {
        refused(Path::new("/proc/journal"), "cannot create /proc/journal: ");
        refused(Path::new("/proc/self"), "cannot open /proc/self/lock: ");
    }
}

#[test]
fn a_file_that_is_no_store_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    for (bytes, expected) in [
        (Vec::new(), "the file is empty"),
        (vec![0; 100], "the file is too short"),
        (vec![0; 1 << 20], "it is no file of redb"),
        (b"SQLite format 3\0".repeat(1000), "the file is too short"),
        (b"SQLite format 3\0".repeat(10_000), "it is no file of redb"),
        (b"redb\x1a\x0a\xa9\x0d\x0a".repeat(20_000), "it has the layout of an early build, which no release reads"),
    ] {
        std::fs::write(&path, &bytes).unwrap();
        let error = Disk::open(folder.path()).unwrap_err();
        let EngineError::Damaged { place, what } = error else { panic!("{error}") };
        assert_eq!((place, what.as_str()), (path.display().to_string(), expected));
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "the file is left as it is");
    }
}

#[test]
fn a_file_of_an_interrupted_creation_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("journal.redb.new"), [1; 10_000]).unwrap();
    append(&mut Disk::open(folder.path()).unwrap(), &[b"a"]);
    assert!(!folder.path().join("journal.redb.new").exists());
}

#[test]
fn a_newer_format_is_named() {
    let fake = Fake::default();
    drop(fake.open());
    let database = redb::Builder::new().create_with_backend(BehindLog(Guard::new(Arc::new(fake.clone())))).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("format", 7u64.to_le_bytes().as_slice()).unwrap();
    transaction.delete_table(ENTRIES).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = fake.try_open().unwrap_err();
    assert!(matches!(error, EngineError::NewerFormat { found: 7, known: 2, .. }), "{error}");
}

#[test]
fn a_newer_format_of_redb_is_named() {
    let fake = Fake::default();
    drop(fake.open());
    fake.poke(LOG_BYTES + 64, 4);
    let error = fake.try_open().unwrap_err();
    assert!(matches!(error, EngineError::Damaged { .. }), "{error}");
    fake.poke(LOG_BYTES + 192, 4);
    let error = fake.try_open().unwrap_err();
    assert!(matches!(error, EngineError::NewerFormat { found: 4, known: 3, .. }), "{error}");
    fake.poke(LOG_BYTES + 64, 2);
    fake.poke(LOG_BYTES + 192, 2);
    let error = fake.try_open().unwrap_err();
    assert!(matches!(error, EngineError::Damaged { .. }), "{error}");
}

#[test]
fn a_commit_without_space_leaves_the_store_unchanged() {
    // A commit that grows the file, splits pages, and touches all tables.
    let writes = || {
        let appended = (0..50).map(|_| Write::Append(vec![3; 900]));
        let others = [put(2, 0, &[4; 50_000]), Write::PutManifest(vec![5; 300]), Write::Truncate(Position(10))];
        appended.chain(others).collect::<Vec<_>>()
    };
    for is_marked in [true, false] {
        for allowed in 0.. {
            let (fake, mut disk) = Fake::opened();
            append(&mut disk, &[[1; 100].as_slice(); 40]);
            let before = entries(&mut disk);
            let writes = if is_marked { writes() } else { writes().into_iter().take(50).collect() };
            fake.fail_write(allowed, io::ErrorKind::StorageFull);
            let result = commit(&mut disk, writes.clone());
            let failed = fake.has_failed();
            fake.heal();
            match result {
                Ok(delivered) => {
                    assert_eq!(delivered.len(), 50);
                    assert_eq!(append(&mut disk, &[b"next"]), [91]);
                }
                Err(EngineError::NoSpace { store, .. }) => {
                    assert_eq!(store, "fake");
                    assert_eq!(entries(&mut disk), before);
                    assert_eq!(disk.chunk(SnapshotId(2), 0).unwrap(), None);
                    assert_eq!(disk.manifest().unwrap(), None);
                    assert_eq!(commit(&mut disk, writes).unwrap()[0].position, Position(41));
                }
                Err(error) => panic!("{error}"),
            }
            let expected = entries(&mut disk);
            drop(disk);
            assert_eq!(entries(&mut fake.open()), expected);
            if !failed {
                assert!(allowed > 10);
                break;
            }
        }
    }
}

#[test]
fn a_commit_stored_despite_a_write_error_is_delivered() {
    let mut found = 0;
    for allowed in 0..20 {
        for writes in [vec![Write::Append(vec![1; 10])], vec![Write::PutManifest(vec![2; 10])]] {
            let (fake, mut disk) = Fake::opened();
            append(&mut disk, &[b"a"]);
            fake.fail_after_write(allowed, io::ErrorKind::QuotaExceeded);
            let result = commit(&mut disk, writes);
            let failed = fake.has_failed();
            fake.heal();
            let is_there = disk.manifest().unwrap().is_some() || entries(&mut disk).len() == 2;
            match result {
                Ok(_) => assert!(is_there),
                Err(EngineError::NoSpace { .. }) => assert!(!is_there),
                Err(error) => panic!("{error}"),
            }
            found += u32::from(failed && is_there);
            let next = append(&mut disk, &[b"next"]);
            let expected = Content::of(&mut disk).unwrap();
            assert_eq!(expected.entries.last().unwrap().0, next[0]);
            drop(disk);
            assert_eq!(Content::of(&mut fake.open()).unwrap(), expected);
        }
    }
    assert!(found > 0, "the last write of a commit completes it");
}

#[test]
fn a_failed_sync_is_fatal() {
    for kind in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
        let (fake, mut disk) = Fake::opened();
        append(&mut disk, &[b"a"]);
        fake.fail_sync(kind);
        let syncs = fake.syncs();
        let error = commit(&mut disk, vec![Write::Append(b"b".to_vec())]).unwrap_err();
        assert!(error.to_string().starts_with("cannot sync fake: "), "{error}");
        fake.heal();
        let error = commit(&mut disk, vec![Write::Append(b"c".to_vec())]).unwrap_err();
        assert_eq!(error.to_string(), "cannot use fake: an earlier operation failed");
        assert!(disk.entries(Position(0), 1).is_err());
        drop(disk);
        assert_eq!(fake.syncs(), syncs + 1, "a failed sync is not tried again");
    }
}

/// Goal: a stop reports a failed sync, and does not repeat it. The first stop syncs the file only when redb closes the
/// database. The second stop first syncs the file for the entries of the log.
#[test]
fn a_stop_reports_a_failed_sync() {
    for expected in [Vec::new(), vec![(1, b"log".to_vec())]] {
        let (fake, mut disk) = Fake::opened();
        for (_, payload) in &expected {
            append(&mut disk, &[payload]);
        }
        fake.fail_sync(io::ErrorKind::Other);
        let syncs = fake.syncs();
        let error = disk.close().unwrap_err();
        assert!(error.to_string().starts_with("cannot sync fake: "), "{error}");
        fake.heal();
        drop(disk);
        assert_eq!(fake.syncs(), syncs + 1, "a failed sync is not tried again");
        assert_eq!(entries(&mut fake.open()), expected);
    }
}

#[test]
fn a_commit_to_a_moved_or_replaced_file_fails() {
    let replace = |folder: &Path| {
        std::fs::copy(folder.join(FILE), folder.join("backup")).unwrap();
        std::fs::rename(folder.join("backup"), folder.join(FILE)).unwrap();
    };
    let make_anew = |folder: &Path| {
        std::fs::rename(folder, folder.with_extension("old")).unwrap();
        append(&mut Disk::open(folder).unwrap(), &[b"new"]);
    };
    let delete = |folder: &Path| std::fs::remove_dir_all(folder).unwrap();
    let changes: [fn(&Path); 3] = [replace, make_anew, delete];
    for change in changes {
        // The first write goes to the log, and the second to the database.
        for write in [Write::Append(b"b".to_vec()), Write::PutManifest(b"m".to_vec())] {
            let parent = tempfile::tempdir().unwrap();
            let folder = parent.path().join("data");
            let mut disk = Disk::open(&folder).unwrap();
            append(&mut disk, &[b"a"]);
            change(&folder);
            let error = commit(&mut disk, vec![write]).unwrap_err().to_string();
            let expected = format!("cannot sync {}: somebody has moved", folder.join(FILE).display());
            assert!(error.starts_with(&expected), "{error}");
            assert!(commit(&mut disk, vec![Write::Append(b"c".to_vec())]).is_err(), "the store is unusable");
        }
    }
}

#[test]
fn a_store_that_cannot_be_synced_is_not_opened() {
    let fake = Fake::default();
    drop(fake.open());
    fake.fail_sync(io::ErrorKind::Other);
    let syncs = fake.syncs();
    let error = fake.try_open().unwrap_err();
    assert!(error.to_string().starts_with("cannot sync fake: "), "{error}");
    assert_eq!(fake.syncs(), syncs + 1, "the file is not read");
}

#[test]
fn an_empty_commit_writes_nothing() {
    let (fake, mut disk) = Fake::opened();
    let syncs = fake.syncs();
    assert!(commit(&mut disk, Vec::new()).unwrap().is_empty());
    assert_eq!(fake.syncs(), syncs);
}

impl Fake {
    /// Creates a store and opens it.
    fn opened() -> (Self, Disk) {
        let fake = Self::default();
        let disk = fake.open();
        (fake, disk)
    }

    fn open(&self) -> Disk {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<Disk, EngineError> {
        Disk::with_backend(Arc::new(self.clone()), "fake")
    }
}
