//! Warnings for the client, which a response carries in `Warning` header fields.

use std::cell::RefCell;

/// The warnings about one request, in the order of their addition, without duplicates.
#[derive(Debug, Default)]
pub(super) struct Warnings(RefCell<Vec<String>>);

impl Warnings {
    /// Adds a warning, unless the same warning is already present.
    #[cold]
    pub(super) fn add(&self, text: &str) {
        let mut texts = self.0.borrow_mut();
        if !texts.iter().any(|known| known == text) {
            texts.push(text.to_owned());
        }
    }

    /// Whether there are no warnings.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Returns each warning as a `warn-value` (RFC 7234 §5.5). If all warnings together exceed [`CHARS_MAX`], each
    /// warning is cut, and the last warnings may be omitted (apiserver `endpoints/filters/warning.go`).
    pub(super) fn into_fields(self) -> Vec<String> {
        let texts = self.0.into_inner();
        // A header field cannot contain control characters. So warnings with control characters are omitted.
        let told = || texts.iter().filter(|text| !text.contains(char::is_control));
        if told().map(|text| text.chars().count()).sum::<usize>() <= CHARS_MAX {
            return told().map(|text| warn_value(text)).collect();
        }
        let mut chars = 0;
        told()
            .map_while(|text| {
                let cut: String = text.chars().take(ITEM_CHARS_MAX).collect();
                let is_room = chars < CHARS_MAX;
                chars += cut.chars().count();
                is_room.then(|| warn_value(&cut))
            })
            .collect()
    }
}

/// Formats a warning as a `warn-value` with kube-apiserver's warn-code 299 and warn-agent `-`.
fn warn_value(text: &str) -> String {
    format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Maximum number of characters of all warnings of a response together. Above this number, each warning is cut. Once
/// the cut warnings have this many characters, the remaining warnings are omitted.
const CHARS_MAX: usize = 4_096;

/// Maximum number of characters that remain of a cut warning.
const ITEM_CHARS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_sent_once_and_quoted_for_the_header() {
        let warnings = Warnings::default();
        for text in ["a \"b\\", "c", "with\nline feed", "c"] {
            warnings.add(text);
        }
        assert_eq!(warnings.into_fields(), ["299 - \"a \\\"b\\\\\"", "299 - \"c\""]);
    }

    #[test]
    fn long_warnings_are_cut() {
        let warnings = Warnings::default();
        for n in 10..40 {
            warnings.add(&n.to_string().repeat(200));
        }
        let fields = warnings.into_fields();
        assert_eq!((fields.len(), fields[0].len()), (16, ITEM_CHARS_MAX + "299 - \"\"".len()));
    }
}
