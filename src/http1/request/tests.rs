use super::*;
use crate::buffer::Pool;
use crate::limits::{BODY_BYTES_MAX, HEAD_FIELDS_MAX};

/// A request as `serve` saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    method: Method,
    path: String,
    query: String,
    body: Vec<u8>,
    keep_alive: bool,
}

/// Feeds `pieces` one after the other. Collects the served requests, up to the first error.
#[expect(single_use_lifetimes, reason = "an elided one is not allowed in `impl Trait`")]
fn feed<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> (Vec<Seen>, Option<RequestError>) {
    let (mut parser, mut buf, mut pool) = (RequestParser::new(BODY_BYTES_MAX), ByteBuf::default(), Pool::default());
    let mut seen = Vec::new();
    for piece in pieces {
        buf.append(piece, &mut pool);
        loop {
            let step = parser.next(&mut buf, |head, body, after| Seen {
                method: head.method,
                path: head.path.into(),
                query: head.query.into(),
                body: body.to_vec(),
                keep_alive: after.keep_alive,
            });
            match step {
                Ok(Step::Served(result)) => seen.push(result),
                Ok(Step::Incomplete { .. }) => break,
                Err(e) => return (seen, Some(e)),
            }
        }
    }
    (seen, None)
}

/// Feeds the input whole, byte by byte and at random cuts, and checks that the results are equal.
fn all_ways(input: &[u8]) -> (Vec<Seen>, Option<RequestError>) {
    let whole = feed(std::iter::once(input));
    assert_eq!(feed(input.chunks(1)), whole, "byte by byte");
    let mut rng = fastrand::Rng::with_seed(input.len() as u64);
    for _ in 0..50 {
        let mut rest = input;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rng.usize(1..=rest.len()));
            pieces.push(piece);
            rest = more;
        }
        assert_eq!(feed(pieces.into_iter()), whole, "random cuts");
    }
    whole
}

fn refused(input: &str) -> u16 {
    let (seen, error) = all_ways(input.as_bytes());
    assert_eq!(seen, [], "{input:?} reached the API");
    error.unwrap_or_else(|| panic!("{input:?} was not refused")).status()
}

#[test]
fn pipelined_requests_of_each_framing_come_out_in_order() {
    let input = b"\r\nGET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n\
        PUT /b HTTP/1.1\r\nhost:h\r\nContent-Length: 5\r\n\r\nhello\
        POST http://h:1/c?y HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: u\r\n\r\n\
        DELETE /d HTTP/1.0\r\n\r\n";
    let (seen, error) = all_ways(input);
    assert_eq!(error, None);
    let of = |method, path: &str, query: &str, body: &[u8], keep_alive| Seen {
        method,
        path: path.into(),
        query: query.into(),
        body: body.to_vec(),
        keep_alive,
    };
    assert_eq!(
        seen,
        [
            of(Method::Get, "/a", "x=1", b"", true),
            of(Method::Put, "/b", "", b"hello", true),
            of(Method::Post, "/c", "y", b"abcde", true),
            of(Method::Delete, "/d", "", b"", false),
        ]
    );
}

#[test]
fn ambiguous_framing_is_refused() {
    let with = |lines: &str| {
        format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
    };
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 5, 5",
        "Content-Length: ",
        "Content-Length: 0x5",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Content-Length : 5",
        "X: y\r\n folded",
        "X: a\rb",
        "X: a\0b",
        "X: a\nContent-Length: 5",
        "Host: again",
    ] {
        assert_eq!(refused(&with(lines)), 400, "{lines:?}");
    }
    assert_eq!(refused(&with("Transfer-Encoding: gzip, chunked")), 501);
    assert_eq!(refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(refused("GET / HTTP/1.1\nHost: h\n\n"), 400);
}

#[test]
fn limits_have_their_own_codes() {
    let long = "x".repeat(HEAD_BYTES_MAX);
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: h\r\nX: {long}\r\n\r\n")), 431);
    assert_eq!(refused(&format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n")), 414);
    let many = "X: y\r\n".repeat(HEAD_FIELDS_MAX);
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: h\r\n{many}\r\n")), 431);
    let length = BODY_BYTES_MAX + 1;
    assert_eq!(refused(&format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n")), 413);
    assert_eq!(refused("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\n"), 413);
    assert_eq!(
        refused(&format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n")),
        413
    );
    assert_eq!(refused("GET / HTTP/1.1\r\nHost: h\r\nExpect: a-pony\r\n\r\n"), 417);
    assert_eq!(refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    assert_eq!(refused("\x16\x03\x01\x02\0\x01\0\r\n\r\n"), 400);
}

#[test]
fn a_100_continue_is_sent_once_while_the_body_is_missing() {
    let (mut parser, mut buf, mut pool) = (RequestParser::new(BODY_BYTES_MAX), ByteBuf::default(), Pool::default());
    let mut put = |buf: &mut ByteBuf, bytes: &[u8]| buf.append(bytes, &mut pool);
    put(&mut buf, b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
    let mut step = |buf: &mut ByteBuf| parser.next(buf, |_, body, _| body.to_vec()).expect("well-formed");
    assert!(matches!(step(&mut buf), Step::Incomplete { send_continue: true }));
    assert!(matches!(step(&mut buf), Step::Incomplete { send_continue: false }));
    put(&mut buf, b"ok");
    assert!(matches!(step(&mut buf), Step::Served(result) if result == b"ok"));
    put(&mut buf, b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok");
    assert!(matches!(step(&mut buf), Step::Served(_)));
    put(&mut buf, b"POST / HTTP/1.1\r\nHost: h\r\nExpect: \r\nContent-Length: 2\r\n\r\n");
    assert!(matches!(step(&mut buf), Step::Incomplete { send_continue: false }), "nothing is expected");
}

/// A parser stores the fields of the previous request. Goal: this store never changes the result. A parser with earlier
/// requests and a new parser must read the same request alike.
#[test]
fn a_request_does_not_depend_on_earlier_requests() {
    let lines = ["GET /a HTTP/1.1", "PUT /b?c HTTP/1.1", "POST /d HTTP/1.0", "GET /\r\r HTTP/1.1", "BREW /e HTTP/1.1"];
    let sections = [
        ("", ""),
        ("Host: h\r\n", ""),
        ("Host: h\r\nContent-Length: 2\r\n", "ok"),
        ("Host: h\r\nContent-Length: 3\r\n", "two"),
        ("Host: h\r\nContent-Length: 2\r\nX: y\r\n", "ok"),
        ("Host: h\r\nConnection: close\r\n", ""),
        ("Host: h\r\nConnection: keep-alive\r\n", ""),
        ("Host: h\r\nTransfer-Encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n"),
        ("Host: h\r\nX: a\rb\r\n", ""),
        ("Host: h\r\nContent-Length: x\r\n", ""),
    ];
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut served, mut refused) = (0, 0);
    for _ in 0..500 {
        let messages = std::iter::repeat_with(|| {
            let (section, body) = sections[rng.usize(..sections.len())];
            format!("{}\r\n{section}\r\n{body}", lines[rng.usize(..lines.len())])
        });
        let messages: Vec<String> = messages.take(8).collect();
        let (together, error) = all_ways(messages.concat().as_bytes());
        let mut apart = Vec::new();
        let mut apart_error = None;
        for message in &messages {
            let (seen, error) = feed(std::iter::once(message.as_bytes()));
            apart.extend(seen);
            apart_error = error;
            if error.is_some() {
                break;
            }
        }
        assert_eq!((&together, error), (&apart, apart_error), "{messages:?}");
        served += together.len();
        refused += usize::from(error.is_some());
    }
    assert!(served > 250 && refused > 250, "{served} were served, {refused} were refused");
}

#[test]
fn random_bytes_and_mutations_never_panic() {
    let seed =
        b"PUT /b?c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let mut input = seed.to_vec();
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(0..input.len());
            input[at] = rng.u8(..);
        }
        let cut = rng.usize(1..input.len());
        feed([&input[..cut], &input[cut..]].into_iter());
    }
}

#[test]
fn a_target_is_peeked_at_only_where_a_request_begins() {
    let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(PREFETCH_TARGET_BYTES_MAX));
    for (input, target) in [
        ("PUT /a/b?c=d&e HTTP/1.1\r\n", Some("/a/b?c=d&e")),
        ("GET /a/%2F HTTP", Some("/a/%2F")),
        ("GET /a", None),
        ("GET /a ", Some("/a")),
        ("", None),
        ("GET\r\n\r\n", None),
        ("GET /\u{e4} HTTP/1.1\r\n", Some("/\u{e4}")),
        (&long, None),
    ] {
        let (mut parser, mut buf, mut pool) = (RequestParser::new(BODY_BYTES_MAX), ByteBuf::default(), Pool::default());
        buf.append(input.as_bytes(), &mut pool);
        assert_eq!(parser.peek_target(&buf), target.map(str::as_bytes), "{input}");
        let body_begins = b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nGET /b ";
        buf.consume(input.len());
        buf.append(body_begins, &mut pool);
        assert!(matches!(parser.next(&mut buf, |_, _, _| ()), Ok(Step::Incomplete { .. })));
        assert_eq!(parser.peek_target(&buf), None, "a body is awaited");
    }
}

#[test]
fn every_refusal_has_a_reason_phrase() {
    for error in [
        RequestError::Malformed("it is malformed"),
        RequestError::NotHttp,
        RequestError::BodyTooLarge,
        RequestError::TargetTooLong,
        RequestError::ExpectationUnknown,
        RequestError::HeadTooLarge,
        RequestError::CodingUnknown,
        RequestError::VersionUnknown,
    ] {
        assert_ne!(crate::http::reason_phrase(error.status()), "", "{error:?}");
    }
}
