//! The simulated clients, which behave as real clients of the API do. They record everything that they observe in the
//! history.

pub mod auditor;
pub mod crud;
pub mod election;
pub mod http;
pub mod kubelet;
pub mod lease;
pub mod lister;
pub mod watcher;

use crate::check::history::{Base, Key, Kind, OpId, Outcome, State};
use crate::kernel::Context;
use http::{Http, Lost, Request, WINDOW};
use serde_json::Value;

/// A client that reads and writes single Leases, and records its requests in the history.
#[derive(Debug)]
pub struct Client {
    /// The client's access to the clock, the network, random numbers and the log.
    pub context: Context,
    http: Http,
    /// Time after which a request is abandoned, in microseconds.
    pub within_us: u64,
    /// Body of the last response with a Lease, unchanged.
    last_body: Vec<u8>,
}

/// The response to a request, as the client interprets it.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A Lease from the server.
    Object(Value),
    /// A successful response that is not a Lease.
    Done(Value),
    /// Status code of a refusal by the server.
    Refused(u16),
    /// No response, or a successful one that is not JSON: the request may have taken effect.
    Lost,
}

impl Client {
    /// Creates a client without a connection.
    #[must_use]
    pub fn new(context: Context, within_us: u64) -> Self {
        Self { context, http: Http::new(WINDOW), within_us, last_body: Vec::new() }
    }

    /// Sends a POST that creates a Lease. `options` is empty, or requests a dry run.
    pub async fn create(&mut self, key: &Key, lease: &Value, tag: u64, options: &str) -> Answer {
        self.send(Kind::Create, key, options, &lease.to_string(), (tag, Base::Absent)).await
    }

    /// Replaces a Lease. If `lease` has a resourceVersion, the update is based on that version.
    pub async fn put(&mut self, key: &Key, lease: &Value, tag: u64, options: &str) -> Answer {
        let base = version_of(lease).map_or(Base::Any, Base::Version);
        self.send(Kind::Put, key, options, &lease.to_string(), (tag, base)).await
    }

    /// Renews a Lease: sends back the body of the last response with a Lease, byte for byte except for `renewTime`.
    /// Returns `None`, and sends nothing, if that body does not contain the version of `base`.
    pub async fn renew(&mut self, key: &Key, base: &Value, tag: u64) -> Option<Answer> {
        let text = str::from_utf8(&self.last_body).ok()?;
        let time = base["spec"]["renewTime"].as_str()?;
        let version = version_of(base)?;
        if !text.contains(&format!("\"resourceVersion\":\"{version}\"")) {
            return None;
        }
        let body = text.replacen(
            &format!("\"renewTime\":\"{time}\""),
            &format!("\"renewTime\":\"{}\"", lease::micro_time(tag)),
            1,
        );
        Some(self.send(Kind::Put, key, "", &body, (tag, Base::Version(version))).await)
    }

    /// Sends a PATCH of a Lease with a merge patch. `options` is empty, or requests a dry run.
    pub async fn patch(&mut self, key: &Key, patch: &Value, tag: u64, options: &str) -> Answer {
        self.send(Kind::Patch, key, options, &patch.to_string(), (tag, Base::Any)).await
    }

    /// Sends a GET of a Lease.
    pub async fn get(&mut self, key: &Key) -> Answer {
        self.send(Kind::Get, key, "", "", (0, Base::Any)).await
    }

    /// Sends a DELETE of a Lease. `options` is empty, or requests a dry run.
    pub async fn delete(&mut self, key: &Key, options: &str) -> Answer {
        self.send(Kind::Delete, key, options, "", (0, Base::Any)).await
    }

    /// Sends a DELETE of all Leases in a namespace.
    pub async fn delete_collection(&mut self, namespace: &str) -> Answer {
        let key = Key { namespace: namespace.to_owned(), name: String::new() };
        self.send(Kind::DeleteCollection, &key, "", "", (0, Base::Any)).await
    }

    /// Sends a request, and records it in the history. A request without a body has an empty `body`, and one that
    /// writes no `renewTime` has the tag 0.
    async fn send(&mut self, kind: Kind, key: &Key, options: &str, body: &str, (tag, base): (u64, Base)) -> Answer {
        let (method, path, content_type) = match kind {
            Kind::Create => ("POST", lease::collection(&key.namespace), "application/json"),
            Kind::Put => ("PUT", lease::path(key), "application/json"),
            Kind::Patch => ("PATCH", lease::path(key), "application/merge-patch+json"),
            Kind::Delete => ("DELETE", lease::path(key), ""),
            Kind::DeleteCollection => ("DELETE", lease::collection(&key.namespace), ""),
            // No caller passes `Kind::Dry`: `options` requests a dry run, and only the history records this kind.
            Kind::Dry | Kind::Get => ("GET", lease::path(key), ""),
        };
        let kind = if options.is_empty() { kind } else { Kind::Dry };
        let op = self.context.sim.history.borrow_mut().begin(kind, key.clone(), tag, base, self.context.now_us());
        self.finish(op, &Request { method, target: &format!("{path}{options}"), content_type, body }).await
    }

    async fn finish(&mut self, op: OpId, request: &Request<'_>) -> Answer {
        let response = self.http.request(&self.context, request, self.within_us).await;
        let answer = match response {
            Err(Lost) => Answer::Lost,
            Ok(response) => match (response.status, serde_json::from_slice::<Value>(&response.body)) {
                (200..=299, Ok(value)) if value["kind"] == "Lease" => {
                    self.last_body = response.body;
                    Answer::Object(value)
                }
                (200..=299, Ok(value)) => Answer::Done(value),
                (200..=299, Err(_)) => Answer::Lost,
                (status, _) => Answer::Refused(status),
            },
        };
        let outcome = match outcome(&answer) {
            // A replica repeats a command that got no response from etcd. If etcd refuses the repeated command as full,
            // the first one may still take effect.
            Outcome::Refused(507) if self.context.sim.swarm.replicas > 0 => {
                let mut history = self.context.sim.history.borrow_mut();
                // A replica that was paused or cut off from etcd may send a 507 long after etcd has space again. So the
                // end of a full period is not checked.
                if history.full.is_empty() {
                    let Request { method, target, .. } = request;
                    history.complaints.push(format!("{method} {target} found no space, but etcd had not been full"));
                }
                Outcome::Unknown
            }
            outcome => outcome,
        };
        if let Answer::Refused(status) = &answer {
            self.context.sim.count(match status {
                404 => "404",
                409 => "409",
                429 => "429",
                503 => "503",
                504 => "504",
                507 => "507",
                _ => "other refusals",
            });
        }
        self.context.say(|| format!("{} {} → {}", request.method, request.target, shown(&answer)));
        let name = match &answer {
            Answer::Object(lease) => lease::key(lease),
            Answer::Done(_) | Answer::Refused(_) | Answer::Lost => None,
        };
        self.context.sim.history.borrow_mut().end(op, outcome, name, self.context.now_us());
        answer
    }
}

fn outcome(answer: &Answer) -> Outcome {
    match answer {
        Answer::Object(lease) => lease::state(lease).map_or(Outcome::Unreadable, Outcome::State),
        Answer::Done(value) if value["kind"] == "Status" => {
            Outcome::Deleted(vec![value["details"]["uid"].as_str().unwrap_or_default().to_owned()])
        }
        Answer::Done(value) => {
            let items = value["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            Outcome::Deleted(items.iter().filter_map(|item| lease::state(item).map(|state| state.uid)).collect())
        }
        // After the status codes 500 and 504, the server itself does not know whether the request took effect.
        Answer::Refused(500 | 504) | Answer::Lost => Outcome::Unknown,
        Answer::Refused(status) => Outcome::Refused(*status),
    }
}

fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Object(lease) => {
            lease::state(lease).map_or_else(|| "?".to_owned(), |State { version, .. }| format!("version {version}"))
        }
        Answer::Done(value) => format!("done, {}", value["kind"]),
        Answer::Refused(status) => format!("{status}"),
        Answer::Lost => "no answer".to_owned(),
    }
}

/// Returns the resourceVersion of an object or list that a server sent.
#[must_use]
pub fn version_of(value: &Value) -> Option<u64> {
    value["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
