//! The way to the worker and back, whose times the simulator decides.

use coordination_apiserver::journal::{Command, Event, Port};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Commands for the worker, and what it said.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) commands: VecDeque<Command>,
    /// Said, and not yet delivered.
    pub(super) said: VecDeque<Event>,
    /// Delivered.
    pub(super) events: VecDeque<Event>,
}

/// The loop's end.
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
