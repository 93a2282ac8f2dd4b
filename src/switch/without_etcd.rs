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
use super::phase::{Claim, Handover, await_step, report_replicas};
use super::policy::{self, ENFORCED_MAX, Found, Installed, Permitted};
use super::takeover::register;
use super::write_back::{list, write_back, write_renewals};
use super::{
    COPY_MAX, IN_FLIGHT_MAX, LOOK_EVERY, RERUN_TIME, Report, SWITCH_MAX, SwitchError, WATCH_MAX, await_switch, failed,
    hold_signals, make_local, names_service, replace_api_service,
};
use crate::api::identity::LABEL;
use crate::cli::RollbackArgs;
use crate::handover::{Phase, Step};
use crate::resource::NODE_LEASE_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt as _;
use kube::api::PostParams;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Time from the installation of a takeover's policy to its end. Leaders and nodes go on meanwhile. If the command
/// dies, no lock changes its holder in this time.
const TAKEOVER_POLICY: Duration = Duration::from_secs(5 * 60);
/// Time that leaders have to renew in built-in storage before an undo lets other clients acquire their locks. Leaders
/// renew every 2 s by default.
const RENEWED_MAX: Duration = Duration::from_secs(5);
/// Bounds of the time for which a holder is taken to believe in its lock without a renewal.
const BELIEF: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(4 * 60)];
/// Time of a rollback's policy beyond that time: for the policy's proof, the stop of all writes, and the writes.
const ROLLBACK_TIME: Duration = Duration::from_secs(45);
/// Time that is left for the writes of Leases when the last kube-apiserver has switched.
const WRITE_TIME: Duration = Duration::from_secs(5);

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
    let mut claim = Claim::of(before);
    match before.phase {
        None if is_registered => return already(report),
        Some(Phase::Serve) if is_registered && before.is_serving() => {
            // An earlier command was killed before it deleted its policy. A rollback may be at work.
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
        }
        Some(Phase::Hold) if is_registered => {
            return Err(SwitchError("a rollback has begun: run rollback --without-etcd to its end first".to_owned()));
        }
        Some(_) if is_registered => {
            return Err(SwitchError("a switch has begun that uses etcd: run it without --without-etcd".to_owned()));
        }
        Some(_) | None => {}
    }
    copy(clients, &mut claim, report).await.map_err(|why| failed("nothing has changed", why))?;
    let begun = Instant::now();
    let mut is_replaced = false;
    let switched = switch(clients, wanted, has_shield, &mut claim, &mut is_replaced, report).await;
    let policy = match switched {
        Ok(policy) => policy,
        // The other command sees the state, and goes on from there.
        Err(error) if claim.is_lost() => return Err(error),
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

fn already(report: &mut Report<'_>) -> Result<(), SwitchError> {
    report.line("this server has the Leases already");
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
        Some(found) if found.lasts(clients.cluster(), Duration::ZERO).await? => {
            let why = "a rollback has not written all Leases back: run rollback --without-etcd to its end first";
            Err(SwitchError(why.to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

/// Makes a replica copy all Leases.
async fn copy(clients: &Clients, claim: &mut Claim, report: &mut Report<'_>) -> Result<(), SwitchError> {
    claim.ask(clients, Phase::Copy, None).await?;
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

/// Makes all kube-apiservers forward Leases. Sets `is_replaced` once the APIService may be replaced. Returns the
/// policy, which is still there.
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
    // A request that passed admission before may still change a Lease. The copy finds the change.
    sleep(IN_FLIGHT_MAX).await;
    copy(clients, claim, report).await?;
    if has_shield {
        let end = policy::install_shield(clients.cluster()).await?;
        report.line(format_args!("kube-controller-manager cannot mark nodes as not ready until {end}"));
    }
    claim.check(clients).await?;
    policy.check()?;
    *is_replaced = true;
    replace_api_service(clients, &PostParams::default(), |service| register(service, wanted)).await?;
    report.line("the APIService is replaced");
    await_switch(clients, true, SWITCH_MAX).await?;
    report.line("every kube-apiserver has switched");
    // The watch of the replica reports the last renewals of built-in storage.
    sleep(IN_FLIGHT_MAX).await;
    policy.check()?;
    claim.ask(clients, Phase::Serve, Some(Step::Serving)).await?;
    Ok(policy)
}

/// Gives the Leases back after an incomplete takeover that may have replaced the APIService. Clients have only renewed
/// since the copy, so built-in storage has the holders of all locks.
async fn undo(
    clients: &Clients,
    service: &APIService,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    // Another takeover cannot complete after this request.
    if !claim.take_takeover(clients).await? {
        return Err(SwitchError("another command has completed the switch".to_owned()));
    }
    hold_signals();
    // The policy of the takeover may have ended.
    let policy = policy::install(clients, Permitted::Renewals, TAKEOVER_POLICY, service).await?;
    replace_api_service(clients, &PostParams::default(), make_local).await?;
    await_switch(clients, false, COPY_MAX).await?;
    // A leader may have renewed only at this server since the APIService was replaced.
    sleep(RENEWED_MAX).await;
    claim.ask(clients, Phase::Hold, Some(Step::NotOurs)).await?;
    policy::remove_shield(clients.cluster()).await?;
    policy.remove(clients.cluster()).await?;
    report.line("every kube-apiserver serves Leases of its own");
    Ok(())
}

/// Ends a takeover that has not replaced the APIService.
async fn give_up(clients: &Clients, claim: &mut Claim) -> Result<(), SwitchError> {
    claim.ask(clients, Phase::Hold, Some(Step::NotOurs)).await?;
    policy::remove_leftovers(clients.cluster()).await
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
    // If a command was killed, its policy has the APIService by which this command reaches the replicas.
    let service = match found.as_ref().and_then(|found| found.api_service.clone()) {
        _ if is_registered => present,
        Some(service) => service,
        None => {
            if !args.cluster.dry_run {
                policy::remove_leftovers(cluster.server()).await?;
            }
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
    let mut claim = Claim::of(&seen);
    if names_service(&clients.api_service().await?) != is_registered {
        return Err(SwitchError("another command is at work: try again".to_owned()));
    }
    match seen.phase {
        Some(Phase::Serve) if seen.is_serving() && is_registered => {}
        // The Leases were given back before, so this server's Leases are outdated.
        _ if seen.is_given_back() => {
            replace_api_service(&clients, &PostParams::default(), make_local).await?;
            await_switch(&clients, false, COPY_MAX).await?;
            return finish(&clients, found, report).await;
        }
        Some(Phase::Hold) if is_registered => {}
        Some(Phase::Hold) => {
            // The new policy must have effect before the old one ends.
            let is_in_time = match &found {
                Some(found) => found.is_of_rollback && found.lasts(clients.cluster(), ENFORCED_MAX).await?,
                None => false,
            };
            if !is_in_time {
                claim.ask(&clients, Phase::Hold, Some(Step::NotOurs)).await?;
                finish(&clients, found, report).await?;
                return Err(SwitchError(TOO_LATE.to_owned()));
            }
        }
        Some(Phase::Copy) => {
            report.line("a takeover has not come to its end; it is undone");
            return undo(&clients, &service, &mut claim, report).await;
        }
        // An operator has given the APIService back by hand, and a policy is left.
        _ if !is_registered => return finish(&clients, found, report).await,
        Some(_) | None => {
            return Err(SwitchError(
                "the Leases were not taken over with --without-etcd: run rollback without it".into(),
            ));
        }
    }
    let belief = belief(&leases(&clients, "0").await?);
    hold_signals();
    if !is_registered {
        // An earlier command that still runs must write no more.
        claim.ask(&clients, Phase::Hold, Some(Step::Released)).await?;
    }
    let policy = policy::install(&clients, Permitted::ThisCommand, belief + ROLLBACK_TIME, &service).await?;
    report.line("no other client writes built-in Leases");
    let moved = give_back(&clients, &policy, is_registered.then_some(belief), &mut claim, report).await;
    // The other command did not find this policy.
    if claim.is_lost() && Handover::seen(&clients).await?.is_given_back() {
        policy.remove(clients.cluster()).await?;
    }
    moved
}

/// Moves the Leases to built-in storage, while the policy permits only this command to write there. `belief` is the
/// time for which a holder is taken to believe in its lock; `None` if this server has stopped all writes before.
async fn give_back(
    clients: &Clients,
    policy: &Installed,
    belief: Option<Duration>,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let begun = Instant::now();
    let ours = match belief {
        Some(belief) => hold(clients, policy, belief, claim, report).await?,
        None => leases(clients, &Handover::seen(clients).await?.version).await?,
    };
    make_all_local(clients, policy, claim, report).await.map_err(|why| failed(RUN_AGAIN, why))?;
    let (written, refused) = write_back(clients, &ours, policy, claim).await.map_err(|why| failed(RUN_AGAIN, why))?;
    claim.ask(clients, Phase::Hold, Some(Step::NotOurs)).await?;
    // A second rollback may have replaced the policy. It notices that its claim is lost.
    if let Some(found) = policy::find(clients.cluster()).await?.filter(|found| found.is_of_rollback) {
        found.remove(clients.cluster()).await?;
    }
    let frozen_ms = begun.elapsed().as_millis();
    let renewed = write_renewals(clients, &ours).await;
    policy::remove_shield(clients.cluster()).await?;
    let count = written + renewed?;
    report.line(format_args!("{count} Leases are written back; nobody could write for {frozen_ms} ms"));
    refused.map_or(Ok(()), |why| Err(failed("kube-apiserver refuses a Lease", why)))
}

/// What becomes of a rollback that is not run again in time.
const TOO_LATE: &str = "an earlier rollback did not end in time: the Leases that it had not written back are as they were \
                        at the takeover";
/// What the operator does about a rollback that fails after the writes have stopped.
const RUN_AGAIN: &str = "the rollback is incomplete: run it again at once";

/// Returns the time for which a holder is taken to believe in its lock without a renewal: the longest duration of a
/// lock, within [`BELIEF`].
fn belief(leases: &[Lease]) -> Duration {
    let [least, most] = BELIEF;
    // Nodes and kube-apiservers have Leases that nobody else acquires. The label is that of this server's replicas too.
    let is_lock = |lease: &&Lease| {
        lease.metadata.namespace.as_deref() != Some(NODE_LEASE_NAMESPACE) && !lease.labels().contains_key(LABEL.0)
    };
    let locks = leases.iter().filter(is_lock);
    let seconds = locks.filter_map(|lease| lease.spec.as_ref()?.lease_duration_seconds).max().unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).clamp(least, most)
}

/// Deletes what a complete or an outdated switch has left.
async fn finish(clients: &Clients, found: Option<Found>, report: &mut Report<'_>) -> Result<(), SwitchError> {
    if let Some(found) = found {
        found.remove(clients.cluster()).await?;
    }
    policy::remove_shield(clients.cluster()).await?;
    report.line("kube-apiserver has the Leases");
    Ok(())
}

/// Stops all writes at this server, and returns its Leases. If that fails, this server continues to serve, unless
/// another command is at work.
async fn hold(
    clients: &Clients,
    policy: &Installed,
    belief: Duration,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<Vec<Lease>, SwitchError> {
    let why = match try_hold(clients, policy, belief, claim, report).await {
        Ok(leases) => return Ok(leases),
        Err(why) => why,
    };
    let thawed = claim.ask(clients, Phase::Serve, Some(Step::Serving)).await;
    thawed.map_err(|error| failed(&format!("{why}; writes are held back until rollback is run again"), error))?;
    policy.remove(clients.cluster()).await?;
    Err(failed("this server goes on with the Leases", why))
}

async fn try_hold(
    clients: &Clients,
    policy: &Installed,
    belief: Duration,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<Vec<Lease>, SwitchError> {
    claim.ask(clients, Phase::Hold, None).await?;
    let seen = await_step(clients, Phase::Hold, Step::Held, SWITCH_MAX).await?;
    if seen.step != Some(Step::Held) {
        return Err(failed("a replica has not stopped accepting writes", seen.message));
    }
    report.line(&seen.message);
    let leases = leases(clients, &seen.version).await?;
    // If this command dies, no holder must believe in its lock when a later command deletes the policy.
    if policy.left() < belief + ENFORCED_MAX {
        return Err(SwitchError("the admission policy ends too soon".to_owned()));
    }
    claim.ask(clients, Phase::Hold, Some(Step::Released)).await?;
    sleep(WATCH_MAX).await;
    Ok(leases)
}

/// Gives the APIService back, and waits for every kube-apiserver. Repeats what fails, while the policy lasts.
///
/// # Errors
/// If a kube-apiserver has not switched in time, or if another command is at work.
async fn make_all_local(
    clients: &Clients,
    policy: &Installed,
    claim: &mut Claim,
    report: &mut Report<'_>,
) -> Result<(), SwitchError> {
    let reserved = WRITE_TIME + RERUN_TIME;
    loop {
        policy.check()?;
        claim.check(clients).await?;
        let given = async {
            replace_api_service(clients, &PostParams::default(), make_local).await?;
            await_switch(clients, false, policy.left().saturating_sub(reserved)).await
        };
        match given.await {
            Ok(()) => break,
            Err(why) if policy.left() <= reserved => return Err(why),
            Err(_) => sleep(LOOK_EVERY).await,
        }
    }
    report.line("the APIService is replaced, and every kube-apiserver serves Leases of its own");
    Ok(())
}

/// Returns the Leases of this server at `version` or later.
async fn leases(clients: &Clients, version: &str) -> Result<Vec<Lease>, SwitchError> {
    let mut leases = Err(SwitchError("no replica is named".to_owned()));
    for replica in clients.replicas() {
        leases = list(replica, version).await;
        if leases.is_ok() {
            break;
        }
    }
    leases
}
