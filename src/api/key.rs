//! The namespace and the name that a path says, and what a body says beside it.

use crate::api_error::ApiError;
use crate::go::quote::go_quoted;
use crate::lease::ObjectMeta;
use crate::lease::validation::format::path_segment_complaints;
use memchr::memchr2;

/// What a path says of a Lease must be a namespace, and a name that can stand in a path. Others find it out where they
/// would look for the Lease (apiserver `registry/generic/registry`, `NamespaceKeyFunc`).
pub(super) fn check_key(namespace: &str, name: &str) -> Result<(), ApiError> {
    if namespace.is_empty() {
        return Err(ApiError::BadRequest { message: NO_NAMESPACE.into() });
    }
    // Nearly all names: looked at once, and not once for each thing that can be wrong.
    if memchr2(b'/', b'%', name.as_bytes()).is_none() && !matches!(name, "." | "..") {
        return Ok(());
    }
    let complaints = path_segment_complaints(name, false);
    if complaints.is_empty() {
        return Ok(());
    }
    let message = format!("Name parameter invalid: {}: {}", go_quoted(name), complaints.join(";"));
    Err(ApiError::BadRequest { message })
}

/// The name of the path and that of the body must be one.
pub(super) fn check_name(meta: &ObjectMeta, name: &str) -> Result<(), ApiError> {
    let message = match meta.name.as_str() {
        own if own == name => return Ok(()),
        "" => format!("the name of the object ({name} based on URL) was undeterminable: name must be provided"),
        own => format!("the name of the object ({own}) does not match the name on the URL ({name})"),
    };
    Err(ApiError::BadRequest { message })
}

/// The namespace of the path counts; a body may repeat it and may not contradict it.
pub(super) fn take_namespace(meta: &mut ObjectMeta, namespace: &str) -> Result<(), ApiError> {
    if meta.namespace.is_empty() || namespace.is_empty() {
        meta.namespace = namespace.into();
    }
    if meta.namespace == namespace {
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request".into();
    Err(ApiError::BadRequest { message })
}

/// Of what needs a namespace and has none in its path.
pub(super) const NO_NAMESPACE: &str = "Namespace parameter required.";
