//! Decides whether this replica's table is recent enough for a request. The table may lack writes that another replica
//! of this server has acknowledged.
//!
//! Kubernetes API concepts, "Resource versions", defines how old the state in a response may be:
//!
//! - A read without a `resourceVersion`, and a watch that begins at the newest state, first wait for a
//!   [barrier](Until::Barrier): a query of the store for its last entry. Once the barrier is passed, the table has
//!   every write that any replica acknowledged before the request.
//! - A read at a `resourceVersion` waits up to three seconds until the table has that version. A watch and the next
//!   page of a list wait for their version in the same way. If the version has not come by then, the request waits for
//!   a barrier. After the barrier, the table has every version that any replica has issued. So if the version is still
//!   missing, the request fails.
//! - A read at `resourceVersion` 0 is served at once.
//! - A write that makes a change needs no barrier. Every replica applies the change only if the current Lease is still
//!   the one that the change was made from.
//! - Any other write fails or changes nothing, such as a deletion that gets 404. The server may have decided the write
//!   from an old state of the Lease. So the write waits for a barrier, and the server then decides the write again.
//!
//! If only this process writes to the store, the table is never behind the store, and no request needs a barrier. A get
//! or a list still waits up to three seconds for a `resourceVersion` that the table lacks. kube-apiserver waits too,
//! since its cache may be behind etcd (apiserver `storage/cacher`, `waitUntilFreshAndBlock`).
//!
//! During a takeover, the table may also be behind built-in storage, where kube-apiserver itself stores Leases
//! ([`super::handover`]). Then the request also waits for a [round](Until::RoundIsComplete) after each barrier. A round
//! copies the changes of built-in storage to the table. If only this process writes to the store, the request waits for
//! the round alone. A request for a Lease of the hand-over needs no round: in such a Lease, this server stores the
//! state of a takeover or rollback. A read at a `resourceVersion` of built-in storage also waits for a round.

use super::token::ContinueToken;
use super::waiting::Until;
use super::{Api, Call, Reply};
use crate::api_error::ApiError;
use crate::handover;
use crate::http::Method;
use crate::resource::BUILT_IN_VERSIONS_END;
use crate::route::Route;
use crate::table::Table;
use crate::verb::Verb;
use crate::watch::WatchStart;

/// Whether a request is a read with a query, which may contain a `resourceVersion` that the table does not have yet.
#[inline]
pub(super) fn names_version(call: &Call<'_>) -> bool {
    !call.query.is_empty() && !is_write(call)
}

impl Api {
    /// Decides a request, or makes the request wait until the table is recent enough.
    ///
    /// # Errors
    /// [`ApiError`] if the request fails, if the store is unreachable, or if too many requests wait.
    #[inline(never)]
    pub(super) fn decide_when_fresh(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        route: &Route<'_>,
    ) -> Result<Reply, ApiError> {
        if let Some(until) = self.until_fresh(table, call, route)? {
            return self.reply_waiting(call, until);
        }
        let decided = self.decide(table, call, route);
        self.confirm(call, route, decided)
    }

    /// Returns the condition that a request must wait for before the server decides the request; `None` if the table is
    /// recent enough.
    ///
    /// # Errors
    /// 503 if the store is unreachable, since this replica then cannot pass a barrier. 429 if kube-apiserver may change
    /// Leases that this server no longer imports.
    fn until_fresh(&mut self, table: &Table, call: &Call<'_>, route: &Route<'_>) -> Result<Option<Until>, ApiError> {
        if is_write(call) || !self.may_be_behind() {
            return Ok(None);
        }
        // A read of one Lease and a watch ignore `continue`.
        let is_list = || super::verb_of(call.head, route) == Some(Verb::List);
        let token = call.query.value("continue").filter(|_| is_list());
        let version = match (token, call.query.value("resourceVersion")) {
            (Some(token), _) if !token.is_empty() => {
                ContinueToken::decode(&token).ok().and_then(|token| token.version())
            }
            (_, Some(version)) if !version.is_empty() => version.parse().ok(),
            _ => None,
        };
        match version {
            Some(1..BUILT_IN_VERSIONS_END) if self.handover.holds_writes() => self.until_current(call, route),
            Some(version) if version <= table.version().0 => Ok(None),
            Some(version) if !call.retry.has_awaited_version => Ok(Some(Until::VersionIsApplied(version))),
            Some(_) | None => self.until_current(call, route),
        }
    }

    /// Whether another process, a replica or a kube-apiserver, may have acknowledged writes that the table does not
    /// have yet.
    #[inline]
    pub(super) fn may_be_behind(&self) -> bool {
        self.storage.is_shared() || self.handover.follows_built_in() || self.handover.may_be_outdated()
    }

    /// Whether the table may lack writes that another replica acknowledged before the request arrived. If so, the
    /// request may wait for a barrier and be decided again.
    pub(super) fn awaits_barrier(&self, call: &Call<'_>) -> bool {
        self.storage.is_shared() && !call.retry.has_passed_barrier
    }

    /// Returns what the request must wait for so that the table has every write acknowledged before this call; `None`
    /// if the request need not wait.
    ///
    /// # Errors
    /// 503 if the store is unreachable. 429 if kube-apiserver may change Leases that this server no longer imports.
    fn until_current(&mut self, call: &Call<'_>, route: &Route<'_>) -> Result<Option<Until>, ApiError> {
        if self.awaits_barrier(call) {
            let barrier = self.storage.ask_barrier().ok_or(ApiError::StoreUnreachable)?;
            return Ok(Some(Until::Barrier(barrier)));
        }
        if is_of_handover(route) {
            return Ok(None);
        }
        if self.handover.may_be_outdated() {
            return Err(ApiError::HandingOver);
        }
        let awaits_round = self.handover.follows_built_in() && !call.retry.has_awaited_round;
        Ok(awaits_round.then(|| Until::RoundIsComplete(self.handover.round_after_now())))
    }

    /// Returns the reply to a decided request. Returns a wait instead if a write may have been decided from an old
    /// state of the Lease, or if a read names a `resourceVersion` that the table lacks.
    ///
    /// # Errors
    /// [`ApiError`] if the request fails, if the store is unreachable, or if too many requests wait.
    fn confirm(
        &mut self,
        call: &Call<'_>,
        route: &Route<'_>,
        decided: Result<Reply, ApiError>,
    ) -> Result<Reply, ApiError> {
        let is_final = !matches!(decided, Ok(Reply::Waiting(_)) | Err(ApiError::HandingOver));
        if is_write(call)
            && is_final
            && let Some(until) = self.until_current(call, route)?
        {
            return self.reply_waiting(call, until);
        }
        match future_version(&decided) {
            Some(version) if !call.retry.has_awaited_version => {
                self.reply_waiting(call, Until::VersionIsApplied(version))
            }
            _ => decided,
        }
    }
}

#[inline]
fn is_write(call: &Call<'_>) -> bool {
    !matches!(call.head.method, Method::Get | Method::Head)
}

/// Whether a route names a Lease in which this server stores the state of a takeover or rollback. Built-in storage
/// never has such a Lease, so a request for it needs no round.
fn is_of_handover(route: &Route<'_>) -> bool {
    matches!(route, Route::Lease { namespace, name } if handover::is_lease(namespace, name))
}

/// Returns the `resourceVersion` in the request if the table lacks that version and kube-apiserver would wait for it.
fn future_version(decided: &Result<Reply, ApiError>) -> Option<u64> {
    let error = match decided {
        Err(error) => error,
        Ok(Reply::Watch(spec)) => match &spec.start {
            WatchStart::Refused(error) => error,
            WatchStart::After(_) | WatchStart::Initial { .. } => return None,
        },
        Ok(_) => return None,
    };
    match error {
        ApiError::TooLargeResourceVersion { requested, retry_after_seconds: 1.., .. } => Some(*requested),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Storage;
    use crate::api::holder_log::tests::lines_of;
    use crate::api::waiting::{Resumed, Retry, WakeUp};
    use crate::auth::Credentials;
    use crate::clock::Now;
    use crate::http::{NoLines, RequestHead};
    use crate::journal::testing::SharedStore;
    use crate::journal::{Journal, Limits};
    use crate::lease::Lease;
    use crate::limits::{BARRIER_WAIT_MS_MAX, VERSION_WAIT_MS_MAX};
    use crate::table::change::Change;
    use crate::table::snapshot::{Range, Snapshot};
    use crate::timestamp::Time;

    /// A replica: one of several processes that share a store.
    struct Replica {
        api: Api,
        table: Table,
        now: Now,
    }

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

    impl Replica {
        fn new(store: &SharedStore, writer: u64) -> Self {
            let (journal, table) = store.load(writer, Limits::default());
            let mut api = Api::new();
            api.storage = Storage::Journal(Box::new(journal));
            Self { api, table, now: Now { ms: 0, wall: Time(1_767_000_000) } }
        }

        fn journal(&mut self) -> &mut Journal {
            self.api.storage.journal_mut().expect("a journal")
        }

        fn turn(&mut self) {
            let Self { api, table, now } = self;
            let journal = api.storage.journal_mut().expect("a journal");
            journal.advance(table, now.ms, 100).expect("a store");
            journal.end_turn(table, now.ms);
        }

        /// Sends a request. Returns the status, and whether the request waited for anything but its own change to be
        /// applied.
        fn ask(&mut self, method: Method, path: &str, query: &str, body: &str) -> (u16, bool) {
            let path = format!("{LEASES}{path}");
            let bare = RequestHead::bare(method, &path, query, &NoLines);
            let head = RequestHead { content_type: Some(b"application/json"), ..bare };
            let (mut retry, mut has_waited) = (None::<Retry>, false);
            loop {
                let (api, table) = (&mut self.api, &mut self.table);
                let mut reply = api.handle(table, &head, body.as_bytes(), retry, &Credentials::insecure(), self.now);
                loop {
                    let waiting = match reply {
                        Reply::Waiting(waiting) => waiting,
                        Reply::Job(_) => return (200, has_waited),
                        other => return (other.status().expect("a response"), has_waited),
                    };
                    has_waited |= !matches!(waiting.wake_up(), WakeUp::OwnTicket(_));
                    assert_ne!(waiting.wake_up(), WakeUp::AnyChange, "not every change resumes each waiting read");
                    self.turn();
                    self.now.ms += 100;
                    match self.api.resume(&self.table, waiting, self.now) {
                        Resumed::Again(again) => {
                            retry = Some(again);
                            break;
                        }
                        Resumed::Reply(reply) => return (reply.status().expect("a response"), has_waited),
                        Resumed::Waits(waiting) => reply = Reply::Waiting(waiting),
                    }
                }
            }
        }

        fn create(&mut self, name: &str) -> (u16, bool) {
            let body = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"holderIdentity":"{name}"}}}}"#);
            self.ask(Method::Post, "", "", &body)
        }

        fn version(&self) -> u64 {
            self.table.version().0
        }
    }

    fn two() -> [Replica; 2] {
        let store = SharedStore::default();
        [1, 2].map(|writer| Replica::new(&store, writer))
    }

    #[test]
    fn a_read_without_a_version_sees_writes_of_other_replicas() {
        let [mut one, mut other] = two();
        assert_eq!(one.create("a"), (201, false));
        assert_eq!(other.ask(Method::Get, "/a", "resourceVersion=0", ""), (404, false), "it is behind");
        assert_eq!(other.ask(Method::Get, "/a", "", ""), (200, true));
        for query in ["", "limit=5", "watch=1", "watch=1&allowWatchBookmarks=1"] {
            assert_eq!(other.ask(Method::Get, "", query, ""), (200, true), "{query}");
        }
        assert_eq!(other.ask(Method::Get, "", "watch=1&resourceVersion=0", ""), (200, false));
    }

    /// Goal: `continue` does not make a read of one Lease return an old state.
    #[test]
    fn only_a_list_is_served_at_the_version_of_its_continue_token() {
        let [mut one, mut other] = two();
        one.create("a");
        other.ask(Method::Get, "/a", "", "");
        one.create("b");
        let range = Range::Namespace("default".into());
        let token = ContinueToken::after(&Snapshot::now(&other.table, range)).encode();
        assert_eq!(other.ask(Method::Get, "", &format!("limit=5&continue={token}"), ""), (200, false));
        assert_eq!(other.ask(Method::Get, "/b", &format!("continue={token}"), ""), (200, true));
        one.create("c");
        assert_eq!(other.ask(Method::Get, "", &format!("watch=1&continue={token}"), ""), (422, true));
    }

    #[test]
    fn a_read_at_a_version_waits_for_it_three_seconds() {
        let [mut one, mut other] = two();
        one.create("a");
        let version = one.version();
        assert!(other.version() < version);
        assert_eq!(other.ask(Method::Get, "/a", &format!("resourceVersion={version}"), ""), (200, true));
        one.create("b");
        let query = format!("watch=1&resourceVersion={}", one.version());
        assert_eq!(other.ask(Method::Get, "", &query, ""), (200, true));
        let begun_ms = other.now.ms;
        let query = format!("resourceVersion={}", one.version() + 1);
        assert_eq!(other.ask(Method::Get, "/a", &query, ""), (504, true));
        assert!((0..500).contains(&(other.now.ms - begun_ms - VERSION_WAIT_MS_MAX)), "and a barrier");
    }

    #[test]
    fn a_watch_from_a_version_ahead_of_the_replica_gets_no_410() {
        let store = SharedStore::default();
        let [mut one, mut other] = [1, 2].map(|writer| Replica::new(&store, writer));
        one.create("a");
        let query = format!("watch=1&resourceVersion={}", one.version());
        store.deliver_nothing(true);
        assert_eq!(other.ask(Method::Get, "", &query, ""), (504, true));
        store.deliver_nothing(false);
        assert_eq!(other.ask(Method::Get, "", &query, ""), (200, true));
    }

    #[test]
    fn a_write_that_looks_stale_is_checked_again_after_a_barrier() {
        let [mut one, mut other] = two();
        one.create("a");
        assert_eq!(other.create("b"), (201, false), "a change that applies needs no barrier");
        one.create("c");
        assert_eq!(other.create("c"), (409, false), "its change was rejected, behind all that came before");
        one.ask(Method::Delete, "/a", "", "");
        assert_eq!(other.create("a"), (201, true));
        one.turn();
        // Returns the body of an update of Lease `b` that was made from the state at `version`.
        let body = |version: u64, holder: &str| {
            let spec = format!(r#"{{"holderIdentity":"{holder}"}}"#);
            format!(r#"{{"metadata":{{"name":"b","resourceVersion":"{version}"}},"spec":{spec}}}"#)
        };
        let (_, object) = one.table.find("default", "b").expect("a Lease");
        let version = object.version.0;
        assert_eq!(one.ask(Method::Put, "/b", "", &body(version, "x")).0, 200);
        let version = one.version();
        assert_eq!(other.ask(Method::Put, "/b", "", &body(version, "y")).0, 200);
        assert_eq!(other.ask(Method::Put, "/b", "", &body(version, "z")), (409, true));
        assert_eq!(other.ask(Method::Put, "/b", "", &body(other.version(), "y")), (200, true), "nothing changes");
        assert_eq!(other.ask(Method::Delete, "/nobody", "", ""), (404, true));
    }

    #[test]
    fn a_deletion_of_a_collection_is_logged_once() {
        let [mut one, _] = two();
        let lines = lines_of(|| assert_eq!(one.ask(Method::Delete, "", "", ""), (200, true)));
        let logged = lines.iter().filter(|line| line.contains("deletion of a collection of Leases requested"));
        assert_eq!(logged.count(), 1, "{lines:?}");
    }

    #[test]
    fn only_reads_of_version_0_work_without_the_store() {
        let [mut one, _] = two();
        one.create("a");
        one.journal().set_reachable(false);
        assert_eq!(one.create("b"), (503, false));
        assert_eq!(one.ask(Method::Get, "/a", "", ""), (503, false));
        assert_eq!(one.ask(Method::Get, "/a", "resourceVersion=0", ""), (200, false));
        assert_eq!(one.ask(Method::Get, "", "watch=1&resourceVersion=0", ""), (200, false));
        one.journal().set_reachable(true);
        assert_eq!(one.ask(Method::Get, "/a", "", ""), (200, true));
    }

    /// Goal: a write does not wait for another change of its Lease while the outcome of that change may come late. So
    /// its client can try another replica at once.
    #[test]
    fn a_write_waits_for_no_other_change_without_the_store() {
        let [mut one, _] = two();
        let Replica { api, table, now } = &mut one;
        let change = Change::Create(Box::new(Lease::named("default", "a")));
        api.storage.write(table, change, now.ms).expect("a change in flight");
        let path = format!("{LEASES}/a");
        let head = RequestHead::bare(Method::Delete, &path, "", &NoLines);
        let reply = api.handle(table, &head, b"", None, &Credentials::insecure(), *now);
        let Reply::Waiting(waiting) = reply else { panic!("{reply:?}") };
        let Resumed::Waits(waiting) = api.resume(table, waiting, *now) else { panic!("the change is in flight") };
        one.journal().set_reachable(false);
        let resumed = one.api.resume(&one.table, waiting, one.now);
        assert!(matches!(&resumed, Resumed::Reply(reply) if reply.status() == Some(503)), "{resumed:?}");
        assert_eq!(one.ask(Method::Delete, "/a", "", ""), (503, false));
    }

    #[test]
    fn a_barrier_that_takes_too_long_ends_with_504() {
        let store = SharedStore::default();
        let mut one = Replica::new(&store, 1);
        store.answer_no_looks();
        assert_eq!(one.ask(Method::Get, "/a", "", ""), (504, true));
        assert_eq!(one.now.ms, BARRIER_WAIT_MS_MAX);
    }
}
