//! Errors of requests, as data. [`ApiError::status`] converts each error to a Kubernetes `Status`.
//!
//! Programs evaluate `code` and `reason` (Kubernetes API conventions, "Response Status Kind"). If kube-apiserver has
//! the same error, the message equals that of kube-apiserver word for word, since people search for such messages.

mod field;
mod status;
mod unacceptable;

use crate::go::quote::go_quoted;
use crate::resource::{GROUP, KIND, RESOURCE, ResourceVersion};
pub use field::{FieldError, FieldErrorKind};
pub use status::{Status, StatusCause, StatusDetails};
use std::fmt::Write as _;
pub use unacceptable::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Unacceptable};
use unacceptable::{MEDIA_TYPES, PATCH_TYPES};

/// A field that a server-side apply may not change, since another field manager owns the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldManagerConflict {
    /// Quoted name of the owner, and the operation by which the owner set the field.
    pub manager: String,
    /// Path of the field, such as `.spec.holderIdentity`.
    pub field: String,
}

/// The reason why the server refuses a request. [`ApiError::status`] converts the error to a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// A Lease of this name already exists.
    AlreadyExists {
        /// Name of the Lease.
        name: String,
        /// Whether the existing Lease is being deleted, and exists only because of its finalizers.
        being_deleted: bool,
        /// Whether the client set `generateName`. If so, the message says that the server could not generate a unique
        /// name, and the client may retry.
        is_generated: bool,
    },
    /// A server-side apply would change fields that other field managers own.
    ApplyConflict {
        /// The conflicts, sorted by manager; never empty.
        conflicts: Vec<FieldManagerConflict>,
    },
    /// The request is malformed or invalid.
    BadRequest {
        /// The reason.
        message: String,
    },
    /// The `resourceVersion` in an update is not that of the current Lease.
    Conflict {
        /// Name of the Lease.
        name: String,
    },
    /// The server no longer has the state at the requested `resourceVersion`, or has never issued that version. A watch
    /// also ends with this error if its client is too slow, or if the Leases move back to kube-apiserver. The client
    /// must list again.
    Expired {
        /// The reason, in kube-apiserver's words if kube-apiserver has the same error.
        message: String,
        /// A new `continue` token, if the request was for a page of a list.
        next: Option<String>,
    },
    /// The user is authenticated but not authorized, or the Lease would exceed the quota.
    Forbidden {
        /// Name of the Lease, empty for a collection.
        name: String,
        /// The reason, such as the user, the verb and the scope (namespace or cluster), in words.
        message: String,
    },
    /// The user is not authorized for a path that is not a resource.
    ForbiddenPath {
        /// Name of the user.
        user: String,
        /// The HTTP method, in lower case.
        verb: &'static str,
        /// The path of the request.
        path: String,
    },
    /// A takeover or rollback moves Leases between kube-apiserver's own storage and this server. The client must retry
    /// later.
    HandingOver,
    /// The store of the journal has no space left.
    InsufficientStorage,
    /// A decoded object fails validation.
    Invalid {
        /// What the invalid object is: a Lease, options, or the result of a patch.
        subject: InvalidSubject,
        /// Name of the object; empty for options.
        name: String,
        /// All field errors, in kube-apiserver's order; never empty.
        causes: Vec<FieldError>,
    },
    /// A JSON patch cannot be applied: a `test` failed, a path does not exist, or an operation is unknown.
    JsonPatchRejected,
    /// The server is starting, and has not loaded all Leases from the store yet.
    Loading,
    /// The path does not support this method.
    MethodNotAllowed,
    /// The namespace of the new Lease does not exist.
    NamespaceNotFound {
        /// Name of the namespace.
        namespace: String,
    },
    /// The namespace of the new Lease is being deleted, and accepts no new objects.
    NamespaceTerminating {
        /// Name of the namespace.
        namespace: String,
        /// Name of the Lease.
        name: String,
    },
    /// The server can generate the response in no form that `Accept` allows.
    NotAcceptable(Unacceptable),
    /// The deletion has the option `ignoreStoreReadErrorWithClusterBreakingPotential`, which deletes only objects that
    /// cannot be decoded. This Lease can be decoded.
    NotCorrupt {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        name: String,
    },
    /// The Lease does not exist.
    NotFound {
        /// Name of the Lease.
        name: String,
    },
    /// The server serves no document or resource at this path.
    PathNotFound,
    /// A precondition in `DeleteOptions` fails.
    PreconditionFailed {
        /// Name of the Lease.
        name: String,
        /// The precondition, with the expected value and the value of the Lease.
        message: String,
    },
    /// The body of the request is too long.
    RequestEntityTooLarge {
        /// Maximum number of bytes in the body.
        bytes_max: usize,
    },
    /// The journal has stopped, or the server has ended a response that took too long.
    ServiceUnavailable {
        /// The reason, for people.
        message: String,
    },
    /// The store is unreachable, and the server cannot serve the request without the store.
    StoreUnreachable,
    /// The request exceeded its timeout. A write may still have been applied, or may be applied later.
    Timeout,
    /// The requested `resourceVersion` is newer than that of the table.
    TooLargeResourceVersion {
        /// The requested `resourceVersion`.
        requested: u64,
        /// The `resourceVersion` of the table.
        current: u64,
        /// Number of seconds after which the client should retry; 0 if the response omits the field.
        retry_after_seconds: u32,
    },
    /// A JSON patch has too many operations.
    TooManyPatchOperations {
        /// Number of operations in the patch.
        count: usize,
        /// Maximum number of operations accepted.
        count_max: usize,
    },
    /// A patch or a YAML body contains too many JSON or YAML values.
    TooManyValues {
        /// Maximum number of values accepted.
        count_max: usize,
    },
    /// Too many requests are in progress or waiting, or requests use too much memory.
    TooManyRequests,
    /// The client has no credentials that the server accepts.
    Unauthorized,
    /// An error with the status 500 and without a `reason`, as kube-apiserver sends it for some errors.
    Unclassified {
        /// The message, in kube-apiserver's words if kube-apiserver has the same error.
        message: String,
    },
    /// The Lease is reserved for its former holder. The server recognizes the former holder by an attempt to renew the
    /// Lease with its former UID (`api::reclaim`). The server has recorded no such attempt by the holder in the
    /// request.
    Unclaimed {
        /// Name of the Lease.
        name: String,
        /// Number of seconds until the reservation ends.
        retry_after_seconds: u32,
    },
    /// A patch contains the UID of an object that does not exist.
    UidGone {
        /// Name of the Lease.
        name: String,
        /// UID in the patch.
        requested: String,
    },
    /// The UID in the body of an update is not that of the existing object (kube-apiserver's `UID in precondition`).
    UidMismatch {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        name: String,
        /// UID of the object in the body.
        requested: String,
        /// UID of the existing object; empty if no object exists.
        found: String,
        /// Whether the request is a dry run. kube-apiserver checks dry runs in another place, with another message.
        dry_run: bool,
    },
    /// The deletion has a precondition on the `resourceVersion` and removes the last finalizers of the Lease. In this
    /// case, kube-apiserver replaces the `resourceVersion` in the precondition by an empty one, which no Lease has
    /// (apiserver `registry/generic/registry`, `Delete`).
    VersionPreconditionEmptied {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Lease.
        name: String,
        /// Version of the Lease.
        version: ResourceVersion,
    },
    /// kube-apiserver's router accepts the `Content-Type` of the patch, but the handler behind the router does not. An
    /// example is a `Content-Type` with a list of media types.
    UnknownPatchFormat,
    /// The server does not support the `Content-Type` of the body.
    UnsupportedMediaType,
    /// The server does not support the `Content-Type` of the patch.
    UnsupportedPatchType,
}

/// The kind of the invalid object in an [`ApiError::Invalid`]. The kind decides the words of the message, and the group
/// and kind in the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidSubject {
    /// `Lease.coordination.k8s.io`.
    Lease,
    /// Options of the group `meta.k8s.io`. The string is their kind, such as `DeleteOptions`.
    Options(&'static str),
    /// The result of a patch, which cannot be decoded as a Lease.
    Patch,
    /// `leases.coordination.k8s.io`: kube-apiserver's subject for an update without a `resourceVersion`.
    Resource,
}

impl InvalidSubject {
    /// Returns the group and the kind of the object, as the details of the `Status` show them.
    fn group_kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Lease => (GROUP, KIND),
            Self::Options(kind) => ("meta.k8s.io", kind),
            Self::Patch => ("", ""),
            Self::Resource => (GROUP, RESOURCE),
        }
    }
}

impl ApiError {
    /// Creates the error for a response that takes too long. The server has dropped states of Leases that the response
    /// needs, or has given the place of this response among the long responses to another user. A retry may succeed.
    #[must_use]
    pub fn overtaken() -> Self {
        Self::ServiceUnavailable { message: "the response took too long, please try again later".into() }
    }

    /// Creates the error for a Lease that is larger than etcd's limit of a request.
    #[must_use]
    pub fn too_large_for_etcd() -> Self {
        Self::Unclassified { message: "etcdserver: request is too large".to_owned() }
    }

    /// Returns the `Status` for the client. Long texts are cut.
    #[cold]
    #[must_use]
    pub fn status(&self) -> Status {
        self.whole_status().cut()
    }

    /// Returns the `Status` before long texts are cut. The `match` has no catch-all arm. So a new variant does not
    /// compile until this function handles the variant.
    fn whole_status(&self) -> Status {
        let of = |name: &str, kind: &'static str| {
            Some(StatusDetails { name: name.to_owned(), group: GROUP, kind, ..StatusDetails::default() })
        };
        let nothing = || Some(StatusDetails::default());
        let retry_after = |seconds| Some(StatusDetails { retry_after_seconds: seconds, ..StatusDetails::default() });
        let failure = |code: u16, reason: &'static str, message: String, details: Option<StatusDetails>| Status {
            message,
            reason,
            details,
            code,
            ..Status::default()
        };
        // This error is `InvalidObjError` of kube-apiserver's store. Its message contains the key of the Lease in that
        // store, which begins with `prefix`.
        let invalid_object = |prefix: &str, namespace: &str, name: &str, words: &str| {
            let message = format!(
                "Operation cannot be fulfilled on {RESOURCE}.{GROUP} {}: StorageError: invalid object, Code: 4, Key: {prefix}/leases/{namespace}/{name}, ResourceVersion: 0, AdditionalErrorMsg: {words}",
                go_quoted(name)
            );
            failure(409, "Conflict", message, of(name, RESOURCE))
        };
        let unknown_format = |accepted: &str| {
            let message =
                format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
            failure(415, "UnsupportedMediaType", message, None)
        };
        match self {
            Self::AlreadyExists { name, being_deleted, is_generated } => {
                let why = if *being_deleted { "object is being deleted: " } else { "" };
                let mut message = format!("{why}{RESOURCE}.{GROUP} {} already exists", go_quoted(name));
                let mut details = of(name, RESOURCE);
                if *is_generated {
                    message.push_str(", the server was not able to generate a unique name for the object");
                    details = details.map(|details| StatusDetails { retry_after_seconds: 1, ..details });
                }
                failure(409, "AlreadyExists", message, details)
            }
            Self::ApplyConflict { conflicts } => {
                let cause = |conflict: &FieldManagerConflict| StatusCause {
                    reason: "FieldManagerConflict",
                    message: format!("conflict with {}", conflict.manager),
                    field: conflict.field.clone(),
                };
                let causes = conflicts.iter().map(cause).collect();
                let details = StatusDetails { causes, ..StatusDetails::default() };
                failure(409, "Conflict", apply_conflict_message(conflicts), Some(details))
            }
            Self::BadRequest { message } => failure(400, "BadRequest", message.clone(), None),
            Self::Conflict { name } => {
                let message = format!(
                    "Operation cannot be fulfilled on {RESOURCE}.{GROUP} {}: the object has been modified; please apply your changes to the latest version and try again",
                    go_quoted(name)
                );
                failure(409, "Conflict", message, of(name, RESOURCE))
            }
            Self::Expired { message, next } => {
                Status { next: next.clone(), ..failure(410, "Expired", message.clone(), None) }
            }
            Self::Forbidden { name, message } => {
                let quoted = if name.is_empty() { String::new() } else { format!(" {}", go_quoted(name)) };
                let message = format!("{RESOURCE}.{GROUP}{quoted} is forbidden: {message}");
                failure(403, "Forbidden", message, of(name, RESOURCE))
            }
            Self::ForbiddenPath { user, verb, path } => {
                let message = format!("forbidden: User {} cannot {verb} path {}", go_quoted(user), go_quoted(path));
                failure(403, "Forbidden", message, nothing())
            }
            Self::InsufficientStorage => {
                let message = "the journal's store has no space for this write";
                failure(507, "InsufficientStorage", message.into(), retry_after(1))
            }
            Self::Invalid { subject, name, causes } => {
                let (group, kind) = subject.group_kind();
                let dot = if group.is_empty() { "" } else { "." };
                let message = format!("{kind}{dot}{group} {} is invalid: {}", go_quoted(name), aggregated(causes));
                let causes = causes.iter().map(|c| StatusCause {
                    reason: c.reason(),
                    message: c.body(),
                    field: c.field.clone(),
                });
                let details =
                    StatusDetails { name: name.clone(), group, kind, causes: causes.collect(), ..Default::default() };
                failure(422, "Invalid", message, Some(details))
            }
            Self::HandingOver => {
                let message = "Leases are being handed over, please try again later.";
                failure(429, "TooManyRequests", message.into(), retry_after(1))
            }
            Self::JsonPatchRejected => {
                let message = "the server rejected our request due to an error in our request";
                failure(422, "Invalid", message.into(), nothing())
            }
            // kube-apiserver sends this message while its watch cache loads the objects (apiserver `storage/cacher`).
            Self::Loading => failure(429, "TooManyRequests", "storage is (re)initializing".into(), retry_after(1)),
            Self::MethodNotAllowed => {
                let message = "the server does not allow this method on the requested resource";
                failure(405, "MethodNotAllowed", message.into(), nothing())
            }
            Self::NamespaceNotFound { namespace } => {
                let details = StatusDetails { name: namespace.clone(), kind: "namespaces", ..Default::default() };
                failure(404, "NotFound", format!("namespaces {} not found", go_quoted(namespace)), Some(details))
            }
            Self::NamespaceTerminating { namespace, name } => {
                let message = format!(
                    "{RESOURCE}.{GROUP} {} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
                    go_quoted(name)
                );
                let cause = StatusCause {
                    reason: "NamespaceTerminating",
                    message: format!("namespace {namespace} is being terminated"),
                    field: "metadata.namespace".into(),
                };
                let details = StatusDetails {
                    causes: vec![cause],
                    name: name.clone(),
                    group: GROUP,
                    kind: RESOURCE,
                    ..Default::default()
                };
                failure(403, "Forbidden", message, Some(details))
            }
            Self::NotAcceptable(why) => {
                failure(406, "NotAcceptable", why.to_string(), why.has_details().then(StatusDetails::default))
            }
            Self::NotCorrupt { namespace, name } => {
                let words = "unsafe deletion is not allowed because the object is decodable from storage";
                invalid_object("/registry", namespace, name, words)
            }
            Self::NotFound { name } => {
                let message = format!("{RESOURCE}.{GROUP} {} not found", go_quoted(name));
                failure(404, "NotFound", message, of(name, RESOURCE))
            }
            Self::PathNotFound => {
                failure(404, "NotFound", "the server could not find the requested resource".into(), nothing())
            }
            Self::PreconditionFailed { name, message } => {
                let message = format!("Operation cannot be fulfilled on {KIND}.{GROUP} {}: {message}", go_quoted(name));
                failure(409, "Conflict", message, of(name, KIND))
            }
            Self::RequestEntityTooLarge { bytes_max } => {
                let message = format!("Request entity too large: limit is {bytes_max}");
                failure(413, "RequestEntityTooLarge", message, None)
            }
            Self::StoreUnreachable => {
                failure(503, "ServiceUnavailable", "the store cannot be reached".into(), retry_after(1))
            }
            Self::ServiceUnavailable { message } => failure(503, "ServiceUnavailable", message.clone(), None),
            // kube-apiserver sends this message too (apiserver `endpoints/handlers/finisher`).
            Self::Timeout => {
                let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
                failure(504, "Timeout", message.into(), nothing())
            }
            Self::TooLargeResourceVersion { requested, current, retry_after_seconds } => {
                let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
                let cause = StatusCause {
                    reason: "ResourceVersionTooLarge",
                    message: "Too large resource version".into(),
                    field: String::new(),
                };
                let details = StatusDetails {
                    causes: vec![cause],
                    retry_after_seconds: *retry_after_seconds,
                    ..Default::default()
                };
                failure(504, "Timeout", message, Some(details))
            }
            Self::TooManyPatchOperations { count, count_max } => {
                let message = format!(
                    "Request entity too large: The allowed maximum operations in a JSON patch is {count_max}, got {count}"
                );
                failure(413, "RequestEntityTooLarge", message, None)
            }
            Self::TooManyValues { count_max } => {
                let message = format!(
                    "Request entity too large: the allowed maximum of values in a patch or in YAML is {count_max}"
                );
                failure(413, "RequestEntityTooLarge", message, None)
            }
            Self::TooManyRequests => {
                let message = "Too many requests, please try again later.";
                failure(429, "TooManyRequests", message.into(), retry_after(1))
            }
            Self::Unauthorized => failure(401, "Unauthorized", "Unauthorized".into(), None),
            Self::Unclaimed { name, retry_after_seconds } => {
                let message = format!(
                    "{RESOURCE}.{GROUP} {} may be held from before the start of the server: for {retry_after_seconds} s only its holder can acquire it",
                    go_quoted(name)
                );
                failure(429, "TooManyRequests", message, retry_after(*retry_after_seconds))
            }
            Self::Unclassified { message } => failure(500, "", message.clone(), None),
            Self::UidGone { name, requested } => {
                let message = format!(
                    "Operation cannot be fulfilled on {RESOURCE}.{GROUP} {}: uid mismatch: the provided object specified uid {requested}, and no existing object was found",
                    go_quoted(name)
                );
                failure(409, "Conflict", message, of(name, RESOURCE))
            }
            Self::UidMismatch { namespace, name, requested, found, dry_run } => {
                let prefix = if *dry_run { "" } else { "/registry" };
                let words =
                    format!("Precondition failed: UID in precondition: {requested}, UID in object meta: {found}");
                invalid_object(prefix, namespace, name, &words)
            }
            Self::VersionPreconditionEmptied { namespace, name, version } => {
                let words = format!(
                    "Precondition failed: ResourceVersion in precondition: , ResourceVersion in object meta: {version}"
                );
                invalid_object("/registry", namespace, name, &words)
            }
            Self::UnknownPatchFormat => unknown_format(&PATCH_TYPES.join(", ")),
            Self::UnsupportedMediaType => unknown_format(MEDIA_TYPES),
            Self::UnsupportedPatchType => {
                failure(415, "UnsupportedMediaType", "415: Unsupported Media Type".into(), nothing())
            }
        }
    }
}

/// Returns the message about one conflict as one line, or about several conflicts grouped by manager.
fn apply_conflict_message(conflicts: &[FieldManagerConflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
    }
    let mut message = format!("Apply failed with {} conflicts: ", conflicts.len());
    for (at, conflict) in conflicts.iter().enumerate() {
        let line_feed = if at == 0 { "" } else { "\n" };
        if at == 0 || conflicts.get(at - 1).is_some_and(|last| last.manager != conflict.manager) {
            _ = write!(message, "{line_feed}conflicts with {}:", conflict.manager);
        }
        _ = write!(message, "\n- {}", conflict.field);
    }
    message
}

/// Joins the field errors to one sentence that contains each error once (apimachinery `util/errors`,
/// `aggregate.Error`).
fn aggregated(causes: &[FieldError]) -> String {
    let mut seen: Vec<String> = Vec::new();
    for cause in causes {
        let text = format!("{}: {}", cause.field, cause.body());
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    match seen.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_above_the_limit_is_refused_in_the_words_of_kube_apiserver() {
        let status = ApiError::RequestEntityTooLarge { bytes_max: 3_145_728 }.status();
        assert_eq!((status.code, status.reason), (413, "RequestEntityTooLarge"));
        assert_eq!(status.message, "Request entity too large: limit is 3145728");
    }

    #[test]
    fn a_repeated_error_is_once_in_the_message_and_twice_in_causes() {
        let cause = FieldError::invalid("metadata.uid", "x", "field is immutable");
        let error =
            ApiError::Invalid { subject: InvalidSubject::Lease, name: "a".into(), causes: vec![cause.clone(), cause] };
        let status = error.status();
        assert_eq!(
            status.message,
            "Lease.coordination.k8s.io \"a\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable"
        );
        assert_eq!(status.details.expect("details").causes.len(), 2);
    }

    #[test]
    fn several_complaints_are_bracketed() {
        let causes = vec![FieldError::forbidden("a", "no"), FieldError::required("b", "")];
        let error = ApiError::Invalid { subject: InvalidSubject::Options("ListOptions"), name: String::new(), causes };
        assert_eq!(
            error.status().message,
            "ListOptions.meta.k8s.io \"\" is invalid: [a: Forbidden: no, b: Required value]"
        );
    }
}
