//! Whole runs against a fake server over loopback: an honest one passes, and each broken promise is reported.

use crate::args::Args;
use crate::driver::{Driver, Results};
use crate::fake::{self, Fault};
use crate::stats::Verb;
use crate::target::Target;
use clap::Parser as _;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A short run against a server with this fault.
fn run(fault: Fault, more: &str) -> Results {
    let server = format!("http://{}", fake::start(fault));
    let flags =
        format!("--server {server} --namespace n --nodes 20 --connections 3 --period 200ms --duration 600ms {more}");
    let args = Args::try_parse_from(["loadgen"].into_iter().chain(flags.split_whitespace())).expect("valid flags");
    let target = Target::of_args(&args).expect("a target");
    let driver = Driver::new(args, target, Arc::new(AtomicBool::new(false))).expect("a driver");
    driver.run().expect("the server is there")
}

/// The first violation in a run against a server with this fault.
fn first_violation(fault: Fault) -> String {
    let results = run(fault, "");
    assert!(!results.is_fine());
    results.fleet.checker.first().first().cloned().unwrap_or_else(|| panic!("no violation: {}", results.table()))
}

fn count(results: &Results, verb: Verb) -> u64 {
    results.fleet.stats.latency(verb).map_or(0, Histogram::len)
}

#[test]
fn an_honest_server_passes() {
    let results = run(Fault::None, "--watchers 2");
    assert!(results.is_fine(), "{}", results.table());
    assert_eq!((results.fleet.created, count(&results, Verb::Create)), (20, 20));
    // 20 nodes, three periods each, some of them prolonged.
    assert!((50..=62).contains(&count(&results, Verb::Renew)), "{}", results.table());
    assert!((50..=62).contains(&count(&results, Verb::Read)), "{}", results.table());
    assert!(results.fleet.stats.watch_delay.len() >= 100, "{}", results.table());
    let line: serde_json::Value = serde_json::from_str(&results.json_line()).expect("JSON");
    assert_eq!(line["violations"], 0);
    assert_eq!(line["verbs"]["create"]["count"], 20);
}

#[test]
fn a_run_without_a_schedule_passes_too() {
    for more in ["--max --pipeline 4", "--max --reads 0", "--max --reads 2.5"] {
        let results = run(Fault::None, more);
        assert!(results.is_fine(), "{}", results.table());
        assert!(count(&results, Verb::Renew) > 100, "{}", results.table());
        assert_eq!(count(&results, Verb::Read) > 0, !more.contains("--reads 0"));
    }
}

#[test]
fn leases_of_an_earlier_run_are_found() {
    let server = format!("http://{}", fake::start(Fault::None));
    for (created, adopted) in [(20, 0), (0, 20)] {
        let flags =
            format!("loadgen --server {server} --namespace n --nodes 20 --period 50ms --duration 100ms --reads 0");
        let args = Args::try_parse_from(flags.split_whitespace()).expect("valid flags");
        let target = Target::of_args(&args).expect("a target");
        let driver = Driver::new(args, target, Arc::new(AtomicBool::new(false))).expect("a driver");
        let results = driver.run().expect("the server is there");
        assert!(results.is_fine(), "{}", results.table());
        assert_eq!((results.fleet.created, results.fleet.adopted), (created, adopted));
    }
}

#[test]
fn a_lost_update_is_reported() {
    let words = first_violation(Fault::LosesUpdate);
    assert!(words.contains("was known before") || words.contains("though nobody else writes"), "{words}");
}

#[test]
fn an_answer_that_differs_from_what_was_sent_is_reported() {
    let words = first_violation(Fault::AnswersSomethingElse);
    assert!(words.contains("does not hold what was sent"), "{words}");
}

#[test]
fn a_conflict_with_nobody_is_reported() {
    assert!(first_violation(Fault::ConflictsWithNobody).contains("though nobody else writes"));
}

#[test]
fn a_version_that_goes_back_is_reported() {
    assert!(first_violation(Fault::VersionGoesBack).contains("was known before"));
}

#[test]
fn a_lease_that_is_gone_is_reported_and_created_again() {
    let results = run(Fault::Forgets, "");
    assert!(results.fleet.checker.first()[0].contains("not found"), "{}", results.table());
    assert_eq!((results.fleet.checker.count(), results.fleet.created), (1, 21), "{}", results.table());
}

#[test]
fn a_dropped_event_is_reported() {
    assert!(first_violation(Fault::DropsEvent).contains("got no event of version"));
}

#[test]
fn dropped_events_with_none_after_them_are_reported_at_the_end() {
    assert!(first_violation(Fault::DropsLastEvents).contains("got no event of version"));
}

#[test]
fn an_event_that_comes_twice_is_reported() {
    let words = first_violation(Fault::RepeatsEvent);
    let versions: Vec<&str> = words.split(' ').filter(|word| word.parse::<u64>().is_ok_and(|n| n > 100)).collect();
    assert!(words.contains("got version") && versions[0] == versions[1], "{words}");
}

#[test]
fn events_out_of_order_are_reported() {
    assert!(first_violation(Fault::SwapsEvents).contains("got version"));
}

#[test]
fn a_lost_answer_is_an_error_and_no_violation() {
    let results = run(Fault::ClosesWithoutAnswer, "");
    assert_eq!(results.fleet.checker.first(), [""; 0]);
    assert!(results.table().contains("reset"), "{}", results.table());
}

#[test]
fn a_refusal_is_an_error_and_no_violation() {
    let results = run(Fault::FailsOnce, "");
    assert_eq!(results.fleet.checker.first(), [""; 0]);
    assert_eq!(results.fleet.stats.errors_count(), 1, "{}", results.table());
}

#[test]
fn watches_that_end_are_resumed() {
    let results = run(Fault::EndsWatches, "");
    assert!(results.is_fine(), "{}", results.table());
}

#[test]
fn watches_that_expire_are_listed_again() {
    let results = run(Fault::ExpiresWatches, "");
    assert!(results.is_fine(), "{}", results.table());
    assert!(count(&results, Verb::List) > 2, "{}", results.table());
}

#[test]
fn no_server_is_one_sentence() {
    let args = Args::try_parse_from(["loadgen", "--server", "http://127.0.0.1:1"]).expect("valid flags");
    let target = Target::of_args(&args).expect("a target");
    let driver = Driver::new(args, target, Arc::new(AtomicBool::new(false))).expect("a driver");
    let words = driver.run().expect_err("nobody listens there");
    assert!(words.starts_with("cannot reach http://127.0.0.1:1: "), "{words}");
}
