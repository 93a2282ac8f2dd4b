//! The hand-over of Leases between built-in storage and this server ([`crate::handover`]). Built-in storage means
//! kube-apiserver's own storage of Leases in etcd. This module decides what clients may do at a replica in each phase,
//! and does this replica's part of the hand-over.
//!
//! The kube-apiservers of a cluster switch to this server at different moments of a takeover. Until all have switched,
//! some requests go to built-in storage and others to this server. During that time, built-in storage decides who holds
//! a lock, and not this server's table:
//!
//! - This server answers every write but a renewal with 429.
//! - This server acknowledges a renewal once built-in storage has the renewal. If the Lease in built-in storage has
//!   another holder by then, the renewal gets 409.
//! - A read without a `resourceVersion` waits until the table has every change that built-in storage had when the read
//!   arrived. Such a read does not find a Lease that cannot be imported.
//!
//! One replica copies Leases in rounds ([`worker`]). In a round, that replica reads built-in storage and imports the
//! changes into the table. Then it writes this server's renewals to built-in storage, and publishes the number of the
//! round in a Lease. The next round begins once that Lease is in the table. When a request arrives at any replica, one
//! round may be in progress. So of the rounds that complete afterwards, the second one certainly began after the
//! request arrived.
//!
//! During a rollback, no client may write to this server. So the copies of its Leases in built-in storage stay current.
//!
//! - Watches end with an ERROR event with 410. So does a watch that begins at a `resourceVersion` of this server. A
//!   list at such a version gets 410. Without the 410, clients would watch built-in storage from such a version, which
//!   is far above all versions there, and would never get an event.
//! - A list in progress ends with 410, or is cut off if its response has begun. Otherwise a slow client could get the
//!   `resourceVersion` of the list so late that it begins its watch from that version at kube-apiserver.
//! - After a 410, clients list without a `resourceVersion`. Such a list gets 429 until kube-apiserver serves Leases
//!   from built-in storage again.
//! - Once every Lease is written back to built-in storage, a read of a single Lease gets 429 too. By then, a
//!   kube-apiserver may have changed the Lease in built-in storage. Without access to etcd, these reads get 429 from
//!   the step `released` on, since kube-apiserver may then serve built-in Leases.
//! - The undo of a takeover follows these rules too, with one difference. Reads of a single Lease get 429 from its
//!   start. The reason: a kube-apiserver that has not switched may still change the Lease in built-in storage.
//!
//! Without access to the cluster's etcd, an admission policy permits clients of built-in storage only renewals during
//! the switch ([`copier`]). So built-in storage and the table have the same holders, and no rounds are needed. In the
//! rollback, the command copies the Leases back.

mod copier;
mod encode;
mod feed;
mod imports;
mod merge;
mod state;
mod worker;
#[cfg(test)]
mod worker_tests;

use super::identity::LABEL;
use super::job::{Job, JobError};
use super::{Api, Call, Reclaim, ReplicaIdentity};
use crate::api_error::ApiError;
use crate::auth::Caller;
use crate::clock::Now;
use crate::cluster::BuiltInChanges;
use crate::etcd::built_in::BuiltInPort;
use crate::handover::{NAME, NAMESPACE, Phase, Step, is_lease};
use crate::journal::Journal;
use crate::lease::Lease;
use crate::metrics::HandoverStats;
use crate::resource::{BUILT_IN_VERSIONS_END, ResourceVersion};
use crate::table::Table;
use crate::table::change::Change;
use crate::table::object::Object;
use crate::verb::Verb;
use copier::Copier;
use merge::is_same_term;
use state::{HandoverState, Progress};
use worker::Worker;

/// Message of a server that refuses writes, because the APIService was deleted or named no Service after this server
/// had begun to serve the Leases.
const TAKEN_AWAY: &str = "the APIService was deleted or made local, so kube-apiserver has served built-in Leases: this \
                          server refuses writes until takeover is run again, even if the APIService names its Service \
                          again";

/// The state of the hand-over as this replica sees it, and this replica's worker and copier.
#[derive(Debug, Default)]
pub struct Handover {
    /// `resourceVersion` of the table when [`Handover::read_state`] last read `state`.
    looked_at: ResourceVersion,
    state: HandoverState,
    /// What clients may do in `state`.
    mode: Mode,
    /// Whether watches must end, because clients may no longer write to this server.
    ends_watches: bool,
    /// Number of times that the mode has changed to [`Mode::Frozen`].
    freezes: u64,
    /// Worker that copies Leases through the cluster's etcd; `None` if this server has no access to that etcd.
    worker: Option<Box<Worker>>,
    /// Copier that imports Leases through kube-apiserver; `None` if this server has no access to kube-apiserver.
    copier: Option<Box<Copier>>,
}

/// What clients may do at this server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Clients may read and write everything.
    #[default]
    Open,
    /// Clients may read Leases and renew them. Other clients still write to built-in storage, which decides who holds a
    /// lock.
    Following,
    /// Clients may read single Leases and renew Leases. In built-in storage, too, the only writes of clients are
    /// renewals: an admission policy of the command `takeover` refuses their other writes.
    Renewals,
    /// Clients may only read single Leases.
    Frozen,
}

impl Handover {
    /// Creates the hand-over of a server that can access built-in storage in etcd.
    #[must_use]
    pub fn with_built_in(port: BuiltInPort) -> Self {
        Self { worker: Some(Box::new(Worker::new(port))), ..Self::default() }
    }

    /// Lets this server import built-in Leases through kube-apiserver.
    pub fn copy_from(&mut self, changes: BuiltInChanges) {
        self.copier = Some(Box::new(Copier::new(changes)));
    }

    /// Forgets the state and all work in progress. Call this function once the journal has loaded the table, for two
    /// reasons. First, the changes that an earlier journal had in flight get no outcome. Second, a table that is
    /// loading may reach its final version before it has the Leases of the hand-over. [`Handover::read_state`] reads
    /// these Leases only once for each version of the table, so it would miss them.
    pub fn begin_again(&mut self) {
        self.stand_by();
        (self.looked_at, self.state, self.mode) = Default::default();
    }

    fn stand_by(&mut self) {
        if let Some(worker) = &mut self.worker {
            worker.stand_by();
        }
        if let Some(copier) = &mut self.copier {
            copier.stand_by();
        }
    }

    /// Returns the time of the next work of the worker or the copier, in ms; `None` if neither has work.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        match self.state.phase? {
            Phase::Import | Phase::Serve | Phase::Undo | Phase::Freeze => self.worker.as_ref()?.due_ms(),
            Phase::Copy | Phase::Hold => self.copier.as_ref()?.due_ms(),
        }
    }

    /// Whether the hand-over restricts the writes of clients at this server.
    #[must_use]
    pub fn holds_writes(&self) -> bool {
        self.mode != Mode::Open
    }

    /// Returns the values for the metrics.
    #[must_use]
    pub fn stats(&self) -> HandoverStats {
        HandoverStats {
            serves: self.mode == Mode::Open,
            holds_writes: self.holds_writes() && self.state.step != Some(Step::NotOurs),
            errors: self.worker.as_ref().map_or(0, |worker| worker.errors())
                + self.copier.as_ref().map_or(0, |copier| copier.errors()),
            refused_leases: self.worker.as_ref().map_or(0, |worker| worker.refused_leases())
                + self.copier.as_ref().map_or(0, |copier| copier.refused_leases()),
        }
    }

    /// Whether some clients may write to this server while others write to built-in storage. The table may then be
    /// behind built-in storage.
    #[inline]
    pub(super) fn follows_built_in(&self) -> bool {
        self.mode == Mode::Following
    }

    /// Whether clients may renew Leases at this server, and the server also imports changes from built-in storage. So
    /// the table may lack a change that a client already knows.
    #[inline]
    pub(super) fn imports_built_in(&self) -> bool {
        matches!(self.mode, Mode::Following | Mode::Renewals)
    }

    /// Whether kube-apiserver may change Leases in built-in storage that this server does not import.
    #[inline]
    pub(super) fn may_be_outdated(&self) -> bool {
        let HandoverState { phase, unknown_phase, step, .. } = &self.state;
        self.mode == Mode::Frozen
            && (*phase == Some(Phase::Undo)
                || unknown_phase.is_some()
                || matches!(step, Some(Step::Released | Step::WrittenBack | Step::NotOurs)))
    }

    /// Returns the number of the first round that certainly begins after this call. After the last complete round N,
    /// round N + 1 may already have begun. So this is round N + 2.
    pub(super) fn round_after_now(&self) -> u64 {
        self.state.progress.round + 2
    }

    /// Whether a request no longer needs to wait for the round with the number `round`.
    pub(super) fn has_completed(&self, round: u64) -> bool {
        !self.follows_built_in() || self.state.progress.round >= round
    }

    /// Whether the answer to a write no longer needs to wait for built-in storage. `applied` is the Lease after the
    /// write.
    #[inline]
    pub(super) fn has_written(&self, applied: &Object) -> bool {
        !self.follows_built_in() || self.state.progress.written >= applied.version || is_of_handover(applied)
    }

    /// Checks that no write in built-in storage has superseded a renewal at this server. `applied` is the Lease after
    /// the renewal. Call this function once [`Handover::has_written`] is true. A Lease of the hand-over always
    /// passes the check, since no import changes such a Lease.
    ///
    /// # Errors
    /// 409 if a write in built-in storage has superseded the renewal. 504 in [`Mode::Frozen`], since this server then
    /// may not know of such a write.
    pub(super) fn check_renewed(&self, table: &Table, applied: &Object) -> Result<(), ApiError> {
        if !self.may_acknowledge(applied) {
            return Err(ApiError::Timeout);
        }
        let (namespace, name) = applied.key().parts();
        match table.find(namespace, name) {
            _ if is_lease(namespace, name) => Ok(()),
            Some((_, object)) if object.version == applied.version => Ok(()),
            // The Lease has this renewal, a later renewal at this server, or a merge with a change from built-in
            // storage. If instead the Lease has a `resourceVersion` of built-in storage, it was imported over
            // `applied`.
            Some((_, object))
                if object.built_in_version().is_none() && is_same_term(object.unrenewed(), applied.unrenewed()) =>
            {
                Ok(())
            }
            Some(_) | None => Err(ApiError::Conflict { name: name.to_owned() }),
        }
    }

    /// Checks that a client may make a change in the current mode.
    ///
    /// # Errors
    /// 429 with `Retry-After` if the hand-over forbids the change.
    pub(super) fn check_change(&self, table: &Table, change: &Change) -> Result<(), ApiError> {
        match self.mode {
            Mode::Open => Ok(()),
            Mode::Following | Mode::Renewals if is_renewal(table, change) => Ok(()),
            Mode::Following | Mode::Renewals | Mode::Frozen => {
                let (namespace, name) = table.names_of(change);
                if is_lease(namespace, name) { Ok(()) } else { Err(ApiError::HandingOver) }
            }
        }
    }

    /// Checks that clients may delete collections in the current mode.
    ///
    /// # Errors
    /// 429 with `Retry-After` if the hand-over forbids deletions.
    pub(super) fn check_collection_deletion(&self) -> Result<(), ApiError> {
        if self.holds_writes() { Err(ApiError::HandingOver) } else { Ok(()) }
    }

    /// Returns the number of times that clients lost the permission to write and to list. Each list notes this number
    /// when it begins, so that [`Handover::check_job`] can end the list after the next such loss.
    pub(super) fn freezes(&self) -> u64 {
        self.freezes
    }

    /// Checks that a job in progress may continue.
    ///
    /// # Errors
    /// 429 for a deletion if the hand-over forbids deletions. 410 for a list if clients have lost the permission to
    /// list since the list began. A client that got the rest of the list could begin its watch at kube-apiserver, where
    /// a watch from a `resourceVersion` of this server gets no events.
    pub fn check_job(&self, job: &Job) -> Result<(), JobError> {
        let permitted = match job.freezes() {
            _ if job.is_deletion() => self.check_collection_deletion(),
            Some(freezes) if freezes != self.freezes => Err(given_back()),
            _ => Ok(()),
        };
        permitted.map_err(JobError::Refused)
    }

    /// Returns the error for an update whose `resourceVersion`, `version`, is not that of the `current` Lease. A client
    /// that gets 409 reads the Lease again.
    ///
    /// In [`Mode::Renewals`], this server may not have imported `version` yet. The update then gets 429, since the same
    /// update succeeds after the import. In [`Mode::Following`], a request that fails with 409 waits for a round, and
    /// is then decided again. So this server has imported `version` by then.
    pub(super) fn refuse_version(&self, name: &str, current: &Object, version: u64) -> ApiError {
        let is_newer = |known: u64| known < version && version < BUILT_IN_VERSIONS_END;
        if self.mode == Mode::Renewals && current.built_in_version().is_some_and(is_newer) {
            ApiError::HandingOver
        } else {
            ApiError::Conflict { name: name.to_owned() }
        }
    }

    /// Checks that clients may list or watch Leases in the current mode.
    ///
    /// # Errors
    /// 429 if the hand-over forbids the request. In [`Mode::Frozen`], [`ApiError::Expired`] for a page of a list, and
    /// for a `resourceVersion` that this server issued, so that the client forgets that version.
    pub(super) fn check_list_or_watch(&self, call: &Call<'_>, verb: Option<Verb>) -> Result<(), ApiError> {
        if !matches!(self.mode, Mode::Renewals | Mode::Frozen) || !matches!(verb, Some(Verb::List | Verb::Watch)) {
            return Ok(());
        }
        // The commands `takeover` and `rollback` connect to this server directly; other clients come through
        // kube-apiserver. A rollback lists all Leases, to copy them. A takeover lists the Leases by which the replicas
        // show that they are live, to find replicas that have not confirmed the phase.
        let is_command = matches!(call.caller, Caller::User(_) | Caller::Insecure) && verb == Some(Verb::List);
        let selects_replicas =
            || call.query.value("labelSelector").is_some_and(|selector| selector.split_once('=') == Some(LABEL));
        let phase = self.state.phase;
        if is_command && (phase == Some(Phase::Hold) || phase == Some(Phase::Copy) && selects_replicas()) {
            return Ok(());
        }
        // If the takeover is undone, a watch from a `resourceVersion` of this server would wait forever at
        // kube-apiserver. So no client gets such a version from a list or a watch.
        if self.mode == Mode::Renewals {
            return Err(ApiError::HandingOver);
        }
        let is_page = call.query.value("continue").is_some_and(|token| !token.is_empty());
        let version = call.query.value("resourceVersion").and_then(|text| text.parse::<u64>().ok());
        if is_page || version.is_some_and(|version| version >= BUILT_IN_VERSIONS_END) {
            return Err(given_back());
        }
        Err(ApiError::HandingOver)
    }

    /// Whether the server may acknowledge a write. `applied` is the Lease after the write. The server may have decided
    /// the write before [`Mode::Frozen`], and applied it in that mode. The result is then false, since built-in storage
    /// may lack the write.
    pub(super) fn may_acknowledge(&self, applied: &Object) -> bool {
        // This function reads the key only if necessary, since the read costs a cache miss.
        self.mode != Mode::Frozen || is_of_handover(applied)
    }

    /// Reads the state of the hand-over from its Leases. Call this function before the server responds to applied
    /// writes, since the new state decides whether it may acknowledge them.
    pub fn read_state(&mut self, table: &Table) {
        if self.looked_at == table.version() {
            return;
        }
        self.looked_at = table.version();
        let present =
            table.find(NAMESPACE, NAME).map_or_else(HandoverState::default, |(_, object)| HandoverState::of(object));
        let (mode_before, before) = (self.mode, std::mem::replace(&mut self.state, present));
        self.mode = self.state.mode();
        if self.mode == Mode::Following {
            self.state.progress = Progress::of(table);
        }
        if (self.state.phase, self.state.step) != (before.phase, before.step) {
            let (phase, step) = (self.state.phase.map(Phase::name), self.state.step.map(Step::name));
            tracing::info!(phase, step, "the hand-over of Leases has a new phase or step");
            if (self.state.phase, self.state.step) == (Some(Phase::Serve), Some(Step::NotOurs)) {
                tracing::warn!("{TAKEN_AWAY}");
            }
            if self.state.phase.is_none() {
                // Somebody has deleted the Lease of the hand-over, or only a newer release knows the phase. No later
                // turn calls the worker or the copier, so they stop here.
                self.stand_by();
            }
        }
        if let Some(phase) = self.state.unknown_phase.as_deref()
            && before.unknown_phase.as_deref() != Some(phase)
        {
            tracing::warn!(phase, "unknown phase of the hand-over: this server refuses most requests for Leases");
        }
        if self.mode == Mode::Frozen && mode_before != Mode::Frozen {
            self.ends_watches = true;
            self.freezes += 1;
        }
    }
}

/// Returns the error for lists and watches at a `resourceVersion` of this server while the Leases move back to built-in
/// storage.
#[must_use]
pub fn given_back() -> ApiError {
    ApiError::Expired { message: "Leases are being given back to kube-apiserver: list anew".to_owned(), next: None }
}

/// Whether an object is a Lease that stores the state of the hand-over.
fn is_of_handover(object: &Object) -> bool {
    let (namespace, name) = object.key().parts();
    is_lease(namespace, name)
}

/// Whether a change of a Lease only renews the Lease.
fn is_renewal(table: &Table, change: &Change) -> bool {
    match change {
        Change::Renew(..) => true,
        Change::Replace(_, lease) => {
            let (namespace, name) = (&lease.metadata.namespace, &lease.metadata.name);
            table.find(namespace, name).is_some_and(|(_, object)| renews(&object.lease(), lease))
        }
        Change::Create(_) | Change::Delete(_) => false,
    }
}

/// Whether `after` differs from `before` only in `renewTime`, `managedFields` and `resourceVersion`.
fn renews(before: &Lease, after: &Lease) -> bool {
    let mut renewed = before.clone();
    renewed.spec.renew_time = after.spec.renew_time;
    renewed.metadata.managed_fields = after.metadata.managed_fields.clone();
    renewed.metadata.resource_version = after.metadata.resource_version.clone();
    renewed == *after
}

impl Api {
    /// Reads the phase of the hand-over, and does this replica's work in that phase. Returns whether all watches must
    /// end, because clients may no longer write to this server.
    pub fn hand_over(&mut self, table: &mut Table, now: Now) -> bool {
        self.handover.read_state(table);
        let phase = self.handover.state.phase;
        if let Some(identity) = &mut self.identity {
            identity.confirm(phase.map(|_| &self.handover.state.asked));
        }
        if self.handover.state.step == Some(Step::Imported) {
            // After the import, the table has the current holder of each lock. So no lock is reserved for a former
            // holder any more.
            self.reclaim = Reclaim::new(0);
        }
        if phase.is_some() && !self.storage.is_loading() {
            // After a pause of this process, its table may be behind the store, and another replica may be the active
            // one, which copies the Leases. So a replica whose table is behind is not active.
            let is_current = self.storage.journal().is_none_or(|journal| journal.is_current(now.ms));
            let is_confirmed = self.is_confirmed(table);
            let is_first = |identity: &ReplicaIdentity| match self.handover.mode {
                Mode::Open => identity.is_first(),
                // If two replicas copied at the same time, one could import an older state of a Lease over a newer
                // state that the other has imported. So the identity Leases in the table decide, and not this replica's
                // view of which replicas are alive.
                Mode::Following | Mode::Renewals | Mode::Frozen => identity.is_first_in(table),
            };
            let is_active = is_current && self.identity.as_ref().is_none_or(is_first);
            let Self { handover: Handover { state, worker, copier, .. }, storage, decoder, .. } = self;
            let is_copied = matches!(state.phase, Some(Phase::Copy | Phase::Hold));
            match worker {
                Some(worker) if is_active && !is_copied => {
                    worker.work(state, is_confirmed, table, storage, decoder, now);
                }
                Some(worker) => worker.stand_by(),
                None => {}
            }
            match copier {
                Some(copier) if is_active && is_copied => {
                    copier.work(state, is_confirmed, table, storage, decoder, now);
                }
                Some(copier) => copier.stand_by(),
                None => {}
            }
            // Without a journal, the changes of the worker or the copier are in the table at once.
            self.handover.read_state(table);
        }
        std::mem::take(&mut self.handover.ends_watches)
    }

    /// Whether every live replica has confirmed the phase, and the table has every write decided before the phase
    /// began.
    ///
    /// A replica confirms the phase in its identity Lease. The changes of a replica are applied in order, so its
    /// earlier writes are applied before its confirmation.
    ///
    /// A single server has no identity Lease. Its earlier writes are applied once its journal is idle. The phases
    /// `import` and `serve` do not wait for that. Before `import`, no client sends requests to this server. In `serve`,
    /// the server stops no writes, so it need not wait for earlier ones.
    fn is_confirmed(&self, table: &Table) -> bool {
        let HandoverState { phase, asked, .. } = &self.handover.state;
        match &self.identity {
            Some(identity) => identity.all_confirm(table, asked),
            None => {
                let is_idle = self.storage.journal().is_none_or(Journal::is_idle);
                matches!(phase, Some(Phase::Import | Phase::Serve)) || is_idle
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Reply;
    use crate::api::holder_log::tests::lines_of;
    use crate::auth::Credentials;
    use crate::handover::{PHASE, STEP};
    use crate::http::{Method, NoLines, RequestHead};
    use crate::table::object::RenewedTimes;
    use crate::timestamp::{MicroTime, Time};
    use crate::watch::WatchStart;

    #[test]
    fn the_metrics_show_which_side_serves_the_leases() {
        let stats = |phase, step| {
            let state = HandoverState { phase, step, ..HandoverState::default() };
            let HandoverStats { serves, holds_writes, .. } =
                Handover { mode: state.mode(), state, ..Handover::default() }.stats();
            (serves, holds_writes)
        };
        assert_eq!(Handover::default().stats(), HandoverStats { serves: true, ..HandoverStats::default() });
        assert_eq!(stats(None, None), (true, false), "no command has run");
        assert_eq!(stats(Some(Phase::Serve), Some(Step::Serving)), (true, false), "a takeover is complete");
        for phase in [Phase::Import, Phase::Serve, Phase::Undo, Phase::Freeze, Phase::Copy, Phase::Hold] {
            assert_eq!(stats(Some(phase), None), (false, true), "{phase:?} is in progress");
        }
        for phase in [Phase::Undo, Phase::Freeze, Phase::Hold] {
            assert_eq!(stats(Some(phase), Some(Step::NotOurs)), (false, false), "{phase:?} has ended");
        }
    }

    #[test]
    fn an_unknown_phase_freezes_this_server() {
        let mut table = Table::new(ResourceVersion(BUILT_IN_VERSIONS_END), 100, usize::MAX);
        let mut of_handover = Lease::named(NAMESPACE, NAME);
        of_handover.metadata.annotations.insert(PHASE.into(), "thaw".into());
        table.create(of_handover);
        let mut handover = Handover::default();
        handover.read_state(&table);
        assert_eq!((handover.mode, handover.state.phase), (Mode::Frozen, None));
        assert!(handover.may_be_outdated() && handover.ends_watches);
        assert!(!handover.stats().serves && handover.stats().holds_writes);
        let creation = Change::Create(Box::new(Lease::named(NAMESPACE, "other")));
        assert_eq!(handover.check_change(&table, &creation), Err(ApiError::HandingOver));
        let (slot, _) = table.find(NAMESPACE, NAME).expect("the Lease of the hand-over");
        let deletion = Change::Delete(table.target(slot));
        assert_eq!(handover.check_change(&table, &deletion), Ok(()), "a command can end the phase");
        table.apply(deletion).expect("deleted");
        handover.read_state(&table);
        assert_eq!(handover.mode, Mode::Open);
    }

    #[test]
    fn a_server_whose_api_service_was_deleted_logs_the_remedy_once() {
        let mut lease = Lease::default();
        (lease.metadata.namespace, lease.metadata.name) = (NAMESPACE.into(), NAME.into());
        let mut other = lease.clone();
        other.metadata.name = "other".into();
        let annotations = &mut lease.metadata.annotations;
        annotations.insert(PHASE.into(), Phase::Serve.name().into());
        annotations.insert(STEP.into(), Step::NotOurs.name().into());
        let mut table = Table::new(ResourceVersion(BUILT_IN_VERSIONS_END), 100, usize::MAX);
        table.create(lease);
        let mut handover = Handover::default();
        let lines = lines_of(|| {
            handover.read_state(&table);
            table.create(other);
            handover.read_state(&table);
        });
        let warnings: Vec<_> = lines.iter().filter(|line| line.contains("WARN")).collect();
        assert!(matches!(warnings[..], [line] if line.ends_with(TAKEN_AWAY)), "{lines:?}");
        assert!(handover.mode == Mode::Frozen && handover.may_be_outdated() && handover.ends_watches);
        assert!(!handover.stats().serves && !handover.stats().holds_writes);
    }

    #[test]
    fn only_a_version_that_is_not_imported_yet_gets_429() {
        let mut table = Table::new(ResourceVersion(BUILT_IN_VERSIONS_END), 100, usize::MAX);
        let mut lease = Lease::named("n", "a");
        lease.metadata.resource_version = "42".into();
        table.create(lease);
        let waits = |table: &Table, mode, version| {
            let (_, current) = table.find("n", "a").expect("a Lease");
            let error = Handover { mode, ..Handover::default() }.refuse_version("a", current, version);
            assert!(matches!(error, ApiError::HandingOver | ApiError::Conflict { .. }), "{error:?}");
            error == ApiError::HandingOver
        };
        assert!(waits(&table, Mode::Renewals, 43));
        assert!(!waits(&table, Mode::Renewals, 41), "outdated");
        assert!(!waits(&table, Mode::Renewals, BUILT_IN_VERSIONS_END), "a version of this server");
        assert!(!waits(&table, Mode::Following, 43), "the table has every version after a round");
        let (slot, _) = table.find("n", "a").expect("a Lease");
        table.renew(slot, RenewedTimes { renew_time: MicroTime(1), managed_time: None });
        assert!(!waits(&table, Mode::Renewals, 42), "renewed here");
    }

    #[test]
    fn a_watch_that_begins_during_a_rollback_ends_with_an_error_event() {
        let mut table = Table::new(ResourceVersion(BUILT_IN_VERSIONS_END), 100, usize::MAX);
        let mut lease = Lease::named(NAMESPACE, NAME);
        lease.metadata.annotations.insert(PHASE.into(), Phase::Freeze.name().into());
        table.create(lease);
        let mut api = Api::new();
        let now = Now { ms: 0, wall: Time(0) };
        api.hand_over(&mut table, now);
        let mut reply = |query: &str| {
            let head = RequestHead::bare(Method::Get, "/apis/coordination.k8s.io/v1/leases", query, &NoLines);
            api.handle(&mut table, &head, &[], None, &Credentials::insecure(), now)
        };
        let version = BUILT_IN_VERSIONS_END;
        let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        for options in ["", initial] {
            match reply(&format!("watch=1&resourceVersion={version}&{options}")) {
                Reply::Watch(spec) => match spec.start {
                    WatchStart::Refused(error) => assert_eq!(*error, given_back(), "{options}"),
                    other => panic!("{options}: {other:?}"),
                },
                other => panic!("{options}: {other:?}"),
            }
        }
        for (query, expected) in [
            (format!("resourceVersion={version}"), 410),
            (format!("watch=1&resourceVersion={version}&resourceVersionMatch=Exact"), 422),
            ("watch=1&resourceVersion=42".to_owned(), 429),
        ] {
            match reply(&query) {
                Reply::Response(response) => assert_eq!(response.status, expected, "{query}"),
                other => panic!("{query}: {other:?}"),
            }
        }
    }
}
