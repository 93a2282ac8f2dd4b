//! Protobuf as kube-apiserver decodes and encodes it (Kubernetes API concepts, "Protobuf encoding").
//!
//! ```text
//! body of one object or list:  "k8s\0"  Unknown { typeMeta { apiVersion, kind }, raw: message, "", "" }
//! event of a watch:            length (4 bytes, big endian)  WatchEvent { type, object { raw: such a body } }
//! ```
//!
//! The output equals the output of Go's gogo-protobuf byte for byte. Fields are in ascending order, and maps are sorted
//! by key. Fields that are not pointers in Go are encoded even if they are empty. `generated.proto` of
//! `k8s.io/api/coordination/v1` and `k8s.io/apimachinery` defines the messages. `coordination.k8s.io/v1beta1` has the
//! same fields. As in kube-apiserver, a Table has no protobuf form.

mod decode;
mod delete_options;
mod discovery;
mod encode;
mod envelope;
mod list;
mod managed_fields;
mod marks;
mod meta;
mod reader;
mod sink;
mod watch;

#[cfg(test)]
mod tests;

pub use decode::decode_lease;
pub use delete_options::decode_delete_options;
pub use discovery::{DiscoveryMessage, encode_discovery_into};
pub use encode::{encode_lease_into, encode_partial_into, encode_status_into};
pub use envelope::raw_message;
pub use list::{
    ListForm, ListHead, lease_len, lease_len_max, partial_len, push_lease_item, push_partial_item, push_raw_item,
    raw_item_len,
};
pub use marks::Marks;
pub use watch::push_watch_event;
