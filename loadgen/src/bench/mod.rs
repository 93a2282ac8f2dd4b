//! A bench: one kind of request, repeated, to measure the server's cost for each request. The run without `bench`
//! instead checks the guarantees of the API.
//!
//! The generator has one thread, as the server's event loop does. So the generator does as little as possible for each
//! request, or it would be the limit. It sends nearly the same bytes repeatedly. For a response it checks the status,
//! the bytes before the version, that the version has grown, and the `renewTime`. For the watchers it checks that no
//! event is missing. [`workload`] connects the other modules, [`phase`] names the phases, and [`transitions`] decides
//! when each phase ends. [`feed`] chooses the next request and the [`lane`] that sends it. [`requests`] encodes the
//! request, and [`answers`] interprets the response. [`lease`] stores the Leases, in JSON or [`protobuf`]. [`watch`]
//! implements the watchers, [`tally`] counts, and [`report`] formats the results.

mod accounts;
mod answers;
mod args;
mod connections;
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
mod workload;

#[cfg(test)]
mod tests;

pub(crate) use args::BenchArgs;
#[cfg(test)]
pub(crate) use report::Report;
pub(crate) use workload::Bench;
