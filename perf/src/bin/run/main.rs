//! Measures the server under load, and reports the processor time and latency of each kind of request. Server and load
//! have a core each, or share both cores.
//!
//! [`scenario`] defines the scenarios, and [`mod@bench`] measures them. [`lab`] starts servers and loads.
//! [`measurement`] turns the loads' results into measurements and a table. [`perf::results`] defines the format of the
//! results files. Each round measures every scenario once, so that changes of the machine's speed affect all scenarios
//! alike. The table shows medians over the rounds.

#![forbid(unsafe_code)]

mod bench;
mod lab;
mod machine;
mod measurement;
mod process;
mod scenario;
mod sleeper;
mod syncer;
mod turns;

use bench::Bench;
use clap::Parser;
use coordination_apiserver::cli::{USAGE, parse_for};
use lab::{Lab, Stop};
use measurement::{Table, Told};
use perf::results::{Context, Line, Measurement};
use perf::{ALL_OURS, OURS, OURS_ON_DISK, OURS_OVER_ETCD};
use process::without_place;
use scenario::{FLOORS, Scenario};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Measures the server on one core under load from another core. In scenarios whose names end with -together, server
/// and load share both cores.
///
/// For each scenario, prints requests per second, latencies, the server's processor time for each request, the server's
/// memory, and the limit: the process that used 95 % of a core or more. The processor time is from the kernel's
/// accounting. Appends one line of JSON for each measurement to perf/results/NAME.jsonl. An interrupted run prints what
/// it has measured.
///
/// Exit status: 0 for success; 1 if a scenario failed or had errors, or if the run was interrupted; 2 for wrong usage.
#[derive(Clone, Debug, Parser)]
#[command(name = "perf/run", version, max_term_width = 120)]
struct Args {
    /// Names of scenarios or of groups of scenarios, or the beginnings of names [default: all]
    scenarios: Vec<String>,

    /// Lists the scenarios and exits
    #[arg(long)]
    list: bool,

    /// Runs small scenarios briefly, as a test: the figures mean nothing
    #[arg(long)]
    quick: bool,

    /// Number of rounds [default: 3; with --quick or --record 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,

    /// Duration of each measurement (500ms, 2s); tables, stalls and nodes have their own durations [default: 2s; with
    /// --quick 300ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,

    /// Cores of the server and of the load [default: the first two that may be used]
    #[arg(long, value_name = "CORE,CORE", value_parser = parse_cores)]
    cores: Option<Cores>,

    /// First port on 127.0.0.1 that is tried for a server
    #[arg(long, value_name = "PORT", default_value_t = 29_440, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Server program to measure. Results name the commit of the work tree, not of this program [default: the
    /// coordination-apiserver that was built together with perf/run]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,

    /// Storages of the server: each scenario runs with each of them
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',', default_value = "memory,disk")]
    storage: Vec<Storage>,

    /// Number of replicas with --storage etcd. The first replica receives the load; with simulated nodes, all replicas
    /// receive load
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    replicas: u8,

    /// etcd program for --storage etcd
    #[arg(long, value_name = "FILE", default_value = "etcd")]
    etcd: PathBuf,

    /// Folder for the data folders of --storage disk and etcd, on the disk to be measured [default: the folder for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Another running server, whose renewals and reads are measured in the same rounds. The processes whose processor
    /// time counts follow the URL, for example kube-apiserver and etcd
    #[arg(long, value_name = "NAME=URL,PID[,PID...]", value_parser = parse_against)]
    against: Vec<Against>,

    /// Certificate authorities of the servers of --against, PEM
    #[arg(long, value_name = "FILE")]
    against_ca: Option<PathBuf>,

    /// Client certificate for the servers of --against, PEM
    #[arg(long, value_name = "FILE", requires = "against_key")]
    against_cert: Option<PathBuf>,

    /// Key of --against-cert, PEM
    #[arg(long, value_name = "FILE", requires = "against_cert")]
    against_key: Option<PathBuf>,

    /// Name of the results file in perf/results [default: the date and the commit; with --quick none]
    #[arg(long, value_name = "NAME", value_parser = parse_name, conflicts_with = "quick")]
    name: Option<String>,

    /// Records into this file, with perf(1), where the server spends its processor time in one round of one scenario.
    /// perf/flamegraph uses this flag
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rounds", "against"])]
    record: Option<PathBuf>,
}

/// The storage of the server's Leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Storage {
    /// On disk (`--storage disk`).
    Disk,
    /// In etcd, which several replicas share (`--storage etcd`).
    Etcd,
    /// In memory (`--storage memory`).
    Memory,
}

impl Storage {
    /// Returns the name of a server with this storage in the results.
    fn subject(self) -> &'static str {
        match self {
            Self::Disk => OURS_ON_DISK,
            Self::Etcd => OURS_OVER_ETCD,
            Self::Memory => OURS,
        }
    }
}

/// A server of `--against`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Against {
    name: String,
    url: String,
    pids: Vec<u32>,
}

/// Cores of server and load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cores {
    server: u32,
    load: u32,
}

impl Cores {
    /// Returns the first two cores that this process may use. If there is only one core, server and load share it.
    fn first() -> Self {
        let cores = machine::cores();
        let core = |place: usize| cores.get(place).or_else(|| cores.first()).copied().unwrap_or(0);
        Self { server: core(0), load: core(1) }
    }
}

fn parse_cores(text: &str) -> Result<Cores, String> {
    let pair = text.split_once(',').and_then(|(server, load)| Some((server.parse().ok()?, load.parse().ok()?)));
    let (server, load) = pair.ok_or("expected two cores, the server's and the load's, as in 0,1")?;
    let usable = machine::cores();
    match [server, load].into_iter().find(|core| !usable.contains(core)) {
        Some(core) => Err(format!("core {core} cannot be used; these can: {usable:?}")),
        None if server == load => Err("expected a core for the server and another one for the load".to_owned()),
        None => Ok(Cores { server, load }),
    }
}

/// Parses the name of a results file. The file must be in the folder of results.
fn parse_name(text: &str) -> Result<String, String> {
    let is_within = Path::new(text).components().all(|part| matches!(part, Component::Normal(_)));
    if text.is_empty() || text.ends_with('/') || !is_within {
        return Err("expected the name of a file in perf/results, without its extension".to_owned());
    }
    Ok(text.to_owned())
}

/// Limits of `--duration`. Shorter durations give no useful figure; longer durations are most likely a mistake.
const TIME_MIN: Duration = Duration::from_millis(100);
const TIME_MAX: Duration = Duration::from_secs(1_000);

fn parse_time(text: &str) -> Result<Duration, String> {
    let number = |unit| text.strip_suffix(unit).and_then(|number: &str| number.parse::<u64>().ok());
    let time = number("ms").map(Duration::from_millis).or_else(|| number("s").map(Duration::from_secs));
    let time = time.filter(|time| (TIME_MIN..=TIME_MAX).contains(time));
    time.ok_or_else(|| "a time is 100ms to 1000s, as in 500ms or 2s".to_owned())
}

fn parse_against(text: &str) -> Result<Against, String> {
    let wrong = || "a server is NAME=URL,PID[,PID...], as in go=https://127.0.0.1:6443,1234".to_owned();
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let mut parts = rest.split(',');
    let url = parts.next().unwrap_or_default();
    let pids: Result<Vec<u32>, _> = parts.map(str::parse).collect();
    let pids = pids.map_err(|_| wrong())?;
    let is_url = url.starts_with("http://") || url.starts_with("https://");
    if name.is_empty() || ALL_OURS.contains(&name) || !is_url || pids.is_empty() {
        return Err(wrong());
    }
    if let Some(pid) = loadgen_account::repeated(&pids) {
        return Err(format!("process {pid} is named twice"));
    }
    Ok(Against { name: name.to_owned(), url: url.to_owned(), pids })
}

fn main() -> ExitCode {
    let args: Args = match parse_for("perf/run") {
        Ok(args) => args,
        Err(status) => return status,
    };
    let all = scenario::all(args.quick);
    if args.list {
        for Scenario { group, name, about, .. } in &all {
            say(&format!("{group:<8} {name:<30} {about}"));
        }
        return ExitCode::SUCCESS;
    }
    for name in &args.scenarios {
        if !all.iter().any(|scenario| is_meant(&all, scenario, name)) {
            complain(&format!("unknown scenario {name:?}; --list prints all"));
            return ExitCode::from(USAGE);
        }
    }
    let meant = |scenario: &&Scenario| {
        args.scenarios.is_empty() || args.scenarios.iter().any(|name| is_meant(&all, scenario, name))
    };
    let scenarios: Vec<&Scenario> = all.iter().filter(meant).collect();
    if args.record.is_some()
        && let Err(words) = can_be_recorded(&scenarios)
    {
        complain(&words);
        return ExitCode::from(USAGE);
    }
    if let Some(server) = args.server.as_deref().filter(|server| !server.is_file()) {
        complain(&format!("no server program at {}", server.display()));
        return ExitCode::from(USAGE);
    }
    if let Err(words) = check_against(&args) {
        complain(&words);
        return ExitCode::from(USAGE);
    }
    match run(&args, &scenarios) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(words) => {
            complain(&words);
            ExitCode::FAILURE
        }
    }
}

/// Checks that the processes and files that `--against` and its related flags name exist.
fn check_against(args: &Args) -> Result<(), String> {
    for Against { name, pids, .. } in &args.against {
        if let Some(pid) = pids.iter().find(|&&pid| loadgen_account::cpu_ns(&[pid]).is_none()) {
            return Err(format!("--against {name}: there is no process {pid}, or its processor time is unknown"));
        }
    }
    for (flag, file) in [("ca", &args.against_ca), ("cert", &args.against_cert), ("key", &args.against_key)] {
        if let Some(file) = file.as_deref().filter(|file| !file.is_file()) {
            return Err(format!("--against-{flag}: there is no file {}", file.display()));
        }
    }
    Ok(())
}

/// Whether `name` on the command line means the scenario. `name` is the scenario's name or group, or else the beginning
/// of its name.
fn is_meant(all: &[Scenario], scenario: &Scenario, name: &str) -> bool {
    // A floor (a minimal server under the same load) says little without the scenario that is compared with it. So the
    // name `floor` means both for every floor, even if they are in another group.
    let is_of_floors = |scenario: &Scenario| {
        name == "floor" && FLOORS.iter().any(|&(ours, floor, _)| [ours, floor].contains(&scenario.name.as_str()))
    };
    let is_exact = |scenario: &Scenario| scenario.group == name || scenario.name == name || is_of_floors(scenario);
    is_exact(scenario) || (scenario.name.starts_with(name) && !all.iter().any(is_exact))
}

/// Checks that `scenarios` is a single scenario, and that perf(1) can record its server.
fn can_be_recorded(scenarios: &[&Scenario]) -> Result<(), String> {
    match scenarios {
        [one] if one.kind.can_be_recorded() => Ok(()),
        [one] => Err(format!("--record: perf cannot record the server of {}", one.name)),
        _ => Err(format!("--record takes one scenario, but {} match; --list prints their names", scenarios.len())),
    }
}

/// Runs the measurements. Returns whether all scenarios were measured without errors.
fn run(args: &Args, scenarios: &[&Scenario]) -> Result<bool, String> {
    // Servers and loads run in their own process groups, so signals of the terminal do not reach them. This program
    // must end them.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).map_err(|e| format!("cannot handle signals: {e}"))?;
    }
    let cores = args.cores.unwrap_or_else(Cores::first);
    let lab = Lab::new(args, cores, interrupted)?;
    let others = args.against.iter().map(|against| lab.other_server(against, args)).collect();
    let context = Context {
        at: OffsetDateTime::now_utc().unix_timestamp(),
        commit: machine::commit(),
        machine: machine::machine(),
        cores: Some([cores.server, cores.load]),
        run: std::env::args().skip(1).map(|word| without_place(&word)).collect::<Vec<_>>().join(" "),
        quick: args.quick,
    };
    let mut file = results_file(args, context.commit.id.as_deref().unwrap_or("unknown"))?;
    let mut bench = Bench::new(&lab, others)?;
    let mut table = Table::default();
    let (mut failed, mut missing) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let rounds = if args.quick || args.record.is_some() { 1 } else { 3 };
    'rounds: for round in 0..args.rounds.unwrap_or(rounds) {
        for scenario in scenarios {
            if scenario.is_once && round > 0 {
                continue;
            }
            let progress = format!("[{:>4} s] round {}: {}", began.elapsed().as_secs(), round + 1, scenario.name);
            _ = writeln!(std::io::stderr(), "{progress}");
            let mut measurements: Vec<Measurement> = Vec::new();
            let outcome = bench.run(scenario, |measurement| {
                // Two measurements may come from one run of the load generator, whose errors are printed only once.
                if measurements.last().is_none_or(|last| last.told != measurement.told) {
                    for words in Told::first_words(&measurement.told) {
                        complain(&format!("{}: {words}", measurement.scenario));
                    }
                }
                measurements.push(measurement);
            });
            // An interrupted scenario has not failed, and gives no results.
            if lab.is_interrupted() {
                break 'rounds;
            }
            for measurement in measurements {
                if let Some((path, file)) = &mut file {
                    let line = Line { round, context: context.clone(), measurement: measurement.clone() };
                    let written = serde_json::to_string(&line).map_err(std::io::Error::from);
                    let written = written.and_then(|line| writeln!(file, "{line}"));
                    written.map_err(|e| format!("{}: {e}", path.display()))?;
                }
                table.push(measurement);
            }
            match outcome {
                Ok(()) => {}
                Err(Stop::Missing(words)) => missing.push(format!("{} was NOT RUN: {words}", scenario.name)),
                Err(Stop::Failed(words)) => {
                    complain(&format!("{}: {words}", scenario.name));
                    failed.push(scenario.name.clone());
                }
            }
        }
    }
    say(&table.text());
    ratios(&table).iter().for_each(|words| say(words));
    if let Some((path, _)) = &file {
        say(&format!("results: {}", path.display()));
    }
    for list in [&mut failed, &mut missing] {
        list.sort_unstable();
        list.dedup();
    }
    missing.iter().for_each(|words| say(words));
    if !failed.is_empty() {
        say(&format!("failed: {}", failed.join(", ")));
    }
    if lab.is_interrupted() {
        complain("interrupted");
    }
    // A run that measured nothing has failed.
    Ok(failed.is_empty() && !table.is_empty() && table.errors() == 0 && !lab.is_interrupted())
}

/// Compares some scenarios with another scenario each, by the processor time for each request. The other scenario is a
/// floor (a minimal server under the same load), or `names-0`, which has no watchers. The figures are medians over the
/// rounds.
fn ratios(table: &Table) -> Vec<String> {
    let names = ["names-other", "names-own"].map(|beside| (beside, "names-0", OURS));
    FLOORS.into_iter().chain(names).filter_map(|(ours, floor, subject)| table.ratio(ours, (floor, subject))).collect()
}

/// Opens the results file; `None` if the run writes none.
fn results_file(args: &Args, commit: &str) -> Result<Option<(PathBuf, std::fs::File)>, String> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None if args.quick || args.record.is_some() => return Ok(None),
        None => format!("{}-{commit}", OffsetDateTime::now_utc().date()),
    };
    let path = Path::new("perf/results").join(format!("{name}.jsonl"));
    let file = std::fs::create_dir_all(path.parent().unwrap_or(&path))
        .and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(&path))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Some((path, file)))
}

/// Prints a line. A closed output is not an error.
fn say(text: &str) {
    _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

fn complain(text: &str) {
    _ = writeln!(std::io::stderr(), "perf/run: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn two_distinct_usable_cores_are_required() {
        let first = Cores::first();
        assert_eq!(parse_cores(&format!("{},{}", first.server, first.load)), Ok(first));
        for text in ["", "0", "0,", "x,0", "0,0,0", "0,0", "0,4000000000"] {
            assert!(parse_cores(text).is_err(), "{text}");
        }
    }

    #[test]
    fn another_server_and_its_files_must_exist() {
        let check = |words: &str| {
            let args = Args::try_parse_from(std::iter::once("perf/run").chain(words.split(' '))).expect("valid");
            check_against(&args)
        };
        let there = format!("--against go=http://127.0.0.1:1,{}", std::process::id());
        assert_eq!(check(&there), Ok(()));
        for (words, expected) in [
            (&format!("{there},4000000000"), "--against go: there is no process 4000000000"),
            (&format!("{there} --against-ca /nowhere/ca"), "--against-ca: there is no file /nowhere/ca"),
        ] {
            let told = check(words).expect_err(words);
            assert!(told.starts_with(expected), "{told}");
        }
    }

    #[test]
    fn another_server_has_a_name_a_url_and_processes() {
        let against = Against { name: "go".to_owned(), url: "https://127.0.0.1:6443".to_owned(), pids: vec![12, 34] };
        assert_eq!(parse_against("go=https://127.0.0.1:6443,12,34"), Ok(against));
        for text in
            ["", "go", "go=https://x", "=http://x,1", "go=x,1", "go=http://x,y", "go=http://x,1,2,1", "this=http://x,1"]
        {
            assert!(parse_against(text).is_err(), "{text}");
        }
    }

    #[test]
    fn results_stay_in_their_folder_and_quick_runs_keep_none() {
        let parse = |words: &[&str]| Args::try_parse_from([&["perf/run"], words].concat()).map(|args| args.name);
        assert_eq!(parse(&["--name", "guided/x-1"]).ok(), Some(Some("guided/x-1".to_owned())));
        for name in ["", "..", "../x", "/x", "guided/", "x/../../y"] {
            assert!(parse(&["--name", name]).is_err(), "{name}");
        }
        assert!(parse(&["--name", "x", "--quick"]).is_err());
    }

    #[test]
    fn a_first_port_is_not_zero() {
        let port = |text: &str| Args::try_parse_from(["perf/run", "--port", text]).map(|args| args.port);
        assert_eq!(port("1").ok(), Some(1));
        assert!(port("0").is_err() && port("65536").is_err());
    }

    #[test]
    fn scenarios_are_selected_by_name_group_or_prefix() {
        let all = scenario::all(false);
        let meant = |name: &str| -> Vec<&str> {
            all.iter()
                .filter(|scenario| is_meant(&all, scenario, name))
                .map(|scenario| scenario.name.as_str())
                .collect()
        };
        assert_eq!(meant("stalls"), ["stalls"]);
        assert_eq!(meant("fan-out-1"), ["fan-out-1"]);
        assert_eq!(meant("fan-out-10"), ["fan-out-10"]);
        assert_eq!(meant("table-1"), ["table-1000", "table-10000", "table-100000", "table-1000000"]);
        assert_eq!(meant("nodes-1000000"), ["nodes-1000000"]);
        assert!(meant("nothing").is_empty());
        let mut of_floors: Vec<&str> = FLOORS.into_iter().flat_map(|(ours, floor, _)| [ours, floor]).collect();
        let mut floor = meant("floor");
        of_floors.sort_unstable();
        floor.sort_unstable();
        assert_eq!(floor, of_floors);
    }

    #[test]
    fn only_one_scenario_with_load_from_loadgen_can_be_recorded() {
        let all = scenario::all(false);
        let outcome = |name: &str| {
            let meant: Vec<&Scenario> = all.iter().filter(|scenario| is_meant(&all, scenario, name)).collect();
            can_be_recorded(&meant)
        };
        for name in ["renew-json-http1-clear-64", "floor-echo-http1-clear-64", "table-1000", "stalls", "nodes-10000"] {
            assert_eq!(outcome(name), Ok(()), "{name}");
        }
        for name in ["renew", "floor-sleep-together", "floor-nghttpd-http2-tls-8x32", "nothing"] {
            assert!(outcome(name).is_err(), "{name}");
        }
        let parse = |more: &[&str]| Args::try_parse_from(["perf/run", "stalls", "--record", "file"].iter().chain(more));
        assert!(parse(&[]).is_ok() && parse(&["--rounds", "2"]).is_err());
    }

    #[test]
    fn scenario_names_are_unique() {
        for is_quick in [false, true] {
            let mut names: Vec<String> = scenario::all(is_quick).into_iter().map(|scenario| scenario.name).collect();
            let len = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), len);
        }
    }
}
