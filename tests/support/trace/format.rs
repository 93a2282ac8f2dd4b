//! The trace file.
//!
//! ```text
//! {"name": …, "about": …, "steps": [STEP, …]}
//!
//! STEP  {"request": REQUEST, "response": RESPONSE}
//!       {"watch": ID, "request": REQUEST, "response": RESPONSE}   opens a stream, which goes on beside the next steps
//!       {"events": ID, "body": [EVENT, …]}                        all that the stream carried, now that it has ended
//!       {"sleep": SECONDS}
//! ```
//!
//! A body is JSON where the media type is JSON, else a string. Bookmarks whose time depends on the clock are left out.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    /// Name of the file, without its end.
    pub(crate) name: String,
    /// The rule that it shows, in a line.
    pub(crate) about: String,
    /// What was done, in order.
    pub(crate) steps: Vec<Step>,
}

/// One thing that was done.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Step {
    /// A stream has ended.
    Events(Events),
    /// A request with its answer; or, with an ID, one that opened a stream.
    Exchange(Exchange),
    /// Nothing, for a while.
    Sleep(Sleep),
}

/// See [`Step::Events`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Events {
    /// ID of the stream.
    pub(crate) events: String,
    /// All that it carried.
    pub(crate) body: Value,
}

/// See [`Step::Exchange`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    /// ID of the stream that the answer opened, if it did.
    pub(crate) watch: Option<String>,
    /// What was asked.
    pub(crate) request: Request,
    /// What was answered.
    pub(crate) response: Response,
}

/// See [`Step::Sleep`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sleep {
    /// How long.
    pub(crate) sleep: f64,
}

/// What was asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Method.
    pub(crate) method: String,
    /// Path with its query, with symbols.
    pub(crate) path: String,
    /// Fields in place of the usual ones; one that is null is not sent.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Option<String>>,
    /// JSON, or a string to be sent as it is.
    pub(crate) body: Option<Value>,
}

/// What was answered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Response {
    /// Status code.
    pub(crate) status: u16,
    /// Those of [`COMPARED_FIELDS`] that it had.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// None where a stream was opened.
    pub(crate) body: Option<Value>,
    /// Only the status and the body's `code`, `reason` and `status` count: the rest is in the words of Go's decoders.
    #[serde(default)]
    pub(crate) loose: bool,
}

/// The fields of a response that a client decides on, in lower case.
pub(crate) const COMPARED_FIELDS: [&str; 4] = ["allow", "content-type", "retry-after", "warning"];

/// Annotation of the bookmark that ends the initial events, the only one whose time does not depend on the clock.
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Whether an event belongs in a trace.
pub(crate) fn is_recorded(event: &Value) -> bool {
    event["type"] != "BOOKMARK" || !event["object"]["metadata"]["annotations"][INITIAL_EVENTS_END].is_null()
}
