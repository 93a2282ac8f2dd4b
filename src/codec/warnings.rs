//! Complaints of strict decoding, about unknown and repeated fields. Depending on `fieldValidation`, the caller
//! refuses the request, warns the client, or ignores the complaints.

use crate::api_error::ApiError;
use crate::go::quote::go_quoted;
use crate::limits::STATUS_TEXT_BYTES_MAX;
use crate::resource::{ApiVersion, KIND};

/// The complaints of strict decoding about one body, in the order of the fields in the body, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldWarnings {
    /// Complaints of the YAML decoder about repeated keys.
    yaml: Vec<String>,
    messages: Vec<String>,
    /// Number of complaints, including duplicates, which are not stored.
    reports: u32,
    /// Sum of the lengths of the paths in all complaints, in bytes. At most [`PATH_BYTES_MAX`] bytes of a path count.
    path_bytes: usize,
}

/// Maximum number of complaints that are stored, as in kube-apiserver.
const MESSAGES_MAX: usize = 100;

/// Maximum number of complaints, including duplicates, that are examined. A body with megabytes of repeated fields must
/// not delay the event loop.
const REPORTS_MAX: u32 = 10_000;

/// Maximum length of a path in a complaint, in bytes. A longer path is cut.
const PATH_BYTES_MAX: usize = STATUS_TEXT_BYTES_MAX;

/// Maximum sum of the lengths of all paths, in bytes, after which no further complaints are examined. A key may be
/// megabytes long, and each path below that key contains it.
const PATH_BYTES_SUM_MAX: usize = 16 * PATH_BYTES_MAX;

impl FieldWarnings {
    /// Returns the complaints, such as `unknown field "spec.foo"` or `duplicate field "spec.holderIdentity"`.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.yaml.iter().chain(&self.messages).map(String::as_str)
    }

    /// Whether there are no complaints.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.yaml.is_empty() && self.messages.is_empty()
    }

    /// Returns the error of Go's strict decoding, without the prefix that kube-apiserver adds; `None` without
    /// complaints.
    #[must_use]
    pub fn strict_words(&self) -> Option<String> {
        let yaml = format!("yaml: unmarshal errors:\n  {}", self.yaml.join("\n  "));
        let yaml = Some(&yaml).filter(|_| !self.yaml.is_empty());
        let all: Vec<&str> = yaml.into_iter().chain(&self.messages).map(String::as_str).collect();
        (!all.is_empty()).then(|| format!("strict decoding error: {}", all.join(", ")))
    }

    /// Returns the error for a Lease of the API version `version` under `fieldValidation=Strict`; `None` without
    /// complaints.
    #[must_use]
    pub fn strict_error(&self, version: ApiVersion) -> Option<ApiError> {
        let words = self.strict_words()?;
        let message = format!("{KIND} in version \"{}\" cannot be handled as a {KIND}: {words}", version.name());
        Some(ApiError::BadRequest { message })
    }

    /// Sets the complaints of the YAML decoder. They precede the complaints about the JSON into which the YAML was
    /// converted.
    pub fn put_yaml_first(&mut self, complaints: Vec<String>) {
        self.yaml = complaints;
    }

    /// Whether no further complaints are examined.
    pub(super) fn is_full(&self) -> bool {
        self.messages.len() >= MESSAGES_MAX || self.reports >= REPORTS_MAX || self.path_bytes >= PATH_BYTES_SUM_MAX
    }

    /// Stores a complaint about the field whose path `path` returns. Once no further complaints are examined, `path` is
    /// not called: a body may have 600,000 unknown fields, and each path would cost an allocation.
    #[cold]
    pub(super) fn report(&mut self, what: Complaint, path: impl FnOnce() -> String) {
        if self.is_full() {
            return;
        }
        let path = path();
        let path = path.get(..path.floor_char_boundary(PATH_BYTES_MAX)).unwrap_or(&path);
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

/// The kind of a complaint: a repeated field or an unknown field.
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
            warnings.report(Complaint::Unknown, || format!("f{}", n % 2));
        }
        assert_eq!(warnings.messages().collect::<Vec<_>>(), ["unknown field \"f0\"", "unknown field \"f1\""]);
        let mut warnings = FieldWarnings::default();
        for n in 0..1_000 {
            warnings.report(Complaint::Duplicate, || {
                assert!(n < MESSAGES_MAX, "the path of a complaint that is not stored");
                n.to_string()
            });
        }
        assert_eq!(warnings.messages().count(), MESSAGES_MAX);
    }

    #[test]
    fn long_paths_are_cut_and_bounded_together() {
        let mut warnings = FieldWarnings::default();
        for n in 0..1_000 {
            warnings.report(Complaint::Duplicate, || format!("{n}{}", "é".repeat(PATH_BYTES_MAX)));
        }
        let lengths: Vec<_> = warnings.messages().map(str::len).collect();
        assert_eq!(lengths.len(), PATH_BYTES_SUM_MAX / PATH_BYTES_MAX + 1, "each is a byte short, and so the sum");
        assert!(lengths.iter().all(|len| (PATH_BYTES_MAX..PATH_BYTES_MAX + 20).contains(len)), "{lengths:?}");
    }

    #[test]
    fn yaml_warnings_come_first() {
        let mut warnings = FieldWarnings::default();
        warnings.report(Complaint::Unknown, || "a".to_owned());
        warnings.put_yaml_first(vec!["line 1: key \"b\" already set in map".into(), "line 2: x".into()]);
        let words = "strict decoding error: yaml: unmarshal errors:\n  line 1: key \"b\" already set in map\n  line 2: x, unknown field \"a\"";
        assert_eq!(warnings.strict_words().as_deref(), Some(words));
        assert_eq!(warnings.messages().count(), 3);
    }

    #[test]
    fn the_strict_error_matches_kube_apiserver() {
        let mut warnings = FieldWarnings::default();
        warnings.report(Complaint::Unknown, || "metadata.colour".to_owned());
        warnings.report(Complaint::Duplicate, || "spec.holderIdentity".to_owned());
        let message = r#"Lease in version "v1" cannot be handled as a Lease: strict decoding error: unknown field "metadata.colour", duplicate field "spec.holderIdentity""#;
        assert_eq!(warnings.strict_error(ApiVersion::V1), Some(ApiError::BadRequest { message: message.into() }));
    }
}
