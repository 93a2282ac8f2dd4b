//! The commands that switch a cluster's Leases over to this server, and back.
//!
//! A command says what it wants in the Lease of the hand-over ([`crate::handover`]), waits for the replicas to do it,
//! and replaces the APIService. The replicas copy the Leases. So a command may end at any moment: the same command, run
//! again, goes on from what the Lease and the APIService say.
//!
//! That a kube-apiserver has switched is asked of that kube-apiserver: the Lease of the hand-over is in this server's
//! store and never in built-in storage.

mod clients;
mod rollback;
mod takeover;

use crate::cli::{RollbackArgs, TakeoverArgs};
use crate::handover::{MESSAGE, NAME, NAMESPACE, PHASE, Phase, STEP, Step};
use clients::{Clients, Server};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ObjectMeta, PostParams};
use std::fmt;
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::time::{sleep, timeout};

/// Longest time for which writes are held back while kube-apiservers switch.
const SWITCH_MAX: Duration = Duration::from_secs(3);
/// Longest time for the replicas to copy all Leases while clients go on.
const COPY_MAX: Duration = Duration::from_secs(120);
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Label of an APIService whose spec kube-apiserver puts back at its start.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Name of the APIService of Leases.
const API_SERVICE: &str = "v1.coordination.k8s.io";
/// Status of a write that another one came before.
const CONFLICT: u16 = 409;

/// Why a switch has not come to its end.
#[derive(Debug)]
pub struct SwitchError(String);

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SwitchError {}

/// An error with what was tried.
fn failed(what: &str, why: impl fmt::Display) -> SwitchError {
    SwitchError(format!("{what}: {why}"))
}

/// Switches the cluster's Leases over to this server. `say` gets a line for each step.
///
/// # Errors
/// [`SwitchError`] says how the cluster was left.
pub fn takeover(args: &TakeoverArgs, say: &mut dyn FnMut(&str)) -> Result<(), SwitchError> {
    block_on(takeover::run(args, &mut Report::new(say)))
}

/// Gives the cluster's Leases back to kube-apiserver. `say` gets a line for each step.
///
/// # Errors
/// [`SwitchError`] says how the cluster was left.
pub fn rollback(args: &RollbackArgs, say: &mut dyn FnMut(&str)) -> Result<(), SwitchError> {
    block_on(rollback::run(args, &mut Report::new(say)))
}

fn block_on(work: impl Future<Output = Result<(), SwitchError>>) -> Result<(), SwitchError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| failed("cannot start a runtime", error))?.block_on(work)
}

/// What a command tells its user: a line for each step, with the time since the start.
struct Report<'s> {
    begun: Instant,
    say: &'s mut dyn FnMut(&str),
}

impl<'s> Report<'s> {
    fn new(say: &'s mut dyn FnMut(&str)) -> Self {
        Self { begun: Instant::now(), say }
    }

    fn line(&mut self, line: impl fmt::Display) {
        let seconds = self.begun.elapsed().as_secs_f64();
        (self.say)(&format!("{seconds:7.3} s  {line}"));
    }
}

/// The hand-over, as its Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Handover {
    phase: Option<Phase>,
    step: Option<Step>,
    message: String,
}

impl Handover {
    fn of(lease: Option<&Lease>) -> Self {
        let annotations = lease.and_then(|lease| lease.metadata.annotations.as_ref());
        let word = |name: &str| annotations.and_then(|all| all.get(name)).map_or("", String::as_str);
        Self { phase: word(PHASE).parse().ok(), step: word(STEP).parse().ok(), message: word(MESSAGE).to_owned() }
    }
}

/// What became of a request for a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The replicas know the phase.
    Done,
    /// The takeover has come to its end, and nothing was changed.
    IsServing,
}

/// What a replica says of the hand-over.
async fn handover(server: &Server) -> Result<Handover, SwitchError> {
    let lease = server.leases().get_opt(NAME).await.map_err(|error| server.failed(&error))?;
    Ok(Handover::of(lease.as_ref()))
}

/// Asks the replicas for a phase. `step` is one that needs no work. A takeover that has come to its end is not undone:
/// clients may have acquired locks since.
async fn ask_for(clients: &Clients, phase: Phase, step: Option<Step>) -> Result<Asked, SwitchError> {
    let replica = clients.replica();
    let leases = replica.leases();
    let annotations = [(PHASE, Some(phase.name())), (STEP, step.map(Step::name))];
    let annotations = annotations.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    let mut wanted = Lease {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            annotations: Some(annotations.collect()),
            ..ObjectMeta::default()
        },
        spec: None,
    };
    let parameters = PostParams::default();
    loop {
        let found = leases.get_opt(NAME).await.map_err(|error| replica.failed(&error))?;
        let seen = Handover::of(found.as_ref());
        if phase == Phase::Undo && (seen.phase, seen.step) == (Some(Phase::Serve), Some(Step::Serving)) {
            return Ok(Asked::IsServing);
        }
        let done = match found {
            None => leases.create(&parameters, &wanted).await,
            Some(found) => {
                wanted.metadata.resource_version = found.metadata.resource_version;
                leases.replace(NAME, &parameters, &wanted).await
            }
        };
        match done {
            Ok(_) => return Ok(Asked::Done),
            // A replica has said how far it is.
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(replica.failed(&error)),
        }
    }
}

/// Waits until the replicas have reached a step of a phase. The last step that they had reached, and what they say.
async fn await_step(clients: &Clients, phase: Phase, step: Step, limit: Duration) -> Result<Handover, SwitchError> {
    let begun = Instant::now();
    loop {
        let seen = handover(clients.replica()).await?;
        let is_over = seen.step == Some(step) || seen.step == Some(Step::NotOurs);
        if seen.phase == Some(phase) && is_over || begun.elapsed() > limit {
            return Ok(seen);
        }
        if seen.phase != Some(phase) {
            return Err(SwitchError("another command is at work: the phase of the hand-over has changed".to_owned()));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Whether a kube-apiserver forwards Leases to this server.
async fn is_forwarded(apiserver: &Server) -> Result<bool, SwitchError> {
    let found = apiserver.leases().get_opt(NAME).await.map_err(|error| apiserver.failed(&error))?;
    Ok(found.is_some())
}

/// Waits until every kube-apiserver forwards Leases, or until none does.
///
/// # Errors
/// The first kube-apiserver that has not switched within `limit`, and why.
async fn await_switch(clients: &Clients, is_wanted: bool, limit: Duration) -> Result<(), SwitchError> {
    let begun = Instant::now();
    for apiserver in clients.apiservers() {
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let seen = timeout(left, is_forwarded(apiserver)).await.unwrap_or_else(|_| Err(apiserver.silent()));
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

/// Replaces the APIService by one that `change` makes of the present one.
async fn replace_api_service(
    clients: &Clients,
    parameters: &PostParams,
    change: impl Fn(&mut APIService),
) -> Result<(), SwitchError> {
    let services = clients.api_services();
    loop {
        let mut service = services.get(API_SERVICE).await.map_err(|error| failed(API_SERVICE, error))?;
        change(&mut service);
        match services.replace(API_SERVICE, parameters, &service).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(failed(API_SERVICE, error)),
        }
    }
}

/// The APIService as kube-apiserver makes it for its built-in storage (kube-aggregator, `apiserver/apiservice`).
fn make_local(service: &mut APIService) {
    let labels = service.metadata.labels.get_or_insert_default();
    labels.insert(AUTOMANAGED.to_owned(), "onstart".to_owned());
    if let Some(spec) = &mut service.spec {
        (spec.service, spec.ca_bundle, spec.insecure_skip_tls_verify) = (None, None, None);
    }
}

/// Whether an APIService names a Service.
fn names_service(service: &APIService) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.service.is_some())
}

#[cfg(test)]
mod tests;
