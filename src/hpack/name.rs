//! Known field names as small numbers, which compare faster than octets.

/// Id of a known field name. The names in the static table are known, and so are the names with a rule in RFC 9113
/// §8.2.2. A known name has exactly one id. All other names have the id [`NameId::UNKNOWN`], so they differ from every
/// known name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameId(u8);

/// Defines the constants of the known names and [`NameId::of`]. The names are grouped by length, so that few names are
/// compared. The id of a name in HPACK's static table is the index of the first entry with this name.
macro_rules! known_names {
    ($($length:literal { $($id:literal $constant:ident $octets:literal,)* })*) => {
        impl NameId {
            /// Any name that has no constant here.
            pub const UNKNOWN: Self = Self(0);
            $($(
                #[doc = concat!("The name `", stringify!($octets), "`.")]
                pub const $constant: Self = Self($id);
            )*)*

            /// Returns the id of `name`.
            #[must_use]
            pub const fn of(name: &[u8]) -> Self {
                match name.len() {
                    $($length => match name {
                        $($octets => Self::$constant,)*
                        _ => Self::UNKNOWN,
                    },)*
                    _ => Self::UNKNOWN,
                }
            }
        }
    };
}

known_names! {
    2 { 65 TE b"te", }
    3 {
        21 AGE b"age",
        60 VIA b"via",
    }
    4 {
        33 DATE b"date",
        34 ETAG b"etag",
        37 FROM b"from",
        38 HOST b"host",
        45 LINK b"link",
        59 VARY b"vary",
    }
    5 {
        4 PATH b":path",
        22 ALLOW b"allow",
        50 RANGE b"range",
    }
    6 {
        19 ACCEPT b"accept",
        32 COOKIE b"cookie",
        35 EXPECT b"expect",
        54 SERVER b"server",
    }
    7 {
        2 METHOD b":method",
        6 SCHEME b":scheme",
        8 STATUS b":status",
        36 EXPIRES b"expires",
        51 REFERER b"referer",
        52 REFRESH b"refresh",
        66 UPGRADE b"upgrade",
    }
    8 {
        39 IF_MATCH b"if-match",
        42 IF_RANGE b"if-range",
        46 LOCATION b"location",
    }
    10 {
        1 AUTHORITY b":authority",
        62 CONNECTION b"connection",
        63 KEEP_ALIVE b"keep-alive",
        55 SET_COOKIE b"set-cookie",
        58 USER_AGENT b"user-agent",
    }
    11 { 53 RETRY_AFTER b"retry-after", }
    12 {
        31 CONTENT_TYPE b"content-type",
        47 MAX_FORWARDS b"max-forwards",
    }
    13 {
        18 ACCEPT_RANGES b"accept-ranges",
        23 AUTHORIZATION b"authorization",
        24 CACHE_CONTROL b"cache-control",
        30 CONTENT_RANGE b"content-range",
        41 IF_NONE_MATCH b"if-none-match",
        44 LAST_MODIFIED b"last-modified",
    }
    14 {
        15 ACCEPT_CHARSET b"accept-charset",
        28 CONTENT_LENGTH b"content-length",
    }
    15 {
        16 ACCEPT_ENCODING b"accept-encoding",
        17 ACCEPT_LANGUAGE b"accept-language",
    }
    16 {
        26 CONTENT_ENCODING b"content-encoding",
        27 CONTENT_LANGUAGE b"content-language",
        29 CONTENT_LOCATION b"content-location",
        64 PROXY_CONNECTION b"proxy-connection",
        61 WWW_AUTHENTICATE b"www-authenticate",
    }
    17 {
        40 IF_MODIFIED_SINCE b"if-modified-since",
        57 TRANSFER_ENCODING b"transfer-encoding",
    }
    18 { 48 PROXY_AUTHENTICATE b"proxy-authenticate", }
    19 {
        25 CONTENT_DISPOSITION b"content-disposition",
        43 IF_UNMODIFIED_SINCE b"if-unmodified-since",
        49 PROXY_AUTHORIZATION b"proxy-authorization",
    }
    25 { 56 STRICT_TRANSPORT_SECURITY b"strict-transport-security", }
    27 { 20 ACCESS_CONTROL_ALLOW_ORIGIN b"access-control-allow-origin", }
}

impl NameId {
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
