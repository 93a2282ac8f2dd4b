//! Queues of updates from other threads to the event loop. Each queue is for one kind of update. The event loop takes
//! updates at the start of a turn (one pass through the loop). So no update takes effect while the event loop serves a
//! request.

use mio::Waker;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};

/// The sender of a queue, for another thread.
#[derive(Clone, Debug)]
pub struct UpdateSender<T> {
    queue: Sender<T>,
    waker: Arc<Waker>,
    /// Reference to the receiver's token. The token is gone once the event loop has dropped the receiver.
    loop_lives: Weak<()>,
}

/// The receiver of a queue, for the event loop.
#[derive(Debug)]
pub struct Updates<T> {
    queue: Receiver<T>,
    /// A token that lives as long as this receiver. The sender has a weak reference to it.
    _lives: Arc<()>,
}

/// Creates a queue. The sender wakes the event loop with `waker`.
#[must_use]
pub fn queue<T>(waker: Arc<Waker>) -> (UpdateSender<T>, Updates<T>) {
    let (sender, receiver) = mpsc::channel();
    let lives = Arc::new(());
    let sender = UpdateSender { queue: sender, waker, loop_lives: Arc::downgrade(&lives) };
    (sender, Updates { queue: receiver, _lives: lives })
}

impl<T> UpdateSender<T> {
    /// Sends an update. Returns whether the event loop still takes updates.
    #[must_use]
    pub fn send(&self, update: T) -> bool {
        // If the event loop cannot be woken, it has ended already.
        self.queue.send(update).is_ok() && self.waker.wake().is_ok()
    }

    /// Whether the event loop no longer takes updates.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.loop_lives.strong_count() == 0
    }
}

impl<T> Updates<T> {
    /// Removes the next update, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<T> {
        self.queue.try_recv().ok()
    }
}
