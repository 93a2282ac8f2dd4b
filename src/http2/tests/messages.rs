//! Tests requests, responses, and the states of streams and connections.

use super::*;
use crate::http2::limits::{FRAME_SIZE_MAX, STREAM_WINDOW, STREAMS_MAX};
use crate::http2::{RequestLine, SendField, StreamGone, UpgradeSettings};

fn rst(id: u32, code: ErrorCode) -> Vec<u8> {
    frame(RST_STREAM, 0, id, &code.0.to_be_bytes())
}

fn sent(end: &mut End) -> Vec<Vec<u8>> {
    end.take_frames().iter().map(Sent::bytes).collect()
}

#[test]
fn a_server_greets_first() {
    let mut end = End::server(Config::default());
    let frames = end.take_frames();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0].payload[..6], [0, 3, 0, 0, 0x10, 0]);
    assert_eq!(frames[1].bytes(), window_update(0, (4 << 20) - 65_535));
    assert!(!end.connection.is_open());
    end.recv(&[&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    assert_eq!(sent(&mut end), [frame(SETTINGS, ACK, 0, &[])]);
    assert!(end.connection.is_open() && !end.connection.settings_acked());
    end.recv(&frame(SETTINGS, ACK, 0, &[])).unwrap();
    assert!(end.connection.settings_acked());
}

#[test]
fn a_wrong_preface_is_refused_at_its_first_wrong_octet() {
    let mut end = End::server(Config::default());
    assert_eq!(end.recv(b"PRI * HTTP/2.0\r\n"), Ok(vec![]));
    assert_eq!(end.recv(b"\r\nSX"), Err(ConnectionError::Preface));
    assert_eq!(end.goaway_code(), Some(ErrorCode::PROTOCOL_ERROR));
    let mut end = End::server(Config::default());
    assert_eq!(end.recv(b"GET"), Err(ConnectionError::Preface));
    let mut end = End::server(Config::default());
    let ping_first = [&PREFACE[..], &frame(PING, 0, 0, &[0; 8])].concat();
    assert_eq!(end.recv(&ping_first), Err(ConnectionError::FirstFrameNotSettings));
}

#[test]
fn a_request_gets_its_response() {
    let mut end = End::open_server();
    let key = end.recv_request(&headers(END_STREAM, 1, GET));
    let head = [SendField::repeated(FieldName::new(b"content-type"), b"application/json")];
    end.connection.send_head(key, 200, &head, false, &mut end.out).unwrap();
    assert_eq!(end.connection.send_data(key, b"{}", true, &mut end.out), Ok(2));
    let frames = end.take_frames();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[1].bytes(), frame(DATA, END_STREAM, 1, b"{}"));
    assert!(!end.connection.has_stream(key));
    assert_eq!(end.connection.send_data(key, b"{}", true, &mut end.out), Err(StreamGone));
    end.connection.reset(key, ErrorCode::CANCEL, &mut end.out);
    assert!(end.out.is_empty());
    // The same response again is shorter, since its content-type is in the dynamic table.
    let key = end.recv_request(&headers(END_STREAM, 3, GET));
    end.connection.send_head(key, 200, &head, true, &mut end.out).unwrap();
    assert_eq!(sent(&mut end), [headers(END_STREAM, 3, &[0x88, 0x80 | 62])]);
}

#[test]
fn a_body_comes_in_parts_and_may_end_with_trailers() {
    let mut end = End::open_server();
    let key = end.recv_request(&headers(0, 1, POST));
    let data = |data: &[u8], end_stream| Got::Data { stream: key, data: data.to_vec(), end_stream };
    let padded = frame(DATA, 0x8, 1, &[2, b'c', 0, 0]);
    let got = end.recv(&[frame(DATA, 0, 1, b"ab"), padded, frame(DATA, 0, 1, b"")].concat()).unwrap();
    assert_eq!(got, [data(b"ab", false), data(b"c", false)]);
    let got = end.recv(&headers(END_STREAM, 1, &block(&[("x-checksum", "1")]))).unwrap();
    assert_eq!(got, [Got::Trailers { stream: key, fields: vec![("x-checksum".into(), "1".into())] }]);
    let key = end.recv_request(&headers(0, 3, POST));
    let got = end.recv(&frame(DATA, END_STREAM, 3, b"")).unwrap();
    assert_eq!(got, [Got::Data { stream: key, data: vec![], end_stream: true }]);
}

#[test]
fn a_field_block_may_continue() {
    let mut end = End::open_server();
    let whole = [GET, &block(&[("x-name", "value")])].concat();
    let input = [
        frame(HEADERS, END_STREAM, 1, &whole[..2]),
        frame(CONTINUATION, 0, 1, &whole[2..4]),
        frame(CONTINUATION, END_HEADERS, 1, &whole[4..]),
    ];
    end.recv(&input[0]).unwrap();
    assert!(end.connection.awaits_continuation());
    end.recv(&input[1]).unwrap();
    let got = end.recv(&input[2]).unwrap();
    assert!(!end.connection.awaits_continuation());
    assert!(matches!(&got[..], [Got::Request { fields, end_stream: true, .. }] if fields.len() == 4));
    for (first, second) in [
        (frame(HEADERS, 0, 3, GET), headers(0, 3, GET)),
        (frame(HEADERS, 0, 3, GET), frame(PING, 0, 0, &[0; 8])),
        (frame(HEADERS, 0, 3, GET), frame(CONTINUATION, END_HEADERS, 5, &[])),
        (frame(HEADERS, 0, 3, GET), frame(0xee, 0, 3, &[])),
    ] {
        let mut end = End::open_server();
        assert_eq!(end.recv(&[first, second].concat()), Err(ConnectionError::FieldBlockInterrupted));
    }
    assert_eq!(
        End::open_server().recv(&frame(CONTINUATION, END_HEADERS, 1, GET)),
        Err(ConnectionError::ContinuationUnexpected)
    );
}

#[test]
fn malformed_requests_end_their_stream_only() {
    let mut end = End::open_server();
    let with = |lines: &[(&str, &str)]| [POST, &block(lines)].concat();
    for (id, input) in [
        (1, headers(END_STREAM, 1, &[0x82, 0x86])),
        (3, headers(END_STREAM, 3, &with(&[("connection", "close")]))),
        (5, headers(END_STREAM, 5, &with(&[("content-length", "1")]))),
        (7, frame(HEADERS, END_STREAM | END_HEADERS | 0x20, 7, &[&[0, 0, 0, 7, 0][..], GET].concat())),
    ] {
        assert_eq!(end.recv(&input), Ok(vec![]));
        assert_eq!(sent(&mut end), [rst(id, ErrorCode::PROTOCOL_ERROR)]);
    }
    // If a request turns out to be malformed after its `Request` event, a `Reset` event reports the error.
    for (id, length, input) in [
        (9, "3", frame(DATA, END_STREAM, 9, b"ab")),
        (11, "3", frame(DATA, 0, 11, b"abcd")),
        (13, "3", headers(END_STREAM, 13, &[])),
        (15, "0", headers(0, 15, &block(&[("a", "b")]))),
        (17, "0", headers(END_STREAM, 17, &block(&[(":path", "/")]))),
    ] {
        let key = end.recv_request(&headers(0, id, &with(&[("content-length", length)])));
        let reset = Got::Reset { stream: key, code: ErrorCode::PROTOCOL_ERROR, by: Initiator::Local };
        assert_eq!(end.recv(&input), Ok(vec![reset]), "{id}");
        assert_eq!(sent(&mut end), [rst(id, ErrorCode::PROTOCOL_ERROR)]);
        assert!(!end.connection.has_stream(key));
    }
    end.recv_request(&headers(END_STREAM, 19, GET));
}

#[test]
fn misplaced_frames_end_the_connection() {
    for (input, error) in [
        (frame(DATA, 0, 1, b"a"), ConnectionError::StreamIdle),
        (frame(DATA, 0, 0, b"a"), ConnectionError::StreamId),
        (headers(0, 2, GET), ConnectionError::StreamIdle),
        (headers(0, 0, GET), ConnectionError::StreamId),
        (rst(1, ErrorCode::CANCEL), ConnectionError::StreamIdle),
        (window_update(1, 1), ConnectionError::StreamIdle),
        (frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]), ConnectionError::PushPromise),
        (frame(PRIORITY, 0, 1, &[0; 4]), ConnectionError::FrameSize),
        (frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0]), ConnectionError::PrioritySelfDependency),
        (frame(SETTINGS, 0, 1, &[]), ConnectionError::StreamId),
        (frame(PING, 0, 0, &[0; 7]), ConnectionError::FrameSize),
        (frame(GOAWAY, 0, 0, &[0; 7]), ConnectionError::FrameSize),
        (frame(DATA, 0, 1, &vec![0; FRAME_SIZE_MAX + 1]), ConnectionError::FrameSize),
    ] {
        let mut end = End::open_server();
        assert_eq!(end.recv(&input), Err(error));
        assert_eq!(end.goaway_code(), Some(error.code()));
        assert!(end.connection.is_finished());
        assert_eq!(end.recv(&headers(END_STREAM, 1, GET)), Ok(vec![]), "input after a failure is ignored");
    }
    let mut end = End::open_server();
    assert_eq!(end.recv(&frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 0])), Ok(vec![]));
    assert_eq!(end.recv(&frame(0xee, 0xff, 77, b"?")), Ok(vec![]));
    assert!(end.out.is_empty());
}

#[test]
fn frames_on_closed_streams_are_ignored_or_refused() {
    let mut end = End::open_server();
    let key = end.recv_request(&headers(END_STREAM, 1, GET));
    // The stream is half-closed (remote).
    let reset = Got::Reset { stream: key, code: ErrorCode::STREAM_CLOSED, by: Initiator::Local };
    assert_eq!(end.recv(&frame(DATA, 0, 1, b"a")), Ok(vec![reset]));
    assert_eq!(sent(&mut end), [rst(1, ErrorCode::STREAM_CLOSED)]);
    // The stream was reset by us. Late frames of the peer are ignored, but their field blocks are decoded.
    let late = [
        frame(DATA, 0, 1, b"a"),
        headers(END_STREAM, 1, &[0x40, 1, b'a', 1, b'b']),
        window_update(1, 1),
        rst(1, ErrorCode::CANCEL),
    ];
    assert_eq!(end.recv(&late.concat()), Ok(vec![]));
    assert!(end.out.is_empty());
    let got = end.recv(&headers(END_STREAM, 3, &[0x82, 0x84, 0x86, 0x80 | 62])).unwrap();
    assert!(matches!(&got[0], Got::Request { fields, .. } if fields[3] == ("a".into(), "b".into())));
    // The stream has ended on both sides.
    end.connection.send_head(got[0].stream(), 204, &[], true, &mut end.out).unwrap();
    end.out.clear();
    assert_eq!(end.recv(&window_update(3, 1)), Ok(vec![]));
    assert_eq!(end.recv(&frame(DATA, 0, 3, b"a")), Ok(vec![]));
    assert_eq!(sent(&mut end), [rst(3, ErrorCode::STREAM_CLOSED)]);
    let key = end.recv_request(&headers(END_STREAM, 7, GET));
    end.connection.send_head(key, 204, &[], true, &mut end.out).unwrap();
    assert_eq!(end.recv(&headers(END_STREAM, 7, GET)), Err(ConnectionError::StreamClosed));
    assert_eq!(end.goaway_code(), Some(ErrorCode::STREAM_CLOSED));
}

#[test]
fn a_reset_by_the_peer_is_reported_once() {
    let mut end = End::open_server();
    let key = end.recv_request(&headers(0, 1, POST));
    let reset = Got::Reset { stream: key, code: ErrorCode::CANCEL, by: Initiator::Remote };
    assert_eq!(end.recv(&[rst(1, ErrorCode::CANCEL), rst(1, ErrorCode::CANCEL)].concat()), Ok(vec![reset]));
    assert_eq!(end.connection.send_head(key, 200, &[], true, &mut end.out), Err(StreamGone));
    assert!(end.out.is_empty());
}

#[test]
fn data_waits_for_the_streams_window() {
    let mut end = End::open_server();
    end.recv(&setting(4, 5)).unwrap();
    let key = end.recv_request(&headers(END_STREAM, 1, GET));
    end.connection.send_head(key, 200, &[], false, &mut end.out).unwrap();
    end.out.clear();
    assert_eq!(end.connection.send_data(key, b"0123456789", true, &mut end.out), Ok(5));
    assert_eq!(sent(&mut end), [frame(DATA, 0, 1, b"01234")]);
    assert_eq!(end.connection.poll_writable(), None);
    end.recv(&window_update(1, 2)).unwrap();
    assert_eq!(end.connection.poll_writable(), Some(key));
    assert_eq!(end.connection.poll_writable(), None);
    assert_eq!(end.connection.send_data(key, b"56789", true, &mut end.out), Ok(2));
    // SETTINGS shrink the windows of all streams below zero, and later widen them.
    end.recv(&setting(4, 2)).unwrap();
    end.recv(&window_update(1, 3)).unwrap();
    assert_eq!(end.connection.poll_writable(), None);
    end.recv(&setting(4, 100)).unwrap();
    assert_eq!(end.connection.poll_writable(), Some(key));
    end.out.clear();
    assert_eq!(end.connection.send_data(key, b"789", true, &mut end.out), Ok(3));
    assert_eq!(sent(&mut end), [frame(DATA, END_STREAM, 1, b"789")]);
}

#[test]
fn streams_take_turns_when_the_connections_window_opens() {
    let mut end = End::open_server();
    let keys: Vec<_> = [1, 3, 5].iter().map(|id| end.recv_request(&headers(END_STREAM, *id, GET))).collect();
    for key in &keys {
        end.connection.send_head(*key, 200, &[], false, &mut end.out).unwrap();
    }
    assert_eq!(end.connection.send_data(keys[0], &[b'a'; 70_000], true, &mut end.out), Ok(65_535));
    assert_eq!(end.connection.send_data(keys[1], b"b", false, &mut end.out), Ok(0));
    end.connection.want_write(keys[2]);
    assert_eq!(end.connection.poll_writable(), None);
    // The first stream's own window is used up too. So the second stream gets the one octet of the connection's window.
    end.recv(&window_update(0, 1)).unwrap();
    assert_eq!(end.connection.poll_writable(), Some(keys[1]));
    assert_eq!(end.connection.send_data(keys[1], b"bb", false, &mut end.out), Ok(1));
    assert_eq!(end.connection.poll_writable(), None, "the connection's window is closed");
    end.recv(&window_update(0, 100)).unwrap();
    assert_eq!(end.connection.poll_writable(), Some(keys[2]));
    end.recv(&rst(3, ErrorCode::CANCEL)).unwrap();
    assert_eq!(end.connection.poll_writable(), None, "a closed stream is not writable");
    end.recv(&window_update(1, 100)).unwrap();
    assert_eq!(end.connection.poll_writable(), Some(keys[0]));
    assert_eq!(end.connection.send_window(keys[0]), 100);
}

#[test]
fn large_data_is_cut_into_frames() {
    let mut end = End::open_server();
    let key = end.recv_request(&headers(END_STREAM, 1, GET));
    end.connection.send_head(key, 200, &[], false, &mut end.out).unwrap();
    end.take_frames();
    assert_eq!(end.connection.send_data(key, &[b'a'; 40_000], true, &mut end.out), Ok(40_000));
    let lengths: Vec<_> = end.take_frames().iter().map(|sent| (sent.head.length, sent.head.flags)).collect();
    assert_eq!(lengths, [(16_384, 0), (16_384, 0), (40_000 - 32_768, END_STREAM)]);
}

#[test]
fn windows_are_refilled_in_large_steps() {
    let mut end = End::open_server();
    end.recv_request(&headers(0, 1, POST));
    let part = frame(DATA, 0, 1, &[0; FRAME_SIZE_MAX]);
    for _ in 0..STREAM_WINDOW / 2 / 16_384 - 1 {
        end.recv(&part).unwrap();
    }
    assert!(end.out.is_empty());
    end.recv(&part).unwrap();
    assert_eq!(sent(&mut end), [window_update(1, STREAM_WINDOW / 2)]);
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let mut end = End::open_server();
    for n in 0..STREAMS_MAX {
        end.recv_request(&headers(END_STREAM, 2 * n + 1, GET));
    }
    let id = 2 * STREAMS_MAX + 1;
    assert_eq!(end.recv(&headers(END_STREAM, id, GET)), Ok(vec![]));
    assert_eq!(sent(&mut end), [rst(id, ErrorCode::REFUSED_STREAM)]);
    assert_eq!(end.connection.stream_count(), STREAMS_MAX as usize);
}

#[test]
fn pings_and_settings_are_answered() {
    let mut end = End::open_server();
    assert_eq!(end.recv(&frame(PING, 0, 0, b"01234567")), Ok(vec![]));
    assert_eq!(end.recv(&setting(1, 0)), Ok(vec![]));
    assert_eq!(sent(&mut end), [frame(PING, ACK, 0, b"01234567"), frame(SETTINGS, ACK, 0, &[])]);
    assert_eq!(end.recv(&frame(PING, ACK, 0, b"abcdefgh")), Ok(vec![]), "an acknowledgement of no PING");
    assert!(sent(&mut end).is_empty());
    let key = end.recv_request(&headers(END_STREAM, 1, GET));
    end.connection.send_head(key, 200, &[], true, &mut end.out).unwrap();
    assert_eq!(sent(&mut end), [headers(END_STREAM, 1, &[0x20, 0x88])], "the dynamic table is empty");
}

#[test]
fn a_graceful_shutdown_serves_requests_in_flight() {
    let goaway = |last: u32, code: ErrorCode| frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.0.to_be_bytes()].concat());
    let mut end = End::open_server();
    let first = end.recv_request(&headers(END_STREAM, 1, GET));
    end.connection.begin_shutdown(&mut end.out);
    end.connection.begin_shutdown(&mut end.out);
    assert_eq!(sent(&mut end), [goaway(u32::MAX >> 1, ErrorCode::NO_ERROR), frame(PING, 0, 0, b"shutdown")]);
    let second = end.recv_request(&headers(END_STREAM, 3, GET));
    assert_eq!(end.recv(&frame(PING, ACK, 0, b"shutdown")), Ok(vec![]));
    assert_eq!(sent(&mut end), [goaway(3, ErrorCode::NO_ERROR)]);
    let late = [headers(0, 5, POST), frame(DATA, 0, 5, b"a"), window_update(5, 1), rst(5, ErrorCode::CANCEL)];
    assert_eq!(end.recv(&late.concat()), Ok(vec![]));
    for key in [first, second] {
        assert!(!end.connection.is_finished());
        end.connection.send_head(key, 204, &[], true, &mut end.out).unwrap();
    }
    assert!(end.connection.is_finished());
    end.take_frames();
    end.connection.abort(ErrorCode::NO_ERROR, &mut end.out);
    assert_eq!(sent(&mut end), [goaway(3, ErrorCode::NO_ERROR)], "never higher than before");
}

#[test]
fn an_upgraded_connection_begins_with_the_response() {
    let mut out = Vec::new();
    let settings = &setting(4, 3)[HEAD_BYTES..];
    let asked = UpgradeSettings::parse(settings.to_vec()).unwrap();
    let (connection, key) = Connection::server_upgraded(Config::default(), &asked, &mut out);
    let mut end = End::new(connection, out);
    end.take_frames();
    end.connection.send_head(key, 200, &[], false, &mut end.out).unwrap();
    assert_eq!(end.connection.send_data(key, b"abcdef", true, &mut end.out), Ok(3));
    let hello = [&PREFACE[..], &frame(SETTINGS, 0, 0, settings), &window_update(1, 3)].concat();
    assert_eq!(end.recv(&hello), Ok(vec![]));
    assert_eq!(end.connection.poll_writable(), Some(key));
    assert_eq!(end.connection.send_data(key, b"def", true, &mut end.out), Ok(3));
    assert!(!end.connection.has_stream(key));
    end.recv_request(&headers(END_STREAM, 3, GET));
    for refused in [&[0; 5][..], &setting(2, 2)[HEAD_BYTES..], &setting(4, 1 << 31)[HEAD_BYTES..]] {
        assert!(UpgradeSettings::parse(refused.to_vec()).is_none(), "{refused:?}");
    }
}

#[test]
fn a_large_head_is_continued_and_understood() {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let client = Connection::client(Config::default(), &mut to_server);
    let server = Connection::server(Config::default(), &mut to_client);
    let (mut client, mut server) = (End::new(client, to_server), End::new(server, to_client));
    client.recv(&std::mem::take(&mut server.out)).unwrap();
    let value = vec![b'~'; 50_000];
    let line =
        RequestLine { method: b"GET", scheme: b"http", authority: b"a", path: b"/", path_indexing: Indexing::Value };
    let fields = [SendField::varying(FieldName::new(b"x-large"), &value)];
    client.connection.send_request(&line, &fields, true, &mut client.out).unwrap();
    let got = server.recv(&std::mem::take(&mut client.out)).unwrap();
    assert!(matches!(&got[..], [Got::Request { fields, .. }] if fields[4].1.len() == 50_000));
    server.connection.send_head(got[0].stream(), 103, &[], false, &mut server.out).unwrap();
    server.connection.send_head(got[0].stream(), 200, &fields, true, &mut server.out).unwrap();
    let got = client.recv(&std::mem::take(&mut server.out)).unwrap();
    assert!(matches!(
        got[..],
        [Got::Response { status: 103, end_stream: false, .. }, Got::Response { status: 200, end_stream: true, .. }]
    ));
    assert_eq!(client.connection.stream_count(), 0);
}

#[test]
fn a_client_opens_100_streams_until_it_knows_the_limit() {
    let mut out = Vec::new();
    let connection = Connection::client(Config::default(), &mut out);
    let mut end = End::new(connection, out);
    let line =
        RequestLine { method: b"GET", scheme: b"http", authority: b"a", path: b"/", path_indexing: Indexing::Value };
    let open_all = |end: &mut End| {
        (0..1000).take_while(|_| end.connection.send_request(&line, &[], true, &mut end.out).is_ok()).count()
    };
    assert_eq!(open_all(&mut end), 100);
    end.recv(&setting(3, 150)).unwrap();
    assert_eq!(open_all(&mut end), 50);
    end.recv(&frame(GOAWAY, 0, 0, &[0; 8])).unwrap();
    end.recv(&setting(3, 1000)).unwrap();
    assert_eq!(open_all(&mut end), 0, "the server is going away");
}
