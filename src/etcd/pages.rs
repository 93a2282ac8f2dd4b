//! Reads the keys of a range in pages.

use super::client::{Client, Failure};
use super::messages::{KeyValue, RangeRequest};

/// Reads all keys of a range at one revision, in pages of at most `request.limit` keys. This limit must not be 0. Reads
/// at `request.revision`, or at the newest revision if that is 0. Calls `check` before each page. Returns the keys, and
/// the revision of the read. If an answer would be too long, asks for half as many keys from then on.
///
/// # Errors
/// The failure of a page, or of `check`.
pub(super) async fn pages(
    client: &Client,
    mut request: RangeRequest,
    check: impl Fn() -> Result<(), Failure>,
) -> Result<(Vec<KeyValue>, i64), Failure> {
    let mut found = Vec::new();
    loop {
        check()?;
        let page = match client.range(request.clone()).await {
            Err(Failure::TooLong(_)) if request.limit > 1 => {
                request.limit /= 2;
                continue;
            }
            page => page?,
        };
        if request.revision == 0 {
            request.revision = page.header.map_or(0, |header| header.revision);
        }
        found.extend(page.kvs);
        match found.last() {
            Some(last) if page.more => request.key = [last.key.as_slice(), b"\0"].concat(),
            _ => return Ok((found, request.revision)),
        }
    }
}
