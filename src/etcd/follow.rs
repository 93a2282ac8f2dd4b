//! The watch: delivers every entry and every manifest behind the state that was loaded.

use super::client::Failure;
use super::load::position;
use super::messages::{Event as Change, NO_DELETE, WatchCreateRequest, WatchRequest, WatchResponse};
use super::state::{State, Wait};
use crate::engine::Entry;
use crate::journal::{Event, StoredManifest};
use std::ops::Range;
use std::rc::Rc;
use tonic::Streaming;

/// Kind of a change that is no deletion.
const PUT: i32 = 0;

/// Watches until the thread is over.
pub(super) async fn follow(state: Rc<State>) {
    state.begin(Wait::Watch);
    for attempt in 0.. {
        let watches = [state.keys.journal(), state.keys.manifest()..Vec::new()].map(|keys| watch(&state, keys));
        match state.client.watch(watches.into()).await {
            Ok(answers) => {
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
        state.client.pause(attempt.min(4)).await;
    }
}

fn watch(state: &State, Range { start: key, end: range_end }: Range<Vec<u8>>) -> WatchRequest {
    let start_revision = state.followed.get().cast_signed().saturating_add(1);
    WatchRequest { create: Some(WatchCreateRequest { key, range_end, start_revision, filters: vec![NO_DELETE] }) }
}

/// Takes in what a watch says, until it ends.
///
/// # Errors
/// Why the watch cannot go on.
async fn take_in(state: &State, mut answers: Streaming<WatchResponse>) -> Result<(), Failure> {
    let mut created = 0;
    loop {
        let answer = match answers.message().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(()),
            Err(status) => {
                tracing::debug!(%status, "the watch of etcd has ended");
                return Ok(());
            }
        };
        if answer.compact_revision > 0 {
            return Err(Failure::Compacted);
        }
        if answer.canceled {
            tracing::debug!(reason = answer.cancel_reason, "the watch of etcd was canceled");
            return Ok(());
        }
        created += u32::from(answer.created);
        if created == 2 {
            state.end(Wait::Watch);
        }
        deliver(state, answer.events);
    }
}

fn deliver(state: &State, changes: Vec<Change>) {
    let mut delivered = Vec::new();
    for kv in changes.into_iter().filter(|change| change.kind == PUT).filter_map(|change| change.kv) {
        if let Some((writer, sequence)) = state.keys.entry_of(&kv.key) {
            // A watch that was opened again repeats what came behind its first revision.
            if position(&kv) > state.delivered.get() {
                state.delivered.set(position(&kv));
                state.entries.borrow_mut().push(writer, sequence, position(&kv));
                delivered.push(Entry { position: position(&kv), payload: kv.value });
            }
        } else if kv.key == state.keys.manifest() && kv.mod_revision.cast_unsigned() > state.manifest_revision.get() {
            state.deliver_manifest(StoredManifest { bytes: kv.value, revision: kv.mod_revision.cast_unsigned() });
        }
    }
    if !delivered.is_empty() {
        state.say(Event::Delivered(delivered));
    }
}
