//! Command lines: [`Args`] is the server's, and the rest is what all programs of this workspace do with theirs.
//!
//! Whatever is wrong with one is told in one line, so that it can be found in the log of a supervisor.

mod args;
mod cluster_etcd;
mod documents;
mod etcd;
mod offline;
mod switch;

pub use args::{Args, Command, StorageKind};
use clap::Parser;
pub use documents::{completion, manual};
pub use offline::{DurableKind, InspectArgs, MigrateArgs};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
pub use switch::{RollbackArgs, SwitchArgs, TakeoverArgs};

/// Name of the server, as it stands before its messages.
pub const PROGRAM: &str = "coordination-apiserver";

/// Exit status of wrong usage.
pub const USAGE: u8 = 2;

/// Why the program does not start: what the command line says is to be printed, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `--help` or `--version`: text for standard output, exit status 0.
    Information(String),
    /// A wrong command line: one line for standard error, without its end, exit status 2.
    Wrong(String),
}

/// The command line of another program of this workspace, by `T`. If there is nothing to be done, the exit status with
/// which it ends: help and version have gone to standard output, and what is wrong to standard error, in one line.
///
/// # Errors
/// That status.
pub fn parse_for<T: Parser>(program: &str) -> Result<T, ExitCode> {
    T::try_parse().map_err(|error| {
        if error.use_stderr() {
            _ = writeln!(io::stderr(), "{program}: {}", wrong_usage(&error));
            ExitCode::from(USAGE)
        } else {
            // A reader that has gone away is no reason to fail.
            _ = error.print();
            ExitCode::SUCCESS
        }
    })
}

/// What clap says of a wrong command line, in several paragraphs, as one line: what is wrong and its tips, without the
/// usage.
#[must_use]
pub fn wrong_usage(error: &clap::Error) -> String {
    let message = error.render().to_string();
    let told = message.split("\n\nUsage:").next().unwrap_or(&message);
    let told = told.split("\n\nFor more information").next().unwrap_or(told);
    let told = told.strip_prefix("error: ").unwrap_or(told);
    told.split("\n\n").map(one_line).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The message with every run of white space as one blank, and other control characters (a user's words may have
/// them) escaped.
#[must_use]
pub fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for (at, word) in message.split_whitespace().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        for c in word.chars() {
            if c.is_control() {
                _ = write!(line, "{}", c.escape_default());
            } else {
                line.push(c);
            }
        }
    }
    line
}
