//! One watcher: from where it learns of changes, how far it has come, and what it is given next.

use super::WatchStart;
use super::event::{self, is_selected};
use super::recent::Recent;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::form::{Form, State};
use crate::limits::{JOB_KEYS_PER_STEP, JOB_MS_MAX, SCAN_EVENTS_PER_FILL};
use crate::permits::Permit;
use crate::resource::ResourceVersion;
use crate::selector::Selector;
use crate::table::Table;
use crate::table::snapshot::{Range, Snapshot};
use std::collections::VecDeque;

/// A watcher.
#[derive(Debug)]
pub(super) struct Watcher<O> {
    pub(super) owner: O,
    pub(super) generation: u32,
    /// Key in `narrow`; none for a broad one.
    pub(super) group: Option<String>,
    /// Place in its group, or in `broad`.
    pub(super) place: usize,
    pub(super) range: Range,
    pub(super) selector: Selector,
    pub(super) progress: Progress,
    /// Every change up to this one has been seen to.
    pub(super) cursor: ResourceVersion,
    pub(super) is_dirty: bool,
    pub(super) bookmarks: bool,
    pub(super) form: Form,
    /// Of a Table: no event has carried the columns yet.
    pub(super) wants_columns: bool,
    /// Milliseconds at which the next bookmark is due.
    pub(super) bookmark_ms: u64,
    /// Milliseconds at which it ends.
    pub(super) end_ms: u64,
    /// Milliseconds for which its timer is set.
    pub(super) armed_ms: u64,
}

/// How a watcher learns of changes.
#[derive(Debug)]
pub(super) enum Progress {
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
    /// That of a watch that begins so while changes up to `notified` have been told of, and the version up to which it has
    /// seen every change.
    pub(super) fn begin(start: WatchStart, notified: ResourceVersion, now: Now) -> (Self, ResourceVersion) {
        match start {
            WatchStart::After(version) => (Self::Scan, version),
            WatchStart::Refused(error) => (Self::Refused(error), notified),
            WatchStart::Initial { snapshot, end_bookmark, permit } => {
                let (version, end_ms) = (snapshot.version(), now.ms + JOB_MS_MAX);
                (Self::Initial { snapshot: Box::new(snapshot), end_bookmark, end_ms, _permit: permit }, version)
            }
        }
    }
}

impl<O> Watcher<O> {
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

    /// Appends events up to about `bytes_max`; `Ok(true)` if more are left.
    pub(super) fn fill(
        &mut self,
        table: &Table,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
        (events_given, looks): (&mut u64, &mut u64),
        mut recent: Option<&mut Recent>,
    ) -> Result<bool, ApiError> {
        let (form, columns, cost) = (self.form, &mut self.wants_columns, self.selector.cost());
        if let Progress::Initial { snapshot, end_bookmark, .. } = &mut self.progress {
            // One step, also if nothing in it was for this watcher: the others are to have their turn.
            *looks += JOB_KEYS_PER_STEP.max(cost) as u64;
            let more = snapshot.next(table, self.selector.share_of(JOB_KEYS_PER_STEP), |object| {
                if is_selected(&self.selector, object) {
                    form.push_event(out, "ADDED", State::Stored(object), *columns, now.wall);
                    *events_given += 1;
                    *columns = false;
                }
                out.len() < bytes_max
            });
            if more.map_err(|_| too_old(self.cursor, table))? {
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
                if self.group.is_some() {
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
