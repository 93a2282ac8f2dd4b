//! The refusal of a body that is not a Lease, in kube-apiserver's words.

use crate::api_error::ApiError;
use crate::go::quote::go_quoted;
use crate::resource::{ApiVersion, GROUP, KIND, LIST_KIND};

/// The reason why a body is refused as a Lease.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// `kind` and `apiVersion` could be read, but the body cannot be decoded to a Lease.
    Unhandled { kind: String, version: String, words: String },
    /// `kind` and `apiVersion` could not be read.
    Unrecognized { words: String },
}

impl Refusal {
    #[cold]
    pub(crate) fn unhandled(kind: &str, version: &str, words: String) -> Self {
        Self::Unhandled { kind: kind.to_owned(), version: version.to_owned(), words }
    }

    /// Converts the refusal to the error 400 for the client that has sent `body`.
    #[cold]
    pub(crate) fn into_api_error(self, body: &[u8]) -> ApiError {
        let message = match self {
            Self::Unhandled { kind, version, words } => {
                format!("{kind} in version {} cannot be handled as a {KIND}: {words}", go_quoted(&version))
            }
            Self::Unrecognized { words } => {
                format!("the object provided is unrecognized (must be of type {KIND}): {words} ({})", summary(body))
            }
        };
        ApiError::BadRequest { message }
    }

    /// Returns Go's plain message, without the prefix about the Lease that [`Self::into_api_error`] adds.
    #[cold]
    pub(crate) fn into_words(self) -> String {
        let (Self::Unhandled { words, .. } | Self::Unrecognized { words }) = self;
        words
    }
}

/// Returns the error 400 for a body that cannot be decoded as an object. `words` is the reason.
#[cold]
#[must_use]
pub fn unrecognized(words: String, body: &[u8]) -> ApiError {
    Refusal::Unrecognized { words }.into_api_error(body)
}

/// Returns the first bytes of a body for a message: as text if the body looks like JSON, otherwise in hexadecimal.
fn summary(body: &[u8]) -> String {
    const BYTES_MAX: usize = 30;
    let start = body.get(..BYTES_MAX).unwrap_or(body);
    let dots = if start.len() < body.len() { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{dots}")
        }
    }
}

/// Checks that a body of this type is a Lease, and returns its API version. Accepts every version of the group, since
/// kube-apiserver checks the version only after it has decoded the body.
///
/// # Errors
/// kube-apiserver's error for an object of another kind.
pub(crate) fn check_kind(group: &str, version: &str, kind: &str) -> Result<ApiVersion, Refusal> {
    let own_version = ApiVersion::from_name(version).filter(|_| group == GROUP);
    if let (Some(own_version), KIND) = (own_version, kind) {
        return Ok(own_version);
    }
    let is_list = own_version.is_some() && kind == LIST_KIND;
    let words = if !is_list && (group == GROUP || matches!(kind, KIND | LIST_KIND)) {
        not_registered(kind, group, version, "pkg/api/legacyscheme/scheme.go:30")
    } else {
        // kube-apiserver's message depends on whether its list of kinds contains this kind. This server does not have
        // the list. It assumes that the list contains the kind: the wrong kind that a client sends usually exists.
        format!("converting ({version}.{kind}) to (coordination.Lease): unknown conversion")
    };
    Err(Refusal::unhandled(kind, version, words))
}

/// Returns the message of apimachinery's `NotRegisteredError` for a kind that is not in the Go scheme `scheme`.
pub(crate) fn not_registered(kind: &str, group: &str, version: &str, scheme: &str) -> String {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    format!("no kind {} is registered for version {} in scheme \"{scheme}\"", go_quoted(kind), go_quoted(&api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bodies_are_summarized() {
        assert_eq!(summary(b""), "<empty>");
        assert_eq!(summary(b"{"), "{");
        assert_eq!(summary(b"\"x\""), "227822");
        assert_eq!(summary(&[b'{'; 31]), format!("{} ...", "{".repeat(30)));
    }
}
