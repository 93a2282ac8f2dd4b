//! The scenarios whose instructions and allocations are counted. Each prepares its state once and then repeats one
//! operation.

use crate::client::{Client, Format, LEASES, Node, Request, Version, target_of};
use crate::world::World;
use coordination_apiserver::hpack::{Decoder, DecoderLimits, Encoder, FieldBuf, FieldName, Indexing};

/// A prepared scenario. Each call runs the operation once.
pub type Operation = Box<dyn FnMut()>;

/// The name of a scenario, and the function that prepares it.
pub type Scenario = (&'static str, fn() -> Operation);

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &[
    ("renew-json-http1", || renewals(Version::Http1, Format::Json, Beside::Nobody)),
    ("renew-json-http2", || renewals(Version::Http2, Format::Json, Beside::Nobody)),
    ("renew-protobuf-http1", || renewals(Version::Http1, Format::Protobuf, Beside::Nobody)),
    ("renew-protobuf-http2", || renewals(Version::Http2, Format::Protobuf, Beside::Nobody)),
    ("get-json-http1", || gets(Version::Http1, 1)),
    ("get-json-http2", || gets(Version::Http2, 1)),
    ("get-json-http2-by-16", || gets(Version::Http2, 16)),
    ("renew-fan-out-to-100", || renewals(Version::Http2, Format::Json, Beside::Broad(100))),
    ("renew-beside-10000-narrow", || renewals(Version::Http2, Format::Json, Beside::Narrow(10_000))),
    ("renew-fan-out-to-1", || renewals(Version::Http2, Format::Json, Beside::Broad(1))),
    ("renew-beside-64-shards", || renewals(Version::Http2, Format::Json, Beside::Shards(64))),
    ("hpack-head", hpack_heads),
];

/// The watchers that are open while Leases are renewed.
#[derive(Clone, Copy)]
enum Beside {
    Nobody,
    /// Watchers of all Leases, each on a connection of its own.
    Broad(usize),
    /// Watchers of one Lease each. Nearly all of these Leases are not renewed.
    Narrow(usize),
    /// Watchers of one shard of the Leases each (`shardSelector`). Together they see every renewal once.
    Shards(usize),
}

impl Beside {
    /// Returns the targets of watches, grouped by the connection of the watchers.
    fn targets(self) -> Vec<Vec<String>> {
        match self {
            Self::Nobody => Vec::new(),
            Self::Broad(count) => vec![vec![format!("{LEASES}?watch=true")]; count],
            Self::Narrow(count) => {
                let name = |number| target_of(number).rsplit('/').next().map(str::to_owned).unwrap_or_default();
                let target = |number| format!("{LEASES}?fieldSelector=metadata.name%3D{}&watch=true", name(number));
                (0..count).map(target).collect::<Vec<_>>().chunks(100).map(<[String]>::to_vec).collect()
            }
            Self::Shards(count) => {
                let bound = |index: usize| (1_u128 << 64) * index as u128 / count as u128;
                let range = |index| format!("%270x{:016x}%27,%270x{:016x}%27", bound(index), bound(index + 1));
                let selector = |index| format!("shardRange(object.metadata.uid,{})", range(index));
                vec![(0..count).map(|index| format!("{LEASES}?watch=true&shardSelector={}", selector(index))).collect()]
            }
        }
    }
}

/// Number of Leases that a scenario renews or reads in turn.
const NODES: usize = 64;

/// Maximum number of events in the event log. The number is small, so that the log is full after the preparation.
const EVENTS_MAX: usize = 256;

/// Returns the operation that renews the next Lease, with the watchers of `beside`. Each renewal's events are
/// delivered.
fn renewals(version: Version, format: Format, beside: Beside) -> Operation {
    let mut world = World::new(EVENTS_MAX);
    world.service.api.features.sharded_list_and_watch = true;
    let mut client = Client::connect(&mut world, version);
    let mut nodes: Vec<_> = (0..NODES).map(|number| Node::create(&mut world, &mut client, number, format)).collect();
    let connections = beside.targets();
    for targets in &connections {
        let mut watcher = Client::connect(&mut world, Version::Http2);
        for target in targets {
            let mut watch = watcher.request(&mut world, "GET", target, Format::Json, &[]);
            watcher.send(&mut world, &mut watch);
        }
    }
    let is_watched = !connections.is_empty();
    let mut at = 0;
    let mut operation = move || {
        let before = world.service.table.version();
        nodes[at].renew(&mut world, &mut client);
        at = (at + 1) % NODES;
        let bytes = world.fan_out();
        assert_eq!(world.service.table.version().0, before.0 + 1, "a renewal that changed nothing");
        assert_eq!(bytes > 0, is_watched, "events without a reader");
    };
    // After these operations every buffer and table has its final size, and the event log is full.
    (0..4 * EVENTS_MAX).for_each(|_| operation());
    Box::new(operation)
}

/// Returns the operation that reads the next `together` Leases: one GET for each, all sent together.
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

/// Returns the operation that decodes a request's head and encodes a response's head, as on a connection in use.
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
