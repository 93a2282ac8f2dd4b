//! Label, field and shard selectors. They select the Leases for a list, a watch or a deletion of a collection.
//!
//! The server parses a selector once, with kube-apiserver's error messages. But it matches the selector of every
//! watcher with every event, so the matching does not allocate memory.

pub mod field;
pub mod label;
pub mod shard;

use crate::lease::ObjectMeta;
use crate::limits::SELECTOR_TERMS_PER_LOOK;
use field::FieldSelector;
use label::LabelSelector;
use shard::ShardSelector;

/// The selectors of a request. A Lease is selected if every selector matches it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Selector by labels.
    pub labels: LabelSelector,
    /// Selector by name and namespace.
    pub fields: FieldSelector,
    /// Selector by the hash of a field; `None` if the request has no shard selector.
    pub shard: Option<Box<ShardSelector>>,
}

impl Selector {
    /// Whether the selectors select a Lease with this metadata.
    #[must_use]
    pub fn matches(&self, meta: &ObjectMeta) -> bool {
        self.fields.matches(&meta.namespace, &meta.name)
            && self.labels.matches(&meta.labels)
            && self.shard.as_ref().is_none_or(|shard| shard.matches(meta))
    }

    /// Whether the selectors select every Lease.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything() && self.shard.is_none()
    }

    /// Returns the cost in time of examining a Lease with this selector, as a multiple of the cost without a selector.
    #[must_use]
    pub fn cost(&self) -> usize {
        // The computation of a hash takes about as long as the rest of the examination, however many ranges the
        // selector has.
        let hashes = usize::from(self.shard.is_some());
        1 + hashes + (self.labels.terms() + self.fields.terms()) / SELECTOR_TERMS_PER_LOOK
    }

    /// Returns the number of Leases that one step of a list, watch or deletion of a collection may examine with this
    /// selector. `looks` is the number without a selector. The result is at least 1, so that each step makes progress.
    #[must_use]
    pub fn share_of(&self, looks: usize) -> usize {
        (looks / self.cost()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_selector_examines_fewer_leases_but_at_least_one() {
        let selector = |terms: usize| Selector {
            labels: LabelSelector::parse(&vec!["!a"; terms].join(",")).expect("a selector"),
            fields: FieldSelector::parse(&vec!["metadata.name!=n"; terms].join(",")).expect("a selector"),
            shard: None,
        };
        assert_eq!([0, 1, 3, 4, 36].map(|terms| selector(terms).cost()), [1, 1, 1, 2, 10]);
        assert_eq!([0, 3, 4, 36, 5000].map(|terms| selector(terms).share_of(512)), [512, 512, 256, 51, 1]);
    }

    #[test]
    fn all_selectors_must_match() {
        let lease = |name: &str, uid: &str, label: &str| ObjectMeta {
            name: name.into(),
            uid: uid.into(),
            labels: [("a".into(), label.into())].into_iter().collect(),
            ..ObjectMeta::default()
        };
        // The hash of the UID "u" is 0xaf63e84c860200f0, so the shard contains only this UID.
        let of_u = "shardRange(object.metadata.uid, '0xaf63e84c860200f0', '0xaf63e84c860200f1')";
        let selector = Selector {
            labels: LabelSelector::parse("a=b").expect("a selector"),
            fields: FieldSelector::parse("metadata.name=n").expect("a selector"),
            shard: Some(Box::new(ShardSelector::parse(of_u).expect("a selector"))),
        };
        assert!(selector.matches(&lease("n", "u", "b")));
        assert!(!selector.matches(&lease("m", "u", "b")));
        assert!(!selector.matches(&lease("n", "v", "b")));
        assert!(!selector.matches(&lease("n", "u", "c")));
        assert!(!selector.is_everything());
        assert_eq!(selector.cost(), 2);
        assert!(Selector::default().is_everything());
    }
}
