//! Faults and their schedule.

use crate::device::Operation;
use crate::kernel::{Event, SECOND, Sim};

/// A fault of a machine, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power fails during one of the next operations of the device.
    CrashPoint(usize),
    /// A connection is cut.
    Cut,
    /// The device is full.
    Full(usize),
    /// An operation of the device fails.
    IoError(usize, Operation),
    /// The wall clock jumps.
    Jump,
    /// The process is killed.
    Kill(usize),
    /// The power fails.
    PowerCut(usize),
    /// The device has space again.
    Room(usize),
    /// The server is started.
    Start(usize),
    /// The server gets the order to stop.
    Stop(usize),
    /// The next commit takes seconds.
    Stuck(usize),
    /// The process is paused.
    Pause(usize),
    /// etcd has no leader, or no quorum.
    Away,
    /// The connection between a replica and etcd fails in one direction: for requests (`true`) or for responses.
    Parted(usize, bool),
    /// A watch breaks.
    WatchBroken(usize),
    /// A watch loses an event.
    WatchLoses(usize),
    /// etcd is compacted.
    Compacted,
    /// A backup of etcd is made.
    BackedUp,
    /// The backup of etcd is restored.
    Restored,
    /// Clients start nothing new, and all faults end.
    Quiet,
}

/// Schedules the faults of a run with replicas.
pub fn schedule_of_replicas(sim: &Sim) {
    let rates = sim.swarm.faults;
    let any = |sim: &Sim| sim.random(|random| random.usize(..sim.swarm.replicas));
    let plan = |count: usize, fault: &dyn Fn() -> Fault| {
        for _ in 0..count {
            let at_us = sim.random(|random| random.u64(SECOND / 2..sim.swarm.duration_us));
            sim.schedule_at(at_us, Event::Fault(fault()));
        }
    };
    plan(rates.kills, &|| Fault::Kill(any(sim)));
    plan(rates.stops, &|| Fault::Stop(any(sim)));
    plan(rates.full, &|| Fault::Full(0));
    plan(rates.resets, &|| Fault::Cut);
    plan(rates.jumps, &|| Fault::Jump);
    plan(rates.pauses, &|| Fault::Pause(any(sim)));
    plan(rates.away, &|| Fault::Away);
    plan(rates.parted, &|| Fault::Parted(any(sim), sim.random(fastrand::Rng::bool)));
    plan(rates.broken_watches, &|| Fault::WatchBroken(any(sim)));
    plan(rates.lost_events, &|| Fault::WatchLoses(any(sim)));
    plan(rates.compactions, &|| Fault::Compacted);
    plan(rates.restores * 4, &|| Fault::BackedUp);
    plan(rates.restores, &|| Fault::Restored);
    sim.schedule_at(sim.swarm.duration_us, Event::Fault(Fault::Quiet));
}

/// Schedules the faults of a run with one server.
pub fn schedule(sim: &Sim, node: usize) {
    let rates = sim.swarm.faults;
    let at = |sim: &Sim| sim.random(|random| random.u64(SECOND / 2..sim.swarm.duration_us));
    let plain = [
        (rates.kills, Fault::Kill(node)),
        (rates.power_cuts, Fault::PowerCut(node)),
        (rates.crash_points, Fault::CrashPoint(node)),
        (rates.stops, Fault::Stop(node)),
        (rates.full, Fault::Full(node)),
        (rates.stuck, Fault::Stuck(node)),
        (rates.resets, Fault::Cut),
        (rates.jumps, Fault::Jump),
    ];
    for (count, fault) in plain {
        for _ in 0..count {
            sim.schedule_at(at(sim), Event::Fault(fault));
        }
    }
    for _ in 0..rates.io_errors {
        let operation = sim.random(|random| [Operation::Read, Operation::Sync, Operation::Write][random.usize(..3)]);
        sim.schedule_at(at(sim), Event::Fault(Fault::IoError(node, operation)));
    }
    sim.schedule_at(sim.swarm.duration_us, Event::Fault(Fault::Quiet));
}
