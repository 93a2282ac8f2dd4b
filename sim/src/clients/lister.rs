//! A client that lists the newest state or the state at a version, in one response or in pages.

use super::http::{Http, Request, WINDOW};
use super::{lease, version_of};
use crate::check::history::{Key, List, State};
use crate::kernel::{Context, SECOND};
use fastrand::Rng;
use serde_json::Value;

/// Time after which the request for a page or a watch is abandoned, in microseconds.
pub const WITHIN_US: u64 = 20 * SECOND;

/// Runs the client until the run ends.
pub async fn run(context: Context) {
    let mut http = Http::new(WINDOW);
    let mut last = None;
    while !context.is_ending() {
        let wait_us = context.random(|random| random.u64(SECOND..8 * SECOND));
        context.sleep(wait_us).await;
        let exact = last.filter(|_| context.random(Rng::bool));
        let limit = context.random(|random| if random.bool() { random.usize(1..4) } else { 0 });
        if let Some(list) = list(&context, &mut http, exact, limit).await {
            last = Some(list.version);
            context.sim.history.borrow_mut().lists.push(list);
        }
    }
}

/// Lists all Leases, in the newest state or at the version `exact`, in pages of `limit` Leases; 0 means one response.
/// Returns `None` if a page was refused or got no response.
pub async fn list(context: &Context, http: &mut Http, exact: Option<u64>, limit: usize) -> Option<List> {
    let sent_us = context.now_us();
    let mut list: Option<List> = None;
    let mut token = String::new();
    loop {
        let mut target = format!("{}?limit={limit}", lease::ALL);
        if !token.is_empty() {
            target += &format!("&continue={token}");
        } else if let Some(version) = exact {
            target += &format!("&resourceVersion={version}&resourceVersionMatch=Exact");
        }
        let (page, version, items) = page(context, http, &target).await?;
        let list = list.get_or_insert_with(|| List {
            namespace: None,
            is_newest: exact.is_none(),
            exact,
            sent_us,
            done_us: 0,
            version,
            items: Vec::new(),
        });
        if list.version != version {
            let what = format!("{}: a page has version {version}, but its list has {}", context.name, list.version);
            context.sim.history.borrow_mut().complaints.push(what);
        }
        list.items.extend(items);
        list.done_us = context.now_us();
        match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            Some(next) => next.clone_into(&mut token),
            None => return Some(list.clone()),
        }
    }
}

/// Requests a list, or one page of it. Returns the object that the server sent, its version and its Leases. Returns
/// `None` if the request was refused or got no response, or a field is missing.
pub async fn page(context: &Context, http: &mut Http, target: &str) -> Option<(Value, u64, Vec<(Key, State)>)> {
    let request = Request { method: "GET", target, content_type: "", body: "" };
    let response = http.request(context, &request, WITHIN_US).await.ok()?;
    context.say(|| format!("GET {target} → {}", response.status));
    let page: Value = serde_json::from_slice(&response.body).ok().filter(|_| response.status == 200)?;
    let items = page["items"].as_array()?.iter().map(|item| Some((lease::key(item)?, lease::state(item)?)));
    let (version, items) = (version_of(&page)?, items.collect::<Option<_>>()?);
    Some((page, version, items))
}
