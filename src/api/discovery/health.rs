//! `/healthz`, `/livez` and `/readyz`: named checks, and the report of their results in kube-apiserver's format
//! (Kubernetes, "API health endpoints").
//!
//! A check is a stored result and not a function, so that a probe never waits. The owner of a check sets its result.
//! The check `ping` always passes: any response shows that the event loop runs. The check `shutdown` of `/readyz` fails
//! while the server stops.

use crate::form::Response;
use crate::go::quote::go_quoted;
use crate::media_type::TEXT;
use crate::options::Query;
use crate::route::Probe;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// All health checks of this server.
#[derive(Debug)]
pub struct HealthChecks {
    /// The checks, in the order of the report. The check `shutdown` is not in this list: the report of `/readyz` adds
    /// that check at the end.
    checks: Vec<Check>,
    is_stopping: bool,
}

/// The handle on a check of [`HealthChecks`], by which the owner of the check sets its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckId(usize);

/// The reason why a health check fails.
pub type Unhealthy = Cow<'static, str>;

#[derive(Debug)]
struct Check {
    name: &'static str,
    probes: &'static [Probe],
    state: Result<(), Unhealthy>,
}

const ALL: &[Probe] = &[Probe::Healthz, Probe::Livez, Probe::Readyz];
const SHUTDOWN: &str = "shutdown";

/// HTTP status of the report if a check fails. Load balancers treat this status as unhealthy.
const STATUS_UNHEALTHY: u16 = 503;

impl HealthChecks {
    /// Creates the health checks `ping` and `shutdown`.
    pub(crate) fn new() -> Self {
        Self { checks: vec![Check { name: "ping", probes: ALL, state: Ok(()) }], is_stopping: false }
    }

    /// Adds a check to the endpoints `probes`. The check fails with the reason `why` until [`HealthChecks::set`] sets
    /// another result.
    ///
    /// If `/livez` fails, the kubelet restarts the process. With `--storage memory`, a restart loses all Leases. So
    /// only [`Probe::Readyz`] may have a check of another component, such as etcd.
    pub fn register(&mut self, name: &'static str, probes: &'static [Probe], why: impl Into<Unhealthy>) -> CheckId {
        self.checks.push(Check { name, probes, state: Err(why.into()) });
        CheckId(self.checks.len() - 1)
    }

    /// Sets the result of a check. Logs each change from pass to failure and back.
    pub fn set(&mut self, id: CheckId, state: Result<(), Unhealthy>) {
        let Some(check) = self.checks.get_mut(id.0) else { return };
        match (&check.state, &state) {
            (Ok(()), Err(reason)) => tracing::warn!(check = check.name, %reason, "health check fails"),
            (Err(_), Ok(())) => tracing::info!(check = check.name, "health check passes"),
            _ => {}
        }
        check.state = state;
    }

    /// Whether every check of `probe` passes.
    #[must_use]
    pub fn is_passing(&self, probe: Probe) -> bool {
        self.of(probe).all(|(_, state)| state.is_ok())
    }

    /// Makes the check `shutdown`, and so `/readyz`, fail from now on.
    pub fn begin_shutdown(&mut self) {
        self.is_stopping = true;
    }

    /// Returns the report of all checks of `probe`. If all checks pass and the client does not set `verbose`, the
    /// report is the word `ok`. Otherwise the report has one line for each check, without the reasons of failures.
    #[must_use]
    pub fn report(&self, probe: Probe, query: &Query<'_>) -> Response {
        let (mut excluded, mut is_verbose) = (BTreeSet::new(), false);
        if !query.is_empty() {
            is_verbose = query.value("verbose").is_some();
            excluded.extend(query.pairs().filter(|(name, _)| name == "exclude").map(|(_, value)| value));
        }
        let mut unknown = excluded.clone();
        let mut lines = String::new();
        let mut is_well = true;
        for (name, state) in self.of(probe) {
            let (mark, outcome) = if excluded.contains(name) {
                unknown.remove(name);
                ('+', "excluded: ok")
            } else if state.is_ok() {
                ('+', "ok")
            } else {
                is_well = false;
                ('-', "failed: reason withheld")
            };
            lines.extend(["[", mark.encode_utf8(&mut [0; 4]), "]", name, " ", outcome, "\n"]);
        }
        if !unknown.is_empty() {
            let names: Vec<_> = unknown.iter().map(|name| go_quoted(name)).collect();
            lines.extend(["warn: some health checks cannot be excluded: no matches for ", &names.join(","), "\n"]);
        }
        match (is_well, is_verbose) {
            (true, false) => text(200, "ok".into()),
            (true, true) => text(200, format!("{lines}{} check passed\n", probe.name())),
            (false, _) => text(STATUS_UNHEALTHY, format!("{lines}{} check failed\n", probe.name())),
        }
    }

    /// Returns the report of the check `name` of `probe`, with the reason if the check fails. Returns `None` for an
    /// unknown name.
    #[must_use]
    pub fn report_one(&self, probe: Probe, name: &str) -> Option<Response> {
        let (_, state) = self.of(probe).find(|(known, _)| *known == name)?;
        Some(match state {
            Ok(()) => text(200, "ok".into()),
            Err(why) => text(STATUS_UNHEALTHY, format!("internal server error: {why}\n")),
        })
    }

    /// Returns the result of each check at each endpoint: the name of the endpoint, the name of the check, and whether
    /// the check passes.
    pub fn results(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        ALL.iter().flat_map(|probe| self.of(*probe).map(|(name, state)| (probe.name(), name, state.is_ok())))
    }

    fn of(&self, probe: Probe) -> impl Iterator<Item = (&'static str, Result<(), &str>)> {
        let registered = self.checks.iter().filter(move |check| check.probes.contains(&probe));
        let shutdown = if self.is_stopping { Err("process is shutting down") } else { Ok(()) };
        registered
            .map(|check| (check.name, check.state.as_ref().copied().map_err(|why| &**why)))
            .chain((probe == Probe::Readyz).then_some((SHUTDOWN, shutdown)))
    }
}

fn text(status: u16, text: String) -> Response {
    let mut response = Response::new(status, TEXT, text.into());
    response.fields.push(("x-content-type-options", "nosniff".into()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(checks: &HealthChecks, probe: Probe, query: &str) -> (u16, String) {
        let response = checks.report(probe, &Query::new(query));
        (response.status, String::from_utf8(response.body.into_bytes().to_vec()).expect("text"))
    }

    #[test]
    fn health_reports_match_kube_apiserver() {
        let checks = HealthChecks::new();
        assert_eq!(report(&checks, Probe::Livez, ""), (200, "ok".into()));
        assert_eq!(report(&checks, Probe::Livez, "verbose"), (200, "[+]ping ok\nlivez check passed\n".into()));
        assert_eq!(
            report(&checks, Probe::Readyz, "verbose=&exclude=ping&exclude=b&exclude=a%22"),
            (
                200,
                "[+]ping excluded: ok\n[+]shutdown ok\nwarn: some health checks cannot be excluded: no matches for \
                 \"a\\\"\",\"b\"\nreadyz check passed\n"
                    .into()
            )
        );
    }

    #[test]
    fn a_health_check_fails_on_its_probes_until_it_is_set() {
        let mut checks = HealthChecks::new();
        let id = checks.register("namespaces", &[Probe::Readyz], "not yet listed");
        let failed = "[+]ping ok\n[-]namespaces failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n";
        assert_eq!(report(&checks, Probe::Readyz, ""), (503, failed.into()));
        assert_eq!(report(&checks, Probe::Livez, ""), (200, "ok".into()));
        assert_eq!(report(&checks, Probe::Readyz, "exclude=namespaces"), (200, "ok".into()));
        let one = checks.report_one(Probe::Readyz, "namespaces").expect("it is there");
        assert_eq!((one.status, &one.body.into_bytes()[..]), (503, &b"internal server error: not yet listed\n"[..]));
        assert!(checks.report_one(Probe::Livez, "namespaces").is_none());
        checks.set(id, Ok(()));
        assert_eq!(report(&checks, Probe::Readyz, ""), (200, "ok".into()));
        checks.set(id, Err("lost".into()));
        assert_eq!(report(&checks, Probe::Readyz, "").0, 503);
    }

    #[test]
    fn a_server_that_shuts_down_is_live_but_not_ready() {
        let mut checks = HealthChecks::new();
        checks.begin_shutdown();
        let failed = "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n";
        assert_eq!(report(&checks, Probe::Readyz, ""), (503, failed.into()));
        assert_eq!(report(&checks, Probe::Livez, ""), (200, "ok".into()));
        assert_eq!(report(&checks, Probe::Healthz, ""), (200, "ok".into()));
    }
}
