//! One start of a server. It runs the real service, journal, worker and store in the same order as the server's event
//! loop.

use super::conn::Conn;
use super::port::SimPort;
use crate::bugs::{self, Bug, Memory};
use crate::device::Device;
use crate::kernel::{Inbound, LinkId, Sim};
use coordination_apiserver::api::{Api, Storage};
use coordination_apiserver::buffer::Pool;
use coordination_apiserver::clock::Now;
use coordination_apiserver::engine::EngineError;
use coordination_apiserver::engine::disk::Disk;
use coordination_apiserver::journal::{Command, Config, Event, Journal, Limits, Worker};
use coordination_apiserver::resource::ResourceVersion;
use coordination_apiserver::serve::Service;
use coordination_apiserver::table::Table;
use coordination_apiserver::table::snapshot::{Range, Snapshot};
use coordination_apiserver::timestamp::Time;
use coordination_apiserver::tls::trust::Trust;
use coordination_apiserver::watch::{Fill, StopKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A running server: one start, until its end.
#[derive(Debug)]
pub(super) struct Server {
    service: Service,
    pool: Pool,
    conns: BTreeMap<LinkId, Conn>,
    port: SimPort,
    /// The worker of a store on disk; `None` if the store is in etcd.
    worker: Option<Worker>,
    front: bugs::front::Front,
    /// Time of this start of the server, in microseconds since the start of the run.
    started_us: u64,
    /// Whether the worker is executing a command, or the resulting event has not reached the event loop yet.
    pub(super) is_working: bool,
    /// Time of the event loop's next scheduled turn, in microseconds since the start of the run.
    pub(super) next_turn_us: Option<u64>,
    /// Deadline of an orderly stop, in milliseconds since this start of the server; `None` before the stop.
    stop_ms: Option<u64>,
    pub(super) has_loaded: bool,
}

/// Maximum size of the events in the event log, in bytes.
const WINDOW_BYTES: usize = 1 << 24;
/// Maximum number of discarded states of Leases that a turn of the event loop frees.
const DISCARDED_PER_TURN: usize = 64;
/// Name of the store in messages.
const STORE: &str = "store";

/// The state that a start of the server has loaded from its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// resourceVersion of the table.
    pub version: u64,
    /// Whether the table has no Lease, and its event log (from which watches read their events) has no event.
    pub is_new: bool,
    /// The Leases and the version of the table, as text.
    pub dump: String,
}

impl Server {
    /// Opens the store of `device`, and begins to load the table. Without `device` the store is in etcd.
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub(super) fn start(
        sim: &Sim,
        device: Option<&Device>,
        bug: Option<Bug>,
        memory: &Memory,
    ) -> Result<Self, EngineError> {
        let (seed, writer) = sim.random(|random| (random.u64(..), random.u64(..)));
        let mut worker = None;
        if let Some(device) = device {
            let disk = Disk::with_backend(Arc::new(device.attach()), STORE)?;
            worker = Some(Worker::new(bugs::engine::wrap(disk, bug, memory, seed), STORE));
        }
        let port = SimPort::default();
        let mut config = Config { is_shared: device.is_none(), ..Config::new(STORE, sim.wall_us()) };
        config.limits = Limits {
            batch_changes_max: sim.swarm.batch_changes_max,
            // The minimum size of a batch that the journal may hold back for more changes. A run has at most 15
            // writers, so almost no batch would reach the server's own minimum of 16 changes.
            gathered_changes_min: 2,
            waiting_changes_max: sim.swarm.waiting_changes_max,
            snapshot_bytes_min: sim.swarm.snapshot_bytes_min,
            journal_bytes_max: sim.swarm.journal_bytes_max,
            renewal_wait_ms: if device.is_none() { 30 } else { 0 },
            truncated_entries_max: 8,
            truncated_bytes_max: 4_096,
            dropped_chunks_max: 1,
            ..Limits::default()
        };
        let mut api = Api::new().with_seed(seed);
        let journal = Journal::new(bugs::port::wrap(port.clone(), bug), config, writer);
        api.storage = Storage::Journal(Box::new(journal));
        // After loading, the journal sets the version from which the table continues.
        let table = Table::new(ResourceVersion(0), sim.swarm.window_events, WINDOW_BYTES);
        Ok(Self {
            service: Service::new(api, table, Arc::new(Trust::none())),
            pool: Pool::default(),
            conns: BTreeMap::new(),
            port,
            worker,
            front: bugs::front::Front::new(bug),
            started_us: sim.now_us(),
            is_working: false,
            next_turn_us: None,
            stop_ms: None,
            has_loaded: false,
        })
    }

    fn now(&self, sim: &Sim) -> Now {
        let wall = i64::try_from(sim.wall_us() / 1_000_000).unwrap_or(i64::MAX);
        Now { ms: (sim.now_us() - self.started_us) / 1000, wall: Time(wall) }
    }

    /// Passes data that has arrived to its connection. `is_new` is true for the first data of a connection, which the
    /// server then accepts.
    pub(super) fn receive(&mut self, link: LinkId, what: Inbound, is_new: bool) {
        if is_new && self.stop_ms.is_none() && what != Inbound::End {
            self.conns.insert(link, Conn::new());
        }
        if let Some(conn) = self.conns.get_mut(&link) {
            let what = match what {
                Inbound::Bytes(bytes) => Inbound::Bytes(self.front.request(link, bytes, &self.service.table)),
                Inbound::End => Inbound::End,
            };
            conn.receive(what, &mut self.pool);
        }
    }

    /// Runs one turn of the event loop, in the order of `server::Server::turn`.
    ///
    /// # Errors
    /// If the journal cannot continue. The process then ends.
    pub(super) fn turn(&mut self, sim: &Sim) -> Result<(), EngineError> {
        let now = self.now(sim);
        self.service.date.update(now.wall);
        let conns = &mut self.conns;
        let mut wake = |token: mio::Token| {
            if let Some(conn) = conns.get_mut(&LinkId(token.0)) {
                conn.is_ready = true;
            }
        };
        self.service.advance_journal(now, sim.swarm.records_max, &mut wake)?;
        self.service.waiters.wake_late(now.ms, &mut wake);
        self.has_loaded = self.service.api.storage.journal().is_some_and(|journal| !journal.is_loading());
        for (link, conn) in &mut self.conns {
            if std::mem::take(&mut conn.is_ready) {
                conn.serve(*link, &mut self.service, sim.swarm.room, now);
            }
        }
        for (link, conn) in &mut self.conns {
            conn.do_long_work(*link, &mut self.service, now);
        }
        self.service.send_changes(now);
        self.fan_out(now);
        let (service, front) = (&mut self.service, &mut self.front);
        self.conns.retain(|link, conn| {
            conn.check_jobs(now);
            front.response(*link, &mut conn.output);
            !conn.flush(*link, service, sim)
        });
        self.service.table.discard_step(DISCARDED_PER_TURN);
        Ok(())
    }

    fn fan_out(&mut self, now: Now) {
        // With the argument 1, `notify` usually stops after the first change for which it finds a watcher. So runs
        // often test a turn that finds the watchers of only some changes, and leaves the rest to the next turn.
        self.service.watchers.notify(&self.service.table, 1);
        self.service.watchers.on_timeout(now);
        let mut again = Vec::new();
        while let Some((key, owner)) = self.service.watchers.pop_dirty() {
            let Some(conn) = self.conns.get_mut(&LinkId(owner.connection.0)) else {
                self.service.watchers.remove(key);
                continue;
            };
            match conn.fill_watch(owner.stream, key, &mut self.service, now) {
                None => self.service.watchers.remove(key),
                Some(Fill::More) => again.push(key),
                Some(Fill::Idle | Fill::Ended(_)) => {}
            }
        }
        for key in again {
            self.service.watchers.mark_dirty(key);
        }
        if !self.service.watchers.has_dirty() {
            self.service.table.mark_delivered();
        }
    }

    /// Returns when the next turn of the event loop is due, in microseconds since the start of the run. `None` if the
    /// event loop has no work and no deadline.
    pub(super) fn due_us(&self, sim: &Sim) -> Option<u64> {
        let journal = self.service.api.storage.journal();
        let can_go_on = self
            .conns
            .iter()
            .any(|(link, conn)| conn.is_ready && (conn.output.is_empty() || sim.net.borrow().room(*link) > 0));
        let has_work = journal.is_some_and(Journal::has_work)
            || self.service.watchers.has_dirty()
            || self.service.table.discarded_len() > 0;
        if can_go_on || has_work {
            return Some(sim.now_us() + 10);
        }
        let due_ms = [
            self.service.waiters.due_ms(),
            self.service.watchers.due_ms(),
            journal.and_then(Journal::due_ms),
            self.stop_ms,
        ];
        let due_ms = due_ms.into_iter().flatten().min()?;
        Some(self.started_us + (due_ms + 1) * 1000)
    }

    /// Whether a command for the store's worker is waiting.
    pub(super) fn has_command(&self) -> bool {
        self.worker.is_some() && !self.port.0.borrow().commands.is_empty()
    }

    /// Removes and returns the next command for etcd.
    pub(super) fn take_command(&mut self) -> Option<Command> {
        self.port.0.borrow_mut().commands.pop_front()
    }

    /// Queues an event from the model of etcd, which the next turn of the event loop handles.
    pub(super) fn hear(&mut self, event: Event) {
        self.port.0.borrow_mut().events.push_back(event);
    }

    /// Formats the version of the table and its Leases, to compare two replicas.
    pub(super) fn dump(&self) -> String {
        let table = &self.service.table;
        let mut text = format!("version {}", table.version().0);
        let mut snapshot = Snapshot::now(table, Range::All);
        let done = snapshot.next(table, usize::MAX, |object| {
            let (number, version) = (object.number().0, object.version.0);
            text += &format!("; {} {number} {version} {:?}", object.key().as_str(), object.lease());
            true
        });
        if done.is_ok() { text } else { "the table cannot list its current version".to_owned() }
    }

    /// Executes the worker's next command. The resulting event is delivered later. Returns the error message if the
    /// command failed.
    pub(super) fn work(&mut self) -> Option<String> {
        let worker = self.worker.as_mut()?;
        let command = self.port.0.borrow_mut().commands.pop_front()?;
        let event = worker.run(command);
        let failure = match &event {
            Event::Failed(error) => Some(error.to_string()),
            _ => None,
        };
        self.port.0.borrow_mut().said.push_back(event);
        failure
    }

    /// Delivers the worker's next event to the event loop.
    pub(super) fn deliver(&mut self) {
        let queue = &mut *self.port.0.borrow_mut();
        queue.events.extend(queue.said.pop_front());
    }

    /// Begins an orderly stop of the server.
    pub(super) fn stop(&mut self, sim: &Sim) {
        let now = self.now(sim);
        self.service.api.health.begin_shutdown();
        self.service.watchers.begin_shutdown(StopKind::Resumes);
        self.stop_ms = Some(now.ms + coordination_apiserver::limits::SHUTDOWN_MS_MAX);
        for conn in self.conns.values_mut() {
            conn.stop(&mut self.service);
        }
    }

    /// Whether an orderly stop is complete.
    pub(super) fn is_stopped(&self, sim: &Sim) -> bool {
        self.stop_ms.is_some_and(|stop_ms| self.conns.is_empty() || self.now(sim).ms >= stop_ms)
    }

    /// Ends an orderly stop: the worker executes its remaining commands and closes the store.
    pub(super) fn finish(mut self) {
        while self.has_command() {
            self.work();
        }
    }

    /// Returns the number of snapshots that the journal has completed since this start of the server.
    pub(super) fn snapshots(&self) -> u64 {
        self.service.api.storage.journal().map_or(0, |journal| journal.stats().snapshots)
    }

    /// Describes the table for the log.
    pub(super) fn describe(&self) -> String {
        let table = &self.service.table;
        format!("{} Leases at version {}, log from {}", table.len(), table.version().0, table.log().floor().0)
    }

    /// Returns the state that this start has loaded, to compare two loads of the same store.
    pub(super) fn loaded(&self) -> Loaded {
        let table = &self.service.table;
        let is_new = table.is_empty() && table.log().is_empty();
        Loaded { version: table.version().0, is_new, dump: self.dump() }
    }
}
