//! A watcher: a thread that lists once and then watches, as a reflector does. After a lost connection the watch resumes
//! from the last version that the watcher received.

use crate::gate::Gate;
use crate::history::{Nanos, Scope, Watched};
use crate::http::{Chunk, Connection, is_malformed};
use crate::object::{self, Line};
use crate::request::leases;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// State that a watcher shares with the run.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) scope: Scope,
    bookmarks: bool,
    /// Number of the server to which the watcher connects next.
    server: AtomicU32,
    /// Version of the last list, event or bookmark; 0 before the first list.
    progress: AtomicU64,
    /// Number of watches that resumed on a new connection and received an event or a bookmark.
    pub(crate) resumed: AtomicU64,
    /// Number of watches that ended with 410.
    pub(crate) gone: AtomicU64,
    records: Mutex<Vec<Watched>>,
    is_over: AtomicBool,
}

/// Why a watch ended.
#[derive(Debug)]
enum End {
    Lost,
    Gone,
}

impl Watcher {
    /// Creates a watcher of the Leases in `scope`. `bookmarks` is true if the watcher requests bookmarks.
    pub(crate) fn new(scope: Scope, bookmarks: bool) -> Self {
        Self {
            scope,
            bookmarks,
            server: AtomicU32::new(0),
            progress: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            records: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Returns the version up to which the watcher has received all events.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Acquire)
    }

    /// Removes and returns the records since the last call.
    pub(crate) fn take(&self) -> Vec<Watched> {
        std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the watcher's thread when its present connection ends.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    fn record(&self, entry: Watched) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    /// Lists and watches until the run ends.
    pub(crate) fn run(&self, gate: &Gate) {
        let mut last = None;
        // Version that the watcher had when its last watch got 410. The next list records this version.
        let mut gone = None;
        // Whether the next watch resumes an earlier watch. The first watch after a list does not.
        let mut is_resume = false;
        while !self.is_over.load(Ordering::Acquire) {
            let ended = match last {
                None => self.list(gate, &mut last, gone),
                Some(_) => {
                    let ended = self.watch(gate, &mut last, is_resume);
                    is_resume = true;
                    ended
                }
            };
            match ended {
                Ok(End::Lost) => {}
                Ok(End::Gone) => {
                    is_resume = false;
                    self.gone.fetch_add(1, Ordering::Relaxed);
                    gone = last.take();
                }
                Err(e) => self.pause(&e),
            }
        }
    }

    /// Records a response that is not HTTP, and waits before the next attempt.
    fn pause(&self, failed: &io::Error) {
        if is_malformed(failed) {
            self.record(Watched::Wrong(failed.to_string()));
        }
        std::thread::sleep(PAUSE);
    }

    /// Connects to the next server, in the order of the servers' numbers.
    fn connect(&self, gate: &Gate) -> io::Result<Connection> {
        gate.connect(self.server.fetch_add(1, Ordering::Relaxed))
    }

    fn path(&self, query: &str) -> String {
        let (space, selector) = match self.scope {
            Scope::All => (None, String::new()),
            Scope::Space(space) => (Some(space), String::new()),
            Scope::One(key) => (Some(key.space), format!("&fieldSelector=metadata.name%3D{}", key.name())),
        };
        format!("{}?{query}{selector}", leases(space))
    }

    /// Lists once, and stores the list's version in `last`. The record of the list contains `gone`, the version of the
    /// watch before the list if this watch got 410. A malformed list is recorded, and is an error too, so that the
    /// caller pauses before the next list.
    fn list(&self, gate: &Gate, last: &mut Option<u64>, gone: Option<u64>) -> io::Result<End> {
        let mut connection = self.connect(gate)?;
        let (answer, _) = connection.ask("GET", &self.path("limit=0"), "", "")?;
        if answer.status != 200 {
            return Err(io::Error::other("not ready"));
        }
        match object::list(&answer.body) {
            Ok((version, _)) => {
                self.record(Watched::Listed { version, gone });
                self.progress.store(version, Ordering::Release);
                *last = Some(version);
                Ok(End::Lost)
            }
            Err(complaint) => {
                self.record(Watched::Wrong(complaint));
                Err(io::Error::other("a malformed list"))
            }
        }
    }

    fn watch(&self, gate: &Gate, last: &mut Option<u64>, is_resume: bool) -> io::Result<End> {
        let version = last.unwrap_or(0);
        let bookmarks = if self.bookmarks { "&allowWatchBookmarks=true" } else { "" };
        let mut connection = self.connect(gate)?;
        connection.send("GET", &self.path(&format!("watch=1&resourceVersion={version}{bookmarks}")), "", "")?;
        match connection.next_chunk(&mut Vec::new())? {
            Chunk::Status(200) => {}
            Chunk::Status(410) => return Ok(End::Gone),
            _ => return Err(io::Error::other("not ready")),
        }
        let mut is_first = is_resume;
        let mut body = Vec::new();
        loop {
            if connection.next_chunk(&mut body)? != Chunk::Body {
                return Ok(End::Lost);
            }
            let at = gate.now();
            let mut done = 0;
            while let Some(rest) = body.get(done..)
                && let Some(len) = memchr::memchr(b'\n', rest)
            {
                let line = rest.get(..len).unwrap_or_default();
                done += len + 1;
                if let Some(end) = self.on_line(line, at, last) {
                    return Ok(end);
                }
                if std::mem::take(&mut is_first) {
                    self.resumed.fetch_add(1, Ordering::Relaxed);
                }
            }
            body.drain(..done);
        }
    }

    fn on_line(&self, line: &[u8], at: Nanos, last: &mut Option<u64>) -> Option<End> {
        let version = match object::line(line, at) {
            Ok(Line::Event(event)) => {
                self.record(Watched::Event(event));
                event.seen.version
            }
            Ok(Line::Bookmark(version)) => {
                if last.is_some_and(|last| version < last) {
                    self.record(Watched::Wrong(format!("a bookmark of {version} after version {last:?}")));
                }
                version
            }
            Ok(Line::Error(410)) => return Some(End::Gone),
            Ok(Line::Error(code)) => {
                self.record(Watched::Wrong(format!("an ERROR event of code {code}")));
                return Some(End::Lost);
            }
            Err(complaint) => {
                self.record(Watched::Wrong(complaint));
                return None;
            }
        };
        *last = Some(version);
        self.progress.fetch_max(version, Ordering::AcqRel);
        None
    }
}

/// Time before the next attempt after a failed connection or a malformed response.
const PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::serve;

    /// Lists from a server that answers with these bytes. Asserts that the list fails, and that the watcher records one
    /// wrong response.
    fn check_failed_list(bytes: &[u8]) {
        let (port, server) = serve(vec![bytes.to_vec()]);
        let (watcher, mut last) = (Watcher::new(Scope::All, false), None);
        let gate = Gate::new(vec![port], Duration::from_secs(10), 1);
        let failed = watcher.list(&gate, &mut last, None).expect_err("no list");
        watcher.pause(&failed);
        assert_eq!((last, watcher.progress()), (None, 0));
        assert!(matches!(watcher.take().as_slice(), [Watched::Wrong(_)]));
        server.join().expect("a request was answered");
    }

    #[test]
    fn a_malformed_list_is_recorded_and_fails() {
        check_failed_list(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        check_failed_list(b"not HTTP\r\n\r\n");
    }

    #[test]
    fn the_list_after_a_410_records_the_version_of_the_watch() {
        let answer = |status: u16, body: &str| {
            format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
        };
        let list =
            |version: u64| answer(200, &format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#));
        let (port, server) = serve(vec![list(5), answer(410, ""), answer(503, ""), list(9)]);
        let (watcher, gate) = (Watcher::new(Scope::All, false), Gate::new(vec![port], Duration::from_secs(10), 1));
        std::thread::scope(|scope| {
            scope.spawn(|| watcher.run(&gate));
            server.join().expect("all requests were answered");
            while watcher.progress() < 9 {
                std::thread::sleep(PAUSE);
            }
            watcher.end();
        });
        let expected = [(5, None), (9, Some(5))].map(|(version, gone)| Watched::Listed { version, gone });
        assert_eq!(watcher.take(), expected);
    }
}
