//! Runs the load generator against the real API server. The files of results must agree with the line of JSON results.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test speaks by panicking")]

use coordination_apiserver::server::{Config, Server, ShutdownHandle};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// An API server with Leases in memory, in a thread of this process. It stops when this value is dropped.
struct RunningServer {
    address: SocketAddr,
    shutdown: ShutdownHandle,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    fn start() -> Self {
        let (started, when_started) = mpsc::channel();
        let thread = thread::spawn(move || {
            let config = Config { insecure: Some((Ipv4Addr::LOCALHOST, 0).into()), ..Config::default() };
            let mut server = Server::bind(config).expect("a free port");
            server.load().expect("nothing to load");
            started.send((server.insecure_addr(), server.shutdown_handle())).expect("the test waits");
            server.run().expect("it runs until it is stopped");
        });
        let (address, shutdown) = when_started.recv().expect("the server starts");
        Self { address: address.expect("cleartext"), shutdown, thread: Some(thread) }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.shutdown.shutdown();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Runs the load generator in this folder. `words` are its command line.
fn loadgen(folder: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
    command.current_dir(folder).args(words.split_whitespace());
    command.output().expect("the program can be started")
}

/// Runs the load generator with all files of results, and returns its line of JSON results.
fn run(folder: &Path, address: SocketAddr, words: &str) -> Value {
    let files = "--report report.html --hgrm main.hgrm --hgrm watch_event=events.hgrm --series series.jsonl";
    let output = loadgen(folder, &format!("{words} --server http://{address} --output json --out out.jsonl {files}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{}: {told}", output.status);
    let line = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!(fs::read(folder.join("out.jsonl")).expect("a file"), output.stdout);
    line
}

/// Returns the rows of a percentile distribution, and the total count in its footer.
fn distribution(path: &Path) -> (Vec<Vec<f64>>, u64) {
    let text = fs::read_to_string(path).expect("a distribution");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("       Value     Percentile TotalCount 1/(1-Percentile)"));
    let rows = lines.clone().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows = rows.map(|row| row.split_whitespace().map(|word| word.parse().expect("a number")).collect());
    let rows = rows.collect();
    let total = lines.find(|line| line.starts_with("#[Max")).expect("a footer");
    let total = total.trim_end_matches(']').rsplit(' ').next().and_then(|word| word.parse().ok());
    (rows, total.expect("a number"))
}

/// Returns the lines of a time series, parsed as JSON.
fn series(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a series");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Checks what every HTML report must satisfy, and returns the page.
fn page(path: &Path) -> String {
    let page = fs::read_to_string(path).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
    for foreign in ["<script", "src=", "href=", "url(", "@import", "NaN", "inf"] {
        assert!(!page.contains(foreign), "{foreign} in {page}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(page.contains("✓ No errors, no violations"), "{page}");
    page
}

#[test]
fn output_files_of_simulated_nodes_agree_with_the_results() {
    let (server, folder) = (RunningServer::start(), tempfile::tempdir().unwrap());
    // The server runs in this process, so `--pid` is the id of this process.
    let flags = format!("--nodes 50 --connections 2 --period 500ms --duration 2s --pid {}", std::process::id());
    let line = run(folder.path(), server.address, &flags);
    for (file, operation) in [("main.hgrm", "renew"), ("events.hgrm", "watch_event")] {
        let (rows, total) = distribution(&folder.path().join(file));
        let told = &line["verbs"][operation];
        assert_eq!(told["count"], total, "{file}");
        let [value, quantile, count] = rows.last().expect("a row")[..] else { panic!("{file}: {rows:?}") };
        assert!((value - told["ms_max"].as_f64().unwrap()).abs() < 0.001, "{file}: {rows:?} {told}");
        assert_eq!((quantile, format!("{count}")), (1.0, total.to_string()));
    }
    let lines = series(&folder.path().join("series.jsonl"));
    let of = |phase: &str, operation: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["phase"] == phase && line["operation"] == operation).collect()
    };
    let sum = |lines: &[&Value]| -> u64 { lines.iter().map(|line| line["count"].as_u64().unwrap()).sum() };
    assert_eq!(sum(&of("creating", "create")), 50);
    for operation in ["renew", "read", "watch_event"] {
        let measured = of("measuring", operation);
        let seconds: f64 = measured.iter().map(|line| line["interval_s"].as_f64().unwrap()).sum();
        assert!((2.0..2.5).contains(&seconds) && measured.len() >= 2, "{operation}: {seconds} s");
        let per_second = line["verbs"][operation]["per_second"].as_f64().unwrap();
        let told: f64 = format!("{}", sum(&measured)).parse().unwrap();
        assert!((told / seconds - per_second).abs() < 0.1 * per_second, "{operation}: {told} {per_second}");
        for line in measured {
            let times = ["us_p50", "us_p90", "us_p99", "us_p99_9", "us_max"].map(|key| line[key].as_f64());
            assert!(times.is_sorted() && times[0] > Some(0.0), "{line}");
            // The processor time is the sum over the running threads of the process, which also has threads of other
            // tests. When such a thread ends, the sum falls, so the share may be 0.
            assert!(line["server_cpu_share"].as_f64() >= Some(0.0), "{line}");
        }
    }
    let page = page(&folder.path().join("report.html"));
    let rate: f64 = ["renew", "read"].iter().filter_map(|verb| line["verbs"][verb]["per_second"].as_f64()).sum();
    assert!(page.contains(&format!("<dt>Requests/s</dt><dd>{rate:.0}</dd>")), "{rate} in {page}");
    for words in [
        "50 nodes",
        "<span>--nodes</span> <span>50</span>",
        "Latency by percentile",
        "Latency of renewals",
        "CPU, share of a core",
        "events",
    ] {
        assert!(page.contains(words), "{words} in {page}");
    }
}

#[test]
fn a_bench_writes_the_same_files() {
    let (server, folder) = (RunningServer::start(), tempfile::tempdir().unwrap());
    let flags =
        "bench renew --leases 20 --connections 2 --rate 200 --watchers 1 --warm-up 1500ms --duration 1s --metrics";
    let line = run(folder.path(), server.address, flags);
    let (_, total) = distribution(&folder.path().join("main.hgrm"));
    assert_eq!(line["latency"]["count"], total);
    let lines = series(&folder.path().join("series.jsonl"));
    let renewals = lines.iter().filter(|line| line["phase"] == "measuring" && line["operation"] == "renew");
    let renewals: u64 = renewals.map(|line| line["count"].as_u64().unwrap()).sum();
    assert!((180..=220).contains(&renewals), "{lines:?}");
    let measured = lines.iter().filter(|line| line["phase"] == "measuring");
    // The first share of a core needs two responses of `/metrics`. The second response comes after a second, and the
    // warm-up lasts longer. So every measured second has a share.
    assert!(measured.map(|line| &line["server_cpu_share"]).all(Value::is_f64), "{lines:?}");
    assert!(page(&folder.path().join("report.html")).contains("bench renew of 20 Leases"));
}

/// No server listens on this port, so a run that began would report another error.
#[test]
fn a_file_that_cannot_be_written_is_found_before_the_load_starts() {
    let folder = tempfile::tempdir().unwrap();
    for load in ["", "bench renew"] {
        for flag in ["--report", "--hgrm", "--series", "--out"] {
            let output = loadgen(folder.path(), &format!("{load} --server http://127.0.0.1:1 {flag} none/file"));
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{flag}: {told}");
            assert!(
                told.starts_with("loadgen: cannot write none/file: ") && told.lines().count() == 1,
                "{flag}: {told}"
            );
        }
    }
}
