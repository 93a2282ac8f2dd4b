//! The verb patch. Computes the patched object for each of the four patch types.

use super::key::{check_key, check_name, take_namespace};
use super::negotiate::read_yaml;
use super::write::{Write, WriteKind, check_entries, valid, writer};
use super::{Api, Call, Verdict};
use crate::api_error::{ApiError, FieldError, InvalidSubject};
use crate::auth::authorize_create;
use crate::codec::json::encode_lease_into;
use crate::codec::{DecodedLease, yaml};
use crate::go::print::{go_value, json_type};
use crate::lease::Lease;
use crate::lease::managed_fields::{Conversion, apply, lease_from_value, track};
use crate::lease::validation::validate_entry_count;
use crate::options::{FieldValidation, WriteOptions, parse_object_resource_version};
use crate::patch::{
    PatchType, apply_json_patch, apply_merge_patch, apply_strategic_merge_patch, check_values,
    decode_strategic_merge_patch, is_json,
};
use crate::table::Table;
use compact_str::CompactString;
use serde_json::Value;

impl Api {
    /// Decides a patch. A server-side apply may also create the Lease.
    pub(super) fn decide_patch(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<Verdict, ApiError> {
        let content_type = String::from_utf8_lossy(call.head.content_type.unwrap_or_default());
        let patch_type = PatchType::from_content_type(&content_type)?;
        let form = call.form(false)?;
        let options = WriteOptions::parse_patch(&call.query, patch_type)?;
        let key = (namespace, name);
        if patch_type == PatchType::Apply {
            return self.decide_apply(table, key, call, &Write::new(call, WriteKind::Apply, &options, form));
        }
        let write = Write::new(call, WriteKind::Update, &options, form);
        // kube-apiserver checks first that the body is JSON. The body of a successful patch is always JSON. So this
        // server checks the body only if the patch fails.
        self.decide_patch_of_json(table, key, call, patch_type, &write).map_err(|why| {
            if is_json(call.body) { why } else { ApiError::BadRequest { message: "invalid JSON patch".to_owned() } }
        })
    }

    /// Decides a JSON patch, a merge patch or a strategic merge patch.
    fn decide_patch_of_json(
        &mut self,
        table: &mut Table,
        (namespace, name): (&str, &str),
        call: &Call<'_>,
        patch_type: PatchType,
        write: &Write<'_>,
    ) -> Result<Verdict, ApiError> {
        let (options, body) = (write.options, call.body);
        check_key(namespace, name)?;
        let (_, current) = table.find(namespace, name).ok_or_else(|| ApiError::NotFound { name: name.to_owned() })?;
        check_values(body)?;
        let is_checked = options.field_validation != FieldValidation::Ignore;
        let mut json = Vec::new();
        current.push_json(&mut json, call.version);
        let mut lease = match patch_type {
            PatchType::Json => {
                let patched = apply_json_patch(&json, body, is_checked)?;
                let complaints = self.complaints(patch_type, body, options);
                self.decode_patched(call, patched, complaints, options)?
            }
            PatchType::Merge => {
                let patched = apply_merge_patch(&json, body, is_checked)?;
                let complaints = self.complaints(patch_type, body, options);
                self.decode_patched(call, patched, complaints, options)?
            }
            PatchType::Apply | PatchType::StrategicMerge => {
                let patch = decode_strategic_merge_patch(body)?;
                valid(name, validate_entry_count(entries_in(&patch)))?;
                let patched = apply_strategic_merge_patch(&json, patch)?;
                let complaints = self.complaints(patch_type, body, options);
                let converted = converted(call, &patched, complaints, options);
                let lease =
                    converted.or_else(|why| Err(unfit(&go_value(&decode_strategic_merge_patch(body)?), why)))?;
                check_entries(&lease.metadata)?;
                lease
            }
        };
        track(Some(&current.lease()), &mut lease, &writer(call, options, &mut CompactString::default()));
        take_namespace(&mut lease.metadata, namespace)?;
        check_name(&lease.metadata, name)?;
        self.make_replacement(table, lease, name, write)
    }

    /// Decides a server-side apply, which changes a Lease or creates one.
    fn decide_apply(
        &mut self,
        table: &mut Table,
        (namespace, name): (&str, &str),
        call: &Call<'_>,
        write: &Write<'_>,
    ) -> Result<Verdict, ApiError> {
        let (options, body) = (write.options, call.body);
        let decoded = self.decode_configuration(body, options);
        // If a body begins like JSON, kube-apiserver reports a syntax error only after it has checked the namespace and
        // the name in the path.
        if !begins_as_json(body) {
            decoded.as_ref().map_err(ApiError::clone)?;
        }
        check_key(namespace, name)?;
        let (config, duplicates) = decoded?;
        check_kind(&config)?;
        valid(name, validate_entry_count(entries_in(&config)))?;
        let found = table.find(namespace, name).map(|(_, object)| (object.lease(), object.version));
        let live = found.as_ref().map(|(lease, version)| (&**lease, *version));
        let is_there = live.is_some();
        let mut lease = apply(
            live,
            &config,
            &writer(call, options, &mut CompactString::default()),
            options.force.unwrap_or(false),
            |lease, version| {
                let mut json = Vec::new();
                encode_lease_into(&mut json, lease, Some(version), true);
                json
            },
        )?;
        if options.field_validation == FieldValidation::Strict && !duplicates.is_empty() {
            let words = duplicates.join("\n  ");
            let message = format!(
                "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  {words}"
            );
            return Err(ApiError::BadRequest { message });
        }
        duplicates.iter().for_each(|duplicate| call.warnings.add(duplicate));
        if !is_there && !lease.metadata.uid.is_empty() {
            let requested = lease.metadata.uid.to_string();
            return Err(ApiError::UidGone { name: name.to_owned(), requested });
        }
        take_namespace(&mut lease.metadata, namespace)?;
        check_name(&lease.metadata, name)?;
        check_entries(&lease.metadata)?;
        if is_there {
            return self.make_replacement(table, lease, name, write);
        }
        authorize_create(call.caller, namespace, name, "")?;
        parse_object_resource_version(&lease.metadata.resource_version)?;
        self.make_creation(table, lease, write)
    }

    /// Decodes the body of a server-side apply, in YAML or JSON. Also returns the fields that the body repeats, unless
    /// `fieldValidation` ignores them. The caller reports these fields only if the apply succeeds.
    fn decode_configuration(&mut self, body: &[u8], options: &WriteOptions) -> Result<(Value, Vec<String>), ApiError> {
        let unread = |why: String| {
            let step =
                if begins_as_json(body) { "decoding patch: error converting YAML to JSON" } else { "encoding patch" };
            ApiError::BadRequest { message: format!("error {step}: {why}") }
        };
        let is_checked = options.field_validation != FieldValidation::Ignore;
        // Most bodies of an apply are JSON, and the JSON decoder is faster than the YAML decoder. Only the YAML decoder
        // reports the line numbers of repeated fields, and limits the number of values in a body. So it also decodes a
        // JSON body that repeats fields or may have too many values.
        let json = check_values(body).ok().and_then(|()| serde_json::from_slice::<Value>(body).ok());
        match json {
            Some(mut value) if !is_checked || self.decoder.repeated_fields(body).is_empty() => {
                yaml::check_json(body).map_err(unread)?;
                yaml::normalize_numbers(&mut value);
                Ok((value, Vec::new()))
            }
            _ => {
                let document = read_yaml(body, unread)?;
                Ok((document.value, if is_checked { document.duplicates } else { Vec::new() }))
            }
        }
    }

    /// Returns the complaints of strict decoding about the fields of the patch itself. The caller reports these
    /// complaints only if the patch results in a Lease.
    fn complaints(&mut self, patch_type: PatchType, body: &[u8], options: &WriteOptions) -> Vec<String> {
        match (options.field_validation, patch_type) {
            (FieldValidation::Ignore, _) => Vec::new(),
            (_, PatchType::Json) => {
                let found = self.decoder.json_patch_complaints(body);
                found.messages().map(|message| format!("json patch {message}")).collect()
            }
            (_, PatchType::Apply | PatchType::Merge | PatchType::StrategicMerge) => {
                self.decoder.repeated_fields(body).messages().map(str::to_owned).collect()
            }
        }
    }

    /// Decodes the Lease that results from a JSON patch or a merge patch.
    fn decode_patched(
        &mut self,
        call: &Call<'_>,
        patched: Vec<u8>,
        mut complaints: Vec<String>,
        options: &WriteOptions,
    ) -> Result<Lease, ApiError> {
        let unfit = |result: &[u8], why: String| unfit(&String::from_utf8_lossy(result), why);
        let decoded = self.decoder.decode_patched(&patched, call.version);
        let DecodedLease { lease, entries, warnings, .. } = decoded.map_err(|why| unfit(&patched, why))?;
        complaints.extend(warnings.messages().map(str::to_owned));
        tell(call, &complaints, options).map_err(|why| unfit(&patched, why))?;
        valid(&lease.metadata.name, validate_entry_count(entries))?;
        Ok(lease)
    }
}

/// Whether kube-apiserver treats the body of an apply as JSON. The beginning of the body decides this.
fn begins_as_json(body: &[u8]) -> bool {
    body.utf8_chunks().next().is_some_and(|chunk| chunk.valid().trim_start().starts_with('{'))
}

/// Checks that the body of an apply is an object or null.
fn check_kind(config: &Value) -> Result<(), ApiError> {
    if config.is_null() || config.is_object() {
        return Ok(());
    }
    let message = format!(
        "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
        json_type(config)
    );
    Err(ApiError::BadRequest { message })
}

/// Returns the number of metadata entries, such as labels, in the body of an apply or of a strategic merge patch.
fn entries_in(object: &Value) -> usize {
    let metadata = object.get("metadata");
    let count = |field: &str| match metadata.and_then(|metadata| metadata.get(field)) {
        Some(Value::Array(elements)) => elements.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    };
    ["labels", "annotations", "ownerReferences", "finalizers"].into_iter().map(count).sum()
}

/// Returns the Lease that results from a strategic merge patch, or the reason why the result is not a Lease.
fn converted(
    call: &Call<'_>,
    patched: &Value,
    mut complaints: Vec<String>,
    options: &WriteOptions,
) -> Result<Lease, String> {
    let Conversion { lease, unknown } = lease_from_value(patched)?;
    complaints.extend(unknown);
    tell(call, &complaints, options)?;
    Ok(lease)
}

/// Handles complaints of strict decoding as `fieldValidation` demands: ignores them, adds them as warnings, or returns
/// kube-apiserver's error message.
fn tell(call: &Call<'_>, complaints: &[String], options: &WriteOptions) -> Result<(), String> {
    match options.field_validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            return Err(format!("strict decoding error: {}", complaints.join(", ")));
        }
        FieldValidation::Warn => complaints.iter().for_each(|complaint| call.warnings.add(complaint)),
        FieldValidation::Ignore | FieldValidation::Strict => {}
    }
    Ok(())
}

/// Returns 422 for a patch whose result is not a Lease. The message quotes `shown`. As in kube-apiserver, `shown` is
/// the patch itself for a strategic merge patch, and the result of the patch for a JSON patch or a merge patch.
fn unfit(shown: &str, why: String) -> ApiError {
    ApiError::Invalid {
        subject: InvalidSubject::Patch,
        name: String::new(),
        causes: vec![FieldError::invalid("patch", shown, why)],
    }
}
