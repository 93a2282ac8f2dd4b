//! A load generator that simulates the Leases of a large Kubernetes cluster against an API server. It checks all
//! responses and events against the guarantees of the API.
//!
//! The program has one thread and one mio poll, which the [`reactor`] owns. There are two kinds of load: the simulated
//! nodes ([`simulation`]), and a bench ([`mod@bench`]), which repeats one kind of request with fewer checks. [`driver`]
//! runs the event loop of either load. In the simulation, [`rota`] decides which node renews or reads its Lease next.
//! [`fleet`] builds the requests of all nodes and interprets the responses. [`check`] checks the invariants of the API.
//! A [`lane`] is a connection for the requests of several nodes, and a [`watch_lane`] is a connection for watches. Both
//! use a [`link`], which opens the connection and opens it again after a failure. [`http`] implements the client's side
//! of HTTP/1.1 and HTTP/2. [`node`], [`object`], [`schedule`], [`watcher`] and [`check`] use neither sockets nor the
//! clock, so their tests run in memory.
//!
//! Both kinds of load record their latencies and errors in a [`recorder`]. A [`timeline`] divides the run into seconds,
//! for the [`progress`] line and the time [`series`]. The HTML report ([`html`]) and the percentile distributions
//! ([`hgrm`]) show the [`summary`] of a run.

mod args;
mod bench;
mod check;
mod connection;
mod driver;
mod error_kind;
mod figures;
mod flags;
mod fleet;
mod hgrm;
mod html;
mod http;
mod kubeconfig;
mod lane;
mod latencies;
mod link;
mod node;
mod object;
mod operation;
mod origin;
mod outputs;
mod probe;
mod progress;
mod reactor;
mod recorder;
mod report;
mod ring;
mod rota;
mod schedule;
mod series;
mod simulation;
mod span;
mod stage;
mod stats;
mod summary;
mod target;
mod time_text;
mod timeline;
mod usage;
mod wake;
mod watch_lane;
mod watcher;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod run_tests;

use args::{Args, Command};
use bench::Bench;
use coordination_apiserver::cli::{USAGE, one_line, parse_for};
use driver::{Driver, Workload};
use flags::Output;
use origin::MediaType;
use outputs::Outputs;
use simulation::Simulation;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use summary::Outcome;
use target::Target;

fn main() -> ExitCode {
    let args: Args = match parse_for("loadgen") {
        Ok(args) => args,
        Err(status) => return status,
    };
    match run(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Stop::Usage(words)) => {
            complain(&words);
            ExitCode::from(USAGE)
        }
        Err(Stop::Failed(words)) => {
            complain(&words);
            ExitCode::FAILURE
        }
    }
}

/// Why the load could not run, or why its results could not be written, as a sentence for the user.
enum Stop {
    /// The command line names something that is missing or wrong. The exit status is 2.
    Usage(String),
    /// Any other reason. The exit status is 1.
    Failed(String),
}

/// Runs the load and prints the results. Returns true if the run reached its measured time, and had no errors and no
/// violations.
fn run(args: Args) -> Result<bool, Stop> {
    // The first SIGINT (Ctrl-C) or SIGTERM ends the run and prints its results. The second one ends the program at
    // once, without results.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, interrupted.clone())
            .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
            .map_err(|e| Stop::Failed(format!("cannot handle signals: {e}")))?;
    }
    match args.command {
        None => {
            args.check().map_err(Stop::Usage)?;
            let targets = Target::of_args(&args.server, MediaType::Json).map_err(Stop::Usage)?;
            drive::<Simulation>(args, targets, interrupted)
        }
        Some(Command::Bench(args)) => {
            args.check().and_then(|()| args.told.check()).map_err(Stop::Usage)?;
            let target = Target::only_of_args(&args.server, args.media_type()).map_err(Stop::Usage)?;
            drive::<Bench>(*args, vec![target], interrupted)
        }
    }
}

/// Runs a load with valid flags, and prints the results. Returns true if the run reached its measured time, and had no
/// errors and no violations.
fn drive<W: Workload>(args: W::Args, targets: Vec<Target>, interrupted: Arc<AtomicBool>) -> Result<bool, Stop> {
    let form = W::told(&args).output;
    let (outputs, timeline) = Outputs::open(W::told(&args)).map_err(Stop::Usage)?;
    allow_descriptors(W::spread(&args, targets.len()).len() as u64);
    let results = Driver::<W>::new(args, targets, interrupted, timeline).and_then(Driver::run).map_err(Stop::Failed)?;
    tell(&results, form, outputs)
}

/// Prints the results of the run and writes the files of results. Returns true if the run reached its measured time,
/// and had no errors and no violations. Fails if the results cannot be printed, or a file cannot be written.
fn tell(outcome: &impl Outcome, form: Output, mut outputs: Outputs) -> Result<bool, Stop> {
    let summary = outcome.summary();
    let printed = print(form, || outcome.table(), || outcome.json_line());
    if !summary.is_measured() {
        complain(UNMEASURED);
    }
    outputs.write(&summary, &outcome.json_line()).map_err(Stop::Failed)?;
    printed?;
    Ok(outcome.is_fine())
}

/// Prints the results to standard output as a table or as a line of JSON. A closed pipe is no failure.
fn print(output: Output, table: impl Fn() -> String, json_line: impl Fn() -> String) -> Result<(), Stop> {
    let mut stdout = std::io::stdout();
    let printed = match output {
        Output::Json => writeln!(stdout, "{}", json_line()),
        Output::Table => stdout.write_all(table().as_bytes()),
    };
    match printed.and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Stop::Failed(format!("cannot print the results: {e}")))
        }
        _ => Ok(()),
    }
}

/// Message for a run that the user interrupted before its measured time.
const UNMEASURED: &str = "nothing was measured: the run was interrupted before its measured time";

fn complain(words: &str) {
    _ = writeln!(std::io::stderr(), "loadgen: {}", one_line(words));
}

/// Raises the process's limit on open files to a little more than this number of sockets, as far as the system allows.
/// If the limit stays too low, opening a socket fails with the system's error.
fn allow_descriptors(sockets: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = sockets + 64;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |maximum| wanted.min(maximum)));
        _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum });
    }
}
