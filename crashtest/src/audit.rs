//! The checker's thread: it waits until all watchers have come to the end of an epoch, and checks it.

use crate::checker::{Checker, Epoch, Kind};
use crate::watcher::Watcher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Checks epochs until there are no more. With the first violation `has_failed` is set, and nothing more is checked:
/// what comes then follows from it.
pub(crate) fn check_all(
    mut checker: Checker,
    watchers: &[Arc<Watcher>],
    epochs: &Receiver<Epoch>,
    has_failed: &AtomicBool,
) -> Checker {
    for epoch in epochs {
        let begun = Instant::now();
        while watchers.iter().any(|watcher| watcher.progress() < epoch.boundary) && begun.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
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

/// How often it is looked how far the watchers are.
const LOOK: Duration = Duration::from_millis(5);
/// Each watcher has events in less time, under load or at the end.
const PATIENCE: Duration = Duration::from_secs(60);
