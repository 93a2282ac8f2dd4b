//! A bench: one kind of request, repeated. A bench measures the server's cost. The simulated nodes check the server's
//! guarantees.
//!
//! The generator has one core, like the server that it loads, so it does as little as possible for each request. It
//! sends nearly the same bytes repeatedly. It checks the status, that the object is the same, that its version has
//! grown, its `renewTime`, and that no event is missing. [`driver`] has the event loop, [`phase`] the progress of the
//! bench, and [`transitions`] the end of each phase. [`feed`] chooses the next request and its [`lane`], [`requests`]
//! encodes it, and [`answers`] interprets the response. [`lease`] has the objects (also in [`protobuf`]), [`watch`] the
//! watchers, [`tally`] the counts, and [`report`] the results.

mod accounts;
mod answers;
mod args;
mod connections;
mod driver;
mod feed;
mod idle;
mod lane;
mod lease;
mod list;
mod pace;
mod phase;
mod places;
mod protobuf;
mod report;
mod requests;
mod tally;
mod transitions;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use args::BenchArgs;
pub(crate) use driver::Bench;
#[cfg(test)]
pub(crate) use report::Report;
