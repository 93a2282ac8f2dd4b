//! Faults, and when they come.

use crate::device::Operation;
use crate::kernel::{Event, SECOND, Sim};

/// A fault, or the end of one, on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power fails in one of the next operations of the device.
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
    /// The device has room again.
    Room(usize),
    /// The server is started.
    Start(usize),
    /// The server is told to stop.
    Stop(usize),
    /// The next commit takes seconds.
    Stuck(usize),
    /// The clients begin nothing more, and all faults are over.
    Quiet,
}

/// Schedules the faults of a run.
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
