//! The command `rollback`: moves the Leases from this server back to built-in storage, kube-apiserver's own storage of
//! Leases. The command requests phases of this work from the replicas. The APIService is local if it names no Service,
//! so that kube-apiserver serves the built-in Leases.

use super::clients::{Clients, Cluster};
use super::live::{LIVE_MAX, await_live, await_stores};
use super::phase::{Claim, Handover, await_step, report_replicas};
use super::takeover::{read_api_service, undo};
use super::without_etcd::{TOO_LATE, end_late, roll_back};
use super::{
    NO_ETCD, RESTART, Report, SWITCH_MAX, SwitchError, WATCH_MAX, WITHOUT_ETCD, await_local, canary, cancel,
    check_given_back, failed, hold_signals, make_local, names_service, policy, renewals, replace_api_service,
};
use crate::cli::RollbackArgs;
use crate::handover::{Phase, Step};
use kube::api::PostParams;
use std::time::Instant;
use tokio::time::{sleep, timeout};

pub(super) async fn run(args: &RollbackArgs, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let cluster = Cluster::new(&args.cluster).await?;
    let present = cluster.api_service().await?;
    // A killed takeover may have left behind the canary, its test APIService. If the deletion of the canary fails, the
    // rollback still continues.
    if !args.cluster.dry_run
        && let Err(error) = canary::remove(cluster.server()).await
    {
        report.line(error);
    }
    if args.cluster.without_etcd {
        return roll_back(args, cluster, present, report).await;
    }
    if !names_service(&present) {
        // The policy shows that a `takeover --without-etcd` or a `rollback --without-etcd` is at work, or was killed.
        if policy::find(cluster.server()).await?.is_some() {
            return Err(SwitchError(WITHOUT_ETCD.to_owned()));
        }
        return give_up_takeover(args, cluster, report).await;
    }
    let clients = Clients::new(cluster, &args.cluster, Some(&present)).await?;
    // A replica that does not respond is no error: the other replicas write the Leases to built-in storage. A replica
    // that responds without access to its store is an error, which `await_stores` returns.
    _ = report_replicas(&clients, report).await;
    let seen = Handover::seen_at_start(&clients).await?;
    check_apiservers(&clients, &seen, report).await?;
    if seen.is_serving() {
        await_stores(&clients, LIVE_MAX).await.map_err(|why| failed("nothing has changed", why))?;
    }
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    replace_api_service(&clients, &dry, async || Ok(()), make_local).await?;
    report.line("kube-apiserver accepts its own APIService in a dry run");
    if args.cluster.dry_run {
        check_phase(&seen)?;
        renewals::check(clients.cluster(), report).await;
        report.line("a dry run: nothing was changed");
        return Ok(());
    }
    if seen.is_serving() {
        let policy = renewals::create(clients.cluster(), report).await;
        // The rollback stops all writes below. Clients should not also have to wait then until a dead replica counts as
        // dead, or until the policy takes effect. So the command waits for both now.
        await_live(&clients, report).await?;
        if let Some(policy) = policy {
            policy.await_applied(&clients, report).await;
        }
    }
    let mut claim = Claim::of(&seen);
    let begun = Instant::now();
    let has_stopped_writes = !seen.is_given_back();
    match seen.phase {
        // Since the takeover, kube-apiserver has served built-in Leases. Those are newer than this server's Leases. So
        // nothing is written back.
        _ if seen.is_given_back() => {}
        None | Some(Phase::Copy | Phase::Hold) => return check_phase(&seen),
        Some(Phase::Serve) if seen.is_serving() => write_back(&clients, true, &mut claim, report).await?,
        // An earlier rollback has requested this phase, and has created the policy for renewals.
        Some(Phase::Freeze) => write_back(&clients, false, &mut claim, report).await?,
        Some(Phase::Import | Phase::Serve | Phase::Undo) => {
            report.line("a takeover has not come to its end; it is undone");
            if !undo(&clients, &mut claim, report).await? {
                return Err(SwitchError("a takeover has come to its end meanwhile".into()));
            }
            // An earlier `takeover --without-etcd` may have left its policy behind. Even an ended policy refuses
            // deletions.
            return policy::remove_leftovers(clients.cluster()).await;
        }
    }
    let check = async || claim.check_if_known(&clients).await;
    replace_api_service(&clients, &PostParams::default(), check, make_local).await?;
    report.line("the APIService is replaced");
    tell_given_back(&clients, &mut claim, report).await;
    await_local(&clients, report).await?;
    report.line("every kube-apiserver serves Leases of its own");
    if has_stopped_writes {
        report.line(format_args!("nobody could write for {} ms", begun.elapsed().as_millis()));
    }
    policy::remove_leftovers(clients.cluster()).await?;
    report.line("this server still refuses requests for Leases, so that late clients ask kube-apiserver again");
    report.line(RESTART);
    Ok(())
}

/// Tells the replicas that the APIService is local. By themselves, the replicas read the APIService only once a second.
/// They could stop before they read it, or a tool could register their Service again at once. In the phase `freeze`,
/// they would then write their Leases over newer built-in Leases.
pub(super) async fn tell_given_back(clients: &Clients, claim: &mut Claim, report: &mut Report<'_>) {
    let asked = claim.ask_unless(clients, Phase::Freeze, Some(Step::NotOurs), Handover::is_given_back);
    let asked = timeout(SWITCH_MAX, asked).await;
    let told = asked.unwrap_or_else(|_| Err(SwitchError("no replica answers".to_owned())));
    // If another command has requested a phase, there is nothing to report: that command finds the APIService local, or
    // has registered the Service on purpose.
    if let Err(error) = told
        && !claim.is_lost()
    {
        report.line(format_args!("the replicas may not know that kube-apiserver has the Leases: {error}"));
    }
}

/// Completes a rollback if the APIService is local already. With `--apiservice`, also ends what an earlier command has
/// left incomplete.
pub(super) async fn give_up_takeover(
    args: &RollbackArgs,
    cluster: Cluster,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let service = args.apiservice.as_deref().map(read_api_service).transpose()?;
    let clients = Clients::new(cluster, &args.cluster, service.as_ref()).await?;
    if service.is_some() {
        _ = report_replicas(&clients, report).await;
        end_incomplete(&clients, args.cluster.without_etcd, args.cluster.dry_run, report).await?;
    } else if args.cluster.without_etcd {
        report.line("without --apiservice, this command cannot ask the replicas whether a rollback was incomplete");
    }
    if args.cluster.without_etcd && !args.cluster.dry_run {
        policy::remove_leftovers(clients.cluster()).await?;
    }
    if !args.cluster.dry_run {
        renewals::remove_ended(clients.cluster()).await?;
    }
    // This wait needs no replica: a kube-apiserver that still forwards requests returns the Lease of the hand-over,
    // which built-in storage lacks.
    await_local(&clients, report).await?;
    report.line("kube-apiserver has the Leases already");
    Ok(())
}

/// Ends what an earlier command has left incomplete while the APIService is local: cancels a takeover, or gives up the
/// Leases that a rollback without etcd has not written. It is too late to write them: the cluster has no admission
/// policy of a rollback, so clients may have written built-in Leases. In a dry run, changes nothing.
///
/// # Errors
/// [`TOO_LATE`] for an incomplete rollback. With `without_etcd`, also for a complete takeover without a rollback. Also
/// if another command is at work, if no replica answers, or if only a newer release knows the phase.
pub(super) async fn end_incomplete(
    clients: &Clients,
    without_etcd: bool,
    is_dry_run: bool,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let seen = Handover::seen_at_start(clients).await?;
    if names_service(&clients.api_service().await?) {
        return Err(SwitchError("another command is at work: try again".to_owned()));
    }
    let mut claim = Claim::of(&seen);
    let back = match seen.phase {
        Some(Phase::Import) => Phase::Undo,
        // While some Lease cannot be imported, the replicas do not notice that the APIService is local. They would
        // complete the takeover if a tool registered the Service again.
        Some(Phase::Serve) if seen.step.is_none() => Phase::Undo,
        Some(Phase::Copy) => Phase::Hold,
        Some(Phase::Serve | Phase::Hold) if seen.is_given_back() => return Ok(()),
        // With etcd, the replicas write their changes to built-in storage, and notice a local APIService by themselves.
        Some(Phase::Serve) if !without_etcd => return Ok(()),
        // A rollback may have failed in the phase `serve`, when somebody else had already made the APIService local.
        Some(Phase::Serve | Phase::Hold) if is_dry_run => return Err(SwitchError(TOO_LATE.to_owned())),
        Some(Phase::Serve | Phase::Hold) => return end_late(clients, &mut claim, report).await,
        // A killed rollback may have made the APIService local without telling the replicas.
        Some(Phase::Freeze) if !is_dry_run => {
            tell_given_back(clients, &mut claim, report).await;
            return Ok(());
        }
        Some(Phase::Undo | Phase::Freeze) | None => return Ok(()),
    };
    if !is_dry_run {
        cancel(clients, &mut claim, back).await?;
        // After this write, a delayed request of the takeover to register the Service fails with a conflict.
        let check = async || check_given_back(clients).await;
        replace_api_service(clients, &PostParams::default(), check, make_local).await?;
        report.line("a takeover has not come to its end; it is cancelled");
    }
    Ok(())
}

/// Checks that a rollback with etcd can begin or continue in the state `seen`.
///
/// # Errors
/// If no takeover has begun, or if a switch without etcd has begun.
pub(super) fn check_phase(seen: &Handover) -> Result<(), SwitchError> {
    match seen.phase {
        _ if seen.is_given_back() => Ok(()),
        None => {
            let why = "this server has not taken the Leases over: see docs/deploy.md, Roll back by hand";
            Err(SwitchError(why.to_owned()))
        }
        Some(Phase::Copy | Phase::Hold) => Err(SwitchError(WITHOUT_ETCD.to_owned())),
        Some(Phase::Import | Phase::Serve | Phase::Undo | Phase::Freeze) => Ok(()),
    }
}

/// Checks that each kube-apiserver responds, before a rollback stops all writes.
///
/// # Errors
/// If a kube-apiserver does not respond while clients can write. If an earlier command has stopped writes, a silent
/// kube-apiserver is only reported, since the rollback must go on.
async fn check_apiservers(clients: &Clients, seen: &Handover, report: &mut Report<'_>) -> Result<(), SwitchError> {
    for apiserver in clients.apiservers() {
        match apiserver.get("/livez/ping").await {
            Ok(_) => report.line(format_args!("kube-apiserver {} responds", apiserver.url())),
            Err(silent) if seen.is_serving() => return Err(failed("nothing has changed; kube-apiserver", silent)),
            Err(silent) => report.line(format_args!("kube-apiserver {silent}")),
        }
    }
    Ok(())
}

/// Stops all writes of clients to this server, and makes the replicas write its Leases to built-in storage.
/// `was_serving` is true if clients could write to this server before this call. In this case, they can write here
/// again after a failed write to built-in storage.
async fn write_back(
    clients: &Clients,
    was_serving: bool,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    hold_signals();
    let asked = claim.ask_unless(clients, Phase::Freeze, None, Handover::is_given_back).await;
    let begun = Instant::now();
    let seen = match asked {
        // The replicas may have accepted the request without an answer, and so may have stopped writes. So the command
        // requests the phase `serve` below.
        Err(error) => Err(error),
        // Since the start of this command, somebody has made the APIService local or deleted it. So built-in storage
        // may have newer Leases, and nothing is written back.
        Ok(false) => return Ok(()),
        Ok(true) => await_step(clients, claim, Phase::Freeze, Step::WrittenBack, SWITCH_MAX).await,
    };
    let why = match seen {
        Err(error) if claim.is_lost() => return Err(error),
        Ok(seen) if seen.step == Some(Step::WrittenBack) => {
            // The replicas have refused lists since the beginning of the phase. So the time in which clients begin
            // their watches has run since then.
            sleep(WATCH_MAX.saturating_sub(begun.elapsed())).await;
            report.line(seen.message);
            return Ok(());
        }
        // Somebody has made the APIService local or deleted it, so that kube-apiserver has served built-in Leases. So
        // the replicas write nothing back.
        Ok(seen) if seen.step == Some(Step::NotOurs) => return Ok(()),
        Ok(seen) if seen.message.is_empty() => NO_ETCD.to_owned(),
        Ok(seen) => seen.message,
        Err(error) => error.to_string(),
    };
    if !was_serving {
        return Err(failed(
            "the Leases are not in built-in storage; run rollback again, or roll back by hand (docs/deploy.md)",
            why,
        ));
    }
    match claim.insist_unless(clients, Phase::Serve, Some(Step::Serving), Handover::is_given_back).await {
        Ok(true) => Err(failed("the Leases are not in built-in storage, and this server goes on with them", why)),
        Ok(false) => Ok(()),
        Err(error) if claim.is_lost() => Err(error),
        Err(error) => Err(failed(&format!("{why}; writes are held back until rollback is run again"), error)),
    }
}
