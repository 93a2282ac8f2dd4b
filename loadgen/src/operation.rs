//! The kinds of operation that results distinguish.

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// POST of a Lease.
    Create,
    /// PUT that renews a Lease. Its latency starts when the renewal is due, ends with the acknowledgement, and includes
    /// all attempts. A POST that creates a lost Lease again counts as a renewal too.
    Renew,
    /// GET of one Lease.
    Read,
    /// GET of all Leases, or of a page of a list.
    List,
    /// DELETE of all Leases of a namespace.
    DeleteCollection,
    /// PUT to a test server that sends the request's body back.
    Echo,
    /// An event of a watch. Its latency starts at the acknowledgement of the write that caused the event. In two cases
    /// the latency starts when that write was sent: in a bench, and if the node's next write was acknowledged before
    /// the event arrived.
    WatchEvent,
    /// A watch. The results contain only its errors.
    Watch,
    /// A connection that has no request in flight. The results contain only its errors.
    Connection,
}

impl Operation {
    /// All kinds, in the order of results.
    pub(crate) const ALL: [Self; 9] = [
        Self::Create,
        Self::Renew,
        Self::Read,
        Self::List,
        Self::DeleteCollection,
        Self::Echo,
        Self::WatchEvent,
        Self::Watch,
        Self::Connection,
    ];

    /// Returns the name of this operation in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Renew => "renew",
            Self::Read => "read",
            Self::List => "list",
            Self::DeleteCollection => "delete-collection",
            Self::Echo => "echo",
            Self::WatchEvent => "watch_event",
            Self::Watch => "watch",
            Self::Connection => "connection",
        }
    }

    /// Returns the operation with this name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// Whether the operation is a request with one response.
    pub(crate) fn is_request(self) -> bool {
        !matches!(self, Self::WatchEvent | Self::Watch | Self::Connection)
    }

    /// Whether the operation has latencies.
    pub(crate) fn has_latency(self) -> bool {
        !matches!(self, Self::Watch | Self::Connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_unique_names_and_match_their_index() {
        for (place, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, place);
            assert_eq!(Operation::by_name(operation.name()), Some(operation));
        }
    }
}
