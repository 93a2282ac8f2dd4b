//! Tests of whole runs against the fake server over loopback, in both versions of HTTP. A server without a fault
//! passes. A fault is reported, unless HTTP and the API allow the behaviour, such as the end of a watch.

use crate::args::Args;
use crate::driver::Driver;
use crate::error_kind::ErrorKind;
use crate::fake::{self, Fault};
use crate::latencies::Latencies;
use crate::operation::Operation;
use crate::origin::MediaType;
use crate::report::Results;
use crate::simulation::Simulation;
use crate::summary::Outcome;
use crate::target::Target;
use crate::timeline::Timeline;
use clap::Parser as _;
use coordination_apiserver::http2::ErrorCode;
use coordination_apiserver::pki;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The flags for both versions of HTTP.
const BOTH: [&str; 2] = ["--http2", "--http1"];

/// Runs with these flags. The error is the message for the user.
fn try_run(flags: &str) -> Result<Results, String> {
    let args = Args::try_parse_from(["loadgen"].into_iter().chain(flags.split_whitespace())).expect("valid flags");
    let targets = Target::of_args(&args.server, MediaType::Json).expect("a target");
    Driver::<Simulation>::new(args, targets, Arc::new(AtomicBool::new(false)), Timeline::off()).expect("a driver").run()
}

/// Makes a short run against a fake server with this fault. `more` is more flags.
fn run(fault: Fault, more: &str) -> Results {
    let flags = format!("--server http://{} {SHORT} {more}", fake::start(fault, None));
    try_run(&flags).expect("the server is there")
}

const SHORT: &str = "--namespace n --nodes 20 --connections 3 --period 100ms --duration 300ms";

/// Returns the first violation in a run against a server with this fault.
fn first_violation(fault: Fault, http: &str) -> String {
    let results = run(fault, http);
    assert!(!results.is_fine());
    results.fleet.checker.first().first().cloned().unwrap_or_else(|| panic!("no violation: {}", results.table()))
}

/// Checks that the 20 nodes of [`SHORT`] performed each operation once in each period of the measured time. A period is
/// 100 ms, prolonged at random by up to 4 %. So about 20 operations are expected in 100 ms, and 16 to 21 accepted.
fn assert_all_counted(results: &Results, operations: &[Operation]) {
    let periods = results.timing.window.seconds() / 0.1;
    for &operation in operations {
        let count = crate::figures::count(count(results, operation));
        assert!((16.0 * periods..=21.0 * periods).contains(&count), "{periods} periods: {}", results.table());
    }
}

fn latencies(results: &Results, operation: Operation) -> &Latencies {
    &results.fleet.recorder.total(operation).latencies
}

fn count(results: &Results, operation: Operation) -> u64 {
    latencies(results, operation).len()
}

#[test]
fn an_honest_server_passes() {
    for http in BOTH {
        let address = fake::start(Fault::None, None);
        let flags = "--namespace n --nodes 20 --connections 3 --period 200ms --duration 600ms --watchers 2";
        let results = try_run(&format!("--server http://{address} {flags} {http}")).expect("the server is there");
        assert!(results.is_fine(), "{}", results.table());
        assert_eq!((results.fleet.created, count(&results, Operation::Create)), (20, 20));
        let line: serde_json::Value = serde_json::from_str(&results.json_line()).expect("JSON");
        // Each of the 20 nodes renews once in a period, and some periods are prolonged.
        let periods = line["measured_s"].as_f64().expect("a time") / 0.2;
        for verb in ["renew", "read"] {
            let count = line["verbs"][verb]["count"].as_f64().expect("a count");
            assert!((16.0 * periods..=21.0 * periods).contains(&count), "{}", results.table());
        }
        assert!(count(&results, Operation::WatchEvent) >= 100, "{}", results.table());
        let connections = if http == "--http2" { 3 + 1 } else { 3 + 2 };
        assert_eq!(results.fleet.stats.connections, connections, "{http}");
        assert_eq!(line["violations"], 0);
        assert_eq!(line["verbs"]["create"]["count"], 20);
    }
}

/// The replica that receives the 30th write applies the write, and closes the connection without a response. So exactly
/// one connection moves to another replica.
#[test]
fn nodes_are_spread_over_replicas_and_move_when_a_connection_breaks() {
    for (http, watchers) in [("--http2", 2), ("--http1", 2)] {
        let replicas: [_; 3] = fake::start_replicas(Fault::ClosesWithoutAnswer, None);
        let servers = replicas.map(|address| format!("http://{address}")).join(",");
        let results =
            try_run(&format!("--server {servers} {SHORT} --watchers {watchers} {http}")).expect("all are there");
        assert_eq!(results.fleet.checker.count(), 0, "{}", results.table());
        let stats = &results.fleet.stats;
        assert_eq!((stats.moves, stats.connections), (1, 3 + watchers + 1), "{}", results.table());
        let line: serde_json::Value = serde_json::from_str(&results.json_line()).expect("JSON");
        assert_eq!((&line["server"], &line["connections_moved"]), (&servers.into(), &1.into()));
    }
}

#[test]
fn an_unreachable_replica_fails_the_run_at_its_start() {
    let servers = format!("http://{},http://127.0.0.1:1", fake::start(Fault::None, None));
    let words = try_run(&format!("--server {servers} {SHORT}")).expect_err("one is not there");
    assert!(words.starts_with("cannot reach http://127.0.0.1:1: "), "{words}");
}

/// The driver checks timeouts and phases every 50 ms. So a creation phase of less than 40 ms shows that the phase ended
/// with the last creation, without waiting for such a check.
#[test]
fn the_creation_phase_ends_when_the_last_node_has_its_lease() {
    let creating = || run(Fault::None, BOTH[0]).timing.creating;
    assert!((0..10).any(|_| creating().as_millis() < 40));
}

#[test]
fn a_run_interrupted_before_measuring_is_not_successful() {
    let address = fake::start(Fault::None, None);
    let server = format!("http://{address}");
    let args = Args::try_parse_from(["loadgen", "--server", &server, "--nodes", "20"]).expect("valid flags");
    let targets = Target::of_args(&args.server, MediaType::Json).expect("a target");
    let results = Driver::<Simulation>::new(args, targets, Arc::new(AtomicBool::new(true)), Timeline::off())
        .and_then(Driver::run)
        .expect("it can begin");
    assert!(!results.is_fine() && results.fleet.recorder.errors_count() == 0, "{}", results.table());
    let table = results.table();
    assert!(table.contains(", ended early") && !table.contains("the limit"), "{table}");
    let line: serde_json::Value = serde_json::from_str(&results.json_line()).expect("JSON");
    assert!(line["generator"]["lateness_ms_p99"].is_null(), "{line}");
}

#[test]
fn a_run_without_a_schedule_passes() {
    for http in BOTH {
        for more in ["--max --streams 4", "--max --reads 0", "--max --reads 2.5 --watchers 3"] {
            let results = run(Fault::None, &format!("{http} {more}"));
            assert!(results.is_fine(), "{}", results.table());
            assert!(count(&results, Operation::Renew) > 100, "{}", results.table());
            assert_eq!(count(&results, Operation::Read) > 0, !more.contains("--reads 0"));
            let line: serde_json::Value = serde_json::from_str(&results.json_line()).expect("JSON");
            assert!(line["generator"]["lateness_ms_p99"].is_null(), "{line}");
        }
    }
}

#[test]
fn leases_of_an_earlier_run_are_adopted() {
    for http in BOTH {
        let address = fake::start(Fault::None, None);
        for (created, adopted) in [(20, 0), (0, 20)] {
            let flags = "--namespace n --nodes 20 --period 50ms --duration 100ms --reads 0";
            let results = try_run(&format!("--server http://{address} {flags} {http}")).expect("the server is there");
            assert!(results.is_fine(), "{}", results.table());
            assert_eq!((results.fleet.created, results.fleet.adopted), (created, adopted));
        }
    }
}

#[test]
fn a_table_counts_one_lease_in_the_singular() {
    let address = fake::start(Fault::None, None);
    let flags = "--namespace n --nodes 1 --period 50ms --duration 100ms --reads 0";
    let table = try_run(&format!("--server http://{address} {flags}")).expect("the server is there").table();
    assert!(table.contains("\n1 Lease created, 0 found, in "), "{table}");
}

#[test]
fn each_fault_is_reported_as_its_violation() {
    for http in BOTH {
        for (fault, expected) in [
            (Fault::AnswersSomethingElse, &["does not hold what was sent"][..]),
            (Fault::ChangesHolder, &["does not hold what was sent"]),
            (Fault::ConflictsWithNobody, &["though nobody else writes"]),
            (Fault::DropsEvent, &["got no event of version"]),
            (Fault::DropsLastEvents, &["got no event of version"]),
            (Fault::LosesUpdate, &["was known before", "though nobody else writes"]),
            (Fault::ShowsSomethingElse, &["with other content than was sent"]),
            (Fault::SwapsEvents, &["got version"]),
            (Fault::TellsOfDeletions, &["got DELETED at version"]),
            (Fault::VersionGoesBack, &["was known before"]),
        ] {
            let words = first_violation(fault, http);
            assert!(expected.iter().any(|expected| words.contains(expected)), "{fault:?}: {words}");
        }
    }
}

#[test]
fn a_response_about_another_lease_is_malformed() {
    for http in BOTH {
        let results = run(Fault::AnswersAnother, http);
        assert_eq!(
            results.fleet.recorder.errors()[&(Operation::Renew, ErrorKind::Malformed)],
            1,
            "{}",
            results.table()
        );
    }
}

#[test]
fn a_missing_lease_is_reported_and_created_again() {
    for http in BOTH {
        let results = run(Fault::Forgets, http);
        assert!(results.fleet.checker.first()[0].contains("not found"), "{}", results.table());
        assert_eq!((results.fleet.checker.count(), results.fleet.created), (1, 20), "{}", results.table());
        assert_eq!(results.fleet.created_later, 1, "{}", results.table());
    }
}

/// The restart of the server takes 400 ms and deletes all Leases, so each node creates its Lease again. These creations
/// count as renewals, and are the slowest of them.
#[test]
fn the_creation_of_a_lost_lease_counts_as_a_renewal() {
    for http in BOTH {
        let results = run(Fault::Restarts, http);
        assert_eq!((results.fleet.created, results.fleet.created_later), (20, 20), "{}", results.table());
        assert!(results.table().contains(", 20 created later"), "{}", results.table());
        assert_all_counted(&results, &[Operation::Renew]);
        let renewals = latencies(&results, Operation::Renew);
        assert!(renewals.ms()[4] > 150.0, "{}", results.table());
        let line: serde_json::Value = serde_json::from_str(&results.json_line()).expect("JSON");
        let create = &line["verbs"]["create"];
        assert_eq!((&create["count"], &line["created_later"]), (&20.into(), &20.into()));
        let rate = create["per_second"].as_f64().expect("a rate");
        assert!((rate * results.timing.creating.as_secs_f64() - 20.0).abs() < 0.1, "{}", results.table());
    }
}

#[test]
fn a_repeated_event_is_reported() {
    for http in BOTH {
        let words = first_violation(Fault::RepeatsEvent, http);
        let versions: Vec<&str> = words.split(' ').filter(|word| word.parse::<u64>().is_ok_and(|n| n > 100)).collect();
        assert!(words.contains("got version") && versions[0] == versions[1], "{words}");
    }
}

#[test]
fn a_lost_response_is_an_error_and_no_violation() {
    for http in BOTH {
        let results = run(Fault::ClosesWithoutAnswer, http);
        assert_eq!(results.fleet.checker.first(), [""; 0]);
        assert!(results.table().contains("reset"), "{}", results.table());
    }
}

/// The server stalls until the measured time is over. Requests that were due in the measured time are then sent and
/// answered, and their latencies are reported.
#[test]
fn a_stall_across_the_end_omits_no_due_request() {
    for http in BOTH {
        let results = run(Fault::Stalls, http);
        assert!(results.is_fine(), "{}", results.table());
        assert_all_counted(&results, &[Operation::Renew, Operation::Read]);
        let renewals = latencies(&results, Operation::Renew);
        assert!(renewals.ms()[4] > 150.0, "{}", results.table());
    }
}

#[test]
fn a_failed_request_is_an_error_and_no_violation() {
    for http in BOTH {
        let results = run(Fault::FailsOnce, http);
        assert_eq!(results.fleet.checker.first(), [""; 0]);
        assert_eq!(results.fleet.recorder.errors_count(), 1, "{}", results.table());
    }
}

#[test]
fn watches_that_end_are_resumed() {
    for http in BOTH {
        let results = run(Fault::EndsWatches, &format!("{http} --watchers 2"));
        assert!(results.is_fine(), "{}", results.table());
    }
}

#[test]
fn a_watcher_lists_again_after_an_expired_watch() {
    for http in BOTH {
        let results = run(Fault::ExpiresWatches, http);
        assert!(results.is_fine(), "{}", results.table());
        assert!(count(&results, Operation::List) > 2, "{}", results.table());
    }
}

#[test]
fn a_gracefully_closed_connection_is_replaced_without_an_error() {
    for http in BOTH {
        let before = run(Fault::None, http).fleet.stats.connections;
        let results = run(Fault::GoesAway, http);
        assert!(results.is_fine(), "{}", results.table());
        assert_eq!(results.fleet.stats.connections, before + 1, "{http}");
        let results = run(Fault::AlwaysGoesAway, &format!("{http} --watchers 3"));
        assert!(results.is_fine(), "{}", results.table());
        assert!(results.fleet.stats.connections > before + 100, "{}", results.table());
    }
}

#[test]
fn a_refused_stream_is_an_error_only_if_every_retry_is_refused() {
    let results = run(Fault::RefusesStream, "");
    assert!(results.is_fine(), "{}", results.table());
    let results = run(Fault::RefusesNode, "");
    assert_eq!(results.fleet.checker.first(), [""; 0]);
    assert!(results.fleet.recorder.errors()[&(Operation::Renew, ErrorKind::Refused)] > 0, "{}", results.table());
}

#[test]
fn a_reset_stream_is_an_error_with_its_own_kind() {
    let results = run(Fault::ResetsStream, "");
    assert_eq!(results.fleet.checker.first(), [""; 0]);
    let kind = ErrorKind::Stream(ErrorCode::INTERNAL_ERROR.0);
    assert_eq!(results.fleet.recorder.errors().iter().collect::<Vec<_>>(), [(&(Operation::Renew, kind), &1)]);
}

#[test]
fn an_aborted_connection_is_reported_with_its_error_code() {
    let results = run(Fault::AbortsConnection, "");
    assert_eq!(results.fleet.checker.first(), [""; 0]);
    assert!(results.table().contains("GOAWAY ENHANCE_YOUR_CALM"), "{}", results.table());
}

#[test]
fn small_stream_limits_and_windows_are_respected() {
    for more in ["", "--max"] {
        let results = run(Fault::IsNarrow, more);
        assert!(results.is_fine(), "{}", results.table());
        assert!(count(&results, Operation::Renew) > 40, "{}", results.table());
    }
}

#[test]
fn alpn_selects_the_version_or_the_run_fails_with_a_message() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = pki::serving_names(IpAddr::V4(Ipv4Addr::LOCALHOST));
    pki::CertDir::open(folder.path()).and_then(|certs| certs.ensure_serving(&names)).expect("certificates");
    let ca = folder.path().join("ca.crt");
    for http in BOTH {
        for (alpn, is_spoken) in [(&["h2", "http/1.1"][..], true), (&[], http == "--http1"), (&["x"], false)] {
            let address = fake::start(Fault::None, Some(tls(folder.path(), alpn)));
            let result = try_run(&format!("--server https://{address} --ca {} {SHORT} {http}", ca.display()));
            match result {
                Ok(results) if is_spoken => {
                    assert!(results.is_fine(), "{}", results.table());
                    assert_eq!(results.fleet.stats.handshakes, results.fleet.stats.connections);
                }
                Err(words) if !is_spoken => {
                    assert!(words.contains(": the server does not agree to HTTP/"), "{words}");
                }
                _ => panic!("{http} {alpn:?}: {:?}", result.map(|results| results.table())),
            }
        }
    }
}

/// Returns a TLS configuration for a server with the certificate in this folder. `alpn` is the protocols that it
/// accepts.
fn tls(folder: &Path, alpn: &[&str]) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(folder.join("apiserver.crt")).expect("a file");
    let key = PrivateKeyDer::from_pem_file(folder.join("apiserver.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.map(|certificate| certificate.expect("PEM")).collect(), key)
        .expect("certificate and key");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

#[test]
fn an_http_1_1_server_is_reported_as_not_speaking_http_2() {
    // A server that speaks only HTTP/1.1 answers the HTTP/2 preface with an HTTP/1.1 response.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            _ = std::io::Write::write_all(&mut socket, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let words = try_run(&format!("--server http://{address} --http2")).expect_err("it does not speak HTTP/2");
    let expected =
        format!("cannot reach http://{address}: the server does not agree to HTTP/2; --http1 asks for HTTP/1.1");
    assert_eq!(words, expected);
}

#[test]
fn a_refused_list_or_watch_fails_the_run_at_its_start() {
    for http in BOTH {
        for (fault, expected) in [
            (Fault::RefusesLists, "list 401: { \"message\": \"who are you\" }"),
            (Fault::RefusesWatches, "watch 403: {\"message\":\"not for you\"}"),
            (Fault::IsAWebsite, "list malformed: the response is no list of Leases"),
        ] {
            let address = fake::start(fault, None);
            let told = try_run(&format!("--server http://{address} {SHORT} {http}")).map(|results| results.table());
            assert_eq!(told, Err(format!("cannot reach http://{address}: {expected}")));
        }
    }
}

#[test]
fn an_unreachable_server_is_named_in_the_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let words = try_run(&format!("--server http://{address} {SHORT}")).map(|results| results.table());
    let words = words.expect_err("nobody listens there");
    assert!(words.starts_with(&format!("cannot reach http://{address}: ")), "{words}");
}
