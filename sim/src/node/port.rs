//! The connection between the event loop and the worker. The simulator decides its delays.

use coordination_apiserver::journal::{Command, Event, Port};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Commands of the event loop for the worker, and events of the worker for the event loop.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) commands: VecDeque<Command>,
    /// Events of the worker that are not delivered yet.
    pub(super) said: VecDeque<Event>,
    /// Events of the worker that are delivered.
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
