//! Checks of reads and refusals: what a response says must have been true at some moment between the request and the
//! response.

use super::replay::Point;
use super::{Checker, Epoch, Kind, Timelines, explain};
use crate::history::{Action, Nanos, Op, Outcome};

impl Checker {
    /// Checks all responses that show a state of a Lease, its absence, or a conflict.
    pub(super) fn check_reads(&mut self, epoch: &Epoch, timelines: &Timelines) {
        let global = known_versions(timelines);
        for op in &epoch.ops {
            if let Outcome::List { version, .. } = op.outcome {
                self.check_list_time(op, version, &global);
            }
            let Some(points) = op.action.key().and_then(|key| timelines.get(&key)) else { continue };
            // Index of the last state that was known before the request was sent. The response must be true for this
            // state or a later one.
            let last_known = points.partition_point(|point| point.known < op.begin).saturating_sub(1);
            let possible = points.get(last_known..).unwrap_or_default();
            let mut possible = possible.iter().filter(|point| point.begin < op.end);
            match (&op.outcome, op.action) {
                (Outcome::Lease(seen), Action::Get(_))
                    if !possible.any(|point| point.is_present && point.version == seen.version) =>
                {
                    self.complain_stale(op, points.get(last_known));
                }
                (Outcome::NotFound, _) if !possible.any(|point| !point.is_present) => {
                    self.complain_stale(op, points.get(last_known));
                }
                (Outcome::Conflict, action) if !possible.any(|point| conflicts(point, action)) => {
                    let text = format!("{}: but no state conflicts with it", explain::op(op));
                    self.complain(Kind::FalseRefusal, text);
                }
                _ => {}
            }
        }
    }

    fn complain_stale(&mut self, op: &Op, last_known: Option<&Point>) {
        let known = match last_known {
            Some(point) if point.is_present => {
                format!("version {} was known at {}", point.version, explain::at(point.known))
            }
            _ => "the Lease was known to be absent".to_owned(),
        };
        self.complain(Kind::StaleRead, format!("{}: but {known}", explain::op(op)));
    }

    /// Checks that a list's version is at least the highest version that any response or event had shown before the
    /// request for the list.
    fn check_list_time(&mut self, op: &Op, version: u64, global: &[(u64, Nanos)]) {
        let known = global.partition_point(|(_, known)| *known < op.begin);
        let least = known.checked_sub(1).and_then(|index| global.get(index)).map_or(0, |(version, _)| *version);
        let least = least.max(self.boundary);
        if version < least {
            let text = format!("{}: but version {least} was known before", explain::op(op));
            self.complain(Kind::StaleRead, text);
        }
    }
}

/// Whether this state of a Lease conflicts with the write, so that a 409 is correct.
fn conflicts(point: &Point, action: Action) -> bool {
    match action {
        Action::Create(_) => point.is_present,
        Action::Put { from, .. } => !point.is_present || point.version != from,
        Action::Delete { uid, from, .. } => {
            !point.is_present || point.uid != uid || from.is_some_and(|from| from != point.version)
        }
        // The server refuses a patch after repeated conflicts with other writes. So a 409 is correct in any state.
        Action::Patch(_) => true,
        _ => false,
    }
}

/// Returns all versions of the epoch in order. Each has the time when a response or event first showed this version or
/// a higher one: from then on, reads must include the version.
fn known_versions(timelines: &Timelines) -> Vec<(u64, Nanos)> {
    let points = timelines.values().flat_map(|points| points.iter().skip(1));
    let mut global: Vec<_> = points.map(|point| (point.version, point.known)).collect();
    global.sort_unstable();
    let mut known = Nanos::MAX;
    for entry in global.iter_mut().rev() {
        known = known.min(entry.1);
        entry.1 = known;
    }
    global
}
