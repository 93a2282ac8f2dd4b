//! Checks whether a message is malformed (RFC 9113 §8.1.1 to §8.3), and finds the parts of a head in a field list.

use super::error::Malformed;
use crate::hpack::{Field, FieldBuf, NameId};
use crate::http::{is_target_well, is_token_byte, parse_decimal};

/// A valid request head: the positions of its parts in the [`FieldBuf`] that was checked, and the value of
/// `content-length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    method: usize,
    path: Option<usize>,
    scheme: Option<usize>,
    authority: Option<usize>,
    /// Index of the first regular field; pseudo-header fields come first.
    regular: usize,
    /// Value of `content-length`; `None` if the field is absent.
    pub content_length: Option<u64>,
}

/// A valid response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// `:status`.
    pub status: u16,
    /// Value of `content-length`; `None` if the field is absent.
    pub content_length: Option<u64>,
}

impl RequestHead {
    /// Returns `:method`.
    #[must_use]
    pub fn method<'f>(&self, fields: &'f FieldBuf) -> &'f [u8] {
        value(fields, Some(self.method))
    }

    /// Returns `:path`, with the query. Empty only if the method is CONNECT.
    #[must_use]
    pub fn path<'f>(&self, fields: &'f FieldBuf) -> &'f [u8] {
        value(fields, self.path)
    }

    /// Returns `:authority`, or `host` if `:authority` is absent. Empty if both are absent.
    #[must_use]
    pub fn authority<'f>(&self, fields: &'f FieldBuf) -> &'f [u8] {
        value(fields, self.authority)
    }

    /// Iterates over all fields except the pseudo-header fields.
    pub fn regular_fields<'f>(&self, fields: &'f FieldBuf) -> impl Iterator<Item = Field<'f>> + use<'f> {
        fields.iter().skip(self.regular)
    }

    /// Checks the fields of a request (RFC 9113 §8.3.1).
    pub(super) fn check(fields: &FieldBuf) -> Result<Self, Malformed> {
        let (mut method, mut path, mut scheme, mut authority) = (None, None, None, None);
        let mut host = None;
        let mut regular = RegularFields::default();
        for (at, field) in fields.iter().enumerate() {
            let pseudo = match field.id {
                NameId::METHOD => &mut method,
                NameId::PATH => &mut path,
                NameId::SCHEME => &mut scheme,
                NameId::AUTHORITY => &mut authority,
                _ => {
                    regular.check(&field)?;
                    if field.id == NameId::HOST && host.replace(at).is_some() {
                        return Err(Malformed::Authority);
                    }
                    continue;
                }
            };
            check_octets(&field)?;
            if regular.count > 0 {
                return Err(Malformed::PseudoOrder);
            }
            if pseudo.replace(at).is_some() {
                return Err(Malformed::Pseudo);
            }
        }
        let head = Self {
            method: method.ok_or(Malformed::Pseudo)?,
            path,
            scheme,
            authority: authority.or(host),
            regular: fields.len() - regular.count,
            content_length: regular.content_length,
        };
        head.check_target(fields)?;
        if let (Some(authority), Some(host)) = (authority, host)
            && !value(fields, Some(authority)).eq_ignore_ascii_case(value(fields, Some(host)))
        {
            return Err(Malformed::Authority);
        }
        Ok(head)
    }

    fn check_target(&self, fields: &FieldBuf) -> Result<(), Malformed> {
        let method = self.method(fields);
        if method.is_empty() {
            return Err(Malformed::Pseudo);
        }
        if !method.iter().copied().all(is_token_byte) {
            return Err(Malformed::Method);
        }
        if memchr::memchr(b'@', self.authority(fields)).is_some() {
            return Err(Malformed::Authority);
        }
        if method == b"CONNECT" {
            // RFC 9113 §8.5: a CONNECT request has an authority, but neither scheme nor path.
            let is_whole = self.path.is_none() && self.scheme.is_none() && self.authority.is_some();
            return if is_whole { Ok(()) } else { Err(Malformed::Pseudo) };
        }
        if self.scheme.is_none() || self.path.is_none() {
            return Err(Malformed::Pseudo);
        }
        let path = self.path(fields);
        if path.is_empty() {
            return Err(Malformed::Pseudo);
        }
        let is_path = path.first() == Some(&b'/') || (path == b"*" && method == b"OPTIONS");
        if is_path && is_target_well(path) { Ok(()) } else { Err(Malformed::Path) }
    }
}

impl ResponseHead {
    /// Checks the fields of a response (RFC 9113 §8.3.2).
    pub(super) fn check(fields: &FieldBuf) -> Result<Self, Malformed> {
        let mut status = None;
        let mut regular = RegularFields::default();
        for field in fields.iter() {
            if field.id != NameId::STATUS {
                regular.check(&field)?;
            } else if regular.count > 0 {
                return Err(Malformed::PseudoOrder);
            } else if status.replace(parse_status(field.value)?).is_some() {
                return Err(Malformed::Pseudo);
            }
        }
        Ok(Self { status: status.ok_or(Malformed::Pseudo)?, content_length: regular.content_length })
    }

    /// Whether the response is informational, so that one more head follows (RFC 9110 §15.2).
    #[must_use]
    pub fn is_informational(&self) -> bool {
        self.status < 200
    }
}

/// Checks trailers, which have no pseudo-header fields (RFC 9113 §8.1).
pub(super) fn check_trailers(fields: &FieldBuf) -> Result<(), Malformed> {
    let mut regular = RegularFields::default();
    fields.iter().try_for_each(|field| regular.check(&field))
}

/// Number and `content-length` of the regular fields that were checked so far.
#[derive(Default)]
struct RegularFields {
    count: usize,
    content_length: Option<u64>,
}

impl RegularFields {
    #[inline]
    fn check(&mut self, field: &Field<'_>) -> Result<(), Malformed> {
        check_octets(field)?;
        match field.id {
            NameId::UNKNOWN if field.name.first() == Some(&b':') => return Err(Malformed::Pseudo),
            NameId::AUTHORITY | NameId::METHOD | NameId::PATH | NameId::SCHEME | NameId::STATUS => {
                return Err(Malformed::Pseudo);
            }
            NameId::CONNECTION
            | NameId::KEEP_ALIVE
            | NameId::PROXY_CONNECTION
            | NameId::TRANSFER_ENCODING
            | NameId::UPGRADE => return Err(Malformed::ConnectionField),
            NameId::TE if !field.value.eq_ignore_ascii_case(b"trailers") => return Err(Malformed::ConnectionField),
            NameId::CONTENT_LENGTH => {
                let length = parse_decimal(field.value).ok_or(Malformed::ContentLength)?;
                if self.content_length.replace(length).is_some_and(|other| other != length) {
                    return Err(Malformed::ContentLength);
                }
            }
            _ => {}
        }
        self.count += 1;
        Ok(())
    }
}

#[inline]
fn check_octets(field: &Field<'_>) -> Result<(), Malformed> {
    if field.well_formed { Ok(()) } else { Err(Malformed::FieldOctets) }
}

fn parse_status(value: &[u8]) -> Result<u16, Malformed> {
    let status = if value.len() == 3 { parse_decimal(value) } else { None };
    status.and_then(|status| u16::try_from(status).ok()).filter(|status| *status >= 100).ok_or(Malformed::Status)
}

fn value(fields: &FieldBuf, at: Option<usize>) -> &[u8] {
    at.and_then(|at| fields.field(at)).map_or(&[], |field| field.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Decoder, DecoderLimits, Encoder, FieldName, Indexing};

    fn fields(lines: &[(&str, &str)]) -> FieldBuf {
        let mut block = Vec::new();
        let mut encoder = Encoder::new(4096);
        for (name, value) in lines {
            encoder.encode_field(FieldName::new(name.as_bytes()), value.as_bytes(), Indexing::Value, &mut block);
        }
        let limits = DecoderLimits { list_size_max: 65_536, list_size_abort: 65_536 };
        let mut fields = FieldBuf::new();
        Decoder::new(4096, limits).decode(&block, &mut fields).unwrap();
        fields
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":path", "/livez?verbose"), (":authority", "a:443")];

    fn check(more: &[(&str, &str)]) -> Result<RequestHead, Malformed> {
        RequestHead::check(&fields(&[&GET[..], more].concat()))
    }

    #[test]
    fn a_request_is_found_in_its_fields() {
        let fields = fields(&[&GET[..], &[("accept", "*/*"), ("content-length", "12"), ("te", "trailers")]].concat());
        let head = RequestHead::check(&fields).unwrap();
        assert_eq!(head.method(&fields), b"GET");
        assert_eq!(value(&fields, head.scheme), b"https");
        assert_eq!(head.path(&fields), b"/livez?verbose");
        assert_eq!(head.authority(&fields), b"a:443");
        assert_eq!(head.content_length, Some(12));
        assert_eq!(head.regular_fields(&fields).map(|field| field.name).next(), Some(&b"accept"[..]));
    }

    #[test]
    fn malformed_requests_have_distinct_errors() {
        for (more, malformed) in [
            ((":path", "/"), Malformed::Pseudo),
            ((":status", "200"), Malformed::Pseudo),
            ((":protocol", "websocket"), Malformed::Pseudo),
            (("Accept", "*/*"), Malformed::FieldOctets),
            (("accept", "a\nb"), Malformed::FieldOctets),
            (("connection", "close"), Malformed::ConnectionField),
            (("keep-alive", "1"), Malformed::ConnectionField),
            (("proxy-connection", "close"), Malformed::ConnectionField),
            (("transfer-encoding", "chunked"), Malformed::ConnectionField),
            (("upgrade", "h2c"), Malformed::ConnectionField),
            (("te", "gzip"), Malformed::ConnectionField),
            (("content-length", "-1"), Malformed::ContentLength),
            (("content-length", ""), Malformed::ContentLength),
            (("content-length", "99999999999999999999"), Malformed::ContentLength),
            (("host", "b"), Malformed::Authority),
        ] {
            assert_eq!(check(&[more]), Err(malformed), "{more:?}");
        }
        assert_eq!(check(&[("content-length", "1"), ("content-length", "2")]), Err(Malformed::ContentLength));
        assert!(check(&[("content-length", "1"), ("content-length", "1"), ("host", "A:443")]).is_ok());
        assert_eq!(check(&[("host", "a:443"), ("host", "a:443")]), Err(Malformed::Authority));
        let late = [GET[0], GET[1], ("accept", "*/*"), GET[2]];
        assert_eq!(RequestHead::check(&fields(&late)), Err(Malformed::PseudoOrder));
        for missing in 0..3 {
            let mut lines = GET.to_vec();
            lines.remove(missing);
            assert_eq!(RequestHead::check(&fields(&lines)), Err(Malformed::Pseudo));
        }
    }

    #[test]
    fn targets_are_checked() {
        let check = |method, path, authority| {
            let lines = [(":method", method), (":scheme", "http"), (":path", path), (":authority", authority)];
            RequestHead::check(&fields(&lines)).err()
        };
        assert_eq!(check("GET", "", "a"), Some(Malformed::Pseudo));
        assert_eq!(check("GET", "a", "a"), Some(Malformed::Path));
        assert_eq!(check("GET", "*", "a"), Some(Malformed::Path));
        assert_eq!(check("GET", "/a b", "a"), Some(Malformed::Path));
        assert_eq!(check("GET", "/a%2", "a"), Some(Malformed::Path));
        assert_eq!(check("GET", "/a%2f?%", "a"), None);
        assert_eq!(check("OPTIONS", "*", "a"), None);
        assert_eq!(check("", "/", "a"), Some(Malformed::Pseudo));
        assert_eq!(check("M_!~", "/", "a"), None);
        assert_eq!(check("G T", "/", "a"), Some(Malformed::Method));
        assert_eq!(check("GET", "/", "user@a"), Some(Malformed::Authority));
        assert_eq!(check("CONNECT", "/", "a"), Some(Malformed::Pseudo));
        let connect = fields(&[(":method", "CONNECT"), (":authority", "a:1")]);
        assert_eq!(RequestHead::check(&connect).unwrap().path(&connect), b"");
        let host = fields(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", "b")]);
        assert_eq!(RequestHead::check(&host).unwrap().authority(&host), b"b");
    }

    #[test]
    fn responses_and_trailers_are_checked() {
        let check = |lines: &[(&str, &str)]| ResponseHead::check(&fields(lines));
        let head = check(&[(":status", "404"), ("content-length", "3")]);
        assert_eq!(head, Ok(ResponseHead { status: 404, content_length: Some(3) }));
        assert_eq!(check(&[]), Err(Malformed::Pseudo));
        assert_eq!(check(&[(":status", "200"), (":status", "200")]), Err(Malformed::Pseudo));
        assert_eq!(check(&[("a", "b"), (":status", "200")]), Err(Malformed::PseudoOrder));
        assert_eq!(check(&[(":status", "20")]), Err(Malformed::Status));
        assert_eq!(check(&[(":status", "099")]), Err(Malformed::Status));
        assert_eq!(check(&[(":status", "200"), (":path", "/")]), Err(Malformed::Pseudo));
        assert_eq!(check_trailers(&fields(&[("a", "b")])), Ok(()));
        assert_eq!(check_trailers(&fields(&[(":path", "/")])), Err(Malformed::Pseudo));
        assert_eq!(check_trailers(&fields(&[("A", "b")])), Err(Malformed::FieldOctets));
    }
}
