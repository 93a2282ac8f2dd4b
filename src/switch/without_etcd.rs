//! The takeover and the rollback without access to the cluster's etcd.
//!
//! ```text
//!   takeover   copy ─► policy: renewals ─► copy ─► APIService ─► serve ─► policy deleted
//!   rollback   policy: this command ─► hold ─► list ─► APIService ─► write ─► policy deleted
//! ```
//!
//! **Takeover.** While the kube-apiservers switch, an admission policy keeps clients of built-in storage from all
//! changes but renewals. This server refuses such changes too, so no lock changes its holder on either side. The first
//! copy takes time; the second one finds what has changed before the policy had effect.
//!
//! **Rollback.** Built-in storage has the Leases of the takeover, until the command has written this server's Leases.
//! Meanwhile the policy keeps all other clients from writing: a former holder of a lock could otherwise renew it there.

use super::clients::{Clients, Cluster};
use super::phase::{Handover, ask_for, ask_unless, await_step, report_replicas};
use super::policy::{self, Found, Permitted};
use super::takeover::register;
use super::write_back::{Plan, carry_out, list, plan};
use super::{
    API_SERVICE, COPY_MAX, IN_FLIGHT_MAX, Report, SWITCH_MAX, SwitchError, WATCH_MAX, await_switch, failed,
    hold_signals, make_local, names_service, replace_api_service,
};
use crate::cli::RollbackArgs;
use crate::cluster::told;
use crate::handover::{Phase, Step};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::PostParams;
use std::time::Instant;
use tokio::time::sleep;

/// Moves the Leases to this server. `before` is the state of the hand-over, and `is_registered` tells whether the
/// APIService names a Service.
///
/// # Errors
/// [`SwitchError`] describes the state of the cluster.
pub(super) async fn take_over(
    clients: &Clients,
    wanted: &APIService,
    before: &Handover,
    is_registered: bool,
    has_shield: bool,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    match before.phase {
        Some(Phase::Copy) if is_registered => {
            report.line("a takeover has begun before; it is undone first");
            undo(clients, wanted, report).await?;
        }
        Some(Phase::Serve) if is_registered && before.is_serving() => {
            policy::remove(clients.cluster()).await?;
            report.line("this server has the Leases already");
            return Ok(());
        }
        Some(Phase::Hold) if is_registered => {
            return Err(SwitchError("a rollback has begun: run rollback --without-etcd to its end first".to_owned()));
        }
        None if is_registered => {
            report.line("this server has the Leases already");
            return Ok(());
        }
        Some(_) if is_registered => {
            return Err(SwitchError("a takeover has begun that uses etcd: run it without --without-etcd".to_owned()));
        }
        Some(_) | None => {}
    }
    copy(clients, report).await?;
    let begun = Instant::now();
    if let Err(error) = switch(clients, wanted, has_shield, report).await {
        report.line(format_args!("the switch has failed and is undone: {error}"));
        let undone = undo(clients, wanted, report).await;
        undone.map_err(|undone| failed(&format!("{error}; the undo failed too: run takeover again"), undone))?;
        return Err(failed("kube-apiserver has the Leases again", error));
    }
    let held_ms = begun.elapsed().as_millis();
    report.line(format_args!("this server has the Leases; creations and acquisitions waited for {held_ms} ms"));
    if !has_shield {
        report.line("restart kube-controller-manager now: within 40 s it would mark the nodes as not ready");
    }
    report
        .line("watches of Leases that are open now get no more events: restart their clients, or wait for 10 minutes");
    Ok(())
}

/// Checks that no rollback has given the APIService back whose Leases are not written back yet.
///
/// # Errors
/// If the rollback must be run to its end first.
pub(super) async fn check_no_rollback(clients: &Clients, before: &Handover) -> Result<(), SwitchError> {
    if before.phase != Some(Phase::Hold) || before.is_given_back() {
        return Ok(());
    }
    // After the end of the policy, clients have written to built-in storage again.
    match policy::find(clients.cluster()).await? {
        Some(found) if found.is_in_effect() => {
            let why = "a rollback has not written all Leases back: run rollback --without-etcd to its end first";
            Err(SwitchError(why.to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

/// Makes a replica copy all Leases.
async fn copy(clients: &Clients, report: &mut Report<'_>) -> Result<(), SwitchError> {
    ask_for(clients, Phase::Copy, None).await?;
    let seen = await_step(clients, Phase::Copy, Step::Imported, COPY_MAX).await?;
    if seen.step != Some(Step::Imported) {
        let why = if seen.message.is_empty() { NO_CLUSTER } else { &seen.message };
        return Err(failed("the replicas have not copied the Leases", why));
    }
    report.line(seen.message);
    Ok(())
}

/// The probable reason for a failure, if no replica reports a reason.
const NO_CLUSTER: &str =
    "no replica works on it; have the replicas access to kube-apiserver, and are all of them ready?";

async fn switch(
    clients: &Clients,
    wanted: &APIService,
    has_shield: bool,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    policy::install(clients, Permitted::Renewals, wanted).await?;
    report.line("clients of built-in storage may only renew");
    // A request that passed admission before may still change a Lease. The copy finds the change.
    sleep(IN_FLIGHT_MAX).await;
    copy(clients, report).await?;
    if has_shield {
        let end = policy::install_shield(clients.cluster()).await?;
        report.line(format_args!("kube-controller-manager cannot mark nodes as not ready until {end}"));
    }
    replace_api_service(clients, &PostParams::default(), |service| register(service, wanted)).await?;
    report.line("the APIService is replaced");
    await_switch(clients, true, SWITCH_MAX).await?;
    report.line("every kube-apiserver has switched");
    // The watch of the replica reports the last renewals of built-in storage.
    sleep(IN_FLIGHT_MAX).await;
    let is_served =
        ask_unless(clients, Phase::Serve, Some(Step::Serving), |seen| seen.phase != Some(Phase::Copy)).await?;
    if !is_served {
        return Err(SwitchError("another command is at work".to_owned()));
    }
    policy::remove(clients.cluster()).await
}

/// Gives the Leases back. Clients have only renewed since the copy, so built-in storage has the holders of all locks.
async fn undo(clients: &Clients, service: &APIService, report: &mut Report<'_>) -> Result<(), SwitchError> {
    if Handover::seen(clients).await?.is_serving() {
        return Err(SwitchError("the takeover has come to its end meanwhile".to_owned()));
    }
    hold_signals();
    let present = clients.api_services().get(API_SERVICE).await.map_err(|error| failed(API_SERVICE, told(&error)))?;
    if names_service(&present) {
        // The policy of the takeover may have ended.
        policy::install(clients, Permitted::Renewals, service).await?;
    }
    replace_api_service(clients, &PostParams::default(), make_local).await?;
    await_switch(clients, false, COPY_MAX).await?;
    ask_for(clients, Phase::Hold, Some(Step::NotOurs)).await?;
    remove_policies(clients).await?;
    report.line("every kube-apiserver serves Leases of its own");
    Ok(())
}

/// Moves the Leases back to built-in storage.
///
/// # Errors
/// [`SwitchError`] describes the state of the cluster.
pub(super) async fn roll_back(
    args: &RollbackArgs,
    cluster: Cluster,
    present: APIService,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let found = policy::find(cluster.server()).await?;
    let is_registered = names_service(&present);
    let is_in_effect = found.as_ref().is_some_and(Found::is_in_effect);
    // If a command was killed, its policy has the APIService by which this command reaches the replicas.
    let service = match found.and_then(|found| found.api_service) {
        _ if is_registered => present,
        Some(service) => service,
        None => {
            report.line("kube-apiserver has the Leases already");
            return Ok(());
        }
    };
    let clients = Clients::new(cluster, &args.cluster, &service).await?;
    _ = report_replicas(&clients, report).await;
    policy::check(clients.cluster(), Permitted::ThisCommand).await?;
    report.line("kube-apiserver takes the admission policy in a dry run");
    if args.cluster.dry_run {
        report.line("a dry run: nothing was changed");
        return Ok(());
    }
    let seen = Handover::seen(&clients).await?;
    match seen.phase {
        Some(Phase::Serve) if seen.is_serving() && is_registered => {}
        // The Leases were given back before, so this server's Leases are outdated.
        _ if seen.is_given_back() => {
            replace_api_service(&clients, &PostParams::default(), make_local).await?;
            await_switch(&clients, false, COPY_MAX).await?;
            remove_policies(&clients).await?;
            report.line("kube-apiserver has the Leases");
            return Ok(());
        }
        Some(Phase::Hold) if is_registered || is_in_effect => {}
        Some(Phase::Hold) => {
            ask_for(&clients, Phase::Hold, Some(Step::NotOurs)).await?;
            remove_policies(&clients).await?;
            return Err(SwitchError(TOO_LATE.to_owned()));
        }
        Some(Phase::Copy) => {
            report.line("a takeover has not come to its end; it is undone");
            return undo(&clients, &service, report).await;
        }
        Some(_) | None => {
            return Err(SwitchError("this server has not taken the Leases over with --without-etcd".to_owned()));
        }
    }
    policy::install(&clients, Permitted::ThisCommand, &service).await?;
    report.line("no other client writes built-in Leases");
    hold_signals();
    let begun = Instant::now();
    let ours = match is_registered {
        true => hold(&clients, report).await?,
        false => held(&clients, &seen).await?,
    };
    replace_api_service(&clients, &PostParams::default(), make_local).await?;
    report.line("the APIService is replaced");
    await_switch(&clients, false, COPY_MAX).await?;
    report.line("every kube-apiserver serves Leases of its own");
    let Plan { writes, renewals } = plan(&clients, ours).await?;
    let written = carry_out(&clients, &writes).await.map_err(|why| failed("not all Leases are written back", why));
    ask_for(&clients, Phase::Hold, Some(Step::NotOurs)).await?;
    policy::remove(clients.cluster()).await?;
    let frozen_ms = begun.elapsed().as_millis();
    let renewed = carry_out(&clients, &renewals).await;
    policy::remove_shield(clients.cluster()).await?;
    let count = written? + renewed?;
    report.line(format_args!("{count} Leases are written back; nobody could write for {frozen_ms} ms"));
    Ok(())
}

/// Deletes the policies of all commands.
async fn remove_policies(clients: &Clients) -> Result<(), SwitchError> {
    policy::remove(clients.cluster()).await?;
    policy::remove_shield(clients.cluster()).await
}

/// What becomes of a rollback that was killed and is not run again in time.
const TOO_LATE: &str = "an earlier rollback was killed, and its admission policy has ended: kube-apiserver serves the \
                        Leases of the takeover since then";

/// Stops all writes at this server, and returns its Leases. If that fails, this server continues to serve.
async fn hold(clients: &Clients, report: &mut Report<'_>) -> Result<Vec<Lease>, SwitchError> {
    let held = async {
        ask_for(clients, Phase::Hold, None).await?;
        let seen = await_step(clients, Phase::Hold, Step::Held, SWITCH_MAX).await?;
        if seen.step != Some(Step::Held) {
            return Err(failed("a replica has not stopped accepting writes", seen.message));
        }
        report.line(&seen.message);
        held(clients, &seen).await
    };
    let why = match held.await {
        Ok(leases) => {
            ask_for(clients, Phase::Hold, Some(Step::WrittenBack)).await?;
            sleep(WATCH_MAX).await;
            return Ok(leases);
        }
        Err(why) => why,
    };
    let thawed = ask_for(clients, Phase::Serve, Some(Step::Serving)).await;
    thawed.map_err(|error| failed(&format!("{why}; writes are held back until rollback is run again"), error))?;
    policy::remove(clients.cluster()).await?;
    Err(failed("this server goes on with the Leases", why))
}

/// Returns the Leases of this server, which holds writes back since `seen`.
async fn held(clients: &Clients, seen: &Handover) -> Result<Vec<Lease>, SwitchError> {
    let mut leases = Err(SwitchError("no replica is named".to_owned()));
    for replica in clients.replicas() {
        leases = list(replica, &seen.version).await;
        if leases.is_ok() {
            break;
        }
    }
    leases
}
