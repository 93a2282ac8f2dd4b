//! Rules for the metadata of any object, and for updates of the metadata.

use super::complaints::Complaints;
use super::format::{
    annotation_key_complaints, dns_label_complaints, dns_subdomain_complaints, label_value_complaints,
    path_segment_complaints, qualified_name_complaints,
};
use super::render::{json_owner, json_owners, json_time};
use crate::api_error::{FieldError, FieldErrorKind};
use crate::go::json::{json_quoted, json_strings};
use crate::go::quote::{go_quoted, is_unprintable};
use crate::lease::managed_fields::ManagedFields;
use crate::lease::{ObjectMeta, OwnerReference, StringMap};
use crate::resource::group_and_version;
use compact_str::CompactString;
use std::collections::BTreeSet;

/// The rule for the name of an object. A creation must meet the rule for Leases (`DnsSubdomain`) and the rule for all
/// resources (`PathSegment`), an update only the latter.
#[derive(Clone, Copy)]
pub(super) enum NameRule {
    DnsSubdomain,
    PathSegment,
}

impl NameRule {
    fn complaints(self, name: &str) -> Vec<String> {
        match self {
            Self::DnsSubdomain => dns_subdomain_complaints(name.as_bytes()),
            Self::PathSegment => path_segment_complaints(name, false),
        }
    }

    /// Returns the reasons why `prefix` cannot be the beginning of a generated name.
    fn prefix_complaints(self, prefix: &str) -> Vec<String> {
        match self {
            Self::DnsSubdomain => dns_subdomain_complaints(&with_trailing_dash_masked(prefix)),
            Self::PathSegment => path_segment_complaints(prefix, true),
        }
    }
}

/// Replaces a dash at the end of a prefix by a letter, since a prefix may end in a dash but a name may not. Like Go,
/// cuts two bytes and appends one. So the check of the prefix misses an invalid character before the dash. The check of
/// the generated name finds it.
fn with_trailing_dash_masked(prefix: &str) -> Vec<u8> {
    let mut bytes = prefix.as_bytes().to_vec();
    if bytes.len() > 1 && bytes.last() == Some(&b'-') {
        bytes.truncate(bytes.len() - 2);
        bytes.push(b'a');
    }
    bytes
}

pub(super) fn validate_metadata(metadata: &ObjectMeta, rule: NameRule, complaints: &mut Complaints) {
    if !metadata.generate_name.is_empty() {
        let prefix = metadata.generate_name.as_str();
        complaints.push_invalid("metadata.generateName", prefix, rule.prefix_complaints(prefix));
    }
    if metadata.name.is_empty() {
        complaints.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        complaints.push_invalid("metadata.name", &metadata.name, rule.complaints(&metadata.name));
    }
    if metadata.namespace.is_empty() {
        complaints.push(FieldError::required("metadata.namespace", ""));
    } else {
        let details = dns_label_complaints(metadata.namespace.as_bytes());
        complaints.push_invalid("metadata.namespace", &metadata.namespace, details);
    }
    if metadata.generation < 0 {
        let detail = "must be greater than or equal to 0";
        complaints.push(FieldError::invalid_unquoted("metadata.generation", metadata.generation, detail));
    }
    validate_labels(&metadata.labels, complaints);
    validate_annotations(&metadata.annotations, complaints);
    validate_owner_references(&metadata.owner_references, complaints);
    validate_finalizers(metadata, complaints);
    validate_managed_fields(&metadata.managed_fields, complaints);
}

pub(super) fn validate_metadata_update(new: &ObjectMeta, old: &ObjectMeta, complaints: &mut Complaints) {
    if old.deletion_timestamp.is_some() {
        validate_no_new_finalizers(new, old, complaints);
    }
    if new.resource_version.is_empty() {
        complaints.push(FieldError::invalid("metadata.resourceVersion", "", "must be specified for an update"));
    }
    if new.generation < old.generation {
        let detail = "must not be decremented";
        complaints.push(FieldError::invalid_unquoted("metadata.generation", new.generation, detail));
    }
    let mut immutable = |field: &str, equal: bool, value: &dyn Fn() -> String| {
        if !equal {
            complaints.push(FieldError::invalid_unquoted(field, value(), "field is immutable"));
        }
    };
    immutable("metadata.name", new.name == old.name, &|| go_quoted(&new.name));
    immutable("metadata.namespace", new.namespace == old.namespace, &|| go_quoted(&new.namespace));
    immutable("metadata.uid", new.uid == old.uid, &|| json_quoted(&new.uid));
    immutable("metadata.creationTimestamp", new.creation_timestamp == old.creation_timestamp, &|| {
        json_time(new.creation_timestamp)
    });
    immutable("metadata.deletionTimestamp", new.deletion_timestamp == old.deletion_timestamp, &|| {
        json_time(new.deletion_timestamp)
    });
    let same_grace = new.deletion_grace_period_seconds == old.deletion_grace_period_seconds;
    immutable("metadata.deletionGracePeriodSeconds", same_grace, &|| {
        new.deletion_grace_period_seconds.map_or_else(|| "null".to_owned(), |seconds| seconds.to_string())
    });
    validate_labels(&new.labels, complaints);
    validate_annotations(&new.annotations, complaints);
    validate_owner_references(&new.owner_references, complaints);
    validate_managed_fields(&new.managed_fields, complaints);
}

/// Maximum length of the name of a subresource, in bytes.
const SUBRESOURCE_BYTES_MAX: usize = 256;

/// Checks the names in the `managedFields` entries, which a client may have sent. The names that the server sets are
/// always valid.
fn validate_managed_fields(list: &ManagedFields, complaints: &mut Complaints) {
    for (index, entry) in list.entries().iter().enumerate() {
        if complaints.is_full() {
            return;
        }
        let field = |name: &str| format!("metadata.managedFields[{index}].{name}");
        if entry.manager.len() > FIELD_MANAGER_BYTES_MAX || entry.manager.chars().any(is_unprintable) {
            validate_field_manager(&field("manager"), &entry.manager, complaints);
        }
        if entry.subresource.len() > SUBRESOURCE_BYTES_MAX {
            let kind = FieldErrorKind::TooLong { bytes_max: SUBRESOURCE_BYTES_MAX };
            complaints.push(FieldError { field: field("subresource"), kind });
        }
    }
}

/// Maximum length of the name of a field manager, in bytes.
pub(crate) const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// Checks the name of a field manager: its length, and that all characters are printable.
pub(crate) fn validate_field_manager(field: &str, manager: &str, complaints: &mut Complaints) {
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        let kind = FieldErrorKind::TooLong { bytes_max: FIELD_MANAGER_BYTES_MAX };
        complaints.push(FieldError { field: field.to_owned(), kind });
    }
    for (at, c) in manager.char_indices().filter(|&(_, c)| is_unprintable(c)) {
        if complaints.is_full() {
            return;
        }
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        complaints.push(FieldError::invalid(field, manager, detail));
    }
}

/// Checks labels in the order of their keys. In kube-apiserver this order is random.
fn validate_labels(labels: &StringMap, complaints: &mut Complaints) {
    for (key, value) in labels.iter() {
        complaints.push_invalid("metadata.labels", key, qualified_name_complaints(key));
        complaints.push_invalid("metadata.labels", value, label_value_complaints(value));
        if complaints.is_full() {
            return;
        }
    }
}

/// Maximum sum of the lengths of all keys and values of the annotations, in bytes.
pub(crate) const ANNOTATION_BYTES_MAX: usize = 256 * 1024;

fn validate_annotations(annotations: &StringMap, complaints: &mut Complaints) {
    let mut bytes: usize = 0;
    for (key, value) in annotations.iter() {
        bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
        complaints.push_invalid("metadata.annotations", key, annotation_key_complaints(key));
    }
    if bytes > ANNOTATION_BYTES_MAX {
        let kind = FieldErrorKind::TooLong { bytes_max: ANNOTATION_BYTES_MAX };
        complaints.push(FieldError { field: "metadata.annotations".to_owned(), kind });
    }
}

fn validate_owner_references(owners: &[OwnerReference], complaints: &mut Complaints) {
    let mut controller: Option<&OwnerReference> = None;
    for (index, owner) in owners.iter().enumerate() {
        if complaints.is_full() {
            return;
        }
        let parts =
            [("apiVersion", &*owner.api_version), ("kind", &*owner.kind), ("name", &*owner.name), ("uid", &*owner.uid)];
        let (group, version) = group_and_version(&owner.api_version).unwrap_or_default();
        for (name, value) in parts {
            let field = || format!("metadata.ownerReferences[{index}].{name}");
            if value.is_empty() {
                complaints.push(FieldError::required(field(), "must not be empty"));
            } else if name == "apiVersion" && version.is_empty() {
                complaints.push(FieldError::invalid(field(), value, "must be <group>/<version> or <version>"));
            }
        }
        if (group, version, owner.kind.as_str()) == ("", "v1", "Event") {
            let field = format!("metadata.ownerReferences[{index}]");
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            complaints.push(FieldError::invalid_unquoted(field, json_owner(owner), detail));
        }
        if owner.controller == Some(true) {
            if let Some(first) = controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                    first.kind, first.name, owner.kind, owner.name
                );
                let value = json_owners(owners);
                complaints.push(FieldError::invalid_unquoted("metadata.ownerReferences", value, detail));
            } else {
                controller = Some(owner);
            }
        }
    }
}

fn validate_finalizers(metadata: &ObjectMeta, complaints: &mut Complaints) {
    const FIELD: &str = "metadata.finalizers";
    let (mut orphan, mut foreground) = (false, false);
    for finalizer in &metadata.finalizers {
        complaints.push_invalid(FIELD, finalizer, qualified_name_complaints(finalizer));
        orphan |= finalizer == "orphan";
        foreground |= finalizer == "foregroundDeletion";
    }
    if orphan && foreground {
        let value = json_strings(&metadata.finalizers);
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        complaints.push(FieldError::invalid_unquoted(FIELD, value, detail));
    }
}

/// Checks that an update adds no finalizers while the object is being deleted.
fn validate_no_new_finalizers(new: &ObjectMeta, old: &ObjectMeta, complaints: &mut Complaints) {
    if new.finalizers == old.finalizers {
        return;
    }
    let known: BTreeSet<&str> = old.finalizers.iter().map(CompactString::as_str).collect();
    let extra: BTreeSet<&str> =
        new.finalizers.iter().map(CompactString::as_str).filter(|f| !known.contains(f)).collect();
    if extra.is_empty() {
        return;
    }
    let quoted: Vec<String> = extra.into_iter().map(go_quoted).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        quoted.join(", ")
    );
    complaints.push(FieldError::forbidden("metadata.finalizers", detail));
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NAME, create, one, owner, pairs};
    use super::*;

    const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

    #[test]
    fn names_must_be_dns_subdomains() {
        for name in ["UPPER", "a_b", "-a", "a..b", "a/b", "..", "a%b"] {
            let expected = one(format!("metadata.name: Invalid value: \"{name}\": {SUBDOMAIN}"));
            assert_eq!(create(|l| l.metadata.name = name.into()), expected, "{name}");
        }
        let long = "a".repeat(254);
        let expected = one(format!("metadata.name: Invalid value: \"{long}\": must be no more than 253 characters"));
        assert_eq!(create(|l| l.metadata.name = long.as_str().into()), expected);
        assert_eq!(create(|l| l.metadata.name = "a".repeat(253).into()).1, 0);
        let expected = one("metadata.name: Required value: name or generateName is required");
        assert_eq!(create(|l| l.metadata.name = "".into()), expected);
    }

    #[test]
    fn an_invalid_prefix_is_reported_for_name_and_prefix() {
        let expected = format!(
            "[metadata.generateName: Invalid value: \"Bad_\": {SUBDOMAIN}, metadata.name: Invalid value: \"Bad_lbtkg\": {SUBDOMAIN}]"
        );
        let told = create(|l| {
            l.metadata.generate_name = "Bad_".into();
            l.metadata.name = "Bad_lbtkg".into();
        });
        assert_eq!(told, (expected, 2));
        let long = "x".repeat(254);
        let expected =
            one(format!("metadata.generateName: Invalid value: \"{long}\": must be no more than 253 characters"));
        assert_eq!(create(|l| l.metadata.generate_name = long.as_str().into()), expected);
    }

    #[test]
    fn a_prefix_that_is_invalid_only_as_a_path_segment_is_refused() {
        let expected = one("metadata.generateName: Invalid value: \"x%-\": may not contain '%'");
        assert_eq!(create(|l| l.metadata.generate_name = "x%-".into()), expected);
        assert_eq!(create(|l| l.metadata.generate_name = "é-".into()).1, 1, "half a character is left, and refused");
        assert_eq!(create(|l| l.metadata.generate_name = "-".into()).1, 1);
    }

    #[test]
    fn namespaces_must_be_dns_labels() {
        assert_eq!(
            create(|l| l.metadata.namespace = "a.b".into()),
            one("metadata.namespace: Invalid value: \"a.b\": must not contain dots")
        );
        assert_eq!(create(|l| l.metadata.namespace = "".into()), one("metadata.namespace: Required value"));
    }

    #[test]
    fn labels_are_checked_by_key_and_value() {
        let long = "x".repeat(64);
        for (key, value, shown, detail) in [
            ("a b", "c", "a b", NAME),
            ("a", "b c", "b c", VALUE),
            ("a", long.as_str(), long.as_str(), "must be no more than 63 bytes"),
            ("/a", "b", "/a", "prefix part must be non-empty"),
        ] {
            let expected = one(format!("metadata.labels: Invalid value: \"{shown}\": {detail}"));
            assert_eq!(create(|l| l.metadata.labels = pairs(&[(key, value)])), expected);
        }
    }

    #[test]
    fn annotations_are_checked_by_key_and_total_size() {
        let invalid = |key, detail| format!("metadata.annotations: Invalid value: \"{key}\": {detail}");
        assert_eq!(create(|l| l.metadata.annotations = pairs(&[("a b", "c")])), one(invalid("a b", NAME)));
        let expected = format!("[{}, {}]", invalid("", "name part must be non-empty"), invalid("", NAME));
        assert_eq!(create(|l| l.metadata.annotations = pairs(&[("", "c")])), (expected, 2));
        let expected = one("metadata.annotations: Too long: may not be more than 262144 bytes");
        assert_eq!(create(|l| l.metadata.annotations = pairs(&[("big", &"x".repeat(262_142))])), expected);
        assert_eq!(create(|l| l.metadata.annotations = pairs(&[("big", &"x".repeat(262_141))])).1, 0);
    }

    #[test]
    fn owners_must_be_complete() {
        let owners = |owners: Vec<OwnerReference>| create(|l| l.metadata.owner_references = owners);
        assert_eq!(
            owners(vec![owner("v1", "Node", "n", "", None)]),
            one("metadata.ownerReferences[0].uid: Required value: must not be empty")
        );
        let expected = "[metadata.ownerReferences[0].apiVersion: Required value: must not be empty, metadata.ownerReferences[0].kind: Required value: must not be empty, metadata.ownerReferences[0].name: Required value: must not be empty, metadata.ownerReferences[0].uid: Required value: must not be empty]";
        assert_eq!(owners(vec![owner("", "", "", "", None)]), (expected.to_owned(), 4));
        for api_version in ["a/", "/", "a/b/c"] {
            let expected = format!(
                "metadata.ownerReferences[1].apiVersion: Invalid value: \"{api_version}\": must be <group>/<version> or <version>"
            );
            let two = vec![owner("v1", "Node", "n", "u", None), owner(api_version, "k", "n", "u", None)];
            assert_eq!(owners(two), one(expected));
        }
    }

    #[test]
    fn an_event_is_no_owner_and_only_one_owner_controls() {
        let owners = |owners: Vec<OwnerReference>| create(|l| l.metadata.owner_references = owners);
        let expected = "metadata.ownerReferences[0]: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"n\",\"uid\":\"u\"}: /v1, Kind=Event is disallowed from being an owner";
        assert_eq!(owners(vec![owner("v1", "Event", "n", "u", None)]), one(expected));
        assert_eq!(owners(vec![owner("events.k8s.io/v1", "Event", "n", "u", None)]).1, 0);
        let expected = "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"n\",\"uid\":\"u\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"m\",\"uid\":\"v\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for Pod/n and Pod/m";
        let two = vec![owner("v1", "Pod", "n", "u", Some(true)), owner("v1", "Pod", "m", "v", Some(true))];
        assert_eq!(owners(two), one(expected));
    }

    #[test]
    fn finalizers_are_qualified_names_and_two_exclude_each_other() {
        let finalizers = |all: &[&str]| create(|l| l.metadata.finalizers = all.iter().map(|f| (*f).into()).collect());
        let expected = format!("metadata.finalizers: Invalid value: \"example.com/a b\": {NAME}");
        assert_eq!(finalizers(&["example.com/a b"]), one(expected));
        let expected = "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set";
        assert_eq!(finalizers(&["orphan", "foregroundDeletion"]), one(expected));
    }
}
