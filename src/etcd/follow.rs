//! The watch of the store in etcd. It delivers every entry and every manifest that was written after the revision at
//! which this process loaded the store.

use super::client::Failure;
use super::load::position;
use super::messages::{Event as Change, NO_DELETE, WatchCreateRequest, WatchRequest, WatchResponse};
use super::state::{SharedState, Wait};
use crate::engine::Entry;
use crate::journal::{Event, StoredManifest};
use std::ops::Range;
use std::rc::Rc;
use tonic::Streaming;

/// Number of failed attempts to open the watch after which the pause before the next attempt no longer grows.
const ATTEMPTS_BEFORE_LONGEST_PAUSE: u32 = 2;

/// Kind of a put event.
const PUT: i32 = 0;

/// Keeps the watches of the store open until the thread must end.
pub(super) async fn follow(state: Rc<SharedState>) {
    state.begin(Wait::Watch);
    let mut attempt = 0;
    loop {
        let watches =
            [state.keys.head_and_journal(), state.keys.manifest()..Vec::new()].map(|keys| watch(&state, keys));
        match state.client.watch(watches.into()).await {
            Ok(answers) => {
                attempt = 0;
                if let Err(failure) = take_in(&state, answers).await {
                    return state.fail(failure);
                }
                state.begin(Wait::Watch);
            }
            Err(Failure::Unknown(status)) => tracing::debug!(%status, "etcd cannot be watched"),
            Err(failure) => return state.fail(failure),
        }
        if state.is_over.get() {
            return;
        }
        state.client.turn_away();
        state.client.pause(attempt).await;
        // The pause stops growing at 200 ms, below the usual maximum of 1 s. So the watch opens soon after etcd has
        // elected a leader.
        attempt = ATTEMPTS_BEFORE_LONGEST_PAUSE.min(attempt + 1);
    }
}

fn watch(state: &SharedState, Range { start: key, end: range_end }: Range<Vec<u8>>) -> WatchRequest {
    let start_revision = state.followed.get().cast_signed().saturating_add(1);
    WatchRequest { create: Some(WatchCreateRequest { key, range_end, start_revision, filters: vec![NO_DELETE] }) }
}

/// Handles the answers of a watch until the watch ends.
///
/// # Errors
/// The reason why the watch must not be reopened.
async fn take_in(state: &SharedState, mut answers: Streaming<WatchResponse>) -> Result<(), Failure> {
    let mut created = 0;
    while let Some(answer) = state.client.next_answer(&mut answers).await {
        if answer.compact_revision > 0 {
            return Err(Failure::Compacted);
        }
        if answer.canceled {
            tracing::debug!(reason = answer.cancel_reason, "the watch of etcd was canceled");
            state.client.note_failure(answer.cancel_reason);
            return Ok(());
        }
        created += u32::from(answer.created);
        // Both watches are open: the watch of `head` and the journal, and the watch of the manifest.
        if created == 2 {
            state.end(Wait::Watch);
        }
        deliver(state, answer.events)?;
    }
    Ok(())
}

/// Delivers the events of a watch. The event of each entry comes with an event of the key `head`, written at the same
/// revision. The `version` of `head` is the number of its writes. So this `version` is the entry's number, counted from
/// the creation of the store.
///
/// # Errors
/// An entry is missing.
fn deliver(state: &SharedState, changes: Vec<Change>) -> Result<(), Failure> {
    let mut delivered = Vec::new();
    let mut entry = None;
    for kv in changes.into_iter().filter(|change| change.kind == PUT).filter_map(|change| change.kv) {
        // A watch that was reopened repeats events that were delivered before.
        let is_new = position(&kv) > state.delivered.get();
        if kv.key == state.keys.manifest() {
            if kv.mod_revision.cast_unsigned() > state.manifest_revision.get() {
                state.deliver_manifest(StoredManifest { bytes: kv.value, revision: kv.mod_revision.cast_unsigned() });
            }
        } else if let Some(name) = state.keys.entry_of(&kv.key) {
            entry = is_new.then_some((name, kv));
        } else if is_new {
            let number = kv.version.cast_unsigned();
            let Some(((writer, sequence), found)) = entry.take().filter(|(_, entry)| position(entry) == position(&kv))
            else {
                return Err(Failure::Lost(format!("the watch has left out entry {number}")));
            };
            if number != state.numbered.get() + 1 {
                let last = state.numbered.get();
                return Err(Failure::Lost(format!("the watch gives entry {number} after entry {last}")));
            }
            state.numbered.set(number);
            state.delivered.set(position(&kv));
            state.entries.borrow_mut().push(writer, sequence, position(&kv));
            delivered.push(Entry { position: position(&kv), payload: found.value });
        }
    }
    if !delivered.is_empty() {
        state.say(Event::Delivered(delivered));
    }
    Ok(())
}
