//! Tests of whole benches against the fake server, in both versions of HTTP. The server without a fault passes, and
//! each fault of the server is reported.

use super::args::tests::parse;
use super::{Bench, Report};
use crate::driver::Driver;
use crate::fake::{self, Fault};
use crate::summary::Outcome;
use crate::target::Target;
use crate::timeline::Timeline;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn run(fault: Fault, flags: &str) -> Report {
    try_run(fault, flags).expect("the server is there")
}

fn try_run(fault: Fault, flags: &str) -> Result<Report, String> {
    try_run_until(fault, flags, Arc::default())
}

fn try_run_until(fault: Fault, flags: &str, interrupted: Arc<AtomicBool>) -> Result<Report, String> {
    let address = fake::start(fault, None);
    let leases = if flags.contains("--leases") { "" } else { "--leases 20" };
    let times = "--warm-up 50ms --duration 200ms";
    let args = parse(&format!("{flags} --server http://{address} --namespace n {leases} {times}")).expect("valid");
    let target = Target::only_of_args(&args.server, args.media_type()).expect("a target");
    Driver::<Bench>::new(args, vec![target], interrupted, Timeline::off()).and_then(Driver::run)
}

fn json(report: &Report) -> Value {
    serde_json::from_str(&report.json_line()).expect("JSON")
}

#[test]
fn an_honest_server_passes() {
    for http in ["--http2", "--http1"] {
        for flags in [
            "renew",
            "read --connections 2 --streams 3",
            "create",
            "renew --rate 500 --connections 1",
            "renew --watchers 3 --lag 8 --connections 2",
            "resume --watchers 5",
            "nothing --idle 5 --watchers 2",
        ] {
            let report = run(Fault::None, &format!("{flags} {http}"));
            assert!(report.is_fine(), "{flags} {http}: {}", report.table());
            let line = json(&report);
            let requests = line["requests"].as_u64().expect("a count");
            match line["verb"].as_str() {
                Some("create") => assert_eq!(requests, 20),
                Some("resume") => assert_eq!(line["events"], 100),
                Some("nothing") => assert_eq!(requests, 0),
                _ if line["rate"] == 500 => assert!((80..=120).contains(&requests), "{}", report.table()),
                _ => assert!(requests > 50, "{}", report.table()),
            }
            assert_eq!(line["events"].as_u64() > Some(0), flags.contains("--watchers") && !flags.contains("nothing"));
        }
    }
}

#[test]
fn one_lease_has_one_request_in_flight() {
    let table = run(Fault::None, "renew --leases 1").table();
    assert!(table.contains(" 1 connection with up to 1 request in flight on each"), "{table}");
}

/// The driver checks phases every 10 ms. So a measured time of less than 8 ms shows that the measurement ended with the
/// work, without waiting for such a check.
#[test]
fn the_measurement_of_finite_work_ends_with_the_work() {
    for flags in ["create", "resume --watchers 2"] {
        let seconds = || json(&run(Fault::None, flags))["measured_s"].as_f64().expect("a time");
        assert!((0..10).any(|_| seconds() < 0.008), "{flags}");
    }
}

/// The server stalls until the measured time is over. Requests that were due in the measured time are then sent and
/// answered, and their latencies are reported.
#[test]
fn late_responses_count_in_the_latencies_but_not_in_the_rate() {
    for http in ["--http2 --streams 2", "--http1"] {
        let report = run(Fault::Stalls, &format!("renew --rate 500 --connections 2 {http}"));
        assert!(report.is_fine(), "{http}: {}", report.table());
        let line = json(&report);
        let due = line["measured_s"].as_f64().expect("a time") * 500.0;
        let told = line["latency"]["count"].as_f64().expect("a count");
        assert!((due - told).abs() <= 2.0, "{http}: {due} {told}: {}", report.table());
        assert!(line["requests"].as_f64() < Some(due / 2.0), "{http}: {}", report.table());
        assert!(line["latency"]["ms_max"].as_f64() > Some(150.0), "{http}: {}", report.table());
        // The requests are late because of the server, not because of the generator.
        let generator = &line["generator"];
        assert!(generator["crowded"].as_f64() > Some(due / 2.0), "{http}: {generator}");
    }
}

/// The server allows two streams, and the generator would send 32 requests at once. Each request counts in the
/// generator's lateness or, if it waited for a stream, as crowded.
#[test]
fn requests_above_the_stream_limit_are_sent_later_and_counted() {
    let report = run(Fault::IsNarrow, "renew --rate 2000 --connections 1 --http2");
    assert!(report.is_fine(), "{}", report.table());
    let line = json(&report);
    let generator = &line["generator"];
    let sent = generator["lateness"]["count"].as_u64().zip(generator["crowded"].as_u64()).map(|(a, b)| a + b);
    assert_eq!(line["latency"]["count"].as_u64(), sent, "{}", report.table());
}

#[test]
fn a_refused_or_ended_watch_ends_the_bench_with_its_error() {
    for http in ["--http2", "--http1"] {
        for (fault, flags, expected) in [
            (
                Fault::RefusesWatches,
                "renew --watchers 2",
                "a watch was answered 403: {\"message\":\"not for you\"}, in ",
            ),
            (Fault::RefusesWatches, "nothing --watchers 2", "a watch was answered 403"),
            (Fault::ExpiresWatches, "resume --watchers 2", "\"code\":410"),
        ] {
            let words = try_run(fault, &format!("{flags} {http}")).expect_err("no watch");
            assert!(words.contains(expected), "{flags} {http}: {words}");
        }
    }
}

#[test]
fn a_resumption_expects_no_event_of_a_failed_renewal() {
    for http in ["--http2", "--http1"] {
        let report = run(Fault::FailsOnce, &format!("resume --leases 40 --watchers 2 {http}"));
        let line = json(&report);
        assert_eq!((&line["errors"]["500"], &line["violations"]), (&1.into(), &0.into()), "{}", report.table());
        assert_eq!(line["events"], 2 * 39, "{}", report.table());
    }
}

#[test]
fn a_bench_interrupted_before_measuring_fails_without_figures() {
    let report = try_run_until(Fault::None, "renew --rate 500", Arc::new(AtomicBool::new(true))).expect("it can begin");
    assert!(!report.is_fine(), "{}", report.table());
    assert!(!report.table().contains("NaN") && report.table().contains(", ended early"), "{}", report.table());
    assert_eq!(json(&report)["requests_per_second"], Value::Null);
}

#[test]
fn faults_of_the_server_are_reported() {
    for (fault, words) in [
        (Fault::AnswersSomethingElse, "NotWhatWasSent"),
        (Fault::AnswersAnother, "Malformed"),
        (Fault::ConflictsWithNobody, "409"),
        (Fault::FailsOnce, "500"),
        (Fault::LosesUpdate, "409"),
    ] {
        for http in ["--http2", "--http1"] {
            let report = run(fault, &format!("renew --connections 2 {http}"));
            assert!(!report.is_fine() && report.json_line().contains(words), "{fault:?}: {}", report.table());
        }
    }
    // The benches of both versions of HTTP run at once, since each waits 5 s for the missing response.
    std::thread::scope(|scope| {
        for http in ["--http2", "--http1"] {
            scope.spawn(move || {
                let report = run(Fault::NeverAnswers, &format!("renew --connections 2 {http}"));
                assert_eq!(json(&report)["errors"]["unanswered"], 1, "{http}: {}", report.table());
            });
        }
    });
    for fault in
        [Fault::DropsEvent, Fault::RepeatsEvent, Fault::SwapsEvents, Fault::ShowsSomethingElse, Fault::TellsOfDeletions]
    {
        let report = run(fault, "renew --watchers 1 --connections 2");
        let line = json(&report);
        assert!(line["violations"].as_u64() > Some(0), "{fault:?}: {}", report.table());
    }
}
