//! A bench: one kind of request, repeated. A bench measures the server's cost, while the simulated nodes check the
//! server's promises.
//!
//! The generator has one core, like the server that it loads, so it does as little as it can for a request. It sends
//! nearly the same bytes as before. It makes light checks: the status; the same object; a growing version; the
//! `renewTime` that was sent; no missing event. [`driver`] is the turn of the loop, [`phase`] the progress of the
//! bench, and [`transitions`] the end of each phase. [`feed`] chooses the next request and its [`lane`], [`requests`]
//! writes it, and [`answers`] interprets the answer. [`lease`] has the objects (also in [`protobuf`]), [`watch`] the
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
