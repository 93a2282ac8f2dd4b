//! One run, determined by a seed: draws load and faults, runs the world, and checks the history.

use crate::bugs::Bug;
use crate::check::{self, history::Counts};
use crate::device::FailedSyncs;
use crate::kernel::Sim;
use crate::swarm::Swarm;
use crate::world::World;
use clap::Args;
use coordination_apiserver::cli::DurableKind;
use fastrand::Rng;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Defects of the server that the run found, in words. The seed has failed if there is any.
    pub complaints: Vec<String>,
    /// The readable log, if it was requested.
    pub log: String,
    /// Number of requests that clients sent.
    pub requests: usize,
    /// Number of watch events that clients received.
    pub events: usize,
    /// Number of events that happened in the simulation.
    pub steps: u64,
    /// Counts of notable events, such as kills, by name.
    pub counts: Counts,
}

impl Report {
    /// Adds the numbers of another report.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.events += other.events;
        self.steps += other.steps;
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }
}

/// Options of a run. They are flags of the program.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Options {
    /// Prints the log of the run. Each line has the virtual time, the actor and the action
    #[arg(long, requires = "seed")]
    pub log: bool,

    /// Runs seeds with a deliberate bug in the server, its store or etcd, until a seed finds the bug
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub bug: Option<Bug>,

    /// State of the page cache after a failed sync: pages stay dirty (kept), pages are marked clean as on Linux
    /// (forgotten), or they are marked clean and dropped at the next start of the server (cold). With `forgotten` some
    /// seeds fail: the disk ignores the server's order to drop the pages. So a server that starts again relies on pages
    /// that the next power cut loses
    #[arg(long, value_name = "kept|forgotten|cold", default_value = "kept", hide_possible_values = true)]
    pub failed_syncs: FailedSyncs,

    /// One server with a disk, or 1 to 5 replicas over etcd [default: that of the bug, or a disk for odd seeds and etcd
    /// for even ones]
    #[arg(long, value_name = "disk|etcd", hide_possible_values = true)]
    pub storage: Option<DurableKind>,

    /// Lets replicas run while etcd is restored from a backup. Operators must stop all replicas first. So some seeds
    /// fail with this flag
    #[arg(long)]
    pub restores_live: bool,
}

/// Runs the simulation of one seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Report {
    let Options { bug, storage, log, failed_syncs, restores_live } = options;
    // The server's code draws from the thread's generator of `fastrand`, so the seed must determine that generator too.
    fastrand::seed(seed);
    let mut random = Rng::with_seed(seed);
    let swarm = Swarm { failed_syncs, restores_live, ..Swarm::draw(&mut random) };
    let has_replicas = match storage {
        Some(storage) => storage == DurableKind::Etcd,
        None => bug.map_or_else(|| seed.is_multiple_of(2), Bug::is_of_etcd),
    };
    let swarm = if has_replicas { swarm.with_replicas(&mut random).with_restores(seed) } else { swarm };
    let restores = swarm.faults.restores;
    let sim = Rc::new(Sim::new(swarm, random, log));
    sim.say("seed", || format!("{seed}: {:?}", sim.swarm));
    let ran = catch_unwind(AssertUnwindSafe(|| World::new(Rc::clone(&sim), bug).run()));
    let (mut complaints, steps) = ran.unwrap_or_else(|panic| (vec![format!("panic: {}", text_of(&*panic))], 0));
    let history = sim.history.take();
    // A restore of etcd removes acknowledged writes, so the history of such a run is not checked. Only its `stalls`
    // count: complaints about a write or a list that did not succeed at the end of the run. `World` has already
    // compared the tables of the replicas.
    complaints.extend(if restores > 0 { history.stalls.clone() } else { check::check(&history) });
    for complaint in &complaints {
        sim.say("checker", || complaint.clone());
    }
    Report {
        complaints,
        log: sim.log.take().unwrap_or_default(),
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
