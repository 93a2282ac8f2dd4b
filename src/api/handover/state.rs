//! The state of the hand-over: the move of Leases from or to built-in storage ([`crate::handover`]). Two Leases of this
//! server's own store, the Leases of the hand-over, contain the state. Every replica reads them. The active replica
//! writes its step and its progress to them.

use super::Mode;
use crate::api::identity::micros;
use crate::api::storage::{Storage, Written};
use crate::clock::Now;
use crate::handover::{
    API_SERVICE_UID, ASKED, MESSAGE, NAME, NAMESPACE, PHASE, PROGRESS_NAME, Phase, ROUND, STEP, Step, WRITTEN,
};
use crate::lease::{Lease, ObjectMeta, StringMap};
use crate::resource::ResourceVersion;
use crate::table::Table;
use crate::table::change::Change;
use crate::table::object::Object;
use compact_str::{CompactString, format_compact};
use uuid::Uuid;

/// The state of the hand-over, as this replica has read it from the two Leases of the hand-over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HandoverState {
    /// Phase that a command has requested; `None` before the first hand-over, and for a phase of a newer release.
    pub(super) phase: Option<Phase>,
    /// Word for the requested phase, if this release does not know the phase.
    pub(super) unknown_phase: Option<CompactString>,
    /// Id of the command's request for the phase.
    pub(super) asked: CompactString,
    /// Last step that the phase has reached; `None` before its first step.
    pub(super) step: Option<Step>,
    /// UID of the APIService with which a replica has served the Leases; `None` until a replica has recorded the UID.
    pub(super) api_service: Option<String>,
    /// `renewTime` of the Lease of the hand-over, in seconds since the epoch: the time at which a command last
    /// requested a phase, or a replica last wrote a step or a message.
    pub(super) since: Option<i64>,
    /// Progress of the rounds. It is read only in the mode [`Mode::Following`], and is zero in any other mode.
    pub(super) progress: Progress,
}

/// The progress of the rounds, in which the active replica copies Leases between built-in storage and the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of the last round whose imported changes are in the table.
    pub(super) round: u64,
    /// `resourceVersion` of the table up to which this server's writes are in built-in storage. Of these writes,
    /// built-in storage lacks only those that a write of its own clients has superseded.
    pub(super) written: ResourceVersion,
}

impl HandoverState {
    pub(super) fn of(object: &Object) -> Self {
        let annotations = &object.metadata().annotations;
        let word = annotations.value(PHASE);
        let phase: Option<Phase> = word.and_then(|word| word.parse().ok());
        Self {
            phase,
            unknown_phase: word.filter(|_| phase.is_none()).map(CompactString::from),
            asked: annotations.value(ASKED).unwrap_or_default().into(),
            step: annotations.value(STEP).and_then(|word| word.parse().ok()),
            api_service: annotations.value(API_SERVICE_UID).map(str::to_owned),
            since: object.renew_time().map(|time| time.0 / 1_000_000),
            progress: Progress::default(),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        // This release does not know the phase that a command of a newer release has requested. That command may rely
        // on one fact: no client can write.
        if self.unknown_phase.is_some() {
            return Mode::Frozen;
        }
        match (self.phase, self.step) {
            (None, _) | (Some(Phase::Serve), Some(Step::Serving)) => Mode::Open,
            (Some(Phase::Undo | Phase::Freeze | Phase::Hold), _) | (Some(Phase::Serve), Some(Step::NotOurs)) => {
                Mode::Frozen
            }
            (Some(Phase::Import | Phase::Serve), _) => Mode::Following,
            (Some(Phase::Copy), _) => Mode::Renewals,
        }
    }
}

impl Progress {
    /// Reads the progress from the Lease that stores it.
    pub(super) fn of(table: &Table) -> Self {
        let number =
            |object: &Object, name| object.metadata().annotations.value(name).and_then(|text| text.parse().ok());
        table.find(NAMESPACE, PROGRESS_NAME).map_or_else(Self::default, |(_, object)| Self {
            round: number(object, ROUND).unwrap_or_default(),
            written: ResourceVersion(number(object, WRITTEN).unwrap_or_default()),
        })
    }
}

/// Writes the progress to the Lease that stores it. Does nothing if the journal refuses the change.
pub(super) fn publish(table: &mut Table, storage: &mut Storage, progress: Progress, now: Now) {
    let round = (ROUND.into(), format_compact!("{}", progress.round));
    let written = (WRITTEN.into(), format_compact!("{}", progress.written));
    let change = match table.find(NAMESPACE, PROGRESS_NAME) {
        Some((slot, object)) => {
            let mut lease = object.lease().into_owned();
            lease.metadata.annotations = [round, written].into_iter().collect();
            Change::Replace(table.target(slot), Box::new(lease))
        }
        None => Change::Create(Box::new(Lease {
            metadata: ObjectMeta {
                name: PROGRESS_NAME.into(),
                namespace: NAMESPACE.into(),
                uid: format_compact!("{}", Uuid::new_v4()),
                creation_timestamp: Some(now.wall),
                annotations: [round, written].into_iter().collect(),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        })),
    };
    _ = storage.write(table, change, now.ms);
}

/// Writes a step and a message to the Lease of the hand-over. Returns whether the journal accepted the change, or the
/// Lease already had this step and this message.
pub(super) fn say(table: &mut Table, storage: &mut Storage, step: Option<Step>, message: &str, now: Now) -> bool {
    annotate(table, storage, message, now, |annotations| {
        if let Some(step) = step {
            annotations.insert(STEP.into(), step.name().into());
        }
    })
}

/// Writes to the Lease of the hand-over why a built-in Lease cannot be imported. Also removes the step from the Lease
/// of the hand-over. Without the step [`Step::Imported`], the command `takeover` does not replace the APIService.
pub(super) fn say_refused(table: &mut Table, storage: &mut Storage, why: &str, now: Now) {
    annotate(table, storage, why, now, |annotations| {
        let others = annotations.iter().filter(|(name, _)| *name != STEP);
        *annotations = others.map(|(name, value)| (name.into(), value.into())).collect();
    });
}

/// Writes `message` to an annotation of the Lease [`NAME`]. The function `change` changes the other annotations.
///
/// Returns `false` if the Lease does not exist, or if the journal refused the write. Returns `true` if the journal
/// accepted the write, or if the Lease already has these annotations.
fn annotate(
    table: &mut Table,
    storage: &mut Storage,
    message: &str,
    now: Now,
    change: impl FnOnce(&mut StringMap),
) -> bool {
    let Some((slot, object)) = table.find(NAMESPACE, NAME) else { return false };
    let mut lease = object.lease().into_owned();
    change(&mut lease.metadata.annotations);
    lease.metadata.annotations.insert(MESSAGE.into(), message.into());
    if lease == *object.lease() {
        return true;
    }
    lease.spec.renew_time = Some(micros(now));
    let change = Change::Replace(table.target(slot), Box::new(lease));
    matches!(storage.write(table, change, now.ms), Ok(Written::Applied(_) | Written::Submitted(_)))
}

/// Writes the UID of the APIService to the Lease of the hand-over. Does nothing if the journal refuses the change.
pub(super) fn note_api_service(table: &mut Table, storage: &mut Storage, uid: &str, now: Now) {
    let Some((slot, object)) = table.find(NAMESPACE, NAME) else { return };
    let mut lease = object.lease().into_owned();
    lease.metadata.annotations.insert(API_SERVICE_UID.into(), uid.into());
    let change = Change::Replace(table.target(slot), Box::new(lease));
    _ = storage.write(table, change, now.ms);
}
