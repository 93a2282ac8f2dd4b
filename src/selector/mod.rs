//! Label and field selectors: which Leases a list, a watch or a deletion of a collection selects.
//!
//! Parsing is cold, and its errors use kube-apiserver's words. Matching runs for every event and every watcher, and
//! allocates nothing.

pub mod field;
pub mod label;

use crate::lease::StringMap;
use crate::limits::SELECTOR_TERMS_PER_LOOK;
use field::FieldSelector;
use label::LabelSelector;

/// Both selectors of a request: a Lease is selected if both match it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Selector by labels.
    pub labels: LabelSelector,
    /// Selector by name and namespace.
    pub fields: FieldSelector,
}

impl Selector {
    /// Whether the Lease of this namespace, name and labels is selected.
    #[must_use]
    pub fn matches(&self, namespace: &str, name: &str, labels: &StringMap) -> bool {
        self.fields.matches(namespace, name) && self.labels.matches(labels)
    }

    /// Whether every Lease is selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Cost of examining a Lease with this selector, as a multiple of the cost without one.
    #[must_use]
    pub fn cost(&self) -> usize {
        1 + (self.labels.terms() + self.fields.terms()) / SELECTOR_TERMS_PER_LOOK
    }

    /// Number of Leases to examine with this selector where `looks` may be examined without one: at least one, for
    /// progress.
    #[must_use]
    pub fn share_of(&self, looks: usize) -> usize {
        (looks / self.cost()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_selector_looks_at_less_and_never_at_nothing() {
        let selector = |terms: usize| Selector {
            labels: LabelSelector::parse(&vec!["!a"; terms].join(",")).expect("a selector"),
            fields: FieldSelector::parse(&vec!["metadata.name!=n"; terms].join(",")).expect("a selector"),
        };
        assert_eq!([0, 1, 3, 4, 36].map(|terms| selector(terms).cost()), [1, 1, 1, 2, 10]);
        assert_eq!([0, 3, 4, 36, 5000].map(|terms| selector(terms).share_of(512)), [512, 512, 256, 51, 1]);
    }

    #[test]
    fn both_selectors_must_match() {
        let labels: StringMap = [("a".into(), "b".into())].into_iter().collect();
        let selector = Selector {
            labels: LabelSelector::parse("a=b").expect("a selector"),
            fields: FieldSelector::parse("metadata.name=n").expect("a selector"),
        };
        assert!(selector.matches("ns", "n", &labels));
        assert!(!selector.matches("ns", "m", &labels));
        assert!(!selector.matches("ns", "n", &StringMap::default()));
        assert!(!selector.is_everything());
        assert!(Selector::default().is_everything());
    }
}
