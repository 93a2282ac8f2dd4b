//! All connections of a bench, by number: first the lanes (connections for requests), then the connections of watchers,
//! then the idle connections.

use super::args::BenchArgs;
use super::idle::Idle;
use super::lane::{Lane, Tag};
use super::lease::Leases;
use super::watch::WatchLane;
use crate::link::{Connect, Link};

/// All connections of a bench.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) lanes: Vec<Lane>,
    watch_lanes: Vec<WatchLane>,
    idle: Idle,
}

/// A connection, together with its purpose.
#[derive(Debug)]
pub(super) enum Role<'c> {
    Lane(&'c mut Lane),
    Watchers(&'c mut WatchLane),
    Idle(&'c mut Link<()>),
}

impl Connections {
    /// Creates all connections, none of them open.
    pub(super) fn new(args: &BenchArgs) -> Self {
        let per_lane = args.watch_streams() as usize;
        let first_name = if args.other_names { args.leases } else { 0 };
        let broad: Vec<Option<u32>> = vec![None; args.watchers as usize];
        let narrow: Vec<Option<u32>> = (first_name..first_name + args.name_watchers).map(Some).collect();
        let names = broad.chunks(per_lane).chain(narrow.chunks(per_lane));
        Self {
            lanes: (0..args.connections()).map(|index| Lane::new(index, args)).collect(),
            watch_lanes: names.map(|names| WatchLane::new(names.to_vec())).collect(),
            idle: Idle::new(args.idle),
        }
    }

    /// Returns the connection with this number, together with its purpose.
    pub(super) fn role(&mut self, index: usize) -> Option<Role<'_>> {
        let (lanes_len, watch_len) = (self.lanes.len(), self.watch_lanes.len());
        if let Some(lane) = self.lanes.get_mut(index) {
            Some(Role::Lane(lane))
        } else if let Some(lane) = self.watch_lanes.get_mut(index - lanes_len) {
            Some(Role::Watchers(lane))
        } else {
            self.idle.link(index - lanes_len - watch_len).map(Role::Idle)
        }
    }

    /// Returns the connection with this number, open or not; `None` if the bench has no such connection.
    pub(super) fn link(&mut self, index: usize) -> Option<&mut dyn Connect> {
        Some(match self.role(index)? {
            Role::Lane(lane) => &mut lane.link,
            Role::Watchers(lane) => &mut lane.link,
            Role::Idle(link) => link,
        })
    }

    /// Returns the range of the numbers of the watchers' connections.
    pub(super) fn watch_indexes(&self) -> std::ops::Range<usize> {
        self.lanes.len()..self.lanes.len() + self.watch_lanes.len()
    }

    /// Returns the number of the idle connection to open next; `None` if all were opened, or too many are not ready
    /// yet.
    pub(super) fn next_idle(&mut self) -> Option<usize> {
        let place = self.idle.next_to_open()?;
        Some(self.watch_indexes().end + place)
    }

    /// Whether all lanes are connected and can send requests.
    pub(super) fn are_lanes_ready(&self) -> bool {
        self.lanes.iter().all(|lane| lane.link.is_ready())
    }

    /// Whether no lane has a request in flight.
    pub(super) fn are_lanes_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.link.len() == 0)
    }

    /// Removes the requests in flight from the lanes, and returns their tags. The lanes must not be used afterwards.
    pub(super) fn take_in_flight(&mut self) -> Vec<Tag> {
        self.lanes.iter_mut().flat_map(|lane| lane.link.take_in_flight()).collect()
    }

    /// Whether there are watchers.
    pub(super) fn has_watchers(&self) -> bool {
        !self.watch_lanes.is_empty()
    }

    /// Whether all idle connections are ready, and all watches accepted.
    pub(super) fn are_attached(&self) -> bool {
        self.idle.is_ready() && self.watch_lanes.iter().all(WatchLane::is_watching)
    }

    /// Returns the smallest number of events that any watcher of all Leases has received.
    pub(super) fn events_min(&self) -> u64 {
        self.watch_lanes.iter().map(WatchLane::events_min).min().unwrap_or(u64::MAX)
    }

    /// Describes a watcher whose number of events differs from the number of acknowledged writes; `None` if there is
    /// none.
    pub(super) fn missing(&self, leases: &Leases) -> Option<String> {
        self.watch_lanes.iter().find_map(|lane| lane.missing(leases))
    }
}
