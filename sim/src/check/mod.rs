//! The checker: finds faults of the server in the history of a run. It knows the API, but not the implementation.
//!
//! Every write has a unique `renewTime`, so each state identifies the request that wrote it. Every resourceVersion
//! names one state. The checker therefore need not search for an order of the writes: the versions give the order. Each
//! request must fit into this order, between its sending and its response.

mod feeds;
pub mod history;
mod leaders;
mod reads;
mod timeline;
mod writes;

use history::History;
use timeline::Timeline;

/// Returns the faults of the server that a history shows, in words.
#[must_use]
pub fn check(history: &History) -> Vec<String> {
    let mut complaints = [&history.stalls[..], &history.complaints].concat();
    let by_tag = history.by_tag();
    let timeline = Timeline::of(history, &by_tag, &mut complaints);
    writes::check(history, &timeline, &by_tag, &mut complaints);
    reads::check(history, &timeline, &mut complaints);
    feeds::check(history, &timeline, &mut complaints);
    leaders::check(history, &mut complaints);
    complaints
}
