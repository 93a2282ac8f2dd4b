//! Lists that are gathered while a body is read.

use crate::limits::METADATA_ENTRIES_MAX;

/// The entries of a list: all are counted, and of more than [`METADATA_ENTRIES_MAX`] only one more is kept, since such an
/// object is refused anyway. An empty one stands in three bytes of a body and would take a hundred here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gathered<T> {
    kept: Vec<T>,
    count: usize,
}

impl<T> Default for Gathered<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), count: 0 }
    }
}

impl<T> Gathered<T> {
    /// Adds the next entry.
    pub(super) fn push(&mut self, entry: T) {
        self.count += 1;
        if self.count <= METADATA_ENTRIES_MAX + 1 {
            self.kept.push(entry);
        }
    }

    /// Entries that came.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The entries that were kept.
    pub(super) fn into_kept(self) -> Vec<T> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_counted_and_not_kept() {
        let mut gathered = Gathered::default();
        for n in 0..METADATA_ENTRIES_MAX + 5 {
            gathered.push(n);
        }
        assert_eq!(gathered.count(), METADATA_ENTRIES_MAX + 5);
        assert_eq!(gathered.into_kept().len(), METADATA_ENTRIES_MAX + 1);
    }
}
