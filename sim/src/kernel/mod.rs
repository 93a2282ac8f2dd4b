//! Virtual time: what happens is an event in a queue, and the clock goes from one event to the next.
//!
//! Owned here: the clock, the queue, the random numbers, the network, the history and the log. Nothing of it knows a
//! Lease. Events of the same microsecond happen in the order in which they were scheduled, so a seed gives one run.

mod log;
mod net;
mod task;

pub use log::Log;
pub use net::{Inbound, LinkId, Net};
pub use task::{Context, Received, Task, TaskId};

use crate::check::history::History;
use crate::swarm::Swarm;
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Microseconds of a millisecond.
pub const MS: u64 = 1_000;
/// Microseconds of a second.
pub const SECOND: u64 = 1_000_000;
/// Wall clock at the beginning of every run, in microseconds since 1970.
pub const EPOCH_US: u64 = 1_767_225_600 * SECOND;

/// What all parts of a run share.
#[derive(Debug)]
pub struct Sim {
    /// What is on in this run.
    pub swarm: Swarm,
    /// Connections between clients and servers.
    pub net: RefCell<Net>,
    /// What clients did and saw.
    pub history: RefCell<History>,
    /// The readable log.
    pub log: RefCell<Log>,
    now_us: Cell<u64>,
    order: Cell<u64>,
    queue: RefCell<BinaryHeap<Reverse<Scheduled>>>,
    random: RefCell<Rng>,
    wall_offset_us: Cell<i64>,
    paused_us: Cell<u64>,
    last_tag: Cell<u64>,
    is_ending: Cell<bool>,
}

/// Something that happens.
#[derive(Debug)]
pub enum Event {
    /// A client can go on.
    Task(TaskId),
    /// Something reaches the client's end of a connection.
    ToClient(LinkId, Inbound),
    /// Something reaches the server's end of a connection.
    ToServer(LinkId, Inbound),
    /// Something happens to a server that was started as its `epoch`-th.
    Node {
        /// Index of the server.
        node: usize,
        /// Number of its start; an event of an earlier start is void.
        epoch: u64,
        /// What it is.
        what: NodeEvent,
    },
    /// Something happens in etcd, or on the way from it.
    Etcd(crate::etcd::EtcdEvent),
    /// A fault begins or ends.
    Fault(crate::faults::Fault),
}

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// The loop makes a turn.
    Turn,
    /// The worker has done its next command.
    Work,
    /// What the worker said reaches the loop.
    Deliver,
}

#[derive(Debug)]
struct Scheduled {
    at_us: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at_us, self.order) == (other.at_us, other.order)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.order).cmp(&(other.at_us, other.order))
    }
}

impl Sim {
    /// A run that has not begun.
    #[must_use]
    pub fn new(swarm: Swarm, random: Rng, log: Log) -> Self {
        Self {
            swarm,
            net: RefCell::default(),
            history: RefCell::default(),
            log: RefCell::new(log),
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

    /// Microseconds since the run began: true time, which nobody in the run can read.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us.get()
    }

    /// The wall clock, in microseconds since 1970. It jumps.
    #[must_use]
    pub fn wall_us(&self) -> u64 {
        (EPOCH_US + self.now_us()).saturating_add_signed(self.wall_offset_us.get())
    }

    /// Makes the wall clock jump.
    pub fn jump_wall(&self, by_us: i64) {
        self.wall_offset_us.set(self.wall_offset_us.get() + by_us);
    }

    /// Has `event` happen in `in_us`.
    pub fn schedule(&self, in_us: u64, event: Event) {
        self.schedule_at(self.now_us() + in_us, event);
    }

    /// Has `event` happen at `at_us`.
    pub fn schedule_at(&self, at_us: u64, event: Event) {
        let order = self.order.get();
        self.order.set(order + 1);
        self.queue.borrow_mut().push(Reverse(Scheduled { at_us: at_us.max(self.now_us()), order, event }));
    }

    /// Takes the next event until `end_us`, and sets the clock to its time.
    pub fn next(&self, end_us: u64) -> Option<Event> {
        let mut queue = self.queue.borrow_mut();
        if queue.peek()?.0.at_us > end_us {
            return None;
        }
        let Reverse(Scheduled { at_us, event, .. }) = queue.pop()?;
        self.now_us.set(at_us);
        Some(event)
    }

    /// Chance, for the world and its faults. Clients have their own.
    pub fn random<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.random.borrow_mut())
    }

    /// A time of renewal that no other write has: it tells which write a state comes from.
    pub fn new_tag(&self) -> u64 {
        let tag = self.wall_us().max(self.last_tag.get() + 1);
        self.last_tag.set(tag);
        tag
    }

    /// Whether clients are to begin nothing more.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// Has clients begin nothing more.
    pub fn end(&self) {
        self.is_ending.set(true);
    }

    /// Counts something that is worth it.
    pub fn count(&self, what: &'static str) {
        self.count_many(what, 1);
    }

    /// Records a pause of a process.
    pub fn note_pause(&self, for_us: u64) {
        self.paused_us.set(self.paused_us.get() + for_us);
    }

    /// Total length of all pauses of all processes so far, in microseconds.
    #[must_use]
    pub const fn paused_us(&self) -> u64 {
        self.paused_us.get()
    }

    /// Counts something that happened so often.
    pub fn count_many(&self, what: &'static str, times: u64) {
        *self.history.borrow_mut().counts.entry(what).or_default() += times;
    }

    /// Adds a line to the log, if there is one.
    pub fn say(&self, who: &str, what: impl FnOnce() -> String) {
        let mut log = self.log.borrow_mut();
        if log.is_on() {
            log.push(self.now_us(), who, &what());
        }
    }
}
