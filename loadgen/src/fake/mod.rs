//! A fake API server of Leases for the tests of the load generator. It answers correctly, or with one [`Fault`]. Its
//! threads serve connections over loopback. It serves the part of the API that the generator uses, in HTTP/1.1 and
//! HTTP/2. The connection preface tells HTTP/2 from HTTP/1.1.

mod http1;
mod http2;

use crate::object::tests::object_text;
use coordination_apiserver::http2::{ErrorCode, PREFACE};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the fake server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// The 30th renewal is acknowledged and not stored.
    LosesUpdate,
    /// The response to the 30th renewal has another `renewTime` than the request.
    AnswersSomethingElse,
    /// The response to the 30th renewal has another `holderIdentity`.
    ChangesHolder,
    /// The response to the 30th renewal is another Lease, whose text is shorter.
    AnswersAnother,
    /// The 30th renewal is refused with a conflict (409), though no other client writes.
    ConflictsWithNobody,
    /// The 30th event is not sent.
    DropsEvent,
    /// The last events of one node's Lease are not sent: the 30th event, and all later events of the same Lease.
    DropsLastEvents,
    /// The 30th event is sent twice.
    RepeatsEvent,
    /// The 30th and the 31st event are sent in the wrong order.
    SwapsEvents,
    /// The events from the 30th on have another `renewTime` than the writes.
    ShowsSomethingElse,
    /// The events from the 30th on have the type DELETED.
    TellsOfDeletions,
    /// After the 30th renewal, a read returns the Lease's version before the current one.
    VersionGoesBack,
    /// The 30th write is applied, and the connection closed without a response.
    ClosesWithoutAnswer,
    /// The 30th renewal is answered with 500, and not applied.
    FailsOnce,
    /// The server deletes the Lease before the 30th renewal, which gets 404.
    Forgets,
    /// A restart that loses all Leases: the 30th renewal waits for 400 ms, and then gets 404.
    Restarts,
    /// A watch ends with a complete body after ten events. The server sends events in batches, so the last batch may
    /// bring a few more.
    EndsWatches,
    /// A watch ends at its tenth event: the server sends an ERROR event with code 410 (`Expired`) in place of its last
    /// events.
    ExpiresWatches,
    /// The response to the 30th renewal says that the server accepts no more requests on the connection. In HTTP/1.1 it
    /// has `Connection: close`; in HTTP/2 a graceful GOAWAY is sent.
    GoesAway,
    /// Every response says that the server accepts no more requests on the connection.
    AlwaysGoesAway,
    /// The 30th renewal is applied and never answered. The connection stays open.
    NeverAnswers,
    /// A watch is answered with 403.
    RefusesWatches,
    /// A list is answered with 401.
    RefusesLists,
    /// A list is answered with an HTML page.
    IsAWebsite,
    /// The whole server stops for 400 ms before the 30th renewal.
    Stalls,
    /// HTTP/2: the stream of the 30th renewal is refused (REFUSED_STREAM).
    RefusesStream,
    /// HTTP/2: the streams of all renewals of one node are refused (REFUSED_STREAM).
    RefusesNode,
    /// HTTP/2: the stream of the 30th renewal is reset with `INTERNAL_ERROR`, and the renewal is not applied.
    ResetsStream,
    /// HTTP/2: at the 30th renewal the connection ends with GOAWAY and `ENHANCE_YOUR_CALM`.
    AbortsConnection,
    /// HTTP/2: the server allows two concurrent streams, and its flow-control windows are smaller than a Lease.
    IsNarrow,
}

/// The fake server's reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    /// A response: status and body.
    Answer(u16, String),
    /// The last response on the connection: status and body.
    Last(u16, String),
    /// No response; the connection stays open.
    Nothing,
    /// No response; the connection is closed.
    Close,
    /// HTTP/2: the stream is reset with this code.
    Reset(ErrorCode),
    /// HTTP/2: the server ends the connection with GOAWAY and this code.
    Abort(ErrorCode),
}

/// A socket, with or without TLS.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// The progress of a watch: the events that it has sent.
#[derive(Debug)]
struct Cursor {
    /// Index in the log of the event that the watch sends next.
    next: usize,
    sent: usize,
}

/// The next events of a watch, and whether the watch ends after them.
#[derive(Debug, Default)]
struct Batch {
    events: Vec<String>,
    end: bool,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    renewals: u32,
    writes: u32,
    /// For each Lease, by name: its present version and `renewTime`, then its previous version and `renewTime`.
    leases: BTreeMap<String, [(u64, String); 2]>,
    /// Name of the Lease, version and JSON of every event.
    log: Vec<(String, u64, String)>,
}

/// A running fake server. Its threads end with the process of the test.
#[derive(Debug)]
struct Fake {
    fault: Fault,
    state: Mutex<State>,
}

/// Starts a fake server with this fault, over TLS if `tls` is given. Returns its address.
pub(crate) fn start(fault: Fault, tls: Option<Arc<ServerConfig>>) -> SocketAddr {
    let [address] = start_replicas(fault, tls);
    address
}

/// Starts several fake servers that share one set of Leases. Returns their addresses.
pub(crate) fn start_replicas<const LEN: usize>(fault: Fault, tls: Option<Arc<ServerConfig>>) -> [SocketAddr; LEN] {
    let state = Mutex::new(State { version: 100, ..State::default() });
    let fake = Arc::new(Fake { fault, state });
    std::array::from_fn(|_| fake.clone().listen(tls.clone()))
}

impl Fake {
    fn listen(self: Arc<Self>, tls: Option<Arc<ServerConfig>>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let fake = self;
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (fake, tls) = (fake.clone(), tls.clone());
                std::thread::spawn(move || match tls {
                    None => fake.serve(socket),
                    Some(config) => {
                        let session = ServerConnection::new(config).expect("a valid configuration");
                        let mut stream = StreamOwned::new(session, socket);
                        _ = stream.conn.complete_io(&mut stream.sock);
                        _ = stream.sock.set_read_timeout(Some(READ_TIMEOUT));
                        fake.serve_stream(&mut stream);
                    }
                });
            }
        });
        address
    }

    fn serve(&self, mut socket: TcpStream) {
        socket.set_nodelay(true).expect("connected");
        socket.set_read_timeout(Some(READ_TIMEOUT)).expect("connected");
        self.serve_stream(&mut socket);
    }

    fn serve_stream(&self, stream: &mut dyn Stream) {
        let mut input = Vec::new();
        while !input.starts_with(PREFACE) {
            if input.len() >= PREFACE.len() {
                return http1::serve(self, stream, input);
            }
            if !read_more(stream, &mut input) {
                return;
            }
        }
        http2::serve(self, stream, input);
    }

    /// Returns the reply to a request.
    fn reply(&self, method: &str, target: &str, body: &str) -> Reply {
        let mut state = self.state.lock().expect("no panic");
        let answer = |status, body: &str| Reply::Answer(status, body.to_owned());
        let path = target.split('?').next().expect("a path");
        let name = path.rsplit('/').next().expect("a name").to_owned();
        let reply = match method {
            "GET" if self.fault == Fault::RefusesWatches && target.contains("watch=true") => {
                answer(403, "{\"message\":\"not for you\"}")
            }
            "GET" if name == "leases" => match self.fault {
                Fault::RefusesLists => answer(401, "{\n  \"message\": \"who are you\"\n}"),
                Fault::IsAWebsite => answer(200, "<html></html>"),
                _ => Reply::Answer(200, list(&state)),
            },
            "GET" => {
                let Some(lease) = state.leases.get(&name) else { return answer(404, "{}") };
                let goes_back = self.fault == Fault::VersionGoesBack && state.renewals >= 30 && lease[1].0 > 0;
                let (version, renewed) = &lease[usize::from(goes_back)];
                Reply::Answer(200, object_text(&name, *version, renewed))
            }
            "POST" => {
                let name = value(body, "name");
                if state.leases.contains_key(&name) {
                    return answer(409, "{}");
                }
                self.write(&mut state, "ADDED", &name, &value(body, "renewTime"))
                    .map_or(Reply::Close, |text| Reply::Answer(201, text))
            }
            _ => self.renew(&mut state, &name, body),
        };
        match reply {
            Reply::Answer(status, body) if self.fault == Fault::AlwaysGoesAway => Reply::Last(status, body + "\n"),
            // Go's encoder ends a body with a newline.
            Reply::Answer(status, body) => Reply::Answer(status, body + "\n"),
            reply => reply,
        }
    }

    fn renew(&self, state: &mut State, name: &str, body: &str) -> Reply {
        let answer = |status, body: &str| Reply::Answer(status, body.to_owned());
        state.renewals += 1;
        let fault = if state.renewals == 30 { self.fault } else { Fault::None };
        match fault {
            Fault::Forgets => _ = state.leases.remove(name),
            // While this thread sleeps, the other requests wait for the lock.
            Fault::Stalls => std::thread::sleep(STALL),
            Fault::Restarts => {
                std::thread::sleep(STALL);
                state.leases.clear();
            }
            Fault::RefusesStream => return Reply::Reset(ErrorCode::REFUSED_STREAM),
            Fault::ResetsStream => return Reply::Reset(ErrorCode::INTERNAL_ERROR),
            Fault::AbortsConnection => return Reply::Abort(ErrorCode::ENHANCE_YOUR_CALM),
            _ if self.fault == Fault::RefusesNode && name == "node-7" => {
                return Reply::Reset(ErrorCode::REFUSED_STREAM);
            }
            _ => {}
        }
        let Some(lease) = state.leases.get(name) else { return answer(404, "{}") };
        if lease[0].0.to_string() != value(body, "resourceVersion") || fault == Fault::ConflictsWithNobody {
            return answer(409, "{}");
        }
        let renewed = value(body, "renewTime");
        match fault {
            Fault::FailsOnce => return answer(500, "{}"),
            Fault::LosesUpdate => {
                state.version += 1;
                return Reply::Answer(200, object_text(name, state.version, &renewed));
            }
            _ => {}
        }
        let Some(text) = self.write(state, "MODIFIED", name, &renewed) else { return Reply::Close };
        let wrong = text.replace(&renewed, "2026-01-01T00:00:00.000000Z");
        match fault {
            Fault::AnswersSomethingElse => Reply::Answer(200, wrong),
            Fault::ChangesHolder => {
                Reply::Answer(200, text.replace(&format!(r#""holderIdentity":"{name}""#), r#""holderIdentity":"x""#))
            }
            Fault::AnswersAnother => Reply::Answer(200, object_text("n", 1, &renewed)),
            Fault::GoesAway => Reply::Last(200, text),
            Fault::NeverAnswers => Reply::Nothing,
            _ => Reply::Answer(200, text),
        }
    }

    /// Stores a Lease and logs the event of the write. Returns the body of the response; `None` if the fault drops it.
    fn write(&self, state: &mut State, kind: &str, name: &str, renewed: &str) -> Option<String> {
        state.version += 1;
        state.writes += 1;
        let version = state.version;
        let text = object_text(name, version, renewed);
        let before = state.leases.get(name).map_or_else(Default::default, |lease| lease[0].clone());
        state.leases.insert(name.to_owned(), [(version, renewed.to_owned()), before]);
        let event = format!("{{\"type\":\"{kind}\",\"object\":{text}}}\n");
        state.log.push((name.to_owned(), version, event));
        (self.fault != Fault::ClosesWithoutAnswer || state.writes != 30).then_some(text)
    }

    /// Begins a watch and returns its progress; `None` if the request is no watch.
    fn begin_watch(&self, target: &str) -> Option<Cursor> {
        if !target.contains("watch=true") || self.fault == Fault::RefusesWatches {
            return None;
        }
        let from = target.split("resourceVersion=").nth(1).and_then(|rest| rest.split('&').next());
        let from: u64 = from.and_then(|version| version.parse().ok()).expect("a version");
        let next = self.state.lock().expect("no panic").log.partition_point(|event| event.1 <= from);
        Some(Cursor { next, sent: 0 })
    }

    /// Returns the events that the watch has not sent yet, and counts them as sent.
    fn watch(&self, cursor: &mut Cursor) -> Batch {
        let state = self.state.lock().expect("no panic");
        let mut batch = Batch::default();
        while let Some(event) = state.log.get(cursor.next) {
            cursor.next += 1;
            cursor.sent += 1;
            batch.events.extend(self.faulty(&state.log, cursor.next, event));
        }
        batch.end = cursor.sent >= 10 && matches!(self.fault, Fault::EndsWatches | Fault::ExpiresWatches);
        if batch.end && self.fault == Fault::ExpiresWatches {
            // The ERROR event replaces the last events. So the watcher must list again to see their changes.
            batch.events = vec!["{\"type\":\"ERROR\",\"object\":{\"metadata\":{},\"code\":410}}\n".to_owned()];
        }
        batch
    }

    /// Returns the events that the fault sends in place of event `number`. Events are counted from 1.
    fn faulty(&self, log: &[(String, u64, String)], number: usize, event: &(String, u64, String)) -> Vec<String> {
        let text = |index: usize| log.get(index).map(|event| event.2.clone());
        match (self.fault, number) {
            (Fault::DropsEvent, 30) => vec![],
            (Fault::DropsLastEvents, 30..) if event.0 == log[29].0 => vec![],
            (Fault::RepeatsEvent, 30) => vec![event.2.clone(), event.2.clone()],
            (Fault::ShowsSomethingElse, 30..) => {
                let renewed = value(&event.2, "renewTime");
                vec![event.2.replace(&renewed, "2026-01-01T00:00:00.000000Z")]
            }
            (Fault::TellsOfDeletions, 30..) => vec![event.2.replace("MODIFIED", "DELETED")],
            (Fault::SwapsEvents, 30) => vec![],
            (Fault::SwapsEvents, 31) => [text(30), text(29)].into_iter().flatten().collect(),
            _ => vec![event.2.clone()],
        }
    }
}

/// Appends the available bytes of the stream to `input`, or waits for a short time. Returns false at the end of the
/// stream.
fn read_more(stream: &mut dyn Stream, input: &mut Vec<u8>) -> bool {
    let mut buf = [0; 16_384];
    match stream.read(&mut buf) {
        Ok(len) => {
            input.extend_from_slice(&buf[..len]);
            len > 0
        }
        Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
    }
}

/// Time for which a stalled or restarting server does not answer.
const STALL: Duration = Duration::from_millis(400);
/// Maximum time that a connection waits for input before it sends its next events.
const READ_TIMEOUT: Duration = Duration::from_millis(1);

fn list(state: &State) -> String {
    let items: Vec<String> =
        state.leases.iter().map(|(name, [(version, renewed), _])| object_text(name, *version, renewed)).collect();
    format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"items":[{}]}}"#, state.version, items.join(","))
}

/// Returns the first string value with the key `key` in a JSON text.
fn value(body: &str, key: &str) -> String {
    let (_, rest) = body.split_once(&format!("\"{key}\":\"")).expect("the key");
    rest.split('"').next().expect("a value").to_owned()
}
