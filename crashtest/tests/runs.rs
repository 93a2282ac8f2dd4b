//! Short runs of crashtest with real processes: a correct server has no violation, and violations of a faulty server
//! are found.
//!
//! The tests need the program coordination-apiserver in the same folder as crashtest. `cargo test --workspace` builds
//! it; `cargo test -p crashtest` alone does not. Without that program, the tests print a message and test nothing.

#![allow(clippy::print_stderr, reason = "a test that does nothing must say so")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs crashtest with these flags. Returns `None` if coordination-apiserver is not built.
fn run(flags: &[&str]) -> Option<Output> {
    let program = Path::new(env!("CARGO_BIN_EXE_crashtest"));
    let server = program.with_file_name("coordination-apiserver");
    if !server.is_file() {
        eprintln!("nothing is tested: {} is not built", server.display());
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("run");
    let mut command = Command::new(program);
    command.args(["--operations=6000", "--kills=2", "--clients=16", "--seed=5", "--quiet"]).args(flags);
    Some(command.arg("--data-dir").arg(data).output().expect("the program runs"))
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
fn a_server_with_an_older_journal_is_detected() {
    let Some(output) = run(&["--cheat=lose-journal"]) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("Lost: "), "{}", text(&output));
}

#[test]
fn a_server_without_a_store_is_detected() {
    let Some(output) = run(&["--cheat=memory"]) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("Lost: "), "{}", text(&output));
}

#[test]
fn wrong_flags_are_reported_in_one_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_crashtest")).arg("--kils=3").output().expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output).lines().count(), 1, "{}", text(&output));
}
