//! Operations and states of Leases as text, for the descriptions of violations.

use crate::history::{Action, Nanos, Op, Outcome, Seen};

/// Formats a time as seconds since the start of the run. `Nanos::MAX` is the end of an operation whose request may take
/// effect at any later time.
pub(super) fn at(time: Nanos) -> String {
    if time == Nanos::MAX {
        return "later".to_owned();
    }
    format!("{}.{:06} s", time / 1_000_000_000, time / 1_000 % 1_000_000)
}

/// Describes the state of a Lease.
pub(super) fn state(seen: &Seen) -> String {
    format!("{} at version {} (operation {}, client-{})", seen.key, seen.version, seen.op, seen.holder)
}

/// Describes an operation: its client, request, times and outcome.
pub(super) fn op(op: &Op) -> String {
    let action = match op.action {
        Action::Create(key) => format!("POST {key}"),
        Action::Put { key, from, .. } => format!("PUT {key} from version {from}"),
        Action::Patch(key) => format!("PATCH {key}"),
        Action::Delete { key, from: Some(from), .. } => format!("DELETE {key} of version {from}"),
        Action::Delete { key, .. } => format!("DELETE {key} by uid"),
        Action::DeleteCollection(space) => format!("DELETE all of {}", space.name()),
        Action::Get(key) => format!("GET {key}"),
        Action::List(None) => "LIST all".to_owned(),
        Action::List(Some(space)) => format!("LIST {}", space.name()),
    };
    let outcome = match &op.outcome {
        Outcome::Lease(seen) => format!("acknowledged with version {}", seen.version),
        Outcome::Deleted => "acknowledged".to_owned(),
        Outcome::List { version, items } => format!("answered with {} Leases at version {version}", items.len()),
        Outcome::NotFound => "answered with 404".to_owned(),
        Outcome::Conflict => "answered with 409".to_owned(),
        Outcome::Refused(status) => format!("answered with {status}"),
        Outcome::Unknown => "with an unknown outcome".to_owned(),
    };
    if op.id == Op::BOUNDARY {
        return format!("the list of all Leases while no client wrote, {outcome} at {}", at(op.end));
    }
    format!("operation {}, {action}, sent at {}, {outcome} at {}", op.id, at(op.begin), at(op.end))
}
