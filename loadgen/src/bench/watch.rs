//! Watchers of a bench, which count events and check that versions grow. Some watchers also compare the `renewTime` in
//! events with the `renewTime` that was sent.

use super::lease::Leases;
use super::tally::Tally;
use crate::error_kind::{EXCERPT_BYTES_MAX, ErrorKind, excerpt};
use crate::http::{Bodies, Broken, Request, Told, Verdict};
use crate::link::Link;
use crate::node;
use crate::object;
use crate::origin::Origin;
use crate::time_text;
use memchr::memmem::Finder;

/// A connection for watchers of a bench.
#[derive(Debug)]
pub(super) struct WatchLane {
    /// The connection. The tag of a request is the watcher's place in `seats`.
    pub(super) link: Link<usize>,
    seats: Vec<Seat>,
    /// Number of watchers in `seats` whose request was sent.
    asked: usize,
}

/// One watcher, and what it has received.
#[derive(Debug)]
struct Seat {
    /// Index of the watched Lease; `None` for all Leases.
    name: Option<u32>,
    is_watching: bool,
    /// Version of the last event or bookmark that the watcher received.
    version: u64,
    /// Number of events of Leases in the bench's namespace.
    events: u64,
    /// The start of an event whose end has not arrived yet, or of the body of an error response.
    partial: Vec<u8>,
}

/// The events that the watchers of one connection have received in a turn of the event loop.
#[derive(Debug)]
pub(super) struct Heard {
    /// Number of events of Leases in the bench's namespace.
    events: u64,
    /// The parsed contents of events. Only some watchers parse their events ([`LOOKS_EVERY`]).
    shown: Vec<Shown>,
    /// Descriptions of the violations in these events.
    wrong: Vec<String>,
    needles: Needles,
}

/// The content of an event, in which a Lease was added or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    lease: u32,
    version: u64,
    /// `renewTime` in the event, in microseconds since the Unix epoch.
    renewed: u64,
}

#[derive(Debug)]
struct Needles {
    name: Finder<'static>,
    namespace: Finder<'static>,
    version: Finder<'static>,
    renewed: Finder<'static>,
}

impl Heard {
    /// Creates a record without events. Only events of Leases in `namespace` will count.
    pub(super) fn new(namespace: &str) -> Self {
        let namespace = format!("\"namespace\":\"{namespace}\"");
        let needles = Needles {
            name: Finder::new(b"\"name\":\""),
            namespace: Finder::new(namespace.as_bytes()).into_owned(),
            version: Finder::new(b"\"resourceVersion\":\""),
            renewed: Finder::new(b"\"renewTime\":\""),
        };
        Self { events: 0, shown: Vec::new(), wrong: Vec::new(), needles }
    }

    /// Counts the recorded events, compares their contents with the Leases, and clears the record. `now` is in
    /// nanoseconds since the start of the run. `epoch_us` is the start of the run, in microseconds since the Unix
    /// epoch.
    pub(super) fn count_into(&mut self, tally: &mut Tally, leases: &Leases, now: u64, epoch_us: u64) {
        for &Shown { lease, version, renewed } in &self.shown {
            if !leases.can_show(lease, version, renewed) {
                self.wrong
                    .push(format!("{}: an event of version {version} is not what was sent", node::name_of(lease)));
            }
        }
        let now_us = epoch_us + now / 1_000;
        let delay_ns = |shown: Shown| now_us.saturating_sub(shown.renewed).saturating_mul(1_000);
        tally.heard(std::mem::take(&mut self.events), self.shown.drain(..).map(delay_ns), now);
        self.wrong.drain(..).for_each(|words| tally.violated(words));
    }

    /// Describes why a watch ended. If the server sent an ERROR event before the end, the last description in `wrong`
    /// quotes that event.
    #[cold]
    fn ended_words(&self) -> String {
        let last = self.wrong.last().map(|words| format!(": {words}"));
        format!("a watch has ended{}", last.unwrap_or_default())
    }
}

impl WatchLane {
    /// Creates one watcher for each element of `names`: the index of a Lease, or `None` for all Leases.
    pub(super) fn new(names: impl IntoIterator<Item = Option<u32>>) -> Self {
        let seat = |name| Seat { name, is_watching: false, version: 0, events: 0, partial: Vec::new() };
        let seats: Vec<Seat> = names.into_iter().map(seat).collect();
        Self { link: Link::new(Bodies::Streamed, seats.len()), seats, asked: 0 }
    }

    /// Whether all watches have been accepted.
    pub(super) fn is_watching(&self) -> bool {
        self.seats.iter().all(|seat| seat.is_watching)
    }

    /// Returns the smallest number of events that any watcher of all Leases has received.
    pub(super) fn events_min(&self) -> u64 {
        self.seats.iter().filter(|seat| seat.name.is_none()).map(|seat| seat.events).min().unwrap_or(u64::MAX)
    }

    /// Describes a watcher whose number of events differs from the number of acknowledged writes; `None` if there is
    /// none.
    pub(super) fn missing(&self, leases: &Leases) -> Option<String> {
        self.seats.iter().find_map(|&Seat { name, events, .. }| {
            let writes = name.map_or(leases.all_writes, |lease| leases.writes(lease));
            (events != writes).then(|| match name {
                None => format!("a watcher of all Leases had {events} events, of {writes} writes"),
                Some(lease) => format!("a watcher of {} had {events} events, of {writes} writes", node::name_of(lease)),
            })
        })
    }

    /// Sends the requests of watches that were not sent yet, as many as the connection accepts. `target` returns the
    /// path and query of a watch. Its argument is the index of the watched Lease; `None` for all Leases.
    pub(super) fn send(&mut self, origin: &Origin, target: impl Fn(Option<u32>) -> String) -> Result<(), Broken> {
        while let Some(seat) = self.seats.get(self.asked) {
            let target = target(seat.name);
            let request = Request { method: "GET", target: &target, body: None };
            if !self.link.has_room() || !self.link.send(origin, &request, self.asked) {
                break;
            }
            self.asked += 1;
        }
        self.link.flush(origin)
    }

    /// Receives input, up to the maximum number of reads in a turn of the event loop. Returns true if this maximum was
    /// reached before the socket was empty. A watch that is refused or ends is an error, since the measurement needs
    /// all watches.
    pub(super) fn receive(
        &mut self,
        origin: &Origin,
        scratch: &mut [u8],
        heard: &mut Heard,
        now: u64,
    ) -> Result<bool, Broken> {
        let seats = &mut self.seats;
        let mut lost = None;
        let outcome = self.link.receive(origin, scratch, now, |place, told| {
            let Some(seat) = seats.get_mut(place) else { return Verdict::Cancel };
            let why = match told {
                Told::Answer { status: 200, body, end } => {
                    seat.is_watching = true;
                    seat.handle(body, place % LOOKS_EVERY == 0, heard);
                    end.then(|| (ErrorKind::Reset, heard.ended_words()))
                }
                Told::Answer { status, body, end } => {
                    // An error message quotes only the start of the response's body.
                    let room = EXCERPT_BYTES_MAX - seat.partial.len().min(EXCERPT_BYTES_MAX);
                    seat.partial.extend_from_slice(body.get(..room).unwrap_or(body));
                    end.then(|| (ErrorKind::Status(status), seat.refused_words(status)))
                }
                Told::Unserved | Told::Refused => Some((ErrorKind::Refused, "a watch was refused".to_owned())),
                Told::Lost { kind, why } => Some((kind, format!("a watch was lost: {why}"))),
            };
            lost = lost.take().or(why);
            Verdict::GoOn
        });
        // The connection may have ended together with the watch. The watch's error describes more than the
        // connection's.
        match lost {
            Some((kind, why)) => Err(Broken { kind: Some(kind), why }),
            None => outcome,
        }
    }
}

impl Seat {
    /// Describes an error response to a watch, once its body is complete.
    #[cold]
    fn refused_words(&self, status: u16) -> String {
        format!("a watch was answered {status}: {}", String::from_utf8_lossy(&self.partial).trim())
    }

    fn handle(&mut self, body: &[u8], looks: bool, heard: &mut Heard) {
        let mut rest = body;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if self.partial.is_empty() {
                Self::event(&mut self.version, &mut self.events, line, looks, heard);
            } else {
                self.partial.extend_from_slice(line);
                Self::event(&mut self.version, &mut self.events, &self.partial, looks, heard);
                self.partial.clear();
            }
        }
        self.partial.extend_from_slice(rest);
    }

    fn event(last: &mut u64, events: &mut u64, line: &[u8], looks: bool, heard: &mut Heard) {
        let version_at = heard.needles.version.find(line).map(|at| at + heard.needles.version.needle().len());
        let digits = version_at.and_then(|at| {
            let rest = line.get(at..)?;
            rest.get(..memchr::memchr(b'"', rest)?)
        });
        let kind = line.strip_prefix(b"{\"type\":\"").unwrap_or_default();
        // A renewed Lease is never deleted, so a DELETED event is a violation.
        let is_change = kind.starts_with(b"MODIFIED") || kind.starts_with(b"ADDED");
        let version = digits.and_then(object::parse_version).filter(|_| is_change || kind.starts_with(b"BOOKMARK"));
        let Some(version) = version else {
            heard.wrong.push(excerpt(line).into_owned());
            return;
        };
        if version <= *last && is_change {
            heard.wrong.push(format!("an event of version {version} after one of {last}"));
        }
        *last = version;
        // In the text of a Lease, the namespace comes before the version.
        let head = line.get(..version_at.unwrap_or(0)).unwrap_or_default();
        if !is_change || heard.needles.namespace.find(head).is_none() {
            return;
        }
        *events += 1;
        heard.events += 1;
        if looks {
            match heard.needles.shown(line, head, version) {
                Some(shown) => heard.shown.push(shown),
                None => heard.wrong.push(format!("an event of version {version} shows no Lease of a node")),
            }
        }
    }
}

impl Needles {
    /// Parses the content of the event in `line`; `head` is the part of `line` before the version.
    fn shown(&self, line: &[u8], head: &[u8], version: u64) -> Option<Shown> {
        let name = head.get(self.name.find(head)? + self.name.needle().len()..)?;
        let lease = node::index_of(name.get(..memchr::memchr(b'"', name)?)?)?;
        let at = self.renewed.find(line)? + self.renewed.needle().len();
        let renewed = time_text::parse_micros(line.get(at..at + time_text::MICROS_LEN)?)?;
        Some(Shown { lease, version, renewed })
    }
}

/// Returns the target of a watch: of all Leases, or of the Lease with this index.
pub(super) fn watch_target(collection: &str, name: Option<u32>, from: u64) -> String {
    let how = format!("resourceVersion={from}&timeoutSeconds=3600&watch=true");
    match name {
        None => format!("/apis/coordination.k8s.io/v1/leases?{how}"),
        Some(lease) => format!("{collection}?fieldSelector=metadata.name%3D{}&{how}", node::name_of(lease)),
    }
}

/// On each connection, one in this many watchers parses the content of its events, from the first watcher on. If all
/// watchers did, the generator would use too much processor time. Over HTTP/1.1 each connection has one watcher, so all
/// watchers parse their events.
const LOOKS_EVERY: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::object_text;

    #[test]
    fn events_are_counted_in_any_chunks_and_versions_must_increase() {
        let event = |name, version| {
            let object = object_text(name, version, "1970-01-01T00:00:01.000002Z");
            format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n")
        };
        let text = [event("node-1", 5), event("node-2", 6), event("node-1", 9)].concat();
        for cut in 0..text.len() {
            let mut heard = Heard::new("n");
            let mut seat = Seat { name: None, is_watching: true, version: 0, events: 0, partial: Vec::new() };
            let (start, end) = text.as_bytes().split_at(cut);
            seat.handle(start, true, &mut heard);
            seat.handle(end, true, &mut heard);
            assert_eq!((seat.events, heard.events, heard.wrong.len()), (3, 3, 0), "{cut}");
            let shown = [(1, 5), (2, 6), (1, 9)].map(|(lease, version)| Shown { lease, version, renewed: 1_000_002 });
            assert_eq!(heard.shown, shown);
            seat.handle(event("node-3", 9).as_bytes(), true, &mut heard);
            assert_eq!(heard.wrong, ["an event of version 9 after one of 9"]);
            seat.handle(b"{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n", true, &mut heard);
            assert_eq!((heard.wrong.len(), heard.events), (2, 4));
            seat.handle(event("node-3", 12).replace("MODIFIED", "DELETED").as_bytes(), true, &mut heard);
            assert_eq!((heard.wrong.len(), heard.events), (3, 4));
        }
        let mut heard = Heard::new("other");
        let mut seat = Seat { name: None, is_watching: true, version: 0, events: 0, partial: Vec::new() };
        seat.handle(text.as_bytes(), false, &mut heard);
        assert_eq!((heard.events, heard.wrong.len(), seat.version), (0, 0, 9));
    }
}
