//! Decodes `metav1.DeleteOptions` in the JSON body of a DELETE request.

use super::fields::{Field, FieldReader, Place, Scope};
use super::tape::{Members, Value};
use super::type_meta::TypeMeta;
use crate::codec::refusal::not_registered;
use crate::codec::{DeleteOptions, Preconditions};

const KIND: Field = Field::new(0, "kind", "string");
const API_VERSION: Field = Field::new(1, "apiVersion", "string");
const GRACE_PERIOD_SECONDS: Field = Field::new(2, "gracePeriodSeconds", "int64");
const PRECONDITIONS: Field = Field::new(3, "preconditions", "v1.Preconditions");
const ORPHAN_DEPENDENTS: Field = Field::new(4, "orphanDependents", "bool");
const PROPAGATION_POLICY: Field = Field::new(5, "propagationPolicy", "v1.DeletionPropagation");
const DRY_RUN: Field = Field::new(6, "dryRun", "[]string");
const IGNORE_STORE_READ_ERROR: Field = Field::new(7, "ignoreStoreReadErrorWithClusterBreakingPotential", "bool");

const PRECONDITION_UID: Field = Field::new(0, "preconditions.uid", "types.UID");
const PRECONDITION_RESOURCE_VERSION: Field = Field::new(1, "preconditions.resourceVersion", "string");

/// Decodes `DeleteOptions` from the root value of `text`. Like kube-apiserver, ignores unknown and repeated fields of
/// these options.
///
/// # Errors
/// Go's message, which kube-apiserver returns to the client unchanged.
pub(super) fn read_delete_options(root: Value<'_, '_>, text: &[u8]) -> Result<DeleteOptions, String> {
    let meta = TypeMeta::interpret(root)?;
    if !matches!(meta.kind, "" | "DeleteOptions") {
        let (group, version) = match (meta.group, meta.version) {
            ("", "") => ("meta.k8s.io", "v1"),
            named => named,
        };
        return Err(not_registered(meta.kind, group, version, DeleteOptions::SCHEME));
    }
    let mut options = DeleteOptions::default();
    let mut reader = FieldReader::default();
    if let Value::Object(members) = root {
        let scope = &mut Scope::new("DeleteOptions", Place::Root);
        for (key, value) in members {
            match key {
                "kind" => reader.skip(scope, &KIND),
                "apiVersion" => reader.skip(scope, &API_VERSION),
                "gracePeriodSeconds" => {
                    reader.optional_integer(scope, &GRACE_PERIOD_SECONDS, value, &mut options.grace_period_seconds);
                }
                "preconditions" => match value {
                    // In Go this field is a pointer. So if the body repeats the field, `null` removes the earlier
                    // value.
                    Value::Null => options.preconditions = None,
                    value => {
                        if let Some(members) = reader.object(scope, &PRECONDITIONS, value) {
                            read_preconditions(&mut reader, members, options.preconditions.get_or_insert_default());
                        }
                    }
                },
                "orphanDependents" => {
                    reader.optional_bool(scope, &ORPHAN_DEPENDENTS, value, &mut options.orphan_dependents);
                }
                "propagationPolicy" => {
                    reader.optional_text(scope, &PROPAGATION_POLICY, value, &mut options.propagation_policy);
                }
                "dryRun" => {
                    if let Some(elements) = reader.array(scope, &DRY_RUN, value) {
                        let texts = elements.map(|element| reader.text_element(scope, &DRY_RUN, element));
                        options.dry_run = texts.collect();
                    }
                }
                "ignoreStoreReadErrorWithClusterBreakingPotential" => {
                    reader.optional_bool(scope, &IGNORE_STORE_READ_ERROR, value, &mut options.ignore_store_read_error);
                }
                _ => {}
            }
        }
    }
    reader.finish(text)?;
    Ok(options)
}

fn read_preconditions(reader: &mut FieldReader, members: Members<'_, '_>, preconditions: &mut Preconditions) {
    let scope = &mut Scope::new("Preconditions", Place::At("preconditions"));
    for (key, value) in members {
        match key {
            "uid" => reader.optional_text(scope, &PRECONDITION_UID, value, &mut preconditions.uid),
            "resourceVersion" => {
                let into = &mut preconditions.resource_version;
                reader.optional_text(scope, &PRECONDITION_RESOURCE_VERSION, value, into);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::*;
    use crate::api_error::ApiError;

    fn decode(body: &str) -> Result<DeleteOptions, ApiError> {
        Decoder::new().decode_delete_options(body.as_bytes())
    }

    fn refusal(body: &str) -> String {
        match decode(body) {
            Err(ApiError::BadRequest { message }) => message,
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn all_fields_are_read_under_every_version_that_clients_send() {
        for type_meta in [
            "",
            r#""kind":"DeleteOptions","#,
            r#""kind":"DeleteOptions","apiVersion":"v1","#,
            r#""kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","#,
            r#""kind":"DeleteOptions","apiVersion":"coordination.k8s.io/v1","#,
        ] {
            let body = format!(
                r#"{{{type_meta}"gracePeriodSeconds":5,"preconditions":{{"uid":"u","resourceVersion":"1"}},"orphanDependents":false,"propagationPolicy":"Background","dryRun":["All"],"ignoreStoreReadErrorWithClusterBreakingPotential":true,"other":1}}"#
            );
            let options = DeleteOptions {
                grace_period_seconds: Some(5),
                preconditions: Some(Preconditions { uid: Some("u".into()), resource_version: Some("1".into()) }),
                orphan_dependents: Some(false),
                propagation_policy: Some("Background".into()),
                dry_run: vec!["All".into()],
                ignore_store_read_error: Some(true),
            };
            assert_eq!(decode(&body), Ok(options));
        }
        for body in ["{}", "null", r#"{"preconditions":{"uid":"u"},"preconditions":null}"#] {
            assert_eq!(decode(body), Ok(DeleteOptions::default()));
        }
        let empty = DeleteOptions { preconditions: Some(Preconditions::default()), ..DeleteOptions::default() };
        assert_eq!(decode(r#"{"preconditions":{}}"#), Ok(empty));
    }

    #[test]
    fn invalid_options_get_the_errors_of_kube_apiserver() {
        for (body, words) in [
            (
                r#"{"kind":"Pod","apiVersion":"v1"}"#,
                r#"no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111""#,
            ),
            ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
            (
                r#"{"gracePeriodSeconds":"5"}"#,
                "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
            ),
            (
                r#"{"preconditions":{"uid":5}}"#,
                "json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID",
            ),
        ] {
            assert_eq!(refusal(body), words);
        }
    }
}
