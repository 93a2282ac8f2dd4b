//! Two ends of a connection, which exchange bytes in memory. Goal: whatever the window sizes and wherever the input is
//! cut, all bodies arrive whole in both directions, and no stream stays open.

use super::*;
use crate::hpack::tests::Random;
use crate::http2::{OpenError, RequestLine, SendField};
use std::collections::HashMap;

const REQUESTS: usize = 60;

/// Returns a body that either end can compute from the seed.
fn body(seed: u64) -> Vec<u8> {
    let mut random = Random(seed * 2 + 1);
    let length = [0, 1, 700, 16_384, 16_385, 100_000][random.below(6)] + random.below(2000);
    (0..length).map(|_| random.octet()).collect()
}

/// One end, with the data to send and the data received.
struct Peer {
    end: End,
    unsent: HashMap<StreamKey, (Vec<u8>, bool)>,
    got: HashMap<StreamKey, Vec<u8>>,
    done: usize,
}

impl Peer {
    fn new(connection: Connection, out: Vec<u8>) -> Self {
        Self { end: End::new(connection, out), unsent: HashMap::new(), got: HashMap::new(), done: 0 }
    }

    fn send(&mut self, key: StreamKey, mut data: Vec<u8>, with_trailers: bool) {
        let sent = self.end.connection.send_data(key, &data, !with_trailers, &mut self.end.out).unwrap();
        if sent < data.len() {
            data.drain(..sent);
            self.unsent.insert(key, (data, with_trailers));
        } else if with_trailers {
            let trailers = [SendField::repeated(FieldName::new(b"x-end"), b"yes")];
            self.end.connection.send_trailers(key, &trailers, &mut self.end.out).unwrap();
        }
    }

    /// Receives input. Returns the streams whose messages end in it, each with its body.
    fn recv(&mut self, input: &[u8], seed: u64) -> Vec<(StreamKey, Vec<u8>)> {
        let mut whole = Vec::new();
        for event in self.end.recv(input).unwrap_or_else(|error| panic!("seed {seed}: {error}")) {
            let key = event.stream();
            let is_end = match event {
                Got::Request { end_stream, .. } | Got::Response { end_stream, .. } => end_stream,
                Got::Data { data, end_stream, .. } => {
                    self.got.entry(key).or_default().extend(data);
                    end_stream
                }
                Got::Trailers { .. } => true,
                other => panic!("seed {seed}: {other:?}"),
            };
            if is_end {
                whole.push((key, self.got.remove(&key).unwrap_or_default()));
            }
        }
        whole
    }

    fn send_more(&mut self) {
        while let Some(key) = self.end.connection.poll_writable() {
            let (data, with_trailers) = self.unsent.remove(&key).unwrap();
            self.send(key, data, with_trailers);
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut config = || Config {
        streams_max: 1 + u32::try_from(random.below(20)).unwrap(),
        stream_window: 1024 + u32::try_from(random.below(100_000)).unwrap(),
        connection_window: 65_535 + u32::try_from(random.below(100_000)).unwrap(),
        speaks_for_many: false,
    };
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let client = Connection::client(config(), &mut to_server);
    let server = Connection::server(config(), &mut to_client);
    let (mut client, mut server) = (Peer::new(client, to_server), Peer::new(server, to_client));
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut opened = 0;
    for round in 0.. {
        assert!(round < 200_000, "seed {seed}: it goes on for ever");
        if server.done == REQUESTS && client.done == REQUESTS {
            break;
        }
        client.end.now_ms += 10;
        server.end.now_ms += 10;
        if opened < REQUESTS && random.below(3) == 0 {
            let line = RequestLine {
                method: b"POST",
                scheme: b"https",
                authority: b"a",
                path: b"/",
                path_indexing: Indexing::Value,
            };
            match client.end.connection.send_request(&line, &[], false, &mut client.end.out) {
                Ok(key) => {
                    opened += 1;
                    client.send(key, body(u64::from(key.id().value())), random.below(2) == 0);
                }
                Err(OpenError::Concurrency) => {}
                Err(OpenError::GoingAway) => panic!("seed {seed}"),
            }
        }
        to_server.append(&mut client.end.out);
        to_client.append(&mut server.end.out);
        let piece: Vec<u8> = to_server.drain(..random.below(to_server.len().min(50_000) + 1)).collect();
        for (key, got) in server.recv(&piece, seed) {
            let number = u64::from(key.id().value());
            assert!(got == body(number), "seed {seed}");
            server.end.connection.send_head(key, 200, &[], false, &mut server.end.out).unwrap();
            server.send(key, body(number + 1), random.below(2) == 0);
            server.done += 1;
        }
        server.send_more();
        let piece: Vec<u8> = to_client.drain(..random.below(to_client.len().min(50_000) + 1)).collect();
        for (key, got) in client.recv(&piece, seed) {
            assert!(got == body(u64::from(key.id().value()) + 1), "seed {seed}");
            client.done += 1;
        }
        client.send_more();
    }
    assert_eq!((client.end.connection.stream_count(), server.end.connection.stream_count()), (0, 0), "seed {seed}");
}

#[test]
fn bodies_arrive_whole_with_random_windows() {
    (1..=20).for_each(run);
}
