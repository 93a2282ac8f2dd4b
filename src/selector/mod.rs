//! Label and field selectors: which Leases a list, a watch or a deletion of a collection means.
//!
//! Parsing is cold and speaks kube-apiserver's words; matching runs for every event and every watcher, and allocates
//! nothing.

pub mod field;
pub mod label;

use crate::lease::StringMap;
use field::FieldSelector;
use label::LabelSelector;

/// Both selectors of a request: a Lease is meant if both match it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// By labels.
    pub labels: LabelSelector,
    /// By name and namespace.
    pub fields: FieldSelector,
}

impl Selector {
    /// Whether the Lease of this namespace, name and labels is meant.
    #[must_use]
    pub fn matches(&self, namespace: &str, name: &str, labels: &StringMap) -> bool {
        self.fields.matches(namespace, name) && self.labels.matches(labels)
    }

    /// Whether every Lease is meant.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
