//! The queues by which helper threads hand the event loop what they have found out, each of one kind. The loop takes it
//! in at the start of a turn, between requests, so nothing changes while one is served.

use mio::Waker;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};

/// A helper's end.
#[derive(Clone, Debug)]
pub struct UpdateSender<T> {
    queue: Sender<T>,
    waker: Arc<Waker>,
    loop_lives: Weak<()>,
}

/// The loop's end.
#[derive(Debug)]
pub struct Updates<T> {
    queue: Receiver<T>,
    /// Held for as long as somebody takes updates.
    _lives: Arc<()>,
}

/// A queue, and the waker that tells of what is in it.
#[must_use]
pub fn queue<T>(waker: Arc<Waker>) -> (UpdateSender<T>, Updates<T>) {
    let (sender, receiver) = mpsc::channel();
    let lives = Arc::new(());
    let sender = UpdateSender { queue: sender, waker, loop_lives: Arc::downgrade(&lives) };
    (sender, Updates { queue: receiver, _lives: lives })
}

impl<T> UpdateSender<T> {
    /// Hands over an update. Whether somebody is there to take it.
    #[must_use]
    pub fn send(&self, update: T) -> bool {
        // If the loop cannot be woken it is over already.
        self.queue.send(update).is_ok() && self.waker.wake().is_ok()
    }

    /// Whether nobody will take an update any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.loop_lives.strong_count() == 0
    }
}

impl<T> Updates<T> {
    /// The next update, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<T> {
        self.queue.try_recv().ok()
    }
}
