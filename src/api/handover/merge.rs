//! Merges a Lease from built-in storage (kube-apiserver's own storage of Leases) into this server's table.

use crate::codec::json::Decoder;
use crate::codec::protobuf;
use crate::handover::{ENCRYPTED, StoredLease};
use crate::lease::Lease;
use crate::lease::validation::validate_entry_count;
use crate::resource::ApiVersion;
use crate::table::Table;
use crate::table::change::Change;
use compact_str::{CompactString, format_compact};

/// Prefix of a stored value in protobuf.
const PROTOBUF: &[u8] = b"k8s\0";

/// Decodes a value of built-in storage. `key` is the key of the Lease. The decoded Lease has its `resourceVersion` in
/// built-in storage.
///
/// # Errors
/// The reason why the value cannot be decoded.
pub(super) fn decode(key: &str, stored: &StoredLease, decoder: &mut Decoder) -> Result<Lease, String> {
    let value = stored.value.as_slice();
    if value.starts_with(ENCRYPTED) {
        return Err(format!("{key} is encrypted at rest"));
    }
    let decoded = match value.starts_with(PROTOBUF) {
        true => protobuf::decode_lease(value, ApiVersion::V1),
        false => decoder.decode_lease(value, ApiVersion::V1),
    };
    let decoded = decoded.map_err(|error| format!("{key}: {}", error.status().message))?;
    if let Some(complaint) = validate_entry_count(decoded.entries).first() {
        return Err(format!("{key}: {}: {}", complaint.field, complaint.body()));
    }
    let mut lease = decoded.lease;
    lease.metadata.resource_version = format_compact!("{}", stored.revision);
    Ok(lease)
}

/// Returns the change that imports a Lease from built-in storage; `None` if the table already has the same content.
///
/// The Lease from built-in storage replaces the Lease in the table. But clients also renew Leases at this server. If
/// both Leases have the same UID and holder, the merged Lease has the later `renewTime`, with the `managedFields` of
/// that renewal.
pub(super) fn taken_in(table: &Table, theirs: Lease) -> Option<Change> {
    let (namespace, name) = (&theirs.metadata.namespace, &theirs.metadata.name);
    let Some((slot, object)) = table.find(namespace, name) else { return Some(Change::Create(Box::new(theirs))) };
    let ours = object.lease();
    if object.built_in_version().is_some() && ours.metadata.resource_version == theirs.metadata.resource_version {
        return None;
    }
    if !is_same_term(&ours, &theirs) || ours.spec.renew_time <= theirs.spec.renew_time {
        return Some(Change::Replace(table.target(slot), Box::new(theirs)));
    }
    let mut merged = theirs;
    merged.spec.renew_time = ours.spec.renew_time;
    merged.metadata.managed_fields = ours.metadata.managed_fields.clone();
    // Built-in storage does not have the merged Lease, so the merged Lease has no `resourceVersion` of built-in
    // storage.
    merged.metadata.resource_version = CompactString::default();
    (merged != *ours).then(|| Change::Replace(table.target(slot), Box::new(merged)))
}

/// Whether two states of a Lease have the same UID and the same holder.
pub(super) fn is_same_term(one: &Lease, other: &Lease) -> bool {
    one.metadata.uid == other.metadata.uid && one.spec.holder_identity == other.spec.holder_identity
}

/// Returns the change that deletes the Lease `key` from the table, after its deletion in built-in storage; `None` if
/// the table has no such Lease.
pub(super) fn gone(table: &Table, key: &str) -> Option<Change> {
    let (namespace, name) = key.split_once('/')?;
    let (slot, _) = table.find(namespace, name)?;
    Some(Change::Delete(table.target(slot)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::protobuf::encode_lease_into;
    use crate::limits::METADATA_ENTRIES_MAX;
    use crate::resource::{API_VERSION, ResourceVersion};
    use crate::timestamp::MicroTime;

    fn lease(holder: &str, renewed: i64, version: &str) -> Lease {
        let mut lease = Lease::named("n", "a");
        lease.metadata.uid = "u".into();
        lease.metadata.resource_version = version.into();
        lease.spec.holder_identity = Some(holder.into());
        lease.spec.renew_time = Some(MicroTime(renewed));
        lease
    }

    /// Merges `theirs` into a table that has `ours`. Returns the merged Lease, and its `resourceVersion` of built-in
    /// storage.
    fn merged(ours: Option<Lease>, theirs: Lease) -> (Lease, Option<u64>) {
        let mut table = Table::new(ResourceVersion(1 << 50), 100, usize::MAX);
        if let Some(ours) = ours {
            table.create(ours);
        }
        if let Some(change) = taken_in(&table, theirs) {
            table.apply(change).expect("the present state");
        }
        let (_, object) = table.find("n", "a").expect("a Lease");
        (object.lease().into_owned(), object.built_in_version())
    }

    #[test]
    fn a_value_is_read_as_kube_apiserver_stores_it() {
        let mut decoder = Decoder::new();
        let wanted = lease("h", 7_000_000, "");
        let mut protobuf = Vec::new();
        encode_lease_into(&mut protobuf, &wanted, None, API_VERSION);
        let json = br#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"a","namespace":"n",
            "uid":"u"},"spec":{"holderIdentity":"h","renewTime":"1970-01-01T00:00:07.000000Z"}}"#;
        for value in [protobuf, json.to_vec()] {
            let read = decode("n/a", &StoredLease { revision: 42, value }, &mut decoder);
            assert_eq!(read, Ok(lease("h", 7_000_000, "42")));
        }
        // If a Lease has too many labels, the decoder keeps only the first ones. So `decode` must refuse such a Lease.
        let labels: Vec<_> = (0..=METADATA_ENTRIES_MAX).map(|n| format!(r#""{n}":"1""#)).collect();
        let long = format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, labels.join(",")).into_bytes();
        for value in [&b"k8s:enc:aescbc:v1:key1:x"[..], b"k8s\0x", b"{", &long] {
            let stored = StoredLease { revision: 42, value: value.to_vec() };
            let error = decode("n/a", &stored, &mut decoder).expect_err("no Lease");
            assert!(error.starts_with("n/a"), "{error}");
        }
    }

    #[test]
    fn built_in_storage_wins_except_for_a_later_renew_time() {
        let theirs = || lease("h", 5, "42");
        assert_eq!(merged(None, theirs()), (theirs(), Some(42)));
        assert_eq!(merged(Some(lease("h", 4, "")), theirs()), (theirs(), Some(42)), "renewed there");
        assert_eq!(merged(Some(lease("h", 5, "")), theirs()), (theirs(), Some(42)), "the same, so its version is good");
        assert_eq!(merged(Some(lease("h", 6, "")), theirs()), (lease("h", 6, ""), None), "renewed here");
        assert_eq!(merged(Some(lease("other", 6, "")), theirs()), (theirs(), Some(42)), "acquired there");
        let mut recreated = lease("h", 6, "");
        recreated.metadata.uid = "another".into();
        assert_eq!(merged(Some(recreated), theirs()), (theirs(), Some(42)));
        let mut labelled = theirs();
        labelled.metadata.labels.insert("l".into(), "v".into());
        let mut both = lease("h", 6, "");
        both.metadata.labels.insert("l".into(), "v".into());
        assert_eq!(merged(Some(lease("h", 6, "")), labelled), (both, None), "renewed here and labelled there");
    }

    #[test]
    fn an_unchanged_lease_is_not_imported_again() {
        let mut table = Table::new(ResourceVersion(1 << 50), 100, usize::MAX);
        table.create(lease("h", 5, "42"));
        assert!(taken_in(&table, lease("h", 5, "42")).is_none());
        assert!(gone(&table, "n/a").is_some());
        assert!(gone(&table, "n/b").is_none());
    }
}
