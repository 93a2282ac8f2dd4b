//! The connections of the fake server over HTTP/1.1.

use super::{Fake, Reply, Stream, read_more};
use coordination_apiserver::http1::chunked::{CRLF, LAST_CHUNK, push_chunk_head};

/// Serves one connection until its end. `input` is what the caller has already read.
pub(super) fn serve(fake: &Fake, stream: &mut dyn Stream, mut input: Vec<u8>) {
    loop {
        while let Some((target, method, body, len)) = first_request(&input) {
            input.drain(..len);
            let (answer, last) = if let Some(mut cursor) = fake.begin_watch(&target) {
                if stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err() {
                    return;
                }
                loop {
                    let batch = fake.watch(&mut cursor);
                    let mut out = Vec::new();
                    for text in batch.events {
                        push_chunk_head(&mut out, text.len());
                        out.extend_from_slice(text.as_bytes());
                        out.extend_from_slice(CRLF);
                    }
                    if batch.end {
                        out.extend_from_slice(LAST_CHUNK);
                        break (out, false);
                    }
                    if stream.write_all(&out).is_err() || !read_more(stream, &mut input) {
                        return;
                    }
                }
            } else {
                let (status, body, last) = match fake.reply(&method, &target, &body) {
                    Reply::Answer(status, body) => (status, body, false),
                    Reply::Last(status, body) => (status, body, true),
                    Reply::Nothing => continue,
                    Reply::Close => return,
                    Reply::Reset(_) | Reply::Abort(_) => panic!("a fault of HTTP/2"),
                };
                let more = if last { "Connection: close\r\n" } else { "" };
                let head = format!("HTTP/1.1 {status} X\r\n{more}Content-Length: {}\r\n\r\n", body.len());
                ([head, body].concat().into_bytes(), last)
            };
            if stream.write_all(&answer).is_err() || last {
                return;
            }
        }
        if !read_more(stream, &mut input) {
            return;
        }
    }
}

/// Returns target, method and body of the first request in `input`, and the request's length. `None` if the request is
/// incomplete.
fn first_request(input: &[u8]) -> Option<(String, String, String, usize)> {
    let text = std::str::from_utf8(input).expect("ASCII");
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.map_or(0, |value| value.parse().expect("a number"));
    let body = rest.get(..length)?.to_owned();
    let mut words = head.split(' ');
    let (method, target) = (words.next().expect("method"), words.next().expect("target"));
    Some((target.to_owned(), method.to_owned(), body, head.len() + 4 + length))
}
