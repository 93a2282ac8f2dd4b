//! A seed, from its draw to its verdict.

use crate::bugs::Bug;
use crate::check::{self, history::Counts};
use crate::device::FailedSyncs;
use crate::kernel::{Log, Sim};
use crate::swarm::Swarm;
use crate::world::World;
use fastrand::Rng;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// What came of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong; empty if nothing is.
    pub complaints: Vec<String>,
    /// The readable log, if it was asked for.
    pub log: String,
    /// Requests.
    pub requests: usize,
    /// Events that watchers saw.
    pub events: usize,
    /// Steps of the run.
    pub steps: u64,
    /// What else is counted.
    pub counts: Counts,
}

impl Report {
    /// Adds the numbers of another one.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.events += other.events;
        self.steps += other.steps;
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }
}

/// What a run is told beside its seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A deliberate bug.
    pub bug: Option<Bug>,
    /// Whether there are replicas over etcd, or a server with a disk. None: some seeds have replicas.
    pub has_replicas: Option<bool>,
    /// Whether the log is kept.
    pub log: bool,
    /// What becomes of the page cache when a sync fails.
    pub failed_syncs: FailedSyncs,
    /// Whether replicas run on while etcd is restored.
    pub restores_live: bool,
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Report {
    let Options { bug, has_replicas, log, failed_syncs, restores_live } = options;
    // What the product makes of the thread's own chance follows from the seed too.
    fastrand::seed(seed);
    let mut random = Rng::with_seed(seed);
    let swarm = Swarm { failed_syncs, restores_live, ..Swarm::draw(&mut random) };
    let has_replicas = has_replicas.or_else(|| bug.map(Bug::is_of_etcd)).unwrap_or_else(|| seed.is_multiple_of(2));
    let swarm = if has_replicas { swarm.with_replicas(&mut random).with_restores(seed) } else { swarm };
    let restores = swarm.faults.restores;
    let sim = Rc::new(Sim::new(swarm, random, if log { Log::on() } else { Log::off() }));
    sim.say("seed", || format!("{seed}: {:?}", sim.swarm));
    let ran = catch_unwind(AssertUnwindSafe(|| World::new(Rc::clone(&sim), bug).run()));
    let (mut complaints, steps) = ran.unwrap_or_else(|panic| (vec![format!("panic: {}", text_of(&*panic))], 0));
    let history = sim.history.take();
    // What a restore takes was acknowledged. But all replicas must go on, and hold the same.
    complaints.extend(if restores > 0 { history.stalls.clone() } else { check::check(&history) });
    for complaint in &complaints {
        sim.say("checker", || complaint.clone());
    }
    Report {
        complaints,
        log: sim.log.take().into_text(),
        requests: history.ops.len() + history.lists.len(),
        events: history.feeds.iter().map(|feed| feed.events.len()).sum(),
        steps,
        counts: history.counts,
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
