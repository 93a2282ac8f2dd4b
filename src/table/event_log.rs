//! The event log: the recent changes of the table, by version. Watches resume from this log. Snapshots of older
//! versions are rebuilt from it, for lists.

use crate::limits::{UNDELIVERED_BYTES_MAX, UNDELIVERED_SHARE};
use crate::resource::ResourceVersion;
use crate::table::object::Object;
use std::collections::VecDeque;

/// One change of the table.
#[derive(Clone, Debug)]
pub struct Event {
    /// State of the Lease before the change; `None` for a creation.
    pub before: Option<Object>,
    /// State of the Lease after the change. For a deletion, the last state, but with the deletion's version.
    pub after: Object,
    /// Whether the change deleted the Lease.
    pub deleted: bool,
    /// Estimate of the memory that the event holds, in bytes. The estimate includes the state before the change, unless
    /// the change is a renewal. The states before and after a renewal share their memory. The table uses this memory
    /// too, or a later event counts it.
    bytes: u32,
}

impl Event {
    /// Returns the event for the change from `before` to `after`. `before` is `None` for a creation.
    pub(super) fn new(before: Option<Object>, after: Object, deleted: bool) -> Self {
        let lost = before.as_ref().filter(|before| deleted || !after.is_renewal_of(before));
        let bytes = size_of::<Self>() + lost.map_or(0, Object::encoded_memory_bytes);
        Self { before, after, deleted, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }

    /// Returns the version of the change.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        self.after.version
    }
}

/// A ring of events, limited in number and in bytes.
///
/// ```text
///   versions:  … | floor | floor+1 | … | head |
///               gone      events[0]      events.back()
/// ```
///
/// Invariant: the versions of the events have no gaps. So the index of an event is its version minus `floor + 1`.
#[derive(Debug)]
pub struct EventLog {
    events: VecDeque<Event>,
    /// Version of the last event that the log dropped. Before any event is dropped, the table's first version.
    floor: ResourceVersion,
    /// Memory that the events hold, in bytes.
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
    /// Version at the last [`EventLog::mark_delivered`], and the bytes of the events appended after that call.
    delivered: ResourceVersion,
    undelivered_bytes: usize,
}

/// How much a long operation may append to the log before the events must be delivered to watchers. Beyond this limit,
/// the log could drop an event before watchers have read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Number of events.
    pub events: usize,
    /// Number of bytes by which the memory of the events may grow, as an estimate.
    pub bytes: usize,
}

impl Headroom {
    /// Whether no further event may be appended before the events are delivered to watchers.
    #[must_use]
    pub fn is_used_up(self) -> bool {
        self.events == 0 || self.bytes == 0
    }
}

impl EventLog {
    /// Returns an empty log for a table at `version`.
    #[must_use]
    pub fn new(version: ResourceVersion, events_max: usize, bytes_max: usize) -> Self {
        Self {
            events: VecDeque::new(),
            floor: version,
            bytes: 0,
            events_max: events_max.max(1),
            bytes_max,
            delivered: version,
            undelivered_bytes: 0,
        }
    }

    /// Sets the version of the table at which an empty log begins.
    pub(super) fn start_at(&mut self, version: ResourceVersion) {
        assert!(self.events.is_empty(), "a log with events already has versions");
        (self.floor, self.delivered) = (version, version);
    }

    /// Returns the version of the last change of the table.
    #[must_use]
    pub fn head(&self) -> ResourceVersion {
        ResourceVersion(self.floor.0 + self.events.len() as u64)
    }

    /// Returns the oldest version from which a watch can resume without missing an event.
    #[must_use]
    pub fn floor(&self) -> ResourceVersion {
        self.floor
    }

    /// Returns the number of events in the log.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether the log holds no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the estimated memory of the events, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the event of `version`, if the log holds it.
    #[must_use]
    pub fn event(&self, version: ResourceVersion) -> Option<&Event> {
        let index = version.0.checked_sub(self.floor.0 + 1)?;
        self.events.get(usize::try_from(index).ok()?)
    }

    /// Returns all events after `version`, oldest first; `None` if some of them were dropped, or if `version` is in the
    /// future.
    #[must_use]
    pub fn since(&self, version: ResourceVersion) -> Option<impl ExactSizeIterator<Item = &Event>> {
        let skip = usize::try_from(version.0.checked_sub(self.floor.0)?).ok()?;
        (skip <= self.events.len()).then(|| self.events.range(skip..))
    }

    /// Returns how much a long operation may append to the log now. Within this limit, the log drops no event that was
    /// appended after the last [`mark_delivered`](super::Table::mark_delivered).
    #[must_use]
    pub fn headroom(&self) -> Headroom {
        let events_max = (self.events_max / UNDELIVERED_SHARE).max(1);
        let undelivered = usize::try_from(self.head().0 - self.delivered.0).unwrap_or(usize::MAX);
        let bytes_max = (self.bytes_max / UNDELIVERED_SHARE).min(UNDELIVERED_BYTES_MAX);
        Headroom {
            events: events_max.saturating_sub(undelivered),
            bytes: bytes_max.saturating_sub(self.undelivered_bytes),
        }
    }

    /// Records that all events so far are delivered. Call this function after every watcher has received as many events
    /// as its connection has space for.
    pub(super) fn mark_delivered(&mut self) {
        (self.delivered, self.undelivered_bytes) = (self.head(), 0);
    }

    /// If the log is full, reads some memory of the oldest `count` events. So this memory is in the processor's caches
    /// when the events are dropped. The result has no meaning.
    pub(super) fn touch_oldest(&self, count: usize) -> usize {
        let is_full = self.events.len() >= self.events_max || self.bytes + size_of::<Event>() > self.bytes_max;
        if !is_full {
            return 0;
        }
        self.events.iter().take(count).map(|event| event.after.handles()).fold(0, usize::wrapping_add)
    }

    /// Appends the next event. Drops the oldest events while the log exceeds its limits, but always keeps the newest
    /// event.
    pub(super) fn append(&mut self, event: Event) {
        assert_eq!(event.version().0, self.head().0 + 1, "a version was skipped");
        self.bytes += event.bytes as usize;
        self.undelivered_bytes = self.undelivered_bytes.saturating_add(event.bytes as usize);
        self.events.push_back(event);
        while self.events.len() > 1 && (self.events.len() > self.events_max || self.bytes > self.bytes_max) {
            self.drop_oldest();
        }
    }

    /// Drops the oldest event, if there is one.
    pub(super) fn drop_oldest(&mut self) {
        if let Some(gone) = self.events.pop_front() {
            self.bytes -= gone.bytes as usize;
            self.floor = gone.version();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Format;
    use crate::lease::Lease;
    use crate::table::object::Key;

    fn event(version: u64) -> Event {
        let after = Object::new(Key::new("n", "a"), ResourceVersion(1), ResourceVersion(version), Lease::default());
        Event::new(None, after, false)
    }

    #[test]
    fn the_oldest_events_are_dropped_and_the_floor_rises() {
        let mut log = EventLog::new(ResourceVersion(100), 3, usize::MAX);
        assert_eq!(log.since(ResourceVersion(100)).expect("at the head").len(), 0);
        for version in 101..=105 {
            log.append(event(version));
        }
        assert_eq!((log.floor().0, log.head().0, log.len()), (102, 105, 3));
        assert!(log.since(ResourceVersion(101)).is_none());
        let kept: Vec<_> = log.since(ResourceVersion(102)).expect("kept").map(|e| e.version().0).collect();
        assert_eq!(kept, [103, 104, 105]);
        assert_eq!(log.since(ResourceVersion(105)).expect("at the head").len(), 0);
        assert!(log.since(ResourceVersion(106)).is_none(), "ahead");
        assert!(log.event(ResourceVersion(102)).is_none());
        assert_eq!(log.event(ResourceVersion(104)).expect("kept").version().0, 104);
        assert!(log.event(ResourceVersion(106)).is_none());
    }

    /// Goal: an event counts the same bytes towards the limit of the log, whether a client has read its old state or
    /// not. A read of a state stores the state's encoding in the state. These bytes must not count, since a state that
    /// the journal restores has no encoding.
    #[test]
    fn an_event_counts_the_same_bytes_read_or_unread() {
        let mut lease = Lease::default();
        lease.metadata.generate_name = "long-".repeat(20).into();
        let state =
            |version| Object::new(Key::new("n", "a"), ResourceVersion(1), ResourceVersion(version), lease.clone());
        let (read, unread) = (state(2), state(2));
        read.push_body(&mut Vec::new(), Format::Json);
        let bytes = |before| Event::new(Some(before), state(3), false).bytes;
        assert_eq!(bytes(unread), bytes(read));
    }

    #[test]
    fn bytes_bound_the_log_too_but_one_event_stays() {
        let one = event(1).bytes as usize;
        let mut log = EventLog::new(ResourceVersion(0), 1000, one * 2 + 1);
        for version in 1..=5 {
            log.append(event(version));
        }
        assert_eq!((log.len(), log.bytes()), (2, one * 2));
        let mut tiny = EventLog::new(ResourceVersion(0), 1000, 0);
        tiny.append(event(1));
        assert_eq!(tiny.len(), 1);
    }

    #[test]
    fn headroom_lasts_until_undelivered_events_reach_the_limit() {
        let one = event(1).bytes as usize;
        let small = UNDELIVERED_SHARE * one * 3;
        for (events_max, bytes_max, events) in [
            (3 * UNDELIVERED_SHARE, usize::MAX, 3),
            (usize::MAX, small, 3),
            (1, usize::MAX, 1),
            (usize::MAX, usize::MAX, UNDELIVERED_BYTES_MAX.div_ceil(one)),
        ] {
            let mut log = EventLog::new(ResourceVersion(0), events_max, bytes_max);
            let mut version = 0;
            for _ in 0..2 {
                for _ in 0..events {
                    assert!(!log.headroom().is_used_up(), "{version} of {events}");
                    version += 1;
                    log.append(event(version));
                }
                assert!(log.headroom().is_used_up(), "{events}");
                log.mark_delivered();
            }
        }
    }
}
