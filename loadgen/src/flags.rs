//! Flags that every kind of load has, and the forms of their values.

use crate::origin::Version;
use clap::ValueEnum;
use coordination_apiserver::lease::validation::format::is_dns_label;
use std::path::PathBuf;
use std::time::Duration;

/// Where the server is and how it is spoken to.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Kubeconfig whose current context names the server and the client certificate [default: the admin.kubeconfig that
    /// coordination-apiserver makes in its default --cert-dir]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "ca", "cert", "key"])]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// URL of the server, in place of a kubeconfig; http:// for the cleartext port. Of replicas, the URLs of all:
    /// connections are spread over them, and one that breaks moves to another replica
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

    /// Speaks HTTP/2, as kube-apiserver and client-go do: over TLS as ALPN h2, in the clear by prior knowledge. This is
    /// the default
    #[arg(long, conflicts_with = "http1")]
    pub(crate) http2: bool,

    /// Speaks HTTP/1.1
    #[arg(long)]
    pub(crate) http1: bool,
}

/// What is printed, and whose processor time is counted.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ToldArgs {
    /// What is printed when the run is over: a table for people, or one line of JSON
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,

    /// Processes of the server on this machine, whose processor time in the measured time and whose memory are reported
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
}

impl ToldArgs {
    /// Whether there is an account of the processes; why not, in a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(pid) = loadgen_account::repeated(&self.pid) {
            return Err(format!("--pid {pid} is named twice, and its time would count twice"));
        }
        match self.pid.iter().find(|&&pid| loadgen_account::cpu_ns(&[pid]).is_none()) {
            Some(pid) => Err(format!("--pid {pid}: there is no such process, or no account of it")),
            None => Ok(()),
        }
    }
}

/// The form of the results on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// One line of JSON.
    Json,
    /// A table.
    Table,
}

impl ServerArgs {
    /// The version of HTTP that is spoken.
    pub(crate) fn version(&self) -> Version {
        if self.http1 { Version::Http1 } else { Version::Http2 }
    }

    /// Servers that share the load.
    pub(crate) fn replicas(&self) -> u32 {
        u32::try_from(self.server.len().max(1)).unwrap_or(u32::MAX)
    }
}

/// A duration with its unit: `500ms`, `20s`, `2m`, `1.5h`.
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

/// A namespace by the server's rule. It stands in the target of requests as it is.
pub(crate) fn parse_namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text.as_bytes()) {
        Ok(text.to_owned())
    } else {
        Err("a namespace is at most 63 of a-z, 0-9 and '-', the first and last no '-'".to_owned())
    }
}

/// The longest time that can be asked for: a day.
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
    fn a_process_counts_once_and_must_be_there() {
        let own = std::process::id();
        let check = |pid: Vec<u32>| ToldArgs { output: Output::Json, pid }.check();
        assert_eq!(check(vec![own]), Ok(()));
        assert!(check(vec![own, 4_000_000_000]).expect_err("none").contains("no such process"));
        assert!(check(vec![own, own]).expect_err("twice").contains("twice"));
    }
}
