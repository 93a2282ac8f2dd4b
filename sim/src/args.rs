//! The command line of the simulator.

use clap::Parser;
use sim::device::FailedSyncs;
use std::ops::RangeInclusive;

/// Simulates Lease servers in virtual time, with their clients, a disk or etcd, and faults.
///
/// A seed, which is a number, determines the whole run. Exit status: 0 if no seed failed, or a seed found the
/// deliberate bug of --bug; 1 if a seed failed, or no seed found the bug; 2 for wrong usage.
#[derive(Clone, Debug, Parser)]
#[command(name = "sim", version, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// Runs these seeds, including FIRST and LAST
    #[arg(long, value_name = "FIRST..LAST", default_value = "1..500", value_parser = parse_range)]
    pub(crate) seeds: RangeInclusive<u64>,

    /// Runs one seed
    #[arg(long, conflicts_with = "seeds")]
    pub(crate) seed: Option<u64>,

    /// Prints the log of the run. Each line has the virtual time, the actor and the action
    #[arg(long, requires = "seed")]
    pub(crate) log: bool,

    /// Runs seeds with a deliberate bug in the server until a seed finds the bug
    #[arg(long, value_name = "NAME", value_parser = parse_bug)]
    pub(crate) bug: Option<sim::bugs::Bug>,

    /// State of the page cache after a failed sync: pages stay dirty (kept), pages are marked clean as on Linux
    /// (forgotten), or they are marked clean and dropped at the next start of the server (cold). With `forgotten` some
    /// seeds fail: a server that does not drop the pages builds on pages that the next power cut loses
    #[arg(long, value_name = "kept|forgotten|cold", default_value = "kept", value_parser = parse_failed_syncs)]
    pub(crate) failed_syncs: FailedSyncs,

    /// One server with a disk, or 1 to 5 replicas over etcd [default: a disk for odd seeds, etcd for even ones]
    #[arg(long, value_name = "disk|etcd", value_parser = ["disk", "etcd"])]
    pub(crate) storage: Option<String>,

    /// Lets replicas run while etcd is restored from a backup. Operators must stop all replicas first. So some seeds
    /// fail with this flag
    #[arg(long)]
    pub(crate) restores_live: bool,

    /// Prints the deliberate bugs
    #[arg(long, exclusive = true)]
    pub(crate) list_bugs: bool,
}

fn parse_range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let wrong = || format!("{text:?} is not a range such as 1..500");
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
        _ => Err("expected kept, forgotten or cold".to_owned()),
    }
}

fn parse_bug(name: &str) -> Result<sim::bugs::Bug, String> {
    sim::bugs::Bug::named(name).ok_or_else(|| format!("unknown bug {name:?}; --list-bugs prints all bugs"))
}
