//! Follows a resource of the cluster: lists its objects, then watches them without end, and recovers from all failures
//! (Kubernetes API concepts, "Efficient detection of changes").

use super::Followed;
use crate::limits::NAMESPACE_WAIT_MS;
use futures_util::TryStreamExt;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use std::error::Error;
use std::fmt::Debug;
use std::pin::pin;
use std::time::{Duration, Instant};

/// A change of the followed objects, seen by the list or the watch.
#[derive(Debug)]
pub(super) enum Seen<K> {
    /// All objects, from a list.
    All(Vec<K>),
    /// A followed object that was added or modified.
    Present(K),
    /// A followed object that was deleted.
    Gone(K),
}

/// Timeout of a watch, in seconds. kube-apiserver then ends the watch, and the next watch continues at the same place.
/// So on a working connection, this server receives something at least this often. If no byte arrives for [`READ_MAX`],
/// the connection is dead.
const WATCH_SECONDS: u32 = 50;
/// Maximum time without received bytes until the connection counts as dead. Until then, this server may miss new
/// namespaces. The value equals kube-apiserver's maximum time for a list (`--request-timeout`), so that no list is cut
/// off.
pub(super) const READ_MAX: Duration = Duration::from_secs(60);
const _: () = assert!((WATCH_SECONDS as u64) < READ_MAX.as_secs(), "a quiet watch is no dead connection");
/// Minimum duration of a watch that ends by its timeout. A watch that ends sooner ended for another reason, so this
/// server pauses before the next watch.
const WATCH_MIN: Duration = Duration::from_secs(1);
/// Pause after the first failed list or watch. Each further failure doubles the pause ([`Pauses`]).
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(250);
const _: () = assert!(PAUSE_MIN.as_millis() * 3 / 2 < NAMESPACE_WAIT_MS as u128, "a creation waits for one failure");
/// Maximum pause after a failed list or watch.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Passes every change of the followed objects to `apply`, until `apply` returns `false`. `fields` is a field selector
/// for the objects.
pub(super) async fn follow<K>(
    api: Api<K>,
    fields: Option<&str>,
    followed: &Followed,
    mut apply: impl FnMut(Seen<K>) -> bool,
) where
    K: Clone + Debug + DeserializeOwned + kube::Resource,
{
    let mut pauses = Pauses { next: PAUSE_MIN, has_listed: false };
    loop {
        let (mut listed, mut has_delivered) = (None, false);
        let ended = list_and_watch(&api, fields, followed, |seen| {
            match seen {
                Seen::All(_) => listed = Some(Instant::now()),
                Seen::Present(_) | Seen::Gone(_) => has_delivered = true,
            }
            apply(seen)
        });
        let ended = ended.await;
        let pause = pauses.after(listed.map(|listed: Instant| listed.elapsed()), has_delivered);
        match ended {
            Ok(End::Unwanted) => return,
            Ok(End::Expired) => {}
            Err(error) => {
                let error = told(&error);
                let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(error, what = followed.what, pause_ms, "cannot follow; trying again");
            }
        }
        // The pause is random, so that many servers do not send their requests at once.
        tokio::time::sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
    }
}

/// The pauses between attempts. An attempt is a list and the watches that follow it.
#[derive(Debug)]
struct Pauses {
    /// Pause after the next attempt, unless that attempt resets the pause.
    next: Duration,
    /// Whether the list of the last attempt succeeded.
    has_listed: bool,
}

impl Pauses {
    /// Returns the pause after an attempt. `since_list` is the time from the attempt's list to the attempt's end;
    /// `None` if the list failed. `has_delivered` is whether a watch delivered a change.
    ///
    /// Three things reset the pause: a change, [`PAUSE_MAX`] or more since the list, and a list after a failed list.
    /// After a restart, kube-apiserver may refuse the first watch, or report its `resourceVersion` as expired. The next
    /// list must then come soon, since this server does not see new namespaces meanwhile. A list after a successful
    /// list does not reset the pause. Otherwise a server that may list but not watch would send a list about every
    /// [`PAUSE_MIN`].
    fn after(&mut self, since_list: Option<Duration>, has_delivered: bool) -> Duration {
        let had_listed = std::mem::replace(&mut self.has_listed, since_list.is_some());
        if has_delivered || since_list.is_some_and(|since_list| !had_listed || since_list >= PAUSE_MAX) {
            self.next = PAUSE_MIN;
        }
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }
}

/// Formats an error with the errors that caused it, since these name the reason. Of a Status, only its message and code
/// are included.
#[must_use]
pub fn told(error: &(dyn Error + 'static)) -> String {
    let mut told = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(kube::Error::Api(status)) = error.downcast_ref() {
            told.push(format!("{} ({})", status.message, status.code));
            break;
        }
        told.push(error.to_string());
        next = error.source();
    }
    told.join(": ")
}

/// The reason why this server stopped following the objects without an error.
pub(super) enum End {
    /// The `resourceVersion` of the watch has expired, so a new list is needed.
    Expired,
    /// `apply` has returned `false`, so no more changes are wanted.
    Unwanted,
}

/// Lists the objects and then watches them. Passes all objects and then every change to `apply`, until an error or
/// until `apply` returns `false`.
///
/// # Errors
/// The error of the list or the watch.
pub(super) async fn list_and_watch<K>(
    api: &Api<K>,
    fields: Option<&str>,
    followed: &Followed,
    mut apply: impl FnMut(Seen<K>) -> bool,
) -> Result<End, kube::Error>
where
    K: Clone + Debug + DeserializeOwned + kube::Resource,
{
    let (mut list, mut watch) = (ListParams::default(), WatchParams::default().timeout(WATCH_SECONDS));
    if let Some(fields) = fields {
        (list, watch) = (list.fields(fields), watch.fields(fields));
    }
    let found = api.list(&list).await?;
    followed.hear();
    let mut version = found.metadata.resource_version.unwrap_or_default();
    if !apply(Seen::All(found.items)) {
        return Ok(End::Unwanted);
    }
    loop {
        let begun = Instant::now();
        let mut events = pin!(api.watch(&watch, &version).await?);
        // A watch lasts at most `WATCH_SECONDS`. So even without events, a response is recorded at least that often.
        followed.hear();
        while let Some(event) = events.try_next().await? {
            let seen = match event {
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) if status.code == STATUS_GONE => return Ok(End::Expired),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.resource_version().unwrap_or(version);
                    Seen::Present(object)
                }
                WatchEvent::Deleted(object) => {
                    version = object.resource_version().unwrap_or(version);
                    Seen::Gone(object)
                }
            };
            if !apply(seen) {
                return Ok(End::Unwanted);
            }
        }
        // The pause avoids a busy loop if kube-apiserver ends every watch at once. After a longer watch there is no
        // pause, since this server would not see objects that are created during the pause.
        if begun.elapsed() < WATCH_MIN {
            tokio::time::sleep(PAUSE_MIN).await;
        }
    }
}

/// HTTP status code in the ERROR event of a watch whose `resourceVersion` has expired.
const STATUS_GONE: u16 = 410;

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn pauses_grow_until_the_cluster_has_recovered() {
        let mut pauses = Pauses { next: PAUSE_MIN, has_listed: false };
        let soon = Some(Duration::from_millis(5));
        for list_fails in [true, false] {
            // A list after a failed list resets the pause. Later lists do not.
            let grown: Vec<_> = (0..9).map(|_| pauses.after(soon.filter(|_| !list_fails), false)).collect();
            assert_eq!(grown[..4], [1, 2, 4, 8].map(|times| PAUSE_MIN * times), "{list_fails}");
            assert_eq!(grown[8], PAUSE_MAX, "{list_fails}");
        }
        assert_eq!(pauses.after(soon, true), PAUSE_MIN, "a change");
        assert_eq!(pauses.after(soon, false), PAUSE_MIN * 2);
        assert_eq!(pauses.after(Some(PAUSE_MAX), false), PAUSE_MIN, "a long watch");
    }

    #[test]
    fn an_error_shows_its_causes_or_its_status_message() {
        let status = Status::failure("leases is forbidden", "Forbidden").with_code(403);
        assert_eq!(told(&kube::Error::Api(status.boxed())), "leases is forbidden (403)");
        let cause = std::io::Error::other("the connection is broken");
        let expected = "ServiceError: the connection is broken: the connection is broken";
        assert_eq!(told(&kube::Error::Service(cause.into())), expected);
    }
}
