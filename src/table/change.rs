//! A change of the table that is decided but not yet applied.
//!
//! A [`Change`] is the result of the API's rules, such as validation. [`Table::apply`](super::Table::apply) applies no
//! such rules. It only checks that the Lease still has the version that the change was made from, and applies or
//! rejects the change. So the same changes in the same order give the same Leases at the same versions on every server.

use super::Slot;
use super::object::RenewedTimes;
use crate::lease::Lease;
use crate::resource::ResourceVersion;

/// A write of one Lease.
#[derive(Clone, Debug)]
pub enum Change {
    /// Creates a Lease. No Lease of this name existed when the change was made.
    Create(Box<Lease>),
    /// Replaces the current state of a Lease.
    Replace(Target, Box<Lease>),
    /// Replaces the `renewTime` of a Lease, and the time of the last entry of `managedFields`.
    Renew(Target, RenewedTimes),
    /// Deletes a Lease.
    Delete(Target),
}

impl Change {
    /// Returns the state of the Lease that the change was made from; `None` for a creation.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        match self {
            Self::Create(_) => None,
            Self::Replace(target, _) | Self::Renew(target, _) | Self::Delete(target) => Some(*target),
        }
    }
}

/// The Lease that a change replaces, renews or deletes, in the state from which the change was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Index of the Lease in the table's slab.
    pub slot: Slot,
    /// Number of the Lease: the version of its creation, which no other Lease has.
    pub number: ResourceVersion,
    /// Version of the state from which the change was made.
    pub from: ResourceVersion,
}

/// The rejection of a change, since another write of the Lease came first. Either the table no longer holds the state
/// that the change was made from, or the change is a creation and a Lease of this name exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected;
