//! The floor for HTTP/2, the least that a server costs: nghttpd with a static file, under the load of h2load.

use super::{Lab, Stop};
use crate::measurement::Told;
use crate::process::{Process, pinned, words};
use loadgen_account::Limit;
use serde_json::json;
use std::path::PathBuf;
use std::process::Stdio;

impl Lab {
    /// Starts nghttpd, which serves a file of `bytes` bytes. Returns the process and the file's URL.
    pub(crate) fn start_nghttpd(&self, tls: bool, bytes: usize) -> Result<(Process, String), Stop> {
        let nghttpd = program("nghttpd")?;
        let docroot = self.dir.path().join("docroot");
        let write =
            std::fs::create_dir_all(&docroot).and_then(|()| std::fs::write(docroot.join("lease"), vec![b'x'; bytes]));
        write.map_err(|e| format!("{}: {e}", docroot.display()))?;
        let port = self.free_port(self.port)?;
        let mut command = pinned(&self.server_core, &nghttpd);
        command.args(["--address", "127.0.0.1", "--htdocs"]).arg(&docroot);
        if !tls {
            command.arg("--no-tls");
        }
        command.arg(port.to_string());
        if tls {
            // This project's server has created these certificates.
            let pki = self.pki();
            command.arg(pki.join("apiserver.key")).arg(pki.join("apiserver.crt"));
        }
        let log = self.dir.path().join("nghttpd.log");
        let mut process = Process::start_silent(command.stdout(Stdio::null()), &log)?;
        process.wait_for_port(port)?;
        let scheme = if tls { "https" } else { "http" };
        Ok((process, format!("{scheme}://127.0.0.1:{port}/lease")))
    }

    /// Runs h2load on nghttpd twice: first briefly to learn the request rate, then as long as a measurement lasts.
    /// Returns the result of the second run, in the form that the load generator prints.
    pub(crate) fn h2load(&self, nghttpd: &Process, url: &str, streams: u32) -> Result<Told, Stop> {
        let h2load = program("h2load")?;
        let pids = [nghttpd.pid()];
        let mut requests = if self.is_quick { 4_000_u64 } else { 100_000 };
        let mut last = None;
        for _ in 0..2 {
            let mut command = pinned(&self.load_core, &h2load);
            command.args(["-t", "1", "-c", "8", "-m", &streams.to_string(), "-n", &requests.to_string(), url]);
            let told = words(&command);
            let before = loadgen_account::cpu_ns(&pids);
            let text = self.output(command)?.stdout;
            let after = loadgen_account::cpu_ns(&pids);
            let run = H2load::of(&text).ok_or_else(|| format!("{told}: cannot read its results: {text}"))?;
            let cpu_us = before.zip(after).map(|(before, after)| whole(after.saturating_sub(before)) / 1_000.0);
            let server_share = cpu_us.map(|us| us / 1e6 / run.seconds);
            let json = json!({
                "requests": run.succeeded,
                "requests_per_second": run.per_second,
                "measured_s": run.seconds,
                "server_cpu_us": cpu_us,
                "server_cpu_us_per_request": cpu_us.map(|us| us / whole(run.succeeded.max(1))),
                "server_cpu_share": server_share,
                "limit": Limit::of(server_share, None, None).map(Limit::name),
                "server_memory_kib": { "end": loadgen_account::memory(&pids).map(|memory| memory.resident_kib) },
                "latency": { "ms_max": run.ms_max },
                "errors": { "failed": requests - run.succeeded.min(requests) },
            });
            last = Some(Told { json, command: told });
            // Number of requests that h2load sends in the duration of a measurement, at the rate of the first run.
            requests = rounded(run.per_second * self.duration.as_secs_f64()).max(1_000);
        }
        last.ok_or_else(|| Stop::Failed("h2load did not run".to_owned()))
    }
}

/// The figures that h2load printed.
#[derive(Debug, PartialEq)]
struct H2load {
    seconds: f64,
    per_second: f64,
    succeeded: u64,
    ms_max: Option<f64>,
}

impl H2load {
    fn of(text: &str) -> Option<Self> {
        // For example: finished in 2.35s, 425000.12 req/s, 300.00MB/s
        let finished = text.lines().find_map(|line| line.strip_prefix("finished in "))?;
        let mut parts = finished.split(", ");
        let seconds = duration_ms(parts.next()?)? / 1_000.0;
        let per_second = parts.next()?.strip_suffix(" req/s")?.parse().ok()?;
        // For example: requests: 1000 total, 1000 started, 1000 done, 1000 succeeded, 0 failed, 0 errored, 0 timeout
        let requests = text.lines().find_map(|line| line.strip_prefix("requests: "))?;
        let succeeded = requests.split(", ").find_map(|part| part.strip_suffix(" succeeded"))?.parse().ok()?;
        // For example: time for request:      123us      4.56ms      1.23ms       0.4ms    70.00%
        let times = text.lines().find_map(|line| line.strip_prefix("time for request:"));
        let ms_max = times.and_then(|times| duration_ms(times.split_ascii_whitespace().nth(1)?));
        Some(Self { seconds, per_second, succeeded, ms_max })
    }
}

/// Parses a duration such as `2.35s`, `4.56ms` or `123us`. Returns milliseconds.
fn duration_ms(text: &str) -> Option<f64> {
    for (unit, ms) in [("us", 1e-3), ("ms", 1.0), ("s", 1e3)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Some(number.parse::<f64>().ok()? * ms);
        }
    }
    None
}

/// Returns the path of a program of another package. The error names the package to install.
fn program(name: &str) -> Result<PathBuf, Stop> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file()).ok_or_else(|| {
        let package = "apt-get install nghttp2-server nghttp2-client (Debian), or your system's nghttp2";
        Stop::Missing(format!("{name} is not installed: {package}"))
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn whole(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and far below")]
fn rounded(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_h2load_is_parsed() {
        let text = "starting benchmark...\n\nfinished in 250.00ms, 400000.50 req/s, 300.00MB/s\n\
            requests: 1000 total, 1000 started, 1000 done, 999 succeeded, 1 failed, 0 errored, 0 timeout\n\
            status codes: 999 2xx, 0 3xx, 1 4xx, 0 5xx\n\
            time for request:      123us      4.50ms      1.23ms       400us    70.00%\n";
        let run = H2load { seconds: 0.25, per_second: 400_000.5, succeeded: 999, ms_max: Some(4.5) };
        assert_eq!(H2load::of(text), Some(run));
        assert_eq!(H2load::of("finished"), None);
    }
}
