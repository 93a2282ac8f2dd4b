//! The command `takeover`: moves the Leases from built-in storage, kube-apiserver's own storage of Leases, to this
//! server. The command requests phases of this work from the replicas. The APIService is local if it names no Service,
//! so that kube-apiserver serves the built-in Leases.

use super::checks::{COPIED_MAX, check_clocks, check_copies, check_rights, report_shortest_lock};
use super::clients::{Clients, Cluster};
use super::phase::{Claim, Handover, await_copy, await_step, report_replicas};
use super::policy::{self, Permitted};
use super::without_etcd::{self, check_no_rollback, take_over};
use super::{
    API_SERVICE, AUTOMANAGED, COPY_MAX, IN_FLIGHT_MAX, NO_ETCD, RESTART, Report, SETTLE_MAX, SWITCH_MAX, SwitchError,
    TAKEN_OVER, WATCH_MAX, WITHOUT_ETCD, await_local, await_switch, canary, cancel, copy_failed, failed,
    give_back_if_cancelled, hold_signals, is_forwarded, make_local, names_service, renewals, replace_api_service,
};
use crate::cli::{self, TakeoverArgs};
use crate::cluster::told;
use crate::handover::{Phase, Step};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::PostParams;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::time::sleep;

pub(super) async fn run(args: &TakeoverArgs, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let wanted = read_api_service(&args.apiservice)?;
    let clients = Clients::new(Cluster::new(&args.cluster).await?, &args.cluster, Some(&wanted)).await?;
    let before = Handover::seen_at_start(&clients).await?;
    // A killed command may have left behind the canary, a test APIService.
    canary::remove(clients.cluster()).await?;
    let is_registered = check(&clients, &wanted, &before, report).await?;
    if args.cluster.without_etcd {
        policy::check(clients.cluster(), Permitted::Renewals).await?;
        report.line("kube-apiserver accepts the admission policy in a dry run");
    }
    check_no_rollback(&clients, &before, is_registered).await?;
    if args.cluster.dry_run {
        if !is_registered {
            rehearse(&clients, &before, args.cluster.without_etcd, report).await?;
        }
        report.line("a dry run: nothing was changed in the cluster");
        return Ok(());
    }
    renewals::remove(clients.cluster()).await?;
    if args.cluster.without_etcd {
        return take_over(&clients, &wanted, &before, is_registered, args.shield, report).await;
    }
    let mut claim = Claim::of(&before);
    match before.phase {
        _ if !is_registered || before.is_given_back() => {
            import(&clients, &mut claim, report).await?;
        }
        None => return already(report),
        Some(Phase::Serve) if before.is_serving() => return already(report),
        Some(Phase::Import | Phase::Serve) => report.line("a takeover has begun before; it goes on"),
        Some(Phase::Freeze) => {
            return Err(SwitchError("a rollback has begun: run rollback to its end first".to_owned()));
        }
        Some(Phase::Copy | Phase::Hold) => return Err(SwitchError(WITHOUT_ETCD.to_owned())),
        Some(Phase::Undo) => {
            report.line("a takeover was being undone; that goes on");
            undo(&clients, &mut claim, report).await?;
            return Err(SwitchError("kube-apiserver has the Leases again: run takeover once more".to_owned()));
        }
    }
    let begun = Instant::now();
    if let Err(error) = switch(&clients, &wanted, &mut claim, report).await {
        // Another command has requested a phase, and continues from the state of the cluster, or has cancelled this
        // takeover.
        if claim.is_lost() {
            give_back_if_cancelled(&clients, &claim).await?;
            return Err(error);
        }
        report.line(format_args!("the switch takes too long and is undone: {error}"));
        let undone = undo(&clients, &mut claim, report).await;
        give_back_if_cancelled(&clients, &claim).await?;
        if undone.map_err(|undone| failed(&format!("{error}; the undo failed too: run takeover again"), undone))? {
            return Err(failed("kube-apiserver has the Leases again", error));
        }
        report.line("the takeover has come to its end meanwhile");
    }
    let held_ms = begun.elapsed().as_millis();
    report.line(format_args!("this server has the Leases; creations and acquisitions waited for {held_ms} ms"));
    report.line(RESTART);
    policy::remove_leftovers(clients.cluster()).await
}

pub(super) fn already(report: &mut Report<'_>) -> Result<(), SwitchError> {
    report.line("this server has the Leases already");
    Ok(())
}

/// Copies all Leases to the replicas in a dry run, and then cancels the copy. So the dry run finds out whether the
/// replicas can read every built-in Lease.
async fn rehearse(
    clients: &Clients,
    before: &Handover,
    without_etcd: bool,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    if matches!(before.phase, Some(Phase::Import | Phase::Copy)) {
        let why = "a takeover has begun: run it again, or cancel it with rollback --apiservice";
        return Err(SwitchError(why.to_owned()));
    }
    let mut claim = Claim::of(before);
    if without_etcd {
        without_etcd::copy(clients, &mut claim, report).await?;
        return cancel(clients, &mut claim, Phase::Hold).await;
    }
    import(clients, &mut claim, report).await?;
    cancel(clients, &mut claim, Phase::Undo).await
}

/// Makes the checks before a takeover. These change nothing in the cluster, apart from the canary, a test APIService,
/// which they create and delete. Returns whether the APIService already names a Service.
async fn check(
    clients: &Clients,
    wanted: &APIService,
    before: &Handover,
    report: &mut Report<'_>,
) -> Result<bool, SwitchError> {
    let mut error = report_replicas(clients, report).await;
    let present = clients.api_services().get(API_SERVICE).await.map_err(|error| failed(API_SERVICE, told(&error)))?;
    let is_registered = names_service(&present);
    check_service(&present, wanted)?;
    for apiserver in clients.apiservers() {
        match is_forwarded(apiserver, before.uid.as_deref()).await {
            Ok(true) if !is_registered => {
                return Err(SwitchError(format!("{} still forwards Leases: try again", apiserver.url())));
            }
            Ok(true) => report.line(format_args!("kube-apiserver {} serves Leases of this server", apiserver.url())),
            Ok(false) => report.line(format_args!("kube-apiserver {} serves Leases of its own", apiserver.url())),
            Err(silent) => {
                report.line(format_args!("kube-apiserver {silent}"));
                error = error.or(Some(silent));
            }
        }
    }
    // If an earlier takeover has already replaced the APIService, this command must complete or undo that takeover. So
    // it continues even if a server has died since.
    error.filter(|_| !is_registered).map_or(Ok(()), Err)?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    replace_api_service(clients, &dry, async || Ok(()), |service| register(service, wanted)).await?;
    report.line("kube-apiserver accepts the APIService in a dry run");
    if !is_registered {
        check_rights(clients).await?;
        report.line("each replica accepts the Lease of the hand-over in a dry run");
        check_clocks(clients, report).await?;
        report_shortest_lock(clients.cluster(), report).await?;
        canary::check(clients, wanted, report).await?;
    }
    Ok(is_registered)
}

/// Checks that the APIService `present` names no Service, or the Service of `wanted`. The server behind another Service
/// has the Leases, and built-in storage may lack their present holders.
///
/// # Errors
/// If `present` names another Service.
pub(super) fn check_service(present: &APIService, wanted: &APIService) -> Result<(), SwitchError> {
    let named = |service: &APIService| {
        let reference = service.spec.as_ref()?.service.as_ref()?;
        let parts = [&reference.namespace, &reference.name];
        let [namespace, name] = parts.map(|part| part.as_deref().unwrap_or_default());
        Some(format!("{namespace}/{name}"))
    };
    match (named(present), named(wanted)) {
        (Some(present), Some(wanted)) if present != wanted => Err(SwitchError(format!(
            "the APIService names the Service {present} instead of {wanted}: run rollback with the replicas of that \
             Service first. If these replicas no longer run, roll back by hand (docs/deploy.md)"
        ))),
        _ => Ok(()),
    }
}

/// Makes the replicas copy all Leases, while clients still use built-in storage. Cancels the takeover if the replicas
/// fail, or if they have copied other Leases than those that kube-apiserver serves.
async fn import(clients: &Clients, claim: &mut Claim, report: &mut Report<'_>) -> Result<(), SwitchError> {
    claim.ask(clients, Phase::Import, None).await?;
    let copied = async {
        let message = await_copy(clients, claim, Phase::Import, NO_ETCD, report).await?;
        check_imported(clients, claim, &message, COPIED_MAX).await.map(|()| message)
    }
    .await;
    match copied {
        Ok(message) => {
            report.line(format_args!("{message}, and changes follow"));
            Ok(())
        }
        Err(error) if claim.is_lost() => Err(error),
        Err(error) => {
            let error = failed("the replicas have not copied the Leases", error);
            Err(copy_failed(&error, cancel(clients, claim, Phase::Undo).await))
        }
    }
}

/// Checks that the replicas have copied the Leases that kube-apiserver serves, as [`check_copies`] does. Also checks
/// that the replicas can still import every Lease. `message` is the message of the completed copy.
///
/// # Errors
/// If a copy is missing, or a Lease cannot be imported. Also if another command has requested a phase.
pub(super) async fn check_imported(
    clients: &Clients,
    claim: &mut Claim,
    message: &str,
    limit: Duration,
) -> Result<(), SwitchError> {
    let checked = check_copies(clients, limit).await;
    let seen = await_step(clients, claim, Phase::Import, Step::Imported, SWITCH_MAX).await?;
    match checked {
        // A client has changed a Lease since the copy, and the replicas cannot import the Lease any more.
        _ if seen.step != Some(Step::Imported) => Err(SwitchError(seen.message)),
        // A later message of the replicas probably explains the failure.
        Err(why) if seen.message != message => Err(failed(&why.to_string(), seen.message)),
        checked => checked,
    }
}

/// Replaces the APIService. Then waits until every kube-apiserver has switched, and until the replicas have imported
/// the last changes from built-in storage.
pub(super) async fn switch(
    clients: &Clients,
    wanted: &APIService,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let check = async || claim.check(clients).await;
    replace_api_service(clients, &PostParams::default(), check, |service| register(service, wanted)).await?;
    report.line("the APIService is replaced");
    await_switch(clients, true, SWITCH_MAX).await?;
    report.line("every kube-apiserver has switched");
    sleep(IN_FLIGHT_MAX).await;
    // A killed takeover may have requested this phase, and the takeover may have become complete since this command
    // began. Then clients may have acquired locks at this server. So the replicas must not follow built-in storage
    // again, which may lack these locks.
    if claim.ask_unless(clients, Phase::Serve, None, Handover::is_serving).await? {
        let seen = await_step(clients, claim, Phase::Serve, Step::Serving, SETTLE_MAX).await?;
        if seen.step != Some(Step::Serving) {
            return Err(failed("the last changes of built-in storage are not here", seen.message));
        }
    }
    report.line("the last changes of built-in storage are here");
    Ok(())
}

/// Makes kube-apiserver serve built-in Leases again after a failed takeover. Returns `false` if the takeover has become
/// complete meanwhile. A complete takeover is not undone, since clients may have acquired locks at this server.
pub(super) async fn undo(clients: &Clients, claim: &mut Claim, report: &mut Report<'_>) -> Result<bool, SwitchError> {
    // First, every live replica must confirm the phase `import`. A replica that has just died counts as live until its
    // identity Lease, its sign of life, has expired. The command waits for the confirmations in this phase, since
    // clients may still renew in it. In the next phase, `undo`, no client may write.
    if !claim.ask_unless(clients, Phase::Import, None, Handover::is_serving).await? {
        return Ok(false);
    }
    renewals::create(clients.cluster(), report).await;
    let seen = await_step(clients, claim, Phase::Import, Step::Imported, COPY_MAX).await?;
    if seen.step != Some(Step::Imported) {
        return Err(failed("the replicas do not follow built-in storage", seen.message));
    }
    hold_signals();
    // The replicas may have accepted the request without an answer. So an error of the request does not end the undo
    // here: `why` below makes the command request the phase `import` again.
    let seen = match claim.ask(clients, Phase::Undo, None).await {
        Err(error) => Err(error),
        Ok(()) => await_step(clients, claim, Phase::Undo, Step::WrittenBack, SWITCH_MAX).await,
    };
    let why = match seen {
        // The step is `not-ours` if the APIService names no Service: it was never replaced, or an administrator has
        // made it local.
        Ok(seen) if matches!(seen.step, Some(Step::WrittenBack | Step::NotOurs)) => None,
        Ok(seen) => Some(SwitchError(seen.message)),
        Err(error) if claim.is_lost() => return Err(error),
        Err(error) => Some(error),
    };
    if let Some(why) = why {
        // The phase `import` permits clients to renew again.
        let renews = claim.insist_unless(clients, Phase::Import, None, |_| false).await;
        renews.map_err(|error| failed(&format!("{why}; no client can write until takeover is run again"), error))?;
        return Err(failed("the renewals that came here are not in built-in storage", why));
    }
    report.line("the renewals that came here are in built-in storage");
    sleep(WATCH_MAX).await;
    let check = async || claim.check_if_known(clients).await;
    replace_api_service(clients, &PostParams::default(), check, make_local).await?;
    await_local(clients, report).await?;
    report.line("every kube-apiserver serves Leases of its own");
    Ok(true)
}

/// Sets the spec of the current APIService to the spec in the user's manifest, and adds the labels and annotations of
/// the manifest. Adds the annotation [`TAKEN_OVER`]. Removes the label that makes kube-apiserver restore its own spec.
pub(super) fn register(service: &mut APIService, wanted: &APIService) {
    service.spec.clone_from(&wanted.spec);
    let labels = service.metadata.labels.get_or_insert_default();
    labels.extend(wanted.metadata.labels.clone().unwrap_or_default());
    labels.remove(AUTOMANAGED);
    let annotations = service.metadata.annotations.get_or_insert_default();
    annotations.extend(wanted.metadata.annotations.clone().unwrap_or_default());
    annotations.insert(TAKEN_OVER.to_owned(), "true".to_owned());
}

/// Reads the APIService for Leases from a file, like [`cli::read_api_service`].
pub(super) fn read_api_service(file: &Path) -> Result<APIService, SwitchError> {
    cli::read_api_service(file).map_err(SwitchError)
}
