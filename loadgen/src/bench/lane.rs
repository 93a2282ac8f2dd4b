//! A connection of requests.
//!
//! Owned here: the connection, its share of the Leases, and what its answers leave for its next requests. Not owned:
//! what is asked for and what the answers mean.

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

/// What is in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    /// By its index; 0 if it is not about one.
    pub(super) lease: u32,
    pub(super) ask: Ask,
    /// When it was asked for, or due, in nanoseconds of the run.
    pub(super) asked: u64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Is there such a Lease?
    Get,
    Post,
    Put,
    Read,
    /// The version of the table.
    Version,
    List,
    DeleteCollection,
}

/// What its answers leave for its next requests, and for the next answers.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// What has to be asked for first.
    pub(super) follow: Vec<(u32, Ask)>,
    /// The last Lease that was prepared was not there.
    pub(super) is_fresh: bool,
    /// The end of the last piece of a list, for what is counted in it; only one is under way on a connection.
    pub(super) tail: Vec<u8>,
}

impl Lane {
    /// The lane of this number. There is no connection yet.
    pub(super) fn new(index: u32, args: &BenchArgs) -> Self {
        let bodies = if args.verb.is_bulk() { Bodies::Streamed } else { Bodies::Whole };
        Self {
            link: Link::new(bodies, args.streams() as usize),
            ring: Ring::new(index, args.connections(), args.leases),
            notes: Notes::default(),
        }
    }

    /// Receives what has come, and tells of it. True if there is more.
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
