//! The watch of the store in etcd. It delivers every entry and every manifest that was written after the revision at
//! which this process loaded the store.

use super::client::Failure;
use super::load::position;
use super::messages::{Event as Change, NO_DELETE, WatchCreateRequest, WatchRequest, WatchResponse};
use super::state::{SharedState, Wait};
use crate::engine::{Entry, Position};
use crate::journal::{Event, StoredManifest};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::Streaming;

/// Number of failed attempts to open the watch after which the pause before the next attempt no longer grows.
const ATTEMPTS_BEFORE_LONGEST_PAUSE: u32 = 2;

/// Time without an answer of the watch after which [`Stall::look`] is called.
const SILENCE: Duration = Duration::from_millis(250);

/// Kind of a put event.
const PUT: i32 = 0;

/// Keeps the watches of the store open until the thread must end.
pub(super) async fn follow(state: Rc<SharedState>) {
    state.begin(Wait::Watch);
    let mut attempt = 0;
    loop {
        let member = state.client.member();
        let watches =
            [state.keys.head_and_journal(), state.keys.manifest()..Vec::new()].map(|keys| watch(&state, keys));
        match state.client.watch(watches.into()).await {
            Ok(answers) => {
                if let Err(failure) = take_in(&state, answers).await {
                    return state.fail(failure);
                }
                // If etcd has created both watches, the next pause is short. If etcd has refused a watch, for example
                // because this server may no longer read the keys, the pauses grow.
                if !state.is_waiting(Wait::Watch) {
                    attempt = 0;
                }
                state.begin(Wait::Watch);
            }
            Err(Failure::Unknown(status)) => tracing::debug!(%status, "etcd cannot be watched"),
            Err(failure) => return state.fail(failure),
        }
        if state.is_over.get() {
            return;
        }
        state.client.turn_away_from(member);
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

/// Finds out whether a watch has stalled: etcd has an entry that the watch does not deliver. The cause may be a member
/// that hangs while its connections stay open. HTTP/2 PINGs show this only after two seconds.
#[derive(Debug)]
struct Stall {
    /// Position of the last delivered entry when the watch was opened.
    opened: Position,
    /// Position of the newest entry in etcd at the last look.
    newest: Position,
}

impl Stall {
    fn new(opened: Position) -> Self {
        Self { opened, newest: Position::default() }
    }

    /// Looks at a watch that was silent for [`SILENCE`]. Returns whether the watch has stalled: it lacks an entry that
    /// etcd had at the last look. So a silent watch counts as stalled at most two times [`SILENCE`] after etcd has
    /// answered the transaction of the entry.
    ///
    /// A watch that has delivered no entry since it was opened never counts as stalled. For a new watch, etcd may have
    /// to read many old entries first. If the watch were opened again meanwhile, etcd would have to begin again.
    fn look(&mut self, delivered: Position, newest: Position) -> bool {
        let expected = std::mem::replace(&mut self.newest, newest);
        self.opened < delivered && delivered < expected
    }
}

/// Handles the answers of a watch until the watch ends or stalls.
///
/// # Errors
/// The reason why the watch must not be reopened.
async fn take_in(state: &SharedState, mut answers: Streaming<WatchResponse>) -> Result<(), Failure> {
    let mut created = 0;
    let mut stall = Stall::new(state.delivered.get());
    loop {
        let Ok(answer) = timeout(SILENCE, state.client.next_answer(&mut answers)).await else {
            if stall.look(state.delivered.get(), state.newest.get()) {
                tracing::debug!("the watch of etcd lacks an entry");
                state.client.note_failure("the watch lacks an entry".to_owned());
                return Ok(());
            }
            continue;
        };
        let Some(answer) = answer else { return Ok(()) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::background::LocalRuntime;
    use crate::etcd::client::Client;
    use crate::etcd::client::tests::serve;
    use crate::etcd::config::Config;
    use crate::updates;
    use mio::{Poll, Token, Waker};
    use prost::Message;
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::Arc;
    use std::thread;

    /// Goal: if etcd cancels each watch at once, a replica waits longer and longer before it opens the next one.
    /// Method: all members are the same fake etcd. After each attempt, the client turns to the next member. So the
    /// index of the member is the number of attempts.
    #[test]
    fn canceled_watches_are_opened_again_after_longer_pauses() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let canceled = WatchResponse { created: true, canceled: true, ..WatchResponse::default() }.encode_to_vec();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let canceled = canceled.clone();
                thread::spawn(move || serve(connection, Some(&canceled), &mut 0));
            }
        });
        let poll = Poll::new().expect("a poll");
        let waker = Waker::new(poll.registry(), Token(0)).expect("a waker");
        let (sender, _events) = updates::queue(Arc::new(waker));
        let attempts = LocalRuntime::new().expect("a runtime").block_on(async {
            let config = Config { endpoints: vec![url; 100], ..Config::default() };
            let state = Rc::new(SharedState::new(Client::new(config).expect("a client"), sender));
            _ = timeout(Duration::from_millis(1_500), follow(Rc::clone(&state))).await;
            state.client.member()
        });
        // With pauses of 50, 100 and then 200 ms, these are nine attempts. With pauses of 50 ms, they would be thirty.
        assert!((2..12).contains(&attempts), "{attempts}");
    }

    #[test]
    fn a_silent_watch_that_lacks_a_known_entry_stalls() {
        let mut stall = Stall::new(Position(10));
        let mut look = |delivered, newest| stall.look(Position(delivered), Position(newest));
        assert!(!look(10, 12), "the entry may have been written a moment ago");
        assert!(!look(10, 12), "the watch has delivered nothing since it was opened");
        assert!(!look(12, 12));
        assert!(!look(12, 13), "the entry may have been written a moment ago");
        assert!(!look(13, 14), "the entry was delivered, and the next one is new");
        assert!(look(13, 15));
    }
}
