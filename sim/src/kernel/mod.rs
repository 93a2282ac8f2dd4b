//! The simulation's core: events wait in a queue, and the virtual clock moves from one event to the next.
//!
//! This module owns the clock, the queue of events, the random numbers, the network, the history and the log. It does
//! not know Leases. Events of the same microsecond happen in the order of their scheduling, so a seed always gives the
//! same run.

mod net;
mod task;

pub use net::{Inbound, Link, LinkId, Net};
pub use task::{Context, Received, Task, TaskId};

use crate::check::history::History;
use crate::swarm::Swarm;
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Microseconds in a millisecond.
pub const MS: u64 = 1_000;
/// Microseconds in a second.
pub const SECOND: u64 = 1_000_000;
/// Wall clock at the start of every run, in microseconds since 1970.
pub const EPOCH_US: u64 = 1_767_225_600 * SECOND;

/// State that all parts of a run share.
#[derive(Debug)]
pub struct Sim {
    /// Load and faults of this run.
    pub swarm: Swarm,
    /// Connections between clients and servers.
    pub net: RefCell<Net>,
    /// Requests and observations of the clients.
    pub history: RefCell<History>,
    /// The readable log: virtual time, actor and action in each line. `None` if it was not requested.
    pub log: RefCell<Option<String>>,
    now_us: Cell<u64>,
    order: Cell<u64>,
    /// Events to come, by their time and the order of their scheduling.
    queue: RefCell<BTreeMap<(u64, u64), Event>>,
    random: RefCell<Rng>,
    /// Sum of all jumps of the wall clock, in microseconds.
    wall_offset_us: Cell<i64>,
    paused_us: Cell<u64>,
    /// Last `renewTime` that [`Sim::new_tag`] returned, in microseconds since 1970.
    last_tag: Cell<u64>,
    is_ending: Cell<bool>,
}

/// An event of a run.
#[derive(Debug)]
pub enum Event {
    /// A client's task can continue.
    Task(TaskId),
    /// Bytes or the end of the stream arrive at the client's end of a connection.
    ToClient(LinkId, Inbound),
    /// Bytes or the end of the stream arrive at the server's end of a connection.
    ToServer(LinkId, Inbound),
    /// An event in a server.
    Node {
        /// Index of the server's machine.
        node: usize,
        /// Number of the server's start. If this start has ended, the event has no effect.
        epoch: u64,
        /// Kind of the event in the server.
        what: NodeEvent,
    },
    /// An event in etcd, or between etcd and a replica.
    Etcd(crate::etcd::EtcdEvent),
    /// A fault begins, or a former fault ends.
    Fault(crate::faults::Fault),
}

/// Kind of an event in a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// The event loop runs a turn.
    Turn,
    /// The worker, which reads and writes the store, executes its next command.
    Work,
    /// The worker's response to a command reaches the event loop.
    Deliver,
}

impl Sim {
    /// Creates the state at the start of a run. `has_log` requests the readable log.
    #[must_use]
    pub fn new(swarm: Swarm, random: Rng, has_log: bool) -> Self {
        Self {
            swarm,
            net: RefCell::default(),
            history: RefCell::default(),
            log: RefCell::new(has_log.then(String::new)),
            now_us: Cell::new(0),
            order: Cell::new(0),
            queue: RefCell::default(),
            random: RefCell::new(random),
            wall_offset_us: Cell::new(0),
            paused_us: Cell::new(0),
            last_tag: Cell::new(0),
            is_ending: Cell::new(false),
        }
    }

    /// Returns the true time: microseconds since the start of the run. It never jumps.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us.get()
    }

    /// Returns the time of the wall clock, in microseconds since 1970. The wall clock can jump.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        (EPOCH_US + self.now_us()).saturating_add_signed(self.wall_offset_us.get())
    }

    /// Moves the wall clock by `by_us`.
    pub fn jump_wall(&self, by_us: i64) {
        self.wall_offset_us.set(self.wall_offset_us.get() + by_us);
    }

    /// Schedules `event` at `in_us` microseconds from now.
    pub fn schedule(&self, in_us: u64, event: Event) {
        self.schedule_at(self.now_us() + in_us, event);
    }

    /// Schedules `event` at `at_us`, in microseconds since the start of the run.
    pub fn schedule_at(&self, at_us: u64, event: Event) {
        let order = self.order.get();
        self.order.set(order + 1);
        self.queue.borrow_mut().insert((at_us.max(self.now_us()), order), event);
    }

    /// Removes the next event from the queue and sets the clock to the event's time. Returns `None` if no event is due
    /// by `end_us`.
    pub fn next(&self, end_us: u64) -> Option<Event> {
        let mut queue = self.queue.borrow_mut();
        let ((at_us, _), event) = queue.first_entry().filter(|next| next.key().0 <= end_us)?.remove_entry();
        self.now_us.set(at_us);
        Some(event)
    }

    /// Draws from the random numbers of the servers, the network and the faults. Each client has its own random
    /// numbers.
    pub fn random<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.random.borrow_mut())
    }

    /// Returns a `renewTime` that no other write has, in microseconds since 1970. So the `renewTime` identifies the
    /// write.
    pub fn new_tag(&self) -> u64 {
        let tag = self.wall_us().max(self.last_tag.get() + 1);
        self.last_tag.set(tag);
        tag
    }

    /// Whether clients must start no new work, because the run ends.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// Makes clients start no new work, because the run ends.
    pub fn end(&self) {
        self.is_ending.set(true);
    }

    /// Counts a notable event, such as `kills`.
    pub fn count(&self, what: &'static str) {
        self.count_many(what, 1);
    }

    /// Adds a pause of a process to the total of all pauses. `for_us` is its length in microseconds.
    pub fn note_pause(&self, for_us: u64) {
        self.paused_us.set(self.paused_us.get() + for_us);
    }

    /// Returns the total length of all pauses of all processes so far, in microseconds.
    #[must_use]
    pub const fn paused_us(&self) -> u64 {
        self.paused_us.get()
    }

    /// Adds `times` to the count of a notable event.
    pub fn count_many(&self, what: &'static str, times: u64) {
        *self.history.borrow_mut().counts.entry(what).or_default() += times;
    }

    /// Adds a line to the log, if the log was requested. `who` is the actor.
    pub fn say(&self, who: &str, what: impl FnOnce() -> String) {
        if let Some(log) = &mut *self.log.borrow_mut() {
            let (seconds, us) = (self.now_us() / SECOND, self.now_us() % SECOND);
            writeln!(log, "{seconds:>5}.{us:06}  {who:<14} {}", what()).expect("a String takes everything");
        }
    }
}
