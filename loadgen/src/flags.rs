//! Flags that simulated nodes and benches have in common, and the parsers of their values.

use crate::operation::Operation;
use crate::origin::Version;
use clap::ValueEnum;
use coordination_apiserver::lease::validation::format::is_dns_label;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The server's address, and the credentials for it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Kubeconfig whose current context names the server and the client certificate [default: the admin.kubeconfig that
    /// coordination-apiserver makes in its default --cert-dir]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "ca", "cert", "key"])]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// URL of the server, in place of a kubeconfig; http:// for the cleartext port. With several replicas, the URLs of
    /// all replicas: the connections are spread over them, and a broken connection moves to another replica
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub(crate) server: Vec<String>,

    /// Certificate authorities of the server, PEM; needed with --server https://
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) ca: Option<PathBuf>,

    /// Client certificate, PEM
    #[arg(long, value_name = "FILE", requires_all = ["server", "key"])]
    pub(crate) cert: Option<PathBuf>,

    /// Key of the client certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

    /// Speaks HTTP/2, as kube-apiserver and client-go do: by ALPN h2 over TLS, by prior knowledge in cleartext. This is
    /// the default
    #[arg(long, conflicts_with = "http1")]
    pub(crate) http2: bool,

    /// Speaks HTTP/1.1
    #[arg(long)]
    pub(crate) http1: bool,
}

/// Outputs of the run, and the server processes whose processor time is reported.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ToldArgs {
    /// Form of the results on standard output: a table for people, or one line of JSON
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,

    /// Appends the results to this file as one line of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Writes the results to this file as one page of HTML with plots, which loads no other files
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Writes a percentile distribution to this file, in HdrHistogram's text format. OPERATION is create, renew, read,
    /// list, delete-collection, echo or watch_event [default: renew, or the operation of the bench]. Can be repeated
    #[arg(long, value_name = "[OPERATION=]FILE", value_parser = parse_distribution)]
    pub(crate) hgrm: Vec<Distribution>,

    /// Writes a time series to this file, as JSON lines: one line for each second of the run and each operation
    #[arg(long, value_name = "FILE")]
    pub(crate) series: Option<PathBuf>,

    /// Prints no progress line. If standard error is no terminal, there is no progress line either
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Processes of the server on this machine. The results have their processor time in the measured time, and their
    /// memory. The results name the server as the limit if one process uses 95 % of a core. This rule fits a process
    /// with one working thread
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,

    /// Reads each server's processor time from its /metrics once a second, for --report and --series. Use this flag for
    /// servers on other machines, for which --pid does not work
    #[arg(long, conflicts_with = "pid")]
    pub(crate) metrics: bool,
}

impl ToldArgs {
    /// Checks the flags against each other, and that the processes exist. The error is a sentence for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(pid) = loadgen_account::repeated(&self.pid) {
            return Err(format!("--pid {pid} is named twice, and its time would count twice"));
        }
        if self.metrics && self.report.is_none() && self.series.is_none() {
            return Err("--metrics needs --report or --series, which show the processor time".to_owned());
        }
        if let Some(path) = self.repeated_file() {
            return Err(format!("{} is named twice, and one result would overwrite the other", path.display()));
        }
        match self.pid.iter().find(|&&pid| loadgen_account::cpu_ns(&[pid]).is_none()) {
            Some(pid) => Err(format!("--pid {pid}: there is no such process, or its processor time is unknown")),
            None => Ok(()),
        }
    }

    /// Returns the number of servers whose `/metrics` are read for their processor time.
    pub(crate) fn probes_len(&self, servers_len: usize) -> usize {
        if self.metrics { servers_len } else { 0 }
    }

    /// Returns a file that is named for more than one result.
    fn repeated_file(&self) -> Option<&Path> {
        let single = [&self.out, &self.report, &self.series].into_iter().flatten();
        let files: Vec<&Path> = single.chain(self.hgrm.iter().map(|of| &of.path)).map(PathBuf::as_path).collect();
        loadgen_account::repeated(&files)
    }
}

/// A percentile distribution that the user asked for, and the file for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// The operation whose latencies the file shows; `None` is the main operation of the run.
    pub(crate) operation: Option<Operation>,
    pub(crate) path: PathBuf,
}

/// The form of the results on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// One line of JSON.
    Json,
    /// A table.
    #[default]
    Table,
}

impl ServerArgs {
    /// Returns the version of HTTP that requests use.
    pub(crate) fn version(&self) -> Version {
        if self.http1 { Version::Http1 } else { Version::Http2 }
    }

    /// Returns the number of servers that share the load.
    pub(crate) fn replicas(&self) -> u32 {
        u32::try_from(self.server.len().max(1)).unwrap_or(u32::MAX)
    }
}

/// Parses a duration with its unit: `500ms`, `20s`, `2m`, `1.5h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || "a time is a number and a unit, as in 500ms, 20s, 2m".to_owned();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().map_err(|_| bad())?;
    let seconds = match unit {
        "ms" => number / 1_000.0,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return Err(bad()),
    };
    if !(0.001..=MAX_SECONDS).contains(&seconds) {
        return Err("a time is at least 1ms and at most 24h".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// Parses the name of a namespace by the rule of kube-apiserver (a DNS label). A DNS label needs no escaping in the
/// path of a request.
pub(crate) fn parse_namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text.as_bytes()) {
        Ok(text.to_owned())
    } else {
        Err("a namespace is at most 63 of a-z, 0-9 and '-', the first and last no '-'".to_owned())
    }
}

/// Parses the value of `--hgrm`: a file, with or without `OPERATION=` before the file. If the text before `=` is no
/// operation, that text belongs to the file's name.
fn parse_distribution(text: &str) -> Result<Distribution, String> {
    let named = text.split_once('=').and_then(|(name, path)| Some((Operation::by_name(name)?, path)));
    let (operation, path) = named.map_or((None, text), |(operation, path)| (Some(operation), path));
    match operation {
        _ if path.is_empty() => Err("the name of a file is missing".to_owned()),
        Some(operation) if !operation.has_latency() => Err(format!("{} has no latencies", operation.name())),
        _ => Ok(Distribution { operation, path: path.into() }),
    }
}

/// Maximum duration: a day, in seconds.
const MAX_SECONDS: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "10", "s", "-1s", "0s", "1d", "1e99h", "NaNs", "infs"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_distribution_may_name_its_operation() {
        let told = |text: &str| parse_distribution(text).map(|of| (of.operation, of.path));
        assert_eq!(told("a.hgrm"), Ok((None, "a.hgrm".into())));
        assert_eq!(told("read=a=b.hgrm"), Ok((Some(Operation::Read), "a=b.hgrm".into())));
        assert_eq!(told("run=7/a.hgrm"), Ok((None, "run=7/a.hgrm".into())));
        assert!(told("watch=a.hgrm").is_err() && told("read=").is_err());
    }

    #[test]
    fn the_metrics_flag_needs_an_output_that_shows_metrics() {
        let told = |report: Option<PathBuf>| ToldArgs { metrics: true, report, ..ToldArgs::default() }.check();
        assert!(told(None).is_err() && told(Some("a.html".into())).is_ok());
    }

    #[test]
    fn an_output_file_may_be_named_only_once() {
        let told = |hgrm: &str| ToldArgs {
            report: Some("a.html".into()),
            hgrm: vec![parse_distribution(hgrm).expect("valid")],
            ..ToldArgs::default()
        };
        assert_eq!(told("b").check(), Ok(()));
        assert!(told("read=a.html").check().expect_err("twice").starts_with("a.html is named twice"));
    }

    #[test]
    fn a_process_id_must_exist_and_be_named_once() {
        let own = std::process::id();
        let check = |pid: Vec<u32>| ToldArgs { pid, ..ToldArgs::default() }.check();
        assert_eq!(check(vec![own]), Ok(()));
        assert!(check(vec![own, 4_000_000_000]).expect_err("none").contains("no such process"));
        assert!(check(vec![own, own]).expect_err("twice").contains("twice"));
    }
}
