//! The static table (RFC 7541 Appendix A).

use super::NameId;

/// Number of entries; the first index of the dynamic table is `LEN + 1`.
pub(super) const LEN: usize = ENTRIES.len();

/// Returns the entry at `index`, which counts from 1.
#[inline]
pub(super) fn entry(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    ENTRIES.get(index.wrapping_sub(1)).copied()
}

/// Returns the id of the name at `index`, which must be an index of this table.
#[inline]
pub(super) fn name_id(index: usize) -> NameId {
    NAME_IDS.get(index.wrapping_sub(1)).copied().unwrap_or(NameId::UNKNOWN)
}

/// Returns the index of the entry with this name and value.
#[inline]
pub(super) fn find(name: NameId, value: &[u8]) -> Option<usize> {
    let first = name.static_index()?;
    // Entries with the same name are adjacent, and no name has more than seven. So the search is short.
    ENTRIES
        .iter()
        .enumerate()
        .skip(first - 1)
        .take_while(|(at, _)| NAME_IDS.get(*at) == Some(&name))
        .find(|(_, entry)| entry.1 == value)
        .map(|(at, _)| at + 1)
}

/// Name id of each entry, in the table's order, so that a look-up compares no octets.
static NAME_IDS: [NameId; LEN] = name_ids();

const fn name_ids() -> [NameId; LEN] {
    let mut ids = [NameId::UNKNOWN; LEN];
    let mut at = 0;
    while at < LEN {
        ids[at] = NameId::of(ENTRIES[at].0);
        at += 1;
    }
    ids
}

#[rustfmt::skip]
pub(super) static ENTRIES: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_first_index_of_their_name() {
        for (at, (name, value)) in ENTRIES.iter().enumerate() {
            let first = ENTRIES.iter().position(|(other, _)| other == name).unwrap() + 1;
            assert_eq!(name_id(at + 1).static_index(), Some(first));
            assert_eq!(find(NameId::of(name), value), Some(at + 1));
        }
        assert_eq!(find(NameId::METHOD, b"PUT"), None);
        assert_eq!(find(NameId::TE, b""), None);
        assert_eq!(entry(0), None);
        assert_eq!(entry(62), None);
    }
}
