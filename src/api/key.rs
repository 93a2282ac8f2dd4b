//! Checks of the namespace and the name in a path: whether they are valid, and whether the body contains the same ones.

use crate::api_error::ApiError;
use crate::go::quote::go_quoted;
use crate::lease::ObjectMeta;
use crate::lease::validation::format::path_segment_complaints;
use memchr::memchr2;

/// Checks that the path has a namespace, and a name that is valid in a path (apiserver `registry/generic/registry`,
/// `NamespaceKeyFunc`). A caller that has found the Lease in the table need not call this function, since the table has
/// only valid names.
pub(super) fn check_key(namespace: &str, name: &str) -> Result<(), ApiError> {
    if namespace.is_empty() {
        return Err(ApiError::BadRequest { message: NO_NAMESPACE.into() });
    }
    // Fast path: nearly all names contain neither of these characters.
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

/// Checks that the object in the body has the name in the path.
pub(super) fn check_name(meta: &ObjectMeta, name: &str) -> Result<(), ApiError> {
    let message = match meta.name.as_str() {
        own if own == name => return Ok(()),
        "" => format!("the name of the object ({name} based on URL) was undeterminable: name must be provided"),
        own => format!("the name of the object ({own}) does not match the name on the URL ({name})"),
    };
    Err(ApiError::BadRequest { message })
}

/// Sets the namespace of `meta`, which is from the body, to the namespace in the path. The body must contain the same
/// namespace or none.
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

/// Message for a path that lacks the required namespace.
pub(super) const NO_NAMESPACE: &str = "Namespace parameter required.";
