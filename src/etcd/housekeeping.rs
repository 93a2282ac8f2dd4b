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

/// The reason why etcd refused the last request; `None` if etcd did not refuse it. A refused request is sent again,
/// since an operator may grant the right. The log shows a repeated reason only once.
#[derive(Debug, Default)]
struct LastRefusal(Option<String>);

impl LastRefusal {
    /// Records a refusal. Returns whether the log must show the refusal: the previous request was not refused, or for
    /// another reason.
    fn is_news(&mut self, reason: &str) -> bool {
        self.0.replace(reason.to_owned()).as_deref() != Some(reason)
    }

    /// Records that etcd did not refuse the request.
    fn end(&mut self) {
        self.0 = None;
    }
}

/// Reports the size of etcd's database until the thread must end.
pub(super) async fn watch_size(state: Rc<SharedState>) {
    let mut last = LastRefusal::default();
    while !state.is_over.get() {
        match state.client.status(state.client.member()).await {
            Ok(status) => {
                last.end();
                state.say(Event::Size(size(&status)));
            }
            Err(Failure::Refused(status)) => {
                let reason = status.message();
                if last.is_news(reason) {
                    tracing::warn!(reason, "etcd does not report its size, so creations of Leases are not limited");
                }
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
/// ago. At that time, this replica had already received all events up to this revision.
pub(super) async fn compact(state: Rc<SharedState>, interval: Duration) {
    let mut revision = state.followed.get();
    let mut last = LastRefusal::default();
    while !state.is_over.get() {
        sleep(interval).await;
        match state.client.compact(revision).await {
            Ok(()) => {
                last.end();
                tracing::debug!(revision, "etcd compacted");
            }
            // With authentication, etcd 3.7.3 compacts only for users with the role `root`.
            Err(Failure::Refused(status)) => {
                let reason = status.message();
                if last.is_news(reason) {
                    tracing::error!(reason, "etcd refuses to be compacted; start etcd with --auto-compaction-mode");
                }
            }
            Err(failure) => tracing::debug!(?failure, "etcd has not answered a compaction"),
        }
        revision = state.followed.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::background::LocalRuntime;
    use crate::etcd::client::Client;
    use crate::etcd::client::tests::{DATA, HEADERS, frame, serve_frames};
    use crate::etcd::config::Config;
    use crate::updates;
    use futures_util::future::{Either, select};
    use mio::{Poll, Token, Waker};
    use std::io;
    use std::net::{Ipv4Addr, TcpListener};
    use std::pin::pin;
    use std::sync::Arc;
    use std::thread;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    /// Flag of the last frame of a request.
    const END_STREAM: u8 = 1;
    /// Flags of a frame that is both first and last of a response.
    const WHOLE: u8 = 5;
    /// The fields `:status: 200` and `grpc-status: 7`, permission denied.
    const REFUSAL: &[u8] = b"\x88\x00\x0bgrpc-status\x017";

    /// Refuses all requests of the first connection. Reports the third request.
    fn refuse(listener: &TcpListener, third: oneshot::Sender<()>) -> io::Result<()> {
        let (connection, _) = listener.accept()?;
        let (mut third, mut requests) = (Some(third), 0);
        serve_frames(connection, |kind, flags, stream, _| {
            if !matches!(kind, DATA | HEADERS) || flags & END_STREAM == 0 {
                return Vec::new();
            }
            requests += 1;
            if let Some(third) = third.take_if(|_| requests == 3) {
                _ = third.send(());
            }
            frame(HEADERS, WHOLE, stream, REFUSAL)
        })
    }

    /// The role in docs/replicas.md does not permit compactions. An operator may grant the right while the replica
    /// runs. So the replica must repeat a refused compaction.
    #[test]
    fn a_refused_compaction_is_tried_again() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (third, requested) = oneshot::channel();
        drop(thread::spawn(move || refuse(&listener, third)));
        let poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(0)).expect("a waker");
        let (sender, _events) = updates::queue(Arc::new(waker));
        LocalRuntime::new().expect("a runtime").block_on(async {
            let client = Client::new(Config { endpoints: vec![url], ..Config::default() }).expect("a client");
            let state = Rc::new(SharedState::new(client, sender));
            let compacting = pin!(compact(state, Duration::from_millis(1)));
            let ended = timeout(Duration::from_secs(20), select(compacting, requested)).await;
            assert!(matches!(ended, Ok(Either::Right((Ok(()), _)))), "no third request");
        });
    }

    #[test]
    fn a_refusal_is_logged_once_for_each_reason() {
        let mut last = LastRefusal::default();
        let mut news = |reason| last.is_news(reason);
        assert_eq!([news("a"), news("a"), news("b"), news("a")], [true, false, true, true]);
        last.end();
        assert!(last.is_news("a"), "the request has succeeded in between");
    }
}
