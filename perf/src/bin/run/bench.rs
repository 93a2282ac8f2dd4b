//! Measures the scenarios: each call of [`Bench::run`] measures one scenario in one round.

use crate::lab::{Aim, Lab, Placement, Server, Stop};
use crate::measurement::{Told, errors_in, errors_of, latency_in, of_bench};
use crate::scenario::{H1_CLEAR, H2_TLS, Kind, Pace, REQUESTS_PER_SECOND, Scenario, bench, flags};
use crate::{Storage, sleeper, syncer};
use perf::ALL_OURS;
use perf::results::{Latency, Measurement};
use std::time::Duration;

/// The servers that run during the whole run of perf/run, and facts measured on them.
#[derive(Debug)]
pub(crate) struct Bench<'l> {
    lab: &'l Lab,
    /// Instances of this project's server, one for each storage.
    shared: Vec<Server>,
    /// Servers of `--against`.
    others: Vec<Server>,
    /// Size of a Lease in JSON, in bytes, as this project's server wrote it last. The minimal servers that serve as a
    /// floor for comparison send responses of the same size.
    body_bytes: usize,
}

impl<'l> Bench<'l> {
    pub(crate) fn new(lab: &'l Lab, others: Vec<Server>) -> Result<Self, String> {
        let start = |storage: &Storage| lab.start_server(Placement::Apart, *storage);
        let shared: Result<_, _> = lab.storage.iter().map(start).collect();
        Ok(Self { lab, shared: shared?, others, body_bytes: BODY_BYTES })
    }

    /// Measures one scenario in one round. Each measurement is passed to `tell`.
    pub(crate) fn run(&mut self, scenario: &Scenario, tell: impl FnMut(Measurement)) -> Result<(), Stop> {
        let outcome = self.measure(scenario, tell);
        let recorded = self.lab.end_recording();
        outcome?;
        Ok(recorded?)
    }

    fn measure(&mut self, scenario: &Scenario, mut tell: impl FnMut(Measurement)) -> Result<(), Stop> {
        let Scenario { group, name, .. } = scenario;
        match &scenario.kind {
            Kind::Shared { wire, arguments, unit, with_others } => {
                let others = self.others.iter().filter(|_| *with_others);
                for server in self.shared.iter().chain(others) {
                    let Some(told) = self.lab.load(server, *wire, &self.timed(arguments)) else { continue };
                    let told = told?;
                    if ALL_OURS.contains(&server.name.as_str()) {
                        self.body_bytes = json_bytes(&told).unwrap_or(self.body_bytes);
                    }
                    tell(of_bench(group, name, &server.name, unit, told));
                }
            }
            Kind::Applied { arguments } => {
                for server in &self.shared {
                    let told = self.lab.load_aimed(server, Aim::Bystander, H2_TLS, &self.timed(arguments));
                    let Some(told) = told else { continue };
                    tell(of_bench(group, name, &server.name, "request", told?));
                }
            }
            Kind::Nghttpd { tls } => {
                let (nghttpd, url) = self.lab.start_nghttpd(*tls, self.body_bytes)?;
                let told = self.lab.h2load(&nghttpd, &url, 32)?;
                tell(of_bench(group, name, "nghttpd", "request", told));
            }
            Kind::Echo { leases, pace } => {
                let placement = if *pace == Pace::Open { Placement::Together } else { Placement::Apart };
                let echo = self.lab.start_floor(placement)?;
                let mut arguments = bench("echo", *leases);
                arguments.extend(["--body-bytes".to_owned(), self.body_bytes.to_string()]);
                let arguments = if *pace == Pace::Open { self.paced(arguments) } else { self.timed(&arguments) };
                let told = self.lab.load(&echo, H1_CLEAR, &arguments).ok_or("echo")??;
                tell(of_bench(group, name, "echo", "request", told));
            }
            Kind::Sleep => {
                let told = sleeper::measure(REQUESTS_PER_SECOND, self.paced_duration(), || self.lab.is_interrupted());
                let told = told.map_err(|e| format!("cannot sleep: {e}"))?;
                tell(of_bench(group, name, "sleep", "request", told));
            }
            Kind::Sync => {
                let told = syncer::measure(self.lab.data_dir(), self.paced_duration(), || self.lab.is_interrupted());
                let told = told.map_err(|e| format!("cannot write to the data folder: {e}"))?;
                tell(of_bench(group, name, "fdatasync", "request", told));
            }
            Kind::Paced { .. }
            | Kind::Table { .. }
            | Kind::Stalls { .. }
            | Kind::Attached { .. }
            | Kind::Nodes { .. } => {
                for storage in self.lab.storage.clone() {
                    self.measure_fresh(scenario, storage, &mut tell)?;
                }
            }
        }
        Ok(())
    }

    /// Measures one scenario in one round, on a server that is started for this measurement.
    fn measure_fresh(
        &mut self,
        scenario: &Scenario,
        storage: Storage,
        tell: &mut impl FnMut(Measurement),
    ) -> Result<(), Stop> {
        let Scenario { group, name, .. } = scenario;
        match &scenario.kind {
            Kind::Shared { .. }
            | Kind::Applied { .. }
            | Kind::Nghttpd { .. }
            | Kind::Echo { .. }
            | Kind::Sleep
            | Kind::Sync => {}
            Kind::Paced { leases } => {
                let server = self.lab.start_server(Placement::Together, storage)?;
                let arguments = self.paced(bench("renew", *leases));
                let told = self.lab.load(&server, H1_CLEAR, &arguments).ok_or("no cleartext")??;
                self.body_bytes = json_bytes(&told).unwrap_or(self.body_bytes);
                tell(of_bench(group, name, &server.name, "request", told));
            }
            Kind::Table { leases } => self.table(group, *leases, storage, tell)?,
            Kind::Stalls { leases } => self.stalls(group, *leases, storage, tell)?,
            Kind::Attached { what, count, leases } => {
                let server = self.lab.start_server(Placement::Apart, storage)?;
                let flag = if *what == "idle" { "--idle" } else { "--name-watchers" };
                let mut arguments = bench("renew", *leases);
                arguments.extend(flags(&[(flag, *count)]));
                if *what == "watchers" {
                    arguments.extend(flags(&[("--watch-streams", 1_000)]));
                    arguments.push("--other-names".to_owned());
                }
                let told = self.lab.load(&server, H2_TLS, &self.timed(&arguments)).ok_or("no TLS")??;
                let memory = told.json["server_memory_kib"].clone();
                let taken = memory["attached"].as_f64().zip(memory["before_attached"].as_f64());
                let bytes_each = taken.map(|(with, without)| (with - without) * 1024.0 / f64::from(*count));
                let measured = of_bench(group, name, &server.name, "request", told);
                tell(Measurement { bytes_each, ..measured });
            }
            Kind::Nodes { wire, placement, nodes, period, duration, reads, streams } => {
                let server = self.lab.start_server(*placement, storage)?;
                let mut arguments: Vec<String> = flags(&[("--nodes", *nodes), ("--watchers", u32::from(*reads))]);
                arguments.extend(["--period", period, "--duration", duration].map(str::to_owned));
                arguments.extend(flags(&[("--reads", u32::from(*reads))]));
                arguments.extend(streams.iter().flat_map(|streams| flags(&[("--streams", *streams)])));
                let told = self.lab.load_aimed(&server, Aim::All, *wire, &arguments).ok_or("no TLS")??;
                // Each error counts in one row: errors of reads in the row of reads, all others in the row of renewals.
                let read_errors = errors_of(&told.json, "read");
                let renewals = of_nodes(group, name.clone(), &server.name, "renew", &told);
                tell(Measurement { errors: renewals.errors - read_errors, ..renewals });
                if *reads {
                    let read = of_nodes(group, format!("{name}-read"), &server.name, "read", &told);
                    // The server's processor time for each request is a mean over reads and renewals. Only the row of
                    // renewals shows it.
                    tell(Measurement { errors: read_errors, cpu_us: None, ..read });
                }
            }
        }
        Ok(())
    }

    /// Returns `arguments` with the flags for the durations of warm-up and measurement of this run.
    fn timed(&self, arguments: &[String]) -> Vec<String> {
        let duration = format!("{}ms", self.lab.duration.as_millis());
        let times = ["--warm-up", &self.lab.warm_up, "--duration", &duration].map(str::to_owned);
        arguments.iter().cloned().chain(times).collect()
    }

    /// Returns `arguments` with the flags for the request rate, and for a measured time that is long enough for the
    /// 99.9th percentile.
    fn paced(&self, mut arguments: Vec<String>) -> Vec<String> {
        arguments.extend(flags(&[("--rate", REQUESTS_PER_SECOND)]));
        let duration = format!("{}s", self.paced_duration().as_secs());
        arguments.extend(["--warm-up", &self.lab.warm_up, "--duration", &duration].map(str::to_owned));
        arguments
    }

    fn paced_duration(&self) -> Duration {
        Duration::from_secs(if self.lab.is_quick { 1 } else { 10 })
    }

    fn table(
        &self,
        group: &'static str,
        leases: u32,
        storage: Storage,
        tell: &mut impl FnMut(Measurement),
    ) -> Result<(), Stop> {
        let server = self.lab.start_server(Placement::Apart, storage)?;
        let load =
            |arguments: Vec<String>| self.lab.load(&server, H2_TLS, &arguments).unwrap_or_else(|| Err("no TLS".into()));
        let told = load(bench("create", leases))?;
        let memory = told.json["server_memory_kib"].clone();
        // Memory of a Lease and of the event of its creation, which is still in the event log.
        let taken = memory["end"].as_f64().zip(memory["start"].as_f64());
        let bytes_each = taken.map(|(with, without)| (with - without) * 1024.0 / f64::from(leases));
        let created = of_bench(group, &format!("create-{leases}"), &server.name, "Lease", told);
        tell(Measurement { bytes_each, ..created });
        let told = load(self.timed(&bench("renew", leases)))?;
        tell(of_bench(group, &format!("renew-of-{leases}"), &server.name, "request", told));
        if leases == 10_000 || leases == 1_000_000 {
            let mut arguments = bench("list", leases);
            arguments.extend(["--duration", "1s"].map(str::to_owned));
            let told = load(arguments)?;
            tell(of_bench(group, &format!("list-{leases}"), &server.name, "list", told));
        }
        Ok(())
    }

    fn stalls(
        &self,
        group: &'static str,
        leases: u32,
        storage: Storage,
        tell: &mut impl FnMut(Measurement),
    ) -> Result<(), Stop> {
        let server = self.lab.start_server(Placement::Apart, storage)?;
        let created = self.lab.load(&server, H2_TLS, &bench("create", leases)).ok_or("no TLS")??;
        if errors_in(&created.json) > 0 {
            return Err(Stop::Failed(format!("not all Leases were created: {}", created.json["errors"])));
        }
        let mut resume = bench("resume", 1_000);
        resume.extend(
            ["--namespace", "resumed", "--watchers", if self.lab.is_quick { "50" } else { "1000" }].map(str::to_owned),
        );
        for (name, work) in [
            ("alone", None),
            ("list", Some(bench("list", leases))),
            ("resume", Some(resume)),
            ("delete", Some(bench("delete-collection", leases))),
        ] {
            let mut probe = bench("renew", 100);
            // With one request in flight, a renewal that takes longer than 2 ms (the interval at this rate) would delay
            // all later ones. On disk, the latency would then grow with each renewal until the end of the work. So it
            // would show how many renewals were sent, not how long one renewal waits.
            probe.extend(flags(&[("--connections", 1), ("--streams", 64), ("--rate", 500)]));
            probe.extend(["--namespace", "probe", "--warm-up", "200ms", "--duration", "10m"].map(str::to_owned));
            let (process, command) = self.lab.start_load(&server, H2_TLS, &probe)?;
            self.lab.pass(Duration::from_millis(600))?;
            let before = self.lab.turns(&server)?;
            let work = match work {
                None => {
                    self.lab.pass(Duration::from_secs(if self.lab.is_quick { 1 } else { 3 }))?;
                    None
                }
                Some(mut arguments) => {
                    arguments.extend(["--duration", "100ms"].map(str::to_owned));
                    Some(self.lab.load_aside(&server, H2_TLS, &arguments).ok_or("no TLS")??)
                }
            };
            let after = self.lab.turns(&server)?;
            let turns = [
                (format!("turns-{name}"), after.duration.since(&before.duration)),
                (format!("turns-cpu-{name}"), after.cpu.since(&before.cpu)),
            ];
            self.lab.pass(Duration::from_millis(100))?;
            let stdout = process.interrupt()?;
            let mut told = Told::parse(stdout.as_bytes(), command).ok_or("the probe printed no result")?;
            if let (Some(work), Some(object)) = (work, told.json.as_object_mut()) {
                object.insert("beside".to_owned(), work.json);
            }
            let errors_beside = errors_in(&told.json["beside"]);
            let mut measured = of_bench(group, &format!("stall-{name}"), &server.name, "request", told);
            // The server's processor time also includes its work for the load beside the renewals. So it is not the
            // cost of a renewal.
            if name != "alone" {
                measured.cpu_us = None;
                measured.errors += errors_beside;
            }
            tell(measured.clone());
            for (scenario, latency) in turns {
                // The histogram of processor time counts only turns that continue work of the previous turn. Without
                // other load there may be no such turn. Then the histogram has no values.
                let Latency { ms_max: Some(longest), .. } = latency else { continue };
                tell(Measurement {
                    scenario,
                    unit: "turn".to_owned(),
                    per_second: None,
                    cpu_us: None,
                    latency,
                    // A turn of more than a second is above the last bound of the histogram. It counts as an error.
                    errors: u64::from(longest.is_infinite()),
                    ..measured.clone()
                });
            }
        }
        Ok(())
    }
}

/// Builds the measurement of one verb, `renew` or `read`, from the result of a load of simulated nodes.
fn of_nodes(group: &'static str, scenario: String, subject: &str, verb: &str, told: &Told) -> Measurement {
    let row = &told.json["verbs"][verb];
    let measured = of_bench(group, &scenario, subject, "request", told.clone());
    Measurement { per_second: row["per_second"].as_f64(), latency: latency_in(row), ..measured }
}

/// Returns the size of a Lease in JSON, in bytes; `None` if the load did not use JSON.
fn json_bytes(told: &Told) -> Option<usize> {
    let bytes = told.json["body_bytes"].as_u64().filter(|&bytes| bytes > 0);
    bytes.filter(|_| told.json["media_type"] == "application/json").and_then(|bytes| usize::try_from(bytes).ok())
}

/// Size of the load generator's Lease in JSON, in bytes. It is used until a server has returned a Lease.
const BODY_BYTES: usize = 803;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_lease_length_is_taken_from_json_results() {
        for (media_type, bytes, expected) in [
            ("application/json", 803, Some(803)),
            ("application/json", 0, None),
            ("application/vnd.kubernetes.protobuf", 320, None),
        ] {
            let json = json!({ "media_type": media_type, "body_bytes": bytes });
            assert_eq!(json_bytes(&Told { json, command: String::new() }), expected);
        }
    }
}
