//! A document that does not change while the process runs, with a hash by which clients know whether they have it.

use super::Reply;
use crate::http::{ContentType, RequestHead, Response};
use aws_lc_rs::digest::{SHA512, digest};
use bytes::Bytes;
use std::fmt::Write as _;

/// Bytes and their hash.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) body: Bytes,
    /// SHA-512 in upper-case hexadecimal, as kube-apiserver writes it.
    pub(super) hash: String,
}

impl Document {
    pub(super) fn new(body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let mut hash = String::with_capacity(128);
        for byte in digest(&SHA512, &body).as_ref() {
            _ = write!(hash, "{byte:02X}");
        }
        Self { body, hash }
    }

    /// The whole document, without a validator.
    pub(super) fn plain(&self, content_type: ContentType) -> Reply {
        Reply::Response(Response::new(200, content_type, self.body.clone().into()))
    }

    /// The document with its entity tag, or only that if the client has it (RFC 9110 §13.1.2).
    pub(super) fn validated(&self, head: &RequestHead<'_>, content_type: ContentType) -> Response {
        let is_known = self.is_known(head);
        let (status, body) = if is_known { (304, Bytes::new()) } else { (200, self.body.clone()) };
        let mut response = Response::new(status, content_type, body.into());
        response.fields.push(("etag", format!("\"{}\"", self.hash)));
        response.fields.push(("vary", "Accept".into()));
        response
    }

    /// Whether `If-None-Match` names it. The comparison is the weak one, which `W/` does not disturb.
    fn is_known(&self, head: &RequestHead<'_>) -> bool {
        let mut is_known = false;
        head.fields.for_each(&mut |name, value| {
            is_known |= name.eq_ignore_ascii_case(b"if-none-match")
                && value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|tag| {
                    let opaque = tag.strip_prefix(b"W/").unwrap_or(tag);
                    tag == b"*"
                        || opaque.strip_prefix(b"\"").and_then(|tag| tag.strip_suffix(b"\""))
                            == Some(self.hash.as_bytes())
                });
        });
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{FieldLines, Method};

    struct Lines<'a>(&'a [(&'a str, &'a str)]);

    impl FieldLines for Lines<'_> {
        fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
            for (name, value) in self.0 {
                each(name.as_bytes(), value.as_bytes());
            }
        }
    }

    #[test]
    fn the_hash_is_sha_512() {
        // FIPS 180-2, C.1
        assert!(Document::new("abc").hash.starts_with("DDAF35A193617ABACC417349AE204131"));
    }

    #[test]
    fn who_has_the_document_is_told_so() {
        let document = Document::new("{}");
        let tag = format!("\"{}\"", document.hash);
        let status = |value: &str| {
            let lines = [("If-None-Match", value)];
            let fields = Lines(&lines);
            let head = RequestHead {
                method: Method::Get,
                path: "/apis",
                query: "",
                accept: None,
                content_type: None,
                user_agent: None,
                fields: &fields,
            };
            document.validated(&head, ContentType::Json).status
        };
        for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
            assert_eq!(status(&known), 304, "{known}");
        }
        for unknown in ["", "\"", "\"\"", "\"x\"", document.hash.as_str(), "W/", "W/*"] {
            assert_eq!(status(unknown), 200, "{unknown}");
        }
    }
}
