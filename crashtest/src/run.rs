//! A run: starts the server, the clients, the watchers and the checker, kills the server again and again, and makes the
//! summary.

use crate::args::{Args, Cheat};
use crate::cheat::Copy;
use crate::checker::{Checker, Epoch, Kind};
use crate::client::{Client, LOCK_0};
use crate::gate::Gate;
use crate::history::{Action, Key, Nanos, Op, Outcome, Scope, Space};
use crate::http::Connection;
use crate::plan::{self, Moment};
use crate::process::{Program, Server, free_port};
use crate::progress::Progress;
use crate::summary::Summary;
use crate::watcher::Watcher;
use crate::{audit, request};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// All that runs.
struct Run {
    args: Args,
    program: Program,
    gate: Arc<Gate>,
    rng: fastrand::Rng,
    epochs: Sender<Epoch>,
    complaints: Receiver<String>,
    /// Operations that no epoch has yet.
    ops: Vec<Op>,
    summary: Summary,
    copy: Option<Copy>,
    progress: Progress,
    interrupted: Arc<AtomicBool>,
    /// Whether the checker has found something.
    has_failed: Arc<AtomicBool>,
}

/// Runs in this folder.
///
/// # Errors
/// Why it could not be run to its end. What the server did wrong is in the summary.
pub(crate) fn run(args: Args, server: &Path, folder: &Path, interrupted: Arc<AtomicBool>) -> Result<Summary, String> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000));
    let port = free_port().map_err(|e| format!("no free port: {e}"))?;
    let data = (args.cheat != Some(Cheat::Memory)).then(|| folder.join("data"));
    let copy = match (&data, args.cheat) {
        (Some(data), Some(Cheat::LoseJournal)) => Some(Copy::of(data, &folder.join("copy"))),
        _ => None,
    };
    let program =
        Program { file: server.to_owned(), port, data, log: folder.join("log"), window: args.watch_window_events };
    let gate = Arc::new(Gate::new(port, args.operations));
    let watchers: Vec<_> = WATCHERS.map(|(scope, bookmarks)| Arc::new(Watcher::new(scope, bookmarks))).into();
    let mut server = program.start()?;
    let first_ready = server.wait_ready()?;
    let threads: Vec<_> = watchers.iter().map(|watcher| spawn_watcher(watcher, &gate)).collect();
    while watchers.iter().any(|watcher| watcher.progress() == 0) {
        thread::sleep(Duration::from_millis(1));
    }
    let (complain, complaints) = mpsc::channel();
    let clients: Vec<_> = (0..args.clients)
        .map(|number| {
            let client = Client::new(number, args.clients, args.node_leases(), seed, complain.clone());
            let gate = gate.clone();
            thread::spawn(move || client.run(&gate))
        })
        .collect();
    let (epochs, taken) = mpsc::channel();
    let has_failed = Arc::new(AtomicBool::new(false));
    let checking = {
        let (watchers, checker) =
            (watchers.clone(), Checker::new(&WATCHERS.map(|(scope, _)| scope), args.watch_window_events));
        let has_failed = has_failed.clone();
        thread::spawn(move || audit::check_all(checker, &watchers, &taken, &has_failed))
    };
    let mut run = Run {
        progress: Progress::new(&args),
        rng: fastrand::Rng::with_seed(seed),
        summary: Summary { seed, starts: vec![first_ready], ..Summary::default() },
        ops: Vec::new(),
        args,
        program,
        gate,
        epochs,
        complaints,
        copy,
        interrupted,
        has_failed,
    };
    let done = run.drive(server);
    run.gate.close();
    run.gate.end();
    watchers.iter().for_each(|watcher| watcher.end());
    let (mut summary, last) = match done {
        Ok(last) => (run.summary, Some(last)),
        Err(text) => {
            run.summary.violations.add(Kind::Server, text);
            (run.summary, None)
        }
    };
    drop(run.epochs);
    run.progress.finish();
    let checker = checking.join().map_err(|_| "the checker failed")?;
    drop(last);
    clients.into_iter().chain(threads).try_for_each(JoinHandle::join).map_err(|_| "a client or a watcher failed")?;
    summary.operations = run.gate.operations();
    summary.violations.append(checker.violations);
    summary.checked = checker.counts;
    summary.resumed = watchers.iter().map(|watcher| watcher.resumed.load(Ordering::Relaxed)).sum();
    summary.gone = watchers.iter().map(|watcher| watcher.gone.load(Ordering::Relaxed)).sum();
    summary.elapsed = Duration::from_nanos(run.gate.now());
    Ok(summary)
}

fn spawn_watcher(watcher: &Arc<Watcher>, gate: &Arc<Gate>) -> JoinHandle<()> {
    let (watcher, gate) = (watcher.clone(), gate.clone());
    thread::spawn(move || watcher.run(&gate))
}

impl Run {
    /// Kills as often as wanted, and then lets the clients end. Gives the server that runs then.
    fn drive(&mut self, mut server: Server) -> Result<Server, String> {
        self.gate.open();
        let (mut kills, mut is_first) = (0, true);
        while kills < self.args.kills && !self.is_over() {
            let moment = plan::draw(&mut self.rng, is_first, self.args.faults);
            if !is_first {
                // After a start that is killed at once, the clients try while the server reads its store.
                if moment != Moment::Start {
                    self.summary.starts.push(server.wait_ready()?);
                    self.end_epoch(&server)?;
                }
                self.gate.open();
            }
            if is_first || moment != Moment::Start {
                self.keep_copy();
            }
            let (gate, left) = (self.gate.clone(), self.args.kills - kills);
            let (progress, rng) = (&self.progress, &mut self.rng);
            plan::wait(moment, &gate, &mut server, rng, self.args.operations, left, &mut || {
                progress.show(gate.operations(), kills);
            });
            server = self.end_server(server, moment)?;
            kills += u32::from(moment != Moment::Stop);
            is_first = false;
        }
        if !is_first {
            self.summary.starts.push(server.wait_ready()?);
            self.end_epoch(&server)?;
            self.gate.open();
        }
        while !self.is_over() && server.is_running() {
            self.progress.show(self.gate.operations(), kills);
            thread::sleep(Duration::from_millis(20));
        }
        self.gate.close();
        self.collect(Nanos::MAX);
        self.end_epoch(&server)?;
        self.write_sentinels()?;
        Ok(server)
    }

    fn is_over(&self) -> bool {
        let is_told = self.interrupted.load(Ordering::Relaxed) || self.has_failed.load(Ordering::Relaxed);
        is_told || self.gate.operations() >= self.args.operations
    }

    /// Ends this server, and starts the next one.
    fn end_server(&mut self, server: Server, moment: Moment) -> Result<Server, String> {
        if moment == Moment::Stop {
            self.summary.stops += 1;
            let status = server.terminate()?;
            if !status.success() {
                let text = format!("the server ended with {status} after SIGTERM");
                self.summary.violations.add(Kind::Server, text);
            }
        } else {
            self.summary.kills += 1;
            self.summary.kills_at_start += u32::from(moment == Moment::Start);
            self.summary.kills_in_snapshot += u32::from(server.kill()?);
        }
        let dead = self.gate.now();
        self.gate.close();
        self.collect(dead);
        if let Some(copy) = &self.copy {
            copy.put_back();
        }
        self.program.start()
    }

    /// Takes what the clients recorded. What had no answer ended when the server was dead.
    fn collect(&mut self, dead: Nanos) {
        let mut ops = self.gate.wait_parked();
        for op in &mut ops {
            op.end = op.end.min(dead.max(op.begin));
            self.summary.count(&op.outcome);
        }
        self.ops.append(&mut ops);
        for text in self.complaints.try_iter() {
            self.summary.violations.add(Kind::Server, text);
        }
    }

    /// Lists everything while no client works, and gives the checker all up to that.
    fn end_epoch(&mut self, server: &Server) -> Result<(), String> {
        let begin = self.gate.now();
        let action = Action::List(None);
        let told = |e: String| format!("the list after a start failed: {e}");
        let mut connection = Connection::open(self.gate.port).map_err(|e| told(e.to_string()))?;
        let (outcome, _) =
            request::perform(&mut connection, 0, Op::BOUNDARY, action, None).map_err(|e| told(e.to_string()))?;
        let outcome = outcome.map_err(told)?;
        let Outcome::List { version: boundary, .. } = outcome else { return Err(told(format!("{outcome:?}"))) };
        let mut ops = std::mem::take(&mut self.ops);
        ops.push(Op { id: Op::BOUNDARY, client: 0, action, begin, end: self.gate.now(), outcome });
        // The checker goes away only when it has failed, and the run is told at its end.
        _ = self.epochs.send(Epoch { ops, boundary, log_line: server.store_line() });
        Ok(())
    }

    /// Writes behind the last boundary, so that each watcher has an event behind it. Nobody checks these.
    fn write_sentinels(&mut self) -> Result<(), String> {
        let mut connection = Connection::open(self.gate.port).map_err(|e| e.to_string())?;
        let ends = [LOCK_0, Key { number: 1, ..LOCK_0 }, Key { space: Space::Shared, number: 0 }];
        let others = [Space::Nodes, Space::Sweep].map(|space| Key { space, number: u32::MAX });
        for (id, key) in (self.args.operations..).zip(ends.into_iter().chain(others)) {
            for action in [Action::Patch(key), Action::Create(key)] {
                let (outcome, _) = request::perform(&mut connection, 0, id, action, None).map_err(|e| e.to_string())?;
                if let Outcome::Lease(_) = outcome? {
                    break;
                }
            }
        }
        Ok(())
    }

    fn keep_copy(&self) {
        if let Some(copy) = &self.copy {
            copy.keep();
        }
    }
}

/// The watchers: what each is about, and whether it takes bookmarks.
const WATCHERS: [(Scope, bool); 10] = [
    (Scope::All, true),
    (Scope::All, false),
    (Scope::Space(Space::Nodes), false),
    (Scope::Space(Space::Locks), true),
    (Scope::Space(Space::Locks), false),
    (Scope::Space(Space::Shared), true),
    (Scope::Space(Space::Sweep), false),
    (Scope::One(LOCK_0), true),
    (Scope::One(Key { space: Space::Locks, number: 1 }), false),
    (Scope::One(Key { space: Space::Shared, number: 0 }), false),
];
