//! The envelope of a message: a prefix, and then a `runtime.Unknown` that contains the type of the message and the
//! message.

use super::sink::{LONG, SHORT, Sink};

/// First bytes of every body.
pub(super) const PREFIX: &[u8; 4] = b"k8s\0";

/// Last bytes of every body: `contentEncoding` and `contentType`, both empty.
pub(super) const TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

/// Appends a body: the envelope, and the message that `fill` appends.
#[inline]
pub(super) fn put_body<S: Sink>(out: &mut S, api_version: &str, kind: &str, fill: impl FnOnce(&mut S)) {
    put_head(out, api_version, kind);
    out.put_message(2, LONG, fill);
    out.put(TAIL);
}

/// Appends the part of a body before its message.
#[inline]
pub(super) fn put_head<S: Sink>(out: &mut S, api_version: &str, kind: &str) {
    out.put(PREFIX);
    out.put_message(1, SHORT, |out| {
        out.put_bytes(1, api_version.as_bytes());
        out.put_bytes(2, kind.as_bytes());
    });
}

/// Returns the message in a body that this server has encoded. Returns an empty message for any other body.
#[must_use]
pub fn raw_message(body: &[u8]) -> &[u8] {
    let message = || {
        let rest = body.strip_prefix(PREFIX)?.strip_suffix(TAIL)?;
        let rest = match rest {
            // The type takes less than 128 bytes, so the length of the type takes one byte.
            [0x0a, size @ 0..0x80, rest @ ..] => rest.get(usize::from(*size)..)?,
            _ => return None,
        };
        let rest = rest.strip_prefix(&[0x12])?;
        let width = rest.iter().position(|byte| *byte < 0x80)? + 1;
        rest.get(width..)
    };
    message().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a body with this message.
    pub(crate) fn body(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        put_body(&mut body, api_version, kind, |out| out.extend_from_slice(message));
        body
    }

    #[test]
    fn the_message_is_found_in_its_envelope() {
        for size in [0, 1, 127, 128, 20_000] {
            let message = vec![7; size];
            let body = body("v1", "Status", &message);
            assert_eq!(raw_message(&body), message);
            for end in 0..body.len().min(64) {
                assert!(raw_message(&body[..end]).len() <= end);
            }
        }
        assert_eq!(raw_message(b"{}"), b"");
    }
}
