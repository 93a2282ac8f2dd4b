//! One watcher: how it learns of changes, up to which version it has read them, and what it sends next.

use super::event;
use super::recent::Recent;
use super::{Counts, Fill, WatchEnd, WatchSpec, WatchStart};
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::{Form, LeaseState};
use crate::limits::{BOOKMARK_SECONDS, JOB_KEYS_PER_STEP, JOB_MS_MAX, SCAN_EVENTS_PER_FILL, WATCHER_PENDING_MAX};
use crate::resource::ResourceVersion;
use crate::schedule::Permit;
use crate::selector::Selector;
use crate::selector::shard::ShardHash;
use crate::table::Table;
use crate::table::snapshot::{Range, Snapshot, Stepped};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Watcher {
    range: Range,
    selector: Selector,
    progress: Progress,
    /// Version up to which this watcher has handled all changes.
    cursor: ResourceVersion,
    bookmarks: bool,
    form: Form,
    /// Whether the next event must contain the column definitions of a `Table`.
    wants_columns: bool,
    /// Time at which the next bookmark is due, in ms.
    bookmark_ms: u64,
    /// Time at which the watch ends, in ms.
    end_ms: u64,
}

/// What a watcher reads in one turn of the event loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) table: &'a Table,
    /// Version up to which the watchers were notified of changes.
    pub(super) notified: ResourceVersion,
    pub(super) now: Now,
}

/// The stage of a watcher, which decides what the watcher sends next and how it learns of changes.
#[derive(Debug)]
enum Progress {
    /// The watcher sends the initial state. `end_ms` is the deadline for this, in ms. After the deadline, the watch
    /// ends with an error.
    Initial { snapshot: Box<Snapshot>, end_bookmark: bool, end_ms: u64, permit: Option<Permit> },
    /// The watcher sends an error and ends.
    Refused(Box<ApiError>),
    /// The watcher reads the event log from its cursor.
    Scan,
    /// The index notifies the watcher of changes that may match. `pending` holds the versions of these changes. A
    /// watcher of all Leases without a shard selector is never synced: it scans the event log instead.
    Synced { pending: VecDeque<ResourceVersion> },
}

impl Progress {
    /// Returns the first progress and the first cursor of a watch. A refused watch reads no events. Its cursor is
    /// `notified`: the version up to which the other watchers were notified of changes.
    fn begin(start: WatchStart, notified: ResourceVersion, now: Now) -> (Self, ResourceVersion) {
        match start {
            WatchStart::After(version) => (Self::Scan, version),
            WatchStart::Refused(error) => (Self::Refused(error), notified),
            WatchStart::Initial { snapshot, end_bookmark, permit } => {
                let (version, end_ms) = (snapshot.version(), now.ms + JOB_MS_MAX);
                (Self::Initial { snapshot, end_bookmark, end_ms, permit }, version)
            }
        }
    }
}

impl Watcher {
    /// Returns a watcher that begins now. The other watchers were notified of changes up to `notified`.
    pub(super) fn new(spec: WatchSpec, notified: ResourceVersion, now: Now) -> Self {
        let (progress, cursor) = Progress::begin(spec.start, notified, now);
        Self {
            range: spec.range,
            selector: spec.selector,
            progress,
            cursor,
            bookmarks: spec.bookmarks,
            form: spec.form,
            wants_columns: true,
            bookmark_ms: now.ms + BOOKMARK_SECONDS * 1000,
            end_ms: now.ms.saturating_add(spec.timeout_ms),
        }
    }

    /// Returns the deadline for sending the initial state, in ms; `None` if the watcher sends no initial state now.
    pub(super) fn initial_end_ms(&self) -> Option<u64> {
        match &self.progress {
            Progress::Initial { end_ms, .. } => Some(*end_ms),
            Progress::Refused(_) | Progress::Scan | Progress::Synced { .. } => None,
        }
    }

    /// Whether the watcher sends a long initial state.
    pub(super) fn is_long(&self) -> bool {
        matches!(self.progress, Progress::Initial { permit: Some(_), .. })
    }

    /// Checks whether the client leaves a long initial state unread. A long initial state needs one of a few permits. A
    /// client that reads too slowly may lose its permit to another client, and the watch then ends with an error.
    /// Returns whether the watcher [still sends a long initial state](Watcher::is_long).
    pub(super) fn check_reading(&mut self, is_parked: bool) -> bool {
        let Progress::Initial { permit: Some(permit), .. } = &self.progress else { return false };
        let is_held = permit.check_reading(is_parked);
        if !is_held {
            self.progress = Progress::Refused(Box::new(too_slow()));
        }
        is_held
    }

    /// Returns the time at which the next bookmark or the end of the watch is due, in ms.
    pub(super) fn due_ms(&self) -> u64 {
        if self.bookmarks { self.end_ms.min(self.bookmark_ms) } else { self.end_ms }
    }

    /// Drops the initial state and ends the watch with an error, if the deadline of the initial state has passed.
    pub(super) fn on_timeout(&mut self, now: Now) {
        if self.initial_end_ms().is_some_and(|end_ms| end_ms <= now.ms) {
            self.progress = Progress::Refused(Box::new(too_slow()));
        }
    }

    /// Whether the watcher's shard selector contains `hash`.
    pub(super) fn has(&self, hash: ShardHash) -> bool {
        self.selector.shard.as_ref().is_some_and(|shard| shard.has(hash))
    }

    /// Records a change that the index has found for this watcher. Recording the same change again has no effect. Also
    /// ignores a change that the watcher has already read in the event log.
    pub(super) fn note_change(&mut self, version: ResourceVersion) {
        match &mut self.progress {
            Progress::Synced { pending } if version <= self.cursor || pending.back() == Some(&version) => {}
            // Too many changes are pending, since the connection had no room for events. So the watcher drops its
            // pending versions, and scans the event log when there is room.
            Progress::Synced { pending } if pending.len() == WATCHER_PENDING_MAX => self.rescan(),
            Progress::Synced { pending } => pending.push_back(version),
            Progress::Initial { .. } | Progress::Refused(_) | Progress::Scan => {}
        }
    }

    /// Returns the number of changes of which the watcher was notified, and that it has not sent.
    #[cfg(test)]
    pub(super) fn pending_len(&self) -> usize {
        match &self.progress {
            Progress::Synced { pending } => pending.len(),
            Progress::Initial { .. } | Progress::Refused(_) | Progress::Scan => 0,
        }
    }

    /// Makes the watch end with an error and no further event.
    pub(super) fn refuse(&mut self, error: &ApiError) {
        self.progress = Progress::Refused(Box::new(error.clone()));
    }

    /// Makes a synced watcher scan the event log again. The scan begins with the first pending event, since the log may
    /// have dropped earlier events. Those do not concern this watcher. If no event is pending, the scan begins after
    /// the cursor.
    #[cold]
    pub(super) fn rescan(&mut self) {
        if let Progress::Synced { pending } = &self.progress {
            let before_first = pending.front().map_or(0, |first| first.0 - 1);
            self.cursor = self.cursor.max(ResourceVersion(before_first));
            self.progress = Progress::Scan;
        }
    }

    /// Appends events to `out`, and a bookmark if it is due. `recent` has the bytes of events written recently for
    /// other watchers, so that several watchers share one encoding. It is `None` if there is no other watcher. The
    /// function ends in one of three ways:
    ///
    /// - [`Fill::More`]: events remain, since `out` has about `bytes_max` bytes, or enough events were examined;
    /// - [`Fill::Idle`]: nothing remains until the next change;
    /// - [`Fill::Ended`]: the watch is over. Its timeout has passed, or it has failed with an ERROR event. A watch in a
    ///   list form, such as `PartialObjectMetadataList`, ends instead of its first event or bookmark, and nothing is
    ///   appended.
    pub(super) fn write_events(
        &mut self,
        source: Source<'_>,
        out: &mut Vec<u8>,
        bytes_max: usize,
        counts: &mut Counts,
        recent: Option<&mut Recent>,
    ) -> Fill {
        let now = source.now;
        let filled_from = out.len();
        let recent = recent.filter(|_| !matches!(self.range, Range::Name(_)));
        let events_before = counts.events;
        let filled = self.push_events(source, out, bytes_max, counts, recent);
        if self.form.is_of_lists() && self.has_something(&filled, out.len() > filled_from, now) {
            out.truncate(filled_from);
            counts.events = events_before;
            return Fill::Ended(WatchEnd::Unsuitable);
        }
        counts.bytes += (out.len() - filled_from) as u64;
        let over = now.ms >= self.end_ms;
        match filled {
            Ok(true) if !over => return Fill::More,
            // A watcher that still sends its initial state has no version that a bookmark could name. So the watch ends
            // without a bookmark.
            Ok(true) if matches!(self.progress, Progress::Initial { .. }) => return Fill::Ended(WatchEnd::TimedOut),
            Ok(_) => {}
            Err(error) => {
                self.push_error(&error, out, counts);
                let is_expired = matches!(error, ApiError::Expired { .. });
                return Fill::Ended(if is_expired { WatchEnd::Expired } else { WatchEnd::Unsuitable });
            }
        }
        if self.wants_bookmark(now) {
            self.form.push_bookmark(out, self.cursor, false, self.wants_columns);
            counts.events += 1;
            self.wants_columns = false;
            self.bookmark_ms = now.ms + BOOKMARK_SECONDS * 1000;
        }
        if over { Fill::Ended(WatchEnd::TimedOut) } else { Fill::Idle }
    }

    /// Whether a bookmark is due.
    fn wants_bookmark(&self, now: Now) -> bool {
        self.bookmarks && now.ms >= self.bookmark_ms.min(self.end_ms)
    }

    /// Whether the watcher has an event or a bookmark to send now. In a list form, such as `PartialObjectMetadataList`,
    /// an event or a bookmark ends the watch.
    #[cold]
    fn has_something(&self, filled: &Result<bool, ApiError>, has_events: bool, now: Now) -> bool {
        filled.as_ref().is_ok_and(|more| has_events || !more && self.wants_bookmark(now))
    }

    /// Appends an ERROR event, which is the last event of a watch.
    pub(super) fn push_error(&self, error: &ApiError, out: &mut Vec<u8>, counts: &mut Counts) {
        self.form.push_error(out, &error.status());
        counts.events += 1;
    }

    /// Appends events up to about `bytes_max` bytes. Returns `Ok(true)` if more events remain.
    fn push_events(
        &mut self,
        Source { table, notified, now }: Source<'_>,
        out: &mut Vec<u8>,
        bytes_max: usize,
        Counts { events: events_given, looks, .. }: &mut Counts,
        mut recent: Option<&mut Recent>,
    ) -> Result<bool, ApiError> {
        let (form, columns, cost) = (self.form, &mut self.wants_columns, self.selector.cost());
        if let Progress::Initial { snapshot, end_bookmark, permit, .. } = &mut self.progress {
            permit.iter().for_each(Permit::note_progress);
            // A step counts in full, even if no object matches. So the event loop soon turns to the other watchers.
            *looks += JOB_KEYS_PER_STEP.max(cost) as u64;
            let stepped = snapshot.next(table, self.selector.share_of(JOB_KEYS_PER_STEP), |object| {
                if object.is_selected_by(&self.selector) {
                    form.push_event(out, "ADDED", LeaseState::Stored(object), *columns, now.wall);
                    *events_given += 1;
                    *columns = false;
                }
                out.len() < bytes_max
            });
            if stepped.map_err(|_| too_old(self.cursor, table))? == Stepped::More {
                return Ok(true);
            }
            if *end_bookmark {
                form.push_bookmark(out, snapshot.version(), true, *columns);
                *events_given += 1;
                *columns = false;
            }
            self.progress = Progress::Scan;
        }
        let mut push_change = |out: &mut Vec<u8>, event| {
            if event::push_change(out, event, &self.selector, form, *columns, now, recent.as_deref_mut()) {
                *events_given += 1;
                *columns = false;
            }
        };
        let mut looks_left = SCAN_EVENTS_PER_FILL;
        let mut count_look = |cost: usize| {
            *looks += cost as u64;
            looks_left = looks_left.saturating_sub(cost);
            looks_left > 0
        };
        let mut may_look = true;
        match &mut self.progress {
            Progress::Initial { .. } => return Ok(true),
            Progress::Refused(error) => return Err((**error).clone()),
            Progress::Scan => {
                let events = table.log().since(self.cursor).ok_or_else(|| too_old(self.cursor, table))?;
                for event in events {
                    if out.len() >= bytes_max || !may_look {
                        return Ok(true);
                    }
                    let is_in_range = self.range.contains(event.after.key());
                    if is_in_range {
                        push_change(out, event);
                    }
                    self.cursor = event.version();
                    may_look = count_look(if is_in_range { cost } else { 1 });
                }
                self.cursor = table.version();
                if !matches!(self.range, Range::All) || self.selector.shard.is_some() {
                    self.progress = Progress::Synced { pending: VecDeque::new() };
                }
            }
            Progress::Synced { pending } => {
                while let Some(version) = pending.front().copied() {
                    if out.len() >= bytes_max || !may_look {
                        return Ok(true);
                    }
                    let event = table.log().event(version).ok_or_else(|| too_old(self.cursor, table))?;
                    push_change(out, event);
                    pending.pop_front();
                    self.cursor = version;
                    may_look = count_look(cost);
                }
                // No change between the last pending one and `notified` concerns this watcher.
                self.cursor = self.cursor.max(notified);
            }
        }
        Ok(false)
    }
}

/// Returns the error for a watch that cannot resume, with kube-apiserver's message (apiserver `storage/cacher`,
/// `getAllEventsSinceLocked`).
#[cold]
fn too_old(cursor: ResourceVersion, table: &Table) -> ApiError {
    let message = format!("too old resource version: {cursor} ({})", table.log().floor());
    ApiError::Expired { message, next: None }
}

/// Returns the error for a client that was too slow. The client has not read the initial events within [`JOB_MS_MAX`],
/// or did not read them while other clients waited for a permit.
#[cold]
fn too_slow() -> ApiError {
    ApiError::Expired { message: "the initial events were read too slowly: list anew".into(), next: None }
}
