//! create, update and patch.

use super::negotiate::{check_accept, check_content_type};
use super::{Api, Call, Reply};
use crate::api_error::{ApiError, FieldError, InvalidSubject};
use crate::auth::authorize_create;
use crate::clock::Now;
use crate::codec::json::{DecodedLease, FieldWarnings, encode_lease_into};
use crate::http::{ContentType, Response};
use crate::lease::strategy::{generated_name, is_finalized_by_update, prepare_for_create, prepare_for_update};
use crate::lease::validation::{validate_create, validate_update};
use crate::lease::{Lease, ObjectMeta, ResourceVersion};
use crate::options::{FieldValidation, WriteOptions, parse_object_resource_version};
use crate::patch::{PatchType, apply_json_patch, apply_merge_patch};
use crate::table::Table;
use compact_str::CompactString;
use uuid::Uuid;

/// Names that are tried for a `generateName` before the client is told that they are taken.
const GENERATED_NAMES_MAX: usize = 8;

impl Api {
    /// Creates a Lease.
    pub(super) fn create(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        body: &mut [u8],
        namespace: &str,
    ) -> Result<Reply, ApiError> {
        check_accept(call.head, false)?;
        let options = WriteOptions::parse(&call.query, "CreateOptions")?;
        check_content_type(call.head)?;
        let DecodedLease { mut lease, warnings } = self.decoder.decode_lease(body)?;
        let warnings = strictness(&options, &warnings)?;
        take_namespace(&mut lease.metadata, namespace)?;
        authorize_create(call.caller, namespace, &lease.metadata.name)?;
        self.insert(table, lease, &options, call.now, warnings)
    }

    /// Updates a Lease, or creates it: a PUT to a name that is free is allowed here.
    pub(super) fn update(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        body: &mut [u8],
        namespace: &str,
        name: &str,
    ) -> Result<Reply, ApiError> {
        check_accept(call.head, false)?;
        let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
        check_content_type(call.head)?;
        let DecodedLease { mut lease, warnings } = self.decoder.decode_lease(body)?;
        let warnings = strictness(&options, &warnings)?;
        take_namespace(&mut lease.metadata, namespace)?;
        check_name(&lease.metadata, name)?;

        // A UID names one life of a Lease, and this is not it. Kubelets rely on the refusal to start over.
        let found = table.find(namespace, name);
        let found_uid = found.map_or("", |(_, object)| object.lease.metadata.uid.as_str());
        if !lease.metadata.uid.is_empty() && lease.metadata.uid != found_uid {
            return Err(ApiError::UidMismatch {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                requested: lease.metadata.uid.to_string(),
                found: found_uid.to_owned(),
            });
        }
        match found {
            None => {
                parse_object_resource_version(&lease.metadata.resource_version)?;
                lease.metadata.resource_version = CompactString::default();
                self.insert(table, lease, &options, call.now, warnings)
            }
            Some(_) => replace(table, lease, namespace, name, &options, warnings),
        }
    }

    /// Changes a Lease by what a patch says.
    pub(super) fn patch(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        body: &mut [u8],
        namespace: &str,
        name: &str,
    ) -> Result<Reply, ApiError> {
        let content_type = String::from_utf8_lossy(call.head.content_type.unwrap_or_default());
        let patch_type = PatchType::from_content_type(&content_type)?;
        check_accept(call.head, false)?;
        let options = WriteOptions::parse_patch(&call.query, patch_type)?;
        let (_, current) = table.find(namespace, name).ok_or_else(|| ApiError::NotFound { name: name.to_owned() })?;
        let mut patched = match patch_type {
            PatchType::Json => apply_json_patch(current.json(), body)?,
            PatchType::Merge => apply_merge_patch(current.json(), body)?,
            PatchType::Apply | PatchType::StrategicMerge => return Err(ApiError::UnsupportedPatchType),
        };
        let result = String::from_utf8_lossy(&patched).into_owned();
        let unfit = |why: String| ApiError::Invalid {
            subject: InvalidSubject::Patch,
            name: String::new(),
            causes: vec![FieldError::invalid("patch", &result, why)],
        };
        let DecodedLease { mut lease, warnings } = self.decoder.decode_patched(&mut patched).map_err(unfit)?;
        if let (FieldValidation::Strict, Some(why)) = (options.field_validation, warnings.strict_words()) {
            return Err(unfit(why));
        }
        let warnings = strictness(&options, &warnings)?;
        take_namespace(&mut lease.metadata, namespace)?;
        check_name(&lease.metadata, name)?;
        replace(table, lease, namespace, name, &options, warnings)
    }

    /// Puts a new Lease into the table, with a name of ours if the client left it to us.
    fn insert(
        &mut self,
        table: &mut Table,
        mut lease: Lease,
        options: &WriteOptions,
        now: Now,
        warnings: Vec<String>,
    ) -> Result<Reply, ApiError> {
        let has_version = !matches!(lease.metadata.resource_version.as_str(), "" | "0");
        let mut uid = Uuid::encode_buffer();
        let uid = Uuid::new_v4().hyphenated().encode_lower(&mut uid);
        prepare_for_create(&mut lease, CompactString::from(&*uid), now.wall);
        let is_generated = lease.metadata.name.is_empty() && !lease.metadata.generate_name.is_empty();
        for _ in 0..GENERATED_NAMES_MAX {
            if is_generated {
                lease.metadata.name = generated_name(&lease.metadata.generate_name, &mut self.rng);
            }
            valid(&lease.metadata.name, validate_create(&lease))?;
            if has_version {
                let message = "resourceVersion should not be set on objects to be created".into();
                return Err(ApiError::Unclassified { message });
            }
            if let Some((_, there)) = table.find(&lease.metadata.namespace, &lease.metadata.name) {
                if is_generated {
                    continue;
                }
                let being_deleted = there.is_being_deleted();
                return Err(ApiError::AlreadyExists { name: lease.metadata.name.to_string(), being_deleted });
            }
            if options.dry_run {
                return Ok(with_warnings(encoded(201, &lease, None), warnings));
            }
            return Ok(with_warnings(Reply::object(201, &table.create(lease)), warnings));
        }
        Err(ApiError::AlreadyExists { name: lease.metadata.name.to_string(), being_deleted: false })
    }
}

/// Puts a changed Lease in the place of what is there, if the version that it was made from is still the present one.
fn replace(
    table: &mut Table,
    mut lease: Lease,
    namespace: &str,
    name: &str,
    options: &WriteOptions,
    warnings: Vec<String>,
) -> Result<Reply, ApiError> {
    let Some((slot, current)) = table.find(namespace, name) else {
        return Err(ApiError::NotFound { name: name.to_owned() });
    };
    match parse_object_resource_version(&lease.metadata.resource_version)? {
        0 => {
            let cause = FieldError::invalid_unquoted("metadata.resourceVersion", 0, "must be specified for an update");
            return Err(ApiError::Invalid {
                subject: InvalidSubject::Resource,
                name: name.to_owned(),
                causes: vec![cause],
            });
        }
        version if version != current.version.0 => return Err(ApiError::Conflict { name: name.to_owned() }),
        _ => {}
    }
    prepare_for_update(&mut lease, &current.lease);
    valid(name, validate_update(&lease, &current.lease))?;
    lease.metadata.resource_version = CompactString::default();

    // Nothing to write: the version stays, and no watcher hears of it.
    if lease == current.lease {
        return Ok(with_warnings(Reply::object(200, current), warnings));
    }
    if is_finalized_by_update(&lease.metadata, &current.lease.metadata) {
        let reply = encoded(200, &lease, Some(current.version));
        if !options.dry_run {
            table.remove(slot);
        }
        return Ok(with_warnings(reply, warnings));
    }
    if options.dry_run {
        return Ok(with_warnings(encoded(200, &lease, Some(current.version)), warnings));
    }
    Ok(with_warnings(Reply::object(200, &table.replace(slot, lease)), warnings))
}

/// What `fieldValidation` makes of unknown and repeated fields: an error, warnings, or nothing.
fn strictness(options: &WriteOptions, found: &FieldWarnings) -> Result<Vec<String>, ApiError> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    match options.field_validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict => found.strict_error().map_or_else(|| Ok(Vec::new()), Err),
        FieldValidation::Warn => Ok(found.messages().map(warn_value).collect()),
    }
}

/// A `warn-value` (RFC 7234 §5.5) with the code and agent of kube-apiserver.
fn warn_value(message: &str) -> String {
    format!("299 - \"{}\"", message.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The namespace of the path counts; a body may repeat it and may not contradict it.
fn take_namespace(meta: &mut ObjectMeta, namespace: &str) -> Result<(), ApiError> {
    if meta.namespace.is_empty() {
        meta.namespace = namespace.into();
    }
    if meta.namespace == namespace {
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request".into();
    Err(ApiError::BadRequest { message })
}

/// The name of the path and that of the body must be one.
fn check_name(meta: &ObjectMeta, name: &str) -> Result<(), ApiError> {
    let message = match meta.name.as_str() {
        own if own == name => return Ok(()),
        "" => format!("the name of the object ({name} based on URL) was undeterminable: name must be provided"),
        own => format!("the name of the object ({own}) does not match the name on the URL ({name})"),
    };
    Err(ApiError::BadRequest { message })
}

fn valid(name: &str, causes: Vec<FieldError>) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid { subject: InvalidSubject::Lease, name: name.to_owned(), causes })
}

/// A Lease that is not in the table.
fn encoded(status: u16, lease: &Lease, version: Option<ResourceVersion>) -> Reply {
    let mut body = Vec::with_capacity(512);
    encode_lease_into(&mut body, lease, version, true);
    body.push(b'\n');
    Reply::Response(Response::new(status, ContentType::Json, body.into()))
}

fn with_warnings(mut reply: Reply, warnings: Vec<String>) -> Reply {
    if let Reply::Response(response) = &mut reply {
        response.warnings = warnings;
    }
    reply
}
