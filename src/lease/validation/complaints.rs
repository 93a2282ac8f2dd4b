//! The complaints of a validation. A complaint is an error about one field of the object.

use crate::api_error::{FieldError, FieldErrorKind};

/// A list of complaints. The size of the list is limited, so that a hostile object cannot keep the server busy.
///
/// kube-apiserver has no such limit. There, each of a hundred thousand owner references could cause a complaint that
/// quotes all of them, which would take minutes. Complaints beyond the limit are dropped, since the request fails
/// anyway.
#[derive(Default)]
pub(crate) struct Complaints {
    /// The complaints, in the order of their addition.
    pub(crate) all: Vec<FieldError>,
    /// Sum of the sizes of all values that the messages in `all` quote, in bytes.
    value_bytes: usize,
}

impl Complaints {
    /// Maximum number of complaints in the list.
    const COUNT_MAX: usize = 256;
    /// Sum of the sizes of all quoted values, in bytes, at which further complaints are dropped. The complaint that
    /// reaches this sum is still added.
    const VALUE_BYTES_MAX: usize = 256 * 1024;

    /// Whether the list would drop a further complaint. If so, the caller need not create a complaint.
    pub(crate) fn is_full(&self) -> bool {
        self.all.len() >= Self::COUNT_MAX || self.value_bytes >= Self::VALUE_BYTES_MAX
    }

    /// Adds `complaint`, unless the list is full.
    pub(crate) fn push(&mut self, complaint: FieldError) {
        if self.is_full() {
            return;
        }
        if let FieldErrorKind::Invalid { value, .. } | FieldErrorKind::NotSupported { value, .. } = &complaint.kind {
            self.value_bytes = self.value_bytes.saturating_add(value.len());
        }
        self.all.push(complaint);
    }

    /// Returns the complaints without repeats, in the order of their first occurrence. kube-apiserver does the same
    /// with complaints about objects, but not with complaints about options (apimachinery `util/validation/field`,
    /// `ErrorList.Filter`).
    pub(crate) fn into_distinct(self) -> Vec<FieldError> {
        let mut distinct = Vec::new();
        for complaint in self.all {
            if !distinct.contains(&complaint) {
                distinct.push(complaint);
            }
        }
        distinct
    }

    /// Adds one complaint `Invalid value` for each of `details`.
    pub(crate) fn push_invalid(&mut self, field: &str, value: &str, details: Vec<String>) {
        for detail in details {
            if self.is_full() {
                return;
            }
            self.push(FieldError::invalid(field, value, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_stop_at_the_maximum_count() {
        let mut complaints = Complaints::default();
        for _ in 0..1000 {
            complaints.push(FieldError::forbidden("a", "no"));
        }
        assert_eq!(complaints.all.len(), Complaints::COUNT_MAX);
    }

    #[test]
    fn repeated_complaints_are_kept_once_at_the_first_place() {
        let mut complaints = Complaints::default();
        for field in ["a", "b", "a", "c", "b"] {
            complaints.push(FieldError::forbidden(field, "no"));
        }
        complaints.push(FieldError::forbidden("a", "never"));
        let told = complaints
            .into_distinct()
            .into_iter()
            .map(|complaint| format!("{}: {}", complaint.field, complaint.body()));
        assert_eq!(
            told.collect::<Vec<_>>(),
            ["a: Forbidden: no", "b: Forbidden: no", "c: Forbidden: no", "a: Forbidden: never"]
        );
    }

    #[test]
    fn complaints_stop_after_the_maximum_value_bytes() {
        let mut complaints = Complaints::default();
        let big = "x".repeat(Complaints::VALUE_BYTES_MAX);
        complaints.push(FieldError::invalid("a", &big, "no"));
        complaints.push_invalid("b", &big, vec!["no".to_owned(), "never".to_owned()]);
        assert!(complaints.is_full());
        assert_eq!(complaints.all.len(), 1);
    }
}
