//! A candidate in a leader election (client-go `tools/leaderelection`, `leaderelection.go`).

use super::{Answer, Client, lease};
use crate::check::history::{Key, Term};
use crate::kernel::SECOND;
use serde_json::{Value, json};

/// Namespace of the Leases that are locks.
pub const NAMESPACE: &str = "kube-system";

const LEASE_US: u64 = 15 * SECOND;
const RENEW_DEADLINE_US: u64 = 10 * SECOND;
const RETRY_US: u64 = 2 * SECOND;
/// Maximum time for which a leader acts after it sent its last successful renewal, in microseconds: the renewal
/// deadline and one retry period. The time begins with the sending of the renewal, since the response can be late.
const BELIEF_US: u64 = RETRY_US + RENEW_DEADLINE_US;

struct Candidate {
    client: Client,
    lock: Key,
    /// Spec of the lock's Lease as last observed. A new spec shows that a candidate is alive: only candidates change
    /// the spec, since the server sets no field of a spec.
    observed: Option<Value>,
    /// Time at which the candidate first observed this spec, in microseconds since the start of the run.
    observed_us: u64,
    /// The Lease that the next update is based on.
    object: Option<Value>,
    /// Time at which the last successful write of the lock was sent, in microseconds since the start of the run.
    written_us: u64,
}

/// Runs the candidate. Until the run ends, it repeatedly acquires the lock, leads for some time and releases the lock.
pub async fn run(client: Client, index: usize) {
    let lock = Key { namespace: NAMESPACE.to_owned(), name: format!("lock-{index}") };
    let mut candidate = Candidate { client, lock, observed: None, observed_us: 0, object: None, written_us: 0 };
    let delay_us = candidate.client.context.random(|random| random.u64(0..RETRY_US));
    candidate.client.context.sleep(delay_us).await;
    while !candidate.client.context.is_ending() {
        candidate.acquire().await;
        candidate.lead().await;
        let rest_us = candidate.client.context.random(|random| random.u64(0..5 * SECOND));
        candidate.client.context.sleep(rest_us).await;
    }
}

impl Candidate {
    /// Tries to acquire the lock until the candidate leads or the run ends.
    async fn acquire(&mut self) {
        while !self.try_once().await && !self.client.context.is_ending() {
            let wait_us = self.client.context.random(|random| RETRY_US + random.u64(0..RETRY_US * 12 / 10));
            self.client.context.sleep(wait_us).await;
        }
    }

    /// Leads if the candidate holds the lock, and records the term in the history. Renews the lock until no renewal
    /// succeeds within the deadline, or until the candidate releases the lock.
    async fn lead(&mut self) {
        if !self.is_leader() {
            return;
        }
        let from_us = self.client.context.now_us();
        self.client.context.say(|| "leads".to_owned());
        let (client, lock) = (self.client.context.id, self.lock.clone());
        let term = {
            let mut history = self.client.context.sim.history.borrow_mut();
            history.terms.push(Term { lock, client, from_us, until_us: self.written_us + BELIEF_US });
            history.terms.len() - 1
        };
        let gives_back_us = from_us + self.client.context.random(|random| random.u64(5 * SECOND..60 * SECOND));
        'terms: while !self.client.context.is_ending() && self.client.context.now_us() < gives_back_us {
            let deadline_us = self.client.context.now_us() + RENEW_DEADLINE_US;
            loop {
                // The renewal deadline also limits the time of each request.
                self.client.within_us = (deadline_us - self.client.context.now_us()).min(5 * SECOND);
                if self.try_once().await && self.is_leader() {
                    break;
                }
                self.client.context.sleep(RETRY_US).await;
                if self.client.context.now_us() >= deadline_us {
                    break 'terms;
                }
            }
            let until_us = self.written_us + BELIEF_US;
            self.client.context.sim.history.borrow_mut().terms[term].until_us = until_us;
            self.client.context.sleep(RETRY_US).await;
        }
        self.client.within_us = 5 * SECOND;
        let now_us = self.client.context.now_us();
        let until_us = now_us.min(self.written_us + BELIEF_US);
        self.client.context.sim.history.borrow_mut().terms[term].until_us = until_us;
        self.client.context.say(|| "no longer leads".to_owned());
        if now_us >= gives_back_us {
            self.release().await;
        }
    }

    /// Tries once to acquire or renew the lock, as `tryAcquireOrRenew` of client-go. Returns whether a write succeeded.
    async fn try_once(&mut self) -> bool {
        let now_us = self.client.context.now_us();
        if self.is_leader()
            && self.is_valid(now_us)
            && let Some(object) = self.object.clone()
            && self.update(object, false).await
        {
            return true;
        }
        let object = match self.client.get(&self.lock).await {
            Answer::Object(object) => object,
            Answer::Refused(404) => return self.create().await,
            Answer::Done(_) | Answer::Lost | Answer::Refused(_) => return false,
        };
        if self.observed.as_ref() != Some(&object["spec"]) {
            self.observe(&object);
        }
        self.object = Some(object.clone());
        let holder = object["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if !holder.is_empty() && self.is_valid(now_us) && !self.is_leader() {
            return false;
        }
        let is_new = !self.is_leader();
        self.update(object, is_new).await
    }

    async fn create(&mut self) -> bool {
        let tag = self.client.context.sim.new_tag();
        let mut object = lease::new(&self.lock, &self.client.context.name, tag);
        object["spec"]["acquireTime"] = json!(lease::micro_time(tag));
        object["spec"]["leaseTransitions"] = json!(0);
        let sent_us = self.client.context.now_us();
        let answer = self.client.create(&self.lock, &object, tag, "").await;
        self.on_written(answer, sent_us)
    }

    async fn update(&mut self, mut object: Value, is_new: bool) -> bool {
        let tag = self.client.context.sim.new_tag();
        let spec = &mut object["spec"];
        spec["holderIdentity"] = json!(self.client.context.name);
        spec["leaseDurationSeconds"] = json!(15);
        spec["renewTime"] = json!(lease::micro_time(tag));
        if is_new {
            spec["acquireTime"] = json!(lease::micro_time(tag));
            spec["leaseTransitions"] = json!(spec["leaseTransitions"].as_i64().unwrap_or(0) + 1);
        }
        let sent_us = self.client.context.now_us();
        let answer = self.client.put(&self.lock, &object, tag, "").await;
        self.on_written(answer, sent_us)
    }

    async fn release(&mut self) {
        let Some(mut object) = self.object.clone().filter(|_| self.is_leader()) else { return };
        let tag = self.client.context.sim.new_tag();
        object["spec"]["holderIdentity"] = json!("");
        object["spec"]["leaseDurationSeconds"] = json!(1);
        object["spec"]["renewTime"] = json!(lease::micro_time(tag));
        let answer = self.client.put(&self.lock, &object, tag, "").await;
        // The release renews nothing, so the time of the last renewal remains.
        self.on_written(answer, self.written_us);
    }

    fn on_written(&mut self, answer: Answer, sent_us: u64) -> bool {
        let Answer::Object(object) = answer else { return false };
        self.observe(&object);
        self.object = Some(object);
        self.written_us = sent_us;
        true
    }

    fn observe(&mut self, object: &Value) {
        self.observed = Some(object["spec"].clone());
        self.observed_us = self.client.context.now_us();
    }

    fn is_leader(&self) -> bool {
        self.observed.as_ref().is_some_and(|spec| spec["holderIdentity"] == self.client.context.name.as_str())
    }

    fn is_valid(&self, now_us: u64) -> bool {
        self.observed_us + LEASE_US > now_us
    }
}
