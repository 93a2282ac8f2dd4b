//! Periodic work: reads the size of etcd's database, and compacts etcd if nothing else compacts it.

use super::client::Failure;
use super::messages::StatusResponse;
use super::state::SharedState;
use crate::journal::{Event, StoreSize};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// Interval at which the size of etcd's database is read.
const SIZE_EVERY: Duration = Duration::from_secs(5);

/// Reports the size of etcd's database until the thread must end.
pub(super) async fn watch_size(state: Rc<SharedState>) {
    while !state.is_over.get() {
        match state.client.status(state.client.member()).await {
            Ok(status) => state.say(Event::Size(size(&status))),
            Err(Failure::Refused(status)) => {
                let reason = status.message();
                return tracing::warn!(reason, "etcd does not report its size, so creations of Leases are not limited");
            }
            Err(failure) => tracing::debug!(?failure, "etcd does not report its size"),
        }
        sleep(SIZE_EVERY).await;
    }
}

fn size(status: &StatusResponse) -> StoreSize {
    let bytes = |number: i64| u64::try_from(number).unwrap_or(0);
    StoreSize {
        bytes: bytes(status.db_size),
        in_use_bytes: bytes(status.db_size_in_use),
        quota_bytes: Some(bytes(status.db_size_quota)).filter(|quota| *quota > 0),
    }
}

/// Compacts etcd every `interval`, until the thread must end. Compacts the history up to a revision of one interval
/// ago. By then, this replica had received all events up to this revision.
pub(super) async fn compact(state: Rc<SharedState>, interval: Duration) {
    let mut revision = state.followed.get();
    while !state.is_over.get() {
        sleep(interval).await;
        match state.client.compact(revision).await {
            Ok(()) => tracing::debug!(revision, "etcd compacted"),
            Err(Failure::Refused(status)) => {
                return tracing::error!(reason = status.message(), "etcd refuses to be compacted");
            }
            Err(failure) => tracing::debug!(?failure, "etcd has not answered a compaction"),
        }
        revision = state.followed.get();
    }
}
