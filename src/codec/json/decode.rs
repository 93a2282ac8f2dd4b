//! Decodes JSON bodies to objects.
//!
//! A [`Decoder`] is reused for many bodies. So the decoding of a body of common size allocates memory only for the
//! object. The decoder first copies the body into a buffer, because simd-json overwrites its input and needs padding
//! after the input. The body itself stays intact: errors quote the body, and `syntax` reads it if simd-json refuses it.
//!
//! ```text
//! body ──copy──► input ──simd-json──► tape ──fields──► Lease
//!   │                        │ refused
//!   └──────► syntax ◄────────┘
//!               ├─ invalid for Go too: Go's message
//!               └─ repaired copy ──► input ──simd-json──► …
//! ```

use super::delete_options::read_delete_options;
use super::lease_fields::read_lease;
use super::repeated;
use super::syntax;
use super::tape::Value;
use super::type_meta::{TypeMeta, check_lease, not_registered_internally, unread_syntax};
use crate::api_error::ApiError;
use crate::codec::refusal::Refusal;
use crate::codec::warnings::{Complaint, FieldWarnings};
use crate::codec::{DecodedLease, DeleteOptions};
use crate::lease::Lease;
use crate::resource::{ApiVersion, KIND};
use simd_json::{Buffers, INPUT_PADDING, Tape, fill_tape_padded};

/// Decodes JSON bodies one after another, and reuses its buffers.
pub struct Decoder {
    buffers: Buffers,
    /// Text that simd-json parses, and [`INPUT_PADDING`] bytes after the text. simd-json unescapes strings in place.
    input: Vec<u8>,
    /// simd-json's tape of the current body. Between two bodies, the tape is empty, but retains its memory.
    tape: Tape<'static>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Returns a decoder with buffers for bodies of common size.
    #[must_use]
    pub fn new() -> Self {
        Self {
            buffers: Buffers::with_max_depth(BODY_BYTES_COMMON, syntax::DEPTH_MAX),
            input: Vec::with_capacity(BODY_BYTES_COMMON + INPUT_PADDING),
            tape: Tape(Vec::with_capacity(NODES_COMMON)),
        }
    }

    /// Decodes the Lease in `body`. `version` is the API version of a body without `apiVersion`. The body may contain
    /// another version of the group.
    ///
    /// # Errors
    /// kube-apiserver's error for a body that is not JSON, is not a Lease, or has a field of the wrong type.
    pub fn decode_lease(&mut self, body: &[u8], version: ApiVersion) -> Result<DecodedLease, ApiError> {
        self.decode_lease_of(body, body, version)
    }

    /// Decodes the Lease in `json`, like [`Decoder::decode_lease`]. `json` is the JSON into which the YAML `body` was
    /// converted. Errors quote `body`.
    ///
    /// # Errors
    /// The errors of [`Decoder::decode_lease`].
    pub fn decode_lease_of(&mut self, json: &[u8], body: &[u8], version: ApiVersion) -> Result<DecodedLease, ApiError> {
        self.read_lease(json, version).map_err(|refusal| refusal.into_api_error(body))
    }

    /// Decodes the Lease that results from a patch. `version` is the API version of a Lease without one. The patched
    /// Lease may contain another version of the group.
    ///
    /// # Errors
    /// Go's plain message, which kube-apiserver includes in an error about the patch.
    pub fn decode_patched(&mut self, body: &[u8], version: ApiVersion) -> Result<DecodedLease, String> {
        let read = |root: Value<'_, '_>| match TypeMeta::interpret(root) {
            Ok(TypeMeta { group: "", version: "", kind: "" | KIND }) => Ok(of_no_version(root, version)),
            Ok(TypeMeta { group: "", version: "", kind }) => Err(not_registered_internally(kind)),
            meta => lease_of(root, meta, body, version).map_err(Refusal::into_words),
        };
        self.read(body, read).map_err(|words| unread(&words).into_words()).flatten()
    }

    /// Returns the complaints about repeated fields of a patch or of an applied configuration. The search recurses. The
    /// caller has already decoded `patch` with a limit on its depth, so the search does not overflow the stack.
    #[must_use]
    pub fn repeated_fields(&mut self, patch: &[u8]) -> FieldWarnings {
        self.read(patch, repeated::in_any_value).unwrap_or_default()
    }

    /// Returns the complaints of strict decoding about the operations of a JSON patch. The caller has already applied
    /// the patch, so the patch is valid JSON.
    #[must_use]
    pub fn json_patch_complaints(&mut self, patch: &[u8]) -> FieldWarnings {
        self.read(patch, repeated::in_operations).unwrap_or_default()
    }

    /// Decodes `DeleteOptions` in the body of a DELETE request.
    ///
    /// # Errors
    /// 400 with kube-apiserver's message.
    pub fn decode_delete_options(&mut self, body: &[u8]) -> Result<DeleteOptions, ApiError> {
        self.read(body, |root| read_delete_options(root, body))
            .map_err(|words| unread_syntax(&words))
            .flatten()
            .map_err(|message| ApiError::BadRequest { message })
    }

    /// Decodes the Lease in `body`. `wanted` is the default API version.
    fn read_lease(&mut self, body: &[u8], wanted: ApiVersion) -> Result<DecodedLease, Refusal> {
        let read = |root: Value<'_, '_>| lease_of(root, TypeMeta::interpret(root), body, wanted);
        self.read(body, read).map_err(|words| unread(&words)).flatten()
    }

    /// Parses `body` as JSON, and passes its root value to `read`.
    ///
    /// # Errors
    /// Go's message about a syntax error.
    fn read<T>(&mut self, body: &[u8], read: impl FnOnce(Value<'_, '_>) -> T) -> Result<T, String> {
        let result = self.parse(body, read);
        if body.len() > BODY_BYTES_KEPT {
            // Frees the buffers after a long body. Otherwise the decoder would retain tens of megabytes after a body of
            // several megabytes.
            *self = Self::new();
        }
        result
    }

    #[inline]
    fn parse<T>(&mut self, body: &[u8], read: impl FnOnce(Value<'_, '_>) -> T) -> Result<T, String> {
        let Self { buffers, input, tape } = self;
        let spare = std::mem::replace(tape, Tape(Vec::new())).reset();
        let (mut filled, well) = fill(input, body, buffers, spare);
        if !well {
            let spare = filled.reset();
            let repaired = match syntax::repaired(body) {
                Ok(repaired) => repaired.json,
                Err(words) => {
                    *tape = spare.reset();
                    return Err(words);
                }
            };
            let (refilled, well) = fill(input, &repaired, buffers, spare.reset());
            if !well {
                *tape = refilled.reset();
                return Err(UNREADABLE.to_owned());
            }
            filled = refilled;
        }
        let result = Value::first(&filled.0).map(read).ok_or_else(|| UNREADABLE.to_owned());
        *tape = filled.reset();
        result
    }
}

/// Decodes `root` to a Lease. `meta` is the type of `root`, and `wanted` is the default API version.
fn lease_of(
    root: Value<'_, '_>,
    meta: Result<TypeMeta<'_>, String>,
    body: &[u8],
    wanted: ApiVersion,
) -> Result<DecodedLease, Refusal> {
    let version = check_lease(meta.map_err(|words| Refusal::Unrecognized { words })?, wanted)?;
    read_lease(root, body, version).map_err(|words| Refusal::unhandled(KIND, version.name(), words))
}

/// Returns the error for a body with a syntax error.
#[cold]
fn unread(words: &str) -> Refusal {
    Refusal::Unrecognized { words: unread_syntax(words) }
}

/// Decodes the result of a patch that removes `apiVersion`. kube-apiserver then decodes a Lease of its internal
/// version, which has none of the API's fields. So the Lease is empty, and every top-level field except `kind` and
/// `apiVersion` is reported as unknown.
#[cold]
fn of_no_version(root: Value<'_, '_>, version: ApiVersion) -> DecodedLease {
    let mut warnings = FieldWarnings::default();
    if let Value::Object(members) = root {
        members
            .filter(|(key, _)| !matches!(*key, "kind" | "apiVersion"))
            .for_each(|(key, _)| warnings.report(Complaint::Unknown, || key.to_owned()));
    }
    DecodedLease { lease: Lease::default(), version, entries: 0, warnings }
}

/// Copies `text` into `input`, and parses it onto `tape`. Returns the tape, and whether the parser succeeded.
#[inline]
fn fill<'a>(input: &'a mut Vec<u8>, text: &[u8], buffers: &mut Buffers, mut tape: Tape<'a>) -> (Tape<'a>, bool) {
    input.clear();
    input.extend_from_slice(text);
    input.extend_from_slice(&[b' '; INPUT_PADDING]);
    let well = fill_tape_padded(input, text.len(), buffers, &mut tape).is_ok();
    (tape, well)
}

/// Initial size of the buffer for a body, in bytes. This is five times the size of a kubelet's Lease with managed
/// fields.
const BODY_BYTES_COMMON: usize = 4_096;

/// Length of a body, in bytes, above which the decoder frees its buffers after it has parsed the body. The tape can
/// take some twenty times as much memory as the body.
const BODY_BYTES_KEPT: usize = 65_536;

/// Number of simd-json's tape nodes for a common body.
const NODES_COMMON: usize = 256;

/// Message for a body that Go accepts and simd-json refuses, even in its repaired form. No such body is known.
const UNREADABLE: &str = "unreadable value";

#[cfg(test)]
pub(super) mod tests {
    use super::super::encode_lease_into;
    use super::*;
    use crate::lease::managed_fields::ManagedFields;
    use crate::limits::METADATA_ENTRIES_MAX;
    use crate::resource::ApiVersion::V1;
    use crate::resource::ResourceVersion;

    const FULL: &str = r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"full","namespace":"c-wire","uid":"5dfea7de-ed50-4ae2-986c-d87c7cf980f3","resourceVersion":"208","creationTimestamp":"2026-11-21T00:02:25Z","labels":{"a":"1","b":"2"},"annotations":{"empty":"","k":"v"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u","controller":true,"blockOwnerDeletion":false}],"finalizers":["example.com/f"],"managedFields":[{"manager":"conformance","operation":"Update","apiVersion":"coordination.k8s.io/v1","time":"2026-11-21T00:02:25Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:empty":{},"f:k":{}},"f:finalizers":{".":{},"v:\"example.com/f\"":{}},"f:labels":{".":{},"f:a":{},"f:b":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"u\"}":{}}},"f:spec":{"f:acquireTime":{},"f:holderIdentity":{},"f:leaseDurationSeconds":{},"f:leaseTransitions":{},"f:preferredHolder":{},"f:renewTime":{},"f:strategy":{}}}}]},"spec":{"holderIdentity":"me","leaseDurationSeconds":40,"acquireTime":"2026-01-02T03:04:05.678901Z","renewTime":"1969-12-31T23:59:58.000001Z","leaseTransitions":0,"strategy":"OldestEmulationVersion","preferredHolder":"you"}}"#;
    const BARE: &str = r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"bare","namespace":"c-wire","uid":"6cff4ef0-663c-4b66-8690-23e85382e640","resourceVersion":"209","creationTimestamp":"2026-11-21T00:02:25Z"},"spec":{}}"#;

    pub(crate) fn decode(body: impl AsRef<[u8]>) -> Result<DecodedLease, ApiError> {
        Decoder::new().decode_lease(body.as_ref(), V1)
    }

    pub(crate) fn lease(body: &str) -> Lease {
        decode(body).expect(body).lease
    }

    pub(crate) fn refusal(body: impl AsRef<[u8]>) -> String {
        match decode(body.as_ref()) {
            Err(ApiError::BadRequest { message }) => message,
            other => panic!("{}: {other:?}", String::from_utf8_lossy(body.as_ref())),
        }
    }

    pub(crate) fn warnings(body: &str) -> Vec<String> {
        decode(body).expect(body).warnings.messages().map(str::to_owned).collect()
    }

    #[test]
    fn leases_of_kube_apiserver_round_trip() {
        let mut decoder = Decoder::new();
        for (text, version) in [(FULL, 208), (BARE, 209)] {
            let item = text.replace(r#""kind":"Lease","apiVersion":"coordination.k8s.io/v1","#, "");
            for (text, type_meta) in [(text, true), (&item, false)] {
                let decoded = decoder.decode_lease(text.as_bytes(), V1).expect(text);
                assert!(decoded.warnings.is_empty());
                assert_eq!(decoded.lease.metadata.resource_version, version.to_string());
                let mut out = Vec::new();
                encode_lease_into(&mut out, &decoded.lease, Some(ResourceVersion(version)), type_meta);
                assert_eq!(String::from_utf8(out).expect("UTF-8"), text);
            }
        }
    }

    #[test]
    fn managed_fields_are_kept_as_they_came_or_not_at_all() {
        let list =
            |entries: &str| lease(&format!(r#"{{"metadata":{{"managedFields":{entries}}}}}"#)).metadata.managed_fields;
        assert!(list("null").is_absent());
        for reset in ["[]", "[{}]", "[null]", r#"[{"time":null,"fieldsV1":null}]"#] {
            assert_eq!(list(reset), ManagedFields::reset(), "{reset}");
        }
        let entry = |more: &str| {
            format!(r#"[{{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1"{more}}}]"#)
        };
        for (sent, kept) in [
            ("", "{}"),
            (r#","fieldsV1":null"#, "{}"),
            (
                r#","fieldsV1": { "f:b" : { } , "f:a" : {".":{"x":[1]},"v:\"<\"":{}} }"#,
                r#"{"f:b":{},"f:a":{".":{"x":0},"v:\"\u003c\"":{}}}"#,
            ),
            (r#","fieldsV1":[1]"#, "0"),
        ] {
            let list = list(&entry(sent));
            assert_eq!(list.entries()[0].fields.as_json(), kept, "{sent}");
        }
        for bad in [
            "[{},{}]",
            r#"[{"manager":"m","operation":"Bad"}]"#,
            r#"[{"operation":"Apply","fieldsType":"FieldsV1"}]"#,
            r#"[{"operation":"Apply","apiVersion":"v1"}]"#,
        ] {
            assert!(list(bad).is_absent(), "{bad}");
        }
        let deep = format!(r#","fieldsV1":{}{}"#, r#"{"f:a":"#.repeat(5_000), "{}") + &"}".repeat(5_000);
        assert!(list(&entry(&deep)).entries()[0].fields.as_json().len() < 1_000);
        assert_eq!(
            warnings(r#"{"metadata":{"managedFields":[],"managedFields":[{"colour":1,"manager":"a","manager":"b"}]}}"#),
            [
                "duplicate field \"metadata.managedFields\"",
                "unknown field \"metadata.managedFields[0].colour\"",
                "duplicate field \"metadata.managedFields[0].manager\"",
            ]
        );
        assert!(refusal(r#"{"metadata":{"managedFields":[{"manager":1}]}}"#).ends_with(
            "json: cannot unmarshal number into Go struct field ManagedFieldsEntry.metadata.managedFields.manager of type string"
        ));
    }

    #[test]
    fn bodies_of_another_kind_are_refused() {
        for (body, words) in [
            (
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#,
                r#"Pod in version "v1" cannot be handled as a Lease: converting (v1.Pod) to (coordination.Lease): unknown conversion"#,
            ),
            (
                r#"{"apiVersion":"coordination.k8s.io/v1","kind":"LeaseList","metadata":{},"items":[]}"#,
                r#"LeaseList in version "v1" cannot be handled as a Lease: converting (v1.LeaseList) to (coordination.Lease): unknown conversion"#,
            ),
            (
                r#"{"apiVersion":"a/b/c"}"#,
                r#"the object provided is unrecognized (must be of type Lease): unexpected GroupVersion string: a/b/c ({"apiVersion":"a/b/c"})"#,
            ),
            (
                r#"{"kind":5}"#,
                r#"the object provided is unrecognized (must be of type Lease): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({"kind":5})"#,
            ),
            // kube-apiserver decodes a body with two decoders. The first decoder ignores the case of the field names
            // `kind` and `apiVersion`. So here `Kind` makes the body a Pod.
            (
                r#"{"spec":{"renewTime":"x"},"Kind":"Pod","apiVersion":"v1"}"#,
                r#"Pod in version "v1" cannot be handled as a Lease: converting (v1.Pod) to (coordination.Lease): unknown conversion"#,
            ),
            (
                r#"{"apiVersion":"coordination.k8s.io/v1beta1","spec":5}"#,
                r#"Lease in version "v1beta1" cannot be handled as a Lease: json: cannot unmarshal number into Go struct field Lease.spec of type v1beta1.LeaseSpec"#,
            ),
        ] {
            assert_eq!(refusal(body), words);
        }
    }

    #[test]
    fn an_error_quotes_the_first_number_that_does_not_fit() {
        for (spec, number) in [
            (r#""spec":{"leaseTransitions":1.5,"leaseTransitions":2.5}"#, "1.5"),
            (r#""spec":{"leaseTransitions":1,"leaseTransitions":2.5}"#, "2.5"),
            (r#""spec":{"leaseTransitions":2147483648},"spec":{}"#, "2147483648"),
            (r#""sp\u0065c":{"lease\u0054ransitions":1E2}"#, "1E2"),
        ] {
            let words =
                format!("cannot unmarshal number {number} into Go struct field LeaseSpec.spec.leaseTransitions");
            let refusal = refusal(format!("{{{spec}}}"));
            assert!(refusal.contains(&words), "{refusal}");
        }
    }

    #[test]
    fn a_patched_lease_may_have_another_version_and_plain_errors() {
        let mut decoder = Decoder::new();
        let body = br#"{"apiVersion":"coordination.k8s.io/v1beta1","metadata":{"name":"a"}}"#.to_vec();
        assert_eq!(decoder.decode_patched(&body, V1).expect("a Lease").lease.metadata.name, "a");
        assert_eq!(
            decoder.decode_patched(br#"{"apiVersion":"coordination.k8s.io/v1","metadata":5}"#.as_ref(), V1),
            Err("json: cannot unmarshal number into Go struct field Lease.metadata of type v1.ObjectMeta".to_owned())
        );
    }

    #[test]
    fn a_patch_that_removes_the_api_version_gives_an_empty_lease() {
        for version in ["", r#""apiVersion":null,"#, r#""apiVersion":"","#] {
            let body = format!(r#"{{{version}"kind":"Lease","metadata":{{"name":5}},"spec":{{}}}}"#);
            let decoded = Decoder::new().decode_patched(&body.into_bytes(), V1).expect("an empty Lease");
            assert_eq!(decoded.lease, Lease::default());
            let warnings: Vec<_> = decoded.warnings.messages().collect();
            assert_eq!(warnings, ["unknown field \"metadata\"", "unknown field \"spec\""]);
        }
        let words = r#"no kind "b" is registered for the internal version of group "coordination.k8s.io" in scheme "pkg/api/legacyscheme/scheme.go:30""#;
        assert_eq!(Decoder::new().decode_patched(br#"{"kind":"b"}"#.as_ref(), V1), Err(words.to_owned()));
    }

    #[test]
    fn bodies_that_are_no_json_are_refused_in_the_words_of_go() {
        let head = "the object provided is unrecognized (must be of type Lease): couldn't get version/kind; json parse error: ";
        let value = r#" into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        for (body, words) in [
            ("", "unexpected end of JSON input (<empty>)".to_owned()),
            (" ", "unexpected end of JSON input (20)".to_owned()),
            ("{", "unexpected end of JSON input ({)".to_owned()),
            ("[]", format!("json: cannot unmarshal array{value} (5b5d)")),
            ("\"x\"", format!("json: cannot unmarshal string{value} (227822)")),
            ("5", format!("json: cannot unmarshal number{value} (35)")),
            ("true", format!("json: cannot unmarshal bool{value} (74727565)")),
            (
                r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a"}} trailing"#,
                r#"invalid character 't' after top-level value ({"apiVersion":"coordination.k8 ...)"#.to_owned(),
            ),
            ("{\"a\":\"\u{1}\"}", "invalid character '\\x01' in string literal ({\"a\":\"\u{1}\"})".to_owned()),
        ] {
            assert_eq!(refusal(body), format!("{head}{words}"));
        }
    }

    #[test]
    fn a_lease_with_every_known_field_gives_no_warnings() {
        for body in [FULL, &FULL.replace("\"name\":\"full\"", "\"name\":\"full\",\"selfLink\":\"\",\"generateName\":\"\",\"generation\":1,\"deletionTimestamp\":null,\"deletionGracePeriodSeconds\":1")] {
            assert_eq!(warnings(body), [""; 0]);
        }
    }

    #[test]
    fn input_that_only_go_accepts_is_decoded_as_in_go() {
        let body = b"{\"spec\":{\"holderIdentity\":\"a\xffb\",\"preferredHolder\":\"\\ud800x\",\"size\":1e999,\"n\":99999999999999999999}}";
        let decoded = decode(body).expect("a Lease");
        assert_eq!(decoded.lease.spec.holder_identity.as_deref(), Some("a\u{fffd}b"));
        assert_eq!(decoded.lease.spec.preferred_holder.as_deref(), Some("\u{fffd}x"));
        assert_eq!(decoded.warnings.messages().count(), 2);
    }

    #[test]
    fn escapes_are_undone_in_keys_and_values() {
        let spec = lease(r#"{"sp\u0065c":{"holder\u0049dentity":"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000"}}"#).spec;
        assert_eq!(spec.holder_identity.as_deref(), Some("a\"\\/\u{8}\u{c}\n\r\té😀\0"));
    }

    #[test]
    fn deep_nesting_is_refused_at_the_depth_of_go() {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"metadata":{{"name":"a"}},"x":{open}{close}}}"#)
        };
        assert_eq!(lease(&nested(9_999)).metadata.name, "a");
        assert!(refusal(nested(10_000)).contains("invalid character '[' exceeded max depth"));
        assert!(refusal("[".repeat(3_000_000)).contains("exceeded max depth"));
        assert!(refusal("{\"a\":".repeat(500_000)).contains("exceeded max depth"));
    }

    /// A naive decoder takes quadratic time for these bodies, and the test would run for minutes.
    #[test]
    fn huge_bodies_take_linear_time() {
        let mut decoder = Decoder::new();
        let count = 150_000;
        let labels: String = (0..count).rev().map(|n| format!("\"k{n}\":\"\",")).collect();
        let many = format!(r#"{{"metadata":{{"labels":{{{labels}"z":""}}}}}}"#);
        let decoded = decoder.decode_lease(&many.into_bytes(), V1).expect("a Lease");
        assert_eq!((decoded.entries, decoded.lease.metadata.labels.len()), (count + 1, METADATA_ENTRIES_MAX));
        let pieces: String = (0..count).rev().map(|n| format!("\"labels\":{{\"{n}\":\"\"}},")).collect();
        let pieces = format!(r#"{{"metadata":{{{pieces}"name":"a"}}}}"#);
        let decoded = decoder.decode_lease(&pieces.into_bytes(), V1).expect("a Lease");
        assert_eq!((decoded.entries, decoded.warnings.messages().count()), (count, 1));
        let unknown: String = (0..count).map(|n| format!("\"u{n}\":[{{}}],")).collect();
        let unknown = format!(r#"{{{unknown}"kind":"Lease"}}"#);
        assert_eq!(decoder.decode_lease(&unknown.into_bytes(), V1).expect("a Lease").warnings.messages().count(), 100);
        let owners = format!(r#"{{"metadata":{{"ownerReferences":[{}null]}}}}"#, "{},".repeat(count));
        let decoded = decoder.decode_lease(&owners.into_bytes(), V1).expect("a Lease");
        assert_eq!((decoded.entries, decoded.lease.metadata.owner_references.len()), (count + 1, METADATA_ENTRIES_MAX));
    }

    #[test]
    fn a_decoder_refuses_cut_bodies_and_stays_usable() {
        let mut decoder = Decoder::new();
        for end in 0..FULL.len() {
            let prefix = FULL.as_bytes()[..end].to_vec();
            assert!(decoder.decode_lease(&prefix, V1).is_err(), "{end}");
        }
        assert_eq!(decoder.decode_lease(FULL.as_bytes(), V1), decode(FULL));
    }

    /// If the decoder accepts a mutated body in UTF-8, the JSON parser `serde_json` must accept the body too.
    #[test]
    fn mutated_bodies_never_panic() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut decoder = Decoder::new();
        for _ in 0..30_000 {
            let mut body = FULL.as_bytes().to_vec();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..body.len());
                match random.u8(..4) {
                    0 => body[at] = random.u8(..),
                    1 => body[at] = *random.choice(b"{}[]:,\"\\ 0-.eEtfnu").expect("not empty"),
                    2 => _ = body.remove(at),
                    _ => {
                        let end = random.usize(at..=body.len().min(at + 40));
                        let piece = body[at..end].to_vec();
                        let to = random.usize(..body.len());
                        body.splice(to..to, piece);
                    }
                }
            }
            let decoded = decoder.decode_lease(&body.clone(), V1);
            decoder.decode_delete_options(&body.clone()).ok();
            if decoded.is_ok() && std::str::from_utf8(&body).is_ok() {
                serde_json::from_slice::<serde::de::IgnoredAny>(&body).expect("JSON");
            }
        }
    }
}
