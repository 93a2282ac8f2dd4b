//! A connection of requests.
//!
//! This module owns the connection, its share of the Leases, and its [`Notes`]. It neither chooses requests nor
//! interprets responses.

use super::args::BenchArgs;
use crate::http::{Bodies, Broken, Told, Verdict};
use crate::link::Link;
use crate::origin::Origin;
use crate::ring::Ring;

/// One connection of requests.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) link: Link<Tag>,
    pub(super) ring: Ring,
    pub(super) notes: Notes,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    /// Index of the Lease; 0 if the request is not about a single Lease.
    pub(super) lease: u32,
    pub(super) ask: Ask,
    /// When the request was made, or was due by the rate, in nanoseconds of the run.
    pub(super) asked: u64,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// GET of a Lease that may not exist.
    Get,
    Post,
    Put,
    Read,
    /// GET of one page of the collection, for the version of the table.
    Version,
    List,
    DeleteCollection,
}

/// State that a response leaves for later requests and responses of the connection.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Requests that go before all others: Lease and kind.
    pub(super) follow: Vec<(u32, Ask)>,
    /// Whether the last prepared Lease did not exist.
    pub(super) is_fresh: bool,
    /// End of the last piece of a list, to count an object that the next piece continues. A connection has one list in
    /// flight.
    pub(super) tail: Vec<u8>,
}

impl Lane {
    /// Creates the lane with this number, without a connection.
    pub(super) fn new(index: u32, args: &BenchArgs) -> Self {
        let bodies = if args.verb.is_bulk() { Bodies::Streamed } else { Bodies::Whole };
        Self {
            link: Link::new(bodies, args.streams() as usize),
            ring: Ring::new(index, args.connections(), args.leases),
            notes: Notes::default(),
        }
    }

    /// Receives input up to a budget and reports it. Returns true if the budget ran out before the socket.
    pub(super) fn receive(
        &mut self,
        origin: &Origin,
        scratch: &mut [u8],
        now: u64,
        mut tell: impl FnMut(Tag, Told<'_>, &mut Notes),
    ) -> Result<bool, Broken> {
        let notes = &mut self.notes;
        self.link.receive(origin, scratch, now, |tag, told| {
            tell(tag, told, notes);
            Verdict::GoOn
        })
    }
}
