//! All simulated nodes. This module builds the next request of each node, and interprets the responses and events.
//!
//! This module owns the nodes and their Leases, the checks of the invariants, and the counts. It uses neither
//! connections nor timers: it appends requests to a buffer, parses responses in slices, and gets the time as an
//! argument.

use crate::check::{Checker, Shown, Violation};
use crate::error_kind::{ErrorKind, excerpt};
use crate::http::Request;
use crate::node::{self, Form, Next, Node, Outcome, Step};
use crate::object::{self, Fields, Template};
use crate::operation::Operation;
use crate::recorder::Recorder;
use crate::stats::Stats;
use crate::watcher::{self, Event};
use std::collections::HashMap;

/// All nodes, the checks of the API's invariants, and the counts.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Nodes by index.
    pub(crate) nodes: Vec<Node>,
    /// The checks of the API's invariants.
    pub(crate) checker: Checker,
    /// Latencies, counts and errors of all operations.
    pub(crate) recorder: Recorder,
    /// Counts of connections, TLS handshakes and expired watches.
    pub(crate) stats: Stats,
    /// Whether the first renewals of all nodes are in progress. In this time, the results count the POST of a Lease as
    /// a creation. Later, they count a POST as a renewal.
    pub(crate) is_creating: bool,
    /// Number of Leases that the first renewals created.
    pub(crate) created: u32,
    /// Number of Leases that were created after all first renewals, mostly because the server had lost the Lease.
    pub(crate) created_later: u32,
    /// Number of Leases that existed already, from an earlier run.
    pub(crate) adopted: u32,
    namespace: String,
    templates: Vec<Template>,
    /// Objects that fit no template (a text that the Leases of many nodes share), by the index of their node.
    whole: HashMap<u32, Box<[u8]>>,
    /// Start of the run, in microseconds since the Unix epoch.
    epoch_us: u64,
    rng: fastrand::Rng,
    /// Path of all Leases of the namespace. For each request except a POST, the name of a node is appended.
    path: String,
    /// Length of `path` without the name of a node, in bytes.
    collection_len: usize,
    /// Scratch buffers: the name of a node, and the body of a request.
    name: String,
    body: Vec<u8>,
}

/// A request that is in flight or waits to be sent, with its history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// Index of the node that the request belongs to.
    pub(crate) node: u32,
    /// Kind of the request: a step of the node's renewal, or a read.
    pub(crate) step: Step,
    /// Number of failed attempts of the renewal before this request.
    pub(crate) tries: u8,
    /// Number of times that the server refused to process this request (RFC 9113 §8.7).
    pub(crate) refusals: u8,
    /// When the renewal or the read was due, in nanoseconds since the start of the run.
    pub(crate) due: u64,
    /// When this request could first be sent, in nanoseconds since the start of the run: the due time of the renewal,
    /// or the time of the previous response.
    pub(crate) asked: u64,
    /// When the flight's last request was sent, in nanoseconds since the start of the run; 0 before its first request.
    pub(crate) written: u64,
    /// Highest version of the node's object that any response or event had shown when the request was sent.
    pub(crate) known: u64,
}

impl Fleet {
    /// Creates a fleet of nodes without Leases.
    pub(crate) fn new(namespace: &str, nodes_len: u32, watchers_len: usize, epoch_us: u64) -> Self {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Self {
            nodes: vec![Node::default(); nodes_len as usize],
            checker: Checker::new(watchers_len, nodes_len as usize),
            recorder: Recorder::new(&[Operation::Create, Operation::List]),
            stats: Stats::default(),
            is_creating: true,
            created: 0,
            created_later: 0,
            adopted: 0,
            namespace: namespace.to_owned(),
            templates: Vec::new(),
            whole: HashMap::new(),
            epoch_us,
            rng: fastrand::Rng::new(),
            collection_len: path.len(),
            path,
            name: String::new(),
            body: Vec::new(),
        }
    }

    /// Returns the first request of a renewal that was due at `due`. Returns `None` if a renewal of the node is in
    /// progress.
    pub(crate) fn begin_renewal(&mut self, index: u32, due: u64) -> Option<Flight> {
        let node = self.nodes.get_mut(index as usize)?;
        if std::mem::replace(&mut node.busy, true) {
            return None;
        }
        Some(Flight { step: node.first_step(), ..Self::begin_read(index, due) })
    }

    /// Returns the request for a read of a node's Lease that was due at `due`.
    pub(crate) fn begin_read(index: u32, due: u64) -> Flight {
        Flight { node: index, step: Step::Read, tries: 0, refusals: 0, due, asked: due, written: 0, known: 0 }
    }

    /// Encodes the request of `flight`. Stores in `flight` the present time and the node's highest known version.
    pub(crate) fn request_of(&mut self, flight: &mut Flight, now: u64) -> Option<Request<'_>> {
        let node = self.nodes.get_mut(flight.node as usize)?;
        flight.written = now;
        flight.known = node.highest;
        self.path.truncate(self.collection_len);
        self.name.clear();
        node::push_name(&mut self.name, flight.node);
        let name = self.name.as_str();
        if flight.step != Step::Post {
            self.path.push('/');
            self.path.push_str(name);
        }
        if matches!(flight.step, Step::Get | Step::Read) {
            return Some(Request { method: "GET", target: &self.path, body: None });
        }
        // A write whose response was lost is repeated with the same `renewTime`. So a later response shows whether the
        // lost write was applied.
        if !node.uncertain {
            node.sent_renewed = (self.epoch_us + now / 1_000).max(node.object.renewed + 1);
        }
        self.body.clear();
        if flight.step == Step::Post {
            let owner_uid = uuid::Builder::from_random_bytes(self.rng.u128(..).to_be_bytes()).into_uuid().as_u128();
            object::push_new(&mut self.body, &self.namespace, name, owner_uid, node.sent_renewed);
            return Some(Request { method: "POST", target: &self.path, body: Some(&self.body) });
        }
        match node.form {
            Form::Template(number) => {
                if let Some(template) = self.templates.get(usize::from(number)) {
                    let fields = Fields { renewed: node.sent_renewed, ..node.object };
                    template.render_into(&mut self.body, name, &fields);
                }
            }
            Form::Whole => {
                if let Some(object) = self.whole.get(&flight.node) {
                    object::push_renewed(&mut self.body, object, node.sent_renewed);
                }
            }
        }
        // A kubelet's PUT ends with a newline, since Go's JSON encoder ends a body with one. The stored object has no
        // newline at its end, so one is added.
        self.body.push(b'\n');
        Some(Request { method: "PUT", target: &self.path, body: Some(&self.body) })
    }

    /// Handles the response to the request `flight`. Returns the next request of the same renewal or read, if it needs
    /// one.
    pub(crate) fn handle_answer(&mut self, flight: Flight, status: u16, body: &[u8], now: u64) -> Option<Flight> {
        match (flight.step, status) {
            (Step::Get | Step::Read | Step::Put, 200) | (Step::Post, 201) => self.handle_object(flight, body, now),
            (Step::Get, 404) if !self.has_lease(flight.node) => {}
            (Step::Get | Step::Read | Step::Put, 404) => self.handle_gone(flight),
            (Step::Put | Step::Post, 409) => self.handle_conflict(flight),
            _ => {
                // If the server reports an error (5xx), the write may have been applied.
                if status >= 500 && matches!(flight.step, Step::Put | Step::Post) {
                    self.set_uncertain(flight.node);
                }
                self.fail(flight, ErrorKind::Status(status), &excerpt(body));
            }
        }
        self.after(flight, Outcome::Status(status), now)
    }

    /// Handles the loss of the response to the request `flight`. Returns the next request of the same renewal or read,
    /// if it needs one.
    pub(crate) fn handle_loss(&mut self, flight: Flight, kind: ErrorKind, why: &str, now: u64) -> Option<Flight> {
        if matches!(flight.step, Step::Put | Step::Post) {
            self.set_uncertain(flight.node);
        }
        self.fail(flight, kind, why);
        self.after(flight, Outcome::Lost, now)
    }

    /// Handles the server's refusal to process `flight`. The request is sent again a few times, as in Go's HTTP client.
    #[cold]
    pub(crate) fn handle_refusal(&mut self, flight: Flight, now: u64) -> Option<Flight> {
        if flight.refusals < REFUSALS_MAX {
            return Some(Flight { refusals: flight.refusals + 1, ..flight });
        }
        self.fail(flight, ErrorKind::Refused, "the server refused the stream repeatedly");
        self.after(Flight { refusals: 0, ..flight }, Outcome::Lost, now)
    }

    /// Handles an event that a watcher has received: checks it and records its latency.
    pub(crate) fn handle_event(&mut self, watcher: usize, event: &Event<'_>, now: u64) {
        let (kind, version, index, object) = match *event {
            Event::Bookmark(version) => return self.checker.bookmark(watcher, version),
            Event::Change { kind, version, node, object } => (kind, version, node, object),
        };
        let shown = index.and_then(|index| self.shown_in(index, object));
        let lease = index.and_then(|index| Some((index, self.nodes.get_mut(index as usize)?)));
        let Some((index, node)) = lease else { return self.checker.event(watcher, kind, version, None) };
        node.highest = node.highest.max(version);
        let acked_at = if version > node.object.version {
            // The event came before the acknowledgement of its write.
            now
        } else if version == node.object.version {
            node.acked_at
        } else {
            // The watcher is behind: the node has a later acknowledged write, and no longer knows when this write was
            // acknowledged. The object's `renewTime` is the time at which this write was sent.
            let sent_us = watcher::renewed_in(object);
            sent_us.map_or(now, |sent_us| sent_us.saturating_sub(self.epoch_us).saturating_mul(1_000))
        };
        self.checker.event(watcher, kind, version, Some((index, node, shown)));
        self.recorder.answered(Operation::WatchEvent, acked_at, now);
    }

    /// Passes a watcher's complete list to the checks. `version` is the version of the list. `known` is the highest
    /// version that any acknowledgement had shown when the list was requested.
    pub(crate) fn handle_list(&mut self, watcher: usize, version: u64, known: u64, leases: &[(u32, u64)]) {
        self.checker.listed(watcher, version, known, leases, &self.nodes);
    }

    /// Handles the object in a successful response: checks the object, and updates the node.
    fn handle_object(&mut self, flight: Flight, body: &[u8], now: u64) {
        let body = body.strip_suffix(b"\n").unwrap_or(body);
        let Some(shown) = self.shown_in(flight.node, body) else {
            if matches!(flight.step, Step::Put | Step::Post) {
                self.set_uncertain(flight.node);
            }
            return self.fail(flight, ErrorKind::Malformed, &excerpt(body));
        };
        let Shown { fields, form } = shown;
        let Some(node) = self.nodes.get_mut(flight.node as usize) else { return };
        match flight.step {
            Step::Read => self.checker.read(flight.node, node, &shown, flight.known),
            Step::Get => {
                // This GET is a step of the node's own renewal. The node is busy in this step, but has no write in
                // flight that could explain a new version. So the check gets a copy of the node that is not busy.
                let quiet = Node { busy: false, ..node.clone() };
                self.checker.read(flight.node, &quiet, &shown, flight.known);
                if fields.version > node.object.version {
                    if node.uncertain && fields.renewed == node.sent_renewed {
                        node.writes += 1;
                        node.base = node.object.version;
                    } else if node.has_lease() {
                        node.foreign = true;
                    } else {
                        self.adopted += 1;
                    }
                    node.object = fields;
                    node.acked_at = now;
                    node.settled = false;
                }
                node.uncertain = false;
            }
            Step::Post | Step::Put => {
                self.checker.written(flight.node, node, &shown, flight.known.max(node.object.version));
                node.base = node.object.version;
                node.object = fields;
                node.writes += 1;
                node.acked_at = now;
                node.uncertain = false;
                node.settled = flight.step == Step::Put;
            }
        }
        node.highest = node.highest.max(fields.version);
        match (flight.step, form) {
            // A read stands for a request of another client. So it does not change the object that the node knows.
            (Step::Read, _) => {}
            (_, Form::Template(_)) => {
                if node.form == Form::Whole {
                    self.whole.remove(&flight.node);
                }
                node.form = form;
            }
            (_, Form::Whole) => {
                node.form = form;
                self.whole.insert(flight.node, body.into());
            }
        }
        match flight.step {
            Step::Get => {}
            Step::Read => self.recorder.answered(Operation::Read, flight.due, now),
            Step::Put => self.recorder.answered(Operation::Renew, flight.due, now),
            Step::Post if self.is_creating => {
                self.created += 1;
                self.recorder.answered(Operation::Create, flight.asked, now);
            }
            // The Lease was lost. The new creation counts as the renewal that the loss delayed.
            Step::Post => {
                self.created_later += 1;
                self.recorder.answered(Operation::Renew, flight.due, now);
            }
        }
    }

    /// Parses an object, which must be the Lease of this node. Returns its fields, and the number of the template (a
    /// text that many Leases share) that the rest of the object fits; [`Form::Whole`] if it fits none.
    fn shown_in(&mut self, index: u32, body: &[u8]) -> Option<Shown> {
        self.name.clear();
        node::push_name(&mut self.name, index);
        let own = match self.nodes.get(index as usize)?.form {
            Form::Template(number) => number,
            Form::Whole => 0,
        };
        let first = self.templates.get(usize::from(own)).and_then(|t| t.fields_of(body, &self.name));
        if let Some(fields) = first {
            return Some(Shown { fields, form: Form::Template(own) });
        }
        for (number, template) in (0_u8..).zip(&self.templates) {
            if let Some(fields) = template.fields_of(body, &self.name) {
                return Some(Shown { fields, form: Form::Template(number) });
            }
        }
        if self.templates.len() < TEMPLATES_MAX
            && let Some((template, fields)) = Template::learn(body, &self.name)
        {
            let number = u8::try_from(self.templates.len()).ok()?;
            self.templates.push(template);
            return Some(Shown { fields, form: Form::Template(number) });
        }
        object::fields_by_parsing(body, &self.name).map(|fields| Shown { fields, form: Form::Whole })
    }

    /// Handles a 404 for the Lease of a node. The 404 is a violation if the node has its Lease. A read's 404 is not
    /// reported if an earlier 404 or a write of another client was noticed.
    #[cold]
    fn handle_gone(&mut self, flight: Flight) {
        let Some(node) = self.nodes.get_mut(flight.node as usize) else { return };
        if node.has_lease() && !(node.foreign && flight.step == Step::Read) {
            self.checker.report(Violation::Gone { node: flight.node, version: node.object.version });
        }
        node.foreign = true;
        if flight.step != Step::Read {
            node.object = Fields::default();
            node.settled = false;
        }
    }

    /// Handles a conflict (409). A conflict is a violation, unless an earlier write of this node may have caused it.
    #[cold]
    fn handle_conflict(&mut self, flight: Flight) {
        let Some(node) = self.nodes.get(flight.node as usize) else { return };
        if !node.uncertain {
            self.checker.report(Violation::Conflict { node: flight.node, version: node.object.version });
        }
        self.fail(flight, ErrorKind::Status(409), "conflict");
    }

    /// Returns the next request of the renewal or read to which `flight` belongs; `None` if the renewal or read is
    /// over. The caller has already applied `outcome` to the node's state.
    fn after(&mut self, flight: Flight, outcome: Outcome, now: u64) -> Option<Flight> {
        match node::next(flight.step, outcome, flight.tries) {
            Next::Send { step, failed } => {
                let tries = flight.tries + u8::from(failed);
                Some(Flight { step, tries, asked: now, ..flight })
            }
            Next::Done | Next::GiveUp => {
                if flight.step != Step::Read
                    && let Some(node) = self.nodes.get_mut(flight.node as usize)
                {
                    node.busy = false;
                }
                None
            }
        }
    }

    /// Ends, at the end of the run, a flight that has no response. `is_sent` tells whether the request of its present
    /// step was sent. If this request is a write, the server may have applied it.
    pub(crate) fn abandon(&mut self, flight: Flight, is_sent: bool) {
        if is_sent && matches!(flight.step, Step::Put | Step::Post) {
            self.set_uncertain(flight.node);
        }
        if let Some(node) = self.nodes.get_mut(flight.node as usize)
            && flight.step != Step::Read
        {
            node.busy = false;
        }
        self.fail(flight, ErrorKind::Unanswered, "not answered when the run ended");
    }

    fn has_lease(&self, index: u32) -> bool {
        self.nodes.get(index as usize).is_some_and(Node::has_lease)
    }

    #[cold]
    fn set_uncertain(&mut self, index: u32) {
        if let Some(node) = self.nodes.get_mut(index as usize) {
            node.uncertain = true;
        }
    }

    #[cold]
    fn fail(&mut self, flight: Flight, kind: ErrorKind, words: &str) {
        let operation = match flight.step {
            Step::Get | Step::Read => Operation::Read,
            Step::Post => Operation::Create,
            Step::Put => Operation::Renew,
        };
        self.recorder.failed(operation, kind, || format!("{}: {words}", node::name_of(flight.node)));
    }
}

/// Maximum number of templates (texts that the Leases of many nodes share). The Leases of one run have fewer different
/// texts.
const TEMPLATES_MAX: usize = 16;
/// Maximum number of times that a request is sent again after a refusal to process it. One more refusal is an error.
pub(crate) const REFUSALS_MAX: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::object_text;

    fn fleet() -> Fleet {
        Fleet::new("n", 2, 0, 1_767_323_045_000_000)
    }

    /// Builds the request of a flight. Returns the `renewTime` in the request, as text.
    fn send(fleet: &mut Fleet, flight: &mut Flight, now: u64) -> String {
        fleet.request_of(flight, now).expect("a node");
        let mut renewed = Vec::new();
        crate::time_text::push_micros(&mut renewed, fleet.nodes[flight.node as usize].sent_renewed);
        String::from_utf8(renewed).expect("text")
    }

    /// Returns a fleet whose node 1 has found no Lease, has created it at version 5, and has renewed it at version 6.
    fn created_and_renewed() -> Fleet {
        let mut fleet = fleet();
        let mut flight = fleet.begin_renewal(1, 0).expect("idle");
        assert!(fleet.begin_renewal(1, 0).is_none(), "one renewal at a time");
        send(&mut fleet, &mut flight, 1);
        flight = fleet.handle_answer(flight, 404, b"{}", 2).expect("a request follows");
        let renewed = send(&mut fleet, &mut flight, 3);
        let answer = object_text("node-1", 5, &renewed);
        assert!(fleet.handle_answer(flight, 201, answer.as_bytes(), 4).is_none());
        let mut flight = fleet.begin_renewal(1, 10).expect("idle");
        let renewed = send(&mut fleet, &mut flight, 11);
        let answer = object_text("node-1", 6, &renewed);
        assert!(fleet.handle_answer(flight, 200, answer.as_bytes(), 12).is_none());
        assert_eq!((fleet.created, fleet.checker.count(), fleet.recorder.errors_count()), (1, 0, 0));
        fleet
    }

    #[test]
    fn a_renewal_sends_the_received_object_with_a_new_time() {
        let mut fleet = created_and_renewed();
        let mut flight = fleet.begin_renewal(1, 20).expect("idle");
        let request = fleet.request_of(&mut flight, 5_000_000_000).expect("a node");
        let expected = object_text("node-1", 6, "2026-01-02T03:04:10.000000Z");
        assert_eq!(request.body, Some(format!("{expected}\n").as_bytes()));
        assert_eq!(request.method, "PUT");
        assert_eq!(request.target, "/apis/coordination.k8s.io/v1/namespaces/n/leases/node-1");
    }

    #[test]
    fn a_conflict_is_a_violation_unless_a_response_was_lost() {
        let mut fleet = created_and_renewed();
        let mut flight = fleet.begin_renewal(1, 20).expect("idle");
        let renewed = send(&mut fleet, &mut flight, 21);
        flight = fleet.handle_loss(flight, ErrorKind::Reset, "gone", 22).expect("a request follows");
        assert_eq!(send(&mut fleet, &mut flight, 5_000_000), renewed, "sent again as it was");
        flight = fleet.handle_answer(flight, 409, b"{}", 5_000_001).expect("a request follows");
        assert_eq!((flight.step, fleet.checker.count()), (Step::Get, 0));
        let applied = object_text("node-1", 7, &renewed);
        flight = fleet.handle_answer(flight, 200, applied.as_bytes(), 5_000_002).expect("a request follows");
        assert_eq!((fleet.nodes[1].writes, fleet.nodes[1].uncertain), (3, false));
        send(&mut fleet, &mut flight, 6_000_000);
        fleet.handle_answer(flight, 409, b"{}", 6_000_001);
        assert_eq!(fleet.checker.first(), ["node-1: conflict at version 7, though nobody else writes"]);
    }

    #[test]
    fn a_refused_request_is_repeated_a_limited_number_of_times() {
        let mut fleet = created_and_renewed();
        let mut flight = fleet.begin_renewal(1, 20).expect("idle");
        for _ in 0..REFUSALS_MAX {
            flight = fleet.handle_refusal(flight, 21).expect("a request follows");
        }
        assert_eq!((fleet.recorder.errors_count(), fleet.nodes[1].uncertain), (0, false));
        flight = fleet.handle_refusal(flight, 22).expect("a request follows");
        assert_eq!((flight.tries, flight.refusals), (1, 0));
        assert_eq!(fleet.recorder.errors().keys().next(), Some(&(Operation::Renew, ErrorKind::Refused)));
    }

    #[test]
    fn a_write_in_flight_at_the_end_may_have_been_applied() {
        for (is_sent, violations) in [(true, 0), (false, 1)] {
            let mut fleet = Fleet::new("n", 2, 1, 0);
            let mut flight = fleet.begin_renewal(1, 0).expect("idle");
            send(&mut fleet, &mut flight, 1);
            flight = fleet.handle_answer(flight, 404, b"{}", 2).expect("a request follows");
            let renewed = send(&mut fleet, &mut flight, 3);
            let created = object_text("node-1", 5, &renewed);
            fleet.handle_answer(flight, 201, created.as_bytes(), 4);
            let mut flight = fleet.begin_renewal(1, 10).expect("idle");
            if is_sent {
                send(&mut fleet, &mut flight, 11);
            }
            fleet.abandon(flight, is_sent);
            for (kind, version) in [(watcher::Kind::Added, 5), (watcher::Kind::Modified, 6)] {
                let object = object_text("node-1", version, &renewed);
                let event = Event::Change { kind, version, node: Some(1), object: object.as_bytes() };
                fleet.handle_event(0, &event, 12);
            }
            fleet.checker.finish(&fleet.nodes);
            assert_eq!(fleet.checker.count(), violations, "{:?}", fleet.checker.first());
        }
    }

    #[test]
    fn a_following_write_that_was_not_sent_is_not_uncertain() {
        let mut fleet = created_and_renewed();
        let mut flight = fleet.begin_renewal(1, 20).expect("idle");
        send(&mut fleet, &mut flight, 21);
        let refused = fleet.handle_refusal(flight, 22).expect("a request follows");
        let repeated = fleet.handle_answer(flight, 429, b"{}", 22).expect("a request follows");
        for following in [refused, repeated] {
            fleet.abandon(following, false);
            assert!(!fleet.nodes[1].uncertain, "{following:?}");
        }
        fleet.abandon(flight, true);
        assert!(fleet.nodes[1].uncertain);
    }

    #[test]
    fn a_lost_update_is_detected_by_the_next_read() {
        let mut fleet = created_and_renewed();
        let mut read = Fleet::begin_read(1, 20);
        send(&mut fleet, &mut read, 21);
        let old = object_text("node-1", 5, "2026-01-02T03:04:05.000000Z");
        fleet.handle_answer(read, 200, old.as_bytes(), 22);
        assert_eq!(fleet.checker.first(), ["node-1: version 5 in an answer, though 6 was known before"]);
        fleet.handle_answer(read, 404, b"{}", 22);
        assert_eq!(fleet.checker.count(), 2);
    }

    #[test]
    fn a_response_with_another_object_is_malformed() {
        let mut fleet = created_and_renewed();
        let mut read = Fleet::begin_read(1, 20);
        send(&mut fleet, &mut read, 21);
        let other = object_text("node-0", 9, "2026-01-02T03:04:05.000000Z");
        fleet.handle_answer(read, 200, other.as_bytes(), 22);
        assert_eq!(fleet.recorder.errors().keys().next(), Some(&(Operation::Read, ErrorKind::Malformed)));
    }
}
