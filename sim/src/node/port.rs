//! The connection between the loop and the worker. The simulator decides its delays.

use coordination_apiserver::journal::{Command, Event, Port};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Commands for the worker, and its events.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) commands: VecDeque<Command>,
    /// Events that are not delivered yet.
    pub(super) said: VecDeque<Event>,
    /// Events that are delivered.
    pub(super) events: VecDeque<Event>,
}

/// The loop's end of the connection.
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
