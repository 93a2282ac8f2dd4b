//! Command lines: [`Args`] is that of the server. The functions of this module serve all programs of this workspace.
//!
//! An error is one line, so that it is easy to find in a supervisor's log.

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

/// Name of the server, as a prefix of its messages.
pub const PROGRAM: &str = "coordination-apiserver";

/// Exit status for a wrong command line.
pub const USAGE: u8 = 2;

/// Why the program does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `--help` or `--version`: text for standard output, exit status 0.
    Information(String),
    /// A wrong command line: one line for standard error, without the line feed, exit status 2.
    Wrong(String),
}

/// Parses the command line of another program of this workspace with `T`. Help and version go to standard output, and
/// errors to standard error, in one line.
///
/// # Errors
/// The exit status after help, version or an error.
pub fn parse_for<T: Parser>(program: &str) -> Result<T, ExitCode> {
    T::try_parse().map_err(|error| {
        if error.use_stderr() {
            _ = writeln!(io::stderr(), "{program}: {}", wrong_usage(&error));
            ExitCode::from(USAGE)
        } else {
            // A closed pipe is not a failure.
            _ = error.print();
            ExitCode::SUCCESS
        }
    })
}

/// Returns clap's error as one line: the error and its tips, without the usage.
#[must_use]
pub fn wrong_usage(error: &clap::Error) -> String {
    let message = error.render().to_string();
    let told = message.split("\n\nUsage:").next().unwrap_or(&message);
    let told = told.split("\n\nFor more information").next().unwrap_or(told);
    let told = told.strip_prefix("error: ").unwrap_or(told);
    told.split("\n\n").map(one_line).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Returns the message on one line: white space becomes one blank, and other control characters, which user input may
/// have, are escaped.
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
