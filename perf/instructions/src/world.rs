//! The server's side of the measurements: one service and its connections, without sockets.

use coordination_apiserver::api::Api;
use coordination_apiserver::auth::Credentials;
use coordination_apiserver::buffer::{ByteBuf, Pool};
use coordination_apiserver::clock::Now;
use coordination_apiserver::limits::{BUFFER_BYTES, QUEUED_BYTES_HIGH};
use coordination_apiserver::resource::ResourceVersion;
use coordination_apiserver::schedule::Budget;
use coordination_apiserver::serve::{Context, Peer, Protocol, Served, Service};
use coordination_apiserver::table::Table;
use coordination_apiserver::timestamp::Time;
use coordination_apiserver::tls::trust::Trust;
use coordination_apiserver::watch::{Fill, WatcherKey};
use mio::Token;
use std::sync::Arc;

/// resourceVersion at which the table starts. It has as many digits as a version that the server derives from the
/// clock.
const VERSION: ResourceVersion = ResourceVersion(1_795_219_345_123_456);

/// The server's end of a connection: the state that the module `conn` stores for a connection.
#[derive(Debug)]
struct End {
    protocol: Protocol,
    credentials: Credentials,
    input: ByteBuf,
    output: Vec<u8>,
}

/// The API service of a server, and all connections of clients to it.
#[derive(Debug)]
pub struct World {
    /// The service.
    pub service: Service,
    /// The current time, which does not advance by itself.
    pub now: Now,
    ends: Vec<End>,
    pool: Pool,
    /// Watchers with further events, which did not fit into the output. The next call of [`World::fan_out`] continues
    /// with them.
    again: Vec<WatcherKey>,
}

impl World {
    /// Creates a service without Leases. Its event log contains at most `events_max` events.
    #[must_use]
    pub fn new(events_max: usize) -> Self {
        let service = Service::new(Api::new(), Table::new(VERSION, events_max, usize::MAX), Arc::new(Trust::none()));
        let now = Now { ms: 0, wall: Time(1_795_219_345) };
        Self { service, now, ends: Vec::new(), pool: Pool::default(), again: Vec::new() }
    }

    /// Opens a connection for a caller with all rights. Returns the connection's index.
    pub fn connect(&mut self) -> usize {
        let end = End {
            protocol: Protocol::Undecided,
            credentials: Credentials::insecure(),
            input: ByteBuf::default(),
            output: Vec::with_capacity(BUFFER_BYTES),
        };
        self.ends.push(end);
        self.ends.len() - 1
    }

    /// Serves the requests in `bytes` on one connection, and returns the output. Discards the connection's earlier
    /// output, as if the peer had read it.
    ///
    /// # Panics
    /// If the server ends the connection, or if the connection does not exist.
    pub fn receive(&mut self, connection: usize, bytes: &[u8]) -> &[u8] {
        let Self { service, now, ends, pool, .. } = self;
        let end = &mut ends[connection];
        end.output.clear();
        end.input.append(bytes, pool);
        loop {
            let mut budget = Budget::for_turn(QUEUED_BYTES_HIGH);
            let from = Peer { connection: Token(connection), credentials: &end.credentials };
            let cx = &mut Context { service, from, now: *now, output: &mut end.output };
            let served = end.protocol.serve_requests(cx, &mut end.input, &mut budget);
            match served {
                Served::Starved | Served::Streaming => break,
                Served::Busy => {}
                Served::Close => assert!(served != Served::Close, "the server has ended the connection"),
            }
        }
        assert!(!end.protocol.has_long_request(), "no measured request takes long");
        end.input.release(pool);
        &end.output
    }

    /// Frees the output buffers of all connections, as if the peers had read the output.
    pub fn forget_outputs(&mut self) {
        self.ends.iter_mut().for_each(|end| end.output = Vec::new());
    }

    /// Delivers the events of the changes since the last call to the watchers. Returns the number of bytes written.
    pub fn fan_out(&mut self) -> usize {
        let Self { service, now, ends, again, .. } = self;
        service.watchers.notify(&service.table, usize::MAX);
        service.watchers.on_timeout(*now);
        let mut bytes = 0;
        while let Some((key, owner)) = service.watchers.pop_dirty() {
            let Some(end) = ends.get_mut(owner.connection.0) else { continue };
            // The earlier output is discarded, as if the peer had read it.
            end.output.clear();
            match end.protocol.send_events(service, owner.stream, key, *now, &mut end.output) {
                None => service.watchers.remove(key),
                Some(Fill::More) => again.push(key),
                Some(Fill::Idle | Fill::Ended(_)) => {}
            }
            bytes += end.output.len();
        }
        for key in again.drain(..) {
            service.watchers.mark_dirty(key);
        }
        bytes
    }
}
