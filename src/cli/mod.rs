//! Command lines. [`Args`] is the command line of the server. All programs of this workspace use the functions of this
//! module.
//!
//! Each error is one line, so that it is easy to find in the log of a supervisor such as systemd.

mod api_service;
mod args;
mod checks;
mod cluster_etcd;
mod documents;
mod etcd;
mod offline;
mod switch;
#[cfg(test)]
mod tests;

pub(crate) use api_service::{API_SERVICE, read_api_service};
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

/// Exit status of a program with a wrong command line.
pub const USAGE: u8 = 2;

/// The reason why the program does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `--help` or `--version`: text for standard output, exit status 0.
    Information(String),
    /// A wrong command line: one line for standard error, without the line feed, exit status 2.
    Wrong(String),
}

/// Parses the command line of a program of this workspace other than the server. `T` defines its flags. Writes help and
/// version to standard output, and an error as one line to standard error.
///
/// # Errors
/// The exit status after help, version or an error.
pub fn parse_for<T: Parser>(program: &str) -> Result<T, ExitCode> {
    T::try_parse().map_err(|error| {
        if error.use_stderr() {
            _ = writeln!(io::stderr(), "{program}: {}", wrong_usage(&error));
            ExitCode::from(USAGE)
        } else {
            // It is no failure if the reader of standard output has closed the pipe.
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

/// Returns the message as one line. White space becomes one blank. Other control characters, which user input may
/// contain, are escaped.
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
