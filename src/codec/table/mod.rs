//! The Table of `meta.k8s.io` in JSON, which `kubectl get` prints (Kubernetes API concepts, "Receiving resources as
//! Tables"). The columns are the same as in kube-apiserver's Tables of Leases.

mod age;

use super::bookmark::INITIAL_EVENTS_END;
use super::list_meta::ListMeta;
use super::partial::push_partial;
use crate::api_error::{ApiError, FieldError};
use crate::go::json::push_string;
use crate::lease::Lease;
use crate::resource::MetaVersion;
use crate::timestamp::Time;
use age::push_age;

/// What a row of a Table contains in addition to its cells (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// The metadata of the object.
    #[default]
    Metadata,
    /// Nothing besides its cells.
    None,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the query parameter `includeObject`. An empty value counts as an absent parameter.
    ///
    /// # Errors
    /// kube-apiserver's 400 for an unknown value.
    pub fn parse(value: &str) -> Result<Self, ApiError> {
        match value {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                let error = FieldError::invalid("includeObject", other, detail);
                let message = format!("Unable to convert to Table as requested: {}: {}", error.field, error.body());
                Err(ApiError::BadRequest { message })
            }
        }
    }
}

/// The form of the rows in a Table.
#[derive(Clone, Copy, Debug)]
pub struct TableForm {
    /// The current time, from which ages are computed.
    pub now: Time,
    /// What a row contains in addition to its cells.
    pub include: IncludeObject,
    /// API version of `meta.k8s.io` for the Table and for the metadata in its rows.
    pub version: MetaVersion,
}

/// Appends the part of a Table before its rows. The caller appends the rows, separated by commas. `columns` is whether
/// the Table has column definitions: in a watch, only the Table of the first event has them.
pub fn push_table_head(out: &mut Vec<u8>, meta: &ListMeta<'_>, columns: bool, version: MetaVersion) {
    for part in ["{\"kind\":\"Table\",\"apiVersion\":\"", version.api_version(), "\",\"metadata\":"] {
        out.extend_from_slice(part.as_bytes());
    }
    meta.push_json(out);
    out.extend_from_slice(b",\"columnDefinitions\":");
    out.extend_from_slice(if columns { COLUMNS.as_bytes() } else { b"null" });
    out.extend_from_slice(b",\"rows\":[");
}

/// Appends the row of a Lease. `json` is the JSON of the Lease, with `kind` and `apiVersion`.
pub fn push_row(out: &mut Vec<u8>, lease: &Lease, json: &[u8], form: TableForm) {
    let TableForm { now, include, version } = form;
    out.extend_from_slice(b"{\"cells\":[");
    push_string(out, &lease.metadata.name);
    out.push(b',');
    push_string(out, lease.spec.holder_identity.as_deref().unwrap_or_default());
    out.extend_from_slice(b",\"");
    match lease.metadata.creation_timestamp {
        Some(created) => push_age(out, now.0.saturating_sub(created.0)),
        None => out.extend_from_slice(br"\u003cunknown\u003e"),
    }
    out.extend_from_slice(b"\"],\"object\":");
    // The row of the bookmark that ends the initial events contains at least the metadata, even for
    // `IncludeObject::None`. A client recognizes the bookmark by an annotation in the metadata.
    let is_end = || lease.metadata.annotations.value(INITIAL_EVENTS_END) == Some("true");
    match include {
        IncludeObject::Object => out.extend_from_slice(json),
        IncludeObject::None if !is_end() => out.extend_from_slice(b"null"),
        IncludeObject::None | IncludeObject::Metadata => push_partial(out, json, version),
    }
    out.push(b'}');
}

/// Appends the end of a Table.
pub fn push_table_close(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}");
}

/// Appends a Table of one object, for a get or for a watch event. `meta` must contain the `resourceVersion` of the
/// object.
pub fn push_table_of_one(
    out: &mut Vec<u8>,
    meta: &ListMeta<'_>,
    columns: bool,
    lease: &Lease,
    json: &[u8],
    form: TableForm,
) {
    push_table_head(out, meta, columns, form.version);
    push_row(out, lease, json, form);
    push_table_close(out);
}

/// Definitions of the columns. Their descriptions are those of the fields in the API documentation.
const COLUMNS: &str = r#"[{"name":"Name","type":"string","format":"name","description":"Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names","priority":0},{"name":"Holder","type":"string","format":"","description":"holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.","priority":0},{"name":"Age","type":"string","format":"","description":"CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata","priority":0}]"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::bookmark::bookmark_lease;
    use crate::codec::json::encode_lease_into;
    use crate::codec::text;
    use crate::resource::ResourceVersion;

    const TABLE: &str = include_str!("../../../tests/wire/table.json");
    const LEASES: [&str; 2] =
        [include_str!("../../../tests/wire/lease-bare.json"), include_str!("../../../tests/wire/lease-full.json")];

    fn form(now: Time, include: IncludeObject) -> TableForm {
        TableForm { now, include, version: MetaVersion::V1 }
    }

    fn lease(json: &str) -> Lease {
        crate::codec::json::Decoder::new()
            .decode_lease(json.as_bytes(), crate::resource::ApiVersion::V1)
            .expect(json)
            .lease
    }

    #[test]
    fn the_table_matches_kube_apiserver() {
        // The time of the recording is computed from the age that the recorded Table shows.
        let created = lease(LEASES[0]).metadata.creation_timestamp.expect("created");
        let age =
            TABLE.split_once(r#""cells":["bare","",""#).and_then(|(_, rest)| rest.split_once('s')).expect("age").0;
        let now = Time(created.0 + age.parse::<i64>().expect("seconds"));
        let table = text(|out| {
            push_table_head(out, &ListMeta::at(ResourceVersion(209)), true, MetaVersion::V1);
            for (index, json) in LEASES.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                let json = json.trim_end();
                push_row(out, &lease(json), json.as_bytes(), form(now, IncludeObject::Metadata));
            }
            push_table_close(out);
        });
        assert_eq!(table, TABLE.trim_end());
    }

    #[test]
    fn rows_contain_the_object_that_was_requested() {
        let json = LEASES[0].trim_end();
        let row = |include| text(|out| push_row(out, &lease(json), json.as_bytes(), form(Time(0), include)));
        let age = r#"{"cells":["bare","","\u003cinvalid\u003e"],"object":"#;
        assert_eq!(row(IncludeObject::None), format!("{age}null}}"));
        assert_eq!(row(IncludeObject::Object), format!("{age}{json}}}"));
        assert!(row(IncludeObject::Metadata).starts_with(&format!("{age}{{\"kind\":\"PartialObjectMetadata\"")));
    }

    #[test]
    fn a_bookmark_row_keeps_its_annotation_and_has_no_age() {
        let bookmark = bookmark_lease(true);
        let mut json = Vec::new();
        encode_lease_into(&mut json, &bookmark, Some(ResourceVersion(9)), true);
        let table = text(|out| {
            let meta = ListMeta::at(ResourceVersion(9));
            let form = TableForm { version: MetaVersion::V1Beta1, ..form(Time(0), IncludeObject::None) };
            push_table_of_one(out, &meta, false, &bookmark, &json, form);
        });
        assert_eq!(
            table,
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1beta1","metadata":{"resourceVersion":"9"},"columnDefinitions":null,"rows":[{"cells":["","","\u003cunknown\u003e"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}]}"#
        );
    }

    #[test]
    fn an_unknown_include_object_value_is_refused() {
        assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
        assert_eq!(IncludeObject::parse("Object"), Ok(IncludeObject::Object));
        let message = "Unable to convert to Table as requested: includeObject: Invalid value: \"Nonsense\": must be 'Metadata', 'Object', 'None', or empty";
        assert_eq!(IncludeObject::parse("Nonsense"), Err(ApiError::BadRequest { message: message.into() }));
    }
}
