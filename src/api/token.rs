//! `continue` tokens. A token contains the `resourceVersion` of a list and the first key of its next page (apiserver
//! `storage/continue.go`).
//!
//! A token has kube-apiserver's fields, with the same content. So a client can continue a list after a takeover or a
//! rollback, when another server gets the token. A token also has the number of remaining items, which the server would
//! otherwise count again for each page. The table's ordered map can only count items one by one. The server counts the
//! items only if the token of the page lacks their number for the range of the list. An example is the token that
//! continues an expired list in the newest state.

use crate::api_error::ApiError;
use crate::codec::json::repaired;
use crate::table::snapshot::{Range, Snapshot};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The only version of the format of `continue` tokens.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// URL-safe Base64 without padding. As in Go, the unused bits of the last character may have any value.
const BASE64: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// The content of a `continue` token.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub(super) struct ContinueToken {
    v: String,
    /// `resourceVersion` of the list; negative for the newest state. If the version of a token has expired, the error
    /// contains a new token with -1.
    rv: i64,
    /// First possible key of the page: `namespace/name` of the last item before the page, and a NUL. In a list of one
    /// namespace, only the name and a NUL.
    start: String,
    /// Number of items of `range` that remain at the `resourceVersion`; `None` if the server has not counted them.
    remaining: Option<u64>,
    /// Range of keys of the list for which `remaining` was counted.
    range: String,
}

impl ContinueToken {
    /// Creates the token for the rest of the list that `snapshot` shows.
    #[must_use]
    pub(super) fn after(snapshot: &Snapshot) -> Self {
        Self {
            v: TOKEN_VERSION.into(),
            rv: i64::try_from(snapshot.version().0).unwrap_or(i64::MAX),
            start: start_in(snapshot.range(), snapshot.start()).into(),
            remaining: snapshot.remaining().map(|remaining| remaining as u64),
            range: snapshot.range().to_string(),
        }
    }

    /// Returns a token that continues the list at the same key, in the newest state.
    #[must_use]
    pub(super) fn without_version(&self) -> Self {
        Self { rv: -1, remaining: None, ..self.clone() }
    }

    /// Sets the number of remaining items of the list.
    pub(super) fn set_remaining(&mut self, remaining: usize) {
        self.remaining = Some(remaining as u64);
    }

    /// Returns the `resourceVersion` of the list; `None` for the newest state.
    #[must_use]
    pub(super) fn version(&self) -> Option<u64> {
        u64::try_from(self.rv).ok()
    }

    /// Returns the first possible key of the page in a list of `range`.
    #[must_use]
    pub(super) fn key_in(&self, range: &Range) -> Cow<'_, str> {
        match range {
            Range::Namespace(namespace) if !self.start.contains('/') => format!("{namespace}/{}", self.start).into(),
            _ => self.start.as_str().into(),
        }
    }

    /// Returns the number of remaining items of `range`. Returns `None` if the items are not counted, or if the token
    /// belongs to another range.
    #[must_use]
    pub(super) fn remaining_in(&self, range: &Range) -> Option<usize> {
        self.remaining().filter(|_| self.range == range.to_string())
    }

    /// Returns the number of remaining items; `None` if they are not counted.
    #[must_use]
    pub(super) fn remaining(&self) -> Option<usize> {
        self.remaining.map(|remaining| usize::try_from(remaining).unwrap_or(usize::MAX))
    }

    /// Returns the token for a list of `range`, in kube-apiserver's form. Earlier releases of this server issued tokens
    /// with the namespace for a list of one namespace. This function removes that namespace.
    #[must_use]
    pub(super) fn within(mut self, range: &Range) -> Self {
        self.start = start_in(range, &self.start).into();
        self
    }

    /// Encodes the token for the metadata of a list.
    #[must_use]
    pub(super) fn encode(&self) -> String {
        let json = serde_json::json!(self);
        BASE64.encode(json.to_string())
    }

    /// Decodes a token that a client sent.
    ///
    /// # Errors
    /// 400 if the token is invalid.
    pub(super) fn decode(text: &str) -> Result<Self, ApiError> {
        let unread = |why: String| ApiError::BadRequest {
            message: format!("invalid continue token: continue key is not valid: {why}"),
        };
        // Go's decoder ignores line breaks.
        let text: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
        let json = BASE64
            .decode(&text)
            .map_err(|_| unread(format!("illegal base64 data at input byte {}", first_illegal(&text))))?;
        let json = repaired(&json).map_err(unread)?.json;
        let mut token: Self = match json.trim_ascii_start() {
            object @ [b'{', ..] => serde_json::from_slice(object).map_err(|e| unread(e.to_string()))?,
            [b'n', ..] => Self::default(),
            // serde would also decode the token from a JSON array, which Go refuses.
            other => {
                let kind = match other {
                    [b'[', ..] => "array",
                    [b'"', ..] => "string",
                    [b't' | b'f', ..] => "bool",
                    _ => "number",
                };
                let why = format!("json: cannot unmarshal {kind} into Go value of type storage.continueToken");
                return Err(unread(why));
            }
        };
        if token.v != TOKEN_VERSION {
            return Err(unread(format!("server does not recognize this encoded version {}", token.v)));
        }
        if token.rv == 0 {
            return Err(unread(format!("incorrect encoded start resourceVersion (version {TOKEN_VERSION})")));
        }
        if token.start.is_empty() {
            return Err(unread(format!("encoded start key empty (version {TOKEN_VERSION})")));
        }
        // The watch cache of kube-apiserver issues tokens whose start begins with a slash. `DecodeContinue` drops the
        // slash.
        if token.start.starts_with('/') {
            token.start.remove(0);
        }
        Ok(token)
    }
}

/// Returns the form in which a token for a list of `range` names the key `start`. kube-apiserver adds the namespace of
/// the request to this form, so the token for a list of one namespace must not contain the namespace (apiserver
/// `storage/continue.go`, `EncodeContinue` and `DecodeContinue`).
fn start_in<'a>(range: &Range, start: &'a str) -> &'a str {
    let name = match range {
        Range::Namespace(namespace) => start.strip_prefix(&**namespace).and_then(|rest| rest.strip_prefix('/')),
        Range::All | Range::Name(_) => None,
    };
    // A forged `start` that is not a namespace and a name remains unchanged.
    name.filter(|name| !name.is_empty() && !name.contains('/')).unwrap_or(start)
}

/// Returns the offset at which Go's Base64 decoder stops. Go stops at the first byte outside the alphabet. If the last
/// group of four has a single character, Go stops at the end.
fn first_illegal(text: &str) -> usize {
    let is_of_alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.bytes().position(|byte| !is_of_alphabet(byte)).unwrap_or_else(|| text.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceVersion;
    use crate::table::Table;

    #[test]
    fn an_unreadable_continue_token_gets_the_error_of_go() {
        let refusal = |text: &str| ContinueToken::decode(text).expect_err(text).status().message;
        let head = "invalid continue token: continue key is not valid: ";
        for (text, words) in [
            ("x", "illegal base64 data at input byte 0"),
            ("abcde", "illegal base64 data at input byte 4"),
            ("ab=", "illegal base64 data at input byte 2"),
            (" ", "illegal base64 data at input byte 0"),
            ("e30", "server does not recognize this encoded version "),
        ] {
            assert_eq!(refusal(text), format!("{head}{words}"));
        }
        for (json, words) in [
            (
                r#" ["meta.k8s.io/v1",-1,"a",null]"#,
                "json: cannot unmarshal array into Go value of type storage.continueToken",
            ),
            ("\"x\"", "json: cannot unmarshal string into Go value of type storage.continueToken"),
            ("true", "json: cannot unmarshal bool into Go value of type storage.continueToken"),
            ("-7", "json: cannot unmarshal number into Go value of type storage.continueToken"),
            (r#"{"v":"meta.k8s.io/v1"}"#, "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
            (r#"{"v":"meta.k8s.io/v1","rv":-7}"#, "encoded start key empty (version meta.k8s.io/v1)"),
            ("null", "server does not recognize this encoded version "),
            ("{", "unexpected end of JSON input"),
        ] {
            assert_eq!(refusal(&BASE64.encode(json)), format!("{head}{words}"), "{json}");
        }
    }

    #[test]
    fn a_continue_token_round_trips() {
        let token = ContinueToken {
            v: TOKEN_VERSION.into(),
            rv: 1_790_000_000_000_000,
            start: "n/a\0".into(),
            remaining: Some(7),
            range: "n/".into(),
        };
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token.clone()));
        assert_eq!(token.version(), Some(1_790_000_000_000_000));
        let inconsistent = ContinueToken::decode(&token.without_version().encode()).expect("a token");
        assert_eq!((inconsistent.version(), inconsistent.remaining()), (None, None));
    }

    #[test]
    fn a_token_gets_the_namespace_of_its_list() {
        let range = Range::Namespace("n".into());
        for (start, of_kube_apiserver, key) in [
            (r"a\u0000", "a\0", "n/a\0"),
            // The form of earlier releases.
            (r"n/a\u0000", "a\0", "n/a\0"),
            // The form of kube-apiserver's watch cache.
            (r"/a\u0000", "a\0", "n/a\0"),
            (r"m/a\u0000", "m/a\0", "m/a\0"),
            ("n/", "n/", "n/"),
            ("n/a/b", "n/a/b", "n/a/b"),
        ] {
            let text = BASE64.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":-1,"start":"{start}"}}"#));
            let token = ContinueToken::decode(&text).expect("a token").within(&range);
            assert_eq!((token.start.as_str(), &*token.key_in(&range)), (of_kube_apiserver, key));
        }
        let everywhere = ContinueToken { start: "n/a\0".into(), ..ContinueToken::default() }.within(&Range::All);
        assert_eq!(everywhere.key_in(&Range::All), "n/a\0");
    }

    /// After a rollback, kube-apiserver gets the token and adds the namespace of the request. So the token must not
    /// contain the namespace.
    #[test]
    fn a_token_of_one_namespace_omits_the_namespace() {
        let table = Table::new(ResourceVersion(1), 10, usize::MAX);
        for (range, start) in [(Range::All, "n/a\0"), (Range::Namespace("n".into()), "a\0")] {
            let rest = Snapshot::now(&table, range.clone()).from_key("n/a\0", None).expect("in the range");
            let token = ContinueToken::after(&rest);
            assert_eq!((token.start.as_str(), &*token.key_in(&range)), (start, "n/a\0"));
        }
    }

    #[test]
    fn an_invalid_continue_token_gets_400() {
        let of = |json: &str| BASE64.encode(json);
        for text in [
            "nonsense".to_owned(),
            "%%%".to_owned(),
            of("{}"),
            of(r#"{"v":"meta.k8s.io/v2","rv":1,"start":"a"}"#),
            of(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            of(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            of("[]"),
        ] {
            assert_eq!(ContinueToken::decode(&text).expect_err("no token").status().code, 400, "{text}");
        }
    }
}
