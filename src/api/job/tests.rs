//! Tests of the jobs for lists and for deletions of a collection, step by step.

use super::*;
use crate::api::token::ContinueToken;
use crate::api::{Api, Reply};
use crate::auth::Credentials;
use crate::http::{Method, NoLines, RequestHead};
use crate::lease::Lease;
use crate::lease::strategy::Propagation;
use crate::limits::{CATCH_UP_EVENTS_PER_STEP, DELETIONS_PER_STEP, SELECTOR_TERMS_PER_LOOK, UNDELIVERED_SHARE};
use crate::media_type::Representation;
use crate::resource::ResourceVersion;
use crate::schedule::{Permits, Requester};
use crate::selector::label::LabelSelector;
use crate::table::snapshot::Range;
use crate::timestamp::Time;
use serde_json::Value;

fn table_of(leases: usize) -> Table {
    let mut table = Table::new(ResourceVersion(1), 10, usize::MAX);
    (0..leases).for_each(|number| create(&mut table, number));
    table
}

fn create(table: &mut Table, number: usize) {
    table.create(Lease::named("n", &format!("l{number}")));
}

/// Runs a step of the job at time 0. The step may add any number of bytes to the output.
fn step(job: &mut Job, table: &mut Table, out: &mut Vec<u8>) -> Result<Stepped, JobError> {
    job.step(table, &mut Storage::Memory, Now::default(), out, usize::MAX)
}

/// Runs all steps of the job. Returns their number and the list in the output.
fn finish(job: &mut Job, table: &mut Table) -> (usize, Value) {
    let (mut out, mut steps) = (Vec::new(), 1);
    while step(job, table, &mut out).expect("nothing is forgotten") == Stepped::More {
        steps += 1;
    }
    (steps, json(&out))
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("JSON")
}

/// Goal: even if a client delays the first step or a later one, a job holds its permit (its place among the long
/// responses) no longer than `JOB_MS_MAX`.
#[test]
fn a_job_releases_its_permit_at_its_deadline() {
    for (has_begun, limit) in [(false, 0), (true, 0), (true, 2 * JOB_KEYS_PER_STEP)] {
        let mut table = table_of(3 * JOB_KEYS_PER_STEP);
        let permits = Permits::new(1);
        let snapshot = Snapshot::now(&table, Range::All);
        let mut job = Job::list(snapshot, Selector::default(), limit, Form::default());
        *job.permit_mut() = permits.take(Requester::Unnamed);
        let at = |ms| Now { ms, wall: Time(0) };
        let mut out = Vec::new();
        job.check(at(1000), false);
        if has_begun {
            assert!(matches!(job.step(&mut table, &mut Storage::Memory, at(1000), &mut out, 1000), Ok(Stepped::More)));
        }
        job.check(at(1000 + JOB_MS_MAX), false);
        assert!(permits.take(Requester::Unnamed).is_none(), "its time is not over");
        job.check(at(1001 + JOB_MS_MAX), false);
        assert!(permits.take(Requester::Unnamed).is_some(), "begun: {has_begun}, limit {limit}");
        assert!(matches!(
            job.step(&mut table, &mut Storage::Memory, at(1001 + JOB_MS_MAX), &mut out, 1000),
            Err(JobError::Overtaken)
        ));
    }
}

#[test]
fn an_unread_job_ends_when_another_user_needs_its_permit() {
    let mut table = table_of(3 * JOB_KEYS_PER_STEP);
    let permits = Permits::new(1);
    let mut job = Job::list(Snapshot::now(&table, Range::All), Selector::default(), 0, Form::default());
    *job.permit_mut() = permits.take(Requester::User("a"));
    let (now, mut out) = (Now { ms: 1000, wall: Time(0) }, Vec::new());
    assert!(matches!(job.step(&mut table, &mut Storage::Memory, now, &mut out, 1000), Ok(Stepped::More)));
    (0..2).for_each(|_| job.check(now, false));
    assert!(permits.take(Requester::User("b")).is_none(), "it is read");
    (0..2).for_each(|_| job.check(now, true));
    let taken = permits.take(Requester::User("b"));
    assert!(taken.is_some());
    job.check(now, false);
    let stepped = job.step(&mut table, &mut Storage::Memory, now, &mut out, 1000);
    assert!(matches!(stepped, Err(JobError::Overtaken)));
    drop(job);
    assert_eq!(permits.taken(), 1);
}

#[test]
fn the_states_of_a_dropped_job_are_freed_in_steps() {
    let mut table = table_of(3 * JOB_KEYS_PER_STEP);
    let snapshot = Snapshot::now(&table, Range::All);
    let mut job = Job::list(snapshot, Selector::default(), 3 * JOB_KEYS_PER_STEP, Form::default());
    let mut out = Vec::new();
    for _ in 0..2 {
        assert!(matches!(step(&mut job, &mut table, &mut out), Ok(Stepped::More)));
    }
    // In two steps, the job has collected Leases, and it has yet to read `l999`, the last Lease. So when `l999` is
    // removed, the table retains its state for the job. The table must free that state too.
    let (slot, _) = table.find("n", "l999").expect("there");
    table.remove(slot);
    drop(job);
    assert_eq!(table.discarded_len(), 2 * JOB_KEYS_PER_STEP + 1);
    // A job drops the state of each item once it has sent the item. So a job that has sent its whole list leaves no
    // states to free.
    table.discard_step(usize::MAX);
    let snapshot = Snapshot::now(&table, Range::All);
    let mut job = Job::list(snapshot, Selector::default(), JOB_KEYS_PER_STEP, Form::default());
    assert!(matches!(step(&mut job, &mut table, &mut out), Ok(Stepped::Done)));
    drop(job);
    assert_eq!(table.discarded_len(), 0);
}

/// A list shows the state of the Leases at the time of the request. This is so even if the first step comes late and
/// the event log has dropped that state.
#[test]
fn a_list_shows_the_state_at_the_time_of_its_request() {
    let mut table = table_of(2);
    let version = table.version();
    let mut job = Job::list(Snapshot::now(&table, Range::All), Selector::default(), 5, Form::default());
    // More changes than the event log has room for.
    for _ in 0..20 {
        let (slot, found) = table.find("n", "l0").expect("there");
        let lease = found.lease().into_owned();
        table.replace(slot, lease);
    }
    let (slot, _) = table.find("n", "l1").expect("there");
    table.remove(slot);
    let (steps, list) = finish(&mut job, &mut table);
    assert_eq!(steps, 1);
    assert_eq!(list["metadata"]["resourceVersion"], version.to_string());
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
}

/// Creates the job of a request for the namespace `n`.
fn asked(table: &mut Table, method: Method, query: &str) -> Box<Job> {
    let path = "/apis/coordination.k8s.io/v1/namespaces/n/leases";
    let request = RequestHead::bare(method, path, query, &NoLines);
    match Api::new().handle(table, &request, &Vec::from("{}"), None, &Credentials::insecure(), Now::default()) {
        Reply::Job(job) => job,
        other => panic!("{other:?}"),
    }
}

/// Other clients write faster than the job's snapshot reads the event log. No part of the response was sent, so the
/// client gets 410.
#[test]
fn a_version_that_leaves_the_event_log_during_a_list_gets_410() {
    const LOG_EVENTS: usize = 3 * CATCH_UP_EVENTS_PER_STEP;
    let mut table = Table::new(ResourceVersion(1), LOG_EVENTS, usize::MAX);
    (0..2).for_each(|number| create(&mut table, number));
    let version = table.version();
    let (_, first) = finish(&mut asked(&mut table, Method::Get, "limit=1"), &mut table);
    let token = first["metadata"]["continue"].as_str().expect("there is another page");
    let of_next_page = ContinueToken::decode(token).expect("a token");
    assert_eq!(of_next_page.key_in(&Range::All), "l0\0", "kube-apiserver adds the namespace");
    let renew = |table: &mut Table, count| {
        for _ in 0..count {
            let (slot, found) = table.find("n", "l0").expect("there");
            let lease = found.lease().into_owned();
            table.replace(slot, lease);
        }
    };
    renew(&mut table, 2 * CATCH_UP_EVENTS_PER_STEP);
    let next_page = format!("limit=1&continue={token}");
    let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
    let (pretty, limited) = (format!("{exact}&pretty=1"), format!("{exact}&limit=1"));
    let mut jobs: Vec<_> = [
        (Method::Get, &exact),
        (Method::Get, &pretty),
        (Method::Get, &limited),
        (Method::Delete, &exact),
        (Method::Get, &next_page),
        (Method::Delete, &next_page),
    ]
    .map(|(method, query)| (query, asked(&mut table, method, query)))
    .into();
    for (query, job) in &mut jobs {
        let mut out = Vec::new();
        assert!(matches!(step(job, &mut table, &mut out), Ok(Stepped::More)), "{query}");
        assert!(out.is_empty() && !job.has_head(), "{query}");
    }
    renew(&mut table, LOG_EVENTS);
    for (query, mut job) in jobs {
        let error = step(&mut job, &mut table, &mut Vec::new()).expect_err("it is forgotten");
        let response = job.refusal(error);
        let status = json(&response.body.into_bytes());
        assert_eq!((response.status, &status["reason"]), (410, &"Expired".into()), "{query}");
        let message = status["message"].as_str().expect("words");
        let fresh = status["metadata"]["continue"].as_str();
        if query == &next_page {
            assert!(message.contains("use the continue token in this response"), "{message}");
            let fresh = ContinueToken::decode(fresh.expect("a token")).expect("a token");
            assert_eq!((fresh.version(), &*fresh.key_in(&Range::All)), (None, "l0\0"));
        } else {
            assert_eq!((message, fresh), ("The resourceVersion for the provided list is too old.", None), "{query}");
        }
    }
    assert_eq!(table.len(), 2);
}

/// All Leases after the page were created after the `resourceVersion` of the list. So the page has no `continue` token.
#[test]
fn a_page_followed_only_by_newer_leases_is_the_last() {
    for query in ["limit=2", "limit=2&labelSelector=!a"] {
        let mut table = Table::new(ResourceVersion(1), 4 * JOB_KEYS_PER_STEP, usize::MAX);
        (0..2).for_each(|number| create(&mut table, number));
        let version = table.version();
        (2..2 + 2 * JOB_KEYS_PER_STEP).for_each(|number| create(&mut table, number));
        let query = format!("{query}&resourceVersion={version}&resourceVersionMatch=Exact");
        let mut job = asked(&mut table, Method::Get, &query);
        let (_, list) = finish(&mut job, &mut table);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{query}");
        assert_eq!(list["metadata"], serde_json::json!({ "resourceVersion": version.to_string() }), "{query}");
    }
}

/// Goal: the response to a page of the newest state contains the number of remaining items, which further steps of the
/// job count. Later pages take the number from the `continue` token.
#[test]
fn a_page_of_the_newest_state_counts_the_remaining_items() {
    const LEASES: usize = 3 * JOB_KEYS_PER_STEP;
    let mut table = Table::new(ResourceVersion(1), 4 * UNDELIVERED_SHARE, usize::MAX);
    (0..LEASES).for_each(|number| create(&mut table, number));
    let mut others = LEASES..;
    let first = Snapshot::now(&table, Range::Namespace("n".into()));
    // The page starts after `l0`, which is the first Lease.
    let token = ContinueToken::after(&first.from_key("n/l0\0", Some(7)).expect("in the range")).without_version();
    for (method, query, is_counted) in [
        (Method::Get, "limit=2", true),
        (Method::Get, "limit=2&labelSelector=!a", false),
        (Method::Delete, "limit=2", true),
    ] {
        let mut token = token.encode();
        let mut left = table.len() - 1;
        for page in 0..3 {
            table.mark_delivered();
            let mut job = asked(&mut table, method, &format!("{query}&continue={token}"));
            // Only the first page shows the newest state, so only its job must count all remaining items.
            assert_eq!(job.is_long(), page == 0 || !is_counted, "{query}, page {page}");
            let mut out = Vec::new();
            let mut steps = 1;
            while step(&mut job, &mut table, &mut out).expect("nothing is forgotten") == Stepped::More {
                assert!(out.is_empty() && !job.has_head());
                // Writes during the list do not belong to the `resourceVersion` of the list.
                create(&mut table, others.next().expect("numbers do not end"));
                steps += 1;
            }
            let list = json(&out);
            left -= 2;
            let remaining = list["metadata"]["remainingItemCount"].as_u64();
            assert_eq!(remaining, is_counted.then_some(left as u64), "{query}, page {page}");
            assert_eq!(steps > 1, is_counted && page == 0, "{query}, page {page}: {steps}");
            list["metadata"]["continue"].as_str().expect("there is more").clone_into(&mut token);
        }
    }
}

/// Goal: a step takes no longer with a selector of 1,000 terms than with an empty selector, since it examines fewer
/// Leases.
#[test]
fn a_long_selector_makes_a_job_step_examine_fewer_leases() {
    let labels = vec!["!absent"; 1000].join(",");
    let selector = Selector { labels: LabelSelector::parse(&labels).expect("a selector"), ..Selector::default() };
    let deletion = Deletion { propagation: Propagation::default(), preconditions: None, dry_run: false };
    for what in ["list", "page", "deletion"] {
        let mut table = table_of(40);
        let snapshot = Snapshot::now(&table, Range::All);
        let mut job = match what {
            "list" => Job::list(snapshot, selector.clone(), 0, Form::default()),
            "page" => Job::list(snapshot, selector.clone(), 100, Form::default()),
            _ => Job::delete_collection(snapshot, selector.clone(), 0, deletion.clone(), Form::default()),
        };
        assert!(job.is_long(), "{what}: as much work as one of thousands");
        let (steps, list) = finish(&mut job, &mut table);
        assert!(steps >= 40 * 1000 / SELECTOR_TERMS_PER_LOOK / JOB_KEYS_PER_STEP, "{what}: all in {steps} steps");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(40), "{what}");
        assert_eq!(table.len(), if what == "deletion" { 0 } else { 40 });
    }
}

/// The deletion of a collection itself creates events. These events push older events out of the log, although the rest
/// of the deletion needs the older events. Goal: the deletion finishes all the same.
#[test]
fn a_collection_deletion_larger_than_the_event_log_finishes() {
    for events_max in [1, 10, 20 * DELETIONS_PER_STEP] {
        let mut table = Table::new(ResourceVersion(1), events_max, usize::MAX);
        (0..2 * JOB_KEYS_PER_STEP).for_each(|number| create(&mut table, number));
        table.mark_delivered();
        let mut job = asked(&mut table, Method::Delete, "");
        let (mut out, mut deleted_max) = (Vec::new(), 0);
        loop {
            let before = table.len();
            let stepped = step(&mut job, &mut table, &mut out).expect("nobody else writes");
            deleted_max = deleted_max.max(before - table.len());
            table.mark_delivered();
            if stepped == Stepped::Done {
                break;
            }
        }
        assert_eq!((table.len(), deleted_max), (0, (events_max / UNDELIVERED_SHARE).clamp(1, DELETIONS_PER_STEP)));
        let list = json(&out);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2 * JOB_KEYS_PER_STEP), "{events_max}");
    }
}

/// Goal: an indented or YAML list leaves the bytes before it in the output unchanged, even if it takes many steps.
#[test]
fn a_pretty_list_leaves_preceding_output_unchanged() {
    let mut table = table_of(3 * JOB_KEYS_PER_STEP);
    let mut list = |format, pretty, limit, head: &[u8], bytes_max| {
        let form =
            Form { representation: Representation { format, pretty, ..Representation::JSON }, ..Form::default() };
        let mut job = Job::list(Snapshot::now(&table, Range::All), Selector::default(), limit, form);
        let mut out = head.to_vec();
        loop {
            let bytes_max = out.len() + bytes_max;
            let stepped = job.step(&mut table, &mut Storage::Memory, Now::default(), &mut out, bytes_max);
            if stepped.expect("nothing changes") == Stepped::Done {
                break;
            }
        }
        out.strip_prefix(head).expect("it was there before").to_vec()
    };
    for limit in [0, 2 * JOB_KEYS_PER_STEP] {
        let compact = list(Format::Json, false, limit, b"{\"head\"", 1000);
        let pretty = list(Format::Json, true, limit, b"{\"head\"", 1000);
        let mut expected = Vec::new();
        crate::codec::json::push_pretty(&mut expected, &compact);
        assert!(pretty == expected, "{limit}");
        let yaml = list(Format::Yaml, false, limit, b"{\"head\"", 1000);
        assert!(list(Format::Yaml, false, limit, b"", 1 << 30) == yaml, "{limit}");
        assert_eq!(crate::codec::yaml::decode(&yaml).expect("YAML").value, json(&compact));
    }
}
