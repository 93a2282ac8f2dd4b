//! Decides when the server writes its Leases to built-in storage (kube-apiserver's own storage of Leases), during and
//! after a takeover. To feed a Lease means to write its current state from the table to built-in storage.
//!
//! During a takeover, some clients write to this server and others to kube-apiserver. One replica's worker
//! ([`super::worker`]) then copies Leases in rounds. Each round feeds all renewals that built-in storage lacks.
//!
//! If a client opened a watch at kube-apiserver before the takeover, that watch reads built-in storage until it times
//! out. While such watches may be open, the server feeds each renewal within [`RENEWAL_MS`]. kube-controller-manager
//! must see a renewal of each node's Lease every 40 s, or every 50 s in newer versions (`--node-monitor-grace-period`).
//! Otherwise it marks the node as not ready.
//!
//! The server feeds each change of a holder, each creation and each deletion at once, and continues after all such
//! watches have ended. So built-in storage has the current holder of each lock, even if an administrator restores the
//! APIService by hand.

use crate::clock::Now;
use crate::resource::ResourceVersion;
use crate::table::Table;
use crate::table::event_log::Event;
use crate::table::object::Key;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Maximum time from a renewal to its write to built-in storage while this server serves the Leases, in ms.
pub(super) const RENEWAL_MS: u64 = 10_000;
/// Maximum number of Leases that one call of [`Feed::take_in`] queues although they have not changed. With more, the
/// call would delay all requests.
const UNCHANGED_PER_CALL: usize = 2_000;
/// Maximum number of changes that one call of [`Feed::take_in`] reads from the event log. More would delay requests.
/// After a write to built-in storage that took seconds, the log may have many more.
const CHANGES_PER_CALL: usize = 5_000;
/// Number by which the queued Leases may exceed the Leases in the table. Above this number, the feed is full. More than
/// this number of the queued Leases are then no longer in the table. The queue needs a limit: while writes to built-in
/// storage fail, clients may create and delete any number of Leases.
const DELETED_MAX: usize = 20_000;

/// The Leases whose newest change may not be in built-in storage yet.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// `resourceVersion` up to which changes of the table are queued; `None` before the first call of
    /// [`Feed::take_in`].
    cursor: Option<ResourceVersion>,
    /// Whether the last call of [`Feed::take_in`] left changes for the next call.
    is_behind: bool,
    /// Key from which [`Feed::take_in`] continues its pass over all Leases, changed or not; `None` if no pass is in
    /// progress.
    unqueued: Option<String>,
    /// Time at which each Lease is due to be written to built-in storage, in ms. The map is ordered, since a hash table
    /// of all Leases would delay all requests when it grows.
    due: BTreeMap<Key, u64>,
    /// The entries of `due`, ordered by time. The queue also contains outdated entries, which `due` no longer has.
    queue: BinaryHeap<Reverse<(u64, Key)>>,
    /// Leases in the worker's current write to built-in storage.
    under_way: Vec<Key>,
}

impl Feed {
    /// Makes the next call of [`Feed::take_in`] read the changes after `version`. Built-in storage may lack the state
    /// of any Lease. So that call and the next ones also queue all Leases.
    pub(super) fn start(&mut self, version: ResourceVersion) {
        self.cursor = Some(version);
        self.unqueued = Some(String::new());
    }

    /// Queues each Lease that the table has changed since the last call. A call reads at most [`CHANGES_PER_CALL`]
    /// changes, and leaves the others for the next call. A renewed Lease is due after `renewal_ms`; with `None`, a
    /// renewal queues nothing. Any other change is due at once.
    ///
    /// At the first call, and if the event log has dropped a change that no call has read, built-in storage may lack
    /// the state of any Lease. Then this call and the next ones also queue all Leases, at most [`UNCHANGED_PER_CALL`]
    /// in each call. These Leases are due at once.
    ///
    /// Returns whether the event log has dropped a change that no call has read. The feed then lacks the deleted Leases
    /// whose deletions no call has read.
    pub(super) fn take_in(&mut self, table: &Table, renewal_ms: Option<u64>, now: Now) -> bool {
        self.is_behind = false;
        let mut cursor = table.version();
        let events = self.cursor.and_then(|cursor| table.log().since(cursor));
        let lacks_deletions = self.cursor.is_some() && events.is_none();
        match events {
            Some(events) => {
                self.is_behind = events.len() > CHANGES_PER_CALL;
                for event in events.take(CHANGES_PER_CALL) {
                    cursor = event.version();
                    let delay_ms = if is_renewal(event) { renewal_ms } else { Some(0) };
                    if let Some(delay_ms) = delay_ms {
                        self.put(event.after.key(), now.ms + delay_ms);
                    }
                }
            }
            None => self.unqueued = Some(String::new()),
        }
        self.cursor = Some(cursor);
        if let Some(start) = self.unqueued.take() {
            let mut objects = table.iter_from(&start);
            objects.by_ref().take(UNCHANGED_PER_CALL).for_each(|object| self.put(object.key(), now.ms));
            self.unqueued = objects.next().map(|object| object.key().as_str().to_owned());
        }
        lacks_deletions
    }

    /// Whether the queue has too many deleted Leases. The caller must then not call [`Feed::take_in`], so that the
    /// memory of the queue stays limited. The event log keeps the changes meanwhile. If the log drops some of them, the
    /// next call of [`Feed::take_in`] returns true.
    pub(super) fn is_full(&self, table: &Table) -> bool {
        self.due.len() > table.len() + DELETED_MAX
    }

    /// Whether the queue has more Leases than the table, by at least half of [`DELETED_MAX`]. These surplus Leases were
    /// deleted.
    pub(super) fn is_half_full(&self, table: &Table) -> bool {
        self.due.len() >= table.len() + DELETED_MAX / 2
    }

    /// Whether the last call of [`Feed::take_in`] has left changes for the next call.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether the last call of [`Feed::take_in`] has left changes, or a part of its pass over all Leases, for the next
    /// call.
    pub(super) fn is_filling(&self) -> bool {
        self.unqueued.is_some() || self.is_behind
    }

    /// Queues a Lease for a write at `due_ms`, unless the Lease is already due earlier.
    pub(super) fn put(&mut self, key: &Key, due_ms: u64) {
        let is_earlier = self.due.get(key).is_none_or(|before| due_ms < *before);
        if is_earlier {
            self.due.insert(key.clone(), due_ms);
            self.queue.push(Reverse((due_ms, key.clone())));
        }
    }

    /// Records the Leases in the worker's next write to built-in storage.
    pub(super) fn begin(&mut self, keys: Vec<Key>) {
        self.under_way = keys;
    }

    /// Records the end of the worker's write to built-in storage. If `has_failed`, queues the Leases of that write
    /// again.
    pub(super) fn end(&mut self, has_failed: bool, now: Now) {
        let written = std::mem::take(&mut self.under_way);
        if has_failed {
            written.iter().for_each(|key| self.put(key, now.ms));
        }
    }

    /// Whether any Lease is due to be written to built-in storage. May also be true for an outdated entry of the queue.
    pub(super) fn is_due(&self, now: Now) -> bool {
        self.queue.peek().is_some_and(|Reverse((due_ms, _))| *due_ms <= now.ms)
    }

    /// Removes up to `keys_max` due Leases from the queue, and returns their keys.
    pub(super) fn take_due(&mut self, keys_max: usize, now: Now) -> Vec<Key> {
        let mut keys = Vec::new();
        while keys.len() < keys_max
            && let Some(Reverse((due_ms, _))) = self.queue.peek()
            && *due_ms <= now.ms
            && let Some(Reverse((due_ms, key))) = self.queue.pop()
        {
            if self.due.get(&key) == Some(&due_ms) {
                self.due.remove(&key);
                keys.push(key);
            }
        }
        keys
    }
}

fn is_renewal(event: &Event) -> bool {
    !event.deleted && event.before.as_ref().is_some_and(|before| event.after.is_renewal_of(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Lease;
    use crate::table::object::RenewedTimes;
    use crate::timestamp::{MicroTime, Time};

    fn at(ms: u64) -> Now {
        Now { ms, wall: Time(0) }
    }

    fn lease(name: &str) -> Lease {
        Lease::named("n", name)
    }

    fn due(feed: &mut Feed, table: &Table, ms: u64) -> Vec<String> {
        feed.take_in(table, Some(RENEWAL_MS), at(ms));
        feed.take_due(100, at(ms)).iter().map(|key| key.as_str().to_owned()).collect()
    }

    #[test]
    fn renewals_are_delayed_and_other_changes_are_due_at_once() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        table.create(lease("a"));
        table.create(lease("b"));
        let mut feed = Feed::default();
        assert_eq!(due(&mut feed, &table, 0), ["n/a", "n/b"], "nothing is known of what built-in storage has");
        assert_eq!(due(&mut feed, &table, 1), [""; 0]);
        let (slot, _) = table.find("n", "a").expect("a Lease");
        for renewed in 1..=3 {
            table.renew(slot, RenewedTimes { renew_time: MicroTime(renewed), managed_time: None });
            assert_eq!(due(&mut feed, &table, 1_000 * renewed.unsigned_abs()), [""; 0]);
        }
        assert_eq!(due(&mut feed, &table, RENEWAL_MS + 999), [""; 0]);
        assert_eq!(due(&mut feed, &table, RENEWAL_MS + 1_000), ["n/a"], "since the first renewal");
        let (slot, _) = table.find("n", "a").expect("a Lease");
        table.renew(slot, RenewedTimes { renew_time: MicroTime(4), managed_time: None });
        assert_eq!(due(&mut feed, &table, 20_000), [""; 0]);
        let mut acquired = lease("a");
        acquired.spec.holder_identity = Some("h".into());
        table.replace(slot, acquired);
        assert_eq!(due(&mut feed, &table, 20_001), ["n/a"], "a change of the holder");
        assert_eq!(due(&mut feed, &table, 60_000), [""; 0], "the renewal went along");
        table.remove(slot);
        assert_eq!(due(&mut feed, &table, 60_001), ["n/a"]);
    }

    #[test]
    fn without_old_watches_renewals_are_left_out() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        table.create(lease("a"));
        let mut feed = Feed::default();
        assert_eq!(due(&mut feed, &table, 0), ["n/a"]);
        let (slot, _) = table.find("n", "a").expect("a Lease");
        table.renew(slot, RenewedTimes { renew_time: MicroTime(1), managed_time: None });
        feed.take_in(&table, None, at(1));
        assert!(feed.take_due(100, at(60_000)).is_empty());
        table.remove(slot);
        feed.take_in(&table, None, at(60_001));
        assert_eq!(feed.take_due(100, at(60_001)).len(), 1);
    }

    #[test]
    fn each_call_makes_a_limited_number_of_leases_due() {
        let mut table = Table::new(ResourceVersion(1), 100, usize::MAX);
        for number in 0..=2 * UNCHANGED_PER_CALL {
            table.create(lease(&format!("b{number}")));
        }
        let mut feed = Feed::default();
        let mut due = |table: &Table| {
            feed.take_in(table, Some(RENEWAL_MS), at(0));
            (feed.take_due(usize::MAX, at(0)).len(), feed.is_filling())
        };
        assert_eq!(due(&table), (UNCHANGED_PER_CALL, true));
        table.create(lease("a"));
        assert_eq!(due(&table), (UNCHANGED_PER_CALL + 1, true), "a change is due at once");
        assert_eq!(due(&table), (1, false));
        assert_eq!(due(&table), (0, false));
    }

    #[test]
    fn each_call_reads_a_limited_number_of_changes() {
        let mut table = Table::new(ResourceVersion(1), usize::MAX, usize::MAX);
        let mut feed = Feed::default();
        feed.take_in(&table, None, at(0));
        for number in 0..=CHANGES_PER_CALL {
            table.create(lease(&format!("a{number}")));
        }
        let mut due = || {
            feed.take_in(&table, None, at(0));
            (feed.take_due(usize::MAX, at(0)).len(), feed.is_behind(), feed.is_filling())
        };
        assert_eq!(due(), (CHANGES_PER_CALL, true, true));
        assert_eq!(due(), (1, false, false));
        assert_eq!(due(), (0, false, false));
    }

    #[test]
    fn a_cursor_behind_the_event_log_makes_every_lease_due() {
        let mut table = Table::new(ResourceVersion(1), 2, usize::MAX);
        let mut feed = Feed::default();
        assert_eq!(due(&mut feed, &table, 0), [""; 0]);
        for name in ["a", "b", "c", "d"] {
            table.create(lease(name));
        }
        assert_eq!(due(&mut feed, &table, 1), ["n/a", "n/b", "n/c", "n/d"]);
    }
}
