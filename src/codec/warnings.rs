//! What a strict reading minds and a lenient one only reports: fields that the API does not know, and fields that stand
//! twice. `fieldValidation` decides whether the client is refused, warned or left alone; that is not decided here.

use crate::api_error::ApiError;
use crate::go::quote::go_quoted;
use crate::limits::STATUS_TEXT_BYTES_MAX;
use crate::resource::{ApiVersion, KIND};

/// The complaints about one body, in the order of the body, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldWarnings {
    /// Keys that stand twice in a body in YAML.
    yaml: Vec<String>,
    messages: Vec<String>,
    /// Complaints made, those included that were not kept.
    reports: u32,
    /// Bytes of their paths, as far as these were looked at.
    path_bytes: usize,
}

/// As many as kube-apiserver keeps.
const MESSAGES_MAX: usize = 100;

/// After so many nobody looks any more whether the next one is new: a body of megabytes of repeated fields must not
/// hold up the loop.
const REPORTS_MAX: u32 = 10_000;

/// Bytes of a path that are told.
const PATH_BYTES_MAX: usize = STATUS_TEXT_BYTES_MAX;

/// Nor does anybody after so many bytes of paths: whatever lies below a key of megabytes has it in its path.
const PATH_BYTES_SUM_MAX: usize = 16 * PATH_BYTES_MAX;

impl FieldWarnings {
    /// The complaints: `unknown field "spec.foo"`, `duplicate field "spec.holderIdentity"`.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.yaml.iter().chain(&self.messages).map(String::as_str)
    }

    /// Whether there is nothing to complain of.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.yaml.is_empty() && self.messages.is_empty()
    }

    /// The error of a strict reading in Go's words, without what kube-apiserver puts before it; nothing if there is
    /// nothing to complain of.
    #[must_use]
    pub fn strict_words(&self) -> Option<String> {
        let yaml = format!("yaml: unmarshal errors:\n  {}", self.yaml.join("\n  "));
        let yaml = Some(&yaml).filter(|_| !self.yaml.is_empty());
        let all: Vec<&str> = yaml.into_iter().chain(&self.messages).map(String::as_str).collect();
        (!all.is_empty()).then(|| format!("strict decoding error: {}", all.join(", ")))
    }

    /// The answer to a Lease of this version under `fieldValidation=Strict`; nothing if it may pass.
    #[must_use]
    pub fn strict_error(&self, version: ApiVersion) -> Option<ApiError> {
        let words = self.strict_words()?;
        let message = format!("{KIND} in version \"{}\" cannot be handled as a {KIND}: {words}", version.name());
        Some(ApiError::BadRequest { message })
    }

    /// Adds what a reader of YAML complained of before its text became JSON.
    pub fn put_yaml_first(&mut self, complaints: Vec<String>) {
        self.yaml = complaints;
    }

    /// Whether no further complaint is kept.
    pub(super) fn is_full(&self) -> bool {
        self.messages.len() >= MESSAGES_MAX || self.reports >= REPORTS_MAX || self.path_bytes >= PATH_BYTES_SUM_MAX
    }

    #[cold]
    pub(super) fn report(&mut self, what: Complaint, path: &str) {
        if self.is_full() {
            return;
        }
        let path = path.get(..path.floor_char_boundary(PATH_BYTES_MAX)).unwrap_or(path);
        self.reports += 1;
        self.path_bytes += path.len();
        let what = match what {
            Complaint::Duplicate => "duplicate",
            Complaint::Unknown => "unknown",
        };
        let message = format!("{what} field {}", go_quoted(path));
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }
}

/// What can be complained of.
#[derive(Clone, Copy)]
pub(super) enum Complaint {
    Duplicate,
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_complaint_is_kept_once_and_the_number_is_bounded() {
        let mut warnings = FieldWarnings::default();
        assert_eq!(warnings.strict_error(ApiVersion::V1), None);
        for n in 0..20_000 {
            warnings.report(Complaint::Unknown, &format!("f{}", n % 2));
        }
        assert_eq!(warnings.messages().collect::<Vec<_>>(), ["unknown field \"f0\"", "unknown field \"f1\""]);
        let mut warnings = FieldWarnings::default();
        for n in 0..1_000 {
            warnings.report(Complaint::Duplicate, &n.to_string());
        }
        assert_eq!(warnings.messages().count(), MESSAGES_MAX);
    }

    #[test]
    fn long_paths_are_cut_and_bounded_together() {
        let mut warnings = FieldWarnings::default();
        for n in 0..1_000 {
            warnings.report(Complaint::Duplicate, &format!("{n}{}", "é".repeat(PATH_BYTES_MAX)));
        }
        let lengths: Vec<_> = warnings.messages().map(str::len).collect();
        assert_eq!(lengths.len(), PATH_BYTES_SUM_MAX / PATH_BYTES_MAX + 1, "each is a byte short, and so the sum");
        assert!(lengths.iter().all(|len| (PATH_BYTES_MAX..PATH_BYTES_MAX + 20).contains(len)), "{lengths:?}");
    }

    #[test]
    fn what_yaml_minds_comes_first() {
        let mut warnings = FieldWarnings::default();
        warnings.report(Complaint::Unknown, "a");
        warnings.put_yaml_first(vec!["line 1: key \"b\" already set in map".into(), "line 2: x".into()]);
        let words = "strict decoding error: yaml: unmarshal errors:\n  line 1: key \"b\" already set in map\n  line 2: x, unknown field \"a\"";
        assert_eq!(warnings.strict_words().as_deref(), Some(words));
        assert_eq!(warnings.messages().count(), 3);
    }

    #[test]
    fn the_strict_error_is_that_of_kube_apiserver() {
        let mut warnings = FieldWarnings::default();
        warnings.report(Complaint::Unknown, "metadata.colour");
        warnings.report(Complaint::Duplicate, "spec.holderIdentity");
        let message = r#"Lease in version "v1" cannot be handled as a Lease: strict decoding error: unknown field "metadata.colour", duplicate field "spec.holderIdentity""#;
        assert_eq!(warnings.strict_error(ApiVersion::V1), Some(ApiError::BadRequest { message: message.into() }));
    }
}
