//! The program `sim`: runs seeds, repeats one seed, or checks that deliberate bugs are found.

mod args;

use args::Args;
use clap::ValueEnum as _;
use coordination_apiserver::cli;
use sim::bugs::Bug;
use sim::run::{Options, Report, run};
use std::io::{self, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::panic;
use std::process::ExitCode;
use std::time::Instant;

/// Prefix of the program's messages.
const PROGRAM: &str = "sim";
/// Maximum number of complaints printed for one seed.
const COMPLAINTS_SHOWN: usize = 5;
/// Number of seeds between two progress lines.
const SEEDS_PER_LINE: u64 = 100;

fn main() -> ExitCode {
    let args: Args = match cli::parse_for(PROGRAM) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let mut out = Careless(io::stdout().lock());
    let done = if args.list_bugs { list_bugs(&mut out) } else { simulate(&args, &mut out) };
    done.unwrap_or(ExitCode::FAILURE)
}

/// An output whose errors are ignored. A closed standard output is not a failure, and must not hide that a seed failed.
#[derive(Debug)]
struct Careless<W>(W);

impl<W: Write> Write for Careless<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        _ = self.0.flush();
        Ok(())
    }
}

fn list_bugs(out: &mut impl Write) -> io::Result<ExitCode> {
    for bug in Bug::value_variants().iter().filter_map(Bug::to_possible_value) {
        writeln!(out, "{:<24} {}", bug.get_name(), bug.get_help().unwrap_or_default())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn simulate(args: &Args, out: &mut impl Write) -> io::Result<ExitCode> {
    let options = args.options;
    if options.log {
        let report = run(args.seed.unwrap_or_default(), options);
        out.write_all(report.log.as_bytes())?;
        // A run with a deliberate bug succeeds if it finds the bug.
        return Ok(status(report.complaints.is_empty() != options.bug.is_some()));
    }
    // A panic in a run becomes a complaint of the run's seed, so the panic hook prints nothing.
    panic::set_hook(Box::new(|_| {}));
    let seeds = args.seed.map_or_else(|| args.seeds.clone(), |seed| seed..=seed);
    match options.bug {
        Some(_) => find(options, seeds, out),
        None => check(options, seeds, out),
    }
}

/// Runs seeds until a seed finds the deliberate bug.
fn find(options: Options, seeds: RangeInclusive<u64>, out: &mut impl Write) -> io::Result<ExitCode> {
    for (count, seed) in (1..).zip(seeds.clone()) {
        let report = run(seed, options);
        if let Some(complaint) = report.complaints.first() {
            writeln!(out, "found by seed {seed}, number {count} of those tried: {complaint}")?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    writeln!(out, "not found by the seeds {} to {}", seeds.start(), seeds.end())?;
    Ok(ExitCode::FAILURE)
}

fn check(options: Options, seeds: RangeInclusive<u64>, out: &mut impl Write) -> io::Result<ExitCode> {
    let begun = Instant::now();
    let mut total = Report::default();
    let mut failed = Vec::new();
    let count = u128::from(seeds.end() - seeds.start()) + 1;
    let shows_progress = io::stderr().is_terminal();
    for (done, seed) in (1..).zip(seeds) {
        let report = run(seed, options);
        if !report.complaints.is_empty() {
            failed.push(seed);
            writeln!(out, "seed {seed} failed; --seed {seed} --log shows how")?;
            for complaint in report.complaints.iter().take(COMPLAINTS_SHOWN) {
                writeln!(out, "    {complaint}")?;
            }
            let more = report.complaints.len().saturating_sub(COMPLAINTS_SHOWN);
            if more > 0 {
                writeln!(out, "    and {more} more")?;
            }
        }
        total.add(&report);
        if shows_progress && done % SEEDS_PER_LINE == 0 {
            write!(io::stderr(), "\r{done} of {count} seeds, {} failed ", failed.len())?;
        }
    }
    if shows_progress {
        writeln!(io::stderr())?;
    }
    writeln!(
        out,
        "{count} seeds in {:.1} s, {} failed: {} requests, {} events",
        begun.elapsed().as_secs_f64(),
        failed.len(),
        total.requests,
        total.events,
    )?;
    for (what, times) in &total.counts {
        writeln!(out, "    {what:<24} {times:>9}")?;
    }
    if !failed.is_empty() {
        writeln!(out, "failed: {}", failed.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))?;
    }
    Ok(status(failed.is_empty()))
}

fn status(is_success: bool) -> ExitCode {
    if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    /// A standard output whose reader has closed the pipe.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_closed_output_hides_no_failure() {
        let mut out = Careless(Closed);
        // The range is empty, so no seed finds a bug.
        let none = RangeInclusive::new(2, 1);
        let status = find(Options::default(), none, &mut out).expect("errors of the output are ignored");
        assert_eq!(status, ExitCode::FAILURE);
        assert!(out.flush().is_ok());
    }

    /// The server has a disk, so a deliberate bug of etcd has no effect.
    #[test]
    fn a_logged_run_that_misses_its_bug_fails() {
        let words = "sim --seed 1 --log --storage disk --bug gap-not-noticed";
        let args = Args::try_parse_from(words.split(' ')).expect("valid");
        let mut out = Vec::new();
        assert_eq!(simulate(&args, &mut out).expect("a vector takes all bytes"), ExitCode::FAILURE);
        assert!(!out.is_empty(), "the log is printed");
    }
}
