//! The response body for an error or a deletion (Kubernetes API conventions, "Response Status Kind").

use crate::limits::STATUS_TEXT_BYTES_MAX;
use crate::resource::{GROUP, RESOURCE};

/// `metav1.Status`: the response body for an error or a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `metadata.continue`: the `continue` token. Only [`ApiError::Expired`](super::ApiError::Expired) sets it.
    pub next: Option<String>,
    /// Whether the field `status` is `Success` and not `Failure`.
    pub success: bool,
    /// Message for people. If the message is empty, the response omits the field.
    pub message: String,
    /// Reason for programs. If the reason is empty, the response omits the field.
    pub reason: &'static str,
    /// Details for programs.
    pub details: Option<StatusDetails>,
    /// HTTP status code. For a success the code is 0, and the response omits the field.
    pub code: u16,
}

/// `metav1.StatusDetails`. The response omits empty fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// Name of the object.
    pub name: String,
    /// API group of the object.
    pub group: &'static str,
    /// Kind or resource of the object, whichever kube-apiserver shows in this error.
    pub kind: &'static str,
    /// UID of the object.
    pub uid: String,
    /// Causes of the error, such as one for each invalid field.
    pub causes: Vec<StatusCause>,
    /// Number of seconds after which the client should retry; 0 if the response omits the field.
    pub retry_after_seconds: u32,
}

/// `metav1.StatusCause`. The response omits empty fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusCause {
    /// Reason for programs.
    pub reason: &'static str,
    /// Message for people.
    pub message: String,
    /// Path of the field that caused the error.
    pub field: String,
}

impl Status {
    /// Creates the `Status` of a deletion that removed the object.
    #[must_use]
    pub fn deleted(name: &str, uid: &str) -> Self {
        let details =
            StatusDetails { name: name.into(), group: GROUP, kind: RESOURCE, uid: uid.into(), ..Default::default() };
        Self { success: true, details: Some(details), ..Self::default() }
    }

    /// Cuts each text to [`STATUS_TEXT_BYTES_MAX`] bytes, and all causes together to the same limit. Without a limit,
    /// several texts could each quote the same megabytes of a request. The cause that exceeds the limit is cut, and
    /// later causes are dropped.
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

/// Cuts a text to `bytes_max` bytes. The cut text ends in three dots if there is room for the dots.
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
    fn long_texts_and_causes_are_cut_to_the_size_limit() {
        let long = "é".repeat(STATUS_TEXT_BYTES_MAX);
        let cause = |message: &str| StatusCause { message: message.into(), field: "f".into(), ..Default::default() };
        // The room for each `long`, less the three dots, is an odd number of bytes. So the cut would fall inside a
        // two-byte `é`.
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
    fn a_status_within_the_size_limit_is_unchanged() {
        let fits = "x".repeat(STATUS_TEXT_BYTES_MAX);
        let causes = vec![StatusCause { message: fits.clone(), ..Default::default() }];
        let details = StatusDetails { name: fits.clone(), causes, ..Default::default() };
        let status = Status { message: fits, details: Some(details), ..Default::default() };
        assert_eq!(status.clone().cut(), status);
    }
}
