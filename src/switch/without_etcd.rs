//! The commands `takeover` and `rollback` without access to the cluster's etcd.
//!
//! ```text
//!   takeover   copy ─► policy: renewals ─► copy ─► APIService ─► serve ─► policy deleted
//!   rollback   policy: this command ─► hold ─► list ─► APIService ─► write ─► policy deleted
//! ```
//!
//! The names `copy`, `serve` and `hold` are phases, the work that the command requests from the replicas
//! ([`crate::handover`]). The words after `policy:` are the writes of built-in Leases that an admission policy permits.
//! `APIService` stands for its replacement. The APIService is local if it names no Service, so that kube-apiserver
//! serves the Leases in its own storage.
//!
//! **Takeover.** While the kube-apiservers switch, an admission policy permits clients of built-in storage
//! (kube-apiserver's own storage of Leases) only renewals. This server also permits its clients only renewals. So no
//! lock changes its holder in built-in storage or at this server. The first copy of all Leases takes time. The second
//! copy finds what has changed before the policy took effect.
//!
//! **Rollback.** Until the command has written this server's Leases to built-in storage, that storage has the outdated
//! Leases from the time of the takeover. Until then the policy keeps all other clients from writing to built-in
//! storage. Otherwise a former holder of a lock could renew the outdated lock there.

use super::clients::{Clients, Cluster};
use super::lease::Lease;
use super::live::{LIVE_MAX, await_live, await_stores, unconfirmed};
use super::phase::{Claim, Handover, await_copy, await_step, report_replicas};
use super::policy::{self, ENFORCED_MAX, Found, Installed, Permitted};
use super::rollback::give_up_takeover;
use super::takeover::{already, register};
use super::write_back::{has_newer, list, write_back, write_renewals};
use super::{
    IN_FLIGHT_MAX, LOOK_EVERY, RERUN_TIME, Report, SWITCH_MAX, SwitchError, TAKEN_OVER, WATCH_MAX, await_local,
    await_switch, cancel, copy_failed, failed, give_back_if_cancelled, hold_signals, make_local,
    make_local_if_registered, names_service, renewals, replace_api_service, report_silent,
};
use crate::api::identity::LABEL;
use crate::cli::RollbackArgs;
use crate::handover::{Phase, Step};
use crate::resource::NODE_LEASE_NAMESPACE;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt as _;
use kube::api::PostParams;
use std::cell::Cell;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Time from the installation of a takeover's policy to its end. During this time, leaders and nodes continue to renew.
/// If the command dies, no lock changes its holder in this time.
const TAKEOVER_POLICY: Duration = Duration::from_secs(5 * 60);
/// Time for leaders to renew in built-in storage before an undo lets other clients acquire their locks. Leaders renew
/// every 2 s by default.
const RENEWED_MAX: Duration = Duration::from_secs(5);
/// Minimum and maximum of [`belief`], the time that a holder may act as the leader after its last renewal.
const BELIEF: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(4 * 60)];
/// Duration of a rollback's policy, in addition to the time in which a holder may act as the leader (see [`BELIEF`]).
/// In this time, the command proves that the policy is enforced, stops all writes, and writes the Leases.
const ROLLBACK_TIME: Duration = Duration::from_secs(45);
/// Time of the policy that must remain for the writes of Leases when the last kube-apiserver has switched.
const WRITE_TIME: Duration = Duration::from_secs(5);

/// Moves the Leases from built-in storage to this server. `before` is the state of the hand-over before this command.
/// `is_registered` is true if the APIService names a Service. `has_shield` is true if the command must keep
/// kube-controller-manager from marking nodes as not ready.
///
/// # Errors
/// If the takeover cannot begin, or fails. The error has the reason.
pub(super) async fn take_over(
    clients: &Clients,
    wanted: &APIService,
    before: &Handover,
    is_registered: bool,
    has_shield: bool,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let mut claim = Claim::of(before);
    match before.phase {
        None if is_registered => return already(report),
        Some(Phase::Serve) if is_registered && before.is_serving() => {
            // An earlier takeover may have been killed before it deleted its policy. So this command deletes the
            // policy, unless it is that of a rollback that may still run.
            if let Some(found) = policy::find(clients.cluster()).await?
                && !(found.is_of_rollback && found.lasts(clients.cluster(), Duration::ZERO).await?)
            {
                found.remove(clients.cluster()).await?;
            }
            return already(report);
        }
        Some(Phase::Copy) if is_registered => {
            report.line("a takeover has begun before; it is undone first");
            undo(clients, wanted, &mut claim, report).await?;
            // The undo has created the policy for renewals. During the new takeover, this policy would let late
            // renewals with versions of this server succeed in built-in storage.
            renewals::remove(clients.cluster()).await?;
        }
        Some(Phase::Hold) if is_registered => {
            return Err(SwitchError("a rollback has begun: run rollback --without-etcd to its end first".to_owned()));
        }
        Some(_) if is_registered && before.is_given_back() => {
            return Err(SwitchError("kube-apiserver has served Leases: run rollback --without-etcd first".to_owned()));
        }
        Some(_) if is_registered => {
            return Err(SwitchError("a switch has begun that uses etcd: run it without --without-etcd".to_owned()));
        }
        Some(_) | None => {}
    }
    copy(clients, &mut claim, report).await?;
    let begun = Instant::now();
    let mut is_replaced = false;
    let switched = switch(clients, wanted, has_shield, &mut claim, &mut is_replaced, report).await;
    let policy = match switched {
        Ok(policy) => policy,
        // Another command has requested a phase, and continues from the state of the cluster, or has cancelled this
        // takeover. Nobody needs the policy of a cancelled takeover.
        Err(error) if claim.is_lost() => {
            if give_back_if_cancelled(clients, &claim).await? {
                policy::remove_leftovers(clients.cluster()).await?;
            }
            return Err(error);
        }
        Err(error) => {
            report.line(format_args!("the switch has failed and is undone: {error}"));
            let undone = match is_replaced {
                true => undo(clients, wanted, &mut claim, report).await,
                false => give_up(clients, &mut claim).await,
            };
            undone.map_err(|undone| failed(&format!("{error}; the undo failed too: run takeover again"), undone))?;
            return Err(failed("kube-apiserver has the Leases again", error));
        }
    };
    let held_ms = begun.elapsed().as_millis();
    report.line(format_args!("this server has the Leases; creations and acquisitions waited for {held_ms} ms"));
    if !has_shield {
        report.line("restart kube-controller-manager now: within 40 s it would mark the nodes as not ready");
    }
    report.line("open watches of Leases get no more events: restart their clients, or wait for 10 minutes");
    policy.remove(clients.cluster()).await
}

/// Checks that there is no incomplete rollback: one that has made the APIService local, but has not written all Leases
/// to built-in storage. `is_registered` is true if the APIService names a Service.
///
/// # Errors
/// If the operator must first complete the rollback.
pub(super) async fn check_no_rollback(
    clients: &Clients,
    before: &Handover,
    is_registered: bool,
) -> Result<(), SwitchError> {
    // A rollback may have failed since no replica accepted the phase `hold`, when the APIService was already local.
    // Then the phase is still `serve`.
    let is_held = before.phase == Some(Phase::Hold) && !before.is_given_back();
    let may_be_unheld = before.is_serving() && !is_registered;
    if !is_held && !may_be_unheld {
        return Ok(());
    }
    // After the end of the rollback's policy, clients have written to built-in storage again. Then it is too late to
    // complete the rollback.
    match policy::find(clients.cluster()).await? {
        Some(found) if (is_held || found.is_of_rollback) && found.lasts(clients.cluster(), Duration::ZERO).await? => {
            let why = "a rollback has not written all Leases back: run rollback --without-etcd to its end first";
            Err(SwitchError(why.to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

/// Makes the replicas copy all built-in Leases. Cancels the takeover if they fail.
pub(super) async fn copy(clients: &Clients, claim: &mut Claim, report: &mut Report<'_>) -> Result<(), SwitchError> {
    let error = match copy_once(clients, claim, report).await {
        Err(error) if !claim.is_lost() => error,
        copied => return copied,
    };
    Err(copy_failed(&error, give_up(clients, claim).await))
}

/// Makes the replicas copy all built-in Leases.
async fn copy_once(clients: &Clients, claim: &mut Claim, report: &mut Report<'_>) -> Result<(), SwitchError> {
    claim.ask(clients, Phase::Copy, None).await?;
    let copied = await_copy(clients, claim, Phase::Copy, NO_CLUSTER, report).await;
    report.line(copied.map_err(|why| failed("the replicas have not copied the Leases", why))?);
    Ok(())
}

/// The probable reason for a failure that no replica explains.
const NO_CLUSTER: &str =
    "no replica works on it; do the replicas have access to kube-apiserver, and are all of them ready?";

/// Makes all kube-apiservers forward requests for Leases to this server. Sets `is_replaced` just before it replaces the
/// APIService. Returns the policy of the takeover, which the caller must delete.
async fn switch(
    clients: &Clients,
    wanted: &APIService,
    has_shield: bool,
    claim: &mut Claim,
    is_replaced: &mut bool,
    report: &mut Report<'_>,
) -> Result<Installed, SwitchError> {
    let policy = policy::install(clients, Permitted::Renewals, TAKEOVER_POLICY, wanted).await?;
    report.line("clients of built-in storage may only renew");
    // A request that passed admission before the policy took effect may still change a Lease. The next copy finds this
    // change.
    sleep(IN_FLIGHT_MAX).await;
    copy_once(clients, claim, report).await?;
    if has_shield {
        let end = policy::install_shield(clients.cluster()).await?;
        report.line(format_args!("kube-controller-manager cannot mark nodes as not ready until {end}"));
    }
    claim.check(clients).await?;
    policy.check_kept(clients.cluster()).await?;
    *is_replaced = true;
    let check = async || claim.check(clients).await;
    replace_api_service(clients, &PostParams::default(), check, |service| register(service, wanted)).await?;
    report.line("the APIService is replaced");
    await_switch(clients, true, SWITCH_MAX).await?;
    report.line("every kube-apiserver has switched");
    // In this time, the replica that watches built-in Leases receives their last renewals.
    sleep(IN_FLIGHT_MAX).await;
    policy.check_kept(clients.cluster()).await?;
    claim.ask(clients, Phase::Serve, Some(Step::Serving)).await?;
    Ok(policy)
}

/// Makes kube-apiserver serve built-in Leases again after an incomplete takeover that may have replaced the APIService.
/// During the takeover, clients of this server could only renew. So built-in storage has the holders of all locks.
async fn undo(
    clients: &Clients,
    service: &APIService,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    // After this request for the phase `copy`, no other takeover can complete.
    if !claim.take_takeover(clients).await? {
        return Err(SwitchError("another command has completed the switch".to_owned()));
    }
    hold_signals();
    renewals::create(clients.cluster(), report).await;
    // The policy of the takeover may have ended, so the undo installs it anew.
    let policy = policy::install(clients, Permitted::Renewals, TAKEOVER_POLICY, service).await?;
    let check = async || claim.check_if_known(clients).await;
    replace_api_service(clients, &PostParams::default(), check, make_local).await?;
    await_local(clients, report).await?;
    // Some leaders have renewed only at this server since the APIService was replaced. They need time to renew in
    // built-in storage.
    sleep(RENEWED_MAX).await;
    cancel(clients, claim, Phase::Hold).await?;
    policy.remove(clients.cluster()).await?;
    report.line("every kube-apiserver serves Leases of its own");
    // Some nodes too have renewed only at this server, and nodes renew less often than leaders. So the command deletes
    // the shield, which keeps nodes from being marked as not ready, only after a further wait.
    policy::remove_shield_late(clients.cluster()).await
}

/// Cancels a takeover that has not replaced the APIService yet.
async fn give_up(clients: &Clients, claim: &mut Claim) -> Result<(), SwitchError> {
    cancel(clients, claim, Phase::Hold).await?;
    policy::remove_leftovers(clients.cluster()).await
}

/// The work of a rollback.
#[derive(PartialEq)]
enum Task {
    /// Moves the Leases. The phase is `hold` if an earlier rollback has requested it. Otherwise this server serves.
    Move,
    /// Moves no Leases, since it is [too late](TOO_LATE).
    EndLate,
    /// Undoes an incomplete takeover.
    Undo,
    /// Makes the APIService local, and moves no Leases: kube-apiserver has served newer ones since the takeover.
    MakeLocal,
    /// Deletes what an earlier switch has left behind.
    CleanUp,
}

/// Moves the Leases from this server back to built-in storage.
///
/// # Errors
/// If the rollback cannot begin, or fails. The error has the reason.
pub(super) async fn roll_back(
    args: &RollbackArgs,
    cluster: Cluster,
    present: APIService,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let found = policy::find(cluster.server()).await?;
    let is_registered = names_service(&present);
    // If an earlier command was killed, its policy may contain the APIService. From the APIService, this command learns
    // how to reach the replicas.
    let service = match found.as_ref().and_then(|found| found.api_service.clone()) {
        _ if is_registered => present,
        Some(service) => service,
        None => return give_up_takeover(args, cluster, report).await,
    };
    let clients = Clients::new(cluster, &args.cluster, Some(&service)).await?;
    _ = report_replicas(&clients, report).await;
    policy::check(clients.cluster(), Permitted::ThisCommand).await?;
    report.line("kube-apiserver accepts the admission policy in a dry run");
    let seen = Handover::seen_at_start(&clients).await?;
    if seen.is_serving() {
        await_stores(&clients, LIVE_MAX).await.map_err(|why| failed("nothing has changed", why))?;
    }
    if names_service(&clients.api_service().await?) != is_registered {
        return Err(SwitchError("another command is at work: try again".to_owned()));
    }
    // A complete takeover ends in the same state with and without etcd. So this command rolls back both kinds.
    let can_move = seen.is_serving() || seen.phase == Some(Phase::Hold);
    // A rollback deletes its policy at its end. So if the APIService is local and this policy exists, a rollback is
    // incomplete.
    let task = match found.as_ref().filter(|found| found.is_of_rollback) {
        _ if seen.is_given_back() => Task::MakeLocal,
        _ if seen.phase == Some(Phase::Copy) => Task::Undo,
        _ if is_registered && can_move => Task::Move,
        _ if is_registered => {
            let why = "the Leases were not taken over with --without-etcd: run rollback without it";
            return Err(SwitchError(why.to_owned()));
        }
        // While the policy lasts, built-in storage is outdated. The new policy must take effect before this one ends.
        Some(found) if can_move && found.lasts(clients.cluster(), ENFORCED_MAX).await? => Task::Move,
        None if !can_move => Task::CleanUp,
        // The rollback's policy has ended or lost its binding, or the replicas have lost the Lease of the hand-over. Or
        // the policy is of a takeover, so that clients could renew built-in Leases.
        Some(_) | None => Task::EndLate,
    };
    if args.cluster.dry_run {
        if task == Task::EndLate {
            return Err(SwitchError(TOO_LATE.to_owned()));
        }
        renewals::check(clients.cluster(), report).await;
        report.line("a dry run: nothing was changed");
        return Ok(());
    }
    let mut claim = Claim::of(&seen);
    match task {
        Task::Move => {}
        Task::EndLate => return end_late(&clients, &mut claim, report).await,
        Task::Undo => {
            report.line("a takeover has not come to its end; it is undone");
            return undo(&clients, &service, &mut claim, report).await;
        }
        Task::MakeLocal => {
            let check = async || claim.check_if_known(&clients).await;
            replace_api_service(&clients, &PostParams::default(), check, make_local).await?;
            await_local(&clients, report).await?;
            return finish(&clients, found, report).await;
        }
        Task::CleanUp => return finish(&clients, found, report).await,
    }
    let was_held = seen.phase == Some(Phase::Hold);
    if is_registered && !was_held {
        renewals::create(clients.cluster(), report).await;
        await_live(&clients, report).await?;
    }
    let belief = belief(&leases(&clients, "0").await?);
    hold_signals();
    // Before the step `held`, a replica may not have stopped its writes yet.
    let is_stopped = !is_registered && matches!(seen.step, Some(Step::Held | Step::Released));
    if is_stopped {
        // By this request, an earlier command that still runs loses its right to request phases, and so writes no more
        // Leases.
        claim.ask(&clients, Phase::Hold, Some(Step::Released)).await?;
    }
    let policy = match policy::install(&clients, Permitted::ThisCommand, belief + ROLLBACK_TIME, &service).await {
        Ok(policy) => policy,
        Err(why) if is_registered && !was_held && secure_registration(&clients, false).await => {
            // This server still serves all clients, so it needs no policy. But another rollback may rely on the policy.
            // So the command first requests the phase `serve`. If the other rollback has requested a phase, the request
            // fails, and the policy stays. Otherwise the other rollback can request no phase any more.
            let serves =
                claim.insist_unless(&clients, Phase::Serve, Some(Step::Serving), Handover::is_given_back).await;
            if let Err(error) = async {
                serves.map(drop)?;
                remove_policy(&clients).await
            }
            .await
            {
                report.line(format!("the admission policy is left behind: {error}"));
            }
            return Err(why);
        }
        Err(why) => return Err(failed(RUN_AGAIN, why)),
    };
    if !is_registered {
        // Until now, only the policy of the earlier rollback kept clients from writing built-in Leases. Somebody may
        // have deleted that policy. Or it may have ended while this command waited for a replica.
        let had_effect = match &found {
            Some(found) if policy.is_replacement => {
                let lasts = found.lasts(clients.cluster(), Duration::ZERO).await;
                lasts.map_err(|why| failed(RUN_AGAIN, why))?
            }
            Some(_) | None => false,
        };
        if !had_effect {
            return end_late(&clients, &mut claim, report).await;
        }
    }
    report.line("no other client writes built-in Leases");
    if !is_registered && !was_held {
        // This wait comes after the installation of the new policy. Otherwise the earlier policy could end during the
        // wait.
        await_live(&clients, report).await.map_err(|why| failed(RUN_AGAIN, why))?;
    }
    let moved = give_back(&clients, &policy, (!is_stopped).then_some(belief), was_held, &mut claim, report).await;
    // Another rollback may have completed before this command installed its policy. Nobody else would delete the
    // policy.
    if claim.is_lost() && Handover::seen(&clients).await?.is_given_back() {
        policy.remove(clients.cluster()).await?;
    }
    moved
}

/// Moves the Leases to built-in storage, while the policy permits only this command to write built-in Leases. `belief`
/// is the time that a holder may act as the leader after its last renewal. It is `None` if an earlier command has
/// already stopped all writes to this server. `was_held` is true if an earlier command has requested the phase `hold`.
async fn give_back(
    clients: &Clients,
    policy: &Installed,
    belief: Option<Duration>,
    was_held: bool,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let begun = Instant::now();
    let ours = match belief {
        Some(belief) => hold(clients, policy, belief, was_held, claim, report).await?,
        None => {
            let seen = Handover::seen(clients).await.map_err(|why| failed(RUN_AGAIN, why))?;
            leases(clients, &seen.version).await.map_err(|why| failed(RUN_AGAIN, why))?
        }
    };
    make_all_local(clients, policy, claim, report).await.map_err(|why| failed(RUN_AGAIN, why))?;
    // The earlier command may have made the APIService local. Its policy may have ended, and a tool may have registered
    // the Service again. In between, clients could write built-in Leases.
    if was_held && has_newer(clients, &ours).await.map_err(|why| failed(RUN_AGAIN, why))? {
        return end_late(clients, claim, report).await;
    }
    let (written, refused) = write_back(clients, &ours, policy, claim).await.map_err(|why| failed(RUN_AGAIN, why))?;
    let ended = claim.insist_unless(clients, Phase::Hold, Some(Step::NotOurs), |_| false).await;
    ended.map_err(|why| failed(RUN_AGAIN, why))?;
    // A second rollback may have replaced the policy of this command. By this command's request for the step
    // `not-ours`, the second rollback has lost its right to request phases, and so ends. So nobody needs a policy any
    // more.
    remove_policy(clients).await.map_err(|why| failed(RUN_AGAIN, why))?;
    let frozen_ms = begun.elapsed().as_millis();
    // The shield keeps nodes from being marked as not ready. If the write of their renewals fails, the shield stays
    // until its end, or until another run deletes it.
    let count = written + write_renewals(clients, &ours).await?;
    policy::remove_shield(clients.cluster()).await?;
    report.line(format_args!("{count} Leases are written back; nobody could write for {frozen_ms} ms"));
    refused.map_or(Ok(()), |why| Err(failed("kube-apiserver refuses a Lease", why)))
}

/// Message for the operator if a rollback was not completed while its policy had effect. Also if somebody else has made
/// the APIService local.
pub(super) const TOO_LATE: &str = "it is too late for a rollback, since clients may have written built-in Leases: the \
                                   Leases that were not written back are as they were at the takeover";
/// Message for the operator if a rollback fails while the replicas or its policy refuse the writes of clients.
const RUN_AGAIN: &str = "the rollback is incomplete: run it again at once";

/// Returns the time that a holder may act as the leader after its last renewal: the longest duration of a lock, within
/// [`BELIEF`].
fn belief(leases: &[Lease]) -> Duration {
    let [least, most] = BELIEF;
    // Nobody else acquires the Lease of a node, of a kube-apiserver or of a replica of this server. So these Leases are
    // no locks. The Leases of kube-apiservers and replicas have the same label, with different values.
    let is_lock = |lease: &&Lease| {
        lease.metadata.namespace.as_deref() != Some(NODE_LEASE_NAMESPACE) && !lease.labels().contains_key(LABEL.0)
    };
    let locks = leases.iter().filter(is_lock);
    let seconds = locks.filter_map(|lease| lease.spec.as_ref()?.lease_duration_seconds).max().unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).clamp(least, most)
}

/// Gives up this server's Leases when it is too late to write them back: without a policy, other clients may have
/// written built-in Leases. The APIService is local, unless a tool has registered the Service again. Then this function
/// makes the APIService local, since the replicas refuse all writes from now on.
///
/// # Errors
/// Always. If the request for the step `not-ours` fails, the error is the reason. Otherwise the error is [`TOO_LATE`],
/// followed by the reason if the policies cannot be deleted, or if the APIService cannot be made local.
pub(super) async fn end_late(clients: &Clients, claim: &mut Claim, report: &mut Report<'_>) -> Result<(), SwitchError> {
    claim.ask(clients, Phase::Hold, Some(Step::NotOurs)).await?;
    // By this request, every other rollback loses its right to request phases. So nobody needs a policy that another
    // rollback has installed.
    let removed = async {
        match policy::find(clients.cluster()).await? {
            Some(found) => found.remove(clients.cluster()).await,
            None => Ok(()),
        }
    }
    .await;
    // The replicas refuse all writes now. So even if a policy is left, the APIService must be local.
    let finished = async {
        make_local_if_registered(clients).await?;
        removed?;
        finish(clients, None, report).await
    }
    .await;
    report_silent(clients, report);
    // The next run finds a complete rollback, and reports success. So even if one of these steps fails, this run
    // reports that the rollback is too late.
    Err(finished.map_or_else(|why| failed(TOO_LATE, why), |()| SwitchError(TOO_LATE.to_owned())))
}

/// Deletes the policies of an earlier switch that nobody needs any more, and reports that kube-apiserver has the
/// Leases.
async fn finish(clients: &Clients, found: Option<Found>, report: &mut Report<'_>) -> Result<(), SwitchError> {
    if let Some(found) = found {
        found.remove(clients.cluster()).await?;
    }
    policy::remove_shield_late(clients.cluster()).await?;
    renewals::remove_ended(clients.cluster()).await?;
    report.line("kube-apiserver has the Leases");
    Ok(())
}

/// Deletes the policy of a rollback, whichever command has installed it.
async fn remove_policy(clients: &Clients) -> Result<(), SwitchError> {
    match policy::find(clients.cluster()).await?.filter(|found| found.is_of_rollback) {
        Some(found) => found.remove(clients.cluster()).await,
        None => Ok(()),
    }
}

/// Stops all writes of clients at this server, and returns its Leases. If that fails, makes this server accept writes
/// again, unless another command has requested a phase, or [`secure_registration`] returns `false`. `was_held` is true
/// if an earlier command has requested the phase `hold`.
pub(super) async fn hold(
    clients: &Clients,
    policy: &Installed,
    belief: Duration,
    was_held: bool,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<Vec<Lease>, SwitchError> {
    let why = match try_hold(clients, policy, belief, claim, report).await {
        Ok(leases) => return Ok(leases),
        Err(why) if claim.is_lost() => return Err(why),
        Err(why) => why,
    };
    if !secure_registration(clients, was_held).await {
        return Err(failed(RUN_AGAIN, why));
    }
    let thawed = claim.insist_unless(clients, Phase::Serve, Some(Step::Serving), Handover::is_given_back).await;
    let serves =
        thawed.map_err(|error| failed(&format!("{why}; writes are held back until rollback is run again"), error))?;
    policy.remove(clients.cluster()).await?;
    Err(if serves { failed("this server goes on with the Leases", why) } else { why })
}

/// Makes sure that this server may accept writes again: kube-apiserver forwards requests for Leases, and no delayed
/// request of an earlier rollback changes that. `was_held` is true if an earlier rollback has requested the phase
/// `hold`, and so may have sent its request to make the APIService local. Clients may be unable to write during this
/// call, so the call does not wait long.
///
/// Returns `false` if the APIService is local, or if the earlier rollback may have made it local or may still do so.
/// There are two exceptions:
///
/// - If the replicas know that the APIService is local, returns `true`. The built-in Leases are then newer than the
///   Leases of the replicas, and need no policy. The caller must not make this server accept writes then.
/// - If `was_held` is false and kube-apiserver does not answer, returns `true`, since no earlier rollback has made the
///   APIService local.
async fn secure_registration(clients: &Clients, was_held: bool) -> bool {
    let present = timeout(SWITCH_MAX, clients.api_service()).await;
    if present.is_ok_and(|present| present.is_ok_and(|service| !names_service(&service))) {
        return Handover::seen(clients).await.is_ok_and(|seen| seen.is_given_back());
    }
    if !was_held {
        return true;
    }
    let is_of_takeover = Cell::new(false);
    // This write changes only the id of the write. After this write, a delayed request fails with a conflict.
    let fence = |service: &mut APIService| {
        // If the annotation is missing, the earlier rollback may have made the APIService local, and a tool may have
        // registered the Service again. In between, clients may have written built-in Leases.
        is_of_takeover.set(names_service(service) && service.annotations().contains_key(TAKEN_OVER));
    };
    let parameters = PostParams::default();
    let fenced = timeout(SWITCH_MAX, replace_api_service(clients, &parameters, async || Ok(()), fence)).await;
    fenced.is_ok_and(|fenced| fenced.is_ok()) && is_of_takeover.get()
}

async fn try_hold(
    clients: &Clients,
    policy: &Installed,
    belief: Duration,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<Vec<Lease>, SwitchError> {
    if !claim.ask_unless(clients, Phase::Hold, None, Handover::is_given_back).await? {
        return Err(SwitchError("somebody has made the APIService local or deleted it: run rollback again".to_owned()));
    }
    let seen = await_step(clients, claim, Phase::Hold, Step::Held, SWITCH_MAX).await?;
    if seen.step != Some(Step::Held) {
        let why = unconfirmed(clients, &seen.asked).await.unwrap_or_else(|| NO_CLUSTER.to_owned());
        return Err(failed("a replica has not stopped accepting writes", why));
    }
    report.line(&seen.message);
    let leases = leases(clients, &seen.version).await?;
    // Nobody can write while the command waits, so it does not wait long for a hung kube-apiserver.
    let kept = timeout(SWITCH_MAX, policy.check_kept(clients.cluster())).await;
    kept.unwrap_or_else(|_| Err(clients.cluster().silent()))?;
    // If this command dies, a later command may delete the policy once `ENFORCED_MAX` or less of the policy is left. By
    // then, no holder may still act as the leader.
    if policy.left() < belief + ENFORCED_MAX {
        return Err(SwitchError("the admission policy ends too soon".to_owned()));
    }
    claim.ask(clients, Phase::Hold, Some(Step::Released)).await?;
    sleep(WATCH_MAX).await;
    Ok(leases)
}

/// Makes the APIService local, so that kube-apiserver serves built-in Leases, and waits until every kube-apiserver has
/// switched. Repeats failed requests while the policy lasts.
///
/// # Errors
/// If a kube-apiserver has not switched in time, if the cluster has lost the policy, or if another command has
/// requested a phase.
async fn make_all_local(
    clients: &Clients,
    policy: &Installed,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let reserved = WRITE_TIME + RERUN_TIME;
    loop {
        policy.check()?;
        claim.check_if_known(clients).await?;
        let given = async {
            if !policy.is_kept(clients.cluster()).await? {
                return Ok(false);
            }
            let check = async || claim.check(clients).await;
            replace_api_service(clients, &PostParams::default(), check, make_local).await?;
            await_switch(clients, false, policy.left().saturating_sub(reserved)).await?;
            Ok::<_, SwitchError>(true)
        };
        match given.await {
            Ok(true) => break,
            Ok(false) => return Err(policy::lost()),
            Err(why) if policy.left() <= reserved => return Err(why),
            Err(_) => sleep(LOOK_EVERY).await,
        }
    }
    report_silent(clients, report);
    report.line("the APIService is replaced, and every kube-apiserver serves Leases of its own");
    Ok(())
}

/// Returns the Leases of this server at the `resourceVersion` `version` or later, from the first replica that responds.
async fn leases(clients: &Clients, version: &str) -> Result<Vec<Lease>, SwitchError> {
    clients.first_answer(async |replica| list(replica, version).await).await
}
