//! Reads the keys of a range in pages.

use super::client::{ATTEMPT_MAX, Client, Failure};
use super::messages::{KeyValue, RangeRequest};
use tonic::{Code, Status};

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
            // etcd accepts connections, but needs longer than an attempt for the page. The size of the page shows the
            // operator how slow etcd is.
            Err(Failure::Unknown(status)) if status.code() == Code::DeadlineExceeded => {
                let (why, seconds) = (status.message(), ATTEMPT_MAX.as_secs());
                let (keys, before) = (request.limit, found.len());
                let why = format!("{why} within {seconds} s to a read of {keys} keys, after {before} keys");
                return Err(Failure::Unknown(Status::deadline_exceeded(why)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::background::LocalRuntime;
    use crate::etcd::client::tests::{DATA, answer, frame, serve_frames};
    use crate::etcd::config::Config;
    use crate::etcd::messages::{Header, RangeResponse};
    use prost::Message;
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;
    use std::time::Duration;

    /// Goal: the error of a page that etcd does not return in time names the size of the page. Method: a fake member of
    /// etcd answers the first page with one key, and then only HTTP/2 PINGs.
    #[test]
    fn the_error_of_a_slow_page_names_its_size() {
        const PING: u8 = 6;
        const ACK: u8 = 1;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let member = thread::spawn(move || {
            let (connection, _) = listener.accept().expect("a connection");
            let mut has_answered = false;
            let end = serve_frames(connection, |kind, _, stream, payload| match kind {
                PING => frame(PING, ACK, stream, payload),
                DATA if !payload.is_empty() && !has_answered => {
                    has_answered = true;
                    let page = RangeResponse {
                        header: Some(Header { revision: 7, ..Header::default() }),
                        kvs: vec![KeyValue { key: b"a".to_vec(), ..KeyValue::default() }],
                        more: true,
                        ..RangeResponse::default()
                    };
                    answer(stream, &page.encode_to_vec())
                }
                _ => Vec::new(),
            });
            end.expect_err("the client closes the connection");
        });
        let runtime = LocalRuntime::new().expect("a runtime");
        let config = Config { endpoints: vec![url], patience: Some(Duration::ZERO), ..Config::default() };
        let failure = runtime.block_on(async {
            let client = Client::new(config.clone()).expect("a client");
            let request = RangeRequest { limit: 2_000, ..RangeRequest::default() };
            pages(&client, request, || Ok(())).await.expect_err("etcd is slow")
        });
        drop(runtime);
        member.join().expect("the member ends");
        let error = failure.into_error(&config).to_string();
        assert!(error.ends_with(": no answer within 8 s to a read of 2000 keys, after 1 keys"), "{error}");
    }
}
