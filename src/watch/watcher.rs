//! One watcher: from where it learns of changes, how far it has come, and what it is given next.

use super::event;
use super::recent::Recent;
use super::{Counts, Fill, WatchEnd, WatchSpec, WatchStart};
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::{Form, State};
use crate::limits::{BOOKMARK_SECONDS, JOB_KEYS_PER_STEP, JOB_MS_MAX, SCAN_EVENTS_PER_FILL, WATCHER_PENDING_MAX};
use crate::permits::Permit;
use crate::resource::ResourceVersion;
use crate::selector::Selector;
use crate::table::Table;
use crate::table::snapshot::{Range, Snapshot, Stepped};
use std::collections::VecDeque;

/// A watcher.
#[derive(Debug)]
pub(super) struct Watcher {
    range: Range,
    selector: Selector,
    progress: Progress,
    /// Every change up to this one has been seen to.
    cursor: ResourceVersion,
    bookmarks: bool,
    form: Form,
    /// Of a Table: no event has carried the columns yet.
    wants_columns: bool,
    /// Milliseconds at which the next bookmark is due.
    bookmark_ms: u64,
    /// Milliseconds at which it ends.
    end_ms: u64,
}

/// How a watcher learns of changes.
#[derive(Debug)]
enum Progress {
    /// It gets what was there first, until `end_ms` at the latest.
    Initial { snapshot: Box<Snapshot>, end_bookmark: bool, end_ms: u64, _permit: Option<Permit> },
    /// It gets an error and no more.
    Refused(Box<ApiError>),
    /// It reads the log from its cursor.
    Scan,
    /// Narrow ones: the index tells it, and these are for it.
    Synced { pending: VecDeque<ResourceVersion> },
}

impl Progress {
    /// That of a watch that begins so while changes up to `notified` have been told of, and the version up to which it
    /// has seen every change.
    fn begin(start: WatchStart, notified: ResourceVersion, now: Now) -> (Self, ResourceVersion) {
        match start {
            WatchStart::After(version) => (Self::Scan, version),
            WatchStart::Refused(error) => (Self::Refused(error), notified),
            WatchStart::Initial { snapshot, end_bookmark, permit } => {
                let (version, end_ms) = (snapshot.version(), now.ms + JOB_MS_MAX);
                (Self::Initial { snapshot, end_bookmark, end_ms, _permit: permit }, version)
            }
        }
    }
}

impl Watcher {
    /// One that begins now, while changes up to `notified` have been told of.
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

    /// Milliseconds at which it must have got what was there first; none if it gets such no more.
    pub(super) fn initial_end_ms(&self) -> Option<u64> {
        match &self.progress {
            Progress::Initial { end_ms, .. } => Some(*end_ms),
            Progress::Refused(_) | Progress::Scan | Progress::Synced { .. } => None,
        }
    }

    /// Milliseconds at which its next bookmark or its end is due.
    pub(super) fn due_ms(&self) -> u64 {
        if self.bookmarks { self.end_ms.min(self.bookmark_ms) } else { self.end_ms }
    }

    /// Lets go of what was there first, if its time is over.
    pub(super) fn on_timeout(&mut self, now: Now) {
        if self.initial_end_ms().is_some_and(|end_ms| end_ms <= now.ms) {
            self.progress = Progress::Refused(Box::new(too_slow()));
        }
    }

    /// Tells one that is found by the index of a change that is for it.
    pub(super) fn note(&mut self, version: ResourceVersion) {
        match &mut self.progress {
            // Its connection is full.
            Progress::Synced { pending } if pending.len() == WATCHER_PENDING_MAX => self.rescan(),
            Progress::Synced { pending } => pending.push_back(version),
            Progress::Initial { .. } | Progress::Refused(_) | Progress::Scan => {}
        }
    }

    /// Lets a watch end with an error, and with nothing before it.
    pub(super) fn refuse(&mut self, error: &ApiError) {
        self.progress = Progress::Refused(Box::new(error.clone()));
    }

    /// Lets one that was told by the index find its events in the log again, from before the first that it has not
    /// given: its cursor may be older than the log.
    #[cold]
    pub(super) fn rescan(&mut self) {
        if let Progress::Synced { pending } = &self.progress {
            let before_first = pending.front().map_or(0, |first| first.0 - 1);
            self.cursor = self.cursor.max(ResourceVersion(before_first));
            self.progress = Progress::Scan;
        }
    }

    /// Appends events, and a bookmark if one is due, until nothing is left or `out` holds about `bytes_max`. `recent`
    /// is none if nobody else watches.
    pub(super) fn fill(
        &mut self,
        table: &Table,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
        counts: &mut Counts,
        recent: Option<&mut Recent>,
    ) -> Fill {
        let filled_from = out.len();
        let recent = recent.filter(|_| !matches!(self.range, Range::Name(_)));
        let events_before = counts.events;
        let filled = self.push_events(table, now, out, bytes_max, counts, recent);
        if self.form.is_of_lists() && self.has_something(&filled, out.len() > filled_from, now) {
            out.truncate(filled_from);
            counts.events = events_before;
            return Fill::Ended(WatchEnd::Unsuitable);
        }
        counts.bytes += (out.len() - filled_from) as u64;
        let over = now.ms >= self.end_ms;
        match filled {
            Ok(true) if !over => return Fill::More,
            // One that still gets what was there first has no version yet that a bookmark could name.
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

    /// Whether there is anything to tell by now, be it a bookmark: a watch in a form of lists ends with it.
    #[cold]
    fn has_something(&self, filled: &Result<bool, ApiError>, has_events: bool, now: Now) -> bool {
        filled.as_ref().is_ok_and(|more| has_events || !more && self.wants_bookmark(now))
    }

    /// Appends an ERROR event, the last of a watch.
    pub(super) fn push_error(&self, error: &ApiError, out: &mut Vec<u8>, counts: &mut Counts) {
        self.form.push_error(out, &error.status());
        counts.events += 1;
    }

    /// Appends events up to about `bytes_max`; `Ok(true)` if more are left.
    fn push_events(
        &mut self,
        table: &Table,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
        Counts { events: events_given, looks, .. }: &mut Counts,
        mut recent: Option<&mut Recent>,
    ) -> Result<bool, ApiError> {
        let (form, columns, cost) = (self.form, &mut self.wants_columns, self.selector.cost());
        if let Progress::Initial { snapshot, end_bookmark, .. } = &mut self.progress {
            // One step, also if nothing in it was for this watcher: the others are to have their turn.
            *looks += JOB_KEYS_PER_STEP.max(cost) as u64;
            let stepped = snapshot.next(table, self.selector.share_of(JOB_KEYS_PER_STEP), |object| {
                if object.is_selected_by(&self.selector) {
                    form.push_event(out, "ADDED", State::Stored(object), *columns, now.wall);
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
                if !matches!(self.range, Range::All) {
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
            }
        }
        // Nothing that it waits for has happened since.
        self.cursor = table.version();
        Ok(false)
    }
}

/// kube-apiserver's words for a watch that cannot go on (apiserver `storage/cacher`, `getAllEventsSinceLocked`).
#[cold]
fn too_old(cursor: ResourceVersion, table: &Table) -> ApiError {
    let message = format!("too old resource version: {cursor} ({})", table.log().floor());
    ApiError::Expired { message, next: None }
}

/// What ends a watch whose client has not read in [`JOB_MS_MAX`] what was there first.
#[cold]
fn too_slow() -> ApiError {
    let message = format!("the initial events were not read within {} s: list anew", JOB_MS_MAX / 1000);
    ApiError::Expired { message, next: None }
}
