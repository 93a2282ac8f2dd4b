//! The format of trace files.
//!
//! ```text
//! {"name": …, "about": …, "steps": [STEP, …]}
//!
//! STEP  {"request": REQUEST, "response": RESPONSE}
//!       {"watch": ID, "request": REQUEST, "response": RESPONSE}   opens a stream, which continues during later steps
//!       {"events": ID, "body": [EVENT, …]}                        all events of the stream, which has ended
//!       {"sleep": SECONDS}
//! ```
//!
//! A body is JSON if its media type is JSON, and a string otherwise. Bookmarks that depend on the clock are left out.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A trace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    /// Name of the file, without the extension.
    pub(crate) name: String,
    /// The rule that the trace shows, in a line.
    pub(crate) about: String,
    /// The steps, in order.
    pub(crate) steps: Vec<Step>,
}

/// A step of a trace.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Step {
    /// The end of a stream, with all events of the stream.
    Events(Events),
    /// A request and its response, which may open a stream.
    Exchange(Exchange),
    /// A pause.
    Sleep(Sleep),
}

/// See [`Step::Events`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Events {
    /// ID of the stream.
    pub(crate) events: String,
    /// All events of the stream.
    pub(crate) body: Value,
}

/// See [`Step::Exchange`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    /// ID of the stream that the response opened, if any.
    pub(crate) watch: Option<String>,
    /// The request.
    pub(crate) request: Request,
    /// The response.
    pub(crate) response: Response,
}

/// See [`Step::Sleep`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sleep {
    /// Duration in seconds.
    pub(crate) sleep: f64,
}

/// A request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Method.
    pub(crate) method: String,
    /// Path with its query, with symbols.
    pub(crate) path: String,
    /// Header fields, each in place of the default field of the same name. A field whose value here is null is not
    /// sent.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Option<String>>,
    /// JSON, or a string that is sent unchanged.
    pub(crate) body: Option<Value>,
}

/// A response.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Response {
    /// Status code.
    pub(crate) status: u16,
    /// The header fields of the response that are in [`COMPARED_FIELDS`].
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Body; `None` if a stream was opened.
    pub(crate) body: Option<Value>,
    /// Whether only the status code and the members `code`, `reason` and `status` of the body are compared. The other
    /// members quote messages of Go's decoders.
    #[serde(default)]
    pub(crate) loose: bool,
}

/// Fields of a response that clients depend on, in lower case.
pub(crate) const COMPARED_FIELDS: [&str; 4] = ["allow", "content-type", "retry-after", "warning"];

/// Annotation of the bookmark that ends the initial events. Only this bookmark does not depend on the clock.
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Whether traces contain this event.
pub(crate) fn is_recorded(event: &Value) -> bool {
    event["type"] != "BOOKMARK" || !event["object"]["metadata"]["annotations"][INITIAL_EVENTS_END].is_null()
}
