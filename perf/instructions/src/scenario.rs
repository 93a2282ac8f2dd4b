//! The scenarios. Each prepares its state once and then repeats one operation.

use crate::client::{Client, Format, LEASES, Node, Request, Version, target_of};
use crate::world::World;
use coordination_apiserver::hpack::{Decoder, DecoderLimits, Encoder, FieldBuf, FieldName, Indexing};

/// A prepared scenario: each call is one operation.
pub type Operation = Box<dyn FnMut()>;

/// A scenario: its name, and its preparation.
pub type Scenario = (&'static str, fn() -> Operation);

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    ("renew-json-http1", || renewals(Version::Http1, Format::Json, 0, 0)),
    ("renew-json-http2", || renewals(Version::Http2, Format::Json, 0, 0)),
    ("renew-protobuf-http1", || renewals(Version::Http1, Format::Protobuf, 0, 0)),
    ("renew-protobuf-http2", || renewals(Version::Http2, Format::Protobuf, 0, 0)),
    ("get-json-http1", || gets(Version::Http1, 1)),
    ("get-json-http2", || gets(Version::Http2, 1)),
    ("get-json-http2-by-16", || gets(Version::Http2, 16)),
    ("renew-fan-out-to-100", || renewals(Version::Http2, Format::Json, 100, 0)),
    ("renew-beside-10000-narrow", || renewals(Version::Http2, Format::Json, 0, 10_000)),
    ("hpack-head", hpack_heads),
];

/// Number of Leases that are renewed in turn.
const NODES: usize = 64;

/// Events in the log: few, so that the log is full after the preparation.
const EVENTS_MAX: usize = 256;

/// Renews one Lease after the other, and ends the turn after each. `broad` watchers see every renewal. `narrow`
/// watchers watch one Lease each, nearly all a Lease that is not renewed.
fn renewals(version: Version, format: Format, broad: usize, narrow: usize) -> Operation {
    let mut world = World::new(EVENTS_MAX);
    let mut client = Client::connect(&mut world, version);
    let mut nodes: Vec<_> = (0..NODES).map(|number| Node::create(&mut world, &mut client, number, format)).collect();
    for _ in 0..broad {
        let mut watcher = Client::connect(&mut world, Version::Http2);
        let mut watch = watcher.request(&mut world, "GET", &format!("{LEASES}?watch=true"), Format::Json, &[]);
        watcher.send(&mut world, &mut watch);
    }
    let mut watcher = Client::connect(&mut world, Version::Http2);
    for number in 0..narrow {
        if number % 100 == 0 {
            watcher = Client::connect(&mut world, Version::Http2);
        }
        let name = target_of(number);
        let name = name.rsplit('/').next().unwrap_or_default();
        let target = format!("{LEASES}?fieldSelector=metadata.name%3D{name}&watch=true");
        let mut watch = watcher.request(&mut world, "GET", &target, Format::Json, &[]);
        watcher.send(&mut world, &mut watch);
    }
    let is_watched = broad + narrow > 0;
    let mut at = 0;
    let mut operation = move || {
        let before = world.service.table.version();
        nodes[at].renew(&mut world, &mut client);
        at = (at + 1) % NODES;
        let bytes = world.fan_out();
        assert_eq!(world.service.table.version().0, before.0 + 1, "a renewal that changed nothing");
        assert_eq!(bytes > 0, is_watched, "events without a reader");
    };
    // Now every buffer and table has its final size, and the log is full.
    (0..4 * EVENTS_MAX).for_each(|_| operation());
    Box::new(operation)
}

/// Reads one Lease after the other, `together` of them in one piece.
fn gets(version: Version, together: usize) -> Operation {
    let mut world = World::new(EVENTS_MAX);
    let mut client = Client::connect(&mut world, version);
    let requests: Vec<Request> = (0..NODES)
        .map(|number| {
            let _ = Node::create(&mut world, &mut client, number, Format::Json);
            client.request(&mut world, "GET", &target_of(number), Format::Json, &[])
        })
        .collect();
    let mut requests: Vec<_> = requests.chunks(together).map(Request::join).collect();
    let mut at = 0;
    let mut operation = move || {
        let answers = client.send(&mut world, &mut requests[at]);
        assert!(answers.len() > 500 * together, "an answer without a Lease");
        at = (at + 1) % requests.len();
    };
    (0..2 * NODES).for_each(|_| operation());
    Box::new(operation)
}

/// Decodes the head of a request and encodes the head of a response, as on connections in use.
fn hpack_heads() -> Operation {
    let limits = DecoderLimits { list_size_max: 65_536, list_size_abort: 131_072 };
    let (mut encoder, mut decoder, mut fields) = (Encoder::new(4096), Decoder::new(4096, limits), FieldBuf::new());
    let path = target_of(77);
    let request = |encoder: &mut Encoder, block: &mut Vec<u8>| {
        block.clear();
        encoder.begin_block(block);
        for (name, value, indexing) in [
            (":method", "PUT", Indexing::Value),
            (":scheme", "https", Indexing::Value),
            (":path", &path, Indexing::Name),
            (":authority", "127.0.0.1:6443", Indexing::Value),
            ("accept", "application/json", Indexing::Value),
            ("user-agent", "kubelet/v1.34.1 (linux/amd64) kubernetes/93248f9", Indexing::Value),
            ("content-type", "application/json", Indexing::Value),
            ("content-length", "900", Indexing::Value),
        ] {
            encoder.encode_field(FieldName::new(name.as_bytes()), value.as_bytes(), indexing, block);
        }
    };
    let mut block = Vec::new();
    for _ in 0..2 {
        request(&mut encoder, &mut block);
        assert!(decoder.decode(&block, &mut fields).is_ok(), "our own block");
    }
    let (mut responses, mut out) = (Encoder::new(4096), Vec::new());
    let mut operation = move || {
        assert!(decoder.decode(&block, &mut fields).is_ok(), "our own block");
        out.clear();
        responses.begin_block(&mut out);
        responses.encode_status(200, &mut out);
        for (name, value) in [
            ("cache-control", "no-cache, private"),
            ("content-type", "application/json"),
            ("date", "Sat, 21 Nov 2026 00:02:25 GMT"),
            ("content-length", "900"),
        ] {
            responses.encode_field(FieldName::new(name.as_bytes()), value.as_bytes(), Indexing::Value, &mut out);
        }
    };
    operation();
    Box::new(operation)
}
