//! The hand-over of Leases, as this replica sees it: what clients may do in each phase ([`crate::handover`]).
//!
//! While several kube-apiservers change over at different moments, some requests reach built-in storage and others come
//! here. Both sides name the same holder, so a renewal does no harm on either side, as long as both learn of it. An
//! acquisition would do harm: of a lock that is free, one client could get it here and another there. So creations,
//! deletions and all changes but renewals get 429 here until no request can reach built-in storage any more.
//!
//! On the way back nobody may write here, so that what was written back stays the newest state. Watches end with 410,
//! and lists of this server's versions get 410 too. Then clients list without a version, and get 429 until
//! kube-apiserver serves its built-in storage: a watch there from a version of this server would be silent for ever.

mod feed;
mod merge;
mod worker;

use super::{Api, Call, Reclaim};
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::etcd::built_in::BuiltInPort;
use crate::handover::{ASKED, NAME, NAMESPACE, PHASE, Phase, STEP, Step, is_lease};
use crate::journal::Journal;
use crate::lease::Lease;
use crate::resource::{BUILT_IN_VERSIONS_END, ResourceVersion};
use crate::table::Table;
use crate::table::change::Change;
use crate::table::object::Object;
use crate::verb::Verb;
use compact_str::CompactString;
use worker::Worker;

/// The hand-over, as this replica sees it.
#[derive(Debug, Default)]
pub struct Handover {
    /// Version of the table at the last look.
    looked_at: ResourceVersion,
    state: State,
    /// Whether watches are to end, since nobody may write here any more.
    ends_watches: bool,
    /// What copies Leases; none if this server knows no built-in storage.
    worker: Option<Box<Worker>>,
}

/// What the Lease of the hand-over says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    phase: Option<Phase>,
    /// Id of the request for the phase.
    asked: CompactString,
    step: Option<Step>,
    /// When the Lease was written last, in seconds since the epoch.
    since: Option<i64>,
}

/// What clients may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Everything.
    Open,
    /// Read and renew.
    Renewals,
    /// Read one Lease.
    Frozen,
}

impl State {
    fn of(object: &Object) -> Self {
        let annotations = &object.metadata().annotations;
        Self {
            phase: annotations.value(PHASE).and_then(|word| word.parse().ok()),
            asked: annotations.value(ASKED).unwrap_or_default().into(),
            step: annotations.value(STEP).and_then(|word| word.parse().ok()),
            since: object.renew_time().map(|time| time.0 / 1_000_000),
        }
    }

    fn mode(&self) -> Mode {
        match (self.phase, self.step) {
            (None, _) | (Some(Phase::Serve), Some(Step::Serving)) => Mode::Open,
            (Some(Phase::Import | Phase::Serve), _) => Mode::Renewals,
            (Some(Phase::Undo | Phase::Freeze), _) => Mode::Frozen,
        }
    }
}

impl Handover {
    /// A server that can copy Leases from and to built-in storage.
    #[must_use]
    pub fn with_built_in(port: BuiltInPort) -> Self {
        Self { worker: Some(Box::new(Worker::new(port))), ..Self::default() }
    }

    /// When there is something to do, in ms.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        self.state.phase?;
        self.worker.as_ref()?.due_ms()
    }

    /// Whether writes of clients are held back.
    #[must_use]
    pub fn holds_writes(&self) -> bool {
        self.state.mode() != Mode::Open
    }

    /// Whether clients may make a change.
    ///
    /// # Errors
    /// 429 with `Retry-After`.
    pub(super) fn admit(&self, table: &Table, change: &Change) -> Result<(), ApiError> {
        match self.state.mode() {
            Mode::Open => Ok(()),
            Mode::Renewals if is_renewal(table, change) => Ok(()),
            Mode::Renewals | Mode::Frozen => {
                let (namespace, name) = table.names_of(change);
                if is_lease(namespace, name) { Ok(()) } else { Err(ApiError::HandingOver) }
            }
        }
    }

    /// Whether collections may be deleted.
    ///
    /// # Errors
    /// 429 with `Retry-After`.
    pub fn admit_collection(&self) -> Result<(), ApiError> {
        if self.holds_writes() { Err(ApiError::HandingOver) } else { Ok(()) }
    }

    /// Why an update of another version than the present one is refused. A version of built-in storage may be one that
    /// has not been copied yet.
    pub(super) fn refuse_version(&self, name: &str, version: u64) -> ApiError {
        if self.state.mode() == Mode::Renewals && version < BUILT_IN_VERSIONS_END {
            ApiError::HandingOver
        } else {
            ApiError::Conflict { name: name.to_owned() }
        }
    }

    /// Whether an update may be of a Lease that has not been copied yet.
    pub(super) fn may_be_copied(&self) -> bool {
        self.state.mode() == Mode::Renewals
    }

    /// Whether Leases may be listed or watched.
    ///
    /// # Errors
    /// 410 for a version of this server, so that the client forgets that version. 429 else.
    pub(super) fn admit_read(&self, call: &Call<'_>, verb: Option<Verb>) -> Result<(), ApiError> {
        if self.state.mode() != Mode::Frozen || !matches!(verb, Some(Verb::List | Verb::Watch)) {
            return Ok(());
        }
        let is_page = call.query.value("continue").is_some_and(|token| !token.is_empty());
        let version = call.query.value("resourceVersion").and_then(|text| text.parse::<u64>().ok());
        if is_page || version.is_some_and(|version| version >= BUILT_IN_VERSIONS_END) {
            return Err(given_back());
        }
        Err(ApiError::HandingOver)
    }

    /// Whether a write that led to `applied` may be acknowledged. One that was decided before the freeze may have been
    /// applied behind it, and then built-in storage does not have it.
    pub(super) fn may_acknowledge(&self, applied: &Object) -> bool {
        if self.state.mode() != Mode::Frozen {
            return true;
        }
        // Only here: the key is a cache miss.
        let (namespace, name) = applied.key().parts();
        is_lease(namespace, name)
    }

    /// Takes in what the Lease says. To be called before requests are answered whose changes were applied.
    pub fn look(&mut self, table: &Table) {
        if self.looked_at == table.version() {
            return;
        }
        self.looked_at = table.version();
        let present = table.find(NAMESPACE, NAME).map_or_else(State::default, |(_, object)| State::of(object));
        let before = std::mem::replace(&mut self.state, present);
        if (self.state.phase, self.state.step) != (before.phase, before.step) {
            let (phase, step) = (self.state.phase.map(Phase::name), self.state.step.map(Step::name));
            tracing::info!(phase, step, "hand-over of Leases");
        }
        self.ends_watches |= self.state.mode() == Mode::Frozen && before.mode() != Mode::Frozen;
    }
}

/// What a list or a watch of this server's versions is told, once Leases go back to built-in storage.
#[must_use]
pub fn given_back() -> ApiError {
    ApiError::Expired { message: "Leases are being given back to kube-apiserver: list anew".to_owned(), next: None }
}

/// Whether a change renews a Lease and does nothing else.
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

/// Whether `after` is `before` with another `renewTime`, whoever is the manager of the fields.
fn renews(before: &Lease, after: &Lease) -> bool {
    let mut renewed = before.clone();
    renewed.spec.renew_time = after.spec.renew_time;
    renewed.metadata.managed_fields = after.metadata.managed_fields.clone();
    renewed.metadata.resource_version = after.metadata.resource_version.clone();
    renewed == *after
}

impl Api {
    /// Takes in the phase of the hand-over, and does this replica's work in it. Whether watches are to end: nobody may
    /// write here from now on.
    pub fn hand_over(&mut self, table: &mut Table, now: Now) -> bool {
        self.handover.look(table);
        let phase = self.handover.state.phase;
        if let Some(identity) = &mut self.identity {
            identity.confirm(phase.map(|_| &self.handover.state.asked));
        }
        if self.handover.state.step == Some(Step::Imported) {
            // It is known who holds each lock.
            self.reclaim = Reclaim::new(0);
        }
        if phase.is_some() && !self.storage.is_loading() {
            let is_confirmed = self.is_confirmed(table, now);
            let is_first = self.identity.as_ref().is_none_or(|identity| identity.is_first(now));
            let Self { handover: Handover { state, worker, .. }, storage, decoder, .. } = self;
            match worker {
                Some(worker) if is_first => worker.work(state, is_confirmed, table, storage, decoder, now),
                Some(worker) => worker.stand_by(),
                None => {}
            }
        }
        std::mem::take(&mut self.handover.ends_watches)
    }

    /// Whether each replica that lives keeps to the phase, and every write that was decided before is in the table.
    ///
    /// A replica says so by its identity Lease. Its changes are applied in their order, so those that it decided before
    /// come first. One server alone has written everything when its journal is idle. Before a takeover nobody is
    /// forwarded to it, so then its journal does not matter.
    fn is_confirmed(&self, table: &Table, now: Now) -> bool {
        let State { phase, asked, .. } = &self.handover.state;
        match &self.identity {
            Some(identity) => identity.all_confirm(table, asked, now),
            None => {
                let is_idle = self.storage.journal().is_none_or(Journal::is_idle);
                matches!(phase, Some(Phase::Import | Phase::Serve)) || is_idle
            }
        }
    }
}
