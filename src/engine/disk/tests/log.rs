//! Tests of commits that only append one entry. Such commits go to the log.

use super::fake::Change;
use super::*;

/// Appends `count` entries in one commit each, and returns their positions.
fn append_each(disk: &mut Disk, count: u64, bytes: usize) -> Vec<u64> {
    (0..count).flat_map(|number| append(disk, &[&vec![number.to_le_bytes()[0]; bytes]])).collect()
}

fn positions(disk: &mut Disk) -> Vec<u64> {
    entries(disk).into_iter().map(|(position, _)| position).collect()
}

#[test]
fn a_commit_of_one_entry_writes_and_syncs_once() {
    let (fake, mut disk) = Fake::opened();
    let (database, syncs) = (fake.bytes().split_off(LOG_BYTES), fake.syncs());
    append_each(&mut disk, 100, 24);
    assert_eq!(fake.syncs(), syncs + 100);
    assert!(fake.bytes().split_off(LOG_BYTES) == database, "the database is as it was");
}

#[test]
fn the_database_takes_in_a_full_log() {
    let (fake, mut disk) = Fake::opened();
    let expected: Vec<_> = (1..=5000).collect();
    assert_eq!(append_each(&mut disk, 5000, 60), expected);
    assert_eq!(positions(&mut disk), expected);
    assert!(disk.log.generation() > 2 && !disk.log.records().is_empty());
    // The store is opened after a crash, and then after a stop.
    assert_eq!(positions(&mut Fake::new(fake.bytes()).open()), expected);
    drop(disk);
    let mut disk = fake.open();
    assert!(disk.log.records().is_empty(), "a stop takes the log in");
    assert_eq!(positions(&mut disk), expected);
    assert_eq!(append(&mut disk, &[b"next"]), [5001]);
}

#[test]
fn an_entry_larger_than_the_log_goes_to_the_database() {
    let (fake, mut disk) = Fake::opened();
    append(&mut disk, &[b"small"]);
    assert_eq!(append(&mut disk, &[&[1; LOG_BYTES]]), [2]);
    assert_eq!(append(&mut disk, &[b"small"]), [3]);
    assert_eq!(positions(&mut Fake::new(fake.bytes()).open()), [1, 2, 3]);
}

#[test]
fn entries_of_the_log_and_of_the_database_come_in_order() {
    let mut disk = Fake::default().open();
    append(&mut disk, &[b"log"]);
    append(&mut disk, &[b"database", b"database"]);
    append(&mut disk, &[b"log"]);
    commit(&mut disk, vec![Write::Append(b"database".to_vec()), put(1, 0, b"chunk")]).unwrap();
    append(&mut disk, &[b"log"]);
    assert_eq!(positions(&mut disk), [1, 2, 3, 4, 5, 6]);
    let mut read = |after, bytes_max| -> Vec<u64> {
        disk.entries(Position(after), bytes_max).unwrap().iter().map(|entry| entry.position.0).collect()
    };
    assert_eq!(read(0, 11), [1, 2]);
    assert_eq!(read(1, 19), [2, 3, 4]);
    assert_eq!(read(1, 9), [2], "nothing behind the place where the database's part was cut");
    assert_eq!(read(5, 0), [6]);
    commit(&mut disk, vec![Write::Truncate(Position(3))]).unwrap();
    assert_eq!(positions(&mut disk), [4, 5, 6]);
    commit(&mut disk, vec![Write::Truncate(Position(5))]).unwrap();
    assert_eq!(positions(&mut disk), [6]);
}

#[test]
fn an_entry_without_room_is_not_stored() {
    for is_done in [false, true] {
        let (fake, mut disk) = Fake::opened();
        append(&mut disk, &[b"before"]);
        if is_done {
            fake.fail_after_write(0, io::ErrorKind::StorageFull);
        } else {
            fake.fail_write(0, io::ErrorKind::StorageFull);
        }
        let error = commit(&mut disk, vec![Write::Append(vec![1; 1000])]).unwrap_err();
        assert!(matches!(&error, EngineError::NoSpace { store, .. } if store == "fake"), "{error}");
        assert_eq!(positions(&mut Fake::new(fake.bytes()).open()), [1]);
        fake.heal();
        assert_eq!(append(&mut disk, &[b"after"]), [2]);
        assert_eq!(entries(&mut Fake::new(fake.bytes()).open())[1], (2, b"after".to_vec()));
    }
}

#[test]
fn an_entry_goes_to_the_database_if_the_log_has_a_hole() {
    let (fake, mut disk) = Fake::opened();
    append(&mut disk, &[b"log"]);
    fake.fail_log(io::ErrorKind::StorageFull);
    assert_eq!(append(&mut disk, &[b"database"]), [2]);
    assert!(disk.log.records().is_empty(), "the database has all entries");
    fake.heal();
    assert_eq!(append(&mut disk, &[b"log"]), [3]);
    assert_eq!(disk.log.records().len(), 1);
    assert_eq!(positions(&mut Fake::new(fake.bytes()).open()), [1, 2, 3]);
}

/// Goal: a full disk stops only the writes, even if the log has a hole (a block without a place on the disk). Neither
/// zeros for the refused record nor an end record can then be written to the log.
#[test]
fn a_full_disk_with_a_hole_in_the_log_refuses_entries() {
    let (fake, mut disk) = Fake::opened();
    append(&mut disk, &[b"before"]);
    fake.fail_write(0, io::ErrorKind::StorageFull);
    fake.fail_log(io::ErrorKind::StorageFull);
    for _ in 0..2 {
        let error = commit(&mut disk, vec![Write::Append(b"refused".to_vec())]).unwrap_err();
        assert!(matches!(error, EngineError::NoSpace { .. }), "{error}");
        assert_eq!(positions(&mut disk), [1], "reads continue");
    }
    disk.close().unwrap();
    assert_eq!(positions(&mut Fake::new(fake.bytes()).open()), [1]);
}

/// Goal: a refused entry does not come back. The full disk takes only the first part of its record. The next entry's
/// record has the same second part, and a power cut loses the first part of this record. Without zeros over the
/// checksum of the refused entry, the disk would then have the refused entry completely.
#[test]
fn a_power_cut_does_not_complete_a_refused_entry() {
    const DONE_BYTES: usize = 500;
    let (fake, mut disk) = Fake::opened();
    append(&mut disk, &[b"before"]);
    let mut payload = vec![1; 1000];
    fake.fail_in_write(0, io::ErrorKind::StorageFull, DONE_BYTES);
    let error = commit(&mut disk, vec![Write::Append(payload.clone())]).unwrap_err();
    assert!(matches!(error, EngineError::NoSpace { .. }), "{error}");
    fake.heal();
    payload[0] = 2;
    append(&mut disk, &[&payload]);
    let mut cut = fake.take_earlier_cuts().pop().unwrap();
    let Some(Change::Bytes(offset, data)) = cut.unsynced.pop() else { panic!("a commit ends with its record") };
    cut.unsynced.push(Change::Bytes(offset + DONE_BYTES as u64, data[DONE_BYTES..].to_vec()));
    let mut bytes = cut.synced;
    cut.unsynced.iter().for_each(|change| change.apply(&mut bytes));
    assert_eq!(positions(&mut Fake::new(bytes).open()), [1]);
}

/// Goal: while the disk has no space for the entries of a full log, the store refuses the unchanged manifest too. With
/// this manifest, the journal tests whether the disk has space again. Method: the disk has space for some pages. A
/// manifest alone needs fewer pages. The entries of a full log need more.
#[test]
fn an_unchanged_manifest_is_refused_while_the_full_log_is() {
    const PAGES: u64 = 24;
    let (fake, mut disk) = Fake::opened();
    let put = |manifest: &[u8]| vec![Write::PutManifest(manifest.to_vec())];
    let is_refused = |disk: &mut Disk, writes| {
        fake.fail_write(PAGES, io::ErrorKind::StorageFull);
        let result = commit(disk, writes);
        fake.heal();
        assert!(matches!(result, Ok(_) | Err(EngineError::NoSpace { .. })), "{result:?}");
        result.is_err()
    };
    assert!(!is_refused(&mut disk, put(b"first")));
    let entry = vec![1u8; 1000];
    while disk.log.has_space(entry.len()) {
        append(&mut disk, &[&entry]);
    }
    let stored = entries(&mut disk);
    assert!(!is_refused(&mut disk, put(b"first")), "no entry was refused yet");
    assert!(is_refused(&mut disk, vec![Write::Append(entry.clone())]));
    for _ in 0..2 {
        assert!(is_refused(&mut disk, put(b"first")));
    }
    assert!(!is_refused(&mut disk, put(b"second")), "deletions may follow a new manifest");
    assert!(is_refused(&mut disk, put(b"second")));
    assert_eq!(entries(&mut disk), stored);
    // Now the disk has space again.
    commit(&mut disk, put(b"second")).unwrap();
    assert!(disk.log.records().is_empty());
    assert!(!is_refused(&mut disk, vec![Write::Append(entry)]));
    assert_eq!(positions(&mut Fake::new(fake.bytes()).open()).len(), stored.len() + 1);
}

#[test]
fn a_failed_write_is_fatal_unless_the_disk_is_full() {
    let (fake, mut disk) = Fake::opened();
    fake.fail_write(0, io::ErrorKind::Other);
    let error = commit(&mut disk, vec![Write::Append(b"a".to_vec())]).unwrap_err();
    assert!(error.to_string().starts_with("cannot write fake: "), "{error}");
    fake.heal();
    let error = commit(&mut disk, vec![Write::Append(b"a".to_vec())]).unwrap_err();
    assert_eq!(error.to_string(), "cannot use fake: an earlier operation failed");
}

/// Opens a log of five records after a crash, each time with another bit flipped in the records or in the 64 bytes
/// after them. Each record takes 64 bytes: 40 of header, 20 of payload and 4 of padding. A flipped bit in the last
/// record looks like an incomplete write, so the open drops only this record.
#[test]
fn a_flipped_bit_before_the_last_log_record_is_detected() {
    let (fake, mut disk) = Fake::opened();
    append_each(&mut disk, 5, 20);
    let end = 5 * 64;
    for bit in 0..(end + 64) * 8 {
        let mut bytes = fake.bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match Fake::new(bytes).try_open() {
            Ok(mut disk) => {
                let found = positions(&mut disk);
                let is_last = (end - 64..end).contains(&(bit / 8));
                let is_padding = bit / 8 % 64 >= 60 || bit / 8 >= end;
                assert!(
                    found == [1, 2, 3, 4] && is_last || found == [1, 2, 3, 4, 5] && is_padding,
                    "bit {bit}: {found:?}"
                );
            }
            Err(EngineError::Damaged { .. }) => assert!(bit / 8 < end - 64, "bit {bit}"),
            Err(error) => panic!("bit {bit}: {error}"),
        }
    }
    // If a later entry is in the database, the loss of the log's last record is noticed too.
    append(&mut disk, &[b"database", b"database"]);
    let mut bytes = fake.bytes();
    bytes[end - 64 + 48] ^= 1;
    let error = Fake::new(bytes).try_open().unwrap_err();
    assert_eq!(error.to_string().split(';').next(), Some("fake is damaged: entries are missing"));
}

/// Goal: an open that fails changes only redb's header. The header then marks the file as open.
#[test]
fn a_refused_store_changes_only_in_its_header() {
    let (fake, mut disk) = Fake::opened();
    append_each(&mut disk, 3000, 60);
    let mut damaged = fake.bytes();
    damaged[0] ^= 1;
    let refused = Fake::new(damaged.clone());
    assert!(matches!(refused.try_open(), Err(EngineError::Damaged { .. })));
    let mut after = refused.bytes();
    after[0] ^= 1;
    assert_eq!(positions(&mut Fake::new(after.clone()).open()), (1..=3000).collect::<Vec<_>>());
    let header = LOG_BYTES..LOG_BYTES + 320;
    after[0] ^= 1;
    after[header.clone()].copy_from_slice(&damaged[header]);
    assert!(after == damaged);
}

/// Checks that the log of a store is not opened with the database of an earlier state of the store.
fn expect_older(now: &[u8], earlier: &[u8]) {
    let error = Fake::new([&now[..LOG_BYTES], &earlier[LOG_BYTES..]].concat()).try_open().unwrap_err();
    assert_eq!(error.to_string().split(';').next(), Some("fake is damaged: the database is older than the log"));
}

#[test]
fn a_database_older_than_the_log_is_refused() {
    let (fake, mut disk) = Fake::opened();
    append_each(&mut disk, 3000, 60);
    let earlier = fake.bytes();
    append_each(&mut disk, 3000, 60);
    expect_older(&fake.bytes(), &earlier);
}

#[test]
fn the_log_has_an_end_after_a_stop_on_a_full_disk() {
    let (fake, mut disk) = Fake::opened();
    append_each(&mut disk, 5, 20);
    fake.fail_write(0, io::ErrorKind::StorageFull);
    drop(disk);
    fake.heal();
    let mut bytes = fake.bytes();
    assert_eq!(positions(&mut Fake::new(bytes.clone()).open()), [1, 2, 3, 4, 5]);
    bytes[5 * 64 - 10] ^= 1;
    assert!(matches!(Fake::new(bytes).try_open(), Err(EngineError::Damaged { .. })), "the last entry is damaged");
    let mut disk = fake.open();
    assert_eq!(append(&mut disk, &[b"next"]), [6]);
    assert_eq!(positions(&mut Fake::new(fake.bytes()).open()), [1, 2, 3, 4, 5, 6]);
}

/// Goal: damage of the last entry is noticed after a stop, although the stop cannot move the entry to the database.
#[test]
fn the_log_has_an_end_after_a_stop_with_a_damaged_last_entry() {
    let (fake, mut disk) = Fake::opened();
    append_each(&mut disk, 5, 20);
    fake.poke(5 * 64 - 10, 0xff);
    drop(disk);
    assert!(matches!(fake.try_open(), Err(EngineError::Damaged { .. })), "the last entry is damaged");
}

/// After a crash, a page that only the database's last commit uses may be damaged. redb then returns to the previous
/// commit. To test that the log reveals the lost commit, the test puts the database from before the last commit behind
/// the present log.
#[test]
fn a_lost_commit_of_the_database_is_detected_by_the_log() {
    let (fake, mut disk) = Fake::opened();
    append(&mut disk, &[b"before"]);
    let earlier = fake.bytes();
    commit(&mut disk, vec![Write::PutManifest(b"manifest".to_vec())]).unwrap();
    append(&mut disk, &[b"after"]);
    expect_older(&fake.bytes(), &earlier);
}
