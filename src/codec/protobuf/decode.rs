//! Decodes protobuf bodies to Leases, with kube-apiserver's checks and messages.

use super::envelope::PREFIX;
use super::meta::{Repeated, read_micro_time, read_object_meta};
use super::reader::{Reader, WireError};
use crate::api_error::ApiError;
use crate::codec::refusal::{Refusal, check_kind};
use crate::codec::{DecodedLease, FieldWarnings};
use crate::lease::{Lease, LeaseSpec};
use crate::resource::{ApiVersion, GROUP, KIND, group_and_version};
use compact_str::CompactString;

/// Decodes a Lease. `version` is the API version of a body that does not name one. The decoded Lease never has
/// warnings, since Go has no strict decoding of protobuf.
///
/// # Errors
/// kube-apiserver's error for a body that is not protobuf, not a Lease, or has a malformed field.
pub fn decode_lease(body: &[u8], version: ApiVersion) -> Result<DecodedLease, ApiError> {
    let decode = || {
        let unknown = Unknown::read(body).map_err(|words| Refusal::Unrecognized { words })?;
        let meta = unknown.type_meta.or(GROUP, version.name(), KIND);
        let version = check_kind(&meta.group, &meta.version, &meta.kind)?;
        let (lease, entries) = read_lease(unknown.raw)
            .map_err(|error| Refusal::unhandled(&meta.kind, &meta.version, error.to_string()))?;
        Ok(DecodedLease { lease, version, entries, warnings: FieldWarnings::default() })
    };
    decode().map_err(|refusal: Refusal| refusal.into_api_error(body))
}

/// The decoded envelope of a body: a `runtime.Unknown`.
pub(super) struct Unknown<'b> {
    pub(super) type_meta: TypeMeta,
    pub(super) raw: &'b [u8],
}

impl<'b> Unknown<'b> {
    /// Decodes the envelope of `body`.
    ///
    /// # Errors
    /// Go's message about a malformed envelope.
    pub(super) fn read(body: &'b [u8]) -> Result<Self, String> {
        if body.is_empty() {
            return Err("empty data".to_owned());
        }
        let Some(message) = body.strip_prefix(PREFIX) else {
            return Err(format!("provided data does not appear to be a protobuf message, expected prefix {GO_PREFIX}"));
        };
        if message.is_empty() {
            return Err("empty body".to_owned());
        }
        Self::read_message(message).map_err(|error| error.to_string())
    }

    fn read_message(message: &'b [u8]) -> Result<Self, WireError> {
        let (mut api_version, mut kind) = (CompactString::default(), CompactString::default());
        let mut raw = &[][..];
        let mut reader = Reader::new("Unknown", message);
        while let Some(field) = reader.next()? {
            match field {
                1 => {
                    let mut reader = Reader::new("TypeMeta", reader.bytes("TypeMeta")?);
                    while let Some(field) = reader.next()? {
                        match field {
                            1 => api_version = reader.repaired_text("APIVersion")?,
                            2 => kind = reader.repaired_text("Kind")?,
                            _ => reader.skip()?,
                        }
                    }
                }
                2 => raw = reader.bytes("Raw")?,
                3 => _ = reader.bytes("ContentEncoding")?,
                4 => _ = reader.bytes("ContentType")?,
                _ => reader.skip()?,
            }
        }
        Ok(Self { type_meta: TypeMeta::new(&api_version, kind), raw })
    }
}

/// The prefix of every body, as Go's messages show it.
const GO_PREFIX: &str = "[107 56 115 0]";

/// Group, version and kind of a body. If the envelope does not contain a part, that part is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeMeta {
    pub(super) group: CompactString,
    pub(super) version: CompactString,
    pub(super) kind: CompactString,
}

impl TypeMeta {
    fn new(api_version: &str, kind: CompactString) -> Self {
        // An `apiVersion` with two slashes is invalid, and counts as empty.
        let (group, version) = group_and_version(api_version).unwrap_or_default();
        Self { group: group.into(), version: version.into(), kind }
    }

    /// Replaces missing parts by the arguments. If the envelope has no version, also replaces its group.
    pub(super) fn or(mut self, group: &str, version: &str, kind: &str) -> Self {
        if self.kind.is_empty() {
            self.kind = kind.into();
        }
        if self.version.is_empty() {
            self.group = group.into();
            self.version = version.into();
        }
        self
    }
}

/// Decodes a Lease. Also returns the number of metadata entries, such as labels, in the message.
fn read_lease(message: &[u8]) -> Result<(Lease, usize), WireError> {
    let mut lease = Lease::default();
    let mut repeated = Repeated::default();
    let mut reader = Reader::new("Lease", message);
    while let Some(field) = reader.next()? {
        match field {
            1 => read_object_meta(reader.bytes("ObjectMeta")?, &mut lease.metadata, &mut repeated)?,
            2 => read_spec(reader.bytes("Spec")?, &mut lease.spec)?,
            _ => reader.skip()?,
        }
    }
    let entries = repeated.finish(&mut lease.metadata);
    Ok((lease, entries))
}

fn read_spec(bytes: &[u8], spec: &mut LeaseSpec) -> Result<(), WireError> {
    let mut reader = Reader::new("LeaseSpec", bytes);
    while let Some(field) = reader.next()? {
        match field {
            1 => spec.holder_identity = Some(reader.text("HolderIdentity")?),
            2 => spec.lease_duration_seconds = Some(reader.int32("LeaseDurationSeconds")?),
            3 => spec.acquire_time = Some(read_micro_time(reader.bytes("AcquireTime")?)?),
            4 => spec.renew_time = Some(read_micro_time(reader.bytes("RenewTime")?)?),
            5 => spec.lease_transitions = Some(reader.int32("LeaseTransitions")?),
            6 => spec.strategy = Some(reader.text("Strategy")?),
            7 => spec.preferred_holder = Some(reader.text("PreferredHolder")?),
            _ => reader.skip()?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::envelope::tests::body;
    use super::super::sink::Sink;
    use super::*;
    use crate::limits::METADATA_ENTRIES_MAX;
    use crate::resource::API_VERSION;

    fn refusal(body: &[u8]) -> String {
        match decode_lease(body, ApiVersion::V1) {
            Err(ApiError::BadRequest { message }) => message,
            other => panic!("{body:?}: {other:?}"),
        }
    }

    #[test]
    fn an_invalid_envelope_gets_the_error_of_kube_apiserver() {
        let unrecognized = "the object provided is unrecognized (must be of type Lease): ";
        for (body, words) in [
            (&b""[..], "empty data (<empty>)"),
            (b"k8s", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (6b3873)"),
            (
                b"{\"kind\":\"Lease\",\"apiVersion\":\"v1\"}",
                "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({\"kind\":\"Lease\",\"apiVersion\":\" ...)",
            ),
            (b"k8s\0", "empty body (6b387300)"),
            (b"k8s\0\x0a", "unexpected EOF (6b3873000a)"),
            (b"k8s\0\x08\x01", "proto: wrong wireType = 0 for field TypeMeta (6b3873000801)"),
        ] {
            assert_eq!(refusal(body), format!("{unrecognized}{words}"));
        }
    }

    #[test]
    fn a_body_of_another_kind_gets_the_error_of_kube_apiserver() {
        for (api_version, kind, words) in [
            (
                "v1",
                "Pod",
                "Pod in version \"v1\" cannot be handled as a Lease: converting (v1.Pod) to (coordination.Lease): unknown conversion",
            ),
            (
                "coordination.k8s.io/v2",
                "Lease",
                "Lease in version \"v2\" cannot be handled as a Lease: no kind \"Lease\" is registered for version \"coordination.k8s.io/v2\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            ),
            (
                "apps/v1",
                "LeaseList",
                "LeaseList in version \"v1\" cannot be handled as a Lease: no kind \"LeaseList\" is registered for version \"apps/v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            ),
        ] {
            assert_eq!(refusal(&body(api_version, kind, &[])), words);
        }
        // Missing parts of the type get defaults. A group without a version counts as missing, and so does an invalid
        // `apiVersion`.
        for (api_version, kind) in
            [("", ""), (API_VERSION, ""), ("", "Lease"), ("other/", "Lease"), ("/", ""), ("a/b/c", "")]
        {
            assert_eq!(
                decode_lease(&body(api_version, kind, &[]), ApiVersion::V1).expect(api_version).lease,
                Lease::default()
            );
        }
        let older = body("coordination.k8s.io/v1beta1", "Lease", &[]);
        assert_eq!(decode_lease(&older, ApiVersion::V1).expect("a Lease").version, ApiVersion::V1Beta1);
    }

    #[test]
    fn malformed_fields_are_refused_with_gos_words() {
        for (message, words) in [
            (&[0x0a, 5][..], "unexpected EOF"),
            (&[0x0a, 2, 0x08, 1], "proto: wrong wireType = 0 for field Name"),
            (&[0x12, 2, 0x0d, 1], "proto: wrong wireType = 5 for field HolderIdentity"),
            (&[0x12, 3, 0x0a, 1, 0xff], "proto: field HolderIdentity contains invalid UTF-8"),
            (&[0x12, 3, 0x22, 1, 0x0c], "proto: Timestamp: wiretype end group for non-group"),
            (&[0x13], "proto: wrong wireType = 3 for field Spec"),
        ] {
            let found = refusal(&body(API_VERSION, "Lease", message));
            assert_eq!(found, format!("Lease in version \"v1\" cannot be handled as a Lease: {words}"));
        }
    }

    /// A naive decoder takes minutes or much memory for these messages. The first has 150,000 empty owner references,
    /// and the second has 90,000 metadata messages with one label each.
    #[test]
    fn many_entries_take_linear_time_and_little_memory() {
        let decoded = decode_lease(&body(API_VERSION, "Lease", &metadata(&[0x6a, 0].repeat(150_000))), ApiVersion::V1);
        let decoded = decoded.expect("a Lease");
        assert_eq!((decoded.entries, decoded.lease.metadata.owner_references.len()), (150_000, METADATA_ENTRIES_MAX));
        let label = |n: usize| [&[0x5a, 7, 0x0a, 5][..], format!("{n:05}").as_bytes()].concat();
        let pieces: Vec<_> = (0..90_000).flat_map(|n| metadata(&label(n % METADATA_ENTRIES_MAX))).collect();
        let decoded = decode_lease(&body(API_VERSION, "Lease", &pieces), ApiVersion::V1).expect("a Lease");
        assert_eq!(decoded.entries, 90_000);
    }

    /// Encodes metadata as the field `metadata` of a Lease.
    fn metadata(fields: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_bytes(1, fields);
        out
    }

    #[test]
    fn repeated_messages_are_merged() {
        let twice = [
            &[0x0a, 3, 0x0a, 1, b'a', 0x0a, 6, 0x0a, 1, b'b', 0x2a, 1, b'u'][..],
            &[0x12, 3, 0x0a, 1, b'x', 0x12, 2, 0x10, 5, 0x12, 2, 0x22, 0],
        ];
        let lease = decode_lease(&body(API_VERSION, "Lease", &twice.concat()), ApiVersion::V1).expect("a Lease").lease;
        assert_eq!((lease.metadata.name.as_str(), lease.metadata.uid.as_str()), ("b", "u"));
        assert_eq!(lease.spec.holder_identity.as_deref(), Some("x"));
        assert_eq!(lease.spec.lease_duration_seconds, Some(5));
        // An empty message for a time encodes Go's zero time.
        assert_eq!(lease.spec.renew_time, Some(crate::timestamp::MicroTime(-62_135_596_800_000_000)));
    }
}
