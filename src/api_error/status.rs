//! What a client sees of an error, and of a deletion (Kubernetes API conventions, "Response Status Kind").

use crate::limits::STATUS_TEXT_BYTES_MAX;
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

    /// With no more than [`STATUS_TEXT_BYTES_MAX`] of each text and of all causes together, since several of them may
    /// quote the same megabytes that a client sent. The last cause that is told is cut, and those after it are left
    /// out.
    pub(super) fn cut(mut self) -> Self {
        cut(&mut self.message, STATUS_TEXT_BYTES_MAX);
        if let Some(details) = &mut self.details {
            cut(&mut details.name, STATUS_TEXT_BYTES_MAX);
            let mut room = STATUS_TEXT_BYTES_MAX;
            details.causes.retain_mut(|cause| {
                let is_told = room > 0;
                for text in [&mut cause.field, &mut cause.message] {
                    let is_cut = text.len() > room;
                    cut(text, room);
                    room = if is_cut { 0 } else { room - text.len() };
                }
                is_told
            });
        }
        self
    }
}

/// Cuts a text to so many bytes, so that it ends with three dots if there is room for these.
fn cut(text: &mut String, bytes_max: usize) {
    const CUT: &str = "...";
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(CUT.len())));
        if text.len() + CUT.len() <= bytes_max {
            text.push_str(CUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_causes_end_where_their_room_does() {
        let long = "é".repeat(STATUS_TEXT_BYTES_MAX);
        let cause = |message: &str| StatusCause { message: message.into(), field: "f".into(), ..Default::default() };
        // Where it is cut is within a character.
        let causes = vec![cause("odd"), cause("even"), cause(&long), cause(&long), cause("short")];
        let details = StatusDetails { name: long.clone(), causes, ..Default::default() };
        let status = Status { message: long, details: Some(details), ..Default::default() }.cut();
        let details = status.details.expect("details");
        for text in [&status.message, &details.name] {
            assert!(text.len() <= STATUS_TEXT_BYTES_MAX && text.len() > STATUS_TEXT_BYTES_MAX - 5, "{}", text.len());
            assert!(text.starts_with("éé") && text.ends_with("é..."));
        }
        let bytes: usize = details.causes.iter().map(|cause| cause.field.len() + cause.message.len()).sum();
        assert!(bytes <= STATUS_TEXT_BYTES_MAX && bytes > STATUS_TEXT_BYTES_MAX - 5, "{bytes}");
        assert_eq!(details.causes[..2], [cause("odd"), cause("even")]);
        assert_eq!(details.causes.len(), 3, "none is told that is empty");
        assert!(details.causes[2].message.ends_with("é..."));
    }

    #[test]
    fn what_has_room_stays_as_it_is() {
        let fits = "x".repeat(STATUS_TEXT_BYTES_MAX);
        let causes = vec![StatusCause { message: fits.clone(), ..Default::default() }];
        let details = StatusDetails { name: fits.clone(), causes, ..Default::default() };
        let status = Status { message: fits, details: Some(details), ..Default::default() };
        assert_eq!(status.clone().cut(), status);
    }
}
