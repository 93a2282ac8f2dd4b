//! Checks of writes: each acknowledged write took effect once, on the state that it names. Each state has a request
//! that wrote it.

use super::history::{Base, History, Key, Kind, Op, Outcome};
use super::timeline::{Entry, Timeline, named};
use std::collections::BTreeMap;

/// Adds to `complaints` the faults that the writes in the history show.
pub(super) fn check(history: &History, timeline: &Timeline, by_tag: &BTreeMap<u64, &Op>, complaints: &mut Vec<String>) {
    check_authors(timeline, by_tag, complaints);
    for key in timeline.chains.keys() {
        check_chain(timeline, key, by_tag, complaints);
    }
    check_order(timeline, complaints);
    check_answers(history, complaints);
    check_deletions(history, timeline, complaints);
}

fn check_authors(timeline: &Timeline, by_tag: &BTreeMap<u64, &Op>, complaints: &mut Vec<String>) {
    let mut versions = BTreeMap::new();
    for entry in timeline.entries.iter().filter(|entry| !entry.is_deleted) {
        let (name, version) = (named(&entry.key), entry.version);
        let Some(op) = by_tag.get(&entry.state.tag) else {
            complaints.push(format!("no client wrote {name} at version {version}"));
            continue;
        };
        if let Some(other) = versions.insert(entry.state.tag, version) {
            complaints.push(format!("one write of {name} took effect twice: at versions {other} and {version}"));
        }
        let is_named = op.key == entry.key
            || op.key.name.is_empty() && op.key.namespace == entry.key.namespace && entry.key.name.starts_with("g-");
        if !is_named {
            complaints.push(format!("a write of {} changed {name} at version {version}", named(&op.key)));
        }
        match (&op.outcome, op.kind) {
            (_, Kind::Dry) => complaints.push(format!("a dry run changed {name} at version {version}")),
            (Outcome::Refused(status), _) => {
                complaints
                    .push(format!("a write of {name} was refused with {status}, but took effect at version {version}"));
            }
            (Outcome::State(state), _) if state.version != version => {
                let answered = state.version;
                complaints.push(format!(
                    "a write of {name} was answered with version {answered}, but is at version {version}"
                ));
            }
            _ => {}
        }
        if op.sent_us > entry.known_us {
            complaints.push(format!("{name} was seen at version {version} before it was written"));
        }
    }
}

/// Checks that each state is made from the previous state of the Lease.
fn check_chain(timeline: &Timeline, key: &Key, by_tag: &BTreeMap<u64, &Op>, complaints: &mut Vec<String>) {
    let name = named(key);
    let mut before: Option<&Entry> = None;
    for entry in timeline.chain(key) {
        let last = before.replace(entry);
        let (version, from) = (entry.version, last.map_or(0, |last| last.version));
        let is_whole = timeline.is_covered(from, version);
        let there = last.filter(|last| !last.is_deleted);
        if entry.is_deleted {
            if there.is_none_or(|there| (&there.state.uid, there.state.tag) != (&entry.state.uid, entry.state.tag))
                && is_whole
                && from > 0
            {
                complaints.push(format!("version {version} deletes a state of {name} that did not exist"));
            }
            continue;
        }
        let base = by_tag.get(&entry.state.tag).map_or(Base::Any, |op| op.base);
        match base {
            Base::Version(base) if there.is_none_or(|there| there.version != base) => {
                // Unless watchers have seen every version after `from` up to `version`, a state that no client saw may
                // lie between the two. Then only `from >= base` proves that an update is lost.
                if from >= base || is_whole {
                    complaints.push(format!(
                        "version {version} of {name} was made from {base}, but the version before it is {from}: \
                         an update is lost"
                    ));
                }
            }
            Base::Absent if there.is_some_and(|there| is_whole || there.state.uid == entry.state.uid) => {
                complaints.push(format!("{name} was created at {version} while it existed at {from}"));
            }
            Base::Absent | Base::Any | Base::Version(_) => {}
        }
        if let Some(last) = last {
            let is_same = last.state.uid == entry.state.uid;
            if is_same && last.is_deleted || !is_same && !last.is_deleted && is_whole {
                complaints.push(format!("the UID of {name} is wrong at version {version}, after {from}"));
            }
        }
    }
}

/// Checks the order of versions: a write that was sent after a client saw a version must have a higher version.
fn check_order(timeline: &Timeline, complaints: &mut Vec<String>) {
    let mut known: Option<&Entry> = None;
    for entry in timeline.entries.iter().rev() {
        if let Some(known) = known.filter(|known| known.known_us < entry.sent_us) {
            complaints.push(format!(
                "{} at version {} was written after version {} was known",
                named(&entry.key),
                entry.version,
                known.version
            ));
        }
        if known.is_none_or(|known| entry.known_us < known.known_us) {
            known = Some(entry);
        }
    }
}

/// Time for which writes may still be refused as full after the disk has space again, in microseconds. After a commit
/// that found the disk full, the journal refuses all writes for a while.
const FULL_FELT_US: u64 = 5_000_000;

fn check_answers(history: &History, complaints: &mut Vec<String>) {
    for op in &history.ops {
        let name = named(&op.key);
        match (&op.outcome, op.kind) {
            (_, Kind::Dry) => {}
            (Outcome::Unreadable, _) => complaints.push(format!("an answer about {name} makes no sense")),
            (Outcome::State(state), Kind::Create | Kind::Patch | Kind::Put) if state.tag != op.tag => {
                complaints
                    .push(format!("the answer to a write of {name} shows another state, of version {}", state.version));
            }
            // This 507 is from a server with a disk. `Client` records a replica's 507 as an unknown outcome, and itself
            // checks whether etcd has been full.
            (Outcome::Refused(507), kind) => {
                let is_full =
                    |(from_us, until_us): &(u64, u64)| *from_us <= op.done_us && op.sent_us <= until_us + FULL_FELT_US;
                if !history.full.iter().any(is_full) {
                    complaints.push(format!("{kind:?} of {name} found no space, but there was space"));
                }
            }
            // The API requires that an update of a Lease names a resourceVersion.
            (Outcome::Refused(422), Kind::Put) if op.base == Base::Any => {}
            (Outcome::Refused(404 | 409 | 429 | 503), _) => {}
            (Outcome::Refused(status), kind) => {
                complaints.push(format!("{kind:?} of {name} was refused with {status}"));
            }
            _ => {}
        }
    }
}

/// Checks that each acknowledged deletion of a Lease took effect exactly once.
fn check_deletions(history: &History, timeline: &Timeline, complaints: &mut Vec<String>) {
    let deleted = timeline.deleted_uids();
    let end = timeline.last_version();
    let mut acknowledged = BTreeMap::new();
    for op in history.ops.iter().filter(|op| matches!(op.kind, Kind::Delete | Kind::DeleteCollection)) {
        let Outcome::Deleted(uids) = &op.outcome else { continue };
        for uid in uids {
            let others = acknowledged.insert(uid, op);
            if others.is_some_and(|other| other.kind == Kind::Delete && op.kind == Kind::Delete) {
                complaints.push(format!("two requests deleted the same {}", named(&op.key)));
            }
            let last = timeline.entries.iter().rev().find(|entry| entry.state.uid == *uid);
            if let Some(last) = last
                && !deleted.contains(uid.as_str())
                && timeline.is_covered(last.version, end.max(last.version + 1))
            {
                complaints.push(format!("{} was deleted, but no version shows the deletion", named(&last.key)));
            }
        }
    }
}
