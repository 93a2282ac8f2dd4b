//! The table compared with a naive model. Goal: a snapshot reads every version unchanged, in steps and during further
//! writes. The log shows the change between each version and the next. Method: seeded random operations on the table
//! and on a list of plain maps, with one map per version.

use super::*;
use crate::limits::{CATCH_UP_EVENTS_PER_STEP, HOLDS_LOOKED_AT, JOB_KEYS_PER_STEP, LARGE_LEASE_BYTES_MIN};
use crate::table::snapshot::{Forgotten, Range, Snapshot, Stepped};
use crate::timestamp::MicroTime;
use compact_str::CompactString;

/// The table's content at one version: key to version and holder.
type State = BTreeMap<String, (u64, String)>;

struct Model {
    table: Table,
    first: u64,
    /// `states[i]` is the table's content at version `first + i`.
    states: Vec<State>,
    rng: fastrand::Rng,
}

impl Model {
    fn new(seed: u64, events_max: usize) -> Self {
        let first = 1_000_000;
        Self {
            table: Table::new(ResourceVersion(first), events_max, usize::MAX),
            first,
            states: vec![State::new()],
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn lease(&mut self) -> Lease {
        let namespace = ["a", "a-b", "b", "a.b"][self.rng.usize(0..4)];
        let mut lease = Lease::named(namespace, &format!("n{}", self.rng.u8(0..12)));
        lease.spec.holder_identity = Some(CompactString::from(format!("h{}", self.rng.u32(..))));
        lease
    }

    /// Makes one random write, to the table and to the maps.
    fn write(&mut self) {
        let lease = self.lease();
        let holder = lease.spec.holder_identity.clone().unwrap_or_default().to_string();
        let (namespace, name) = (lease.metadata.namespace.clone(), lease.metadata.name.clone());
        let key = format!("{namespace}/{name}");
        let found = self.table.find(&namespace, &name).map(|(slot, object)| (slot, object.version.0));
        let mut state = self.states.last().expect("one at least").clone();
        assert_eq!(found.map(|(_, version)| version), state.get(&key).map(|(version, _)| *version));
        let version = self.table.version().0 + 1;
        let (after, deleted) = match found {
            None => (self.table.create(lease), false),
            Some((slot, _)) if self.rng.u8(0..3) == 0 => (self.table.remove(slot), true),
            Some((slot, _)) => (self.table.replace(slot, lease), false),
        };
        assert_eq!(after.version.0, version);
        if deleted {
            state.remove(&key)
        } else {
            state.insert(key, (version, holder))
        };
        self.states.push(state);
    }

    fn state(&self, version: u64) -> &State {
        &self.states[usize::try_from(version - self.first).expect("small")]
    }

    fn range(&mut self) -> Range {
        match self.rng.u8(0..4) {
            0 => Range::All,
            3 => Range::Name(Key::new("a", "n1")),
            1 => Range::Namespace("a".into()),
            _ => Range::Namespace("a-b".into()),
        }
    }
}

/// Returns the content of a range in a state, in the order of the keys.
fn expected(state: &State, range: &Range) -> Vec<(String, u64, String)> {
    let within = |key: &str| match range {
        Range::All => true,
        Range::Namespace(namespace) => key.starts_with(&format!("{namespace}/")),
        Range::Name(name) => key == name.as_str(),
    };
    state.iter().filter(|(k, _)| within(k)).map(|(k, (v, h))| (k.clone(), *v, h.clone())).collect()
}

fn found(object: &Object) -> (String, u64, String) {
    let holder = object.unrenewed().spec.holder_identity.clone().unwrap_or_default();
    (object.key().as_str().to_owned(), object.version.0, holder.to_string())
}

#[test]
fn every_version_reads_back_as_it_was_in_pieces_and_under_writes() {
    for seed in 0..300 {
        let mut model = Model::new(seed, usize::MAX);
        for _ in 0..model.rng.usize(0..120) {
            model.write();
        }
        for _ in 0..10 {
            let range = model.range();
            let head = model.table.version().0;
            let version = model.rng.u64(model.first..=head);
            let mut snapshot = Snapshot::whole_at(&model.table, range.clone(), ResourceVersion(version)).expect("kept");
            let want = expected(model.state(version), &range);
            assert_eq!(snapshot.remaining(), Some(want.len()), "seed {seed}");
            let mut got = Vec::new();
            loop {
                let keys = model.rng.usize(1..6);
                let mut stop_after = model.rng.usize(1..6);
                let stepped = snapshot
                    .next(&model.table, keys, |object| {
                        got.push(found(object));
                        stop_after -= 1;
                        stop_after > 0
                    })
                    .expect("kept");
                assert_eq!(snapshot.remaining(), Some(want.len() - got.len()), "seed {seed}");
                if stepped == Stepped::Done {
                    break;
                }
                if model.rng.u8(0..4) == 0 {
                    // Continues with another snapshot of the same version, as the next page of a list does.
                    let (start, remaining) = (snapshot.start().to_owned(), snapshot.remaining());
                    let again =
                        Snapshot::whole_at(&model.table, range.clone(), ResourceVersion(version)).expect("kept");
                    snapshot = again.from_key(&start, remaining).expect("in the range");
                }
                for _ in 0..model.rng.usize(0..4) {
                    model.write();
                }
            }
            assert_eq!(got, want, "seed {seed}, version {version}, {range:?}");
        }
    }
}

#[test]
fn the_event_log_leads_from_each_version_to_the_newest() {
    for seed in 0..100 {
        let mut model = Model::new(seed, 20);
        for _ in 0..100 {
            model.write();
            let head = model.table.version();
            let from = ResourceVersion(model.rng.u64(model.first..=head.0));
            let Some(events) = model.table.log().since(from) else {
                assert!(from < model.table.log().floor());
                continue;
            };
            let mut state = model.state(from.0).clone();
            for event in events {
                let (key, version, holder) = found(&event.after);
                let before = state.get(&key).map(|(version, _)| *version);
                assert_eq!(event.before.as_ref().map(|object| object.version.0), before, "seed {seed}");
                if event.deleted {
                    state.remove(&key)
                } else {
                    state.insert(key, (version, holder))
                };
            }
            assert_eq!(&state, model.state(head.0), "seed {seed}");
        }
    }
}

#[test]
fn a_page_is_the_last_only_if_no_leases_follow() {
    let mut model = Model::new(1, usize::MAX);
    for _ in 0..60 {
        model.write();
    }
    let total = expected(model.state(model.table.version().0), &Range::All).len();
    for limit in 1..=total {
        // If `keys_max` is `limit`, `each` ends the page at the last key that `keys_max` allows. The result must be the
        // same as without a limit of keys.
        for keys_max in [usize::MAX, limit] {
            let mut snapshot = Snapshot::now(&model.table, Range::All);
            let mut left = limit;
            let stepped = snapshot
                .next(&model.table, keys_max, |_| {
                    left -= 1;
                    left > 0
                })
                .expect("kept");
            assert_eq!(stepped == Stepped::More, limit < total, "limit {limit}, keys_max {keys_max}");
        }
    }
}

#[test]
fn a_caught_up_snapshot_outlives_the_event_log() {
    let mut model = Model::new(3, 5);
    model.write();
    let version = model.table.version();
    let mut snapshot = Snapshot::now(&model.table, Range::All);
    model.write();
    let mut older = Snapshot::at(&model.table, Range::All, version).expect("kept");
    for _ in 0..50 {
        model.write();
    }
    assert!(matches!(Snapshot::whole_at(&model.table, Range::All, version), Err(Forgotten)));
    assert_eq!(older.next(&model.table, usize::MAX, |_| true), Err(Forgotten));
    let mut got = Vec::new();
    let stepped = snapshot.next(&model.table, usize::MAX, |object| {
        got.push(found(object));
        true
    });
    assert_eq!(stepped, Ok(Stepped::Done));
    assert_eq!(got, expected(model.state(version.0), &Range::All));
}

/// A running snapshot, and its expected output.
struct Reader {
    snapshot: Snapshot,
    want: Vec<(String, u64, String)>,
    got: Vec<(String, u64, String)>,
}

/// Snapshots share the lost states that the history keeps. In any order of their beginnings, steps and ends, each
/// snapshot sees its own version. After all snapshots have ended, the history keeps no state.
#[test]
fn many_snapshots_at_once_read_back_each_its_own_version() {
    for seed in 0..300 {
        let mut model = Model::new(seed, 30);
        for _ in 0..40 {
            model.write();
        }
        let mut readers: Vec<Reader> = Vec::new();
        for _ in 0..400 {
            match model.rng.u8(0..8) {
                0 => {
                    let range = model.range();
                    let oldest = model.table.log().floor().0;
                    let version = match model.rng.bool() {
                        true => model.table.version().0,
                        false => model.rng.u64(oldest..=model.table.version().0),
                    };
                    let snapshot = Snapshot::whole_at(&model.table, range.clone(), ResourceVersion(version));
                    let want = expected(model.state(version), &range);
                    readers.push(Reader { snapshot: snapshot.expect("kept"), want, got: Vec::new() });
                }
                1..4 if !readers.is_empty() => {
                    let at = model.rng.usize(0..readers.len());
                    let Reader { snapshot, want, got } = &mut readers[at];
                    let (keys, mut wanted) = (model.rng.usize(1..8), model.rng.usize(1..8));
                    let stepped = snapshot.next(&model.table, keys, |object| {
                        got.push(found(object));
                        wanted -= 1;
                        wanted > 0
                    });
                    assert_eq!(*got, want[..got.len()], "seed {seed}");
                    if stepped == Ok(Stepped::Done) {
                        assert_eq!(got, want, "seed {seed}");
                        readers.swap_remove(at);
                    }
                }
                4 if model.rng.u8(0..4) == 0 && !readers.is_empty() => {
                    let at = model.rng.usize(0..readers.len());
                    readers.swap_remove(at);
                }
                5 => model.table.discard_step(model.rng.usize(0..4)),
                _ => model.write(),
            }
        }
        readers.clear();
        model.table.discard_step(usize::MAX);
        assert_eq!((model.table.discarded_len(), model.table.history.len()), (0, 0), "seed {seed}");
    }
}

/// The history keeps a state only if the state existed at a snapshot's version and the snapshot has not read its key
/// yet. A state that several snapshots need is kept once.
#[test]
fn the_history_keeps_only_states_that_snapshots_still_need() {
    let mut model = Model::new(1, 5);
    for name in ["n1", "n2", "n3"] {
        model.table.create(Lease::named("a", name));
    }
    let write = |table: &mut Table, name: &str| {
        let (slot, object) = table.find("a", name).expect("there");
        let lease = object.lease().into_owned();
        table.replace(slot, lease);
    };
    let table = &mut model.table;
    write(table, "n1");
    assert_eq!(table.history.len(), 0, "nobody reads");
    let mut first = Snapshot::now(table, Range::All);
    let second = Snapshot::now(table, Range::All);
    let other = Snapshot::now(table, Range::Namespace("b".into()));
    for _ in 0..10 {
        write(table, "n2");
    }
    assert_eq!(table.history.len(), 1, "one state for both");
    drop(second);
    assert_eq!(first.next(table, 1, |_| false), Ok(Stepped::More));
    write(table, "n1");
    assert_eq!(table.history.len(), 1, "n1 has been given out");
    let third = Snapshot::now(table, Range::All);
    write(table, "n2");
    assert_eq!(table.history.len(), 2);
    drop(first);
    table.discard_step(usize::MAX);
    assert_eq!(table.history.len(), 1, "of n2 only the state that the third can come to");
    drop((third, other));
    assert_eq!(table.discarded_len(), 1);
    table.discard_step(usize::MAX);
    assert_eq!((table.discarded_len(), table.history.len()), (0, 0));
}

/// Goal: a snapshot stays complete if the newest [`HOLDS_LOOKED_AT`] snapshots cover other keys. A change checks only
/// the keys of these snapshots. If none of them needs the replaced state, the history keeps the state for the next
/// older snapshot, even if that one does not need it.
#[test]
fn an_old_snapshot_stays_complete_beside_many_newer_ones() {
    let mut model = Model::new(1, 5);
    (0..20).for_each(|_| model.write());
    let mut whole = Snapshot::now(&model.table, Range::All);
    let want = expected(model.state(whole.version().0), &Range::All);
    let others: Vec<_> =
        (0..3 * HOLDS_LOOKED_AT).map(|_| Snapshot::now(&model.table, Range::Namespace("none".into()))).collect();
    (0..100).for_each(|_| model.write());
    drop(others);
    model.table.discard_step(usize::MAX);
    let mut got = Vec::new();
    let stepped = whole.next(&model.table, usize::MAX, |object| {
        got.push(found(object));
        true
    });
    assert_eq!((stepped, got), (Ok(Stepped::Done), want));
}

#[test]
fn an_older_version_is_rebuilt_in_steps_during_changes() {
    let mut model = Model::new(7, usize::MAX);
    (0..100).for_each(|_| model.write());
    let version = model.table.version().0;
    (0..3 * CATCH_UP_EVENTS_PER_STEP).for_each(|_| model.write());
    for range in [Range::All, Range::Namespace("a-b".into()), Range::Name(Key::new("a", "n1"))] {
        let mut snapshot = Snapshot::at(&model.table, range.clone(), ResourceVersion(version)).expect("kept");
        assert!(snapshot.is_long(1, JOB_KEYS_PER_STEP), "however little of it is read");
        assert!(!Snapshot::now(&model.table, range.clone()).is_long(usize::MAX, JOB_KEYS_PER_STEP), "there are few");
        let (mut got, mut steps) = (Vec::new(), 0);
        loop {
            let known = got.len();
            let stepped = snapshot.next(&model.table, 10, |object| {
                got.push(found(object));
                true
            });
            if got.is_empty() {
                steps += 1;
            } else if known == 0 {
                let left = expected(model.state(version), &range).len() - got.len();
                assert_eq!(snapshot.remaining(), Some(left));
            }
            model.write();
            if stepped.expect("kept") == Stepped::Done {
                break;
            }
        }
        assert_eq!(got, expected(model.state(version), &range));
        assert!(steps >= 2, "{steps}");
    }
}

/// Prefetching has no visible effect. It must accept any key, whether or not its Lease exists or is encoded already.
#[test]
fn prefetching_changes_nothing() {
    let mut model = Model::new(7, 100);
    (0..PREFETCH_MAX).for_each(|_| {
        let mut lease = model.lease();
        lease.metadata.name = CompactString::from(format!("n{}", model.table.len()));
        let created = model.table.create(lease);
        if created.version.0.is_multiple_of(2) {
            created.push_body(&mut Vec::new(), crate::codec::Format::Json);
        }
    });
    let version = model.table.version();
    let keys: Vec<_> = model.table.ordered.keys().map(|key| key.as_str().to_owned()).collect();
    let prefetched: Vec<_> = keys
        .iter()
        .filter_map(|key| key.split_once('/'))
        .flat_map(|(namespace, name)| {
            [model.table.prefetch_key(namespace, name), model.table.prefetch_key(name, namespace)]
        })
        .collect();
    assert_eq!(prefetched.len(), 2 * PREFETCH_MAX);
    for keys in [&prefetched[..], &prefetched[..3], &[]] {
        model.table.prefetch(keys.iter().copied());
    }
    assert_eq!(model.table.version(), version);
}

#[test]
fn large_leases_are_counted_through_changes_and_deletion() {
    let mut table = Table::new(ResourceVersion(1), 16, 1 << 20);
    let lease = |name: &str, bytes: usize| {
        let mut lease = Lease::named("a", name);
        lease.spec.holder_identity = Some("h".repeat(bytes).into());
        lease
    };
    let (small, large) = (10, LARGE_LEASE_BYTES_MIN);
    table.create(lease("x", small));
    assert!(!table.has_large());
    table.create(lease("y", large));
    let [x, y] = ["x", "y"].map(|name| table.find("a", name).expect("created").0);
    assert!(table.has_large());
    table.replace(x, lease("x", large + 1));
    table.renew(y, RenewedTimes { renew_time: MicroTime(1), managed_time: None });
    table.replace(y, lease("y", small));
    assert!(table.has_large(), "the other has become so");
    table.remove(y);
    assert!(table.has_large());
    table.remove(x);
    assert!(!table.has_large());
}
