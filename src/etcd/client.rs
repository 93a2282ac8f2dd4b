//! Requests to etcd. A request goes to the member that answered last. After a failure, the request goes to the next
//! member.
//!
//! A follower forwards a transaction to the leader. If the leader has died, the transaction gets no answer until the
//! followers elect another leader. So a transaction without a prompt answer is also sent to the next member, if there
//! is one, and the first definite answer counts. Each transaction is made so that a second copy does no harm. More
//! copies would add to the load of a slow etcd. So a third copy is sent only after a failure of an earlier copy, after
//! the election of a leader, or in the next attempt. The next attempt cancels the earlier copies.

use super::config::{Config, Pem};
use super::messages::{
    CompactionRequest, CompactionResponse, Header, RangeRequest, RangeResponse, StatusRequest, StatusResponse,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use super::state::UNREACHABLE_AFTER;
use crate::engine::EngineError;
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use prost::Message;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// A client of one etcd cluster.
#[derive(Debug)]
pub(super) struct Client {
    config: Config,
    members: RefCell<Members>,
    /// Index of the member for the next request.
    current: Cell<usize>,
    /// Cluster id in all answers so far, the greatest revision in them, and the raft term of the last answer.
    known: Cell<Option<Header>>,
    /// Reason why the last unanswered attempt failed, or why the last watch ended.
    last_failure: RefCell<String>,
    /// Whether this client logs a warning if etcd does not answer.
    warns: bool,
    warnings: RefCell<ReasonLog>,
}

/// The last warning that etcd does not answer: its time and reason; `None` while etcd is reachable.
#[derive(Debug, Default)]
struct ReasonLog(Option<(Instant, String)>);

#[derive(Debug)]
struct Members {
    pem: Pem,
    channels: Vec<Channel>,
}

/// The reason why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// No member answered, or another attempt may succeed. Whether the request took effect is unknown. Every other
    /// result is a definite answer.
    Unknown(Status),
    /// The store has no space. The request may have taken effect nevertheless.
    NoSpace(String),
    /// The request is larger than a member allows. Another member may have carried out a copy of the request.
    TooLarge(String),
    /// etcd has compacted the revision that the request names.
    Compacted,
    /// The answer contradicts earlier answers: etcd lost data, or another etcd cluster answers.
    Lost(String),
    /// The answer is longer than [`ANSWER_BYTES_MAX`] or etcd's limit, and another attempt would get the same answer.
    TooLong(String),
    /// etcd refuses the request, and would refuse it again.
    Refused(Status),
}

/// What a member has said while a request is in flight.
enum Heard<A> {
    /// Index of the member, and its answer to a copy of the request.
    Answer(usize, Result<A, Status>),
    /// Index of the member, and the raft term of its leader; 0 if it has no leader or did not answer in time.
    Leader(usize, u64),
}

/// Timeout of a request's first attempt. The timeout doubles with each further attempt, up to [`ATTEMPT_MAX`].
const ATTEMPT_MIN: Duration = Duration::from_millis(1_500);
pub(super) const ATTEMPT_MAX: Duration = Duration::from_secs(8);
/// Maximum number of copies of a transaction in flight. Each goes to another member, if there is one.
const COPIES_MAX: u32 = 2;
/// Time that a member has for an answer before the client turns to the next member. For a transaction, the client then
/// sends a copy to the next member. In the search for etcd's leader, the client then asks the next member.
const COPY_AFTER: Duration = Duration::from_millis(180);
/// Pause after a request's first attempt. The pause doubles with each further attempt, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Minimum interval between two warnings that etcd does not answer, if their reasons differ.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Maximum size of an answer, in bytes. The largest answers are a page of entries and a page of built-in Leases.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

impl ReasonLog {
    /// Whether a warning with this reason is due; if so, records the reason. The first reason is due at once. The
    /// reason of the last warning is not due. Any other reason is due a minute after the last warning.
    fn is_due(&mut self, reason: &str, now: Instant) -> bool {
        let is_due = match &self.0 {
            Some((at, told)) => told != reason && now.duration_since(*at) >= TELL_EVERY,
            None => true,
        };
        if is_due {
            self.0 = Some((now, reason.to_owned()));
        }
        is_due
    }
}

impl Client {
    /// Creates a client that is not connected yet. Must be called in a task of a runtime.
    ///
    /// # Errors
    /// A file or a URL is invalid.
    pub(super) fn new(config: Config) -> Result<Self, EngineError> {
        let pem = config.read_pem()?;
        let channels = config.channels(&pem)?;
        let members = RefCell::new(Members { pem, channels });
        let (last_failure, warnings) = Default::default();
        Ok(Self { config, members, current: Cell::new(0), known: Cell::new(None), last_failure, warns: true, warnings })
    }

    /// Makes the client log no warning if etcd does not answer. For a caller that logs each failed request itself.
    pub(super) fn without_warnings(self) -> Self {
        Self { warns: false, ..self }
    }

    /// Returns the reason why the last unanswered attempt failed, or why the last watch ended.
    pub(super) fn last_failure(&self) -> String {
        self.last_failure.borrow().clone()
    }

    /// Records the reason of a failure for [`Client::last_failure`].
    pub(super) fn note_failure(&self, reason: String) {
        *self.last_failure.borrow_mut() = reason;
    }

    /// Logs a warning that etcd does not answer, with the reason of the last failure. Does nothing if another request
    /// of this client has caused the warning already, or after [`Client::without_warnings`].
    pub(super) fn warn_unanswered(&self) {
        let reason = self.last_failure();
        if self.warns && self.warnings.borrow_mut().is_due(&reason, Instant::now()) {
            tracing::warn!(store = self.config.store(), reason, "etcd has not answered for two seconds; trying again");
        }
    }

    /// Records that etcd is reachable. So the next call of [`Client::warn_unanswered`] logs a warning at once.
    pub(super) fn note_reachable(&self) {
        self.warnings.replace(ReasonLog::default());
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Reads the certificate files again. If they have changed, connects to the members anew.
    pub(super) fn take_up_files(&self) {
        let Ok(pem) = self.config.read_pem() else { return };
        let mut members = self.members.borrow_mut();
        if pem != members.pem
            && let Ok(channels) = self.config.channels(&pem)
        {
            tracing::info!("certificates for etcd taken up");
            *members = Members { pem, channels };
        }
    }

    fn channel(&self) -> Channel {
        self.channel_to(self.current.get())
    }

    fn channel_to(&self, member: usize) -> Channel {
        let members = self.members.borrow();
        members.channels[member % members.channels.len()].clone()
    }

    /// Whether a request that has waited this long for an answer fails, and is not repeated ([`Config::patience`]).
    pub(super) fn gives_up(&self, waited: Duration) -> bool {
        self.config.patience.is_some_and(|patience| waited >= patience)
    }

    /// Reads a range linearizably. Repeats the request until etcd gives a definite answer.
    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        let known = self.known.get();
        let answer: RangeResponse = self.ask(&request, "/etcdserverpb.KV/Range").await?;
        self.check(known, answer.header)?;
        Ok(answer)
    }

    /// Sends a transaction to one member, and a copy to the next member if the first does not answer at once. Ends at a
    /// definite answer, or after the time of one attempt.
    pub(super) async fn txn(&self, request: &TxnRequest, attempt: u32) -> Result<TxnResponse, Failure> {
        let known = self.known.get();
        let time = (ATTEMPT_MIN * 2_u32.saturating_pow(attempt)).min(ATTEMPT_MAX);
        let answer: TxnResponse = self.ask_members(request, "/etcdserverpb.KV/Txn", time, COPIES_MAX).await?;
        self.check(known, answer.header)?;
        Ok(answer)
    }

    /// Sends a transaction that changes nothing. Repeats the request until etcd gives a definite answer.
    pub(super) async fn repeat_txn(&self, request: &TxnRequest) -> Result<TxnResponse, Failure> {
        self.ask(request, "/etcdserverpb.KV/Txn").await
    }

    /// Reads the status of a member, in one attempt.
    pub(super) async fn status(&self, member: usize) -> Result<StatusResponse, Failure> {
        let path = "/etcdserverpb.Maintenance/Status";
        let asked = unary(self.channel_to(member), &StatusRequest {}, path);
        let answer = timeout(ATTEMPT_MIN, asked).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
        answer.map_err(|status| self.failed(status))
    }

    /// Compacts the history up to a revision, in one attempt.
    pub(super) async fn compact(&self, revision: u64) -> Result<(), Failure> {
        let request = CompactionRequest { revision: revision.cast_signed() };
        let answer: Result<CompactionResponse, _> =
            self.ask_members(&request, "/etcdserverpb.KV/Compact", ATTEMPT_MAX, 1).await;
        match answer {
            // If the revision is compacted already, another replica has compacted it.
            Ok(_) | Err(Failure::Compacted) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the index of the member for the next request.
    pub(super) fn member(&self) -> usize {
        self.current.get()
    }

    /// Opens watches on one member. The member ends the watches when the member has no leader.
    pub(super) async fn watch(&self, watches: Vec<WatchRequest>) -> Result<Streaming<WatchResponse>, Failure> {
        let open = async {
            let mut grpc = Grpc::new(self.channel()).max_decoding_message_size(ANSWER_BYTES_MAX);
            ready(&mut grpc).await?;
            // The request stream stays open, since the end of the stream would end the watches.
            let mut request = Request::new(stream::iter(watches).chain(stream::pending()));
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            Ok(grpc.streaming(request, path, codec).await?.into_inner())
        };
        let opened = timeout(ATTEMPT_MIN, open).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
        opened.map_err(|status| self.failed(status))
    }

    /// Returns the next answer of a watch; `None` after the end of the watch. An answer that cannot be decoded ends the
    /// watch too.
    pub(super) async fn next_answer(&self, answers: &mut Streaming<WatchResponse>) -> Option<WatchResponse> {
        answers.message().await.unwrap_or_else(|status| {
            tracing::debug!(%status, "the watch of etcd has ended");
            self.note_failure(in_few_words(&status));
            None
        })
    }

    /// Waits before the attempt that follows attempt number `attempt`. Then reads the certificate files again.
    pub(super) async fn pause(&self, attempt: u32) {
        sleep((PAUSE_MIN * 2_u32.saturating_pow(attempt)).min(PAUSE_MAX)).await;
        self.take_up_files();
    }

    /// Repeats a request until etcd gives a definite answer, within [`Config::patience`]. Logs at most one warning if
    /// etcd does not answer for long.
    async fn ask<Q: Message + Clone + 'static, A: Message + Default + 'static>(
        &self,
        request: &Q,
        path: &'static str,
    ) -> Result<A, Failure> {
        let begun = Instant::now();
        let mut is_told = false;
        for attempt in 0.. {
            let time = (ATTEMPT_MIN * 2_u32.saturating_pow(attempt)).min(ATTEMPT_MAX);
            match self.ask_members(request, path, time, 1).await {
                Err(Failure::Unknown(status)) if !self.gives_up(begun.elapsed()) => {
                    tracing::debug!(%status, "etcd has not answered");
                    if !is_told && begun.elapsed() > UNREACHABLE_AFTER {
                        is_told = true;
                        self.warn_unanswered();
                    }
                    self.pause(attempt).await;
                }
                other => return other,
            }
        }
        unreachable!("attempts do not end")
    }

    /// Sends a request to one member after another, within `time`. At most `copies_max` copies are in flight. Ends at
    /// the first definite answer.
    async fn ask_members<Q: Message + Clone + 'static, A: Message + Default + 'static>(
        &self,
        request: &Q,
        path: &'static str,
        time: Duration,
        copies_max: u32,
    ) -> Result<A, Failure> {
        let (end, interval) = (Instant::now() + time, if copies_max > 1 { COPY_AFTER } else { time });
        let mut unanswered = Status::deadline_exceeded("no answer");
        let mut in_flight = FuturesUnordered::new();
        let (mut copies, mut failures) = (0, 0);
        // Member and time of the last copy, until the member answers.
        let mut last: Option<(usize, Instant)> = None;
        let mut term = self.known.get().map_or(0, |known| known.raft_term);
        // The member that was the last to answer that it follows a leader; `None` if no member has.
        let mut alive = None;
        'members: loop {
            let member = self.current.get();
            // A single endpoint gets a second copy too, but later. It may have forwarded the first copy to a leader
            // that has died, and it may be a proxy that does not tell its leader.
            let is_other = last.is_none_or(|(of, at)| of != member || at.elapsed() >= ATTEMPT_MIN);
            let is_copy = copies < copies_max && is_other;
            if is_copy {
                copies += 1;
                last = Some((member, Instant::now()));
            }
            in_flight.push(async move {
                if is_copy {
                    Heard::Answer(member, unary(self.channel_to(member), request, path).await)
                } else {
                    Heard::Leader(member, self.leader_term(member).await)
                }
            });
            let mut next = end.min(Instant::now() + interval);
            while let Ok(Some(heard)) = timeout_at(next, in_flight.next()).await {
                match heard {
                    Heard::Leader(member, seen) if seen > term => {
                        // This member follows another leader than before. The members may have forwarded the copies to
                        // the former leader. So the request is sent again.
                        term = seen;
                        in_flight.clear();
                        (copies, last) = (0, None);
                        self.current.set(member);
                        continue 'members;
                    }
                    // This member has no leader, but the next member may have one already. So the next member is asked
                    // sooner.
                    Heard::Leader(_, 0) => next = next.min(Instant::now() + PAUSE_MIN),
                    Heard::Leader(member, _) => alive = Some(member),
                    Heard::Answer(member, answer) => match answer.map_err(|status| self.failed(status)) {
                        Err(Failure::Unknown(status)) => {
                            unanswered = status;
                            (copies, failures) = (copies - 1, failures + 1);
                            last = last.filter(|(of, _)| *of != member);
                            self.turn_away_from(member);
                            next = next.min(Instant::now() + PAUSE_MIN * failures);
                        }
                        definite => return definite,
                    },
                }
            }
            if copies == 0 && copies_max > 1 {
                sleep_until(next).await;
            }
            self.turn_away_from(member);
            if copies_max == 1 || Instant::now() >= end {
                // Both members with a copy may be dead. So the next attempt begins with the last member that has named
                // its leader.
                if let Some(member) = alive {
                    self.current.set(member);
                }
                return Err(self.failed(unanswered));
            }
        }
    }

    /// Returns the raft term of the leader that a member follows; 0 if the member has no leader, or does not answer in
    /// time.
    async fn leader_term(&self, member: usize) -> u64 {
        match timeout(COPY_AFTER, self.status(member)).await {
            Ok(Ok(status)) if status.leader > 0 => status.raft_term,
            _ => 0,
        }
    }

    /// Directs the next request to the member after `member`, unless another request has already moved on from
    /// `member`.
    pub(super) fn turn_away_from(&self, member: usize) {
        if self.current.get() == member {
            self.current.set((member + 1) % self.config.endpoints.len().max(1));
        }
    }

    /// Translates a gRPC status. If the attempt got no definite answer, remembers the reason.
    fn failed(&self, status: Status) -> Failure {
        let failure = Failure::of(status);
        if let Failure::Unknown(status) = &failure {
            self.note_failure(in_few_words(status));
        }
        failure
    }

    /// Checks an answer's header against `before`, the header known when the request was sent, and stores the answer's
    /// header.
    fn check(&self, before: Option<Header>, answer: Option<Header>) -> Result<(), Failure> {
        let Some(answer) = answer else { return Err(Failure::Lost("an answer without a header".to_owned())) };
        if let Some(before) = before {
            if before.cluster_id != answer.cluster_id {
                let (old, new) = (before.cluster_id, answer.cluster_id);
                return Err(Failure::Lost(format!("cluster {new:x} answers instead of {old:x}")));
            }
            if before.revision > answer.revision {
                let (old, new) = (before.revision, answer.revision);
                return Err(Failure::Lost(format!("revisions went back from {old} to {new}: etcd was restored")));
            }
        }
        let newest = self.known.get().map_or(answer.revision, |known| known.revision.max(answer.revision));
        self.known.set(Some(Header { revision: newest, ..answer }));
        Ok(())
    }
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::unavailable(in_words("", &error)))
}

async fn unary<Q: Message + Clone + 'static, A: Message + Default + 'static>(
    channel: Channel,
    request: &Q,
    path: &'static str,
) -> Result<A, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    ready(&mut grpc).await?;
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc.unary(Request::new(request.clone()), PathAndQuery::from_static(path), codec).await?;
    Ok(answer.into_inner())
}

/// Returns `what` and the root cause of `error` in one line. Omits `what` if the root cause contains it.
pub(super) fn in_words(what: &str, error: &dyn Error) -> String {
    let mut root = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    let root = root.to_string();
    if root.contains(what) || what.is_empty() { root } else { format!("{what}: {root}") }
}

fn in_few_words(status: &Status) -> String {
    match Error::source(status) {
        Some(cause) => in_words(status.message(), cause),
        None => status.message().to_owned(),
    }
}

impl Failure {
    /// Translates a gRPC status (etcd `api/v3rpc/rpctypes/error.go`).
    fn of(status: Status) -> Self {
        match status.code() {
            Code::ResourceExhausted if status.message().contains("space exceeded") => {
                Self::NoSpace(status.message().to_owned())
            }
            // `tonic` limits the size of a received message, and etcd's gRPC server the size of a sent message.
            Code::OutOfRange | Code::ResourceExhausted
                if ["decoded message length too large", "trying to send message larger than max"]
                    .iter()
                    .any(|part| status.message().contains(part)) =>
            {
                Self::TooLong(status.message().to_owned())
            }
            // etcd limits the size of a request, and its gRPC server the size of a message.
            Code::InvalidArgument | Code::ResourceExhausted
                if ["request is too large", "message larger than max"]
                    .iter()
                    .any(|part| status.message().contains(part)) =>
            {
                Self::TooLarge(status.message().to_owned())
            }
            // The users or roles of etcd have changed since etcd received the request. etcd's own client repeats such a
            // request too.
            Code::InvalidArgument if status.message().contains("revision of auth store is old") => {
                Self::Unknown(status)
            }
            Code::OutOfRange if status.message().contains("compacted") => Self::Compacted,
            // A revision that this process knows is ahead of etcd. So etcd was restored from a backup.
            Code::OutOfRange if status.message().contains("future revision") => {
                Self::Lost("a known revision is ahead of etcd: etcd was restored".to_owned())
            }
            Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument | Code::Unimplemented => {
                Self::Refused(status)
            }
            _ => Self::Unknown(status),
        }
    }

    /// Converts the failure to an error of the store.
    pub(super) fn into_error(self, config: &Config) -> EngineError {
        let store = config.store();
        match self {
            Self::Unknown(status) => {
                let cause = io::Error::other(config.explained(in_few_words(&status)));
                EngineError::Io { what: format!("cannot reach {store}"), cause }
            }
            Self::NoSpace(message) => EngineError::NoSpace { store, cause: io::Error::other(message) },
            Self::TooLarge(message) => EngineError::TooLarge { store, cause: io::Error::other(message) },
            Self::TooLong(message) => {
                EngineError::Io { what: format!("cannot read {store}"), cause: io::Error::other(message) }
            }
            Self::Compacted => EngineError::Lost { store, what: "etcd has compacted a needed revision".to_owned() },
            Self::Lost(what) => EngineError::Lost { store, what },
            Self::Refused(status) => {
                let cause = io::Error::other(status.message().to_owned());
                EngineError::Io { what: format!("{store} refuses a request"), cause }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::etcd::background::LocalRuntime;
    use crate::etcd::transaction::get;
    use futures_util::future::join_all;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::thread::{self, JoinHandle};

    /// Length of the text with which an HTTP/2 client begins a connection, in bytes.
    const PREFACE_BYTES: usize = 24;
    /// Types of HTTP/2 frames.
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;

    /// Key in each copy of the transaction [`marked`].
    const MARK: &[u8] = b"a key of the transaction";

    fn marked() -> TxnRequest {
        TxnRequest { success: vec![get(MARK.to_vec())], ..TxnRequest::default() }
    }

    pub(crate) fn frame(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
        [&length[1..], &[kind, flags], &stream, payload].concat()
    }

    /// Returns the frames of an answer with one message: the header fields, the message, and the gRPC status 0.
    pub(crate) fn answer(stream: [u8; 4], message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
        let fields = frame(HEADERS, 4, stream, b"\x88\x0f\x10\x10application/grpc");
        let data = frame(DATA, 0, stream, &[&[0][..], &length, message].concat());
        [fields, data, frame(HEADERS, 5, stream, b"\x00\x0bgrpc-status\x010")].concat()
    }

    /// Serves a connection as a fake member of etcd, until the client closes the connection. Passes each frame to
    /// `respond`: its type, flags, stream and payload. Sends the frames that `respond` returns.
    pub(crate) fn serve_frames(
        mut connection: TcpStream,
        mut respond: impl FnMut(u8, u8, [u8; 4], &[u8]) -> Vec<u8>,
    ) -> io::Result<()> {
        connection.read_exact(&mut [0; PREFACE_BYTES])?;
        connection.write_all(&frame(SETTINGS, 0, [0; 4], &[]))?;
        loop {
            let mut head = [0; 9];
            connection.read_exact(&mut head)?;
            let [a, b, c, kind, flags, stream @ ..] = head;
            let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).expect("a short frame");
            let mut payload = vec![0; length];
            connection.read_exact(&mut payload)?;
            connection.write_all(&respond(kind, flags, stream, &payload))?;
        }
    }

    /// Answers each request on a connection with `message`, except the copies of [`marked`], which it counts.
    pub(crate) fn serve(connection: TcpStream, message: Option<&[u8]>, copies: &mut usize) -> io::Result<()> {
        serve_frames(connection, |kind, _, stream, payload| {
            let is_copy = payload.windows(MARK.len()).any(|part| part == MARK);
            *copies += usize::from(is_copy);
            let is_answered = kind == DATA && !is_copy && !payload.is_empty();
            message.filter(|_| is_answered).map(|message| answer(stream, message)).unwrap_or_default()
        })
    }

    /// Starts a member that [serves](serve) one connection. Returns its URL, and its thread, which returns the number
    /// of copies. The caller later calls [`release`], in case the client has not contacted the member.
    fn member(message: Option<Vec<u8>>) -> (String, JoinHandle<usize>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let run = move || {
            let (connection, _) = listener.accept().expect("a connection");
            let mut copies = 0;
            serve(connection, message.as_deref(), &mut copies).expect_err("the client closes the connection");
            copies
        };
        (url, thread::spawn(run))
    }

    /// Connects to members, so that a member without a connection stops waiting for one.
    fn release(endpoints: &[String]) {
        for endpoint in endpoints {
            _ = TcpStream::connect(endpoint.trim_start_matches("http://"));
        }
    }

    /// Sends a transaction to members that do not answer it, in one attempt. They answer other requests with `message`.
    /// Returns the number of copies that they have received.
    fn copies(members: usize, message: Option<&[u8]>) -> usize {
        let (endpoints, threads): (Vec<_>, Vec<_>) = (0..members).map(|_| member(message.map(<[u8]>::to_vec))).unzip();
        let runtime = LocalRuntime::new().expect("a runtime");
        let config = Config { endpoints: endpoints.clone(), ..Config::default() };
        let answer = runtime.block_on(async { Client::new(config).expect("a client").txn(&marked(), 0).await });
        assert!(matches!(answer, Err(Failure::Unknown(_))), "{answer:?}");
        drop(runtime);
        release(&endpoints);
        threads.into_iter().map(|thread| thread.join().expect("the copies are counted")).sum()
    }

    #[test]
    fn members_that_do_not_answer_get_at_most_two_copies() {
        assert_eq!((copies(1, None), copies(3, None)), (1, 2));
    }

    #[test]
    fn a_newly_elected_leader_gets_another_copy() {
        let status = StatusResponse { leader: 1, raft_term: 2, ..StatusResponse::default() }.encode_to_vec();
        assert_eq!(copies(1, Some(&status)), 2);
        // On a slow machine, the copy to a member may be cancelled before the connection to the member is ready.
        assert!((3..=4).contains(&copies(3, Some(&status))));
    }

    #[test]
    fn the_next_attempt_begins_with_a_member_that_answers() {
        let status = StatusResponse { leader: 1, raft_term: 2, ..StatusResponse::default() }.encode_to_vec();
        let members = [None, None, Some(status)].map(member);
        let (endpoints, threads): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        let runtime = LocalRuntime::new().expect("a runtime");
        let next = runtime.block_on(async {
            let client = Client::new(Config { endpoints: endpoints.clone(), ..Config::default() }).expect("a client");
            client.known.set(Some(Header { raft_term: 2, ..Header::default() }));
            client.txn(&marked(), 0).await.expect_err("no member answers the transaction");
            client.member()
        });
        assert_eq!(next, 2);
        drop(runtime);
        release(&endpoints);
        let copies = threads.into_iter().map(|thread| thread.join().expect("the copies are counted"));
        assert_eq!(copies.sum::<usize>(), 2);
    }

    #[test]
    fn the_reason_why_a_watch_has_ended_is_remembered() {
        let (url, thread) = member(Some(vec![0xff]));
        let runtime = LocalRuntime::new().expect("a runtime");
        let reason = runtime.block_on(async {
            let client = Client::new(Config { endpoints: vec![url], ..Config::default() }).expect("a client");
            let mut answers = client.watch(vec![WatchRequest { create: None }]).await.expect("a watch");
            assert!(client.next_answer(&mut answers).await.is_none());
            client.last_failure()
        });
        assert!(reason.contains("failed to decode"), "{reason}");
        drop(runtime);
        assert_eq!(thread.join().expect("the copies are counted"), 0);
    }

    #[test]
    fn a_new_reason_is_logged_at_most_once_a_minute() {
        let (mut log, begun) = (ReasonLog::default(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert!(log.is_due("connection refused", after(0)));
        assert!(!log.is_due("connection refused", after(600)));
        assert!(log.is_due("certificate expired", after(600)));
        assert!(!log.is_due("connection refused", after(659)));
        assert!(log.is_due("connection refused", after(660)));
    }

    /// Goal: an unanswered request causes one warning, or none after [`Client::without_warnings`]. Method: no etcd
    /// answers. The requests give up two seconds after the warning is due.
    #[test]
    fn an_unanswered_request_causes_one_warning() {
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let config = Config { endpoints, patience: Some(2 * UNREACHABLE_AFTER), ..Config::default() };
        let runtime = LocalRuntime::new().expect("a runtime");
        runtime.block_on(async {
            let client = || Client::new(config.clone()).expect("a client");
            let (loud, quiet) = (client(), client().without_warnings());
            for answer in join_all([&loud, &quiet].map(|client| client.range(RangeRequest::default()))).await {
                assert!(matches!(answer, Err(Failure::Unknown(_))), "{answer:?}");
            }
            let warned = loud.warnings.borrow().0.clone();
            assert!(warned.is_some() && quiet.warnings.borrow().0.is_none(), "{loud:?} {quiet:?}");
            loud.warn_unanswered();
            assert_eq!(loud.warnings.borrow().0, warned, "the same cause is logged once");
        });
    }

    #[test]
    fn a_refusal_of_one_request_does_not_end_the_client() {
        let of = |code, message: &str| Failure::of(Status::new(code, message));
        let too_large = of(Code::InvalidArgument, "etcdserver: request is too large");
        assert!(matches!(too_large, Failure::TooLarge(_)));
        let received = of(Code::ResourceExhausted, "grpc: received message larger than max (2200000 vs. 2097152)");
        assert!(matches!(received, Failure::TooLarge(_)));
        let old_rights = of(Code::InvalidArgument, "etcdserver: revision of auth store is old");
        assert!(matches!(old_rights, Failure::Unknown(_)), "another attempt may succeed");
        let no_rights = of(Code::PermissionDenied, "etcdserver: permission denied");
        assert!(matches!(no_rights, Failure::Refused(_)));
        let received = "Error, decoded message length too large: found 268435457 bytes, the limit is: 268435456 bytes";
        assert!(matches!(of(Code::OutOfRange, received), Failure::TooLong(_)));
        let sent = "grpc: trying to send message larger than max (2200000000 vs. 2147483647)";
        assert!(matches!(of(Code::ResourceExhausted, sent), Failure::TooLong(_)));
    }
}
