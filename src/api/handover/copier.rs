//! The copier imports built-in Leases (the Leases that kube-apiserver itself stores) into this server's table. The
//! copier reads these Leases through kube-apiserver, for replicas without access to the cluster's etcd. Only one
//! replica's copier is active.
//!
//! For a takeover, a command requests the phase `copy`. For a rollback, or to cancel a takeover, it requests the phase
//! `hold`:
//!
//! ```text
//!   phase copy   list, import, report `imported`; then import each change that a watch of built-in Leases shows
//!   phase hold   report `held`
//! ```
//!
//! In both phases, the copier reports its step only after every replica has confirmed the phase.
//!
//! The watch begins right after the list, before the command `takeover` replaces the APIService. So the watch stays
//! connected to built-in storage. While the kube-apiservers switch to this server, the watch shows the renewals of
//! clients whose kube-apiserver has not switched yet. If the watch fails in that time, the table lacks these renewals:
//! the next update of such a client gets 409. No other change is lost, since the command's admission policy permits
//! only renewals.

use super::imports::Imports;
use super::state::{HandoverState, say};
use crate::api::identity::client_leases;
use crate::api::storage::Storage;
use crate::clock::Now;
use crate::cluster::{BuiltInChange, BuiltInChanges};
use crate::codec::json::Decoder;
use crate::handover::{Phase, ReadLeases, Step};
use crate::table::Table;
use compact_str::CompactString;

/// Interval at which the copier checks whether its step is reached, in ms.
const CHECK_MS: u64 = 50;

/// Copies Leases from built-in storage (the Leases that kube-apiserver itself stores) to this server's table, through
/// kube-apiserver.
#[derive(Debug)]
pub(super) struct Copier {
    changes: BuiltInChanges,
    imports: Imports,
    /// Id of the request by which a command (`takeover` or `rollback`) asked for the current phase; `None` while the
    /// copier is inactive.
    asked: Option<CompactString>,
    /// Whether a list of all built-in Leases has arrived in this phase.
    has_listed: bool,
    /// Time of the copier's next work, in ms; `None` while the copier is inactive or waits for events of the watch.
    due_ms: Option<u64>,
    /// Number of failures of the list and the watch since the start.
    errors: u64,
}

impl Copier {
    pub(super) fn new(changes: BuiltInChanges) -> Self {
        Self { changes, imports: Imports::of_copier(), asked: None, has_listed: false, due_ms: None, errors: 0 }
    }

    /// Returns the number of failures of the list and the watch since the start.
    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    /// Returns the number of Leases that cannot be imported.
    pub(super) fn refused_leases(&self) -> usize {
        self.imports.refused_leases()
    }

    /// Returns the time of the copier's next work, in ms; `None` while the copier is inactive or waits for events of
    /// the watch.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Continues the work in the phases `copy` and `hold`. `is_confirmed` is true once every replica has confirmed the
    /// phase.
    pub(super) fn work(
        &mut self,
        state: &HandoverState,
        is_confirmed: bool,
        table: &mut Table,
        storage: &mut Storage,
        decoder: &mut Decoder,
        now: Now,
    ) {
        if self.asked.as_ref() != Some(&state.asked) {
            self.begin(state);
        }
        if state.phase == Some(Phase::Copy) {
            self.take_events(table, storage, now);
            self.imports.take_in(table, storage, decoder, now);
            self.imports.report(state.step.is_none(), table, storage, now);
        }
        let is_reached = match state.phase {
            Some(Phase::Copy) => {
                is_confirmed && self.has_listed && self.imports.is_empty() && self.imports.refusal().is_none()
            }
            Some(Phase::Hold) => is_confirmed,
            Some(Phase::Import | Phase::Serve | Phase::Undo | Phase::Freeze) | None => false,
        };
        if state.step.is_none() && is_reached {
            let count = client_leases(table);
            let (step, message) = match state.phase {
                Some(Phase::Copy) => (Step::Imported, format!("{count} Leases are here")),
                _ => (Step::Held, format!("{count} Leases are held")),
            };
            // If the journal refuses this change, the next check submits the change again.
            say(table, storage, Some(step), &message, now);
        }
        let is_waiting = state.step.is_some() && self.imports.is_empty();
        self.due_ms = (!is_waiting).then(|| now.ms + if self.imports.is_runnable() { 0 } else { CHECK_MS });
    }

    fn begin(&mut self, state: &HandoverState) {
        self.asked = Some(state.asked.clone());
        self.imports = Imports::of_copier();
        self.has_listed = false;
        match state.phase {
            Some(Phase::Copy) => self.changes.begin(),
            _ => self.changes.end(),
        }
    }

    /// Stops the work. Call this function while another replica is the active one, or while the phase needs no copier.
    pub(super) fn stand_by(&mut self) {
        if self.asked.take().is_some() {
            self.changes.end();
            // The watch of built-in Leases has ended, so this call discards all events of that watch.
            self.changes.next();
            self.imports = Imports::of_copier();
            self.due_ms = None;
        }
    }

    fn take_events(&mut self, table: &mut Table, storage: &mut Storage, now: Now) {
        while let Some(change) = self.changes.next() {
            match change {
                BuiltInChange::All(leases) => {
                    self.imports.put(leases, true);
                    self.has_listed = true;
                }
                BuiltInChange::Changed(key, lease) => self.imports.put(ReadLeases::from([(key, lease)]), false),
                BuiltInChange::Failed(why) => {
                    self.errors += 1;
                    tracing::warn!(why, "cannot follow the built-in Leases");
                    // The message `why` does not replace the reason why a Lease cannot be imported.
                    if self.imports.refusal().is_none() {
                        say(table, storage, None, &why, now);
                    }
                }
            }
        }
    }
}
