//! The cluster's existing and terminating namespaces, for the rules of the admission plugin NamespaceLifecycle.
//!
//! kube-apiserver does not run that plugin for requests that its aggregator forwards. So this module applies the
//! plugin's rules for creations (apiserver `admission/plugin/namespace/lifecycle`). Until the first list of namespaces
//! arrives, every namespace counts as existing, since nodes must be able to create their heartbeats while the cluster
//! starts. Meanwhile `/readyz` fails. This module learns of a change of a namespace some milliseconds after the change.

use crate::api_error::ApiError;
use crate::resource::NODE_LEASE_NAMESPACE;
use compact_str::CompactString;
use hashbrown::HashMap;

/// The namespaces that the cluster has reported.
#[derive(Clone, Debug, Default)]
pub struct Namespaces(NamespaceList);

#[derive(Clone, Debug, Default)]
enum NamespaceList {
    /// The server does not watch namespaces, so all namespaces count as existing.
    #[default]
    Unwatched,
    /// The first list of namespaces has not arrived yet, so all namespaces count as existing.
    Awaited,
    /// The namespaces in this map exist, and so do the [`SYSTEM_NAMESPACES`].
    Known(HashMap<CompactString, NamespacePhase, foldhash::fast::RandomState>),
}

/// `status.phase` of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacePhase {
    /// The namespace accepts new objects.
    Active,
    /// The namespace is being deleted, its content first.
    Terminating,
}

/// A change of the namespaces, seen by the list or the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceChange {
    /// All namespaces, from a list.
    All(Vec<(CompactString, NamespacePhase)>),
    /// A namespace that exists, with its phase.
    Present(CompactString, NamespacePhase),
    /// A namespace that was deleted.
    Gone(CompactString),
}

/// Namespaces that kube-apiserver creates and restores itself. They always count as existing. So the server does not
/// refuse a node's first heartbeat in a new cluster (`pkg/controlplane/controller/systemnamespaces`).
const SYSTEM_NAMESPACES: [&str; 4] = ["default", NODE_LEASE_NAMESPACE, "kube-public", "kube-system"];

impl Namespaces {
    /// Creates the value for a server that watches namespaces and waits for their first list.
    #[must_use]
    pub fn awaited() -> Self {
        Self(NamespaceList::Awaited)
    }

    /// Whether the server watches namespaces, and their first list has not arrived yet.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        matches!(self.0, NamespaceList::Awaited)
    }

    /// Applies a change of the namespaces.
    pub fn apply(&mut self, change: NamespaceChange) {
        match (change, &mut self.0) {
            (NamespaceChange::All(all), state) => *state = NamespaceList::Known(all.into_iter().collect()),
            (NamespaceChange::Present(name, phase), NamespaceList::Known(known)) => {
                known.insert(name, phase);
            }
            (NamespaceChange::Gone(name), NamespaceList::Known(known)) => {
                known.remove(&name);
            }
            // Before the first list, every namespace counts as existing. The list will show the effect of this change.
            (_, NamespaceList::Awaited | NamespaceList::Unwatched) => {}
        }
    }

    /// Whether the first list of namespaces has arrived, and `namespace` does not exist.
    #[must_use]
    pub fn is_unknown(&self, namespace: &str) -> bool {
        matches!(&self.0, NamespaceList::Known(known) if !known.contains_key(namespace))
            && !SYSTEM_NAMESPACES.contains(&namespace)
    }

    /// Checks that a Lease `name` may be created in `namespace`.
    ///
    /// # Errors
    /// [`ApiError::NamespaceNotFound`] or [`ApiError::NamespaceTerminating`].
    pub fn admit_create(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let NamespaceList::Known(known) = &self.0 else { return Ok(()) };
        if self.is_unknown(namespace) {
            return Err(ApiError::NamespaceNotFound { namespace: namespace.to_owned() });
        }
        match known.get(namespace) {
            Some(NamespacePhase::Terminating) => {
                Err(ApiError::NamespaceTerminating { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            Some(NamespacePhase::Active) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(namespaces: &Namespaces, namespace: &str) -> Result<(), u16> {
        namespaces.admit_create(namespace, "a").map_err(|e| e.status().code)
    }

    #[test]
    fn every_namespace_exists_before_the_first_list() {
        for mut namespaces in [Namespaces::default(), Namespaces::awaited()] {
            assert_eq!(code(&namespaces, "anything"), Ok(()));
            // A change before the first list says nothing about other namespaces, so these still count as existing.
            namespaces.apply(NamespaceChange::Present("x".into(), NamespacePhase::Active));
            assert_eq!(code(&namespaces, "anything"), Ok(()));
        }
    }

    #[test]
    fn a_creation_needs_a_namespace_that_is_not_terminating() {
        let mut namespaces = Namespaces::awaited();
        assert!(namespaces.is_awaited());
        namespaces.apply(NamespaceChange::All(vec![
            ("a".into(), NamespacePhase::Active),
            ("b".into(), NamespacePhase::Terminating),
        ]));
        assert!(!namespaces.is_awaited());
        assert_eq!(
            (code(&namespaces, "a"), code(&namespaces, "b"), code(&namespaces, "c")),
            (Ok(()), Err(403), Err(404))
        );
        namespaces.apply(NamespaceChange::Present("c".into(), NamespacePhase::Active));
        namespaces.apply(NamespaceChange::Present("a".into(), NamespacePhase::Terminating));
        namespaces.apply(NamespaceChange::Gone("b".into()));
        assert_eq!(
            (code(&namespaces, "a"), code(&namespaces, "b"), code(&namespaces, "c")),
            (Err(403), Err(404), Ok(()))
        );
        namespaces.apply(NamespaceChange::All(Vec::new()));
        assert_eq!(code(&namespaces, "c"), Err(404));
    }

    #[test]
    fn system_namespaces_always_exist_but_may_be_terminating() {
        let mut namespaces = Namespaces::default();
        namespaces.apply(NamespaceChange::All(Vec::new()));
        for name in SYSTEM_NAMESPACES {
            assert_eq!(code(&namespaces, name), Ok(()));
        }
        namespaces.apply(NamespaceChange::Present("kube-node-lease".into(), NamespacePhase::Terminating));
        assert_eq!(code(&namespaces, "kube-node-lease"), Err(403));
    }

    #[test]
    fn namespace_errors_match_the_built_in_api() {
        let mut namespaces = Namespaces::default();
        namespaces.apply(NamespaceChange::All(vec![("x".into(), NamespacePhase::Terminating)]));
        let status = namespaces.admit_create("x", "a").expect_err("refused").status();
        assert_eq!((status.code, status.reason), (403, "Forbidden"));
        assert_eq!(
            status.message,
            "leases.coordination.k8s.io \"a\" is forbidden: unable to create new content in namespace x because it is being terminated"
        );
        let details = status.details.expect("details");
        let cause = details.causes.first().expect("a cause");
        assert_eq!(
            (cause.reason, cause.message.as_str(), cause.field.as_str()),
            ("NamespaceTerminating", "namespace x is being terminated", "metadata.namespace")
        );
        let status = namespaces.admit_create("y", "a").expect_err("refused").status();
        assert_eq!((status.code, status.message.as_str()), (404, "namespaces \"y\" not found"));
        let details = status.details.expect("details");
        assert_eq!((details.name.as_str(), details.group, details.kind), ("y", "", "namespaces"));
    }
}
