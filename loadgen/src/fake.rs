//! A small server of Leases for the tests, honest or with one fault: threads over loopback, as little of the API as the
//! generator uses.

use crate::object::tests::object_text;
use coordination_apiserver::http1::chunked::{CRLF, LAST_CHUNK, push_chunk_head};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// What is wrong with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// The 30th renewal is acknowledged and not stored.
    LosesUpdate,
    /// The 30th renewal's answer has another `renewTime` than was sent.
    AnswersSomethingElse,
    /// The 30th renewal is refused with a conflict.
    ConflictsWithNobody,
    /// The 30th event is not sent.
    DropsEvent,
    /// The last event of a node is not sent: the 30th and all later ones of that Lease.
    DropsLastEvents,
    /// The 30th event is sent twice.
    RepeatsEvent,
    /// The 30th and the 31st event change places.
    SwapsEvents,
    /// Reads after the 30th renewal are answered with the version before.
    VersionGoesBack,
    /// The 30th write is applied, and the connection closed without an answer.
    ClosesWithoutAnswer,
    /// The 30th renewal is answered 500, and not applied.
    FailsOnce,
    /// The 30th renewal finds the Lease deleted.
    Forgets,
    /// A watch ends in good order after ten events.
    EndsWatches,
    /// A watch ends after ten events with an ERROR event, and what was missed has expired.
    ExpiresWatches,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    renewals: u32,
    writes: u32,
    /// Name to version, `renewTime` and those before.
    leases: BTreeMap<String, [(u64, String); 2]>,
    /// Name, version and text of every event.
    log: Vec<(String, u64, String)>,
}

/// A running fake. Its threads end with the test's process.
#[derive(Debug)]
struct Fake {
    fault: Fault,
    state: Mutex<State>,
    changed: Condvar,
}

/// Starts a server with this fault.
pub(crate) fn start(fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let state = Mutex::new(State { version: 100, ..State::default() });
    let fake = Arc::new(Fake { fault, state, changed: Condvar::new() });
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let fake = fake.clone();
            std::thread::spawn(move || fake.serve(stream));
        }
    });
    address
}

impl Fake {
    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).expect("connected");
        let mut input = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&input).into_owned();
            if let Some((head, rest)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let length: usize = length.map_or(0, |value| value.parse().expect("a number"));
                if rest.len() >= length {
                    let mut words = head.split(' ');
                    let (method, target) = (words.next().expect("method"), words.next().expect("target"));
                    if target.contains("watch=true") {
                        return self.watch(&mut stream, target);
                    }
                    let Some((status, body)) = self.answer(method, target, &rest[..length]) else { return };
                    let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                    input.drain(..head.len() + 4 + length);
                    continue;
                }
            }
            let mut buf = [0; 4096];
            match stream.read(&mut buf) {
                Ok(len @ 1..) => input.extend_from_slice(&buf[..len]),
                _ => return,
            }
        }
    }

    /// Status and body; `None` closes the connection.
    fn answer(&self, method: &str, target: &str, body: &str) -> Option<(u16, String)> {
        let mut state = self.state.lock().expect("no panic");
        let path = target.split('?').next().expect("a path");
        let name = path.rsplit('/').next().expect("a name").to_owned();
        match method {
            "GET" if name == "leases" => Some((200, list(&state))),
            "GET" => {
                let Some(lease) = state.leases.get(&name) else { return Some((404, "{}".to_owned())) };
                let goes_back = self.fault == Fault::VersionGoesBack && state.renewals >= 30 && lease[1].0 > 0;
                let (version, renewed) = &lease[usize::from(goes_back)];
                Some((200, object_text(&name, *version, renewed)))
            }
            "POST" => {
                let name = value(body, "name");
                if state.leases.contains_key(&name) {
                    return Some((409, "{}".to_owned()));
                }
                self.write(&mut state, "ADDED", &name, &value(body, "renewTime")).map(|text| (201, text))
            }
            _ => {
                state.renewals += 1;
                let fault = if state.renewals == 30 { self.fault } else { Fault::None };
                if fault == Fault::Forgets {
                    state.leases.remove(&name);
                }
                let Some(lease) = state.leases.get(&name) else { return Some((404, "{}".to_owned())) };
                if lease[0].0.to_string() != value(body, "resourceVersion") || fault == Fault::ConflictsWithNobody {
                    return Some((409, "{}".to_owned()));
                }
                let renewed = value(body, "renewTime");
                match fault {
                    Fault::FailsOnce => return Some((500, "{}".to_owned())),
                    Fault::LosesUpdate => {
                        state.version += 1;
                        return Some((200, object_text(&name, state.version, &renewed)));
                    }
                    _ => {}
                }
                let text = self.write(&mut state, "MODIFIED", &name, &renewed)?;
                let wrong = text.replace(&renewed, "2026-01-01T00:00:00.000000Z");
                Some((200, if fault == Fault::AnswersSomethingElse { wrong } else { text }))
            }
        }
    }

    /// Stores a Lease and logs the event. `None` if the answer is to be lost.
    fn write(&self, state: &mut State, kind: &str, name: &str, renewed: &str) -> Option<String> {
        state.version += 1;
        state.writes += 1;
        let version = state.version;
        let text = object_text(name, version, renewed);
        let before = state.leases.get(name).map_or_else(Default::default, |lease| lease[0].clone());
        state.leases.insert(name.to_owned(), [(version, renewed.to_owned()), before]);
        let event = format!("{{\"type\":\"{kind}\",\"object\":{text}}}\n");
        state.log.push((name.to_owned(), version, event));
        self.changed.notify_all();
        (self.fault != Fault::ClosesWithoutAnswer || state.writes != 30).then_some(text)
    }

    fn watch(&self, stream: &mut TcpStream, target: &str) {
        let from = target.split("resourceVersion=").nth(1).and_then(|rest| rest.split('&').next());
        let from: u64 = from.and_then(|version| version.parse().ok()).expect("a version");
        let mut out = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let mut sent = 0;
        let mut next = self.state.lock().expect("no panic").log.partition_point(|event| event.1 <= from);
        loop {
            if stream.write_all(&out).is_err() {
                return;
            }
            out.clear();
            let mut state = self.state.lock().expect("no panic");
            while state.log.len() <= next {
                state = self.changed.wait(state).expect("no panic");
            }
            while let Some(event) = state.log.get(next) {
                next += 1;
                for text in self.faulty(&state.log, next, event) {
                    push_chunk_head(&mut out, text.len());
                    out.extend_from_slice(text.as_bytes());
                    out.extend_from_slice(CRLF);
                }
                sent += 1;
            }
            if sent >= 10 && matches!(self.fault, Fault::EndsWatches | Fault::ExpiresWatches) {
                if self.fault == Fault::ExpiresWatches {
                    // Some events are lost with it, so that only a list helps.
                    let text = "{\"type\":\"ERROR\",\"object\":{\"metadata\":{},\"code\":410}}\n";
                    out.clear();
                    push_chunk_head(&mut out, text.len());
                    out.extend_from_slice(text.as_bytes());
                    out.extend_from_slice(CRLF);
                }
                out.extend_from_slice(LAST_CHUNK);
                drop(state);
                _ = stream.write_all(&out);
                return self.serve(stream.try_clone().expect("a descriptor"));
            }
        }
    }

    /// What is sent in place of the event with this number, counted from 1.
    fn faulty(&self, log: &[(String, u64, String)], number: usize, event: &(String, u64, String)) -> Vec<String> {
        let text = |index: usize| log.get(index).map(|event| event.2.clone());
        match (self.fault, number) {
            (Fault::DropsEvent, 30) => vec![],
            (Fault::DropsLastEvents, 30..) if event.0 == log[29].0 => vec![],
            (Fault::RepeatsEvent, 30) => vec![event.2.clone(), event.2.clone()],
            (Fault::SwapsEvents, 30) => vec![],
            (Fault::SwapsEvents, 31) => [text(30), text(29)].into_iter().flatten().collect(),
            _ => vec![event.2.clone()],
        }
    }
}

fn list(state: &State) -> String {
    let items: Vec<String> =
        state.leases.iter().map(|(name, [(version, renewed), _])| object_text(name, *version, renewed)).collect();
    format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"items":[{}]}}"#, state.version, items.join(","))
}

/// The first string called `key` in some JSON.
fn value(body: &str, key: &str) -> String {
    let (_, rest) = body.split_once(&format!("\"{key}\":\"")).expect("the key");
    rest.split('"').next().expect("a value").to_owned()
}
