//! The memory that a Lease, an idle connection and a watcher take. The caller counts the allocated bytes.

use crate::client::{Client, Format, LEASES, Node, Version, target_of};
use crate::world::World;

/// Maximum number of events in the event log of the server. The number is small, so that the log takes little of the
/// measured memory.
const EVENTS_MAX: usize = 16;

/// Returns the bytes that each of `count` Leases takes, with indexes, by the format of its requests. `live` returns the
/// number of allocated bytes.
pub fn of_leases(count: usize, live: &dyn Fn() -> usize) -> Vec<(&'static str, usize)> {
    let mut measured = Vec::new();
    for (name, format) in
        [("a Lease, created and renewed in JSON", Format::Json), ("a Lease, renewed in protobuf", Format::Protobuf)]
    {
        let mut world = World::new(EVENTS_MAX);
        let mut client = Client::connect(&mut world, Version::Http1);
        // With the first Lease, the server allocates memory that all Leases share.
        let _ = Node::create(&mut world, &mut client, count, format);
        let before = live();
        for number in 0..count {
            let mut node = Node::create(&mut world, &mut client, number, format);
            node.renew(&mut world, &mut client);
        }
        measured.push((name, live().saturating_sub(before) / count));
    }
    measured
}

/// Returns the bytes that each of `count` idle connections takes, except for its socket and TLS. Each has served a
/// request.
pub fn of_connections(count: usize, live: &dyn Fn() -> usize) -> Vec<(&'static str, usize)> {
    let mut measured = Vec::new();
    for (name, version) in
        [("an idle connection, HTTP/1.1", Version::Http1), ("an idle connection, HTTP/2", Version::Http2)]
    {
        let mut world = World::new(EVENTS_MAX);
        let mut first = Client::connect(&mut world, version);
        let _ = Node::create(&mut world, &mut first, 0, Format::Json);
        let before = live();
        for _ in 0..count {
            let mut client = Client::connect(&mut world, version);
            let mut get = client.request(&mut world, "GET", &target_of(0), Format::Json, &[]);
            client.send(&mut world, &mut get);
        }
        world.forget_outputs();
        measured.push((name, live().saturating_sub(before) / count));
    }
    measured
}

/// Returns the bytes that each of `count` watchers on one connection takes.
pub fn of_watchers(count: usize, live: &dyn Fn() -> usize) -> Vec<(&'static str, usize)> {
    let mut measured = Vec::new();
    for (name, narrow) in [("a watcher of a namespace", false), ("a watcher of one Lease", true)] {
        let mut world = World::new(EVENTS_MAX);
        let mut client = Client::connect(&mut world, Version::Http2);
        let before = live();
        for number in 0..count {
            let target = if narrow {
                format!("{LEASES}?watch=1&fieldSelector=metadata.name%3Dnode-{number:06}")
            } else {
                format!("{LEASES}?watch=1")
            };
            let mut watch = client.request(&mut world, "GET", &target, Format::Json, &[]);
            client.send(&mut world, &mut watch);
            world.fan_out();
        }
        world.forget_outputs();
        measured.push((name, live().saturating_sub(before) / count));
    }
    measured
}
