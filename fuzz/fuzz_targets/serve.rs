//! Fuzzes the whole path from a connection's input to its output, with a service in memory. Nothing panics, and the
//! size of the output is bounded.
#![no_main]

use coordination_apiserver::api::Api;
use coordination_apiserver::auth::Credentials;
use coordination_apiserver::buffer::{ByteBuf, Pool};
use coordination_apiserver::clock::Now;
use coordination_apiserver::limits::QUEUED_BYTES_HIGH;
use coordination_apiserver::resource::ResourceVersion;
use coordination_apiserver::schedule::Budget;
use coordination_apiserver::serve::{AfterStep, Context, Peer, Protocol, Served, Service};
use coordination_apiserver::table::Table;
use coordination_apiserver::timestamp::Time;
use coordination_apiserver::tls::trust::Trust;
use coordination_apiserver::watch::Fill;
use coordination_apiserver_fuzz::Cuts;
use libfuzzer_sys::fuzz_target;
use mio::Token;
use std::sync::Arc;

/// Size of the largest response that is written in one piece, in bytes: a discovery document, or a Lease of the input's
/// size.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Maximum number of turns of the event loop that an input can cause. More turns mean an endless loop.
const TURNS_MAX: usize = 10_000;

/// A connection and the service that answers its requests.
struct World {
    service: Service,
    protocol: Protocol,
    credentials: Credentials,
    input: ByteBuf,
    output: Vec<u8>,
    pool: Pool,
    now: Now,
    /// The connection serves no further request while its output has at least this size, in bytes.
    room: usize,
    turns: usize,
}

impl World {
    fn new() -> Self {
        let service =
            Service::new(Api::new(), Table::new(ResourceVersion(1_000), 16, 1 << 16), Arc::new(Trust::none()));
        Self {
            service,
            protocol: Protocol::Undecided,
            credentials: Credentials::insecure(),
            input: ByteBuf::default(),
            output: Vec::new(),
            pool: Pool::default(),
            now: Now { ms: 0, wall: Time(1_767_000_000) },
            room: QUEUED_BYTES_HIGH,
            turns: 0,
        }
    }

    /// Passes bytes to the connection, and runs turns of the event loop while there is work. Returns whether the
    /// connection is still open.
    fn recv(&mut self, bytes: &[u8]) -> bool {
        self.input.append(bytes, &mut self.pool);
        loop {
            self.turns += 1;
            assert!(self.turns < TURNS_MAX, "the turns do not end");
            let mut budget = Budget::for_turn(self.room);
            let from = Peer { connection: Token(1), credentials: &self.credentials };
            let cx = &mut Context { service: &mut self.service, from, now: self.now, output: &mut self.output };
            let served = self.protocol.serve_requests(cx, &mut self.input, &mut budget);
            let is_open = served != Served::Close;
            let has_long_request = is_open && self.protocol.has_long_request();
            let has_job_step = is_open && self.protocol.has_job_step();
            let is_over = has_long_request
                && cx.output.len() < QUEUED_BYTES_HIGH
                && self.protocol.serve_long_request(cx) == AfterStep::Close
                || has_job_step
                    && cx.output.len() < QUEUED_BYTES_HIGH
                    && self.protocol.step_job(cx) == AfterStep::Close;
            self.fan_out();
            assert!(self.output.len() <= QUEUED_BYTES_HIGH + ANSWER_BYTES_MAX, "{} bytes", self.output.len());
            self.output.clear();
            match served {
                _ if is_over => return false,
                Served::Close => return false,
                Served::Starved | Served::Streaming if !has_job_step && !has_long_request => return true,
                Served::Starved | Served::Streaming | Served::Busy => {}
            }
        }
    }

    fn fan_out(&mut self) {
        let Self { service, protocol, output, now, .. } = self;
        service.watchers.notify(&service.table, usize::MAX);
        protocol.check_jobs(*now, true);
        service.watchers.on_timeout(*now);
        let mut again = Vec::new();
        while let Some((key, owner)) = service.watchers.pop_dirty() {
            match protocol.send_events(service, owner.stream, key, *now, output) {
                None => service.watchers.remove(key),
                Some(Fill::More) => again.push(key),
                Some(Fill::Idle | Fill::Ended(_)) => {}
            }
        }
        for key in again {
            service.watchers.mark_dirty(key);
        }
        if !service.watchers.has_dirty() {
            service.table.mark_delivered();
        }
    }
}

/// Leases that exist at the start, so that requests find them.
const LEASES: &[&str] = &[
    r#"{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"holderIdentity":"h"}}"#,
    r#"{"metadata":{"name":"b","finalizers":["f/g"]}}"#,
];

fuzz_target!(|data: &[u8]| {
    let Some((_, mut cuts)) = Cuts::of(data) else { return };
    let mut world = World::new();
    for lease in LEASES {
        let length = lease.len();
        let creation = format!(
            "POST /apis/coordination.k8s.io/v1/namespaces/n/leases HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{lease}"
        );
        assert!(world.recv(creation.as_bytes()));
    }
    assert_eq!(world.service.table.len(), LEASES.len());
    world.protocol = Protocol::Undecided;
    world.turns = 0;
    // For half of the inputs, the connection's output has room for one response only.
    if cuts.number() % 2 == 0 {
        world.room = 1;
    }
    let mut is_open = true;
    while is_open && let Some(piece) = cuts.next() {
        is_open = world.recv(piece);
        let number = cuts.number();
        world.now.ms += u64::from(number % 50);
        if number % 97 == 0 {
            // Sometimes the client is silent for 100 s.
            world.now.ms += 100_000;
            is_open = is_open && !world.protocol.on_timeout(&mut world.service, world.now, &mut world.output);
        }
    }
    if is_open {
        world.protocol.on_shutdown(&mut world.service, &mut world.output);
        assert!(world.service.watchers.is_empty(), "the shutdown ends all watches");
        // The requests that had arrived before the shutdown are still served.
        world.recv(&[]);
    }
    world.protocol.drop_work(&mut world.service.watchers);
    assert!(world.service.watchers.is_empty(), "watchers of a connection end with it");
});
