//! One kind of request over and over: what measures the server's cost, where the simulated nodes measure its promises.
//!
//! The generator has one core, like the server that it loads, so here it does as little for a request as it can: bytes
//! that are nearly what came last time, and light checks (the status; the same object; its version grows; a renewal
//! holds what was sent; no event is missing). [`driver`] is the turn of the loop, [`phase`] says how far it has come,
//! and [`transitions`] when a phase is over. [`feed`] is what is asked for next, on which [`lane`], and [`requests`]
//! how that is written; [`answers`] is what comes of it. [`lease`] is the objects (in [`protobuf`] too), [`watch`] the
//! watchers, [`tally`] the counts, [`report`] the results.

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
