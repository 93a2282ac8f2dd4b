//! Runs the steps of a trace against a server.

use super::compare::{Comparison, short};
use super::format::{COMPARED_FIELDS, Exchange, Request, Response, Step, Trace, is_recorded};
use super::symbols::{Bindings, Place};
use crate::support::client::Client;
use crate::support::http2::{Http2Client, Message};
use crate::support::response::{Response as Got, ResponseHead};
use crate::support::shown;
use crate::support::stream::Endpoint;
use crate::support::watch::Watch;
use coordination_apiserver::http2::{Config, StreamKey};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// HTTP version of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, with a connection for each request.
    Http1,
    /// HTTP/2, with one connection for all requests.
    Http2,
}

/// Replays one trace against a server.
pub(crate) struct Replayer {
    endpoint: Endpoint,
    bindings: Bindings,
    /// The HTTP/2 connection; `Some(None)` before the first request, and `None` for HTTP/1.1.
    http2: Option<Option<Http2Client>>,
    /// The open streams, by ID.
    watches: BTreeMap<String, OpenWatch>,
}

/// A stream of events, compared after its end.
enum OpenWatch {
    /// Read by a thread, so that the reader is never slow.
    Http1(JoinHandle<Result<Vec<Value>, String>>),
    /// Read together with all other streams of the HTTP/2 connection.
    Http2(StreamKey),
}

impl Replayer {
    /// Creates the replayer of one trace. The trace's namespace must be empty.
    pub(crate) fn new(endpoint: Endpoint, protocol: Protocol) -> Self {
        let http2 = (protocol == Protocol::Http2).then_some(None);
        Self { endpoint, bindings: Bindings::default(), http2, watches: BTreeMap::new() }
    }

    /// Runs the steps in order, and stops at the first one whose response differs from the recorded one. `otherwise`
    /// has the indices of steps whose responses must differ.
    ///
    /// # Errors
    /// The failing step, with the request, the response and the differences.
    pub(crate) fn run(mut self, trace: &Trace, otherwise: &[usize]) -> Result<(), String> {
        for (number, step) in trace.steps.iter().enumerate() {
            let outcome = match (self.run_step(step), otherwise.contains(&number)) {
                (Ok(()), true) => Err("the answer no longer differs".to_owned()),
                // A broken connection or an error of the server is no permitted difference.
                (Err(why), true) if why.starts_with("no answer") || why.contains("status: got 5") => Err(why),
                (Err(_), true) => Ok(()),
                (outcome, false) => outcome,
            };
            outcome.map_err(|why| format!("{} ({}): step {number}: {why}", trace.name, trace.about))?;
        }
        Ok(())
    }

    fn run_step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Events(step) => self.finish_watch(&step.events, &step.body),
            Step::Exchange(step) => self.exchange(step),
            Step::Sleep(step) => {
                thread::sleep(Duration::from_secs_f64(step.sleep));
                Ok(())
            }
        }
    }

    /// Waits for the end of a stream and compares all its events.
    fn finish_watch(&mut self, id: &str, want: &Value) -> Result<(), String> {
        let watch = self.watches.remove(id).ok_or_else(|| format!("no watch {id} is open"))?;
        let events = match (watch, &mut self.http2) {
            (OpenWatch::Http1(reader), _) => {
                reader.join().map_err(|_| format!("the reader of watch {id} has panicked"))??
            }
            (OpenWatch::Http2(stream), Some(Some(client))) => read_to_end(|| client.try_next_event(stream))?,
            (OpenWatch::Http2(_), _) => return Err(format!("watch {id} has lost its connection")),
        };
        let got: Value = events.into_iter().filter(is_recorded).collect();
        let mut comparison = Comparison::new(&mut self.bindings, Place::Events);
        comparison.compare("events", want, &got);
        report(comparison.differences(), || format!("watch {id}"), || got.to_string())
    }

    /// Sends a request and compares its response, or opens a stream.
    fn exchange(&mut self, step: &Exchange) -> Result<(), String> {
        let message = message(&step.request, &self.bindings);
        let sent = || shown(&in_http1(&message));
        let broken = |error| format!("no answer ({error}); sent\n{}", sent());
        if let Some(id) = &step.watch {
            let refused = |refusal: &dyn std::fmt::Display| format!("want a watch; sent\n{}\ngot\n{refusal}", sent());
            let (head, watch) = match &mut self.http2 {
                None => {
                    let request = in_http1(&message);
                    let watch = Watch::try_open(&self.endpoint, &message.target, &request);
                    let mut watch = watch.map_err(|refusal| refused(&refusal))?;
                    let head = watch.head.clone();
                    (head, OpenWatch::Http1(thread::spawn(move || read_to_end(|| watch.try_next()))))
                }
                Some(client) => {
                    let client = connected(client, &self.endpoint).map_err(broken)?;
                    let stream = client.send(&in_http2(&message));
                    let head = client.try_recv_head(stream).map_err(broken)?;
                    if head.status != 200 || head.field("content-length").is_some() {
                        return Err(refused(&client.try_recv(stream).map_err(broken)?));
                    }
                    (head, OpenWatch::Http2(stream))
                }
            };
            report(self.head_differences(&step.response, &head), sent, || format!("{head:?}"))?;
            self.watches.insert(id.clone(), watch);
            return Ok(());
        }
        let got = match &mut self.http2 {
            None => {
                let mut client = Client::try_open(&self.endpoint).map_err(broken)?;
                client.try_send(&in_http1(&message)).map_err(broken)?;
                client.try_recv(&message.method).map_err(broken)?
            }
            Some(client) => {
                let client = connected(client, &self.endpoint).map_err(broken)?;
                let stream = client.send(&in_http2(&message));
                client.try_recv(stream).map_err(broken)?
            }
        };
        let mut found = self.head_differences(&step.response, &got.head);
        if found.is_empty() {
            found = self.body_differences(&step.response, &got);
        }
        report(found, sent, || got.to_string())
    }

    /// Returns the differences of status and fields from the recorded ones.
    fn head_differences(&self, want: &Response, got: &ResponseHead) -> Vec<String> {
        let mut found = Vec::new();
        if want.status != got.status {
            found.push(format!("status: got {}, want {}", got.status, want.status));
        }
        if want.loose {
            return found;
        }
        for name in COMPARED_FIELDS {
            let want = want.headers.get(name).map(|value| self.bindings.fill(value));
            let got = got.field(name);
            if want.as_deref() != got {
                found.push(format!("field {name}: got {got:?}, want {want:?}"));
            }
        }
        found
    }

    /// Returns the differences of the body from the recorded one.
    fn body_differences(&mut self, want: &Response, got: &Got) -> Vec<String> {
        let Some(want_body) = &want.body else { return Vec::new() };
        let got_body = body_value(got);
        if !want.loose {
            let mut comparison = Comparison::new(&mut self.bindings, Place::Answer);
            comparison.compare("body", want_body, &got_body);
            return comparison.differences();
        }
        let differing = ["code", "reason", "status"].into_iter().filter(|key| want_body[key] != got_body[key]);
        let line = |key| format!("body.{key}: got {}, want {}", short(&got_body[key]), short(&want_body[key]));
        if want_body.is_object() { differing.map(line).collect() } else { Vec::new() }
    }
}

/// Converts a body to the form of a trace: JSON if the media type is JSON, text otherwise.
fn body_value(got: &Got) -> Value {
    let is_json = got.head.field("content-type").is_some_and(|value| value.starts_with("application/json"));
    let parsed = if is_json { serde_json::from_slice(&got.body).ok() } else { None };
    parsed.unwrap_or_else(|| Value::from(String::from_utf8_lossy(&got.body)))
}

/// Returns the HTTP/2 connection. Opens it for the first request.
fn connected<'c>(client: &'c mut Option<Http2Client>, endpoint: &Endpoint) -> io::Result<&'c mut Http2Client> {
    match client {
        Some(client) => Ok(client),
        None => Ok(client.insert(Http2Client::try_open(endpoint, Config::default())?)),
    }
}

/// Builds the request, with values in place of symbols.
fn message(request: &Request, bindings: &Bindings) -> Message {
    let body = request.body.as_ref().map(|body| match bindings.fill_value(body) {
        Value::String(text) => text,
        json => json.to_string(),
    });
    let has_json = request.body.as_ref().is_some_and(|body| !body.is_string());
    let mut usual = vec![("User-Agent", "conformance/1.0"), ("Accept", "application/json")];
    if has_json {
        usual.push(("Content-Type", "application/json"));
    }
    let usual = usual.into_iter().filter(|(name, _)| !request.headers.contains_key(*name));
    let mut fields: Vec<_> = usual.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let own = request.headers.iter().filter_map(|(name, value)| Some((name.clone(), bindings.fill(value.as_ref()?))));
    fields.extend(own);
    let may_have_content = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    if body.is_some() || may_have_content {
        fields.push(("Content-Length".to_owned(), body.as_ref().map_or(0, String::len).to_string()));
    }
    let (method, target) = (request.method.clone(), bindings.fill(&request.path));
    Message { method, target, fields, body: body.unwrap_or_default().into_bytes() }
}

/// Encodes the request for HTTP/1.1.
fn in_http1(message: &Message) -> Vec<u8> {
    let Message { method, target, fields, body } = message;
    let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    [format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n").as_bytes(), body].concat()
}

/// Converts the request for HTTP/2: field names in lower case (RFC 9113 §8.2.1).
fn in_http2(message: &Message) -> Message {
    let fields = message.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
    Message { fields, ..message.clone() }
}

/// Reads all events of a stream.
fn read_to_end(mut next: impl FnMut() -> io::Result<Option<Value>>) -> Result<Vec<Value>, String> {
    let mut events = Vec::new();
    loop {
        match next() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return Ok(events),
            Err(error) => return Err(format!("the watch broke ({error}) after {}", Value::from(events))),
        }
    }
}

/// Builds an error with the request, the response and each difference. `Ok` if there are no differences.
fn report(found: Vec<String>, sent: impl FnOnce() -> String, got: impl FnOnce() -> String) -> Result<(), String> {
    if found.is_empty() {
        return Ok(());
    }
    Err(format!("differs:\n  {}\nsent\n{}\ngot\n{}", found.join("\n  "), sent(), got()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(text: &Value) -> Request {
        serde_json::from_value(text.clone()).unwrap()
    }

    #[test]
    fn a_trace_header_replaces_the_default_and_null_removes_it() {
        let replaced = json!({"method": "GET", "path": "/x", "headers": {"Accept": "text/html", "User-Agent": null}});
        let encoded = in_http1(&message(&request(&replaced), &Bindings::default()));
        assert_eq!(encoded, b"GET /x HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n");
    }

    #[test]
    fn a_json_body_has_a_content_type_and_a_text_body_has_none() {
        let encode = |text: &Value| in_http1(&message(&request(text), &Bindings::default()));
        let json = encode(&json!({"method": "PUT", "path": "/", "body": {"a": 1}}));
        assert!(
            json.ends_with(b"Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}"),
            "{}",
            shown(&json)
        );
        let text = encode(&json!({"method": "PUT", "path": "/", "body": "{"}));
        assert!(text.ends_with(b"Accept: application/json\r\nContent-Length: 1\r\n\r\n{"), "{}", shown(&text));
    }

    #[test]
    fn unrecorded_response_fields_are_differences() {
        let replayer = Replayer::new(Endpoint { address: ([127, 0, 0, 1], 1).into(), tls: None }, Protocol::Http1);
        let want = Response { status: 200, headers: BTreeMap::new(), body: None, loose: false };
        let got = ResponseHead { version: "1.1", status: 200, fields: vec![("warning".into(), "299 - x".into())] };
        assert_eq!(replayer.head_differences(&want, &got), [r#"field warning: got Some("299 - x"), want None"#]);
    }
}
