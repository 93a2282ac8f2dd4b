//! A watcher of all Leases, like an informer. It lists, then watches from the list's version. When a watch ends, the
//! next watch starts from the last version that the watcher received. If that version has expired (410), the watcher
//! lists again.
//!
//! This module chooses the watcher's next request and parses the responses. It uses neither the connection nor the
//! checks.

use crate::{node, object, time_text};
use memchr::memmem::{self, Finder};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::borrow::Cow;

/// The state of one watcher: what it requests next, and what it has received.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// Namespace of the nodes' Leases.
    namespace: String,
    phase: Phase,
    /// Version from which the next watch starts.
    resume_from: u64,
    /// The nodes' Leases in the pages of the list so far: index of the node, and version of the Lease.
    pub(crate) listed: Vec<(u32, u64)>,
    /// Highest version that any acknowledgement of a write had shown when the list was begun.
    list_known: u64,
    /// The start of an event whose end has not arrived yet.
    partial: Vec<u8>,
    needles: Needles,
}

/// The kind of the request in flight, or else of the next request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// A list: its first page if the token is empty, else the page after the token.
    List { continue_token: String },
    /// A watch. Its request is sent or not yet sent.
    Watch,
}

/// The kind of a page of the list that [`Watcher::handle_page`] has parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// A page before the last.
    More,
    /// The last page, with the version of the list. `known` is the highest version that any acknowledgement had shown
    /// when the first page was requested.
    Complete { version: u64, known: u64 },
}

/// An event of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A bookmark: the server has sent all events up to this version.
    Bookmark(u64),
    /// A Lease was added, modified or deleted.
    Change {
        /// Kind of the change.
        kind: Kind,
        /// Version of the Lease after the change.
        version: u64,
        /// Index of the node that owns the Lease; `None` if no node does.
        node: Option<u32>,
        /// JSON of the Lease. If the event does not have the form that Go's encoder writes, JSON of the whole event.
        object: &'a [u8],
    },
}

/// The kind of a change, as in the `type` of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
}

impl Kind {
    fn of(text: &[u8]) -> Option<Self> {
        match text {
            b"ADDED" => Some(Self::Added),
            b"MODIFIED" => Some(Self::Modified),
            b"DELETED" => Some(Self::Deleted),
            _ => None,
        }
    }
}

/// Why a watch must end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchError {
    /// An ERROR event whose `Status` has this code; code 410 means an expired version.
    Status(u16),
    /// Input that is no event.
    Malformed,
}

/// Searchers for substrings of events, built once: building a searcher costs as much as a short search.
#[derive(Debug)]
struct Needles {
    metadata_name: Finder<'static>,
    version: Finder<'static>,
}

impl Watcher {
    /// Creates a watcher that begins with a list.
    pub(crate) fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            phase: Phase::List { continue_token: String::new() },
            resume_from: 0,
            listed: Vec::new(),
            list_known: 0,
            partial: Vec::new(),
            needles: Needles {
                metadata_name: Finder::new(b"\"metadata\":{\"name\":\""),
                version: Finder::new(b"\"resourceVersion\":\""),
            },
        }
    }

    /// Whether the request in flight, or else the next request, is a watch.
    pub(crate) fn is_watching(&self) -> bool {
        self.phase == Phase::Watch
    }

    /// Returns the target of the next request. `known` is the highest version that any acknowledgement has shown so
    /// far. `timeout_seconds` is the `timeoutSeconds` of a watch.
    pub(crate) fn next_target(&mut self, known: u64, timeout_seconds: u32) -> String {
        self.partial.clear();
        match &self.phase {
            Phase::List { continue_token } if continue_token.is_empty() => {
                self.list_known = known;
                self.listed.clear();
                format!("{LEASES}?limit={PAGE_LIMIT}")
            }
            Phase::List { continue_token } => {
                let token = utf8_percent_encode(continue_token, NON_ALPHANUMERIC);
                format!("{LEASES}?continue={token}&limit={PAGE_LIMIT}")
            }
            Phase::Watch => format!(
                "{LEASES}?allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={timeout_seconds}&watch=true",
                self.resume_from
            ),
        }
    }

    /// Parses a page of the list; `None` if the body is no list of Leases.
    pub(crate) fn handle_page(&mut self, body: &[u8]) -> Option<Page> {
        let page: PageText<'_> = serde_json::from_slice(body).ok()?;
        for item in &page.items {
            let version = object::parse_version(item.metadata.resource_version.as_bytes())?;
            if item.metadata.namespace == self.namespace
                && let Some(index) = node::index_of(item.metadata.name.as_bytes())
            {
                self.listed.push((index, version));
            }
        }
        let version = object::parse_version(page.metadata.resource_version.as_bytes())?;
        match page.metadata.continue_token {
            Some(token) if !token.is_empty() => {
                self.phase = Phase::List { continue_token: token.into_owned() };
                Some(Page::More)
            }
            _ => {
                self.phase = Phase::Watch;
                self.resume_from = version;
                Some(Page::Complete { version, known: self.list_known })
            }
        }
    }

    /// Makes a list the next request, since the version to watch from has expired.
    pub(crate) fn handle_expired(&mut self) {
        self.phase = Phase::List { continue_token: String::new() };
    }

    /// Parses the next bytes of a watch, and passes every complete event to `tell`. The bytes may end anywhere in an
    /// event.
    pub(crate) fn handle_events(&mut self, payload: &[u8], mut tell: impl FnMut(Event<'_>)) -> Result<(), WatchError> {
        let mut rest = payload;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            let event = if self.partial.is_empty() {
                self.needles.event_of(line, &self.namespace)?
            } else {
                self.partial.extend_from_slice(line);
                self.needles.event_of(&self.partial, &self.namespace)?
            };
            let (Event::Bookmark(version) | Event::Change { version, .. }) = event;
            // The next watch starts from the highest version seen, not from that of the last event. Otherwise a server
            // whose versions decrease would send some events again. The checks report the decrease.
            self.resume_from = self.resume_from.max(version);
            tell(event);
            self.partial.clear();
        }
        if self.partial.len() + rest.len() > EVENT_BYTES_MAX {
            return Err(WatchError::Malformed);
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }
}

impl Needles {
    /// Parses one event. If the event has the form that Go's encoder writes, substring searches find its parts. Any
    /// other form is parsed as JSON.
    fn event_of<'a>(&self, line: &'a [u8], namespace: &str) -> Result<Event<'a>, WatchError> {
        self.usual_event_of(line, namespace).map_or_else(|| parsed_event_of(line, namespace), Ok)
    }

    fn usual_event_of<'a>(&self, line: &'a [u8], namespace: &str) -> Option<Event<'a>> {
        let (kind, object) = until_quote(line.strip_prefix(b"{\"type\":\"")?)?;
        let kind = Kind::of(kind)?;
        let object = object.strip_prefix(b",\"object\":")?.strip_suffix(b"}")?;
        let at = self.metadata_name.find(object)? + self.metadata_name.needle().len();
        let (name, rest) = until_quote(object.get(at..)?)?;
        let (found_namespace, rest) = until_quote(rest.strip_prefix(b",\"namespace\":\"")?)?;
        let at = self.version.find(rest)? + self.version.needle().len();
        let version = object::parse_version(until_quote(rest.get(at..)?)?.0)?;
        let node = if found_namespace == namespace.as_bytes() { node::index_of(name) } else { None };
        Some(Event::Change { kind, version, node, object })
    }
}

#[cold]
fn parsed_event_of<'a>(line: &'a [u8], namespace: &str) -> Result<Event<'a>, WatchError> {
    let event: EventText<'_> = serde_json::from_slice(line).map_err(|_| WatchError::Malformed)?;
    if event.kind == "ERROR" {
        return Err(WatchError::Status(event.object.code));
    }
    let metadata = event.object.metadata;
    let version = object::parse_version(metadata.resource_version.as_bytes()).ok_or(WatchError::Malformed)?;
    if event.kind == "BOOKMARK" {
        return Ok(Event::Bookmark(version));
    }
    let kind = Kind::of(event.kind.as_bytes()).ok_or(WatchError::Malformed)?;
    let ours = metadata.namespace == namespace;
    let node = if ours { node::index_of(metadata.name.as_bytes()) } else { None };
    Ok(Event::Change { kind, version, node, object: line })
}

/// Returns the `renewTime` in the JSON of a Lease or of an event, in microseconds since the Unix epoch.
#[cold]
pub(crate) fn renewed_in(text: &[u8]) -> Option<u64> {
    let key = b"\"renewTime\":\"";
    let at = memmem::find(text, key)? + key.len();
    time_text::parse_micros(text.get(at..at + time_text::MICROS_LEN)?)
}

/// Splits a text at the next double quote, and drops the quote.
fn until_quote(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'"', text)?;
    let (value, rest) = text.split_at(end);
    Some((value, rest.get(1..)?))
}

/// Path of the Leases of all namespaces.
const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
/// Number of Leases in a page of a list, as in client-go's pager.
const PAGE_LIMIT: u32 = 500;
/// Maximum size of an event, in bytes. No Lease is that large.
const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Deserialize)]
struct PageText<'a> {
    #[serde(borrow)]
    metadata: PageMetadata<'a>,
    #[serde(borrow, default)]
    items: Vec<ObjectText<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, rename = "continue")]
    continue_token: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct EventText<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: ObjectText<'a>,
}

#[derive(Deserialize)]
struct ObjectText<'a> {
    #[serde(borrow)]
    metadata: ObjectMetadata<'a>,
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMetadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::object_text;

    fn event_text(kind: &str, object: &str) -> String {
        format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
    }

    /// An event's version and the index of its node.
    type Told = (u64, Option<u32>);

    /// Passes `text` to a watcher in pieces that end at `cuts`. Returns the parsed events and the outcome.
    fn events(text: &[u8], cuts: &[usize]) -> (Vec<Told>, Result<(), WatchError>) {
        let mut watcher = Watcher::new("n");
        let (mut told, mut start) = (Vec::new(), 0);
        for &end in cuts.iter().chain([&text.len()]) {
            let result = watcher.handle_events(&text[start..end], |event| {
                told.push(match event {
                    Event::Bookmark(version) => (version, None),
                    Event::Change { version, node, .. } => (version, node),
                });
            });
            if result.is_err() {
                return (told, result);
            }
            start = end;
        }
        (told, Ok(()))
    }

    #[test]
    fn events_are_parsed_alike_for_any_chunk_boundaries() {
        let renewed = "2026-01-02T03:04:15.000001Z";
        let text = [
            event_text("ADDED", &object_text("node-3", 10, renewed)),
            event_text("MODIFIED", &object_text("node-4", 11, renewed)),
            event_text(
                "MODIFIED",
                &object_text("node-5", 12, renewed).replace("\"namespace\":\"n\"", "\"namespace\":\"o\""),
            ),
            event_text("DELETED", r#"{"metadata":{"resourceVersion":"13","namespace":"n","name":"node-6"}}"#),
            event_text(
                "BOOKMARK",
                r#"{"kind":"Lease","metadata":{"resourceVersion":"20","creationTimestamp":null},"spec":{}}"#,
            ),
            event_text("ERROR", r#"{"kind":"Status","metadata":{},"code":410}"#),
        ]
        .concat();
        let expected = vec![(10, Some(3)), (11, Some(4)), (12, None), (13, Some(6)), (20, None)];
        let whole = events(text.as_bytes(), &[]);
        assert_eq!(whole, (expected, Err(WatchError::Status(410))));
        assert_eq!(events(text.as_bytes(), &(1..text.len()).collect::<Vec<_>>()), whole);
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..200 {
            let mut cuts: Vec<usize> = (0..rng.usize(0..9)).map(|_| rng.usize(0..=text.len())).collect();
            cuts.sort_unstable();
            assert_eq!(events(text.as_bytes(), &cuts), whole, "{cuts:?}");
        }
    }

    #[test]
    fn a_watcher_lists_in_pages_then_watches_and_lists_when_expired() {
        let mut watcher = Watcher::new("n");
        assert_eq!(watcher.next_target(7, 300), "/apis/coordination.k8s.io/v1/leases?limit=500");
        let page = |object: &str, next: &str| {
            format!(r#"{{"kind":"LeaseList","metadata":{{"resourceVersion":"9"{next}}},"items":[{object}]}}"#)
        };
        let first = page(&object_text("node-1", 5, ""), r#","continue":"a=b","remainingItemCount":1"#);
        assert_eq!(watcher.handle_page(first.as_bytes()), Some(Page::More));
        assert_eq!(watcher.next_target(8, 300), "/apis/coordination.k8s.io/v1/leases?continue=a%3Db&limit=500");
        let last = page(&object_text("node-2", 6, ""), "");
        assert_eq!(watcher.handle_page(last.as_bytes()), Some(Page::Complete { version: 9, known: 7 }));
        assert_eq!(watcher.listed, [(1, 5), (2, 6)]);
        assert!(watcher.next_target(9, 300).contains("resourceVersion=9&timeoutSeconds=300&watch=true"));
        let event = event_text("ADDED", &object_text("node-3", 15, "2026-01-02T03:04:15.000001Z"));
        watcher.handle_events(event.as_bytes(), |_| {}).expect("an event");
        assert!(watcher.next_target(9, 300).contains("resourceVersion=15&"));
        watcher.handle_expired();
        assert!(!watcher.is_watching());
        assert!(watcher.handle_page(b"{}").is_none());
    }

    #[test]
    fn the_renew_time_is_found_in_an_object() {
        let text = object_text("node-1", 5, "1970-01-01T00:00:01.000002Z");
        assert_eq!(renewed_in(text.as_bytes()), Some(1_000_002));
        assert_eq!(renewed_in(b"{}"), None);
    }
}
