//! Goal: the result does not depend on where the input is cut, and no input causes a panic.

use super::*;
use crate::hpack::tests::Random;
use crate::http2::{RequestLine, SendField};

/// Returns the bytes of a client: heads of all kinds, bodies, trailers, and frames of the connection.
fn traffic() -> Vec<u8> {
    let mut out = Vec::new();
    let mut client = Connection::client(Config::default(), &mut out);
    out.extend_from_slice(&frame(SETTINGS, ACK, 0, &[]));
    let large = vec![b'{'; 20_000];
    for n in 0..6_u8 {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-{n}");
        let line = RequestLine {
            method: b"PUT",
            scheme: b"https",
            authority: b"10.0.0.1:443",
            path: path.as_bytes(),
            path_indexing: Indexing::Value,
        };
        let large_value = if n == 3 { &large[..] } else { b"1" };
        let fields = [
            SendField::repeated(FieldName::new(b"accept"), b"application/json"),
            SendField::varying(FieldName::new(b"x-varying"), large_value),
        ];
        let key = client.send_request(&line, &fields, n == 0, &mut out).unwrap();
        if n > 0 {
            client.send_data(key, &large[..usize::from(n) * 2500], n % 2 == 1, &mut out).unwrap();
        }
        if n > 0 && n % 2 == 0 {
            client.send_trailers(key, &fields[..1], &mut out).unwrap();
        }
    }
    let late = [
        frame(PING, 0, 0, b"01234567"),
        window_update(0, 1000),
        frame(PRIORITY, 0, 21, &[0, 0, 0, 3, 1]),
        frame(RST_STREAM, 0, 5, &[0, 0, 0, 8]),
        frame(0xee, 1, 5, b"unknown"),
        headers(END_STREAM, 13, &[]),
        headers(0, 15, POST),
        frame(DATA, 0x8, 15, &[3, b'a', 0, 0, 0]),
        frame(GOAWAY, 0, 0, &[0; 8]),
    ];
    out.extend_from_slice(&late.concat());
    out
}

/// Feeds `input` to a server, in pieces whose lengths `cut` returns. Returns the events and the output.
fn feed(input: &[u8], mut cut: impl FnMut() -> usize) -> (Vec<Got>, Vec<u8>) {
    let mut end = End::server(Config::default());
    let mut all = Vec::new();
    let mut rest = input;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cut().clamp(1, rest.len()));
        rest = after;
        match end.recv(piece) {
            Ok(got) => all.extend(got),
            Err(_) => break,
        }
    }
    (all, end.out)
}

#[test]
fn split_input_gives_the_same_result_as_whole_input() {
    let traffic = traffic();
    let whole = feed(&traffic, || usize::MAX);
    assert_eq!(whole.0.len(), 17);
    assert_eq!(feed(&traffic, || 1), whole);
    for seed in 1..=50 {
        let mut random = Random(seed);
        let piece_max = [3, 30, 3000, 30_000][random.below(4)];
        assert_eq!(feed(&traffic, || 1 + random.below(piece_max)), whole, "seed {seed}");
    }
}

#[test]
fn random_octets_never_panic() {
    for seed in 1..=3000 {
        let mut random = Random(seed);
        let mut input = [&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat();
        for _ in 0..random.below(40) {
            let payload: Vec<u8> = match random.below(3) {
                0 => GET.to_vec(),
                _ => (0..random.below(20)).map(|_| random.octet()).collect(),
            };
            let frame_type = u8::try_from(random.below(11)).unwrap();
            let flags = if random.below(2) == 0 { 0x5 } else { random.octet() };
            input.extend_from_slice(&frame(frame_type, flags, u32::try_from(random.below(12)).unwrap(), &payload));
        }
        feed(&input, || usize::MAX);
    }
}

#[test]
fn damaged_traffic_never_panics() {
    let traffic = traffic();
    for seed in 1..=1500 {
        let mut random = Random(seed);
        let mut damaged = traffic.clone();
        for _ in 0..1 + random.below(8) {
            // Half of the damage is in the first 600 octets, with the preface, SETTINGS and two field blocks. The rest
            // of the input is mostly bodies, in which damage changes only data.
            let at = if random.below(2) == 0 { random.below(600) } else { random.below(damaged.len()) };
            match random.below(3) {
                0 => damaged[at] = random.octet(),
                1 => damaged[at] ^= 1 << random.below(8),
                _ => drop(damaged.remove(at)),
            }
        }
        feed(&damaged, || usize::MAX);
    }
}
