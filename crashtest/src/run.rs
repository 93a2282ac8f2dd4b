//! A run of the test: starts the server, the clients, the watchers and the checker, kills the server repeatedly, and
//! fills the summary. A run is divided into epochs: an epoch ends with a list of all Leases while no client writes.

use crate::args::{Args, Cheat};
use crate::cheat::Copy;
use crate::checker::{Checker, Epoch, Kind};
use crate::client::{Client, LOCK_0};
use crate::gate::Gate;
use crate::history::{Action, Key, Nanos, Op, Outcome, Scope, Space, Watched};
use crate::plan::{self, Moment};
use crate::process::{Program, Server, Storage, free_port};
use crate::progress::Progress;
use crate::replicas::Replicas;
use crate::summary::Summary;
use crate::watcher::Watcher;
use crate::{audit, request};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// State of a run.
struct Run {
    args: Args,
    gate: Arc<Gate>,
    rng: fastrand::Rng,
    epochs: Sender<Epoch>,
    complaints: Receiver<String>,
    /// Operations of all clients since the end of the last epoch.
    ops: Vec<Op>,
    summary: Summary,
    progress: Progress,
    interrupted: Arc<AtomicBool>,
    /// Whether the checker has found a violation, or the run has failed.
    has_failed: Arc<AtomicBool>,
}

/// Runs the test, with the store and the log of the server in `folder`.
///
/// # Errors
/// If the run could not be completed. Violations by the server are in the summary instead.
pub(crate) fn run(args: Args, server: &Path, folder: &Path, interrupted: Arc<AtomicBool>) -> Result<Summary, String> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000));
    let mut system = System::start(&args, server, folder)?;
    let starts = match &mut system {
        System::One(one) => vec![one.server.wait_ready()?],
        System::Replicas(_) | System::Ended => Vec::new(),
    };
    let patience = if args.replicas > 0 { PATIENCE_OF_REPLICAS } else { PATIENCE };
    let gate = Arc::new(Gate::new(system.ports(), patience, args.operations));
    let watchers: Vec<_> = WATCHERS.map(|(scope, bookmarks)| Arc::new(Watcher::new(scope, bookmarks))).into();
    let threads: Vec<_> = watchers.iter().map(|watcher| spawn_watcher(watcher, &gate)).collect();
    await_lists(&mut system, &watchers, &interrupted)?;
    let (complain, complaints) = mpsc::channel();
    let clients: Vec<_> = (0..args.clients)
        .map(|number| {
            let (complain, expects_answers) = (complain.clone(), args.replicas == 0);
            let client = Client::new(number, args.clients, args.node_leases(), seed, complain, expects_answers);
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
        summary: Summary { seed, starts, ..Summary::default() },
        ops: Vec::new(),
        args,
        gate,
        epochs,
        complaints,
        interrupted,
        has_failed,
    };
    let done = match &mut system {
        System::One(one) => run.drive(one),
        System::Replicas(replicas) => run.drive_replicas(replicas),
        System::Ended => Ok(()),
    };
    run.gate.close();
    run.gate.end();
    if let Err(text) = done {
        run.summary.violations.add(Kind::Server, text);
        run.has_failed.store(true, Ordering::Relaxed);
        // A failed server is ended now, so that no thread waits for it.
        system = System::Ended;
    }
    let mut summary = run.summary;
    drop(run.epochs);
    run.progress.finish();
    let checker = checking.join().map_err(|_| "the checker failed")?;
    // The watchers end only now, after the checker, which waited for their events. A watcher that was behind may have
    // had to connect or list again.
    watchers.iter().for_each(|watcher| watcher.end());
    drop(system);
    clients.into_iter().chain(threads).try_for_each(JoinHandle::join).map_err(|_| "a client or a watcher failed")?;
    summary.operations = run.gate.operations();
    summary.is_interrupted = run.interrupted.load(Ordering::Relaxed) && summary.operations < run.args.operations;
    summary.takeovers = run.gate.takeovers();
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

/// Waits until every watcher has a list.
///
/// # Errors
/// If the server has ended, the run is interrupted, or a watcher has no list after [`LISTS_MAX`].
fn await_lists(system: &mut System, watchers: &[Arc<Watcher>], interrupted: &AtomicBool) -> Result<(), String> {
    let begun = Instant::now();
    while let Some(watcher) = watchers.iter().find(|watcher| watcher.progress() == 0) {
        if let System::One(one) = system {
            one.server.check_running()?;
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err("interrupted before every watcher had a list".to_owned());
        }
        if begun.elapsed() > LISTS_MAX {
            let mut text = format!("a watcher of {} has no list after {LISTS_MAX:?}", watcher.scope);
            if let Some(Watched::Wrong(why)) = watcher.take().first() {
                text.push_str(&format!(": {why}"));
            }
            return Err(text);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

impl Run {
    /// Kills the server as often as `--kills` requires, and then lets the clients finish their operations.
    fn drive(&mut self, one: &mut One) -> Result<(), String> {
        // The older copy of the store (`--cheat=lose-journal`) is made only while the gate is closed. Writes during the
        // copy could damage it.
        one.copy.iter().for_each(Copy::keep);
        self.gate.open();
        let (mut kills, mut is_first) = (0, true);
        while kills < self.args.kills && !self.is_over() {
            let moment = plan::draw(&mut self.rng, is_first, self.args.faults);
            if !is_first {
                // Before [`Moment::Start`], the run does not wait until the server is ready. So clients send requests
                // while the server loads its store, until the kill.
                if moment != Moment::Start {
                    self.summary.starts.push(one.server.wait_ready()?);
                    self.end_epoch(one.server.store_line())?;
                    one.copy.iter().for_each(Copy::keep);
                }
                self.gate.open();
            }
            let (gate, left) = (self.gate.clone(), self.args.kills - kills);
            let (progress, rng) = (&self.progress, &mut self.rng);
            let (interrupted, has_failed) = (&self.interrupted, &self.has_failed);
            plan::wait(moment, &gate, &mut one.server, rng, self.args.operations, left, &mut || {
                progress.show(gate.operations(), kills);
                !interrupted.load(Ordering::Relaxed) && !has_failed.load(Ordering::Relaxed)
            })?;
            self.end_server(one, moment)?;
            kills += u32::from(moment != Moment::Stop);
            is_first = false;
        }
        if !is_first {
            self.summary.starts.push(one.server.wait_ready()?);
            self.end_epoch(one.server.store_line())?;
            self.gate.open();
        }
        let opened = self.gate.now();
        while !self.is_over() && one.server.is_running() {
            self.gate.check_writes(opened, plan::SILENCE_MAX)?;
            self.progress.show(self.gate.operations(), kills);
            thread::sleep(Duration::from_millis(20));
        }
        self.gate.close();
        self.collect(Nanos::MAX);
        self.end_epoch(one.server.store_line())?;
        self.check_acknowledged()?;
        self.write_sentinels()
    }

    /// Causes one fault after the other while the clients work. At the end of each epoch all faults end, and all Leases
    /// are listed.
    fn drive_replicas(&mut self, replicas: &mut Replicas) -> Result<(), String> {
        let epochs = (self.args.operations / OPERATIONS_PER_EPOCH).clamp(1, EPOCHS_MAX);
        for epoch in 1..=epochs {
            self.gate.open();
            let opened = self.gate.now();
            while !self.is_over() && self.gate.operations() < self.args.operations * epoch / epochs {
                self.gate.check_writes(opened, plan::SILENCE_MAX)?;
                let (progress, gate) = (&self.progress, &self.gate);
                let faults = replicas.faults.values().sum::<u64>();
                let faults = u32::try_from(faults).unwrap_or(u32::MAX);
                let only = self.args.only;
                replicas.fault(only, &mut self.rng, gate, || progress.show(gate.operations(), faults))?;
                thread::sleep(Duration::from_millis(self.rng.u64(0..1_500)));
            }
            replicas.await_all()?;
            self.gate.close();
            // A request without a response may still take effect in etcd. So the list of all Leases waits for
            // [`SETTLE`], until no request is pending.
            let ops = self.gate.wait_parked();
            thread::sleep(SETTLE);
            self.take_ops(ops, self.gate.now());
            self.end_epoch(replicas.store_line())?;
            if self.is_over() {
                break;
            }
        }
        self.summary.starts.append(&mut replicas.starts);
        self.summary.leaders_lost.append(&mut replicas.leaders_lost);
        self.summary.faults = replicas.faults.clone();
        self.check_acknowledged()?;
        self.write_sentinels()
    }

    /// Checks that a client has received the acknowledgement of a write. A run without one proves nothing, since a
    /// server that accepts no write cannot lose one. Only an interrupted run may be too short for an acknowledgement.
    fn check_acknowledged(&self) -> Result<(), String> {
        if self.gate.last_write() > 0 || self.interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (refused, unknown) = (self.summary.refused_text(), self.summary.unknown);
        Err(format!("no write of a client was acknowledged; refused: {refused}; unknown: {unknown}"))
    }

    fn is_over(&self) -> bool {
        let is_told = self.interrupted.load(Ordering::Relaxed) || self.has_failed.load(Ordering::Relaxed);
        is_told || self.gate.operations() >= self.args.operations
    }

    /// Kills or stops the server, and starts it again.
    fn end_server(&mut self, one: &mut One, moment: Moment) -> Result<(), String> {
        if moment == Moment::Stop {
            self.summary.stops += 1;
            one.server.terminate()?;
        } else {
            self.summary.kills += 1;
            self.summary.kills_at_start += u32::from(moment == Moment::Start);
            self.summary.kills_in_snapshot += u32::from(one.server.kill()?);
        }
        let dead = self.gate.now();
        self.gate.close();
        self.collect(dead);
        one.copy.iter().for_each(Copy::put_back);
        one.server = one.program.start()?;
        Ok(())
    }

    /// Waits until all clients have stopped at the gate, and takes their records. An operation that got no response
    /// ends at `dead`, after which it cannot take effect.
    fn collect(&mut self, dead: Nanos) {
        self.take_ops(self.gate.wait_parked(), dead);
    }

    /// Moves `ops` to the operations of the present epoch, and counts their outcomes. An operation without a response
    /// ends at `dead`, after which it cannot take effect.
    fn take_ops(&mut self, mut ops: Vec<Op>, dead: Nanos) {
        for op in &mut ops {
            op.end = op.end.min(dead.max(op.begin));
            self.summary.count(&op.outcome);
        }
        self.ops.append(&mut ops);
        for text in self.complaints.try_iter() {
            self.summary.violations.add(Kind::Server, text);
        }
    }

    /// Lists all Leases while no client works, and passes the operations of the epoch to the checker.
    fn end_epoch(&mut self, log_line: String) -> Result<(), String> {
        let begin = self.gate.now();
        let action = Action::List(None);
        let told = |e: String| format!("the list at the end of an epoch failed: {e}");
        let mut connection = self.gate.connect(0).map_err(|e| told(e.to_string()))?;
        let (outcome, _) =
            request::perform(&mut connection, 0, Op::BOUNDARY, action).map_err(|e| told(e.to_string()))?;
        let outcome = outcome.map_err(told)?;
        let Outcome::List { version: boundary, .. } = outcome else { return Err(told(format!("{outcome:?}"))) };
        let mut ops = std::mem::take(&mut self.ops);
        ops.push(Op { id: Op::BOUNDARY, client: 0, action, begin, end: self.gate.now(), outcome });
        // Sending fails if the checker has closed the channel, which it does only after a violation. The run reports
        // the violation at its end.
        _ = self.epochs.send(Epoch { ops, boundary, log_line });
        Ok(())
    }

    /// Sends writes after the last epoch, so that each watcher receives one more event, and thus passes the last
    /// epoch's boundary. These events are not checked. All faults have ended, so the server must accept the writes.
    fn write_sentinels(&self) -> Result<(), String> {
        let ends = [LOCK_0, Key { number: 1, ..LOCK_0 }, Key { space: Space::Shared, number: 0 }];
        let others = [Space::Nodes, Space::Sweep].map(|space| Key { space, number: u32::MAX });
        for (id, key) in (self.args.operations..).zip(ends.into_iter().chain(others)) {
            write_sentinel(&self.gate, id, key, SENTINEL_MAX)?;
        }
        Ok(())
    }
}

/// Patches a Lease, or creates it if the patch fails. Repeats the PATCH and the POST if the server refuses both, since
/// the server may be busy for a moment.
///
/// # Errors
/// If the connection is lost, or the server still refuses both requests after `patience`.
fn write_sentinel(gate: &Gate, id: u64, key: Key, patience: Duration) -> Result<(), String> {
    let told = |e: String| format!("the write of {key} after the last epoch failed: {e}");
    let begun = Instant::now();
    loop {
        let mut refusals = Vec::new();
        for action in [Action::Patch(key), Action::Create(key)] {
            let mut connection = gate.connect(0).map_err(|e| told(e.to_string()))?;
            let (outcome, _) = request::perform(&mut connection, 0, id, action).map_err(|e| told(e.to_string()))?;
            match outcome.map_err(told)? {
                Outcome::Lease(_) => return Ok(()),
                refusal => refusals.push(refusal),
            }
        }
        if begun.elapsed() > patience {
            return Err(told(format!("the answers to PATCH and POST after {patience:?}: {refusals:?}")));
        }
        thread::sleep(SENTINEL_EVERY);
    }
}

/// The servers of a run.
enum System {
    One(Box<One>),
    Replicas(Box<Replicas>),
    /// No server runs, because the run has failed.
    Ended,
}

/// A server with its own store.
struct One {
    program: Program,
    server: Server,
    copy: Option<Copy>,
}

impl System {
    fn start(args: &Args, server: &Path, folder: &Path) -> Result<Self, String> {
        if args.replicas > 0 {
            let etcd = args.etcd.clone().unwrap_or_else(|| "etcd".into());
            return Ok(Self::Replicas(Box::new(Replicas::start(args, server, &etcd, folder)?)));
        }
        let data = folder.join("data");
        let copy = (args.cheat == Some(Cheat::LoseJournal)).then(|| Copy::of(&data, &folder.join("copy")));
        let program = Program {
            file: server.to_owned(),
            port: free_port().map_err(|e| format!("no free port: {e}"))?,
            storage: if args.cheat == Some(Cheat::Memory) { Storage::Memory } else { Storage::Disk(data) },
            log: folder.join("log"),
            window: args.watch_window_events,
        };
        let server = program.start()?;
        Ok(Self::One(Box::new(One { program, server, copy })))
    }

    fn ports(&self) -> Vec<u16> {
        match self {
            Self::One(one) => vec![one.program.port],
            Self::Replicas(replicas) => replicas.ports(),
            Self::Ended => Vec::new(),
        }
    }
}

/// Time after which a server that sends nothing counts as stuck. A server answers each write within 60 s, and sends a
/// bookmark each minute on a watch that requests bookmarks.
const PATIENCE: Duration = Duration::from_secs(90);
/// Maximum time from the start of the watchers until each watcher has a list. The server is ready before the watchers
/// start.
const LISTS_MAX: Duration = Duration::from_secs(60);
/// In a run with replicas, time after which a client without a response moves to the next server.
const PATIENCE_OF_REPLICAS: Duration = Duration::from_secs(3);
/// Approximate number of operations between two lists of all Leases, in a run with replicas. In a run with more than
/// [`EPOCHS_MAX`] times this number of operations, the epochs are longer.
const OPERATIONS_PER_EPOCH: u64 = 50_000;
/// Maximum number of epochs, each with a list of all Leases, in a run with replicas.
const EPOCHS_MAX: u64 = 20;
/// Time in which a pending transaction of etcd takes effect or is lost.
const SETTLE: Duration = Duration::from_secs(3);

/// Maximum time for which the server may refuse a write after the last epoch.
const SENTINEL_MAX: Duration = Duration::from_secs(10);
/// Time between two attempts of a write after the last epoch.
const SENTINEL_EVERY: Duration = Duration::from_millis(100);

/// Scope of each watcher, and whether it requests bookmarks.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::serve;
    use crate::object;

    /// Writes a sentinel (the write after the last epoch) to a server that answers with these statuses, one for each
    /// connection.
    fn write_to(statuses: &[u16], patience: Duration) -> Result<(), String> {
        let body = object::body(LOCK_0, 0, 7, Some((1, 42)));
        let respond = |status: &u16| format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let (port, server) = serve(statuses.iter().map(|status| respond(status).into_bytes()).collect());
        let written = write_sentinel(&Gate::new(vec![port], Duration::from_secs(10), 1), 7, LOCK_0, patience);
        server.join().expect("all requests were answered");
        written
    }

    #[test]
    fn a_refused_sentinel_is_repeated_and_then_reported() {
        assert_eq!(write_to(&[404, 503, 404, 201], SENTINEL_MAX), Ok(()));
        assert_eq!(write_to(&[200], Duration::ZERO), Ok(()));
        let told = write_to(&[404, 507], Duration::ZERO).expect_err("a refusal");
        assert!(told.contains("[NotFound, Refused(507)]"), "{told}");
    }
}
