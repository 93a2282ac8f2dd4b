//! Encodes Leases of the table for built-in storage (kube-apiserver's own storage of Leases).

use crate::api::identity::is_own;
use crate::codec::protobuf::encode_lease_into;
use crate::etcd::built_in::Wanted;
use crate::resource::{API_VERSION, NODE_LEASE_NAMESPACE};
use crate::table::Table;
use crate::table::copy::TableCopy;
use crate::table::object::Object;
use crate::table::snapshot::Stepped;

/// Maximum number of Leases that one call of [`Encoding::step`] examines. Requests would wait if one turn of the
/// event loop encoded all Leases.
pub(super) const LEASES_PER_STEP: usize = 1_000;
/// Number of encoded bytes after which [`Encoding::step`] returns.
const BYTES_PER_STEP: usize = 1 << 20;

/// The Leases of clients at one version of the table, encoded in steps.
#[derive(Debug)]
pub(super) struct Encoding {
    copy: TableCopy,
    /// Whether the Leases of nodes are included.
    includes_nodes: bool,
    /// The Leases that are encoded so far.
    leases: Vec<Wanted>,
}

impl Encoding {
    /// Begins with the current version of the table. Later changes have no effect on the encoded Leases.
    pub(super) fn begin(table: &Table, includes_nodes: bool) -> Self {
        // The vector has room for all Leases from the start. A growing vector would copy all its Leases within one
        // step.
        Self { copy: table.copy(), includes_nodes, leases: Vec::with_capacity(table.len()) }
    }

    /// Encodes the next Leases. Returns [`Stepped::Done`] once all Leases are encoded.
    pub(super) fn step(&mut self, table: &Table) -> Stepped {
        let Self { copy, includes_nodes, leases } = self;
        let mut bytes = 0;
        copy.next(table, LEASES_PER_STEP, |object| {
            let metadata = object.metadata();
            if !is_own(metadata) && (*includes_nodes || metadata.namespace != NODE_LEASE_NAMESPACE) {
                let lease = wanted(object);
                bytes += lease.value.as_ref().map_or(0, Vec::len);
                leases.push(lease);
            }
            bytes < BYTES_PER_STEP
        })
    }

    /// Returns the encoded Leases.
    pub(super) fn into_leases(self) -> Vec<Wanted> {
        self.leases
    }
}

/// Returns the current state of a Lease, encoded for built-in storage.
pub(super) fn wanted(object: &Object) -> Wanted {
    let mut value = Vec::new();
    encode_lease_into(&mut value, &object.lease(), None, API_VERSION);
    Wanted { key: object.key().as_str().to_owned(), value: Some(value) }
}
