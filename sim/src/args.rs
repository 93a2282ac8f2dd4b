//! The command line.

use clap::Parser;
use sim::device::FailedSyncs;
use std::ops::RangeInclusive;

/// Simulates servers with their clients, a disk or etcd, and the faults of all, in virtual time.
///
/// A seed gives one run, and always the same one. Exit status: 0 all seeds are clean (or the bug was found); 1 some are
/// not (or the bug was not found); 2 wrong usage.
#[derive(Clone, Debug, Parser)]
#[command(name = "sim", version, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// Runs these seeds, the last one included
    #[arg(long, value_name = "FIRST..LAST", default_value = "1..500", value_parser = parse_range)]
    pub(crate) seeds: RangeInclusive<u64>,

    /// Runs one seed
    #[arg(long, conflicts_with = "seeds")]
    pub(crate) seed: Option<u64>,

    /// Prints the log of the run: virtual time, who, what
    #[arg(long, requires = "seed")]
    pub(crate) log: bool,

    /// Runs with a deliberate bug, until a seed finds it
    #[arg(long, value_name = "NAME", value_parser = parse_bug)]
    pub(crate) bug: Option<sim::bugs::Bug>,

    /// What becomes of the page cache when a sync fails: it stays dirty (kept); it counts as clean, as on Linux
    /// (forgotten); the same, and a start drops it before it reads (cold)
    #[arg(long, value_name = "kept|forgotten|cold", default_value = "kept", value_parser = parse_failed_syncs)]
    pub(crate) failed_syncs: FailedSyncs,

    /// One server with a disk, or 1 to 5 replicas over etcd [default: a disk for odd seeds, etcd for even ones]
    #[arg(long, value_name = "disk|etcd", value_parser = ["disk", "etcd"])]
    pub(crate) storage: Option<String>,

    /// Replicas run on while etcd is restored from a backup, which no operator should let them: some seeds fail
    #[arg(long)]
    pub(crate) restores_live: bool,

    /// Prints the deliberate bugs
    #[arg(long, exclusive = true)]
    pub(crate) list_bugs: bool,
}

fn parse_range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let wrong = || format!("{text:?} is no range such as 1..500");
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| wrong());
    let range = number(first)?..=number(last)?;
    if range.is_empty() { Err(wrong()) } else { Ok(range) }
}

fn parse_failed_syncs(name: &str) -> Result<FailedSyncs, String> {
    match name {
        "kept" => Ok(FailedSyncs::Kept),
        "forgotten" => Ok(FailedSyncs::Forgotten),
        "cold" => Ok(FailedSyncs::ForgottenAndCold),
        _ => Err("the page cache is kept, forgotten or cold".to_owned()),
    }
}

fn parse_bug(name: &str) -> Result<sim::bugs::Bug, String> {
    sim::bugs::Bug::named(name).ok_or_else(|| format!("there is no bug {name:?}; --list-bugs shows them"))
}
