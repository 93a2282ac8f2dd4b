//! Clients as tasks: sequential code that waits only for virtual time and for the network.

use super::{Event, LinkId, NodeEvent, Sim};
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Number of a client's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(pub usize);

/// The code of a client and its state, as a future.
pub struct Task(Option<Pin<Box<dyn Future<Output = ()>>>>);

/// A client's access to the simulation: clock, network, random numbers and log.
#[derive(Debug)]
pub struct Context {
    /// The shared state of the run.
    pub sim: Rc<Sim>,
    /// Number of the client's task.
    pub id: TaskId,
    /// Name of the client in the log.
    pub name: String,
    random: RefCell<Rng>,
    /// Earliest time for which a wake-up of the task is scheduled, in microseconds since the start of the run.
    wake_us: Cell<u64>,
}

/// What a client received on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes of the stream.
    Bytes(Vec<u8>),
    /// The end of the stream.
    End,
    /// Nothing arrived before the deadline.
    Nothing,
}

impl Task {
    /// Creates a task that has not run yet.
    pub fn new(future: impl Future<Output = ()> + 'static) -> Self {
        Self(Some(Box::pin(future)))
    }

    /// Runs the task until it waits.
    pub fn poll(&mut self) {
        let mut context = std::task::Context::from_waker(Waker::noop());
        if let Some(future) = &mut self.0
            && future.as_mut().poll(&mut context).is_ready()
        {
            self.0 = None;
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.0.is_some()).finish()
    }
}

impl Context {
    /// Creates the context of a client's task. `name` is the client's name in the log.
    #[must_use]
    pub fn new(sim: Rc<Sim>, id: TaskId, name: String, random: Rng) -> Self {
        Self { sim, id, name, random: RefCell::new(random), wake_us: Cell::new(u64::MAX) }
    }

    /// Draws from the client's own random numbers.
    pub fn random<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.random.borrow_mut())
    }

    /// Returns the true time in microseconds, which is the client's monotonic clock.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.sim.now_us()
    }

    /// Whether the client must start no new work, because the run ends.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.sim.is_ending()
    }

    /// Adds a line of this client to the log.
    pub fn say(&self, what: impl FnOnce() -> String) {
        self.sim.say(&self.name, what);
    }

    /// Waits for `us` microseconds.
    pub async fn sleep(&self, us: u64) {
        let end_us = self.now_us() + us;
        self.wake_at(end_us);
        poll_fn(|_| {
            if self.now_us() >= end_us {
                return Poll::Ready(());
            }
            self.wake_at(end_us);
            Poll::Pending
        })
        .await;
    }

    /// Waits for data of a connection, until `end_us` at the latest. If the client's receive window was full, wakes the
    /// server, which can now send more.
    pub async fn receive(&self, link: LinkId, end_us: u64) -> Received {
        poll_fn(|_| {
            let (bytes, full) = self.sim.net.borrow_mut().read(link);
            if let Some((node, epoch)) = full {
                self.sim.schedule(0, Event::Node { node, epoch, what: NodeEvent::Turn });
            }
            if !bytes.is_empty() {
                return Poll::Ready(Received::Bytes(bytes));
            }
            if self.sim.net.borrow().link(link).is_ended {
                return Poll::Ready(Received::End);
            }
            if self.now_us() >= end_us {
                return Poll::Ready(Received::Nothing);
            }
            self.wake_at(end_us);
            Poll::Pending
        })
        .await
    }

    fn wake_at(&self, at_us: u64) {
        // If an earlier wake-up is scheduled already, it is enough: the task then wakes too early, still has to wait,
        // and calls this function again.
        let wake_us = self.wake_us.get();
        if wake_us <= self.now_us() || at_us < wake_us {
            self.wake_us.set(at_us);
            self.sim.schedule_at(at_us, Event::Task(self.id));
        }
    }
}
