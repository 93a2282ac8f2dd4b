//! What a client sees of an error, and of a deletion (Kubernetes API conventions, "Response Status Kind").

use crate::resource::{GROUP, RESOURCE};

/// `metav1.Status`: what a client sees of an error, and of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `metadata.continue`, for the one error that carries it.
    pub next: Option<String>,
    /// Whether the operation succeeded: `Success` or `Failure`.
    pub success: bool,
    /// For people; empty is absent.
    pub message: String,
    /// For programs; empty is absent.
    pub reason: &'static str,
    /// More for programs.
    pub details: Option<StatusDetails>,
    /// HTTP status code; 0 is absent, for a success.
    pub code: u16,
}

/// `metav1.StatusDetails`. Empty fields are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// Name of the object.
    pub name: String,
    /// API group.
    pub group: &'static str,
    /// Kind or resource, as kube-apiserver has it in each case.
    pub kind: &'static str,
    /// UID of the object.
    pub uid: String,
    /// Causes, one a field.
    pub causes: Vec<StatusCause>,
    /// Seconds after which to try again; 0 is absent.
    pub retry_after_seconds: u32,
}

/// `metav1.StatusCause`. Empty fields are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusCause {
    /// For programs.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Path of the field.
    pub field: String,
}

impl Status {
    /// The answer to a deletion that left nothing behind.
    #[must_use]
    pub fn deleted(name: &str, uid: &str) -> Self {
        let details =
            StatusDetails { name: name.into(), group: GROUP, kind: RESOURCE, uid: uid.into(), ..Default::default() };
        Self { success: true, details: Some(details), ..Self::default() }
    }
}
