//! Checks of reads: each read shows a state that the Lease had between request and response. Each refusal has a reason.

use super::history::{Base, History, Kind, List, Op, Outcome};
use super::timeline::{Entry, Timeline, named};

/// Adds to `complaints` the faults that the reads in the history show.
pub(super) fn check(history: &History, timeline: &Timeline, complaints: &mut Vec<String>) {
    for op in &history.ops {
        check_op(timeline, op, complaints);
    }
    for list in &history.lists {
        check_list(timeline, list, complaints);
    }
}

fn check_op(timeline: &Timeline, op: &Op, complaints: &mut Vec<String>) {
    let name = named(&op.key);
    match (&op.outcome, op.kind) {
        (Outcome::State(state), Kind::Get) => {
            if let Some(known) = last_known(timeline, op)
                && state.version < known.version
            {
                let (version, known) = (state.version, known.version);
                complaints.push(format!("{name} was read at version {version} when {known} was known"));
            }
        }
        (Outcome::Refused(404), Kind::Get | Kind::Put | Kind::Patch | Kind::Delete) if !can_be_absent(timeline, op) => {
            complaints.push(format!("{:?} of {name} found nothing, but the Lease existed", op.kind));
        }
        (Outcome::Refused(409), Kind::Create) if !op.key.name.is_empty() && !can_be_present(timeline, op) => {
            complaints.push(format!("a creation of {name} was refused, but the Lease did not exist"));
        }
        (Outcome::Refused(409), Kind::Put) if is_current_throughout(timeline, op) => {
            complaints.push(format!("an update of {name} was refused, though it was made from the newest state"));
        }
        _ => {}
    }
}

/// Returns the newest state of the Lease that any client had seen when the request of `op` was sent.
fn last_known<'t>(timeline: &'t Timeline, op: &Op) -> Option<&'t Entry> {
    timeline.chain(&op.key).rfind(|entry| entry.known_us < op.sent_us)
}

fn can_be_absent(timeline: &Timeline, op: &Op) -> bool {
    let Some(known) = last_known(timeline, op) else { return true };
    let mut later = timeline.chain(&op.key).filter(|entry| entry.version >= known.version);
    later.any(|entry| entry.is_deleted && entry.sent_us <= op.done_us)
        || !timeline.is_covered(known.version, timeline.last_version())
}

fn can_be_present(timeline: &Timeline, op: &Op) -> bool {
    let mut chain = timeline.chain(&op.key).peekable();
    while let Some(entry) = chain.next() {
        let is_over = chain.peek().is_some_and(|next| next.is_deleted && next.known_us < op.sent_us);
        if !entry.is_deleted && entry.sent_us <= op.done_us && !is_over {
            return true;
        }
    }
    // A write without a response may have created the Lease, although no client has seen it. Then a 409 is correct too.
    let known = last_known(timeline, op);
    known.is_none_or(|known| known.is_deleted)
        && !timeline.is_covered(known.map_or(0, |known| known.version), timeline.last_version())
}

/// Whether an update was made from a state that was the Lease's newest state from request to response.
fn is_current_throughout(timeline: &Timeline, op: &Op) -> bool {
    let Base::Version(base) = op.base else { return false };
    let mut chain = timeline.chain(&op.key).skip_while(|entry| entry.version < base);
    if chain.next().is_none_or(|entry| entry.version != base || entry.known_us >= op.sent_us) {
        return false;
    }
    chain.next().is_none_or(|next| next.sent_us > op.done_us) && timeline.is_covered(base, timeline.last_version())
}

fn check_list(timeline: &Timeline, list: &List, complaints: &mut Vec<String>) {
    let version = list.version;
    if !list.items.is_sorted_by(|(one, _), (other, _)| one < other) {
        complaints.push(format!("the list at {version} is not in order, or has a Lease twice"));
    }
    if list.exact.is_some_and(|exact| exact != version) {
        complaints.push(format!("a list at {:?} is at {version}", list.exact));
    }
    let known = timeline.entries.iter().rfind(|entry| entry.known_us < list.sent_us);
    if let Some(known) = known
        && list.is_newest
        && known.version > version
    {
        complaints.push(format!("a list is at {version} when {} was known", known.version));
    }
    for (key, _) in
        timeline.chains.iter().filter(|(key, _)| list.namespace.as_ref().is_none_or(|own| *own == key.namespace))
    {
        let item = list.items.iter().find(|(own, _)| own == key).map(|(_, state)| state);
        let last = timeline.chain(key).rfind(|entry| entry.version <= version);
        let name = named(key);
        match (last, item) {
            (Some(last), Some(item)) if last.is_deleted || last.version != item.version => complaints.push(format!(
                "the list at {version} has {name} at {}, but the Lease last changed at {}",
                item.version, last.version
            )),
            (Some(last), None) if !last.is_deleted && timeline.is_covered(last.version, version) => {
                complaints.push(format!("the list at {version} lacks {name}, which is at {}", last.version));
            }
            _ => {}
        }
        if item.is_some_and(|item| item.version > version) {
            complaints.push(format!("the list at {version} has a later {name}"));
        }
    }
}
