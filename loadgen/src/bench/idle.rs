//! Connections that are opened and never used for a request, to measure their cost for the server.

use crate::http::Bodies;
use crate::link::Link;

/// The idle connections.
#[derive(Debug)]
pub(super) struct Idle {
    links: Vec<Link<()>>,
    /// Number of connections that were opened. They are the first connections in `links`.
    begun: usize,
    /// Places in `links` of opened connections that were not ready at the last check.
    pending: Vec<usize>,
}

impl Idle {
    /// Creates `len` connections, none of them open.
    pub(super) fn new(len: u32) -> Self {
        let links = std::iter::repeat_with(|| Link::new(Bodies::Whole, 1)).take(len as usize).collect();
        Self { links, begun: 0, pending: Vec::new() }
    }

    /// Returns the connection at this place in `links`, open or not.
    pub(super) fn link(&mut self, place: usize) -> Option<&mut Link<()>> {
        self.links.get_mut(place)
    }

    /// Returns the place of the connection to open next, and counts this connection as opened. Returns `None` if all
    /// connections were opened, or if too many of them are not ready yet.
    pub(super) fn next_to_open(&mut self) -> Option<usize> {
        self.pending.retain(|&place| !self.links.get(place).is_some_and(Link::is_ready));
        let place = self.begun;
        if place == self.links.len() || self.pending.len() >= PENDING_MAX {
            return None;
        }
        self.begun += 1;
        self.pending.push(place);
        Some(place)
    }

    /// Whether all connections were opened, and are ready.
    pub(super) fn is_ready(&self) -> bool {
        let is_ready = |&place: &usize| self.links.get(place).is_some_and(Link::is_ready);
        self.begun == self.links.len() && self.pending.iter().all(is_ready)
    }
}

/// Maximum number of connections that were opened and are not ready. If all idle connections were opened at once, their
/// handshakes could take longer than the server's timeout for a handshake.
const PENDING_MAX: usize = 64;
