//! `rollback`: from this server's Leases back to kube-apiserver's built-in ones.

use super::clients::{Clients, Cluster};
use super::phase::{ask_for, await_step, report_replicas};
use super::{
    COPY_MAX, Report, SWITCH_MAX, SwitchError, await_switch, failed, make_local, names_service, replace_api_service,
};
use crate::cli::RollbackArgs;
use crate::handover::{Phase, Step};
use kube::api::PostParams;
use std::time::Instant;

pub(super) async fn run(args: &RollbackArgs, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let cluster = Cluster::new(&args.cluster).await?;
    let present = cluster.api_service().await?;
    if !names_service(&present) {
        report.line("kube-apiserver has the Leases already");
        return Ok(());
    }
    let clients = Clients::new(cluster, &args.cluster, &present).await?;
    // The others write the Leases back if one has died.
    _ = report_replicas(&clients, report).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    replace_api_service(&clients, &dry, make_local).await?;
    report.line("kube-apiserver takes its own APIService in a dry run");
    if args.cluster.dry_run {
        report.line("a dry run: nothing was changed");
        return Ok(());
    }
    let begun = Instant::now();
    write_back(&clients, report).await?;
    replace_api_service(&clients, &PostParams::default(), make_local).await?;
    report.line("the APIService is replaced");
    await_switch(&clients, false, COPY_MAX).await?;
    let frozen_ms = begun.elapsed().as_millis();
    report.line(format_args!("every kube-apiserver serves Leases of its own; writes waited for {frozen_ms} ms"));
    report.line("this server goes on refusing: clients that still come here are sent back");
    Ok(())
}

/// Stops all writes here, and brings built-in storage to the state of this server. Undoes that if it takes too long.
async fn write_back(clients: &Clients, report: &mut Report<'_>) -> Result<(), SwitchError> {
    ask_for(clients, Phase::Freeze, None).await?;
    let why = match await_step(clients, Phase::Freeze, Step::WrittenBack, SWITCH_MAX).await {
        Ok(seen) if seen.step == Some(Step::WrittenBack) => {
            report.line(seen.message);
            return Ok(());
        }
        Ok(seen) if seen.message.is_empty() => "no replica has said why".to_owned(),
        Ok(seen) => seen.message,
        Err(error) => error.to_string(),
    };
    let thawed = ask_for(clients, Phase::Serve, Some(Step::Serving)).await;
    thawed.map_err(|error| failed(&format!("{why}; writes are held back until rollback is run again"), error))?;
    Err(failed("the Leases are not in built-in storage, and this server goes on with them", why))
}
