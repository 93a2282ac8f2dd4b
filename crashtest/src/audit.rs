//! The thread that runs the checker, epoch by epoch. An epoch is the part of a run between two lists of all Leases. For
//! each epoch, the thread waits until all watchers have received the epoch's events. Then it passes the epoch to the
//! checker.

use crate::checker::{Checker, Epoch, Kind};
use crate::watcher::Watcher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Checks the epochs of the channel until the channel is closed. The first violation sets `has_failed` and ends the
/// checks, since a violation mostly causes others. If the run fails, for example because the server has ended, it sets
/// `has_failed` too. From then on, no epoch waits for events, since a dead server sends none. The first epoch whose
/// events have not all arrived ends the checks.
pub(crate) fn check_all(
    mut checker: Checker,
    watchers: &[Arc<Watcher>],
    epochs: &Receiver<Epoch>,
    has_failed: &AtomicBool,
) -> Checker {
    for epoch in epochs {
        let begun = Instant::now();
        let is_behind = || watchers.iter().any(|watcher| watcher.progress() < epoch.boundary);
        while is_behind() && begun.elapsed() < PATIENCE && !has_failed.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        if has_failed.load(Ordering::Relaxed) && is_behind() {
            break;
        }
        for (number, watcher) in watchers.iter().enumerate() {
            if watcher.progress() < epoch.boundary {
                let (scope, progress) = (watcher.scope, watcher.progress());
                let text = format!(
                    "watcher {number} of {scope}: at version {progress}, {PATIENCE:?} after a list at version {}",
                    epoch.boundary
                );
                checker.violations.add(Kind::Missed, text);
            }
            checker.watched(number, watcher.take());
        }
        checker.check(&epoch);
        if !checker.violations.is_empty() {
            has_failed.store(true, Ordering::Relaxed);
            break;
        }
    }
    checker
}

/// Interval between two checks of the watchers' progress.
const LOOK: Duration = Duration::from_millis(5);
/// Maximum wait for the events of all watchers. Events of a healthy server arrive sooner.
const PATIENCE: Duration = Duration::from_secs(60);
