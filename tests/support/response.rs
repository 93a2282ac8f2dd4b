//! Responses and checks of them.

use super::shown;
use serde_json::Value;

/// Status line and field lines.
#[derive(Clone, Debug)]
pub(crate) struct ResponseHead {
    /// Version of HTTP: `1.0`, `1.1` or `2`.
    pub(crate) version: &'static str,
    /// Status code.
    pub(crate) status: u16,
    /// Field lines in order, names in lower case.
    pub(crate) fields: Vec<(String, String)>,
}

/// A complete response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// Status line and field lines.
    pub(crate) head: ResponseHead,
    /// Content, without its transfer coding.
    pub(crate) body: Vec<u8>,
}

impl ResponseHead {
    /// Returns the value of the last field line of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether `Connection` names `option`.
    pub(crate) fn connection_is(&self, option: &str) -> bool {
        self.fields
            .iter()
            .filter(|(name, _)| name == "connection")
            .flat_map(|(_, value)| value.split(','))
            .any(|token| token.trim().eq_ignore_ascii_case(option))
    }

    /// Whether the content is chunked.
    pub(crate) fn is_chunked(&self) -> bool {
        self.field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    }
}

impl Response {
    /// Returns the status code.
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    /// Parses the body as JSON.
    ///
    /// # Panics
    /// If the body is not JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("the body is not JSON ({error}): {self}"))
    }

    /// Checks the status, and returns the response.
    ///
    /// # Panics
    /// With `sent` and the response, if the status differs.
    #[track_caller]
    pub(crate) fn expect_status(self, status: u16, sent: &str) -> Self {
        assert_eq!(self.head.status, status, "want {status}; sent {sent}\ngot {self}");
        self
    }

    /// Checks that the body is a `Status` of a failure with this code and reason.
    ///
    /// # Panics
    /// With `sent` and the response, if it is not.
    #[track_caller]
    pub(crate) fn expect_failure(self, code: u16, reason: &str, sent: &str) -> Self {
        let got = self.expect_status(code, sent);
        let status = got.json();
        let facts = (&status["kind"], &status["status"], &status["code"], status["reason"].as_str().unwrap_or(""));
        let want = (&Value::from("Status"), &Value::from("Failure"), &Value::from(code), reason);
        assert_eq!(facts, want, "kind, status, code, reason of the body; sent {sent}\ngot {got}");
        assert_eq!(got.head.field("content-type"), Some("application/json"), "sent {sent}\ngot {got}");
        got
    }
}

impl std::fmt::Display for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HTTP/{} {}", self.head.version, self.head.status)?;
        for (name, value) in &self.head.fields {
            write!(f, "\n{name}: {value}")?;
        }
        write!(f, "\n\n{}", shown(&self.body))
    }
}
