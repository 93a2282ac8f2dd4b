//! A watcher that works as a reflector (client-go `tools/cache`, `reflector.go`). It lists, watches from the list's
//! version, and resumes from the last version that it received. After 410 it lists again.

use super::http::{Http, Line, Response, WINDOW};
use super::lease;
use super::lister::{WITHIN_US, page};
use crate::check::history::{Feed, List, Seen, SeenKind};
use crate::kernel::{Context, MS, SECOND};
use fastrand::Rng;
use serde_json::Value;

/// Maximum number of unread bytes on the connection of a watcher that reads slowly. In a run with annotations longer
/// than this, the maximum is their length.
const SLOW_WINDOW: usize = 700;

struct Watcher {
    context: Context,
    http: Http,
    namespace: Option<String>,
    is_slow: bool,
}

/// The reason why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The version to watch from has expired (410).
    Expired,
    /// Any other reason, after which the watch is resumed.
    Otherwise,
}

/// Runs the watcher without end. It watches one namespace, or all namespaces if `namespace` is `None`.
pub async fn run(context: Context, namespace: Option<String>, is_slow: bool) {
    // An event with a long annotation should need a few reads of the connection, not hundreds.
    let window = if is_slow { SLOW_WINDOW.max(context.sim.swarm.text_bytes) } else { WINDOW };
    let mut watcher = Watcher { context, http: Http::new(window), namespace, is_slow };
    let mut expired_at = None;
    loop {
        let Some((start, is_newest)) = watcher.list().await else {
            watcher.wait().await;
            continue;
        };
        let window = watcher.context.sim.swarm.window_events as u64;
        // A 410 is wrong if the newest version is less than `window` versions above the watch's last one. Only a list
        // of the newest state shows the newest version. A list with `resourceVersion=0` may come from a replica that is
        // behind the others.
        let swarm = &watcher.context.sim.swarm;
        // If the journal exceeds its maximum size, a start of the server does not restore the watch window (the events
        // at which a watch can resume). Then a 410 may be correct for any version.
        let is_telling = (is_newest || swarm.replicas == 0) && swarm.journal_bytes_max == u64::MAX;
        if let Some(seen) = expired_at.filter(|seen| is_telling && start.saturating_sub(*seen) < window) {
            watcher.complain(format!("410 at version {seen}, which is in the window: the next list is at {start}"));
        }
        let feed = watcher.begin(start);
        let mut is_resumed = false;
        while watcher.watch(feed, is_resumed).await == Ended::Otherwise {
            watcher.wait().await;
            is_resumed = true;
        }
        let mut history = watcher.context.sim.history.borrow_mut();
        history.feeds[feed].is_open = false;
        expired_at = Some(history.feeds[feed].seen);
        *history.counts.entry("watches with 410").or_default() += 1;
    }
}

impl Watcher {
    fn path(&self) -> String {
        self.namespace.as_deref().map_or_else(|| lease::ALL.to_owned(), lease::collection)
    }

    async fn wait(&self) {
        let wait_us = self.context.random(|random| random.u64(50 * MS..800 * MS));
        self.context.sleep(wait_us).await;
    }

    /// Lists, and returns the version of the list. Also returns whether the list had to show the newest state. Returns
    /// `None` if the list failed.
    async fn list(&mut self) -> Option<(u64, bool)> {
        let sent_us = self.context.now_us();
        // Like a reflector, the watcher sends two kinds of lists: one that accepts any state, and one that needs the
        // newest state.
        let is_newest = self.context.random(Rng::bool);
        let target = if is_newest { self.path() } else { format!("{}?resourceVersion=0", self.path()) };
        let (_, version, items) = page(&self.context, &mut self.http, &target).await?;
        let done_us = self.context.now_us();
        let namespace = self.namespace.clone();
        let list = List { namespace, is_newest, exact: None, sent_us, done_us, version, items };
        self.context.sim.history.borrow_mut().lists.push(list);
        Some((version, is_newest))
    }

    fn begin(&self, start: u64) -> usize {
        let mut history = self.context.sim.history.borrow_mut();
        history.feeds.push(Feed {
            client: self.context.id,
            namespace: self.namespace.clone(),
            start,
            seen: start,
            events: Vec::new(),
            is_open: true,
        });
        history.feeds.len() - 1
    }

    async fn watch(&mut self, feed: usize, is_resumed: bool) -> Ended {
        let from = self.context.sim.history.borrow().feeds[feed].seen;
        let seconds = self.context.random(|random| random.u64(5..40));
        let target =
            format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}", self.path());
        let Ok(Response { status, .. }) = self.http.watch(&self.context, &target, WITHIN_US).await else {
            return Ended::Otherwise;
        };
        self.context.say(|| format!("GET {target} → {status}"));
        if status != 200 {
            return if status == 410 { Ended::Expired } else { Ended::Otherwise };
        }
        if is_resumed {
            self.context.sim.count("watches resumed");
        }
        let mut partial = Vec::new();
        // The server must end the watch at its timeout; 30 s more are allowed. A server whose process was paused ends
        // watches late, so each pause extends the time.
        let mut end_us = self.context.now_us() + (seconds + 30) * SECOND;
        let mut paused_us = self.context.sim.paused_us();
        loop {
            match self.http.line(&self.context, &mut partial, end_us).await {
                Line::Event(line) => {
                    if let Some(ended) = self.take(feed, &line) {
                        self.http.close(&self.context);
                        return ended;
                    }
                }
                Line::Nothing if self.context.sim.paused_us() > paused_us => {
                    end_us += self.context.sim.paused_us() - paused_us;
                    paused_us = self.context.sim.paused_us();
                }
                Line::Nothing => {
                    self.complain(format!("a watch for {seconds} s did not end"));
                    self.http.close(&self.context);
                    return Ended::Otherwise;
                }
                Line::End => return Ended::Otherwise,
            }
            if self.is_slow {
                let pause_us = self.context.random(|random| random.u64(0..300 * MS));
                self.context.sleep(pause_us).await;
            }
        }
    }

    /// Records an event in the history. Returns why the watch has ended, if this event ends it.
    fn take(&self, feed: usize, line: &[u8]) -> Option<Ended> {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            self.complain(format!("an event that is not JSON: {}", String::from_utf8_lossy(line)));
            return Some(Ended::Otherwise);
        };
        let object = &event["object"];
        let kind = match event["type"].as_str() {
            Some("ADDED") => SeenKind::Added,
            Some("MODIFIED") => SeenKind::Modified,
            Some("DELETED") => SeenKind::Deleted,
            Some("BOOKMARK") => {
                let version = super::version_of(object)?;
                let seen = self.context.sim.history.borrow().feeds[feed].seen;
                if version < seen {
                    self.complain(format!("a bookmark at {version} after {seen}"));
                }
                self.context.sim.history.borrow_mut().feeds[feed].seen = seen.max(version);
                return None;
            }
            Some("ERROR") if object["code"] == 410 => return Some(Ended::Expired),
            _ => return Some(Ended::Otherwise),
        };
        let (Some(key), Some(state)) = (lease::key(object), lease::state(object)) else {
            self.complain(format!("an event without a Lease: {event}"));
            return Some(Ended::Otherwise);
        };
        self.context.say(|| format!("{kind:?} {}/{} version {}", key.namespace, key.name, state.version));
        let at_us = self.context.now_us();
        let version = state.version;
        let seen = {
            let feed = &mut self.context.sim.history.borrow_mut().feeds[feed];
            feed.events.push(Seen { at_us, key, kind, state });
            std::mem::replace(&mut feed.seen, version)
        };
        if version <= seen {
            self.complain(format!("an event of version {version} after {seen}"));
        }
        None
    }

    fn complain(&self, what: String) {
        let what = format!("{}: {what}", self.context.name);
        self.context.sim.history.borrow_mut().complaints.push(what);
    }
}
