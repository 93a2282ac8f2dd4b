//! Communication between the commands and the replicas, through the Lease of the hand-over ([`crate::handover`]). A
//! command requests a phase: it writes the phase, and a new id for the request, to this Lease. The replicas do the work
//! of the phase, and write the step that they have reached.
//!
//! A command may use any replica, and skips a replica that does not respond. So a switch can complete even if a
//! replica dies.

use super::clients::{Clients, Server};
use super::lease::Lease;
use super::live::unconfirmed;
use super::{CONFLICT, COPY_MAX, FAILING_MAX, LOOK_EVERY, Report, SILENT_MAX, SwitchError, counts_of};
use crate::handover::{API_SERVICE_UID, ASKED, MESSAGE, NAME, NAMESPACE, PHASE, Phase, STEP, Step};
use k8s_openapi::api::coordination::v1::{self, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use uuid::Uuid;

/// Time for which a command repeats a request that no replica accepts.
const INSIST_MAX: Duration = Duration::from_secs(10);
/// Time for which the command waits for the end of a copy before it looks for a new message.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The state of the hand-over, as a command reads it from the Lease of the hand-over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Handover {
    /// UID of the Lease of the hand-over; `None` before the first hand-over.
    pub(super) uid: Option<String>,
    /// `resourceVersion` of the Lease of the hand-over; empty before the first hand-over.
    pub(super) version: String,
    /// Phase of the hand-over; `None` before the first hand-over, and for a phase of a newer release.
    pub(super) phase: Option<Phase>,
    /// Word for the phase, if this release does not know the phase.
    pub(super) unknown_phase: Option<String>,
    /// Id of the last request for a phase, from any command.
    pub(super) asked: String,
    pub(super) step: Option<Step>,
    /// Message of the replica that copies the Leases.
    pub(super) message: String,
}

impl Handover {
    /// Reads the state of the hand-over from its Lease.
    pub(super) fn of(lease: Option<&Lease>) -> Self {
        let annotations = lease.and_then(|lease| lease.metadata.annotations.as_ref());
        let found = |name: &str| annotations.and_then(|all| all.get(name));
        let word = |name: &str| found(name).map_or("", String::as_str);
        let phase: Option<Phase> = word(PHASE).parse().ok();
        Self {
            uid: lease.and_then(|lease| lease.metadata.uid.clone()),
            version: lease.and_then(|lease| lease.metadata.resource_version.clone()).unwrap_or_default(),
            phase,
            unknown_phase: found(PHASE).filter(|_| phase.is_none()).cloned(),
            asked: word(ASKED).to_owned(),
            step: word(STEP).parse().ok(),
            message: word(MESSAGE).to_owned(),
        }
    }

    /// Reads the state of the hand-over from a replica.
    ///
    /// # Errors
    /// If the replica does not respond, or refuses the request.
    async fn at(replica: &Server) -> Result<Self, SwitchError> {
        Ok(Self::of(replica.read(replica.leases().get_opt(NAME)).await?.as_ref()))
    }

    /// Reads the state of the hand-over from a replica that responds.
    ///
    /// # Errors
    /// If no replica responds.
    pub(super) async fn seen(clients: &Clients) -> Result<Self, SwitchError> {
        clients.first_answer(Self::at).await
    }

    /// Reads the state of the hand-over from a replica that responds, at the start of a command.
    ///
    /// # Errors
    /// If no replica responds, or if only a newer release knows the phase.
    pub(super) async fn seen_at_start(clients: &Clients) -> Result<Self, SwitchError> {
        let seen = Self::seen(clients).await?;
        match &seen.unknown_phase {
            Some(phase) => Err(SwitchError(format!(
                "this release does not know the phase {phase:?} of the hand-over: run the command of the release that \
                 began this phase"
            ))),
            None => Ok(seen),
        }
    }

    /// Whether kube-apiserver serves built-in Leases again, or did so since the last takeover. If so, this server's
    /// Leases may be outdated.
    pub(super) fn is_given_back(&self) -> bool {
        self.step == Some(Step::NotOurs)
    }

    /// Whether the takeover is complete, so that this server serves the Leases.
    pub(super) fn is_serving(&self) -> bool {
        (self.phase, self.step) == (Some(Phase::Serve), Some(Step::Serving))
    }
}

impl fmt::Display for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match &self.unknown_phase {
            Some(word) => word.as_str(),
            None => self.phase.map_or("none", Phase::name),
        };
        match self.step {
            None => f.write_str(phase),
            Some(step) => write!(f, "{phase}, {step}"),
        }
    }
}

/// Reports the state of each replica. Returns the error of the first replica that is not ready, if any.
pub(super) async fn report_replicas(clients: &Clients, report: &mut Report<'_>) -> Option<SwitchError> {
    let mut silent = None;
    for replica in clients.replicas() {
        let seen = match replica.check_ready().await {
            Ok(()) => Handover::at(replica).await,
            Err(error) => Err(error),
        };
        match seen {
            Ok(seen) => report.line(format_args!("replica {} is ready; hand-over: {seen}", replica.url())),
            Err(error) => {
                report.line(format_args!("replica {error}"));
                silent = silent.or(Some(error));
            }
        }
    }
    silent
}

/// Requests a phase with the request id `id`, unless `is_wrong` returns true for the current state of the hand-over.
/// Returns whether the phase was requested.
async fn request(
    clients: &Clients,
    id: &str,
    phase: Phase,
    step: Option<Step>,
    is_wrong: impl Fn(&Handover) -> bool,
) -> Result<bool, SwitchError> {
    let annotations = [(PHASE, Some(phase.name())), (ASKED, Some(id)), (STEP, step.map(Step::name))];
    let annotations = annotations.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    let mut wanted = Lease::from(v1::Lease {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            annotations: Some(annotations.collect()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec { renew_time: Some(MicroTime(Timestamp::now())), ..LeaseSpec::default() }),
    });
    // The Lease has the UID of the APIService. By it, the replicas notice that somebody has deleted the APIService and
    // created it again. A takeover accepts any APIService, so its first phase drops the UID.
    let keeps_uid = !matches!(phase, Phase::Import | Phase::Copy);
    clients.first_answer(async |replica| put(replica, &mut wanted, id, keeps_uid, &is_wrong).await).await
}

/// Writes the request to the Lease of the hand-over at one replica, unless `is_wrong` returns true for the current
/// state. Returns whether the request is written. `keeps_uid` is true if the Lease keeps its annotation with the UID of
/// the APIService.
async fn put(
    replica: &Server,
    wanted: &mut Lease,
    id: &str,
    keeps_uid: bool,
    is_wrong: impl Fn(&Handover) -> bool,
) -> Result<bool, SwitchError> {
    let leases = replica.leases();
    let parameters = PostParams::default();
    loop {
        let found = replica.read(leases.get_opt(NAME)).await?;
        let seen = Handover::of(found.as_ref());
        // The Lease already contains this request: another replica has written it, but has not answered in time.
        if seen.asked == id {
            return Ok(true);
        }
        if is_wrong(&seen) {
            return Ok(false);
        }
        let existed = found.is_some();
        let metadata = found.map(|mut found| std::mem::take(&mut found.metadata)).unwrap_or_default();
        let uid = metadata.annotations.and_then(|mut all| all.remove(API_SERVICE_UID)).filter(|_| keeps_uid);
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.retain(|name, _| name != API_SERVICE_UID);
        annotations.extend(uid.map(|uid| (API_SERVICE_UID.to_owned(), uid)));
        wanted.metadata.resource_version = metadata.resource_version;
        let done = if existed {
            leases.replace(NAME, &parameters, wanted).await
        } else {
            leases.create(&parameters, wanted).await
        };
        match done {
            Ok(_) => return Ok(true),
            // Another process has changed the Lease since this command read it. The command reads the Lease again.
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(replica.failed(&error)),
        }
    }
}

/// The right of a command to request phases. The command loses the right once another command requests a phase.
pub(super) struct Claim {
    /// Ids of requests. While the Lease of the hand-over contains one of them, no other command has requested a phase.
    /// The first id is that of this command's last accepted request. Until a request is accepted, it is the id that the
    /// command found at its start. The other ids are those of this command's later requests. A replica may have
    /// accepted such a request although the command got no answer.
    ids: Vec<String>,
    /// Whether this command has found a request of another command.
    is_lost: bool,
}

impl Claim {
    /// Creates the claim of a command that has read the state `seen`.
    pub(super) fn of(seen: &Handover) -> Self {
        Self { ids: vec![seen.asked.clone()], is_lost: false }
    }

    /// Whether this command has found a request of another command for a phase.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Checks that no other command has requested a phase since this command's last request.
    ///
    /// # Errors
    /// If another command has requested a phase, or if no replica answers.
    pub(super) async fn check(&mut self, clients: &Clients) -> Result<(), SwitchError> {
        self.check_seen(&Handover::seen(clients).await?)
    }

    /// Checks, by the id of the last request in the state `seen`, that no other command has requested a phase.
    ///
    /// # Errors
    /// If another command has requested a phase.
    fn check_seen(&mut self, seen: &Handover) -> Result<(), SwitchError> {
        self.is_lost = !self.ids.contains(&seen.asked);
        if self.is_lost { Err(another_command()) } else { Ok(()) }
    }

    /// Requests a phase from the replicas. If the phase requires no work of the replicas, the command itself sets its
    /// `step`.
    ///
    /// # Errors
    /// If another command has requested a phase, or if no replica accepts the request.
    pub(super) async fn ask(&mut self, clients: &Clients, phase: Phase, step: Option<Step>) -> Result<(), SwitchError> {
        self.ask_unless(clients, phase, step, |_| false).await.map(drop)
    }

    /// Requests a phase from the replicas, unless `is_wrong` returns true for the current state of the hand-over.
    /// Returns whether the phase was requested.
    ///
    /// # Errors
    /// If another command has requested a phase, or if no replica accepts the request.
    pub(super) async fn ask_unless(
        &mut self,
        clients: &Clients,
        phase: Phase,
        step: Option<Step>,
        is_wrong: impl Fn(&Handover) -> bool,
    ) -> Result<bool, SwitchError> {
        let ids = self.ids.clone();
        let is_lost = Cell::new(false);
        let is_made = self.request(clients, phase, step, |seen| {
            is_lost.set(!ids.contains(&seen.asked));
            is_lost.get() || is_wrong(seen)
        });
        let is_made = is_made.await?;
        self.is_lost = is_lost.get() && !is_made;
        if self.is_lost { Err(another_command()) } else { Ok(is_made) }
    }

    /// Requests a phase like [`Claim::ask_unless`], again and again for [`INSIST_MAX`] while no replica accepts it.
    /// Until the phase is requested, clients may be unable to write. So the command must not give up at once.
    ///
    /// # Errors
    /// If another command has requested a phase, or if no replica has accepted the request in that time.
    pub(super) async fn insist_unless(
        &mut self,
        clients: &Clients,
        phase: Phase,
        step: Option<Step>,
        is_wrong: impl Fn(&Handover) -> bool,
    ) -> Result<bool, SwitchError> {
        let begun = Instant::now();
        loop {
            match self.ask_unless(clients, phase, step, &is_wrong).await {
                Err(_) if !self.is_lost && begun.elapsed() < INSIST_MAX => sleep(LOOK_EVERY).await,
                asked => return asked,
            }
        }
    }

    /// Checks that no other command has requested a phase. If no replica answers, this is unknown, and the check
    /// succeeds.
    ///
    /// # Errors
    /// If another command has requested a phase.
    pub(super) async fn check_if_known(&mut self, clients: &Clients) -> Result<(), SwitchError> {
        let checked = self.check(clients).await;
        if self.is_lost { checked } else { Ok(()) }
    }

    /// Requests the phase [`Phase::Copy`] again, so that every other takeover loses its right to request phases.
    /// Returns `false` if the hand-over is in another phase.
    ///
    /// # Errors
    /// If no replica accepts the request.
    pub(super) async fn take_takeover(&mut self, clients: &Clients) -> Result<bool, SwitchError> {
        self.request(clients, Phase::Copy, None, |seen| seen.phase != Some(Phase::Copy)).await
    }

    async fn request(
        &mut self,
        clients: &Clients,
        phase: Phase,
        step: Option<Step>,
        is_wrong: impl Fn(&Handover) -> bool,
    ) -> Result<bool, SwitchError> {
        let id = Uuid::new_v4().to_string();
        // A replica may accept the request without an answer. So the id belongs to this command even if the request
        // fails.
        self.ids.push(id.clone());
        let is_made = request(clients, &id, phase, step, is_wrong).await?;
        if is_made {
            self.ids = vec![id];
        }
        Ok(is_made)
    }
}

/// Returns the error of a command that has found a request of another command.
pub(super) fn another_command() -> SwitchError {
    SwitchError("another command is at work".to_owned())
}

/// Waits until the replicas have copied all Leases in a phase. Reports their messages about the progress. Returns the
/// message of the completed copy.
///
/// A copy may fail although the replicas have sent no message. The error then names the replicas that have not
/// confirmed the phase. If every replica has confirmed it, the error is the probable reason `otherwise`.
///
/// # Errors
/// If the copy takes longer than [`COPY_MAX`] or makes no progress for [`FAILING_MAX`], or if the replicas send no
/// message for [`SILENT_MAX`]. Also if another command has requested a phase.
pub(super) async fn await_copy(
    clients: &Clients,
    claim: &mut Claim,
    phase: Phase,
    otherwise: &str,
    report: &mut Report<'_>,
) -> Result<String, SwitchError> {
    let begun = Instant::now();
    let (mut message, mut progress, mut progress_at) = (String::new(), None, None);
    loop {
        let silent = match await_step(clients, claim, phase, Step::Imported, PROGRESS_EVERY).await {
            Ok(seen) if seen.step == Some(Step::Imported) => return Ok(seen.message),
            Ok(seen) => {
                if seen.message != message && !seen.message.is_empty() {
                    message = seen.message;
                    report.progress(&message);
                }
                None
            }
            Err(error) if claim.is_lost() => return Err(error),
            // The only replica may be restarting. So the command asks again.
            Err(error) => Some(error),
        };
        let counts = counts_of(&message);
        if counts > progress || progress_at.is_none() && !message.is_empty() {
            (progress, progress_at) = (counts, Some(Instant::now()));
        }
        let is_stuck = match progress_at {
            Some(at) => at.elapsed() > FAILING_MAX,
            None => begun.elapsed() > SILENT_MAX,
        };
        if is_stuck || begun.elapsed() > COPY_MAX {
            if let Some(silent) = silent {
                return Err(silent);
            }
            let unconfirmed = unconfirmed(clients, claim.ids.first().map_or("", String::as_str)).await;
            return Err(SwitchError(match unconfirmed {
                Some(replicas) if message.is_empty() => replicas,
                Some(replicas) => format!("{message}; {replicas}"),
                None if message.is_empty() => otherwise.to_owned(),
                None => message,
            }));
        }
    }
}

/// Waits until the replicas reach `step` of the phase or the step [`Step::NotOurs`], or until `limit` has passed.
/// Returns the last state of the hand-over. The caller checks the step.
///
/// # Errors
/// If no replica has responded when `limit` has passed, if another command has requested a phase, or if the hand-over
/// is in another phase.
pub(super) async fn await_step(
    clients: &Clients,
    claim: &mut Claim,
    phase: Phase,
    step: Step,
    limit: Duration,
) -> Result<Handover, SwitchError> {
    let begun = Instant::now();
    loop {
        let seen = match Handover::seen(clients).await {
            Ok(seen) => seen,
            Err(error) if begun.elapsed() > limit => return Err(error),
            // The only replica may be restarting. So the command asks again.
            Err(_) => {
                sleep(LOOK_EVERY).await;
                continue;
            }
        };
        claim.check_seen(&seen)?;
        if seen.phase != Some(phase) {
            return Err(SwitchError(format!("the hand-over is in another phase: {seen}")));
        }
        if seen.step == Some(step) || seen.step == Some(Step::NotOurs) || begun.elapsed() > limit {
            return Ok(seen);
        }
        sleep(LOOK_EVERY).await;
    }
}
