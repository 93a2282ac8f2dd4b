//! The command line of crashtest.

use crate::fault::Fault;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Kills the server with SIGKILL under full write load, starts it again, and checks that no acknowledged write is lost.
///
/// Many clients write and read through real connections, and watchers resume their watches after each kill. A checker
/// examines all answers and events. Leases must be linearizable; no write may be lost or invented, and no event missed
/// or repeated.
///
/// Exit status: 0 no violation; 1 violations, or the run failed or ended early; 2 wrong usage.
#[derive(Clone, Debug, Parser)]
#[command(name = "crashtest", version, max_term_width = 120)]
pub(crate) struct Args {
    /// Number of operations of all clients
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    pub(crate) operations: u64,

    /// Number of kills of the server
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) kills: u32,

    /// Number of clients, each with one connection
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    pub(crate) clients: u32,

    /// Number of Leases in the namespace of the nodes [default: one for each 50 operations, at most 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) leases: Option<u32>,

    /// Number of events in the server's watch window, from which watches resume; with fewer events the server takes
    /// more snapshots
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    pub(crate) watch_window_events: u32,

    /// Seed of the operations and of the moments of the kills [default: a random one]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Folder for the store and the log of the server. The folder must be empty or missing, and is kept after the run
    /// [default: a temporary folder, kept if there are violations]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Server program [default: the one that was built with this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,

    /// Sometimes also stops the server cleanly with SIGTERM; the server must exit with status 0
    #[arg(long)]
    pub(crate) faults: bool,

    /// Number of servers that share an etcd, instead of one server with a disk; faults of all kinds replace the kills
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=16))]
    pub(crate) replicas: u32,

    /// With --replicas: number of etcd members
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=7))]
    pub(crate) etcd_members: u32,

    /// With --replicas: etcd program [default: `etcd` in the PATH]
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd: Option<PathBuf>,

    /// With --replicas: faults of this kind only
    #[arg(long, value_name = "KIND", value_enum, requires = "replicas")]
    pub(crate) only: Option<Fault>,

    /// Hides the progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Makes the server lose acknowledged writes, to test the checker
    #[arg(long, value_name = "KIND", value_enum, hide = true)]
    pub(crate) cheat: Option<Cheat>,
}

/// A way to make the server lose acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cheat {
    /// While the server is down, its store is replaced by an older copy.
    LoseJournal,
    /// The server stores Leases in memory only, so each kill loses them.
    Memory,
}

impl Args {
    /// Returns the number of Leases in the namespace of the nodes.
    pub(crate) fn node_leases(&self) -> u32 {
        self.leases.unwrap_or_else(|| u32::try_from(self.operations / 50).unwrap_or(u32::MAX).min(20_000)).max(1)
    }

    /// Checks the combinations that clap does not check.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.replicas == 0 && u64::from(self.kills) * OPERATIONS_PER_KILL_MIN > self.operations {
            return Err(format!(
                "--kills {} needs --operations {} or more: {OPERATIONS_PER_KILL_MIN} for each kill",
                self.kills,
                u64::from(self.kills) * OPERATIONS_PER_KILL_MIN
            ));
        }
        if let Some(server) = &self.server
            && !server.is_file()
        {
            return Err(format!("--server {}: not a file", server.display()));
        }
        let Some(dir) = &self.data_dir else { return Ok(()) };
        match std::fs::read_dir(dir) {
            Ok(mut entries) => match entries.next() {
                None => Ok(()),
                Some(_) => Err(format!("--data-dir {}: not empty", dir.display())),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(format!("--data-dir {}: {e}", dir.display())),
        }
    }
}

/// Minimum number of operations for each kill. With fewer operations, a kill could come without any load.
const OPERATIONS_PER_KILL_MIN: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(words: &[&str]) -> Args {
        Args::try_parse_from(["crashtest"].iter().chain(words)).expect("a command line")
    }

    #[test]
    fn the_command_is_consistent() {
        Args::command().debug_assert();
        assert_eq!(parse(&[]).node_leases(), 20_000);
        assert!(parse(&[]).check().is_ok());
    }

    #[test]
    fn conflicting_flags_are_reported() {
        let told = parse(&["--operations=1000", "--kills=50"]).check().expect_err("too few operations");
        assert!(told.contains("--operations 10000"), "{told}");
        let folder = tempfile::tempdir().expect("a folder");
        let flag = format!("--data-dir={}", folder.path().display());
        assert!(parse(&[&flag]).check().is_ok());
        std::fs::write(folder.path().join("x"), "").expect("a file");
        assert!(parse(&[&flag]).check().expect_err("a file in it").contains("not empty"));
        assert!(parse(&["--server=/nowhere/server"]).check().is_err());
        assert!(Args::try_parse_from(["crashtest", "--only=replica-killed"]).is_err());
        assert_eq!(parse(&["--replicas=3", "--only=replica-killed"]).only, Some(Fault::ReplicaKilled));
    }
}
