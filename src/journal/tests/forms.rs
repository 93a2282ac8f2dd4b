//! Tests of encoding and decoding: every written value can be read. Damaged bytes never cause a panic.

use super::super::applied::{Writer, Writers};
use super::super::chunk;
use super::super::entry::{EntryReader, EntryWriter, HEADER_BYTES, Header, Origin, StoredChange};
use super::super::lease_form::{put_lease, put_object, read_lease};
use super::super::manifest::{Base, Manifest, SnapshotInfo};
use super::super::record::{Record, RecordReader, put_record};
use super::super::seal;
use super::super::seal::FORMAT;
use super::super::wire::Reader;
use super::generate;
use super::rig::times;
use crate::engine::{Position, SnapshotId};
use crate::lease::Lease;
use crate::resource::ResourceVersion;
use crate::table::Table;
use crate::table::change::{Change, Target};
use crate::table::object::{Key, Object, RenewedTimes};
use crate::timestamp::{MicroTime, Time};
use fastrand::Rng;

#[test]
fn every_lease_round_trips() {
    let mut random = Rng::with_seed(1);
    for round in 0..5_000 {
        let lease = generate::lease(&mut random);
        let mut bytes = Vec::new();
        put_lease(&mut bytes, &lease);
        let mut reader = Reader::new(&bytes, 0);
        assert_eq!(read_lease(&mut reader).as_ref(), Ok(&lease), "round {round}");
        assert_eq!(reader.finish(), Ok(()), "round {round}");
        // `spec_bits` tells which fields of the spec an entry of `managedFields` contains. The comparison of Leases
        // ignores this cached value, so the test compares it separately.
        let read = read_lease(&mut Reader::new(&bytes, 0)).expect("a Lease");
        assert_eq!(spec_bits(&read), spec_bits(&lease), "round {round}");
        for end in [bytes.len() / 2, bytes.len() - 1] {
            let cut = read_lease(&mut Reader::new(&bytes[..end], 0));
            assert!(cut.is_err() || end == 0, "round {round}: cut at {end} of {}", bytes.len());
        }
    }
}

fn spec_bits(lease: &Lease) -> Vec<Option<u8>> {
    lease.metadata.managed_fields.entries().iter().map(|entry| entry.fields.spec_bits()).collect()
}

#[test]
fn a_renewed_object_is_encoded_like_its_whole_lease() {
    let mut random = Rng::with_seed(2);
    for _ in 0..2_000 {
        let mut table = Table::new(ResourceVersion(5), 9, 0);
        let lease = generate::lease(&mut random);
        let has_entry = !lease.metadata.managed_fields.entries().is_empty();
        let (namespace, name) = ("n", "a");
        let mut named = lease;
        (named.metadata.namespace, named.metadata.name) = (namespace.into(), name.into());
        table.apply(Change::Create(Box::new(named))).expect("created");
        let (slot, _) = table.find(namespace, name).expect("there");
        // A renewal of a Lease with entries in `managedFields` always sets the time of the last entry.
        let managed_time = (has_entry || random.bool()).then(|| Time(generate::number(&mut random)));
        let renewed = RenewedTimes { renew_time: MicroTime(generate::number(&mut random)), managed_time };
        let object = table.apply(Change::Renew(table.target(slot), renewed)).expect("renewed");
        let (mut merged, mut whole) = (Vec::new(), Vec::new());
        put_object(&mut merged, &object);
        put_lease(&mut whole, &object.lease());
        assert_eq!(merged, whole);
    }
}

fn header(random: &mut Rng) -> Header {
    Header {
        writer: random.u64(..),
        sequence: random.u64(..),
        after: Position(random.u64(..)),
        base: ResourceVersion(random.u64(..)),
        chain: random.u64(..),
        time: MicroTime(generate::number(random)),
    }
}

fn change(random: &mut Rng, slot: crate::table::Slot) -> (Change, StoredChange) {
    let version = |random: &mut Rng| ResourceVersion(generate::number(random).cast_unsigned());
    let (number, from) = (version(random), version(random));
    let (target, origin) = (Target { slot, number, from }, Origin { number, from });
    match random.u8(..4) {
        0 => {
            let lease = Box::new(generate::lease(random));
            (Change::Create(lease.clone()), StoredChange::Create(lease))
        }
        1 => {
            let lease = Box::new(generate::lease(random));
            (Change::Replace(target, lease.clone()), StoredChange::Replace(origin, lease))
        }
        2 => (Change::Delete(target), StoredChange::Delete(origin)),
        _ => {
            let managed_time = random.bool().then(|| Time(generate::number(random)));
            let times = RenewedTimes { renew_time: MicroTime(generate::number(random)), managed_time };
            (Change::Renew(target, times), StoredChange::Renew(origin, times))
        }
    }
}

/// Returns an arbitrary slot. Entries do not store the slot.
fn slot() -> crate::table::Slot {
    let mut table = Table::new(ResourceVersion(1), 9, 0);
    table.apply(super::rig::create("n", "a")).expect("created");
    table.find("n", "a").expect("there").0
}

#[test]
fn every_entry_round_trips() {
    let (mut random, slot) = (Rng::with_seed(3), slot());
    for round in 0..1_000 {
        let header = header(&mut random);
        let mut writer = EntryWriter::new(header, FORMAT);
        let mut expected = Vec::new();
        for _ in 0..random.usize(..8) {
            let (change, stored) = change(&mut random, slot);
            assert!(writer.try_push(&change, usize::MAX));
            expected.push(stored);
        }
        let (payload, checksum) = writer.finish();
        let mut reader = EntryReader::open(payload).expect("an entry");
        assert_eq!((reader.header, reader.checksum), (header, checksum), "round {round}");
        for stored in expected {
            assert_eq!(reader.next(), Ok(Some(stored)), "round {round}");
        }
        assert_eq!((reader.next(), reader.remaining()), (Ok(None), 0), "round {round}");
    }
}

/// Goal: reading never panics. Method: changes some bytes of valid values, and computes their checksums again. So no
/// read ends at a wrong checksum.
#[test]
fn mutated_values_are_read_without_a_panic() {
    let (mut random, slot) = (Rng::with_seed(4), slot());
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut writer = EntryWriter::new(header(&mut random), FORMAT);
        for _ in 0..3 {
            assert!(writer.try_push(&change(&mut random, slot).0, usize::MAX));
        }
        let (entry, _) = writer.finish();
        let manifest = manifest(&mut random).encode(FORMAT);
        let chunk = chunk::encode(SnapshotId(1), 2, FORMAT, &entry[..entry.len().min(1_000)]);
        for sealed in [entry, manifest, chunk] {
            let mut bytes = sealed[..sealed.len() - seal::SEAL_BYTES].to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(2..bytes.len());
                bytes[at] = if random.bool() { random.u8(..) } else { 0xff };
            }
            if random.u8(..8) == 0 {
                bytes.truncate(random.usize(..bytes.len()));
            }
            seal::seal(&mut bytes);
            refused += u32::from(Manifest::decode(&bytes).is_err() && chunk::decode(&bytes).is_err());
            if let Ok(mut reader) = EntryReader::open(bytes) {
                while let Ok(Some(_)) = reader.next() {}
            }
        }
    }
    // `refused` counts the values that can be decoded neither as a manifest nor as a chunk. All 20,000 entries are
    // among them. A greater number shows that changed manifests or chunks are refused too.
    assert!(refused > 20_000, "{refused}");
}

#[test]
fn a_renewal_takes_few_bytes() {
    const RENEWALS: u64 = 10_000;
    let (slot, mut random) = (slot(), Rng::with_seed(5));
    // A million nodes renew every ten seconds, that is, 100,000 times a second. The table is three hours old.
    let base = 1_700_000_000_000_000 + 1_000_000 + 3 * 3_600 * 100_000;
    let now = 1_700_000_000_000_000;
    let mut writer = EntryWriter::new(
        Header {
            writer: 7,
            sequence: 1,
            after: Position(0),
            base: ResourceVersion(base),
            chain: 0,
            time: MicroTime(now),
        },
        FORMAT,
    );
    for _ in 0..RENEWALS {
        let number = ResourceVersion(1_700_000_000_000_000 + random.u64(..1_000_000));
        let from = ResourceVersion(base - random.u64(..1_100_000));
        let renew_time = MicroTime(now + random.i64(-100_000..100_000));
        let managed_time = Some(Time(renew_time.0 / 1_000_000));
        let change = Change::Renew(Target { slot, number, from }, RenewedTimes { renew_time, managed_time });
        assert!(writer.try_push(&change, usize::MAX));
    }
    let (payload, _) = writer.finish();
    let bytes = payload.len() as f64 / RENEWALS as f64;
    println!("{bytes:.2} bytes for a renewal, {} for all but the changes", HEADER_BYTES + seal::SEAL_BYTES);
    assert!(bytes <= 14.0, "{bytes}");
}

#[test]
fn an_entry_is_closed_before_it_is_too_long_but_takes_one_change_of_any_size() {
    let slot = slot();
    let target = Target { slot, number: ResourceVersion(1), from: ResourceVersion(1) };
    let mut long = super::rig::lease("n", "a");
    long.spec.holder_identity = Some("x".repeat(5_000).into());
    let long = Change::Create(Box::new(long));
    let short = Change::Renew(target, times(1));
    let empty = || EntryWriter::new(header(&mut Rng::with_seed(6)), FORMAT);
    let mut writer = empty();
    assert!(writer.try_push(&long, 1_000), "the first change has no bound");
    assert!(!writer.try_push(&short, 1_000));
    let mut writer = empty();
    let mut count = 0;
    while writer.try_push(&short, 1_000) {
        count += 1;
    }
    let (payload, _) = writer.finish();
    assert!((960..=1_000).contains(&payload.len()), "{}", payload.len());
    assert_eq!(EntryReader::open(payload).expect("an entry").remaining(), count);
}

fn manifest(random: &mut Rng) -> Manifest {
    let base = if random.bool() { Base::Empty(ResourceVersion(random.u64(..))) } else { Base::Snapshot(info(random)) };
    Manifest {
        base,
        newer: random.bool().then(|| info(random)),
        last_claimed: SnapshotId(random.u64(..)),
        taker: random.bool().then(|| random.u64(..)),
    }
}

fn info(random: &mut Rng) -> SnapshotInfo {
    let mut writers = Writers::default();
    for _ in 0..random.usize(..5) {
        writers.insert(random.u64(..), Writer { sequence: random.u64(..), position: Position(random.u64(..)) });
    }
    SnapshotInfo {
        id: SnapshotId(random.u64(..)),
        version: ResourceVersion(random.u64(..)),
        position: Position(random.u64(..)),
        entries: random.u64(..),
        chain: random.u64(..),
        chunks: random.u32(..),
        records: random.u64(..),
        bytes: random.u64(..),
        begun_us: generate::number(random),
        writers,
    }
}

#[test]
fn every_manifest_round_trips() {
    let mut random = Rng::with_seed(8);
    for _ in 0..1_000 {
        let manifest = manifest(&mut random);
        assert_eq!(Manifest::decode(&manifest.encode(FORMAT)), Ok(manifest));
    }
}

#[test]
fn records_round_trip_wherever_the_stream_is_cut() {
    let mut random = Rng::with_seed(9);
    for _ in 0..200 {
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..random.usize(..20) {
            let lease = generate::lease(&mut random);
            let (number, version) = (ResourceVersion(random.u64(..)), ResourceVersion(random.u64(..)));
            put_record(&mut stream, &Object::new(Key::new("n", "a"), number, version, lease.clone()));
            expected.push(Record { number, version, lease });
        }
        let (mut reader, mut found, mut rest) = (RecordReader::default(), Vec::new(), &stream[..]);
        while !rest.is_empty() {
            let longest = if random.bool() { 3 } else { 2_000 };
            let (piece, behind) = rest.split_at(random.usize(1..=rest.len().min(longest)));
            reader.push(piece);
            rest = behind;
            while let Some(record) = reader.next().expect("a record") {
                found.push(record);
            }
        }
        assert!(reader.is_empty());
        assert_eq!(found, expected);
    }
}
