//! What a reload of the store has replaced, after the server had lost track of the store: connections, watchers and
//! Leases. The event loop closes and frees them in steps, since all at once would delay every request: to end 19,000
//! watches took 0.14 s, and to free a million Leases takes half a second.

use super::Server;
use super::connections::ConnEntry;
use crate::limits::{END_US_PER_TURN, STATES_DISCARDED_PER_STEP};
use crate::metrics::Metrics;
use crate::schedule::TimeBudget;
use crate::serve::Owner;
use crate::table::Table;
use crate::watch::Watchers;

/// The connections, watchers and Leases from before a reload. They only wait to be closed and freed, and serve no
/// client.
#[derive(Debug)]
pub(super) struct Former {
    pub(super) connections: slab::IntoIter<ConnEntry>,
    /// Watchers of `connections`.
    pub(super) watchers: Watchers<Owner>,
    pub(super) table: Table,
}

impl Former {
    /// Closes one connection. Returns false if no connection was left.
    pub(super) fn close_connection(&mut self, metrics: &mut Metrics) -> bool {
        let Some((_, mut entry)) = self.connections.next() else { return false };
        entry.end(&mut self.watchers, metrics);
        true
    }

    /// Closes one connection, or frees some Leases if no connection is left. Returns whether nothing is left.
    fn step(&mut self, metrics: &mut Metrics) -> bool {
        !self.close_connection(metrics) && self.table.free_step(STATES_DISCARDED_PER_STEP)
    }
}

impl Server {
    /// Returns the number of open connections, including those from before a reload.
    pub(super) fn open_connections(&self) -> usize {
        self.conns.len() + self.former.as_ref().map_or(0, |former| former.connections.len())
    }

    /// Whether the number of open connections has reached the connection limit (`--max-connections`).
    pub(super) fn is_full(&self) -> bool {
        self.open_connections() >= self.max_connections
    }

    /// Closes and frees some of what a reload has replaced.
    pub(super) fn end_former(&mut self) {
        let mut time = TimeBudget::new(END_US_PER_TURN);
        while let Some(former) = &mut self.former {
            if former.step(&mut self.service.api.metrics) {
                self.former = None;
            }
            if time.check_end() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Lease;
    use crate::resource::ResourceVersion;
    use crate::server::connections::Connections;
    use crate::server::connections::tests::add;
    use std::net::TcpListener;

    #[test]
    fn a_step_closes_one_connection_or_frees_some_leases() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut connections = Connections::default();
        let tokens = [(); 3].map(|()| add(&mut connections, &listener));
        let mut table = Table::new(ResourceVersion(1), usize::MAX, usize::MAX);
        for number in 0..3 * STATES_DISCARDED_PER_STEP {
            table.create(Lease::named("n", &format!("l{number}")));
        }
        let watchers = Watchers::new(table.version());
        let mut former = Former { connections: connections.take_all(), watchers, table };
        // An event of a former connection finds no connection, even if a new one has the same slot.
        assert!(connections.is_empty());
        add(&mut connections, &listener);
        assert!(tokens.iter().all(|token| connections.get_mut(*token).is_none()));
        let mut metrics = Metrics::new();
        for left in [2, 1, 0] {
            assert!(!former.step(&mut metrics));
            assert_eq!((former.connections.len(), former.table.len()), (left, 3 * STATES_DISCARDED_PER_STEP));
        }
        for (left, is_done) in [(2, false), (1, false), (0, true)] {
            assert_eq!(former.step(&mut metrics), is_done);
            assert_eq!(former.table.len(), left * STATES_DISCARDED_PER_STEP);
        }
    }
}
