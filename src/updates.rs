//! The queue by which helper threads hand the event loop what they have found out. The loop takes it in at the start of
//! a turn, between requests, so nothing changes while one is served.

use crate::cluster::NamespaceChange;
use crate::tls::config::Secure;
use mio::Waker;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};

/// Something new.
#[derive(Debug)]
pub enum Update {
    /// Other namespaces.
    Namespaces(NamespaceChange),
    /// Other certificates, or other authorities.
    Secure(Secure),
    /// Certificates or authorities that are no use, so that those of before stay.
    ReloadFailed,
}

/// The helpers' end.
#[derive(Clone, Debug)]
pub struct UpdateSender {
    queue: Sender<Update>,
    waker: Arc<Waker>,
    loop_lives: Weak<()>,
}

/// The loop's end.
#[derive(Debug)]
pub struct Updates {
    queue: Receiver<Update>,
    /// Held for as long as somebody takes updates.
    _lives: Arc<()>,
}

/// A queue, and the waker that tells of what is in it.
#[must_use]
pub fn queue(waker: Arc<Waker>) -> (UpdateSender, Updates) {
    let (sender, receiver) = mpsc::channel();
    let lives = Arc::new(());
    let sender = UpdateSender { queue: sender, waker, loop_lives: Arc::downgrade(&lives) };
    (sender, Updates { queue: receiver, _lives: lives })
}

impl UpdateSender {
    /// Hands over an update. Whether somebody is there to take it.
    #[must_use]
    pub fn send(&self, update: Update) -> bool {
        // If the loop cannot be woken it is over already.
        self.queue.send(update).is_ok() && self.waker.wake().is_ok()
    }

    /// Whether nobody will take an update any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.loop_lives.strong_count() == 0
    }
}

impl Updates {
    /// The next update, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<Update> {
        self.queue.try_recv().ok()
    }
}
