//! A watch: a chunked response with one JSON event in each line.

use super::client::{Client, request};
use super::response::{Response, ResponseHead};
use super::stream::Endpoint;
use serde_json::{Value, json};
use std::io;

/// An open watch.
pub(crate) struct Watch {
    /// The connection of the watch.
    pub(crate) client: Client,
    /// Head of the response.
    pub(crate) head: ResponseHead,
    line: Vec<u8>,
}

impl Watch {
    /// Opens a watch at `target` (path and query).
    ///
    /// # Panics
    /// If the request is refused.
    #[track_caller]
    pub(crate) fn open(endpoint: &Endpoint, target: &str) -> Self {
        let opened = Self::try_open(endpoint, target, &request("GET", target, ""));
        opened.unwrap_or_else(|refusal| panic!("want a watch at {target}\ngot {refusal}"))
    }

    /// Sends `request` and reads its response as a watch. Returns a refusal as an error.
    ///
    /// # Panics
    /// If no response arrives.
    #[track_caller]
    pub(crate) fn try_open(endpoint: &Endpoint, target: &str, request: &[u8]) -> Result<Self, Response> {
        let mut client = Client::open(endpoint);
        client.send(request);
        Self::try_recv(client, target)
    }

    /// Reads the next response of `client` as a watch. Returns a refusal as an error.
    ///
    /// # Panics
    /// If no response arrives.
    #[track_caller]
    pub(crate) fn try_recv(mut client: Client, target: &str) -> Result<Self, Response> {
        let head = client.try_recv_head().unwrap_or_else(|error| panic!("no answer to the watch {target}: {error}"));
        if head.status == 200 && head.is_chunked() {
            return Ok(Self { client, head, line: Vec::new() });
        }
        let length = head.field("content-length").and_then(|length| length.parse::<usize>().ok()).unwrap_or_default();
        let body = client.take(length).unwrap_or_default();
        Err(Response { head, body })
    }

    /// Reads the next event. `None` after the last chunk of the stream.
    pub(crate) fn try_next(&mut self) -> io::Result<Option<Value>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.line) {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return serde_json::from_slice(&line).map(Some).map_err(io::Error::other);
            }
            match self.client.recv_chunk()? {
                Some(data) => self.line.extend_from_slice(&data),
                None if self.line.is_empty() => return Ok(None),
                None => return Err(io::Error::other("the stream ended within an event")),
            }
        }
    }

    /// Reads the next event.
    ///
    /// # Panics
    /// If none arrives or the stream ends.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        match self.try_next() {
            Ok(Some(event)) => event,
            Ok(None) => panic!("the watch has ended; want an event"),
            Err(error) => panic!("the watch broke ({error}); want an event"),
        }
    }

    /// Reads all events until the orderly end of the stream.
    ///
    /// # Panics
    /// If the stream breaks.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            match self.try_next() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return events,
                Err(error) => panic!("the watch broke ({error}) after {} events", events.len()),
            }
        }
    }
}

/// Returns the `type` of an event.
///
/// # Panics
/// If the event has none.
#[track_caller]
pub(crate) fn kind(event: &Value) -> &str {
    event["type"].as_str().unwrap_or_else(|| panic!("an event without type: {event}"))
}

/// Checks that an event is an ERROR with 410: the watch's version is too old.
///
/// # Panics
/// If the event is not such an ERROR.
#[track_caller]
pub(crate) fn expect_expired(event: &Value) {
    let status = &event["object"];
    let facts = (&event["type"], &status["kind"], &status["status"], &status["reason"], &status["code"]);
    let want = (&json!("ERROR"), &json!("Status"), &json!("Failure"), &json!("Expired"), &json!(410));
    assert_eq!(facts, want, "type, kind, status, reason, code of {event}");
}
