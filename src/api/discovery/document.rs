//! The documents of discovery, OpenAPI and `/version`, which do not change while the process runs. The entity tag of
//! each document is a hash of its JSON text.

use super::Reply;
use crate::codec::Format;
use crate::codec::json::push_pretty;
use crate::codec::protobuf::{DiscoveryMessage, encode_discovery_into};
use crate::codec::yaml::push_yaml;
use crate::form::Response;
use crate::http::RequestHead;
use crate::media_type::DiscoveryForm;
use aws_lc_rs::digest::{SHA512, digest};
use bytes::Bytes;
use serde::Serialize;
use std::fmt::Write as _;

/// The bytes of a document and the hash of these bytes.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) body: Bytes,
    pub(super) hash: String,
}

impl Document {
    pub(super) fn new(body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let hash = hash_of(&body);
        Self { body, hash }
    }

    /// Returns the whole document, without an entity tag.
    pub(super) fn plain(&self, content_type: &'static str) -> Reply {
        Reply::Response(Response::new(200, content_type, self.body.clone().into()))
    }

    /// Returns the document with its entity tag. Returns 304 if the client already has the document (RFC 9110
    /// §13.1.2).
    pub(super) fn validated(&self, head: &RequestHead<'_>, content_type: &'static str) -> Response {
        validated(&self.hash, &self.body, head, content_type)
    }
}

/// A discovery document in JSON, indented JSON, YAML and protobuf.
#[derive(Debug)]
pub(super) struct Discovery {
    json: Bytes,
    pretty: Bytes,
    yaml: Bytes,
    protobuf: Bytes,
    /// Hash of the JSON format. It is the entity tag of the document in all formats.
    hash: String,
}

/// A JSON document whose first fields are `kind` and `apiVersion`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Typed<'a, T> {
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(flatten)]
    document: &'a T,
}

impl Discovery {
    pub(super) fn new<T: Serialize + DiscoveryMessage>(api_version: &str, kind: &str, document: &T) -> Self {
        let typed = Typed { kind, api_version, document };
        let mut json = serde_json::to_vec(&typed).expect("strings and lists of them have a JSON form");
        // Go's JSON encoder ends its output with a line break.
        json.push(b'\n');
        let (mut pretty, mut yaml, mut protobuf) = (Vec::new(), Vec::new(), Vec::new());
        push_pretty(&mut pretty, &json);
        push_yaml(&mut yaml, &json);
        encode_discovery_into(&mut protobuf, api_version, kind, document);
        let hash = hash_of(&json);
        Self { json: json.into(), pretty: pretty.into(), yaml: yaml.into(), protobuf: protobuf.into(), hash }
    }

    /// Returns the bytes of the document in the format of `form`.
    pub(super) fn body(&self, form: DiscoveryForm) -> &Bytes {
        match form.format {
            Format::Json if form.pretty => &self.pretty,
            Format::Json => &self.json,
            Format::Yaml => &self.yaml,
            Format::Protobuf => &self.protobuf,
        }
    }

    /// Returns the whole document, without an entity tag.
    pub(super) fn plain(&self, form: DiscoveryForm) -> Reply {
        Reply::Response(Response::new(200, form.format.media_type(), self.body(form).clone().into()))
    }

    /// Returns the document with its entity tag, in the format of `form`. Returns 304 if the client already has the
    /// document (RFC 9110 §13.1.2).
    pub(super) fn validated(&self, head: &RequestHead<'_>, form: DiscoveryForm) -> Response {
        validated(&self.hash, self.body(form), head, form.content_type())
    }
}

/// Returns the SHA-512 in upper-case hexadecimal, like kube-apiserver.
fn hash_of(body: &[u8]) -> String {
    let mut hash = String::with_capacity(128);
    for byte in digest(&SHA512, body).as_ref() {
        _ = write!(hash, "{byte:02X}");
    }
    hash
}

fn validated(hash: &str, body: &Bytes, head: &RequestHead<'_>, content_type: &'static str) -> Response {
    let (status, body) = if is_known(hash, head) { (304, Bytes::new()) } else { (200, body.clone()) };
    let mut response = Response::new(status, content_type, body.into());
    response.fields.push(("etag", format!("\"{hash}\"")));
    response.fields.push(("vary", "Accept".into()));
    response
}

/// Whether the `If-None-Match` field contains `hash` or `*`. The comparison is weak: it ignores the prefix `W/` of an
/// entity tag.
fn is_known(hash: &str, head: &RequestHead<'_>) -> bool {
    let mut is_known = false;
    head.fields.for_each(&mut |name, value| {
        is_known |= name.eq_ignore_ascii_case(b"if-none-match")
            && value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|tag| {
                let opaque = tag.strip_prefix(b"W/").unwrap_or(tag);
                let opaque = opaque.strip_prefix(b"\"").and_then(|tag| tag.strip_suffix(b"\""));
                tag == b"*" || opaque == Some(hash.as_bytes())
            });
    });
    is_known
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Lines, Method};

    #[test]
    fn the_hash_is_sha_512() {
        // A test vector of SHA-512 (FIPS 180-2, C.1).
        assert!(Document::new("abc").hash.starts_with("DDAF35A193617ABACC417349AE204131"));
    }

    #[test]
    fn a_known_etag_gets_304() {
        let document = Document::new("{}");
        let tag = format!("\"{}\"", document.hash);
        let status = |value: &str| {
            let lines = [("If-None-Match", value.as_bytes())];
            let fields = Lines(&lines);
            let head = RequestHead::bare(Method::Get, "/apis", "", &fields);
            document.validated(&head, "application/json").status
        };
        for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
            assert_eq!(status(&known), 304, "{known}");
        }
        for unknown in ["", "\"", "\"\"", "\"x\"", document.hash.as_str(), "W/", "W/*"] {
            assert_eq!(status(unknown), 200, "{unknown}");
        }
    }
}
