//! The server's end of a connection, without a socket. It does what the server's module `conn` does.

use crate::kernel::{Inbound, LinkId, Sim};
use coordination_apiserver::auth::Credentials;
use coordination_apiserver::buffer::{ByteBuf, Pool};
use coordination_apiserver::clock::Now;
use coordination_apiserver::http2::StreamKey;
use coordination_apiserver::limits::QUEUED_BYTES_HIGH;
use coordination_apiserver::schedule::Budget;
use coordination_apiserver::serve::{AfterStep, Context, Peer, Protocol, Served, Service};
use coordination_apiserver::watch::{Fill, WatcherKey};
use mio::Token;

/// The server's end of one connection.
#[derive(Debug)]
pub(super) struct Conn {
    protocol: Protocol,
    credentials: Credentials,
    input: ByteBuf,
    /// Output that is not sent yet.
    pub(super) output: Vec<u8>,
    /// Parked watchers: they have events, but were passed over because the output was full. [`Conn::flush`] unparks
    /// them once the output has space.
    behind: Vec<WatcherKey>,
    /// Whether the next turn of the event loop must serve the connection.
    pub(super) is_ready: bool,
    /// Whether the client has closed the connection.
    is_ended: bool,
    /// Whether the server serves no more requests on this connection.
    pub(super) is_closing: bool,
}

impl Conn {
    pub(super) fn new() -> Self {
        Self {
            protocol: Protocol::Undecided,
            credentials: Credentials::insecure(),
            input: ByteBuf::default(),
            output: Vec::new(),
            behind: Vec::new(),
            is_ready: true,
            is_ended: false,
            is_closing: false,
        }
    }

    /// Stores data that has arrived on the connection.
    pub(super) fn receive(&mut self, what: Inbound, pool: &mut Pool) {
        self.is_ready = true;
        match what {
            Inbound::Bytes(bytes) => self.input.append(&bytes, pool),
            Inbound::End => self.is_ended = true,
        }
    }

    /// Serves the complete requests in the input. `room` is the size of the output at which no further request is
    /// served; `None` is the server's own limit.
    pub(super) fn serve(&mut self, link: LinkId, service: &mut Service, room: Option<usize>, now: Now) {
        if self.is_closing {
            return;
        }
        let room = room.unwrap_or_else(|| service.output_bytes_max(&self.credentials));
        let mut budget = Budget::for_turn(room);
        let from = Peer { connection: Token(link.0), credentials: &self.credentials };
        let cx = &mut Context { service, from, now, output: &mut self.output };
        match self.protocol.serve_requests(cx, &mut self.input, &mut budget) {
            Served::Close => self.is_closing = true,
            Served::Busy => self.is_ready = true,
            Served::Starved | Served::Streaming if self.is_ended => {
                // The client has closed the connection. The connection stays open only for responses that are not
                // complete yet. A watch does not count, since nobody reads its events any more.
                let has_work = self.protocol.has_job_step() || self.protocol.has_long_request();
                self.is_closing = !self.protocol.is_waiting() && !has_work;
            }
            Served::Starved | Served::Streaming => {}
        }
    }

    /// Serves the connection's long request (with a long body, or for a large Lease). Also runs a step of the
    /// connection's list or deletion of a collection.
    pub(super) fn do_long_work(&mut self, link: LinkId, service: &mut Service, now: Now) {
        if self.protocol.has_long_request() {
            self.step(link, service, now, Protocol::serve_long_request);
        }
        if self.protocol.has_job_step() {
            self.step(link, service, now, Protocol::step_job);
        }
    }

    /// Calls `step`, unless the output is full or the connection is closing.
    fn step(
        &mut self,
        link: LinkId,
        service: &mut Service,
        now: Now,
        step: impl FnOnce(&mut Protocol, &mut Context<'_>) -> AfterStep,
    ) {
        if self.is_closing || self.output.len() >= QUEUED_BYTES_HIGH {
            return;
        }
        let from = Peer { connection: Token(link.0), credentials: &self.credentials };
        match step(&mut self.protocol, &mut Context { service, from, now, output: &mut self.output }) {
            AfterStep::Close => self.is_closing = true,
            AfterStep::GoOn => self.is_ready = true,
            AfterStep::Wait => {}
        }
    }

    /// Appends events of the watcher `key` to the output. If the output is full, parks the watcher instead. Returns
    /// `None` if the watch is not open.
    pub(super) fn fill_watch(
        &mut self,
        stream: Option<StreamKey>,
        key: WatcherKey,
        service: &mut Service,
        now: Now,
    ) -> Option<Fill> {
        if self.output.len() >= QUEUED_BYTES_HIGH {
            service.watchers.park(key);
            self.behind.push(key);
            return Some(Fill::Idle);
        }
        let fill = self.protocol.send_events(service, stream, key, now, &mut self.output)?;
        if let Fill::Ended(_) = fill {
            self.is_ready = true;
        }
        Some(fill)
    }

    /// Sends as much output as the client's receive window allows. Returns whether the connection is over.
    pub(super) fn flush(&mut self, link: LinkId, service: &mut Service, sim: &Sim) -> bool {
        let room = sim.net.borrow().room(link).min(self.output.len());
        if room > 0 {
            let bytes = self.output.drain(..room).collect();
            sim.send_to_client(link, Inbound::Bytes(bytes));
        }
        if self.output.len() < QUEUED_BYTES_HIGH {
            for key in self.behind.drain(..) {
                service.watchers.unpark(key);
            }
        }
        let is_over = self.is_closing && (self.output.is_empty() || sim.net.borrow().link(link).is_gone);
        if is_over {
            self.protocol.drop_work(&mut service.watchers);
            sim.send_to_client(link, Inbound::End);
        }
        is_over
    }

    /// Frees the memory of lists and deletions in progress whose deadline has passed, or whose permit to run was given
    /// to another user.
    pub(super) fn check_jobs(&mut self, now: Now) {
        self.protocol.check_jobs(now, true);
    }

    /// Prepares the connection for the orderly stop of the server.
    pub(super) fn stop(&mut self, service: &mut Service) {
        let was_idle = self.protocol.is_idle(&self.input);
        self.protocol.on_shutdown(service, &mut self.output);
        self.is_ready = true;
        self.is_closing |= was_idle;
    }
}
