//! Encodes objects as protobuf bodies, appended to the caller's buffer.

use super::envelope::put_body;
use super::meta::{put_list_meta, put_micro_time, put_object_meta};
use super::sink::{LONG, SHORT, Sink};
use crate::api_error::{Status, StatusDetails};
use crate::codec::list_meta::ListMeta;
use crate::codec::partial::KIND as PARTIAL_KIND;
use crate::lease::{Lease, LeaseSpec, ObjectMeta};
use crate::resource::{KIND, MetaVersion, ResourceVersion};

/// Appends a Lease. `api_version` is [`crate::resource::API_VERSION`] or an older version. `version` is the
/// `resourceVersion` of the Lease; `None` in the response to a dry run of a creation.
pub fn encode_lease_into(out: &mut Vec<u8>, lease: &Lease, version: Option<ResourceVersion>, api_version: &str) {
    // 640 bytes are the size of a kubelet's Lease. So a new buffer rarely needs to grow.
    out.reserve(640);
    put_body(out, api_version, KIND, |out| put_lease(out, lease, version));
}

/// Appends only the metadata of a Lease, as a `PartialObjectMetadata`.
pub fn encode_partial_into(out: &mut Vec<u8>, meta: &ObjectMeta, version: Option<ResourceVersion>, of: MetaVersion) {
    out.reserve(640);
    put_body(out, of.api_version(), PARTIAL_KIND, |out| put_partial(out, meta, version));
}

/// Appends a `metav1.Status`.
pub fn encode_status_into(out: &mut Vec<u8>, status: &Status) {
    put_body(out, "v1", "Status", |out| {
        let meta = ListMeta { next: status.next.as_deref().unwrap_or_default(), ..ListMeta::default() };
        out.put_message(1, SHORT, |out| put_list_meta(out, &meta));
        out.put_bytes(2, if status.success { b"Success" } else { b"Failure" });
        out.put_bytes(3, status.message.as_bytes());
        out.put_bytes(4, status.reason.as_bytes());
        if let Some(details) = &status.details {
            out.put_message(5, SHORT, |out| put_status_details(out, details));
        }
        out.put_integer(6, status.code.into());
    });
}

pub(super) fn put_lease<S: Sink>(out: &mut S, lease: &Lease, version: Option<ResourceVersion>) {
    out.put_message(1, LONG, |out| put_object_meta(out, &lease.metadata, version));
    out.put_message(2, SHORT, |out| put_spec(out, &lease.spec));
}

pub(super) fn put_partial<S: Sink>(out: &mut S, meta: &ObjectMeta, version: Option<ResourceVersion>) {
    out.put_message(1, LONG, |out| put_object_meta(out, meta, version));
}

fn put_spec<S: Sink>(out: &mut S, spec: &LeaseSpec) {
    out.put_optional(1, spec.holder_identity.as_deref());
    if let Some(seconds) = spec.lease_duration_seconds {
        out.put_integer(2, seconds.into());
    }
    if let Some(time) = spec.acquire_time {
        out.put_message(3, SHORT, |out| put_micro_time(out, time));
    }
    if let Some(time) = spec.renew_time {
        out.put_message(4, SHORT, |out| put_micro_time(out, time));
    }
    if let Some(transitions) = spec.lease_transitions {
        out.put_integer(5, transitions.into());
    }
    out.put_optional(6, spec.strategy.as_deref());
    out.put_optional(7, spec.preferred_holder.as_deref());
}

fn put_status_details<S: Sink>(out: &mut S, details: &StatusDetails) {
    out.put_bytes(1, details.name.as_bytes());
    out.put_bytes(2, details.group.as_bytes());
    out.put_bytes(3, details.kind.as_bytes());
    for cause in &details.causes {
        out.put_message(4, SHORT, |out| {
            out.put_bytes(1, cause.reason.as_bytes());
            out.put_bytes(2, cause.message.as_bytes());
            out.put_bytes(3, cause.field.as_bytes());
        });
    }
    out.put_integer(5, details.retry_after_seconds.into());
    out.put_bytes(6, details.uid.as_bytes());
}
