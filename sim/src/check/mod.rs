//! The checker: what the history says about the server. It knows the API and nothing of the implementation.
//!
//! Every write sets a time of renewal that no other write has, so each state tells the request that wrote it; every
//! version names one state. So there is no search for an order: the versions are the order, and each request must fit
//! into it between the moment when it was sent and the moment when it was answered.

mod feeds;
pub mod history;
mod leaders;
mod reads;
mod timeline;
mod writes;

use history::History;
use timeline::Timeline;

/// What is wrong with a history.
#[must_use]
pub fn check(history: &History) -> Vec<String> {
    let mut complaints = [&history.stalls[..], &history.complaints].concat();
    let timeline = Timeline::of(history, &mut complaints);
    writes::check(history, &timeline, &mut complaints);
    reads::check(history, &timeline, &mut complaints);
    feeds::check(history, &timeline, &mut complaints);
    leaders::check(history, &mut complaints);
    complaints
}
