//! The messages of etcd's API that this server uses. The field numbers come from etcd's `rpc.proto` and `kv.proto`.
//! They are equal in etcd 3.5, 3.6 and 3.7. Unused fields are omitted.
//!
//! The messages are written by hand, since crates with etcd's messages need the compiler `protoc` at build time.

use prost::{Message, Oneof};

/// The header of every answer.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    /// Revision of the store when the request was executed.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
    /// Raft term of the member that has answered. The term increases with each election of a leader.
    #[prost(uint64, tag = "4")]
    pub(super) raft_term: u64,
}

/// A key and its last write.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// Revision of the last write.
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    /// Number of writes of the key since its creation, including the creation.
    #[prost(int64, tag = "4")]
    pub(super) version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// First key after the range; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    /// Maximum number of keys to return; 0 for no limit.
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// Revision to read at; 0 for the newest revision.
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
    /// Lowest mod revision of the keys to return; 0 for all keys.
    #[prost(int64, tag = "10")]
    pub(super) min_mod_revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    /// Whether there are keys beyond the limit.
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
    /// Number of keys in the range, including those beyond the limit.
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResponseOp {
    /// Answer to a range request; `None` for other operations.
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
    /// Answer to a nested transaction; `None` for other operations.
    #[prost(message, optional, tag = "4")]
    pub(super) txn: Option<TxnResponse>,
}

/// A condition of a transaction.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Compare {
    /// 0 requires an equal value, 1 a greater value, 2 a smaller value.
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    /// What to compare: 0 is the key's `version` (its number of writes), 2 is the revision of its last write.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "Compared", tags = "4, 6")]
    pub(super) compared: Option<Compared>,
    /// First key after the compared range; empty for one key.
    #[prost(bytes = "vec", tag = "64")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub(super) enum Compared {
    /// Number of writes of the key since its creation, including the creation; 0 if the key does not exist.
    #[prost(int64, tag = "4")]
    Version(i64),
    /// Revision of the last write; 0 if the key does not exist.
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    /// Whether all comparisons held.
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
    /// Filters of events: [`NO_DELETE`] omits deletions.
    #[prost(int32, repeated, tag = "5")]
    pub(super) filters: Vec<i32>,
}

/// Filter that omits deletions.
pub(super) const NO_DELETE: i32 = 1;

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    /// Revision up to which etcd is compacted, if the compaction canceled the watch; otherwise 0.
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Event {
    /// 0 is a put, 1 is a deletion.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusResponse {
    /// Release of the member, such as `3.6.4`.
    #[prost(string, tag = "2")]
    pub(super) version: String,
    /// Size of the database including free pages, in bytes.
    #[prost(int64, tag = "3")]
    pub(super) db_size: i64,
    /// Id of the leader that the member follows; 0 without a leader.
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
    /// Raft term of the member.
    #[prost(uint64, tag = "6")]
    pub(super) raft_term: u64,
    /// Size of the pages in use, in bytes.
    #[prost(int64, tag = "9")]
    pub(super) db_size_in_use: i64,
    /// Size at which the database is full, in bytes; 0 from a release before 3.6.
    #[prost(int64, tag = "12")]
    pub(super) db_size_quota: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CompactionRequest {
    /// Revision up to which etcd deletes the history.
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CompactionResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
}

/// Returns the first key after all keys with this `prefix`.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    // etcd reads a range that ends with the byte 0 as a range without an upper bound.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn the_range_end_of_a_prefix_is_the_next_key_after_it() {
        assert_eq!(prefix_end(b"/a/"), b"/a0");
        assert_eq!(prefix_end(b"a\xff\xff"), b"b");
        assert_eq!(prefix_end(b"\xff"), b"\0");
    }
}
