//! Short runs of crashtest with real processes: a correct server has no violation, and violations of a faulty server
//! are found.
//!
//! The tests need the program coordination-apiserver in the same folder as crashtest. `cargo build --release` builds
//! this program. Then `cargo test -p crashtest --release --test runs` runs the tests. `cargo test --workspace` skips
//! them. Without the program, the tests print a message and test nothing.

#![allow(clippy::print_stderr, reason = "a test that does nothing must say so")]

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Returns the command of a run with its files in `data`. Returns `None` if coordination-apiserver is not built.
fn command(data: &Path) -> Option<Command> {
    let program = Path::new(env!("CARGO_BIN_EXE_crashtest"));
    let server = program.with_file_name("coordination-apiserver");
    if !server.is_file() {
        eprintln!("nothing is tested: {} is not built", server.display());
        return None;
    }
    let mut command = Command::new(program);
    command.args(["--clients=16", "--seed=5", "--quiet", "--data-dir"]).arg(data);
    Some(command)
}

/// Makes a short run with these flags.
fn run(flags: &[&str]) -> Option<Output> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = command(&folder.path().join("run"))?;
    Some(command.args(["--operations=6000", "--kills=2"]).args(flags).output().expect("the program runs"))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_correct_server_has_no_violation() {
    let Some(output) = run(&["--faults"]) else { return };
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_server_with_an_older_journal_or_without_a_store_is_detected() {
    for cheat in ["--cheat=lose-journal", "--cheat=memory"] {
        let Some(output) = run(&[cheat]) else { return };
        assert_eq!(output.status.code(), Some(1), "{cheat}: {}", text(&output));
        assert!(text(&output).contains("Lost: "), "{cheat}: {}", text(&output));
    }
}

#[test]
fn an_interrupted_run_fails_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("run");
    let Some(mut command) = command(&data) else { return };
    command.args(["--operations=100000000", "--kills=1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program runs");
    // A new journal is far smaller. So a journal of this size contains writes of clients, and the run is under way.
    let begun = Instant::now();
    let is_small = || std::fs::metadata(data.join("data/journal.redb")).map_or(0, |file| file.len()) < 2_000_000;
    while is_small() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("the program runs");
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("ended early"), "{}", text(&output));
    assert!(!text(&output).contains("Server: "), "{}", text(&output));
}

#[test]
fn wrong_flags_are_reported_in_one_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_crashtest")).arg("--kils=3").output().expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output).lines().count(), 1, "{}", text(&output));
}
