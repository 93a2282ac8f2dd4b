//! Checks of watches: over all its connections, a watcher sees each version of its namespace exactly once, with the
//! right kind of event. The watcher itself checks the order of the versions (`clients::watcher`).

use super::history::{Feed, History, SeenKind};
use super::timeline::{Timeline, named};
use std::collections::BTreeSet;

/// Adds to `complaints` the faults that the watches in the history show.
pub(super) fn check(history: &History, timeline: &Timeline, complaints: &mut Vec<String>) {
    for feed in &history.feeds {
        let who = feed.client.0;
        check_feed(timeline, feed, |what| complaints.push(format!("watcher {who}: {what}")));
    }
}

fn check_feed(timeline: &Timeline, feed: &Feed, mut complain: impl FnMut(String)) {
    let is_own = |namespace: &str| feed.namespace.as_deref().is_none_or(|own| own == namespace);
    let seen: BTreeSet<u64> = feed.events.iter().map(|event| event.state.version).collect();
    if seen.len() < feed.events.len() {
        complain("an event came twice".to_owned());
    }
    for entry in timeline.entries.iter().filter(|entry| is_own(&entry.key.namespace)) {
        let is_due = feed.start < entry.version && entry.version <= feed.seen;
        if is_due && !seen.contains(&entry.version) {
            complain(format!("{} at version {} was missed", named(&entry.key), entry.version));
        }
        if feed.is_open && entry.version > feed.seen {
            complain(format!(
                "{} at version {} was not seen by the end; the watch is at {}",
                named(&entry.key),
                entry.version,
                feed.seen
            ));
        }
    }
    for event in &feed.events {
        let version = event.state.version;
        if !is_own(&event.key.namespace) {
            complain(format!("an event of another namespace, {}", named(&event.key)));
        }
        let last = timeline.chain(&event.key).rfind(|entry| entry.version < version);
        let is_there = last.is_some_and(|last| !last.is_deleted);
        let is_known = timeline.is_covered(last.map_or(0, |last| last.version), version);
        let is_right = match event.kind {
            SeenKind::Added => !is_there,
            SeenKind::Deleted | SeenKind::Modified => is_there,
        };
        if is_known && !is_right {
            complain(format!("{:?} of {} at version {version} is the wrong kind", event.kind, named(&event.key)));
        }
    }
}
