//! Requests that may be long: lists and deletions of a collection. Cut into steps, so that none of them holds a
//! renewal up.

use crate::api::token::ContinueToken;
use crate::clock::Now;
use crate::codec::json::push_string;
use crate::lease::strategy::{Propagation, deletion_finalizers, marked_for_deletion};
use crate::lease::{API_VERSION, LIST_KIND};
use crate::limits::{DELETIONS_PER_STEP, JOB_KEYS_PER_STEP};
use crate::selector::Selector;
use crate::table::Table;
use crate::table::object::Object;
use crate::table::snapshot::{Forgotten, Snapshot};
use crate::watch::is_selected;
use std::rc::Rc;

/// A request that is worked on in steps, and whose response is a list.
#[derive(Debug)]
pub struct Job {
    selector: Selector,
    stage: Stage,
}

/// Stages follow each other in this order; a job begins at the first that it needs.
#[derive(Debug)]
enum Stage {
    /// Of a list with a limit: its items are collected, since what stands before them tells what comes after them.
    Collect { snapshot: Snapshot, limit: usize, items: Vec<Rc<Object>> },
    /// Of a deletion: the Leases are found, then deleted.
    Delete { snapshot: Snapshot, deletion: Deletion, items: Vec<Rc<Object>> },
    /// A list without a limit: items go out as they are found.
    Stream { snapshot: Snapshot, head_sent: bool, items_sent: usize },
    /// Collected items go out.
    Send { items: Vec<Rc<Object>>, items_sent: usize },
}

/// How the Leases of a collection are to be deleted.
#[derive(Clone, Copy, Debug)]
pub struct Deletion {
    /// What becomes of their dependents.
    pub propagation: Propagation,
    /// Whether nothing is to be deleted really.
    pub dry_run: bool,
    /// The most that are deleted; 0 is all.
    pub limit: usize,
}

impl Job {
    /// A list of what `snapshot` holds and `selector` takes; of at most `limit` items, or 0 for all.
    #[must_use]
    pub fn list(snapshot: Snapshot, selector: Selector, limit: usize) -> Self {
        let stage = match limit {
            0 => Stage::Stream { snapshot, head_sent: false, items_sent: 0 },
            limit => Stage::Collect { snapshot, limit, items: Vec::new() },
        };
        Self { selector, stage }
    }

    /// A deletion of what `snapshot` holds and `selector` takes.
    #[must_use]
    pub fn delete_collection(snapshot: Snapshot, selector: Selector, deletion: Deletion) -> Self {
        Self { selector, stage: Stage::Delete { snapshot, deletion, items: Vec::new() } }
    }

    /// One step; what it has to say is appended to `out` until that holds about `bytes_max`. `Ok(true)` when the
    /// response is whole.
    ///
    /// # Errors
    /// [`Forgotten`] if [`Job::absorb`] was not called in time; the response cannot be finished.
    pub fn step(
        &mut self,
        table: &mut Table,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<bool, Forgotten> {
        let Self { selector, stage } = self;
        match stage {
            Stage::Collect { snapshot, limit, items } => {
                let more = snapshot.next(table, JOB_KEYS_PER_STEP, |object| {
                    if is_selected(selector, object) {
                        items.push(Rc::clone(object));
                    }
                    items.len() < *limit
                })?;
                if more && items.len() < *limit {
                    return Ok(false);
                }
                push_list_head(out, snapshot, more, selector);
                let items = std::mem::take(items);
                *stage = Stage::Send { items, items_sent: 0 };
                self.step(table, now, out, bytes_max)
            }
            Stage::Delete { snapshot, deletion, items } => {
                let mut found = Vec::new();
                let limit = if deletion.limit == 0 { usize::MAX } else { deletion.limit };
                let more = snapshot.next(table, JOB_KEYS_PER_STEP, |object| {
                    if is_selected(selector, object) {
                        found.push(Rc::clone(object));
                    }
                    found.len() < DELETIONS_PER_STEP && items.len() + found.len() < limit
                })?;
                for object in found {
                    if !deletion.dry_run {
                        delete(table, &object, deletion.propagation, now);
                    }
                    items.push(object);
                }
                if more && items.len() < limit {
                    return Ok(false);
                }
                push_list_head(out, snapshot, false, selector);
                let items = std::mem::take(items);
                *stage = Stage::Send { items, items_sent: 0 };
                self.step(table, now, out, bytes_max)
            }
            Stage::Stream { snapshot, head_sent, items_sent } => {
                if !std::mem::replace(head_sent, true) {
                    push_list_head(out, snapshot, false, selector);
                }
                let more = snapshot.next(table, JOB_KEYS_PER_STEP, |object| {
                    if is_selected(selector, object) {
                        push_item(out, object, items_sent);
                    }
                    out.len() < bytes_max
                })?;
                if !more {
                    out.extend_from_slice(LIST_CLOSE);
                }
                Ok(!more)
            }
            Stage::Send { items, items_sent } => {
                while let Some(object) = items.get(*items_sent) {
                    if out.len() >= bytes_max {
                        return Ok(false);
                    }
                    push_item(out, object, items_sent);
                }
                out.extend_from_slice(LIST_CLOSE);
                Ok(true)
            }
        }
    }

    /// Keeps what the rest of the response needs, before the log forgets it: to be called each turn.
    pub fn absorb(&mut self, table: &Table) {
        match &mut self.stage {
            Stage::Collect { snapshot, .. } | Stage::Delete { snapshot, .. } | Stage::Stream { snapshot, .. } => {
                // If that fails the next step fails as well.
                let _ = snapshot.absorb(table);
            }
            Stage::Send { .. } => {}
        }
    }
}

const LIST_CLOSE: &[u8] = b"]}\n";

/// Appends all that stands before the items.
fn push_list_head(out: &mut Vec<u8>, snapshot: &Snapshot, more: bool, selector: &Selector) {
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(LIST_KIND.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    out.extend_from_slice(API_VERSION.as_bytes());
    out.extend_from_slice(b"\",\"metadata\":{\"resourceVersion\":\"");
    out.extend_from_slice(itoa::Buffer::new().format(snapshot.version().0).as_bytes());
    out.push(b'"');
    if more {
        out.extend_from_slice(b",\"continue\":");
        push_string(out, &ContinueToken::after(snapshot).encode());
        if selector.is_everything() {
            out.extend_from_slice(b",\"remainingItemCount\":");
            out.extend_from_slice(itoa::Buffer::new().format(snapshot.remaining()).as_bytes());
        }
    }
    out.extend_from_slice(b"},\"items\":[");
}

fn push_item(out: &mut Vec<u8>, object: &Object, items_sent: &mut usize) {
    if *items_sent > 0 {
        out.push(b',');
    }
    object.push_json_item(out);
    *items_sent += 1;
}

/// Deletes the Lease that `object` was, unless another has taken its name since, or marks it if finalizers hold it.
fn delete(table: &mut Table, object: &Object, propagation: Propagation, now: Now) {
    let (namespace, name) = object.key.parts();
    let Some((slot, current)) = table.find(namespace, name) else { return };
    if current.lease.metadata.uid != object.lease.metadata.uid {
        return;
    }
    let finalizers = deletion_finalizers(&current.lease.metadata.finalizers, propagation);
    if finalizers.is_empty() {
        table.remove(slot);
        return;
    }
    let marked = marked_for_deletion(&current.lease, finalizers, now.wall);
    if marked != current.lease {
        table.replace(slot, marked);
    }
}
