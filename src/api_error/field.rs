//! An error about one field of an object or of options (`field.Error` of apimachinery).

use crate::go::quote::go_quoted;

/// An error about one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field, as kube-apiserver writes it: `metadata.labels`, `spec.leaseDurationSeconds`.
    pub field: String,
    /// The kind of the error.
    pub kind: FieldErrorKind,
}

/// The kinds of [`FieldError`], each with the data for its message. A `value` is text as Go prints it: a string has
/// quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The request must not set the field.
    Forbidden {
        /// The reason why the field must not be set.
        detail: String,
    },
    /// The value of the field is malformed.
    Invalid {
        /// The value, as Go prints it.
        value: String,
        /// The reason why the value is malformed.
        detail: String,
    },
    /// The value is not one of the supported values.
    NotSupported {
        /// The value, as Go prints it.
        value: String,
        /// The supported values, in the order of the message.
        supported: Vec<String>,
    },
    /// The value of the field is missing.
    Required {
        /// The reason why a value is required.
        detail: String,
    },
    /// The value of the field has too many bytes.
    TooLong {
        /// Maximum number of bytes allowed.
        bytes_max: usize,
    },
    /// A list or a map has too many entries.
    TooMany {
        /// Number of entries in the list or map.
        count: usize,
        /// Maximum number of entries allowed.
        count_max: usize,
    },
}

impl FieldError {
    /// Creates an error `Invalid value` for a string. Quotes the string as Go does.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &str, detail: impl Into<String>) -> Self {
        Self { field: field.into(), kind: FieldErrorKind::Invalid { value: go_quoted(value), detail: detail.into() } }
    }

    /// Creates an error `Invalid value` for a value that is printed without quotes, such as a number or nil.
    #[must_use]
    pub fn invalid_unquoted(
        field: impl Into<String>,
        value: impl std::fmt::Display,
        detail: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), kind: FieldErrorKind::Invalid { value: value.to_string(), detail: detail.into() } }
    }

    /// Creates an error `Forbidden`.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), kind: FieldErrorKind::Forbidden { detail: detail.into() } }
    }

    /// Creates an error `Required value`.
    #[must_use]
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), kind: FieldErrorKind::Required { detail: detail.into() } }
    }

    /// Creates an error `Unsupported value` for a string. Quotes the string as Go does.
    #[must_use]
    pub fn not_supported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        Self::not_supported_unquoted(field, go_quoted(value), supported)
    }

    /// Creates an error `Unsupported value`. `value` already has the form in which Go prints it.
    #[must_use]
    pub fn not_supported_unquoted(field: impl Into<String>, value: String, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|s| (*s).to_owned()).collect();
        Self { field: field.into(), kind: FieldErrorKind::NotSupported { value, supported } }
    }

    /// Returns the `reason` of this error as a cause in a `Status` (`metav1.CauseType`).
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self.kind {
            FieldErrorKind::Forbidden { .. } => "FieldValueForbidden",
            FieldErrorKind::Invalid { .. } => "FieldValueInvalid",
            FieldErrorKind::NotSupported { .. } => "FieldValueNotSupported",
            FieldErrorKind::Required { .. } => "FieldValueRequired",
            FieldErrorKind::TooLong { .. } => "FieldValueTooLong",
            FieldErrorKind::TooMany { .. } => "FieldValueTooMany",
        }
    }

    /// Returns the message without the path of the field, as it is in a cause of a `Status`.
    #[must_use]
    pub fn body(&self) -> String {
        let with_detail = |head: String, detail: &str| match detail {
            "" => head,
            _ => format!("{head}: {detail}"),
        };
        match &self.kind {
            FieldErrorKind::Forbidden { detail } => with_detail("Forbidden".into(), detail),
            FieldErrorKind::Invalid { value, detail } => with_detail(format!("Invalid value: {value}"), detail),
            FieldErrorKind::NotSupported { value, supported } => {
                let all: Vec<_> = supported.iter().map(|s| go_quoted(s)).collect();
                format!("Unsupported value: {value}: supported values: {}", all.join(", "))
            }
            FieldErrorKind::Required { detail } => with_detail("Required value".into(), detail),
            FieldErrorKind::TooLong { bytes_max } => format!("Too long: may not be more than {bytes_max} bytes"),
            FieldErrorKind::TooMany { count, count_max } => {
                format!("Too many: {count}: must have at most {count_max} items")
            }
        }
    }
}
