//! Known attacks, as the frames that an attacker sends. Each attack must end the connection with the right error code,
//! after little work and little output.

use super::*;
use crate::http2::limits;
use crate::http2::{SendField, StreamGone};

/// Sends `attack(n)` for n = 0, 1, … until the connection ends. Returns the number of attacks before the end, and the
/// code.
fn until_end(end: &mut End, mut attack: impl FnMut(u32) -> Vec<u8>) -> (u32, ErrorCode) {
    let mut out_max = 0;
    for n in 0..100_000 {
        let result = end.recv(&attack(n));
        out_max = out_max.max(end.out.len());
        if let Err(error) = result {
            assert!(out_max < 100_000, "{out_max} octets of output");
            assert_eq!(end.goaway_code(), Some(error.code()));
            return (n, error.code());
        }
    }
    panic!("the attack goes on for ever");
}

fn rst(id: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, id, &ErrorCode::CANCEL.0.to_be_bytes())
}

const CALM: ErrorCode = ErrorCode::ENHANCE_YOUR_CALM;

#[test]
fn rapid_reset() {
    // CVE-2023-44487
    let mut end = End::open_server();
    let ended = until_end(&mut end, |n| [headers(END_STREAM, 2 * n + 1, GET), rst(2 * n + 1)].concat());
    assert_eq!(ended, (limits::RESETS.burst, CALM));
}

#[test]
fn rapid_reset_of_requests_that_are_answered_at_once() {
    let mut end = End::open_server();
    for n in 0..=limits::RESETS.burst {
        let id = 2 * n + 1;
        let key = end.recv_request(&headers(END_STREAM, id, GET));
        end.connection.send_head(key, 200, &[], true, &mut end.out).unwrap();
        end.out.clear();
        if end.recv(&rst(id)).is_err() {
            assert_eq!(n, limits::RESETS.burst);
            assert_eq!(end.goaway_code(), Some(CALM));
            return;
        }
    }
    panic!("the attack goes on for ever");
}

#[test]
fn all_watches_may_be_cancelled_at_once_and_again_after_a_minute() {
    let mut end = End::open_server();
    let mut id = 1;
    for _ in 0..2 {
        let first = id;
        for _ in 0..limits::STREAMS_MAX {
            end.recv_request(&headers(END_STREAM, id, GET));
            id += 2;
        }
        for id in (first..id).step_by(2) {
            assert_eq!(end.recv(&rst(id)).unwrap().len(), 1);
        }
        end.now_ms += 60_000;
    }
}

/// A front proxy passes on the cancellations of its many clients, with the frames that Go's client sends for them.
#[test]
fn a_front_proxy_may_cancel_each_request_once() {
    let cancelled =
        |id| [headers(END_STREAM, id, GET), rst(id), frame(PING, 0, 0, &id.to_be_bytes().repeat(2))].concat();
    for (speaks_for_many, is_fine) in [(true, true), (false, false)] {
        let mut end = End::server(Config { speaks_for_many, ..Config::default() });
        end.recv(&[&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
        let result = (0..4 * limits::RESETS.burst).try_for_each(|n| {
            end.out.clear();
            end.recv(&cancelled(2 * n + 1)).map(|_| ())
        });
        assert_eq!(result.map_err(ConnectionError::code), if is_fine { Ok(()) } else { Err(CALM) });
    }
    // Each request allows one reset, and no more. So a second reset of each request uses up the allowance.
    let mut end = End::server(Config { speaks_for_many: true, ..Config::default() });
    end.recv(&[&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    let (count, code) =
        until_end(&mut end, |n| [headers(END_STREAM, 2 * n + 1, GET), rst(2 * n + 1), rst(2 * n + 1)].concat());
    assert_eq!((count, code), (limits::RESETS.burst - 1, CALM));
}

/// Each request of a front proxy allows one reset. So the resets of its clients' malformed requests never use up the
/// allowance.
#[test]
fn a_front_proxy_may_forward_malformed_requests() {
    for (name, value) in [(&b"x-a"[..], &b"a\nb"[..]), (b":method", b"a b"), (b":path", b"a")] {
        let mut end = End::server(Config { speaks_for_many: true, ..Config::default() });
        end.recv(&[&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
        let mut block = if name == b":method" {
            GET[1..].to_vec()
        } else if name == b":path" {
            vec![GET[0], GET[2]]
        } else {
            GET.to_vec()
        };
        Encoder::new(0).encode_field(FieldName::new(name), value, Indexing::Never, &mut block);
        for n in 0..2 * limits::RESETS.burst {
            end.out.clear();
            assert_eq!(end.recv(&headers(END_STREAM, 2 * n + 1, &block)), Ok(vec![]));
            let frame_type = if name == b"x-a" { RST_STREAM } else { HEADERS };
            assert_eq!(end.take_frames()[0].head.frame_type as u8, frame_type);
        }
    }
}

#[test]
fn a_reset_stream_allows_one_ping() {
    let mut end = End::open_server();
    for n in 0..limits::RESETS.burst {
        end.out.clear();
        end.recv(&[headers(END_STREAM, 2 * n + 1, GET), rst(2 * n + 1), frame(PING, 0, 0, &[0; 8])].concat()).unwrap();
    }
    // A second PING after each reset uses up the allowance. The handshake has already used two of the allowance, for
    // its two SETTINGS frames.
    let mut end = End::open_server();
    let two_pings = frame(PING, 0, 0, &[0; 8]).repeat(2);
    let ended =
        until_end(&mut end, |n| [headers(END_STREAM, 2 * n + 1, GET), rst(2 * n + 1), two_pings.clone()].concat());
    assert_eq!(ended, (limits::ANSWERS.burst - 2, CALM));
}

#[test]
fn made_you_reset() {
    // CVE-2025-8671: the peer makes us reset streams, here in four ways.
    let attacks: [fn(u32) -> Vec<u8>; 4] = [
        |id| [headers(END_STREAM, id, GET), window_update(id, 0)].concat(),
        |id| [headers(END_STREAM, id, GET), frame(DATA, 0, id, b"a")].concat(),
        |id| [headers(END_STREAM, id, GET), window_update(id, u32::MAX >> 1)].concat(),
        |id| [headers(END_STREAM, id, GET), frame(PRIORITY, 0, id, &[0; 4])].concat(),
    ];
    for attack in attacks {
        let mut end = End::open_server();
        let (count, code) = until_end(&mut end, |n| attack(2 * n + 1));
        assert!(count <= limits::RESETS.burst);
        assert_eq!(code, CALM);
    }
}

#[test]
fn continuation_flood() {
    for (speaks_for_many, count, count_of_large) in [(false, 8, 3), (true, 256, 191)] {
        let flood = |fragment: &[u8]| {
            let mut end = End::server(Config { speaks_for_many, ..Config::default() });
            end.recv(&[&PREFACE[..], &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, 0, 1, GET)].concat()).unwrap();
            end.out.clear();
            until_end(&mut end, |_| frame(CONTINUATION, 0, 1, fragment))
        };
        assert_eq!(flood(&[0x84]), (count, CALM));
        assert_eq!(flood(&[]), (count, CALM));
        assert_eq!(flood(&[0; limits::FRAME_SIZE_MAX]), (count_of_large, CALM));
    }
}

/// On a new connection, kube-apiserver forwards a head that is longer than this server accepts. The head must not end
/// the connection, which has the requests of other clients.
#[test]
fn a_front_proxy_may_forward_long_heads() {
    // First a head with one long field, then a head with many fields. One octet encodes each of these fields: the index
    // of an entry of the dynamic table.
    let long = block(&[("a", &"v".repeat(3_000_000))]);
    let many = [&[0x40, 1, b'a', 0][..], &[0x80_u8 | 62].repeat(350_000)].concat();
    let mut end = End::server(Config { speaks_for_many: true, ..Config::default() });
    end.recv(&[&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
    for (id, fields) in [(1, long), (5, many)] {
        end.out.clear();
        assert_eq!(end.recv(&frame(HEADERS, END_STREAM, id, GET)), Ok(vec![]));
        for fragment in fields.chunks(limits::FRAME_SIZE_MAX) {
            assert_eq!(end.recv(&frame(CONTINUATION, 0, id, fragment)), Ok(vec![]));
        }
        assert_eq!(end.connection.field_block_octets(), GET.len() + fields.len());
        assert_eq!(end.recv(&frame(CONTINUATION, END_HEADERS, id, &[])), Ok(vec![]));
        assert_eq!(end.connection.field_block_octets(), 0);
        assert!(end.fields.list_size() <= limits::FIELD_BLOCKS_OF_FRONT_PROXY.served_octets_max);
        let frames = end.take_frames();
        assert_eq!((frames.len(), frames[0].head.flags), (1, END_STREAM | END_HEADERS), "431");
        end.recv_request(&headers(END_STREAM, id + 2, GET));
    }
}

#[test]
fn settings_flood() {
    let mut end = End::open_server();
    for n in 0..100 {
        end.recv_request(&headers(END_STREAM, 2 * n + 1, GET));
    }
    let (count, code) = until_end(&mut end, |n| setting(4, n % 2 * 65_535));
    assert!(count <= limits::ANSWERS.burst);
    assert_eq!(code, CALM);
    let mut end = End::open_server();
    let (count, code) = until_end(&mut end, |_| frame(SETTINGS, ACK, 0, &[]));
    assert!(count <= limits::ANSWERS.burst);
    assert_eq!(code, CALM);
}

#[test]
fn ping_flood() {
    for flags in [0, ACK] {
        let mut end = End::open_server();
        let (count, code) = until_end(&mut end, |_| frame(PING, flags, 0, &[0; 8]));
        assert!(count <= limits::ANSWERS.burst);
        assert_eq!(code, CALM);
    }
}

#[test]
fn goaway_flood() {
    let mut end = End::open_server();
    assert_eq!(until_end(&mut end, |_| frame(GOAWAY, 0, 0, &[0; 8])).1, CALM);
}

#[test]
fn empty_data_flood() {
    for data in [frame(DATA, 0, 1, &[]), frame(DATA, 0x8, 1, &[&[255][..], &[0; 255]].concat())] {
        let mut end = End::open_server();
        end.recv_request(&headers(0, 1, POST));
        assert_eq!(until_end(&mut end, |_| data.clone()), (limits::EMPTY_FRAMES.burst, CALM));
    }
}

#[test]
fn empty_headers_flood() {
    let mut end = End::open_server();
    assert_eq!(until_end(&mut end, |n| headers(END_STREAM, 2 * n + 1, &[])), (limits::RESETS.burst, CALM));
}

#[test]
fn header_bomb() {
    // One table entry of 4000 octets, then one octet for each copy of this entry.
    let entry = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
    let bomb = [GET, &entry, &[0x80 | 62; 10_000]].concat();
    for speaks_for_many in [false, true] {
        let config = Config { speaks_for_many, ..Config::default() };
        let mut end = End::server(config);
        end.recv(&[&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
        assert_eq!(
            end.recv(&headers(END_STREAM, 1, &bomb)),
            Err(ConnectionError::Compression(crate::hpack::DecodeError::ListSize))
        );
        assert_eq!(end.goaway_code(), Some(CALM));
        assert!(end.fields.list_size() <= config.field_blocks().served_octets_max);
    }
}

#[test]
fn many_fields_are_answered_and_do_not_end_the_connection() {
    let mut end = End::open_server();
    let many = [GET, &[0x80 | 16; 2000][..]].concat();
    assert_eq!(end.recv(&headers(0, 1, &many)), Ok(vec![]));
    let frames = end.take_frames();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].head.flags, END_STREAM | END_HEADERS);
    assert_eq!(end.recv(&frame(DATA, END_STREAM, 1, b"late")), Ok(vec![]));
    assert_eq!(end.connection.stream_count(), 0);
    end.recv_request(&headers(END_STREAM, 3, GET));
    let mut end = End::open_server();
    let (count, code) = until_end(&mut end, |n| headers(END_STREAM, 2 * n + 1, &many));
    assert_eq!((count, code), (limits::RESETS.burst, CALM));
}

#[test]
fn windows_that_overflow() {
    let flow = Some(ErrorCode::FLOW_CONTROL_ERROR);
    let mut end = End::open_server();
    assert_eq!(end.recv(&window_update(0, u32::MAX >> 1)), Err(ConnectionError::WindowOverflow));
    assert_eq!(end.goaway_code(), flow);
    let mut end = End::open_server();
    let key = end.recv_request(&headers(END_STREAM, 1, GET));
    let got = end.recv(&window_update(1, u32::MAX >> 1)).unwrap();
    assert_eq!(got, [Got::Reset { stream: key, code: ErrorCode::FLOW_CONTROL_ERROR, by: Initiator::Local }]);
    end.recv_request(&headers(END_STREAM, 3, GET));
    end.recv(&window_update(3, 100)).unwrap();
    assert_eq!(end.recv(&setting(4, u32::MAX >> 1)), Err(ConnectionError::WindowOverflow));
    assert_eq!(end.goaway_code(), flow);
    let mut end = End::open_server();
    assert_eq!(end.recv(&setting(4, 1 << 31)), Err(ConnectionError::SettingWindow));
    assert_eq!(end.goaway_code(), flow);
    let mut end = End::open_server();
    assert_eq!(end.recv(&window_update(0, 0)), Err(ConnectionError::WindowIncrement));
    assert_eq!(end.goaway_code(), Some(ErrorCode::PROTOCOL_ERROR));
}

#[test]
fn data_beyond_the_windows() {
    let mut end = End::open_server();
    let key = end.recv_request(&headers(0, 1, POST));
    end.connection.set_recv_windows(key, 100, 1000);
    assert_eq!(end.recv(&frame(DATA, 0, 1, &[0; 100])).unwrap().len(), 1);
    // The stream's window is used up. Even the Pad Length octet of a frame without data exceeds it.
    let got = end.recv(&frame(DATA, 0x8, 1, &[0])).unwrap();
    assert_eq!(got, [Got::Reset { stream: key, code: ErrorCode::FLOW_CONTROL_ERROR, by: Initiator::Local }]);
    assert_eq!(end.recv(&frame(DATA, 0, 1, &[0; 899])), Ok(vec![]), "the stream is closed, not the window");
    assert_eq!(end.recv(&frame(DATA, 0, 1, &[0])), Err(ConnectionError::FlowControl));
    assert_eq!(end.goaway_code(), Some(ErrorCode::FLOW_CONTROL_ERROR));
}

#[test]
fn zero_windows_hold_streams_but_nothing_else() {
    let mut end = End::open_server();
    end.recv(&setting(4, 0)).unwrap();
    let keys: Vec<_> = (0..1000).map(|n| end.recv_request(&headers(END_STREAM, 2 * n + 1, GET))).collect();
    for key in &keys {
        end.connection.send_head(*key, 200, &[], false, &mut end.out).unwrap();
        assert_eq!(end.connection.send_data(*key, &[b'a'; 700], true, &mut end.out), Ok(0));
    }
    assert!(end.out.len() < 20_000);
    assert_eq!(end.connection.poll_writable(), None);
    assert_eq!(end.connection.stream_count(), 1000);
    // The caller resets the streams at its own time limit.
    for key in keys {
        end.connection.reset(key, ErrorCode::CANCEL, &mut end.out);
        assert_eq!(end.connection.send_data(key, b"a", true, &mut end.out), Err(StreamGone));
    }
    assert_eq!(end.connection.stream_count(), 0);
}

#[test]
fn windows_that_open_octet_by_octet() {
    let mut end = End::open_server();
    end.recv(&setting(4, 0)).unwrap();
    let key = end.recv_request(&headers(END_STREAM, 1, GET));
    let head = [SendField::repeated(FieldName::new(b"content-type"), b"text/plain")];
    end.connection.send_head(key, 200, &head, false, &mut end.out).unwrap();
    let mut writes = 0;
    let result = (0..100_000).try_for_each(|_| {
        end.out.clear();
        end.connection.send_data(key, &[b'a'; 700], false, &mut end.out).unwrap();
        end.recv(&window_update(1, 1)).map(|_| writes += 1)
    });
    assert_eq!(result.map_err(ConnectionError::code), Err(CALM));
    assert!(writes <= limits::WINDOW_UPDATES.burst);
}

#[test]
fn one_octet_of_the_connections_window_wakes_one_stream() {
    let mut end = End::open_server();
    let keys: Vec<_> = (0..500).map(|n| end.recv_request(&headers(END_STREAM, 2 * n + 1, GET))).collect();
    for key in &keys {
        end.connection.send_head(*key, 200, &[], false, &mut end.out).unwrap();
        end.connection.send_data(*key, &[b'a'; 700], true, &mut end.out).unwrap();
    }
    for _ in 0..100 {
        end.recv(&window_update(0, 1)).unwrap();
        let mut woken = 0;
        while let Some(key) = end.connection.poll_writable() {
            woken += 1;
            end.connection.send_data(key, &[b'a'; 700], true, &mut end.out).unwrap();
        }
        assert_eq!(woken, 1);
    }
}

#[test]
fn window_update_flood() {
    for id in [0, 1] {
        let mut end = End::open_server();
        end.recv_request(&headers(END_STREAM, 1, GET));
        assert_eq!(until_end(&mut end, |_| window_update(id, 1)), (limits::WINDOW_UPDATES.burst, CALM));
    }
}

#[test]
fn window_updates_of_a_steady_reader_are_never_a_flood() {
    let mut end = End::open_server();
    let key = end.recv_request(&headers(END_STREAM, 1, GET));
    end.connection.send_head(key, 200, &[], false, &mut end.out).unwrap();
    for _ in 0..20_000 {
        end.out.clear();
        assert_eq!(end.connection.send_data(key, &[b'e'; 900], false, &mut end.out), Ok(900), "a watch event");
        end.recv(&[window_update(1, 900), window_update(0, 900)].concat()).unwrap();
    }
}

/// After each read of its application, here of 4 KiB, Go's client sends one WINDOW_UPDATE for the stream and one for
/// the connection.
#[test]
fn a_window_update_after_each_small_read_is_allowed() {
    const READ: u32 = 4096;
    let mut end = End::open_server();
    let key = end.recv_request(&headers(END_STREAM, 1, GET));
    end.connection.send_head(key, 200, &[], false, &mut end.out).unwrap();
    let reads =
        [window_update(1, READ), window_update(0, READ)].concat().repeat(limits::FRAME_SIZE_MAX / READ as usize);
    for _ in 0..20_000 {
        end.out.clear();
        let piece = [b'l'; limits::FRAME_SIZE_MAX];
        assert_eq!(end.connection.send_data(key, &piece, false, &mut end.out), Ok(piece.len()));
        end.recv(&reads).unwrap();
    }
}

#[test]
fn a_flood_of_ignored_frames_ends_the_connection() {
    for attack in [frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]), frame(0xbe, 0, 0, &[]), frame(0xbe, 0, 1, b"?")] {
        let mut end = End::open_server();
        assert_eq!(until_end(&mut end, |_| attack.clone()), (limits::IGNORED_FRAMES.burst, CALM));
    }
    // Endless trailers on a stream that we have reset.
    let mut end = End::open_server();
    let key = end.recv_request(&headers(0, 1, POST));
    end.connection.reset(key, ErrorCode::CANCEL, &mut end.out);
    assert_eq!(until_end(&mut end, |_| headers(0, 1, &[])), (limits::IGNORED_FRAMES.burst, CALM));
}

#[test]
fn endless_streams_above_the_limit_end_the_connection() {
    let mut end = End::open_server();
    for n in 0..limits::STREAMS_MAX {
        end.recv_request(&headers(END_STREAM, 2 * n + 1, GET));
    }
    let next = 2 * limits::STREAMS_MAX + 1;
    let ended = until_end(&mut end, |n| headers(END_STREAM, next + 2 * n, GET));
    assert_eq!(ended, (limits::RESETS.burst, CALM));
}
