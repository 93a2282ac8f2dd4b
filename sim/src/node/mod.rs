//! A simulated machine with a server: its device, and the starts and ends of the server.

mod conn;
mod port;
mod server;

use crate::bugs::{Bug, Memory};
use crate::device::{Device, FailedSyncs, PowerCut};
use crate::kernel::{Event, Inbound, LinkId, MS, NodeEvent, SECOND, Sim};
use coordination_apiserver::journal::{Command, Event as JournalEvent};
use server::{Loaded, Server};

/// A machine that runs at most one server at a time.
#[derive(Debug, Default)]
pub struct Node {
    /// Index among the machines.
    pub index: usize,
    /// Device for the server's store on disk.
    pub device: Device,
    /// Whether the store is etcd, so that the device is unused.
    pub is_replica: bool,
    /// End of the pause of the server's process, in microseconds since the start of the run.
    pub paused_until_us: u64,
    /// Number of starts and ends of the server so far. The number identifies the current start.
    pub epoch: u64,
    server: Option<Server>,
    bug: Option<Bug>,
    memory: Memory,
    /// Additional duration of the server's next commit, in microseconds.
    pub stuck_us: u64,
    /// Whether the last end of the server was an orderly stop, which closed the store.
    pub is_closed: bool,
    /// Whether the log has a line about the loaded table of the current start.
    said_loaded: bool,
}

/// The state of a server after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The server continues.
    GoesOn,
    /// The server has completed an orderly stop.
    Stopped,
    /// The power failed during an operation of the device.
    PowerFailed,
    /// The server ended with this error message.
    Ended(String),
}

impl Node {
    /// Creates a machine with an empty device.
    #[must_use]
    pub fn new(index: usize, bug: Option<Bug>, failed_syncs: FailedSyncs) -> Self {
        let device = Device::default();
        device.set_faults(|faults| faults.failed_syncs = failed_syncs);
        if let Some(bug) = bug {
            bug.prepare(&device);
        }
        Self { index, device, bug, ..Self::default() }
    }

    /// Removes and returns the server's next command for etcd.
    pub fn take_command(&mut self) -> Option<Command> {
        self.server.as_mut()?.take_command()
    }

    /// Passes an event of etcd to the server, if the event is for the current start of the server.
    pub fn hear(&mut self, sim: &Sim, epoch: u64, event: JournalEvent) {
        if epoch == self.epoch
            && let Some(server) = &mut self.server
        {
            server.hear(event);
            self.wake(sim, 0);
        }
    }

    /// Returns the Leases and the version of the server's table as text; `None` if the table is not loaded.
    #[must_use]
    pub fn dump(&self) -> Option<String> {
        self.server.as_ref().filter(|server| server.has_loaded).map(Server::dump)
    }

    /// Whether the server runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.server.is_some()
    }

    /// Whether the server runs and has loaded its table.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.has_loaded)
    }

    fn name(&self) -> String {
        format!("server-{}", self.index)
    }

    /// Starts the server.
    pub fn start(&mut self, sim: &Sim) -> Fate {
        self.epoch += 1;
        self.said_loaded = false;
        let device = if self.is_replica { None } else { Some(&self.device) };
        match Server::start(sim, device, self.bug, &self.memory) {
            Ok(server) => {
                sim.say(&self.name(), || format!("start {}", self.epoch));
                sim.count("starts");
                self.server = Some(server);
                self.is_closed = false;
                self.wake(sim, 0);
                Fate::GoesOn
            }
            Err(_) if self.device.set_faults(|faults| faults.has_crashed) => Fate::PowerFailed,
            Err(error) => Fate::Ended(error.to_string()),
        }
    }

    /// Ends the server at once, as a kill or an error does. With `cut`, the power of the machine fails too.
    pub fn crash(&mut self, sim: &Sim, cut: Option<PowerCut>) {
        self.device.detach();
        self.count_end(sim);
        self.stuck_us = 0;
        self.paused_until_us = 0;
        // The device was detached first, so writes by the server's destructors do not reach the device.
        self.server = None;
        self.epoch += 1;
        self.is_closed = false;
        if let Some(cut) = cut {
            sim.count("power cuts");
            sim.say(&self.name(), || format!("power cut: {cut:?}"));
            sim.random(|random| self.device.cut_power(random, cut));
        }
    }

    fn count_end(&self, sim: &Sim) {
        if let Some(server) = &self.server {
            sim.count_many("snapshots", server.snapshots());
            if !server.has_loaded {
                sim.count("ends while loading");
            }
        }
    }

    /// Begins an orderly stop.
    pub fn stop(&mut self, sim: &Sim) {
        let name = self.name();
        if let Some(server) = &mut self.server {
            sim.say(&name, || "stops".to_owned());
            server.stop(sim);
            self.wake(sim, 0);
        }
    }

    /// Passes data that has arrived on a connection to the server. Without a server, the connection ends.
    pub fn receive(&mut self, sim: &Sim, link: LinkId, what: Inbound) {
        let known = sim.net.borrow().link(link).epoch;
        let is_lost = known.is_some_and(|epoch| epoch != self.epoch);
        match &mut self.server {
            Some(server) if !is_lost => {
                sim.net.borrow_mut().accept(link, self.epoch);
                server.receive(link, what, known.is_none());
                let delay_us = sim.random(|random| random.u64(..300));
                self.wake(sim, delay_us);
            }
            // The server is down, or was restarted and does not know the connection.
            _ if what != Inbound::End => sim.send_to_client(link, Inbound::End),
            _ => {}
        }
    }

    /// Handles an event in the server, if the event is for the current start of the server.
    pub fn on_event(&mut self, sim: &Sim, epoch: u64, what: NodeEvent) -> Fate {
        if epoch != self.epoch {
            return Fate::GoesOn;
        }
        let Some(server) = &mut self.server else { return Fate::GoesOn };
        if what == NodeEvent::Turn && sim.now_us() < self.paused_until_us {
            sim.schedule_at(self.paused_until_us, Event::Node { node: self.index, epoch, what });
            return Fate::GoesOn;
        }
        match what {
            NodeEvent::Turn => {
                if server.next_turn_us.is_some_and(|at_us| at_us <= sim.now_us()) {
                    server.next_turn_us = None;
                }
                if let Err(error) = server.turn(sim) {
                    return Fate::Ended(error.to_string());
                }
                if server.is_stopped(sim) {
                    return self.finish(sim);
                }
                self.after_turn(sim)
            }
            NodeEvent::Work => {
                let failure = server.work();
                if self.device.set_faults(|faults| faults.has_crashed) {
                    return Fate::PowerFailed;
                }
                if let Some(failure) = failure {
                    sim.say(&self.name(), || format!("worker: {failure}"));
                }
                let delay_us = sim.random(|random| random.u64(10..2 * MS));
                sim.schedule(delay_us, Event::Node { node: self.index, epoch, what: NodeEvent::Deliver });
                Fate::GoesOn
            }
            NodeEvent::Deliver => {
                server.deliver();
                server.is_working = false;
                self.wake(sim, 0);
                Fate::GoesOn
            }
        }
    }

    fn after_turn(&mut self, sim: &Sim) -> Fate {
        let Some(server) = &mut self.server else { return Fate::GoesOn };
        if server.has_loaded && !self.said_loaded {
            self.said_loaded = true;
            let what = server.describe();
            sim.say(&format!("server-{}", self.index), || format!("loaded: {what}"));
        }
        if server.has_command() && !server.is_working {
            server.is_working = true;
            let usual_us = sim.random(|random| random.u64(50..50 + sim.swarm.commit_us_max));
            let in_us = usual_us + std::mem::take(&mut self.stuck_us);
            sim.schedule(in_us, Event::Node { node: self.index, epoch: self.epoch, what: NodeEvent::Work });
        }
        if let Some(due_us) = server.due_us(sim) {
            self.wake(sim, due_us.saturating_sub(sim.now_us()));
        }
        Fate::GoesOn
    }

    fn finish(&mut self, sim: &Sim) -> Fate {
        let Some(server) = self.server.take() else { return Fate::GoesOn };
        sim.count_many("snapshots", server.snapshots());
        sim.count("orderly stops");
        server.finish();
        if self.device.set_faults(|faults| faults.has_crashed) {
            return Fate::PowerFailed;
        }
        self.epoch += 1;
        self.is_closed = true;
        self.device.detach();
        sim.say(&self.name(), || "stopped".to_owned());
        Fate::Stopped
    }

    /// Ends the connections that earlier starts of the server had accepted.
    pub fn drop_links(&self, sim: &Sim) {
        let lost = sim.net.borrow_mut().of_earlier(self.index, self.epoch);
        for link in lost {
            sim.send_to_client(link, Inbound::End);
        }
    }

    fn wake(&mut self, sim: &Sim, in_us: u64) {
        let Some(server) = &mut self.server else { return };
        let at_us = sim.now_us() + in_us;
        if server.next_turn_us.is_none_or(|turn_us| at_us < turn_us) {
            server.next_turn_us = Some(at_us);
            sim.schedule_at(at_us, Event::Node { node: self.index, epoch: self.epoch, what: NodeEvent::Turn });
        }
    }

    /// Starts a server on a copy of the device in which bits are flipped. Returns the state that this server has
    /// loaded.
    ///
    /// # Errors
    /// If the server refuses to load the copy: its message.
    pub fn try_copy(&self, sim: &Sim, flips: &[(usize, u8)]) -> Result<Loaded, String> {
        let copy = self.device.copy();
        for (byte, bit) in flips {
            copy.flip(*byte, *bit);
        }
        let mut server =
            Server::start(sim, Some(&copy), None, &Memory::default()).map_err(|error| error.to_string())?;
        for _ in 0..COPY_TURNS_MAX {
            server.turn(sim).map_err(|error| error.to_string())?;
            if server.has_loaded {
                return Ok(server.loaded());
            }
            while server.has_command() {
                server.work();
                server.deliver();
            }
        }
        Err("it did not load".to_owned())
    }
}

/// Maximum number of event-loop turns in which a server loads a copy. Any table of a run needs fewer.
const COPY_TURNS_MAX: usize = 100_000;

/// Draws the time for which a machine is down after its server has ended, in microseconds.
#[must_use]
pub fn downtime_us(sim: &Sim) -> u64 {
    sim.random(|random| if random.u8(..6) == 0 { random.u64(..20 * SECOND) } else { random.u64(10 * MS..2 * SECOND) })
}
