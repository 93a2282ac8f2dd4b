//! Long requests: requests whose processing takes long. They have a separate queue.
//!
//! A front proxy's connection carries the requests of all its clients. Some requests take a thousand times as long as
//! a renewal, such as a small patch of a Lease of a megabyte. If requests were served in arrival order, fifty long
//! requests would delay all renewals for seconds. So long requests wait in a separate queue. The event loop serves one
//! long request of all connections at a time ([`Queues`](crate::schedule)). So other requests wait for one long request
//! at a time.
//!
//! A request is long if its body is longer than that of a plain request, or if the Lease that it names is large. A body
//! may take far longer than a stored Lease of the same size: for example YAML, or a patch that copies a text often. The
//! Lease is looked up only while the table contains any large Lease.

use super::Http2;
use super::receive::Whole;
use crate::limits::PLAIN_REQUEST_BYTES_MAX;
use crate::schedule::LongState;
use crate::serve::{AfterStep, Context, named_lease};
use crate::table::Table;
use std::collections::VecDeque;

/// The long requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Long {
    /// Requests in arrival order; the streams of some may have been reset.
    queue: VecDeque<Whole>,
    /// State that [`Long::note_state`] recorded when the connection was served last: whether the event loop may serve a
    /// request of `queue` now. `None` if no state was recorded yet.
    state: Option<LongState>,
    /// Number of streams reset since requests of reset streams were last removed from the queue.
    resets: usize,
}

impl Long {
    /// Queues `whole` if it is a long request. Otherwise returns it.
    #[inline]
    pub(super) fn sort_out(&mut self, whole: Whole, table: &Table) -> Option<Whole> {
        if !is_long(&whole, table) {
            return Some(whole);
        }
        self.queue.push_back(whole);
        None
    }

    /// Notes the state of the queued requests after the connection was served.
    pub(super) fn note_state(&mut self, state: LongState) {
        self.state = Some(state);
    }

    /// Returns the state of the queued requests.
    pub(super) fn state(&self) -> LongState {
        self.state.filter(|_| !self.queue.is_empty()).unwrap_or(LongState::Gone)
    }

    /// Whether no request is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Iterates over the queued requests.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Whole> {
        self.queue.iter()
    }

    /// Drops the queued requests.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

impl Http2 {
    /// Serves the first long request. Returns how the connection continues.
    pub fn serve_long_request(&mut self, cx: &mut Context<'_>) -> AfterStep {
        while let Some(first) = self.long.queue.pop_front() {
            // A request whose stream was reset takes no time, so the next long request may be served.
            if self.serve_one(first, cx) {
                break;
            }
        }
        if self.connection.is_finished() { AfterStep::Close } else { AfterStep::GoOn }
    }

    /// Notes that a stream was reset. Once there were many resets, removes the requests of reset streams from the
    /// queue. Otherwise a client could fill the queue by resetting its streams.
    pub(super) fn sweep_long(&mut self) {
        self.long.resets += usize::from(!self.long.is_empty());
        if self.long.resets <= RESETS_MIN + self.long.queue.len() / 2 {
            return;
        }
        self.long.resets = 0;
        let Self { connection, received_bytes, complete_bytes, .. } = self;
        self.long.queue.retain(|whole| {
            let is_open = connection.has_stream(whole.key());
            if !is_open {
                *received_bytes -= whole.received_bytes();
                *complete_bytes -= whole.received_bytes();
            }
            is_open
        });
    }
}

/// Number of stream resets after which even a short queue is still left unchanged. A longer queue permits more resets:
/// half its length in addition. After still more, the requests of reset streams are removed from the queue.
const RESETS_MIN: usize = 16;

#[inline]
fn is_long(whole: &Whole, table: &Table) -> bool {
    let (target, body_bytes) = whole.target_and_body_bytes();
    body_bytes > PLAIN_REQUEST_BYTES_MAX || table.has_large() && is_about_large(target, table)
}

#[cold]
fn is_about_large(target: &[u8], table: &Table) -> bool {
    let found = named_lease(target).and_then(|(namespace, name)| table.find(&namespace, &name));
    found.is_some_and(|(_, object)| object.is_large())
}
