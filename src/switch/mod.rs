//! The commands `takeover` and `rollback`. `takeover` switches a cluster's Leases from kube-apiserver to this server.
//! `rollback` switches the Leases back to kube-apiserver.
//!
//! This move of the Leases is called the hand-over. A Lease in this server's store, the Lease of the hand-over, has the
//! state of the move ([`crate::handover`]). A command writes its request to this Lease, waits for the replicas, and
//! replaces the APIService. The replicas copy the Leases, and report their progress in the same Lease. So a command may
//! be killed at any time. When the command runs again, it continues from the state of this Lease and of the APIService.
//! There is one exception: in a rollback without access to the cluster's etcd, the command itself copies the Leases
//! ([`without_etcd`]).
//!
//! The APIService is local if it names no Service, so that kube-apiserver serves the Leases in its own storage. That
//! storage is called built-in storage, and its Leases built-in Leases. A kube-apiserver has switched to this server
//! once it forwards requests for Leases to the replicas. To check that, a command reads the hand-over's Lease through
//! each kube-apiserver. Only this server's store has that Lease with its UID. So a kube-apiserver that returns this
//! Lease has switched.

mod canary;
mod checks;
mod clients;
mod lease;
mod live;
mod phase;
mod policy;
mod renewals;
mod rollback;
mod takeover;
mod without_etcd;
mod write_back;

use crate::cli::{API_SERVICE, RollbackArgs, TakeoverArgs};
use crate::cluster::told;
use crate::handover::{NAME, Phase, Step};
use clients::{Clients, Server};
use indicatif::{ProgressBar, ProgressStyle};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt as _;
use kube::api::PostParams;
use phase::{Claim, Handover, another_command};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::runtime;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

/// Time that the command leaves for writes that a kube-apiserver began before it switched. After this time, the
/// replicas read built-in storage for the last time. A write that takes longer may be lost.
const IN_FLIGHT_MAX: Duration = Duration::from_millis(250);
/// Time that the command leaves for clients that have just listed Leases at this server. In this time, they begin their
/// watches here. These watches end with 410, so the clients list again. At kube-apiserver, a watch from a
/// `resourceVersion` of this server would get no event.
const WATCH_MAX: Duration = Duration::from_secs(1);
/// Maximum time that a takeover waits for the kube-apiservers to switch, while clients can only renew. Also the maximum
/// time that a rollback, or the undo of a failed takeover, waits for the replicas to stop writes and to write the
/// Leases back. During that wait, clients cannot write.
const SWITCH_MAX: Duration = Duration::from_secs(3);
/// Maximum time that the command waits for the replicas to copy all Leases. During this time, clients can read and
/// write built-in Leases. A rollback, or the undo of a failed takeover, waits as long for the kube-apiservers to switch
/// back.
const COPY_MAX: Duration = Duration::from_secs(120);
/// Maximum time that the command waits for the replicas to import the last changes. During this time, clients can
/// renew. If a replica has died, the live replicas first wait until its identity Lease, its sign of life, expires. This
/// time suffices for that.
const SETTLE_MAX: Duration = Duration::from_secs(30);
/// Remaining time of the admission policy at which a rollback without access to etcd gives up. The policy keeps clients
/// other than the command from writing built-in Leases. So the operator has this time to run the rollback again.
const RERUN_TIME: Duration = Duration::from_secs(30);
/// Minimum time that a kube-apiserver gets for an answer, even at the end of a wait. Otherwise a healthy kube-apiserver
/// would seem silent.
const ANSWER_MIN: Duration = Duration::from_secs(1);
/// Time between two checks of a condition that the command waits for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum time for which a copy makes no progress, once the replicas have sent a first message about the copy. After
/// this time, the command gives up.
const FAILING_MAX: Duration = Duration::from_secs(15);
/// Maximum time until the first message of the replicas about a copy. If etcd does not answer, the replicas report this
/// only after 30 s. So the command waits longer than 30 s.
const SILENT_MAX: Duration = Duration::from_secs(40);
/// Label of an APIService whose spec kube-apiserver restores when kube-apiserver starts.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Annotation of the APIService with the id of the last write by a command. The id is new in each write, so each write
/// changes the `resourceVersion`.
const WRITE_ID: &str = "coordination-apiserver/write";
/// Annotation of an APIService in which `takeover` has registered the Service. A command that makes the APIService
/// local removes the annotation. A tool that registers the Service again does not set the annotation.
const TAKEN_OVER: &str = "coordination-apiserver/taken-over";
/// HTTP status code for a write whose `resourceVersion` is not that of the current object.
const CONFLICT: u16 = 409;
/// HTTP status code for an object that does not exist.
const NOT_FOUND: u16 = 404;
/// The probable reason for a failure that no replica explains.
const NO_ETCD: &str = "no replica works on it; are all of them ready? If they have no --cluster-etcd-servers, run the \
                       command with --without-etcd";
/// Last line of output of a command that has changed the versions of Leases.
const RESTART: &str =
    "restart kube-controller-manager 1.37 or newer: it compares versions of Leases, which have changed";
/// Error of a command without `--without-etcd` that finds a switch begun with `--without-etcd`.
const WITHOUT_ETCD: &str = "a switch without etcd has begun: run the command with --without-etcd";

/// The reason why a switch is not complete.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct SwitchError(String);

/// Creates an error. `what` is the operation that failed, or the server.
fn failed(what: &str, why: impl fmt::Display) -> SwitchError {
    SwitchError(format!("{what}: {why}"))
}

/// Switches the Leases of the cluster from kube-apiserver to this server. Calls `say` with a line for each step.
///
/// # Errors
/// If the switch, or a check before it, fails. The error has the reason.
pub fn takeover(args: &TakeoverArgs, say: &mut dyn FnMut(&str)) -> Result<(), SwitchError> {
    block_on(takeover::run(args, &mut Report::new(say)))
}

/// Switches the Leases of the cluster back to kube-apiserver. Calls `say` with a line for each step.
///
/// # Errors
/// If the switch, or a check before it, fails. The error has the reason.
pub fn rollback(args: &RollbackArgs, say: &mut dyn FnMut(&str)) -> Result<(), SwitchError> {
    block_on(rollback::run(args, &mut Report::new(say)))
}

fn block_on(work: impl Future<Output = Result<(), SwitchError>>) -> Result<(), SwitchError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| failed("cannot start a runtime", error))?.block_on(work)
}

/// The output of a command: a line for each step, with the time since the start of the command.
struct Report<'s> {
    begun: Instant,
    say: &'s mut dyn FnMut(&str),
    /// Progress bar on the terminal, until the next line.
    bar: Option<ProgressBar>,
}

impl<'s> Report<'s> {
    fn new(say: &'s mut dyn FnMut(&str)) -> Self {
        Self { begun: Instant::now(), say, bar: None }
    }

    /// Shows a message about work in progress: on a terminal until the next line, otherwise as a line. A message that
    /// begins with `N of M` moves a progress bar.
    fn progress(&mut self, message: &str) {
        let bar = self.bar.get_or_insert_with(|| ProgressBar::new(0).with_style(ProgressStyle::default_spinner()));
        if bar.is_hidden() {
            return self.line(message);
        }
        let with_bar = ProgressStyle::with_template("{wide_bar} {msg}").ok();
        match counts_of(message).zip(with_bar) {
            Some(((done, total), style)) => {
                bar.set_style(style);
                bar.set_length(total);
                bar.set_position(done);
            }
            None => bar.set_style(ProgressStyle::default_spinner()),
        }
        bar.set_message(message.to_owned());
        bar.tick();
    }

    fn line(&mut self, line: impl fmt::Display) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let seconds = self.begun.elapsed().as_secs_f64();
        (self.say)(&format!("{seconds:7.3} s  {line}"));
    }
}

/// Returns the counts at the beginning of a message `N of M …`.
fn counts_of(message: &str) -> Option<(u64, u64)> {
    let (done, rest) = message.split_once(" of ")?;
    Some((done.parse().ok()?, rest.split_once(' ')?.0.parse().ok()?))
}

/// Whether a kube-apiserver forwards requests for Leases to the replicas. `uid` is the UID of the hand-over's Lease in
/// the store of the replicas, or `None` if it is not known. Built-in storage has no Lease with this UID, and usually
/// none with this name.
async fn is_forwarded(apiserver: &Server, uid: Option<&str>) -> Result<bool, SwitchError> {
    let found = apiserver.leases().get_opt(NAME).await.map_err(|error| apiserver.failed(&error))?;
    Ok(found.is_some_and(|lease| uid.is_none() || lease.metadata.uid.as_deref() == uid))
}

/// Waits until all kube-apiservers forward requests for Leases to the replicas. If `is_wanted` is false, waits until no
/// kube-apiserver does.
///
/// # Errors
/// If a kube-apiserver has not switched within `limit`. The error names that kube-apiserver and the reason. The last
/// request to each kube-apiserver may take [`ANSWER_MIN`] longer.
async fn await_switch(clients: &Clients, is_wanted: bool, limit: Duration) -> Result<(), SwitchError> {
    let begun = Instant::now();
    // If no replica answers, the UID of the hand-over's Lease is unknown. Then only the name of the Lease is compared.
    let uid = Handover::seen(clients).await.ok().and_then(|seen| seen.uid);
    for apiserver in clients.apiservers() {
        loop {
            let left = limit.saturating_sub(begun.elapsed()).max(ANSWER_MIN);
            let asked = timeout(left, is_forwarded(apiserver, uid.as_deref())).await;
            let seen = asked.unwrap_or_else(|_| Err(apiserver.silent()));
            if seen.as_ref().is_ok_and(|is_forwarded| *is_forwarded == is_wanted) {
                break;
            }
            if begun.elapsed() > limit {
                let why = seen.err().map_or_else(String::new, |error| format!(": {error}"));
                return Err(SwitchError(format!("{} has not switched{why}", apiserver.url())));
            }
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Waits until no kube-apiserver forwards requests for Leases to the replicas. Then reports each kube-apiserver that
/// did not answer this command for a time.
///
/// # Errors
/// If a kube-apiserver has not switched within [`COPY_MAX`].
async fn await_local(clients: &Clients, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let switched = await_switch(clients, false, COPY_MAX).await;
    report_silent(clients, report);
    switched
}

/// Reports each kube-apiserver that did not answer this command for a time. Its clients may have lost their watches
/// before the replicas ended all watches with 410. Such a client resumes its watch at kube-apiserver, from a
/// `resourceVersion` of this server. In built-in storage, this watch gets no event, so the client must be restarted.
fn report_silent(clients: &Clients, report: &mut Report<'_>) {
    for apiserver in clients.apiservers().iter().filter(|apiserver| apiserver.was_silent()) {
        report.line(format_args!(
            "kube-apiserver {} did not answer for a time: restart its clients that watch Leases, \
             such as kube-controller-manager of any version",
            apiserver.url(),
        ));
    }
}

/// Cancels a takeover while the APIService is local: requests `phase` with the step [`Step::NotOurs`]. From then on,
/// the replicas refuse all writes. If another command has replaced the APIService meanwhile, no client could write. So
/// this function then makes the APIService local again.
///
/// # Errors
/// If the takeover has become complete, or another command has requested a phase. Also if no replica accepts the
/// request.
async fn cancel(clients: &Clients, claim: &mut Claim, phase: Phase) -> Result<(), SwitchError> {
    match claim.insist_unless(clients, phase, Some(Step::NotOurs), Handover::is_serving).await {
        Ok(true) => make_local_if_registered(clients).await,
        // A tool has registered the Service again. Clients may have acquired locks at this server since.
        Ok(false) => Err(SwitchError("the takeover has come to its end meanwhile: run rollback again".to_owned())),
        Err(error) if claim.is_lost() => Err(error),
        Err(error) => Err(failed("the takeover is not cancelled; cancel it with rollback --apiservice", error)),
    }
}

/// Makes the APIService local if another command has cancelled this takeover. The other command may have found the
/// APIService local, just before this takeover replaced it. In this case, nobody else makes it local again. Returns
/// whether the takeover was cancelled.
async fn give_back_if_cancelled(clients: &Clients, claim: &Claim) -> Result<bool, SwitchError> {
    let is_cancelled = claim.is_lost() && Handover::seen(clients).await?.is_given_back();
    if is_cancelled {
        make_local_if_registered(clients).await?;
    }
    Ok(is_cancelled)
}

/// Returns the error of a copy that has failed. `cancelled` is the outcome of the cancellation of the takeover.
fn copy_failed(error: &SwitchError, cancelled: Result<(), SwitchError>) -> SwitchError {
    match cancelled {
        Ok(()) => failed("the takeover is cancelled, and kube-apiserver has the Leases", error),
        Err(uncancelled) => failed(&error.to_string(), uncancelled),
    }
}

/// Makes the APIService local, unless it is local already. Waits until no kube-apiserver forwards Leases.
///
/// # Errors
/// If another command has begun a takeover since the cancellation.
async fn make_local_if_registered(clients: &Clients) -> Result<(), SwitchError> {
    if names_service(&clients.api_service().await?) {
        // In this time, clients that have just listed Leases at this server begin their watches here. The watches end
        // with 410, so that the clients list again at kube-apiserver.
        sleep(WATCH_MAX).await;
        let check = async || check_given_back(clients).await;
        replace_api_service(clients, &PostParams::default(), check, make_local).await?;
        await_switch(clients, false, COPY_MAX).await?;
    }
    Ok(())
}

/// Checks that kube-apiserver may serve built-in Leases, since no takeover has begun after a cancellation.
///
/// # Errors
/// If another command has begun a takeover, or if no replica answers.
async fn check_given_back(clients: &Clients) -> Result<(), SwitchError> {
    match Handover::seen(clients).await?.is_given_back() {
        true => Ok(()),
        false => Err(another_command()),
    }
}

/// Makes the process ignore SIGHUP, SIGINT and SIGTERM from now on. Until the command is complete, clients cannot
/// write, or can only renew. So the user must not interrupt the command.
fn hold_signals() {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // If the process cannot install the handler, a signal interrupts the command. The user can then run the command
        // again.
        _ = signal_hook::flag::register(signal, Arc::default());
    }
}

/// Replaces the APIService for Leases. `change` changes the current APIService to the new one. `check` decides whether
/// the command may still do so.
///
/// Even a replacement that changes nothing else gets a new [`WRITE_ID`]. So a delayed request of an earlier command
/// fails with a conflict, if kube-apiserver carries out the delayed request only after the replacement.
///
/// # Errors
/// If `check` fails, or if kube-apiserver does not answer or refuses the replacement.
async fn replace_api_service(
    clients: &Clients,
    parameters: &PostParams,
    mut check: impl AsyncFnMut() -> Result<(), SwitchError>,
    change: impl Fn(&mut APIService),
) -> Result<(), SwitchError> {
    let services = clients.api_services();
    loop {
        let mut service = services.get(API_SERVICE).await.map_err(|error| failed(API_SERVICE, told(&error)))?;
        // Another command requests a phase before it replaces the APIService. So if `check` finds no such request, a
        // replacement by another command comes after the read above, and leads to a conflict.
        check().await?;
        change(&mut service);
        service.annotations_mut().insert(WRITE_ID.to_owned(), Uuid::new_v4().to_string());
        match services.replace(API_SERVICE, parameters, &service).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(failed(API_SERVICE, told(&error))),
        }
    }
}

/// Changes the APIService to the form that kube-apiserver creates for built-in Leases (kube-aggregator,
/// `apiserver/apiservice`). Removes the labels and annotations of the takeover too. One of the annotations makes
/// cert-manager set a `caBundle`, which an APIService without a Service must not have. So cert-manager would otherwise
/// try without end.
fn make_local(service: &mut APIService) {
    service.metadata.labels = Some([(AUTOMANAGED.to_owned(), "onstart".to_owned())].into());
    service.metadata.annotations = None;
    if let Some(spec) = &mut service.spec {
        (spec.service, spec.ca_bundle, spec.insecure_skip_tls_verify) = (None, None, None);
    }
}

/// Whether an APIService names a Service, so that kube-apiserver forwards the requests.
fn names_service(service: &APIService) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.service.is_some())
}

#[cfg(test)]
mod tests;
