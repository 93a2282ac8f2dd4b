//! Fairness: which work a turn of the event loop does, and how much.
//!
//! | File | What it bounds |
//! |---|---|
//! | [`pace`] | the time of all requests in a turn |
//! | [`budget`] | the requests of one connection in a turn, and the time of one kind of work |
//! | [`queues`] | the order in which connections are served, and the turns in which long work continues |
//! | [`permits`] | the concurrent long responses of one user, and of all users |
//!
//! The values of most bounds are in [`limits`](crate::limits), and the others in the modules themselves.

mod budget;
mod pace;
mod permits;
mod queues;

pub use budget::Budget;
pub(crate) use budget::TimeBudget;
pub use pace::Pace;
pub(crate) use permits::Permits;
pub use permits::{Permit, Requester};
pub use queues::LongState;
pub(crate) use queues::{Mark, Place, Queues};
