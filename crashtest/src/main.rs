//! Kills the real server repeatedly under full write load, and checks that no acknowledged write is lost.
//!
//! ```text
//!   plan ──► run ──► process      starts and kills the server
//!             ├────► replicas     starts several servers with etcd and proxies, and causes faults
//!             ├────► client   ─┐  writes and reads through http; request encodes and decodes
//!             ├────► watcher  ─┤  watches and resumes
//!             └────► audit     └─► history ──► checker
//! ```
//!
//! [`history`] defines the records of a run, [`gate`] the state that clients share, and [`fault`] the kinds of faults.
//! [`checker`] uses neither sockets nor the clock.

#![forbid(unsafe_code)]

mod args;
mod audit;
mod cheat;
mod checker;
mod client;
mod etcd;
mod fault;
mod gate;
mod history;
mod http;
mod object;
mod plan;
mod process;
mod progress;
mod proxy;
mod replicas;
mod request;
mod run;
mod summary;
mod watcher;

use args::Args;
use coordination_apiserver::cli::{PROGRAM, USAGE, one_line, parse_for};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let args: Args = match parse_for("crashtest") {
        Ok(args) => args,
        Err(status) => return status,
    };
    if let Err(words) = args.check() {
        complain(&words);
        return ExitCode::from(USAGE);
    }
    match run(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(words) => {
            complain(&words);
            ExitCode::FAILURE
        }
    }
}

/// Runs the test and prints the report. Returns true if the run did not end early and has no violation.
fn run(args: Args) -> Result<bool, String> {
    // The first Ctrl-C ends the run and prints its results. The second Ctrl-C ends the program at once, without
    // results.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, interrupted.clone())
            .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
            .map_err(|e| format!("cannot handle signals: {e}"))?;
    }
    let server = match &args.server {
        Some(file) => file.clone(),
        None => beside_this_program()?,
    };
    let told = |e: std::io::Error| format!("cannot create a folder: {e}");
    let temporary = match &args.data_dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(told)?;
            None
        }
        None => Some(tempfile::tempdir().map_err(told)?),
    };
    let folder = args.data_dir.clone().or_else(|| Some(temporary.as_ref()?.path().to_owned())).unwrap_or_default();
    let summary = match run::run(args, &server, &folder, interrupted) {
        Ok(summary) => summary,
        Err(why) => {
            let evidence = temporary.map(|folder| format!("; evidence: {}", folder.keep().display()));
            return Err(why + &evidence.unwrap_or_default());
        }
    };
    let mut text = summary.text();
    if let Some(temporary) = temporary
        && !summary.violations.is_empty()
    {
        text.push_str(&format!("{:14} {}\n", "evidence", temporary.keep().display()));
    }
    // A closed standard output is not a failure.
    _ = std::io::stdout().write_all(text.as_bytes());
    Ok(summary.is_fine())
}

fn beside_this_program() -> Result<PathBuf, String> {
    let file = std::env::current_exe().map_err(|e| e.to_string())?.with_file_name(PROGRAM);
    if file.is_file() { Ok(file) } else { Err(format!("{}: not built; build it or use --server", file.display())) }
}

fn complain(words: &str) {
    _ = writeln!(std::io::stderr(), "crashtest: {}", one_line(words));
}
