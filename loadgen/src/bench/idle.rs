//! Connections that are there and do nothing.

use crate::http::Bodies;
use crate::link::Link;

/// The idle connections.
#[derive(Debug)]
pub(super) struct Idle {
    links: Vec<Link<()>>,
    /// How many were begun: those at the front.
    begun: usize,
    /// Of these, the places of those that are not known to be ready.
    pending: Vec<usize>,
}

impl Idle {
    /// None is begun.
    pub(super) fn new(len: u32) -> Self {
        let links = std::iter::repeat_with(|| Link::new(Bodies::Whole, 1)).take(len as usize).collect();
        Self { links, begun: 0, pending: Vec::new() }
    }

    /// How many there shall be.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// The one at this place.
    pub(super) fn link(&mut self, place: usize) -> Option<&mut Link<()>> {
        self.links.get_mut(place)
    }

    /// The place of the one to be opened next, which counts as begun; `None` if there is none, or too many are being
    /// opened.
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

    /// Whether all are ready.
    pub(super) fn is_ready(&self) -> bool {
        let is_ready = |&place: &usize| self.links.get(place).is_some_and(Link::is_ready);
        self.begun == self.links.len() && self.pending.iter().all(is_ready)
    }
}

/// Connections that are being opened at once: a handshake has to be over in time.
const PENDING_MAX: usize = 64;
