//! Reads and writes Leases in built-in storage, that is, kube-apiserver's own Leases in etcd. Remembers each Lease as
//! this process last saw it.

use super::fence::{Fence, unchanged};
use super::{BuiltInCommand, BuiltInEvent, Wanted};
use crate::etcd::client::{Client, Failure};
use crate::etcd::messages::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, Request, RequestOp, TxnRequest, prefix_end,
};
use crate::etcd::pages::pages;
use crate::handover::{ENCRYPTED, ReadLeases, StoredLease};
use futures_util::future::join_all;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Status;
use twox_hash::XxHash3_64;

/// Maximum number of keys per range request.
const PAGE_KEYS: i64 = 2_000;
/// Maximum number of Leases per transaction. etcd accepts 128 operations in a transaction.
const BATCH_LEASES_MAX: usize = 100;
/// Approximate maximum of bytes per transaction. etcd accepts requests of up to 1.5 MiB.
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// Maximum number of concurrent transactions.
const BATCHES_AT_ONCE: usize = 8;
/// Maximum number of attempts of a write without a definite answer.
const ATTEMPTS_MAX: u32 = 4;

/// Built-in storage, as this process last saw it.
#[derive(Debug)]
pub(super) struct BuiltInStorage {
    client: Client,
    /// Prefix of the keys of all Leases.
    prefix: Vec<u8>,
    fence: Fence,
    /// Leases that this process has seen, by `namespace/name`.
    seen: HashMap<String, Seen>,
    /// Revision of the last read; 0 before the first read.
    revision: u64,
    /// Whether `seen` contains an encrypted Lease. While this value is true, this process writes no Lease. So only a
    /// read changes the value.
    has_encrypted: bool,
    /// Whether the current command must end: a read before its next page, and a write before it sends or repeats a
    /// transaction.
    is_canceled: Arc<AtomicBool>,
}

/// A Lease as this process last saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Revision of the Lease's last write.
    revision: i64,
    /// Hash of the Lease's stored bytes.
    hash: u64,
    /// Whether kube-apiserver has encrypted the stored bytes.
    is_encrypted: bool,
}

/// The outcome of a transaction that writes Leases.
enum Done {
    /// The Leases were written at this revision.
    Written { revision: i64 },
    /// A Lease or the APIService has changed since this process saw it.
    Overtaken,
    /// The APIService names no Service, or has another UID than the expected one.
    NotOurs,
}

impl Seen {
    fn of(revision: i64, value: &[u8]) -> Self {
        Self { revision, hash: XxHash3_64::oneshot(value), is_encrypted: value.starts_with(ENCRYPTED) }
    }
}

impl BuiltInStorage {
    pub(super) fn new(client: Client, is_canceled: Arc<AtomicBool>) -> Self {
        let prefix = client.config().prefix.trim_end_matches('/').to_owned();
        Self {
            fence: Fence::new(&prefix),
            prefix: format!("{prefix}/leases/").into_bytes(),
            client,
            seen: HashMap::new(),
            revision: 0,
            has_encrypted: false,
            is_canceled,
        }
    }

    /// Runs a command of the event loop.
    ///
    /// # Errors
    /// [`Failure`]; a write may be partly done.
    pub(super) async fn execute(&mut self, command: BuiltInCommand) -> Result<BuiltInEvent, Failure> {
        match command {
            BuiltInCommand::Read { is_complete } => self.read(is_complete).await,
            BuiltInCommand::Look { api_service } => {
                self.fence.expect(api_service);
                self.fence.read(&self.client).await?;
                Ok(self.fence.uid().map_or(BuiltInEvent::NotOurs, |uid| BuiltInEvent::Ours { uid: uid.to_owned() }))
            }
            BuiltInCommand::Write { leases, is_complete, is_forced, api_service } => {
                self.fence.expect(api_service);
                self.write(leases, is_complete, is_forced).await
            }
        }
    }

    /// Reads all Leases, or the changes since the previous read, at one revision.
    async fn read(&mut self, is_complete: bool) -> Result<BuiltInEvent, Failure> {
        let is_complete = is_complete || self.revision == 0;
        if is_complete {
            // If this read fails, the next read is complete too.
            self.seen.clear();
            self.revision = 0;
        }
        let (keys, revision) = self.range(0, !is_complete, 0).await?;
        let mut present = HashSet::new();
        for kv in &keys {
            let Some(key) = self.key_of(kv) else { continue };
            // A complete read has dropped all earlier states of Leases. So it never finds that a Lease went back.
            if went_back(self.seen.get(&key), kv.mod_revision, self.revision) {
                return Err(Failure::Lost("Leases went back: etcd was restored".to_owned()));
            }
            present.insert(key);
        }
        let values = if is_complete { keys } else { self.changed(&keys, revision).await? };
        let mut leases = ReadLeases::new();
        for kv in values {
            let Some(key) = self.key_of(&kv) else { continue };
            let seen = Seen::of(kv.mod_revision, &kv.value);
            if self.seen.insert(key.clone(), seen) != Some(seen) {
                let revision = kv.mod_revision.cast_unsigned();
                leases.insert(key, Some(StoredLease { revision, value: kv.value }));
            }
        }
        let deleted: Vec<_> = self.seen.keys().filter(|key| !present.contains(*key)).cloned().collect();
        for key in deleted {
            self.seen.remove(&key);
            leases.insert(key, None);
        }
        self.has_encrypted = self.seen.values().any(|seen| seen.is_encrypted);
        self.revision = revision.cast_unsigned();
        Ok(BuiltInEvent::Read { leases, is_complete })
    }

    /// Returns the Leases that have changed since the last read, as they were at `revision`. If many have changed, also
    /// returns unchanged ones. `keys` are the keys of all Leases.
    ///
    /// For a page of changed Leases, etcd loads all Leases behind the page too (etcd `server/etcdserver/txn`). So if
    /// more than a page has changed, this function reads all Leases, without a filter.
    async fn changed(&self, keys: &[KeyValue], revision: i64) -> Result<Vec<KeyValue>, Failure> {
        let last = self.revision.cast_signed();
        let since = match keys.iter().filter(|kv| kv.mod_revision > last).count() {
            0 => return Ok(Vec::new()),
            count if i64::try_from(count).is_ok_and(|count| count <= PAGE_KEYS) => last.saturating_add(1),
            _ => 0,
        };
        Ok(self.range(revision, false, since).await?.0)
    }

    /// Returns all Leases whose last write is at or after revision `since`, and the revision of the read. Reads at
    /// `revision`, or at the newest revision if `revision` is 0.
    async fn range(&self, revision: i64, keys_only: bool, since: i64) -> Result<(Vec<KeyValue>, i64), Failure> {
        let request = RangeRequest {
            key: self.prefix.clone(),
            range_end: prefix_end(&self.prefix),
            limit: PAGE_KEYS,
            revision,
            keys_only,
            min_mod_revision: since,
        };
        pages(&self.client, request, || self.check_canceled()).await
    }

    fn key_of(&self, kv: &KeyValue) -> Option<String> {
        String::from_utf8(kv.key.strip_prefix(self.prefix.as_slice())?.to_vec()).ok()
    }

    fn path(&self, key: &str) -> Vec<u8> {
        [self.prefix.as_slice(), key.as_bytes()].concat()
    }

    async fn write(
        &mut self,
        leases: Vec<Wanted>,
        is_complete: bool,
        is_forced: bool,
    ) -> Result<BuiltInEvent, Failure> {
        if self.revision == 0 {
            self.read(true).await?;
        }
        if self.has_encrypted {
            let why = "built-in Leases are encrypted at rest, and this server would write them without encryption";
            return Err(Failure::Refused(Status::failed_precondition(why)));
        }
        self.fence.read(&self.client).await?;
        let mut wanted = leases;
        if is_complete {
            let kept: HashSet<_> = wanted.iter().map(|lease| lease.key.as_str()).collect();
            let others: Vec<_> = self.seen.keys().filter(|key| !kept.contains(key.as_str())).cloned().collect();
            wanted.extend(others.into_iter().map(|key| Wanted { key, value: None }));
        }
        wanted.retain(|lease| is_forced && lease.value.is_some() || !self.is_there(lease));
        let mut overtaken = Vec::new();
        let mut rest = wanted.as_slice();
        while !rest.is_empty() {
            let mut batches = Vec::new();
            while !rest.is_empty() && batches.len() < BATCHES_AT_ONCE {
                let (batch, behind) = rest.split_at(batch_len(rest));
                batches.push(batch);
                rest = behind;
            }
            let done = join_all(batches.iter().map(|batch| self.commit(batch))).await;
            // The second loop returns at the first refused transaction. So the first loop notes what all transactions
            // have written.
            for (batch, done) in batches.iter().zip(&done) {
                if let Ok(Done::Written { revision }) = done {
                    self.note_written(batch, *revision);
                }
            }
            for (batch, done) in batches.into_iter().zip(done) {
                match done? {
                    Done::Written { .. } => {}
                    Done::Overtaken => {
                        for lease in batch {
                            match self.commit_one(lease).await? {
                                Done::Written { .. } => {}
                                Done::Overtaken => overtaken.push(lease.key.clone()),
                                Done::NotOurs => return Ok(BuiltInEvent::NotOurs),
                            }
                        }
                    }
                    Done::NotOurs => return Ok(BuiltInEvent::NotOurs),
                }
            }
        }
        Ok(BuiltInEvent::Written { overtaken })
    }

    /// Checks that the current command is not canceled.
    fn check_canceled(&self) -> Result<(), Failure> {
        match self.is_canceled.load(Ordering::Relaxed) {
            true => Err(Failure::Refused(Status::cancelled("the worker needs this command no more"))),
            false => Ok(()),
        }
    }

    /// Whether this process last saw the Lease in the wanted state.
    fn is_there(&self, lease: &Wanted) -> bool {
        match (&lease.value, self.seen.get(&lease.key)) {
            (None, None) => true,
            (Some(value), Some(seen)) => XxHash3_64::oneshot(value) == seen.hash,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Writes one Lease. If the APIService has changed, but the fence still permits writes, repeats the write.
    async fn commit_one(&mut self, lease: &Wanted) -> Result<Done, Failure> {
        let leases = std::slice::from_ref(lease);
        loop {
            match self.commit(leases).await? {
                Done::Overtaken if self.fence.read(&self.client).await? => {}
                Done::Written { revision } => {
                    self.note_written(leases, revision);
                    return Ok(Done::Written { revision });
                }
                done => return Ok(done),
            }
        }
    }

    /// Writes some Leases in one transaction.
    async fn commit(&self, leases: &[Wanted]) -> Result<Done, Failure> {
        let Some(fence) = self.fence.compare() else { return Ok(Done::NotOurs) };
        let request = self.transaction(fence, leases);
        for attempt in 0..ATTEMPTS_MAX {
            self.check_canceled()?;
            match self.client.txn(&request, attempt).await {
                Ok(answer) if answer.succeeded => {
                    let revision = answer.header.map_or(0, |header| header.revision);
                    return Ok(Done::Written { revision });
                }
                // An earlier attempt of this transaction may have taken effect. The next read then finds its write.
                Ok(_) => return Ok(Done::Overtaken),
                Err(Failure::Unknown(status)) => {
                    tracing::debug!(%status, attempt, "etcd has not answered a write of Leases");
                    self.client.pause(attempt).await;
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Unknown(Status::deadline_exceeded(self.client.last_failure())))
    }

    fn transaction(&self, fence: Compare, leases: &[Wanted]) -> TxnRequest {
        let mut request = TxnRequest { compare: vec![fence], success: Vec::new(), failure: Vec::new() };
        for lease in leases {
            let revision = self.seen.get(&lease.key).map_or(0, |seen| seen.revision);
            let path = self.path(&lease.key);
            request.compare.push(unchanged(path.clone(), revision));
            let operation = match &lease.value {
                Some(value) => Request::Put(PutRequest { key: path, value: value.clone() }),
                None => Request::DeleteRange(DeleteRangeRequest { key: path, range_end: Vec::new() }),
            };
            request.success.push(RequestOp { request: Some(operation) });
        }
        request
    }

    fn note_written(&mut self, leases: &[Wanted], revision: i64) {
        for lease in leases {
            match &lease.value {
                Some(value) => {
                    self.seen.insert(lease.key.clone(), Seen::of(revision, value));
                }
                None => _ = self.seen.remove(&lease.key),
            }
        }
    }
}

/// Whether a Lease has gone back to an earlier state, as after a restore of etcd. `revision` is that of the Lease's
/// last write in etcd. `seen` is the Lease as this process last read or wrote it. A write that this process has not
/// seen is later than `seen`. It is also later than the last read, at the revision `read_at`, which would have found
/// it. So if `revision` is not that of `seen`, it must be greater than both of these revisions. Otherwise the Lease has
/// gone back.
///
/// A restore of etcd may raise all later revisions. Then the revision of etcd does not go back, but the revisions of
/// Leases do.
fn went_back(seen: Option<&Seen>, revision: i64, read_at: u64) -> bool {
    let known = seen.map_or(0, |seen| seen.revision);
    revision != known && revision <= known.max(read_at.cast_signed())
}

/// Returns how many of the first `leases` one transaction can write.
fn batch_len(leases: &[Wanted]) -> usize {
    let mut bytes = 0;
    let fits = |lease: &&Wanted| {
        bytes += lease.value.as_ref().map_or(0, Vec::len);
        bytes <= BATCH_BYTES_MAX
    };
    leases.iter().take(BATCH_LEASES_MAX).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::background::LocalRuntime;
    use crate::etcd::client::tests::{DATA, answer, serve_frames};
    use crate::etcd::config::Config;
    use crate::etcd::messages::{Header, RangeResponse};
    use prost::Message;
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    /// Goal: a canceled read of many pages ends after the page in flight. Method: the read is canceled while a fake
    /// member of etcd answers page 2 of 4.
    #[test]
    fn a_canceled_read_ends_after_the_page_in_flight() {
        const PAGES: usize = 4;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let is_canceled = Arc::<AtomicBool>::default();
        let of_member = Arc::clone(&is_canceled);
        let member = thread::spawn(move || {
            let (connection, _) = listener.accept().expect("a connection");
            let mut pages = 0;
            let end = serve_frames(connection, |kind, _, stream, payload| {
                if kind != DATA || payload.is_empty() {
                    return Vec::new();
                }
                pages += 1;
                of_member.store(pages == 2, Ordering::Relaxed);
                let key = format!("/registry/leases/n/{pages}").into_bytes();
                let page = RangeResponse {
                    header: Some(Header { revision: 7, ..Header::default() }),
                    kvs: vec![KeyValue { key, mod_revision: 5, ..KeyValue::default() }],
                    more: pages < PAGES,
                    ..RangeResponse::default()
                };
                answer(stream, &page.encode_to_vec())
            });
            end.expect_err("the client closes the connection");
            pages
        });
        let runtime = LocalRuntime::new().expect("a runtime");
        let config = Config { endpoints: vec![url], prefix: "/registry".to_owned(), ..Config::default() };
        let read = runtime.block_on(async {
            let client = Client::new(config).expect("a client");
            BuiltInStorage::new(client, is_canceled).read(true).await
        });
        assert!(matches!(read, Err(Failure::Refused(_))), "{read:?}");
        drop(runtime);
        assert_eq!(member.join().expect("the pages are counted"), 2);
    }

    #[test]
    fn a_lease_with_an_earlier_revision_than_seen_went_back() {
        let seen = |revision| Some(Seen::of(revision, b""));
        let is_back = |seen: Option<Seen>, revision| went_back(seen.as_ref(), revision, 20);
        assert!(!is_back(seen(10), 10), "unchanged since the last read");
        assert!(!is_back(seen(10), 21) && !is_back(None, 21), "another client has written the Lease");
        assert!(!is_back(seen(25), 25), "this process has written the Lease");
        assert!(is_back(seen(15), 10), "etcd has lost a write that a read has seen");
        assert!(is_back(seen(25), 10), "etcd has lost a write of this process");
        assert!(is_back(seen(25), 22), "etcd has lost the second of two writes of this process");
        assert!(is_back(None, 10), "etcd has a Lease that was deleted before");
    }

    #[test]
    fn batches_are_bounded_by_number_and_by_bytes() {
        let lease = |bytes| Wanted { key: "n/a".to_owned(), value: Some(vec![0; bytes]) };
        assert_eq!(batch_len(&vec![lease(600); 1_000]), BATCH_LEASES_MAX);
        assert_eq!(batch_len(&[lease(200_000), lease(200_000), lease(200_000)]), 2);
        assert_eq!(batch_len(&[lease(1_400_000), lease(1)]), 1, "a Lease of any size is written");
        assert_eq!(batch_len(&[Wanted { key: String::new(), value: None }]), 1);
    }
}
