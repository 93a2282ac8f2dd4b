//! One kind of request over and over: what measures the server's cost, where the simulated nodes measure its promises.
//!
//! The generator has one core, like the server that it loads, so here it does as little for a request as it can: bytes that
//! are nearly what came last time, and light checks (the status; the same object; its version grows; a renewal holds what
//! was sent; no event is missing). [`driver`] is the turn of the loop and the phases, [`lease`] the objects (in [`protobuf`] too), [`watch`] the
//! watchers, [`tally`] the counts and the results.

mod args;
mod driver;
mod lease;
mod list;
mod protobuf;
mod ring;
mod tally;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use args::BenchArgs;
pub(crate) use driver::Bench;
#[cfg(test)]
pub(crate) use tally::Report;
