//! The command `rollback`: moves the Leases from this server back to built-in storage, kube-apiserver's own storage of
//! Leases.

use super::clients::{Clients, Cluster};
use super::phase::{Handover, ask_unless, await_step, report_replicas};
use super::policy;
use super::takeover::undo;
use super::without_etcd::roll_back;
use super::{
    COPY_MAX, NO_ETCD, Report, SWITCH_MAX, SwitchError, WATCH_MAX, WITHOUT_ETCD, await_switch, failed, hold_signals,
    make_local, names_service, replace_api_service,
};
use crate::cli::RollbackArgs;
use crate::handover::{Phase, Step};
use kube::api::PostParams;
use std::time::Instant;
use tokio::time::sleep;

pub(super) async fn run(args: &RollbackArgs, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let cluster = Cluster::new(&args.cluster).await?;
    let present = cluster.api_service().await?;
    if args.cluster.without_etcd {
        return roll_back(args, cluster, present, report).await;
    }
    if !names_service(&present) {
        if policy::find(cluster.server()).await?.is_some_and(|found| found.is_of_rollback) {
            return Err(SwitchError(WITHOUT_ETCD.to_owned()));
        }
        report.line("kube-apiserver has the Leases already");
        return Ok(());
    }
    let clients = Clients::new(cluster, &args.cluster, &present).await?;
    // A replica that does not respond is no error: the other replicas write the Leases to built-in storage.
    _ = report_replicas(&clients, report).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    replace_api_service(&clients, &dry, make_local).await?;
    report.line("kube-apiserver takes its own APIService in a dry run");
    if args.cluster.dry_run {
        report.line("a dry run: nothing was changed");
        return Ok(());
    }
    let seen = Handover::seen(&clients).await?;
    match seen.phase {
        // After an earlier command, kube-apiserver serves built-in Leases again. So this server's Leases are outdated,
        // and built-in storage has newer Leases.
        _ if seen.is_given_back() => {}
        None => {
            let why = "this server has not taken the Leases over: see docs/deploy.md, Roll back by hand";
            return Err(SwitchError(why.to_owned()));
        }
        Some(Phase::Serve) if seen.is_serving() => write_back(&clients, true, report).await?,
        Some(Phase::Freeze) => write_back(&clients, false, report).await?,
        Some(Phase::Copy | Phase::Hold) => return Err(SwitchError(WITHOUT_ETCD.to_owned())),
        Some(Phase::Import | Phase::Serve | Phase::Undo) => {
            report.line("a takeover has not come to its end; it is undone");
            let is_undone = undo(&clients, report).await?;
            return if is_undone {
                Ok(())
            } else {
                Err(SwitchError("a takeover has come to its end meanwhile".into()))
            };
        }
    }
    replace_api_service(&clients, &PostParams::default(), make_local).await?;
    report.line("the APIService is replaced");
    await_switch(&clients, false, COPY_MAX).await?;
    report.line("every kube-apiserver serves Leases of its own");
    policy::remove_leftovers(clients.cluster()).await?;
    report.line("this server goes on refusing: clients that still come here are sent back");
    Ok(())
}

/// Stops all writes of clients to this server, and makes the replicas write its Leases to built-in storage.
/// `was_serving` is true if clients could write to this server before this call. If so and if the write to built-in
/// storage fails, clients can write to this server again.
async fn write_back(clients: &Clients, was_serving: bool, report: &mut Report<'_>) -> Result<(), SwitchError> {
    hold_signals();
    let begun = Instant::now();
    let is_expected = |seen: &Handover| seen.is_serving() || seen.phase == Some(Phase::Freeze);
    if !ask_unless(clients, Phase::Freeze, None, |seen| !is_expected(seen)).await? {
        return Err(SwitchError("another command is at work".to_owned()));
    }
    let why = match await_step(clients, Phase::Freeze, Step::WrittenBack, SWITCH_MAX).await {
        Ok(seen) if seen.step == Some(Step::WrittenBack) => {
            sleep(WATCH_MAX).await;
            let frozen_ms = begun.elapsed().as_millis();
            report.line(format_args!("{}; nobody could write for {frozen_ms} ms", seen.message));
            return Ok(());
        }
        // Meanwhile another command has made the APIService local, so that kube-apiserver serves built-in Leases.
        Ok(seen) if seen.step == Some(Step::NotOurs) => return Ok(()),
        Ok(seen) if seen.message.is_empty() => NO_ETCD.to_owned(),
        Ok(seen) => seen.message,
        Err(error) => error.to_string(),
    };
    if !was_serving {
        return Err(failed("the Leases are not in built-in storage; run rollback again", why));
    }
    let is_other = |seen: &Handover| seen.phase != Some(Phase::Freeze) || seen.step == Some(Step::NotOurs);
    let thawed = ask_unless(clients, Phase::Serve, Some(Step::Serving), is_other).await;
    if thawed.map_err(|error| failed(&format!("{why}; writes are held back until rollback is run again"), error))? {
        return Err(failed("the Leases are not in built-in storage, and this server goes on with them", why));
    }
    Err(failed("another command is at work", why))
}
