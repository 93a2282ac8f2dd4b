//! The world of one run: machines, clients, etcd and faults, from the start of the run to its end.

use crate::bugs::Bug;
use crate::clients::{Client, auditor, crud, election, kubelet, lister, watcher};
use crate::device::{Operation, PowerCut};
use crate::etcd::Etcd;
use crate::faults::{self, Fault};
use crate::kernel::{Context, Event, Inbound, Link, MS, SECOND, Sim, Task, TaskId};
use crate::node::{Fate, Node, downtime_us};
use std::rc::Rc;

/// All machines and clients of a run.
#[derive(Debug)]
pub struct World {
    sim: Rc<Sim>,
    nodes: Vec<Node>,
    /// The model of etcd; `None` if the server has a disk.
    etcd: Option<Etcd>,
    tasks: Vec<Task>,
    /// Defects of the server that no client can see, in words.
    complaints: Vec<String>,
    /// Number of events that have happened in the run.
    steps: u64,
    /// Whether a commit with a duration of [`LONG_STUCK_US`] was planned. A run has at most one.
    has_been_stuck: bool,
}

/// Duration of a commit that lasts longer than the 60 s for which a write may wait, in microseconds.
const LONG_STUCK_US: std::ops::Range<u64> = 61 * SECOND..65 * SECOND;

/// Time from the end of all faults to the start of the final check, in microseconds.
const QUIET_US: u64 = 25 * SECOND;
/// Time from the start of the final check until a write must have succeeded, in microseconds.
const RECOVERY_US: u64 = 10 * SECOND;
/// Time from the start of the final check to the end of the run, in microseconds. By then, watchers must have received
/// all events.
const CATCH_UP_US: u64 = 40 * SECOND;

impl World {
    /// Creates the world, as it is when a run starts.
    #[must_use]
    pub fn new(sim: Rc<Sim>, bug: Option<Bug>) -> Self {
        let is_shared = sim.swarm.replicas > 0;
        let mut nodes: Vec<_> =
            (0..sim.swarm.replicas.max(1)).map(|index| Node::new(index, bug, sim.swarm.failed_syncs)).collect();
        nodes.iter_mut().for_each(|node| node.is_replica = is_shared);
        let mut world = Self {
            etcd: is_shared.then(|| Etcd::new(bug)),
            sim,
            nodes,
            tasks: Vec::new(),
            complaints: Vec::new(),
            steps: 0,
            has_been_stuck: false,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let swarm = self.sim.swarm.clone();
        (0..self.nodes.len()).for_each(|node| self.start(node));
        self.spawn("auditor", |context| watcher::run(context, None, false));
        for index in 0..swarm.watchers {
            let namespace = [Some(crud::NAMESPACE), Some(kubelet::NAMESPACE), None][index % 3].map(str::to_owned);
            let is_slow = swarm.has_slow_readers;
            self.spawn(&format!("watcher-{index}"), |context| watcher::run(context, namespace, is_slow));
        }
        for lock in 0..swarm.locks {
            for index in 0..swarm.candidates {
                let name = format!("candidate-{lock}{}", char::from(b'a' + u8::try_from(index).unwrap_or(0)));
                self.spawn(&name, |context| election::run(Client::new(context, 5 * SECOND), lock));
            }
        }
        for index in 0..swarm.kubelets {
            let name = format!("kubelet-{index}");
            self.spawn(&name, |context| kubelet::run(Client::new(context, swarm.within_us), index));
        }
        for index in 0..swarm.cruds {
            self.spawn(&format!("crud-{index}"), |context| crud::run(Client::new(context, swarm.within_us)));
        }
        for index in 0..swarm.listers {
            self.spawn(&format!("lister-{index}"), lister::run);
        }
        let at_us = swarm.duration_us + QUIET_US;
        self.spawn("inspector", |context| auditor::run(Client::new(context, 2 * SECOND), at_us, at_us + RECOVERY_US));
        faults::schedule(&self.sim);
    }

    fn spawn<F: Future<Output = ()> + 'static>(&mut self, name: &str, run: impl FnOnce(Context) -> F) {
        let id = TaskId(self.tasks.len());
        let random = self.sim.random(fastrand::Rng::fork);
        self.tasks.push(Task::new(run(Context::new(Rc::clone(&self.sim), id, name.to_owned(), random))));
        self.sim.schedule(0, Event::Task(id));
    }

    /// Runs the simulation to its end. Returns the defects of the server that no client can see, and the number of
    /// events.
    pub fn run(mut self) -> (Vec<String>, u64) {
        let end_us = self.sim.swarm.duration_us + QUIET_US + CATCH_UP_US;
        let sim = Rc::clone(&self.sim);
        while let Some(event) = sim.next(end_us) {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                self.complaints.push(format!("{STEPS_MAX} steps without an end: some events repeat forever"));
                break;
            }
            self.on_event(event);
        }
        self.compare_replicas();
        (self.complaints, self.steps)
    }

    /// Checks at the end that all replicas have equal tables.
    fn compare_replicas(&mut self) {
        if self.etcd.is_none() {
            return;
        }
        let first = self.nodes[0].dump();
        for node in &self.nodes {
            let dump = node.dump();
            if dump.is_none() || dump != first {
                self.complaints.push(format!("replica {} has {dump:?}, but replica 0 has {first:?}", node.index));
            }
        }
    }

    /// Passes the commands of a replica to the model of etcd.
    fn forward(&mut self, node: usize) {
        let Some(etcd) = &mut self.etcd else { return };
        let epoch = self.nodes[node].epoch;
        while let Some(command) = self.nodes[node].take_command() {
            etcd.send(&self.sim, node, epoch, command);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Task(task) => self.tasks[task.0].poll(),
            Event::ToClient(link, what) => {
                let owner = self.sim.net.borrow_mut().arrive(link, what);
                if let Some(owner) = owner {
                    self.tasks[owner.0].poll();
                }
            }
            Event::ToServer(link, what) => {
                let &Link { node, is_gone, .. } = self.sim.net.borrow().link(link);
                if !is_gone || what == Inbound::End {
                    self.nodes[node].receive(&self.sim, link, what);
                }
            }
            Event::Node { node, epoch, what } => {
                let fate = self.nodes[node].on_event(&self.sim, epoch, what);
                self.forward(node);
                self.on_fate(node, fate);
            }
            Event::Etcd(what) => {
                let heard = self.etcd.as_mut().map(|etcd| etcd.on_event(&self.sim, what)).unwrap_or_default();
                for (node, epoch, event) in heard {
                    self.nodes[node].hear(&self.sim, epoch, event);
                }
            }
            Event::Fault(fault) => self.on_fault(fault),
        }
    }

    fn on_fault(&mut self, fault: Fault) {
        let sim = Rc::clone(&self.sim);
        if !matches!(fault, Fault::Start(_)) {
            sim.say("fault", || format!("{fault:?}"));
        }
        match fault {
            Fault::CrashPoint(node) => {
                let operations = sim.random(|random| random.u64(0..30));
                self.nodes[node].device.set_faults(|faults| faults.crash_in = Some(operations));
            }
            Fault::Cut => {
                let choice = sim.random(|random| random.usize(..));
                let cut = sim.net.borrow_mut().cut(choice);
                if let Some((link, owner)) = cut {
                    sim.schedule(MS, Event::ToServer(link, Inbound::End));
                    self.tasks[owner.0].poll();
                }
            }
            Fault::Pause(node) => {
                let for_us = sim.random(|random| random.u64(SECOND..20 * SECOND));
                self.nodes[node].paused_until_us = sim.now_us() + for_us;
                sim.note_pause(for_us);
                sim.count("pauses");
            }
            Fault::Restored if !sim.swarm.restores_live => {
                (0..self.nodes.len()).for_each(|node| self.crash(node, None));
                self.etcd.iter_mut().for_each(Etcd::lose_requests);
                self.on_etcd_fault(fault);
            }
            Fault::Away
            | Fault::Parted(..)
            | Fault::WatchBroken(_)
            | Fault::WatchLoses(_)
            | Fault::Compacted
            | Fault::BackedUp
            | Fault::Restored => {
                self.on_etcd_fault(fault);
            }
            Fault::Full(_) if self.etcd.is_some() => {
                let for_us = sim.random(|random| random.u64(SECOND..8 * SECOND));
                sim.history.borrow_mut().full.push((sim.now_us(), sim.now_us() + for_us));
                self.etcd.iter_mut().for_each(|etcd| etcd.fill(&sim, for_us));
            }
            Fault::Full(node) => {
                self.nodes[node].device.set_faults(|faults| faults.is_full = true);
                let for_us = sim.random(|random| random.u64(SECOND..15 * SECOND));
                sim.history.borrow_mut().full.push((sim.now_us(), sim.now_us() + for_us));
                sim.schedule(for_us, Event::Fault(Fault::Room(node)));
            }
            Fault::IoError(node, operation) => {
                let soon = if operation == Operation::Sync { 2 } else { 10 };
                let operations = sim.random(|random| random.u64(0..soon));
                // A disk that fails once often fails completely. So half of the I/O errors are followed by a power cut.
                if sim.random(fastrand::Rng::bool) {
                    let in_us = sim.random(|random| random.u64(10 * MS..2 * SECOND));
                    sim.schedule(in_us, Event::Fault(Fault::PowerCut(node)));
                }
                self.nodes[node].device.set_faults(|faults| faults.error_in = Some((operations, operation)));
            }
            Fault::Jump => {
                let hour_us = 3_600 * 1_000_000;
                let by_us = sim.random(|random| if random.bool() { hour_us } else { -hour_us });
                sim.jump_wall(by_us);
            }
            Fault::Kill(node) => self.crash(node, None),
            Fault::PowerCut(node) => {
                let cut = sim.random(PowerCut::draw);
                self.crash(node, Some(cut));
            }
            Fault::Room(node) => self.nodes[node].device.set_faults(|faults| faults.is_full = false),
            Fault::Start(node) => self.start(node),
            Fault::Stop(node) => self.nodes[node].stop(&sim),
            // A server that does not run has no commit that could take long.
            Fault::Stuck(node) if !self.nodes[node].is_up() => {}
            Fault::Stuck(node) => {
                let is_early = sim.now_us() + LONG_STUCK_US.end < sim.swarm.duration_us + QUIET_US;
                let is_long = is_early && !self.has_been_stuck && sim.random(fastrand::Rng::bool);
                self.has_been_stuck |= is_long;
                let stuck_us = if is_long { LONG_STUCK_US } else { SECOND..8 * SECOND };
                self.nodes[node].stuck_us = sim.random(|random| random.u64(stuck_us));
            }
            Fault::Quiet => {
                sim.end();
                self.etcd.iter_mut().for_each(|etcd| etcd.heal(&sim));
                for node in &mut self.nodes {
                    node.stuck_us = 0;
                    node.paused_until_us = node.paused_until_us.min(sim.now_us());
                    node.device.set_faults(|faults| {
                        (faults.is_full, faults.crash_in, faults.error_in) = (false, None, None);
                    });
                }
                (0..self.nodes.len()).for_each(|node| self.start(node));
            }
        }
    }

    fn on_etcd_fault(&mut self, fault: Fault) {
        let Some(etcd) = &mut self.etcd else { return };
        let sim = &*self.sim;
        match fault {
            Fault::Away => etcd.go_away(sim, sim.random(|random| random.u64(100 * MS..10 * SECOND))),
            Fault::Parted(node, is_mute) => {
                etcd.part(sim, node, is_mute, sim.random(|random| random.u64(100 * MS..6 * SECOND)));
            }
            Fault::WatchBroken(node) => {
                etcd.break_watch(sim, node, sim.random(|random| random.u64(100 * MS..6 * SECOND)));
            }
            Fault::WatchLoses(node) => etcd.lose_next(node),
            Fault::BackedUp => etcd.back_up(),
            Fault::Restored => etcd.restore(sim),
            _ => etcd.compact(),
        }
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].is_up() {
            return;
        }
        if let Some(etcd) = &mut self.etcd {
            let fate = self.nodes[node].start(&self.sim);
            etcd.start(node, self.nodes[node].epoch);
            self.forward(node);
            return self.on_fate(node, fate);
        }
        let flips = self.flips(node);
        let is_closed = self.nodes[node].is_closed;
        self.try_flips(node, &flips, is_closed);
        // The store itself is damaged only after an orderly stop. After a crash, the server takes a damaged page of the
        // last commit for a torn page and drops the commit. So flipped bits could lose acknowledged writes.
        let flips = if is_closed { flips } else { Vec::new() };
        let whole = (!flips.is_empty()).then(|| self.nodes[node].device.copy());
        flips.iter().for_each(|(byte, bit)| self.nodes[node].device.flip(*byte, *bit));
        let fate = self.nodes[node].start(&self.sim);
        if let (Fate::Ended(why), Some(whole)) = (&fate, whole) {
            self.sim.count("stores with flips refused");
            self.sim.say("fault", || format!("refused: {why}; the file is put back"));
            // It is not enough to flip the bits back, since the failed start has written to the file.
            self.nodes[node].device.restore(&whole);
            let fate = self.nodes[node].start(&self.sim);
            return self.on_fate(node, fate);
        }
        self.on_fate(node, fate);
    }

    /// Draws the bits of the store that are flipped before a start of the server.
    fn flips(&self, node: usize) -> Vec<(usize, u8)> {
        let bytes = self.nodes[node].device.file_bytes();
        let is_on = self.sim.swarm.faults.flips > 0 && bytes > 0 && !self.sim.is_ending();
        if !is_on || self.sim.random(|random| random.u8(..3)) > 0 {
            return Vec::new();
        }
        let count = self.sim.random(|random| random.usize(1..=self.sim.swarm.faults.flips));
        self.sim.random(|random| (0..count).map(|_| (random.usize(..bytes), random.u8(..8))).collect())
    }

    /// Starts a server on a copy of the store with flipped bits. This server must load the same state, or report the
    /// damage. After a crash (not `is_closed`) the server may also drop the last commit. The simulator does not know
    /// the state before that commit. So the simulator accepts every state with a lower version, also one that lacks
    /// several commits.
    fn try_flips(&mut self, node: usize, flips: &[(usize, u8)], is_closed: bool) {
        if flips.is_empty() {
            return;
        }
        self.sim.say("fault", || format!("bits flipped in a copy: {flips:?}"));
        let whole = self.nodes[node].try_copy(&self.sim, &[]);
        let flipped = self.nodes[node].try_copy(&self.sim, flips);
        match (whole, flipped) {
            (Ok(whole), Ok(flipped)) if flipped == whole => self.sim.count("copies with flips loaded"),
            // After a crash, the last commit may be lost, with all changes of its batch. So the version is lower by an
            // unknown number. If that commit created the store, the server creates a new store, whose version may be
            // higher.
            (Ok(whole), Ok(flipped)) if !is_closed && (flipped.version < whole.version || whole.is_new) => {
                self.sim.count("copies with flips loaded");
            }
            (Ok(whole), Ok(flipped)) => {
                let what = format!("with flipped bits the server loads {flipped:?} instead of {whole:?}: {flips:?}");
                self.complaints.push(what);
            }
            (_, Err(why)) => {
                self.sim.count("copies with flips refused");
                self.sim.say("fault", || format!("refused: {why}"));
            }
            (Err(why), Ok(_)) => self.sim.say("fault", || format!("without flips refused: {why}")),
        }
    }

    fn crash(&mut self, node: usize, cut: Option<PowerCut>) {
        if !self.nodes[node].is_up() {
            return;
        }
        if cut.is_none() {
            self.sim.count("kills");
            self.sim.say(&format!("server-{node}"), || "killed".to_owned());
        }
        self.nodes[node].crash(&self.sim, cut);
        self.start_later(node);
    }

    /// Ends the connections of a server that has ended, and schedules the next start.
    fn start_later(&self, node: usize) {
        self.nodes[node].drop_links(&self.sim);
        let in_us = if self.sim.is_ending() { 100 * MS } else { downtime_us(&self.sim) };
        self.sim.schedule(in_us, Event::Fault(Fault::Start(node)));
    }

    fn on_fate(&mut self, node: usize, fate: Fate) {
        match fate {
            Fate::GoesOn => {}
            Fate::Stopped => self.start_later(node),
            Fate::PowerFailed => {
                self.sim.count("power cuts in an operation");
                let cut = self.sim.random(PowerCut::draw);
                self.nodes[node].crash(&self.sim, Some(cut));
                self.start_later(node);
            }
            Fate::Ended(why) => self.on_end(node, why),
        }
    }

    /// Handles the end of a server that ended by itself. Complains if neither the device nor etcd explains it.
    fn on_end(&mut self, node: usize, why: String) {
        self.sim.say(&format!("server-{node}"), || format!("ends: {why}"));
        let device = &self.nodes[node].device;
        // A full device explains only the end of a starting server. A serving server continues without space.
        let is_serving = self.nodes[node].is_serving();
        // etcd explains two ends of a replica: it must load the store again, or finds no space for a new store.
        let is_of_etcd = why.contains("must be loaded again") || !is_serving && why.contains("has no space");
        let is_explained = self.etcd.is_some() && is_of_etcd
            || device.set_faults(|faults| faults.has_failed || faults.was_full && !is_serving);
        if !is_explained {
            self.complaints.push(format!("the server ended without a known cause: {why}"));
        }
        self.sim.count("ends by an error");
        self.nodes[node].crash(&self.sim, None);
        self.start_later(node);
    }
}

/// Maximum number of events in a run. No run needs as many, unless some events repeat forever.
const STEPS_MAX: u64 = 2_000_000;
