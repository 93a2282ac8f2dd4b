//! A lane: a connection of `loadgen bench` for all requests except watches. Each lane has a share of the Leases
//! ([`Ring`]).
//!
//! This module owns the connection, the share of its Leases, and the connection's [`Notes`]. Other modules choose the
//! requests and interpret the responses.

use super::args::BenchArgs;
use crate::http::{Bodies, Broken, Told, Verdict};
use crate::link::Link;
use crate::origin::Origin;
use crate::ring::Ring;

/// One connection for requests.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) link: Link<Tag>,
    pub(super) ring: Ring,
    pub(super) notes: Notes,
}

/// The tag of a request in flight: what its response is about, and when the request was due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    /// Index of the Lease; 0 if the request is not about a single Lease.
    pub(super) lease: u32,
    pub(super) ask: Ask,
    /// When the request was due (with a rate) or made (without a rate), in nanoseconds since the start of the run.
    pub(super) asked: u64,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// GET of a Lease that may not exist, or whose content the generator does not know.
    Get,
    Post,
    Put,
    /// GET of a Lease whose content the generator knows: the request that the bench `read` measures.
    Read,
    /// GET of one page of the collection, to learn the current resourceVersion.
    Version,
    List,
    DeleteCollection,
}

/// What a response leaves behind for later requests and responses on the same connection.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Requests that must be sent before all others: index of the Lease, and kind of request.
    pub(super) follow: Vec<(u32, Ask)>,
    /// Whether the server lacked the last Lease that this lane prepared, that is, found or created. If so, the lane
    /// creates the next Lease without a GET first.
    pub(super) is_fresh: bool,
    /// End of the last piece of a list. The start of an object may continue in the next piece, so the count of objects
    /// needs this end. A connection has one list in flight at most.
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

    /// Receives input, up to the maximum number of reads in a turn of the event loop, and passes each outcome to
    /// `tell`. Returns true if this maximum was reached before the socket was empty.
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
