//! The steps of a trace, against a server.

use super::compare::{Comparison, short};
use super::format::{COMPARED_FIELDS, Exchange, Request, Response, Step, Trace, is_recorded};
use super::symbols::{Bindings, Place};
use crate::support::client::Client;
use crate::support::response::{Response as Got, ResponseHead};
use crate::support::shown;
use crate::support::stream::Endpoint;
use crate::support::watch::Watch;
use serde_json::Value;
use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Replays traces against one server.
pub(crate) struct Replayer {
    endpoint: Endpoint,
    bindings: Bindings,
    /// The streams under way, by ID. Each is read by a thread, so that it is not the reader who is slow.
    watches: BTreeMap<String, JoinHandle<Result<Vec<Value>, String>>>,
}

impl Replayer {
    /// For one trace, whose namespace is empty on the server.
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, bindings: Bindings::default(), watches: BTreeMap::new() }
    }

    /// Does the steps up to the first whose outcome differs.
    ///
    /// # Errors
    /// Which one that was, what was sent, what came, and how it differs.
    pub(crate) fn run(mut self, trace: &Trace) -> Result<(), String> {
        for (number, step) in trace.steps.iter().enumerate() {
            self.run_step(step).map_err(|why| format!("{} ({}): step {number}: {why}", trace.name, trace.about))?;
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

    /// Waits for the end of a stream and compares all that it carried.
    fn finish_watch(&mut self, id: &str, want: &Value) -> Result<(), String> {
        let watch = self.watches.remove(id).ok_or_else(|| format!("no watch {id} is open"))?;
        let events = watch.join().map_err(|_| format!("the reader of watch {id} has panicked"))??;
        let got: Value = events.into_iter().filter(is_recorded).collect();
        let mut comparison = Comparison::new(&mut self.bindings, Place::Events);
        comparison.compare("events", want, &got);
        report(comparison.differences(), || format!("watch {id}"), || got.to_string())
    }

    /// Sends a request and compares its answer, or opens a stream.
    fn exchange(&mut self, step: &Exchange) -> Result<(), String> {
        let request = encode(&step.request, &self.bindings);
        let target = self.bindings.fill(&step.request.path);
        let broken = |error| format!("no answer ({error}); sent\n{}", shown(&request));
        if let Some(id) = &step.watch {
            let mut watch = match Watch::try_open(&self.endpoint, &target, &request) {
                Ok(watch) => watch,
                Err(refusal) => return Err(format!("want a watch; sent\n{}\ngot\n{refusal}", shown(&request))),
            };
            let found = self.head_differences(&step.response, &watch.head);
            report(found, || shown(&request), || format!("{:?}", watch.head))?;
            self.watches.insert(id.clone(), thread::spawn(move || read_to_end(&mut watch)));
            return Ok(());
        }
        let mut client = Client::try_open(&self.endpoint).map_err(broken)?;
        client.try_send(&request).map_err(broken)?;
        let got = client.try_recv(&step.request.method).map_err(broken)?;
        let mut found = self.head_differences(&step.response, &got.head);
        if found.is_empty() {
            found = self.body_differences(&step.response, &got);
        }
        report(found, || shown(&request), || got.to_string())
    }

    /// How status and fields differ from what was recorded.
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

    /// How the body differs from what was recorded.
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

/// A body as a trace has it: JSON where the media type is JSON, else text.
fn body_value(got: &Got) -> Value {
    let is_json = got.head.field("content-type").is_some_and(|value| value.starts_with("application/json"));
    let parsed = if is_json { serde_json::from_slice(&got.body).ok() } else { None };
    parsed.unwrap_or_else(|| Value::from(String::from_utf8_lossy(&got.body)))
}

/// The request on the wire.
fn encode(request: &Request, bindings: &Bindings) -> Vec<u8> {
    let body = request.body.as_ref().map(|body| match bindings.fill_value(body) {
        Value::String(text) => text,
        json => json.to_string(),
    });
    let has_json = request.body.as_ref().is_some_and(|body| !body.is_string());
    let mut fields = vec![("User-Agent", "conformance/1.0"), ("Accept", "application/json")];
    if has_json {
        fields.push(("Content-Type", "application/json"));
    }
    let mut lines = String::new();
    for (name, value) in fields {
        if !request.headers.contains_key(name) {
            lines.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    for (name, value) in &request.headers {
        if let Some(value) = value {
            lines.push_str(&format!("{name}: {}\r\n", bindings.fill(value)));
        }
    }
    let may_have_content = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    if body.is_some() || may_have_content {
        lines.push_str(&format!("Content-Length: {}\r\n", body.as_ref().map_or(0, String::len)));
    }
    let (method, target, body) = (&request.method, bindings.fill(&request.path), body.unwrap_or_default());
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n{body}").into_bytes()
}

/// All events of a stream.
fn read_to_end(watch: &mut Watch) -> Result<Vec<Value>, String> {
    let mut events = Vec::new();
    loop {
        match watch.try_next() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return Ok(events),
            Err(error) => return Err(format!("the watch broke ({error}) after {}", Value::from(events))),
        }
    }
}

/// An error that says what was sent, what came, and each difference; none if there is none.
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
    fn a_field_of_the_trace_replaces_the_usual_one_and_null_leaves_it_out() {
        let replaced = json!({"method": "GET", "path": "/x", "headers": {"Accept": "text/html", "User-Agent": null}});
        let encoded = encode(&request(&replaced), &Bindings::default());
        assert_eq!(encoded, b"GET /x HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n");
    }

    #[test]
    fn a_json_body_gets_its_media_type_and_a_text_is_sent_as_it_is() {
        let json = encode(&request(&json!({"method": "PUT", "path": "/", "body": {"a": 1}})), &Bindings::default());
        assert!(
            json.ends_with(b"Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}"),
            "{}",
            shown(&json)
        );
        let text = encode(&request(&json!({"method": "PUT", "path": "/", "body": "{"})), &Bindings::default());
        assert!(text.ends_with(b"Accept: application/json\r\nContent-Length: 1\r\n\r\n{"), "{}", shown(&text));
    }

    #[test]
    fn fields_of_a_response_that_were_not_recorded_are_differences_too() {
        let replayer = Replayer::new(Endpoint { address: ([127, 0, 0, 1], 1).into(), tls: None });
        let want = Response { status: 200, headers: BTreeMap::new(), body: None, loose: false };
        let got = ResponseHead { minor_version: 1, status: 200, fields: vec![("warning".into(), "299 - x".into())] };
        assert_eq!(replayer.head_differences(&want, &got), [r#"field warning: got Some("299 - x"), want None"#]);
    }
}
