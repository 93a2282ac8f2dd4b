//! The connection between the server's event loop and the store's worker. The simulator decides how long messages take.

use coordination_apiserver::journal::{Command, Event, Port};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Commands that the event loop sends to the worker, and events that the worker sends to the event loop.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) commands: VecDeque<Command>,
    /// Events of the worker that have not reached the event loop yet.
    pub(super) said: VecDeque<Event>,
    /// Events of the worker that have reached the event loop, and that it has not handled yet.
    pub(super) events: VecDeque<Event>,
}

/// The event loop's end of the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct SimPort(pub(super) Rc<RefCell<Queue>>);

impl Port for SimPort {
    fn send(&mut self, command: Command) {
        self.0.borrow_mut().commands.push_back(command);
    }

    fn next(&mut self) -> Option<Event> {
        self.0.borrow_mut().events.pop_front()
    }
}
