//! The kinds of faults, and the schedule of a run's faults.

use crate::device::Operation;
use crate::kernel::{Event, SECOND, Sim};

/// A fault of a server, its machine, the network or etcd, or the end of a fault. Numbers are indexes of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power fails during one of the next writes or syncs of the device.
    CrashPoint(usize),
    /// A connection between a client and a server is cut.
    Cut,
    /// The device becomes full. In a run with replicas, etcd becomes full.
    Full(usize),
    /// One of the next operations of this kind fails on the device.
    IoError(usize, Operation),
    /// The wall clock jumps by an hour.
    Jump,
    /// The process of the server is killed.
    Kill(usize),
    /// The power of the machine fails between two events.
    PowerCut(usize),
    /// The device of the machine has space again: the end of [`Self::Full`].
    Room(usize),
    /// The server of the machine is started.
    Start(usize),
    /// The server receives the order to stop.
    Stop(usize),
    /// The next commit of the server takes seconds. At most once in a run, it takes more than a minute.
    Stuck(usize),
    /// The process of the server is paused for some seconds.
    Pause(usize),
    /// etcd has no leader or no quorum for some time.
    Away,
    /// The connection from a replica to etcd fails in one direction: for requests (`true`) or for responses (`false`).
    Parted(usize, bool),
    /// The etcd watch of a replica breaks for some time.
    WatchBroken(usize),
    /// The etcd watch of a replica loses an entry.
    WatchLoses(usize),
    /// etcd compacts all old revisions.
    Compacted,
    /// etcd makes a backup of its present state.
    BackedUp,
    /// etcd is restored from the last backup, or from the state before one of its last changes.
    Restored,
    /// All faults end, and clients start no new work.
    Quiet,
}

/// Schedules the faults of a run. A run with replicas may have faults of etcd but none of a disk. A run with one server
/// may have faults of its disk but none of etcd.
pub fn schedule(sim: &Sim) {
    let rates = sim.swarm.faults;
    let at_us = || sim.random(|random| random.u64(SECOND / 2..sim.swarm.duration_us));
    let any = || match sim.swarm.replicas {
        0 => 0,
        replicas => sim.random(|random| random.usize(..replicas)),
    };
    let plan = |count: usize, fault: &dyn Fn() -> Fault| {
        for _ in 0..count {
            let at_us = at_us();
            sim.schedule_at(at_us, Event::Fault(fault()));
        }
    };
    plan(rates.kills, &|| Fault::Kill(any()));
    plan(rates.power_cuts, &|| Fault::PowerCut(any()));
    plan(rates.crash_points, &|| Fault::CrashPoint(any()));
    plan(rates.stops, &|| Fault::Stop(any()));
    plan(rates.full, &|| Fault::Full(0));
    plan(rates.stuck, &|| Fault::Stuck(any()));
    plan(rates.resets, &|| Fault::Cut);
    plan(rates.jumps, &|| Fault::Jump);
    for _ in 0..rates.io_errors {
        let operation = sim.random(|random| [Operation::Read, Operation::Sync, Operation::Write][random.usize(..3)]);
        sim.schedule_at(at_us(), Event::Fault(Fault::IoError(0, operation)));
    }
    plan(rates.pauses, &|| Fault::Pause(any()));
    plan(rates.away, &|| Fault::Away);
    plan(rates.parted, &|| Fault::Parted(any(), sim.random(fastrand::Rng::bool)));
    plan(rates.broken_watches, &|| Fault::WatchBroken(any()));
    plan(rates.lost_events, &|| Fault::WatchLoses(any()));
    plan(rates.compactions, &|| Fault::Compacted);
    plan(rates.restores * 4, &|| Fault::BackedUp);
    plan(rates.restores, &|| Fault::Restored);
    sim.schedule_at(sim.swarm.duration_us, Event::Fault(Fault::Quiet));
}
