//! Migration of Leases from one store to another.

use super::super::migration::{Migrated, Place, migrate};
use super::super::testing::{SharedPort, SharedStore, Store};
use super::super::{CallPort, Command, Config, Event, Limits, Port, Worker};
use super::replicas::Replica;
use super::rig::{Rig, create, small_limits};
use crate::engine::{Engine, EngineError, SnapshotId, Write};
use crate::resource::ResourceVersion;
use std::io::ErrorKind;
use std::rc::{Rc, Weak};

fn place(store: &Store) -> Place<'static> {
    let port = CallPort::new(Worker::new(Box::new(store.clone()), "memory"));
    Place {
        port: Box::new(port),
        config: Config::new("memory", 5),
        wait: Box::new(|| panic!("an answer is missing")),
        await_replicas: Box::new(|| ()),
    }
}

fn place_of_replicas<'p>(store: &SharedStore, await_replicas: impl FnOnce() + 'p) -> Place<'p> {
    Place {
        port: Box::new(SharedPort::new(store)),
        config: Config { is_shared: true, ..Config::new("shared", 5) },
        wait: Box::new(|| panic!("an answer is missing")),
        await_replicas: Box::new(await_replicas),
    }
}

fn filled() -> Rig {
    let mut rig = Rig::open(&Store::default(), small_limits(), 100, 1);
    for n in 0..200 {
        rig.write(create("n", &format!("{n}")));
    }
    drop(rig.write(rig.deletion("n", "7")));
    rig
}

#[test]
fn a_migrated_store_continues_where_the_old_one_stopped() {
    let rig = filled();
    let (old, version) = (rig.store.stored(), rig.table.version());
    let new = Store::default();
    // A chunk that an interrupted migration left.
    let stray = Write::PutChunk { snapshot: SnapshotId(1), index: 70, bytes: b"stray".to_vec() };
    new.clone().commit(vec![stray], &mut |_| ()).expect("a commit");
    let moved = migrate(place(&rig.store), || Ok(place(&new))).expect("moved");
    assert!(matches!(moved, Migrated { leases: 199, version: of, .. } if of == version));
    assert_eq!(rig.store.stored(), old);
    assert!(!new.stored().chunks.contains_key(&(SnapshotId(1), 70)));
    let mut started = Rig::open(&new, small_limits(), 100, 2);
    assert_eq!(started.dump(), rig.dump());
    started.write(create("n", "next"));
    assert_eq!(started.table.version(), ResourceVersion(version.0 + 1));
    let dump = started.dump();
    assert_eq!(started.restart(small_limits(), 3).dump(), dump);
}

#[test]
fn a_migration_to_a_used_or_from_an_empty_store_is_refused() {
    let (one, other) = (filled(), filled());
    let before = other.store.stored();
    let refused = migrate(place(&one.store), || Ok(place(&other.store)));
    assert!(matches!(refused, Err(EngineError::InUse { .. })), "{refused:?}");
    assert_eq!(other.store.stored(), before);
    let nothing = Store::default();
    let refused = migrate(place(&nothing), || panic!("the new store is opened"));
    assert!(matches!(refused, Err(EngineError::Absent { .. })), "{refused:?}");
    assert_eq!(nothing.commit_count(), 0);
}

#[test]
fn a_migration_under_a_live_replica_is_refused() {
    let store = SharedStore::default();
    let mut replica = Replica::open(&store, Limits::default(), 1);
    let mut write = |name: &str| {
        drop(replica.submit(create("n", name)));
        replica.turn();
        replica.turn();
    };
    write("a");
    let early = migrate(place_of_replicas(&store, || write("b")), || panic!("the new store is opened"));
    assert!(matches!(early, Err(EngineError::InUseByReplica { .. })), "{early:?}");
    let new = Store::default();
    let late = migrate(place_of_replicas(&store, || ()), || {
        write("c");
        Ok(place(&new))
    });
    assert!(matches!(late, Err(EngineError::InUseByReplica { .. })), "{late:?}");
    assert!(Rig::try_open(&new, small_limits(), 100, 2).is_err(), "a server starts on an incomplete copy");
    let moved = migrate(place_of_replicas(&store, || ()), || Ok(place(&new))).expect("no replica writes");
    assert_eq!(moved.leases, 3);
}

#[test]
fn a_migration_without_space_can_be_repeated() {
    let rig = filled();
    let new = Store::default();
    new.fill_for_chunks(true);
    let refused = migrate(place(&rig.store), || Ok(place(&new)));
    assert!(matches!(refused, Err(EngineError::NoSpace { .. })), "{refused:?}");
    new.fill_for_chunks(false);
    migrate(place(&rig.store), || Ok(place(&new))).expect("the second attempt");
}

/// A port that answers the commit of a manifest with an error. The store has nevertheless made the manifest durable.
#[derive(Debug)]
struct Failing {
    port: Box<dyn Port>,
    is_manifest: bool,
    failure: fn() -> EngineError,
}

impl Port for Failing {
    fn send(&mut self, command: Command) {
        self.is_manifest = matches!(&command, Command::Commit(commit) if commit.manifest.is_some());
        self.port.send(command);
    }

    fn next(&mut self) -> Option<Event> {
        let event = self.port.next()?;
        Some(if self.is_manifest { Event::Failed((self.failure)()) } else { event })
    }
}

#[test]
fn a_migration_may_be_complete_if_etcd_may_have_executed_its_last_write() {
    let silent: fn() -> EngineError =
        || EngineError::Io { what: "cannot reach etcd".to_owned(), cause: ErrorKind::TimedOut.into() };
    let full: fn() -> EngineError =
        || EngineError::NoSpace { store: "etcd".to_owned(), cause: ErrorKind::StorageFull.into() };
    for (failure, reason) in [(silent, "cannot reach etcd"), (full, "etcd has no space")] {
        let (rig, new) = (filled(), Store::default());
        let mut to = place(&new);
        to.config.is_shared = true;
        to.port = Box::new(Failing { port: to.port, is_manifest: false, failure });
        let error = migrate(place(&rig.store), || Ok(to)).expect_err("an unknown outcome").to_string();
        assert!(error.starts_with("the new store may be complete") && error.contains(reason), "{error}");
        assert_eq!(Rig::open(&new, small_limits(), 100, 2).dump(), rig.dump());
    }
}

/// A port to one of the two stores of a migration. `_own` lives as long as this port. `other` refers to the `_own` of
/// the other port. A commit through this port fails the test if the other port was dropped before.
#[derive(Debug)]
struct Linked {
    port: Box<dyn Port>,
    _own: Rc<()>,
    other: Weak<()>,
}

impl Port for Linked {
    fn send(&mut self, command: Command) {
        let is_commit = matches!(command, Command::Commit(_));
        assert!(!is_commit || self.other.strong_count() > 0, "the old store was closed before the new one is complete");
        self.port.send(command);
    }

    fn next(&mut self) -> Option<Event> {
        self.port.next()
    }
}

#[test]
fn the_old_store_stays_open_until_the_new_one_is_complete() {
    let (rig, new) = (filled(), Store::default());
    let (old_is_open, new_is_open) = (Rc::new(()), Rc::new(()));
    let (mut from, mut to) = (place(&rig.store), place(&new));
    to.port = Box::new(Linked { port: to.port, _own: new_is_open, other: Rc::downgrade(&old_is_open) });
    from.port = Box::new(Linked { port: from.port, _own: old_is_open, other: Weak::new() });
    migrate(from, || Ok(to)).expect("moved");
    assert!(new.commit_count() > 1);
}
