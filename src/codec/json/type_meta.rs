//! `kind` and `apiVersion` of a body: their decoding, their defaults, and kube-apiserver's error for another kind.

use super::tape::Value;
use crate::api_error::ApiError;
use crate::codec::refusal::{Refusal, check_kind};
use crate::go::quote::go_quoted;
use crate::resource::{ApiVersion, GROUP, KIND, group_and_version};

/// Group, version and kind of a body. If the body does not contain a part, that part is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TypeMeta<'i> {
    pub(super) group: &'i str,
    pub(super) version: &'i str,
    pub(super) kind: &'i str,
}

impl<'i> TypeMeta<'i> {
    /// Reads the type of a body. kube-apiserver does this with a separate decoder, before it decodes the object. That
    /// decoder ignores the case of the field names `kind` and `apiVersion`.
    ///
    /// # Errors
    /// Go's message about a body whose type cannot be decoded.
    pub(super) fn interpret(root: Value<'_, 'i>) -> Result<Self, String> {
        let members = match root {
            Value::Object(members) => members,
            Value::Null => return Ok(Self::default()),
            other => return Err(unread(&format!("{} into Go value of type {GO_STRUCT}", other.go_description()))),
        };
        let (mut api_version, mut kind) = ("", "");
        let mut first_error = None;
        for (key, value) in members {
            let (into, name) = if is_folded(key, "kind") {
                (&mut kind, "kind")
            } else if is_folded(key, "apiVersion") {
                (&mut api_version, "apiVersion")
            } else {
                continue;
            };
            match value {
                Value::String(text) => *into = text,
                Value::Null => {}
                other => {
                    let found = other.go_description();
                    first_error
                        .get_or_insert_with(|| unread(&format!("{found} into Go struct field .{name} of type string")));
                }
            }
        }
        if let Some(words) = first_error {
            return Err(words);
        }
        let Some((group, version)) = group_and_version(api_version) else {
            return Err(format!("unexpected GroupVersion string: {api_version}"));
        };
        Ok(Self { group, version, kind })
    }
}

/// Whether two names are equal after Go's case folding, which maps the long s and the Kelvin sign to ASCII letters.
fn is_folded(key: &str, name: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key.eq_ignore_ascii_case(name) || !key.is_ascii() && key.chars().map(fold).eq(name.chars().map(fold))
}

/// Checks that a body is a Lease, and returns its API version. `wanted` is the API version of a body that does not name
/// one. [`check_kind`] describes which types this function accepts.
///
/// # Errors
/// kube-apiserver's error for an object of another kind.
pub(super) fn check_lease(found: TypeMeta<'_>, wanted: ApiVersion) -> Result<ApiVersion, Refusal> {
    let mut meta = found;
    if meta.kind.is_empty() {
        meta.kind = KIND;
    }
    if meta.version.is_empty() && (meta.group.is_empty() || meta.group == GROUP) {
        (meta.group, meta.version) = (GROUP, wanted.name());
    }
    if meta.version.is_empty() {
        let words = "Object 'apiVersion' is missing in the body".to_owned();
        return Err(Refusal::unhandled(meta.kind, meta.version, words));
    }
    check_kind(meta.group, meta.version, meta.kind)
}

/// Returns the error 400 for a body whose API version differs from the version in the path.
#[cold]
pub(crate) fn other_version(found: ApiVersion, wanted: ApiVersion) -> ApiError {
    let (found, wanted) = (found.group_version(), wanted.group_version());
    let message = format!("the API version in the data ({found}) does not match the expected API version ({wanted})");
    ApiError::BadRequest { message }
}

/// Returns the error for a kind without an API version. For such a kind, kube-apiserver searches in the internal
/// version of the group.
pub(super) fn not_registered_internally(kind: &str) -> String {
    format!(
        "no kind {} is registered for the internal version of group {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        go_quoted(kind),
        go_quoted(GROUP)
    )
}

/// Returns Go's message for a body whose type cannot be decoded.
pub(super) fn unread_syntax(words: &str) -> String {
    format!("couldn't get version/kind; json parse error: {words}")
}

fn unread(what: &str) -> String {
    unread_syntax(&format!("json: cannot unmarshal {what}"))
}

/// Go type into which kube-apiserver decodes `kind` and `apiVersion`, as Go's messages show it.
const GO_STRUCT: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_folded_as_go_folds_them() {
        assert!(is_folded("KIND", "kind") && is_folded("\u{212a}inD", "kind"));
        assert!(is_folded("APIver\u{17f}ion", "apiVersion"));
        assert!(!is_folded("kínd", "kind") && !is_folded("\u{212a}", "kind") && !is_folded("kinds", "kind"));
    }

    #[test]
    fn missing_parts_of_the_type_default_to_a_lease() {
        let check = |group, version, kind| check_lease(TypeMeta { group, version, kind }, ApiVersion::V1);
        assert_eq!(check("", "", "").expect("a Lease"), ApiVersion::V1);
        assert_eq!(check(GROUP, "", "Lease").expect("a Lease"), ApiVersion::V1);
        assert_eq!(check(GROUP, "v1beta1", "").expect("a Lease"), ApiVersion::V1Beta1);
        assert_eq!(check_lease(TypeMeta::default(), ApiVersion::V1Beta1).expect("a Lease"), ApiVersion::V1Beta1);
        for (group, version, kind, words) in [
            ("", "v1", "Pod", "converting (v1.Pod) to (coordination.Lease): unknown conversion"),
            (GROUP, "v1", "LeaseList", "converting (v1.LeaseList) to (coordination.Lease): unknown conversion"),
            (
                "",
                "v1",
                "",
                r#"no kind "Lease" is registered for version "v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
            ),
            (
                GROUP,
                "v2",
                "",
                r#"no kind "Lease" is registered for version "coordination.k8s.io/v2" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
            ),
            (
                "apps",
                "v1",
                "LeaseList",
                r#"no kind "LeaseList" is registered for version "apps/v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
            ),
            ("x", "", "Lease", "Object 'apiVersion' is missing in the body"),
        ] {
            assert_eq!(check(group, version, kind).expect_err(kind).into_words(), words);
        }
    }
}
