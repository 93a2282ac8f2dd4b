//! Known field names as small numbers, which compare faster than octets.

/// Id of a known field name. The names in the static table are known, and so are the names with a rule in RFC 9113
/// §8.2.2. A known name has exactly one id. All other names have the id [`NameId::UNKNOWN`], so they differ from every
/// known name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameId(u8);

impl NameId {
    /// Any name that has no constant here.
    pub const UNKNOWN: Self = Self(0);
    /// `:authority`.
    pub const AUTHORITY: Self = Self(1);
    /// `:method`.
    pub const METHOD: Self = Self(2);
    /// `:path`.
    pub const PATH: Self = Self(4);
    /// `:scheme`.
    pub const SCHEME: Self = Self(6);
    /// `:status`.
    pub const STATUS: Self = Self(8);
    /// `accept-charset`.
    pub const ACCEPT_CHARSET: Self = Self(15);
    /// `accept-encoding`.
    pub const ACCEPT_ENCODING: Self = Self(16);
    /// `accept-language`.
    pub const ACCEPT_LANGUAGE: Self = Self(17);
    /// `accept-ranges`.
    pub const ACCEPT_RANGES: Self = Self(18);
    /// `accept`.
    pub const ACCEPT: Self = Self(19);
    /// `access-control-allow-origin`.
    pub const ACCESS_CONTROL_ALLOW_ORIGIN: Self = Self(20);
    /// `age`.
    pub const AGE: Self = Self(21);
    /// `allow`.
    pub const ALLOW: Self = Self(22);
    /// `authorization`.
    pub const AUTHORIZATION: Self = Self(23);
    /// `cache-control`.
    pub const CACHE_CONTROL: Self = Self(24);
    /// `content-disposition`.
    pub const CONTENT_DISPOSITION: Self = Self(25);
    /// `content-encoding`.
    pub const CONTENT_ENCODING: Self = Self(26);
    /// `content-language`.
    pub const CONTENT_LANGUAGE: Self = Self(27);
    /// `content-length`.
    pub const CONTENT_LENGTH: Self = Self(28);
    /// `content-location`.
    pub const CONTENT_LOCATION: Self = Self(29);
    /// `content-range`.
    pub const CONTENT_RANGE: Self = Self(30);
    /// `content-type`.
    pub const CONTENT_TYPE: Self = Self(31);
    /// `cookie`.
    pub const COOKIE: Self = Self(32);
    /// `date`.
    pub const DATE: Self = Self(33);
    /// `etag`.
    pub const ETAG: Self = Self(34);
    /// `expect`.
    pub const EXPECT: Self = Self(35);
    /// `expires`.
    pub const EXPIRES: Self = Self(36);
    /// `from`.
    pub const FROM: Self = Self(37);
    /// `host`.
    pub const HOST: Self = Self(38);
    /// `if-match`.
    pub const IF_MATCH: Self = Self(39);
    /// `if-modified-since`.
    pub const IF_MODIFIED_SINCE: Self = Self(40);
    /// `if-none-match`.
    pub const IF_NONE_MATCH: Self = Self(41);
    /// `if-range`.
    pub const IF_RANGE: Self = Self(42);
    /// `if-unmodified-since`.
    pub const IF_UNMODIFIED_SINCE: Self = Self(43);
    /// `last-modified`.
    pub const LAST_MODIFIED: Self = Self(44);
    /// `link`.
    pub const LINK: Self = Self(45);
    /// `location`.
    pub const LOCATION: Self = Self(46);
    /// `max-forwards`.
    pub const MAX_FORWARDS: Self = Self(47);
    /// `proxy-authenticate`.
    pub const PROXY_AUTHENTICATE: Self = Self(48);
    /// `proxy-authorization`.
    pub const PROXY_AUTHORIZATION: Self = Self(49);
    /// `range`.
    pub const RANGE: Self = Self(50);
    /// `referer`.
    pub const REFERER: Self = Self(51);
    /// `refresh`.
    pub const REFRESH: Self = Self(52);
    /// `retry-after`.
    pub const RETRY_AFTER: Self = Self(53);
    /// `server`.
    pub const SERVER: Self = Self(54);
    /// `set-cookie`.
    pub const SET_COOKIE: Self = Self(55);
    /// `strict-transport-security`.
    pub const STRICT_TRANSPORT_SECURITY: Self = Self(56);
    /// `transfer-encoding`.
    pub const TRANSFER_ENCODING: Self = Self(57);
    /// `user-agent`.
    pub const USER_AGENT: Self = Self(58);
    /// `vary`.
    pub const VARY: Self = Self(59);
    /// `via`.
    pub const VIA: Self = Self(60);
    /// `www-authenticate`.
    pub const WWW_AUTHENTICATE: Self = Self(61);
    /// `connection`.
    pub const CONNECTION: Self = Self(62);
    /// `keep-alive`.
    pub const KEEP_ALIVE: Self = Self(63);
    /// `proxy-connection`.
    pub const PROXY_CONNECTION: Self = Self(64);
    /// `te`.
    pub const TE: Self = Self(65);
    /// `upgrade`.
    pub const UPGRADE: Self = Self(66);

    /// Returns the id of `name`.
    #[must_use]
    pub const fn of(name: &[u8]) -> Self {
        match name.len() {
            2 => match name {
                b"te" => Self::TE,
                _ => Self::UNKNOWN,
            },
            3 => match name {
                b"age" => Self::AGE,
                b"via" => Self::VIA,
                _ => Self::UNKNOWN,
            },
            4 => match name {
                b"date" => Self::DATE,
                b"etag" => Self::ETAG,
                b"from" => Self::FROM,
                b"host" => Self::HOST,
                b"link" => Self::LINK,
                b"vary" => Self::VARY,
                _ => Self::UNKNOWN,
            },
            5 => match name {
                b":path" => Self::PATH,
                b"allow" => Self::ALLOW,
                b"range" => Self::RANGE,
                _ => Self::UNKNOWN,
            },
            6 => match name {
                b"accept" => Self::ACCEPT,
                b"cookie" => Self::COOKIE,
                b"expect" => Self::EXPECT,
                b"server" => Self::SERVER,
                _ => Self::UNKNOWN,
            },
            7 => match name {
                b":method" => Self::METHOD,
                b":scheme" => Self::SCHEME,
                b":status" => Self::STATUS,
                b"expires" => Self::EXPIRES,
                b"referer" => Self::REFERER,
                b"refresh" => Self::REFRESH,
                b"upgrade" => Self::UPGRADE,
                _ => Self::UNKNOWN,
            },
            8 => match name {
                b"if-match" => Self::IF_MATCH,
                b"if-range" => Self::IF_RANGE,
                b"location" => Self::LOCATION,
                _ => Self::UNKNOWN,
            },
            10 => match name {
                b":authority" => Self::AUTHORITY,
                b"connection" => Self::CONNECTION,
                b"keep-alive" => Self::KEEP_ALIVE,
                b"set-cookie" => Self::SET_COOKIE,
                b"user-agent" => Self::USER_AGENT,
                _ => Self::UNKNOWN,
            },
            11 => match name {
                b"retry-after" => Self::RETRY_AFTER,
                _ => Self::UNKNOWN,
            },
            12 => match name {
                b"content-type" => Self::CONTENT_TYPE,
                b"max-forwards" => Self::MAX_FORWARDS,
                _ => Self::UNKNOWN,
            },
            13 => match name {
                b"accept-ranges" => Self::ACCEPT_RANGES,
                b"authorization" => Self::AUTHORIZATION,
                b"cache-control" => Self::CACHE_CONTROL,
                b"content-range" => Self::CONTENT_RANGE,
                b"if-none-match" => Self::IF_NONE_MATCH,
                b"last-modified" => Self::LAST_MODIFIED,
                _ => Self::UNKNOWN,
            },
            14 => match name {
                b"accept-charset" => Self::ACCEPT_CHARSET,
                b"content-length" => Self::CONTENT_LENGTH,
                _ => Self::UNKNOWN,
            },
            15 => match name {
                b"accept-encoding" => Self::ACCEPT_ENCODING,
                b"accept-language" => Self::ACCEPT_LANGUAGE,
                _ => Self::UNKNOWN,
            },
            16 => match name {
                b"content-encoding" => Self::CONTENT_ENCODING,
                b"content-language" => Self::CONTENT_LANGUAGE,
                b"content-location" => Self::CONTENT_LOCATION,
                b"proxy-connection" => Self::PROXY_CONNECTION,
                b"www-authenticate" => Self::WWW_AUTHENTICATE,
                _ => Self::UNKNOWN,
            },
            17 => match name {
                b"if-modified-since" => Self::IF_MODIFIED_SINCE,
                b"transfer-encoding" => Self::TRANSFER_ENCODING,
                _ => Self::UNKNOWN,
            },
            18 => match name {
                b"proxy-authenticate" => Self::PROXY_AUTHENTICATE,
                _ => Self::UNKNOWN,
            },
            19 => match name {
                b"content-disposition" => Self::CONTENT_DISPOSITION,
                b"if-unmodified-since" => Self::IF_UNMODIFIED_SINCE,
                b"proxy-authorization" => Self::PROXY_AUTHORIZATION,
                _ => Self::UNKNOWN,
            },
            25 => match name {
                b"strict-transport-security" => Self::STRICT_TRANSPORT_SECURITY,
                _ => Self::UNKNOWN,
            },
            27 => match name {
                b"access-control-allow-origin" => Self::ACCESS_CONTROL_ALLOW_ORIGIN,
                _ => Self::UNKNOWN,
            },
            _ => Self::UNKNOWN,
        }
    }

    /// Returns the index of the first entry of the static table with this name.
    #[inline]
    #[must_use]
    pub(super) fn static_index(self) -> Option<usize> {
        let index = usize::from(self.0);
        (1..=super::static_table::LEN).contains(&index).then_some(index)
    }
}

/// The name of a field to send, prepared for the encoder: with its id and its hash. It should be made once, best in a
/// `const`, so that these are computed only once.
#[derive(Clone, Copy, Debug)]
pub struct FieldName<'n> {
    octets: &'n [u8],
    pub(crate) id: NameId,
    pub(super) hash: u32,
}

impl<'n> FieldName<'n> {
    /// Prepares the name `octets`, which must be in lower case (RFC 9113 §8.2.1).
    #[must_use]
    pub const fn new(octets: &'n [u8]) -> Self {
        Self { octets, id: NameId::of(octets), hash: hash(0, octets) }
    }

    /// Returns the name.
    #[must_use]
    pub const fn octets(&self) -> &'n [u8] {
        self.octets
    }
}

/// Computes a fast hash, so that the octets of most unequal fields need not be compared. For the hash of a name, `seed`
/// is 0. For the hash of a whole field, `seed` is the hash of the name, and `octets` is the value.
#[inline]
pub(super) const fn hash(seed: u32, octets: &[u8]) -> u32 {
    let mut state = seed as u64 ^ octets.len() as u64;
    let mut rest = octets;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        state = (state.rotate_left(5) ^ u64::from_le_bytes(*chunk)).wrapping_mul(HASH_FACTOR);
        rest = after;
    }
    while let Some((&octet, after)) = rest.split_first() {
        state = (state.rotate_left(5) ^ octet as u64).wrapping_mul(HASH_FACTOR);
        rest = after;
    }
    (state >> 32) as u32
}

/// Odd number near 2^64 divided by the golden ratio: its multiples spread over the upper bits.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_have_an_id_and_others_have_none() {
        assert_eq!(NameId::of(b":path"), NameId::PATH);
        assert_eq!(NameId::of(b"te"), NameId::TE);
        assert_eq!(NameId::of(b"Te"), NameId::UNKNOWN);
        assert_eq!(NameId::of(b""), NameId::UNKNOWN);
        assert_eq!(NameId::of(b"x-remote-user"), NameId::UNKNOWN);
        assert_eq!(NameId::TE.static_index(), None);
        assert_eq!(NameId::UNKNOWN.static_index(), None);
    }

    #[test]
    fn hash_depends_on_the_seed_and_every_octet() {
        let one = hash(0, b"application/json");
        assert_ne!(one, hash(1, b"application/json"));
        assert_ne!(one, hash(0, b"application/jsoo"));
        assert_ne!(hash(0, b"a"), hash(0, b"a\0"));
    }
}
