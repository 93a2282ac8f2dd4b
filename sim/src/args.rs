//! The command line of the simulator.

use clap::Parser;
use sim::run::Options;
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

    #[command(flatten)]
    pub(crate) options: Options,

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
