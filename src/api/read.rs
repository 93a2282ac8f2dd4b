//! The verbs get and list, and the start of a watch request.

use super::asked_state::{AskedState, too_late};
use super::job::Job;
use super::key::check_key;
use super::token::ContinueToken;
use super::{Call, Reply};
use crate::api_error::ApiError;
use crate::form::{Form, LeaseState};
use crate::limits::WATCH_SECONDS_MIN;
use crate::options::{
    GetOptions, ListOptions, ResourceVersionMatch, parse_list_resource_version, parse_watch_resource_version,
};
use crate::resource::ResourceVersion;
use crate::selector::Selector;
use crate::selector::shard::ShardSelector;
use crate::table::Table;
use crate::table::object::Key;
use crate::table::snapshot::{Range, Snapshot};
use crate::watch::{WatchSpec, WatchStart};

/// The start of a list: the snapshot that the list shows, and the limit of the list.
#[derive(Debug)]
pub(super) struct ListStart {
    pub(super) snapshot: Snapshot,
    /// Maximum number of items in the list; 0 for no limit.
    pub(super) limit: usize,
    /// State of the Leases that the list requests.
    pub(super) state: AskedState,
}

/// Replies to a get of one Lease.
pub(super) fn get(table: &Table, call: &Call<'_>, namespace: &str, name: &str) -> Result<Reply, ApiError> {
    let form = call.form(false)?;
    let options = GetOptions::parse(&call.query)?;
    let found = table.find(namespace, name);
    // If the table has the Lease, its name is valid.
    if found.is_none() {
        check_key(namespace, name)?;
    }
    if !options.resource_version.is_empty() {
        not_in_the_future(table, parse_watch_resource_version(&options.resource_version)?)?;
    }
    let (_, object) = found.ok_or_else(|| ApiError::NotFound { name: name.to_owned() })?;
    call.check_options_of(form)?;
    Reply::object(200, LeaseState::Stored(object), form, call.now)
}

/// Replies to a list or a watch of the Leases in one namespace or in all namespaces.
pub(super) fn list(
    table: &Table,
    call: &Call<'_>,
    namespace: Option<&str>,
    rng: &mut fastrand::Rng,
) -> Result<Reply, ApiError> {
    let form = call.form(true)?;
    let mut options = ListOptions::parse(&call.query)?;
    select_shard(call, &mut options)?;
    let range = range_of(namespace, &options.selector);
    if options.watch {
        return watch(table, call, options, range, form, rng);
    }
    let ListStart { snapshot, limit, state } = list_start(table, &options, range)?;
    call.check_options_of(form)?;
    form.representation.check_list().map_err(ApiError::NotAcceptable)?;
    Ok(Reply::Job(Box::new(Job::list(snapshot, options.selector, limit, form).with_state(state))))
}

/// Watches the Leases of a path below `/watch/`. Such a request is a watch even without `watch=true` in the query. But
/// without `watch=true`, kube-apiserver and this server do not check its options as those of a watch (apiserver
/// `endpoints/handlers/get.go`, `ListResource` with `forceWatch`).
pub(super) fn watch_by_path(
    table: &Table,
    call: &Call<'_>,
    namespace: Option<&str>,
    name: Option<&str>,
    rng: &mut fastrand::Rng,
) -> Result<Reply, ApiError> {
    let form = call.form(true)?;
    let mut options = ListOptions::parse(&call.query)?;
    let fields = &options.selector.fields;
    if let Some(name) = name
        && !fields.is_everything()
        && fields.required_name() != Some(name)
    {
        let message = "fieldSelector metadata.name doesn't match requested name".into();
        return Err(ApiError::BadRequest { message });
    }
    select_shard(call, &mut options)?;
    let range = match (namespace, name) {
        (Some(namespace), Some(name)) => Range::Name(Key::new(namespace, name)),
        _ => range_of(namespace, &options.selector),
    };
    watch(table, call, options, range, form, rng)
}

/// Applies `shardSelector` to a list, a watch or a deletion of a collection, if the feature gate is on. kube-apiserver
/// parses `shardSelector` after all other options, but before it evaluates the `resourceVersion` (apiserver
/// `registry/generic/registry`, `ListPredicate` and `Watch`).
pub(super) fn select_shard(call: &Call<'_>, options: &mut ListOptions) -> Result<(), ApiError> {
    if call.features.sharded_list_and_watch && !options.shard_selector.is_empty() {
        options.selector.shard = Some(Box::new(ShardSelector::parse(&options.shard_selector)?));
    }
    Ok(())
}

/// Returns the range of keys that a request must read: the Leases in its path. A field selector that requires a
/// namespace, or a name in a known namespace, makes the range smaller.
pub(super) fn range_of(namespace: Option<&str>, selector: &Selector) -> Range {
    // If the field selector names another namespace than the path, the path decides the range. The field selector then
    // matches no Lease.
    let namespace = namespace.or_else(|| selector.fields.required_namespace());
    match (namespace, selector.fields.required_name()) {
        (None, _) => Range::All,
        // An invalid name in the field selector cannot be a key. kube-apiserver then lists the whole namespace
        // (apiserver `registry/generic/registry`, `ListPredicate`). This server does the same, since `list_start`
        // treats a list of one name differently: with a `resourceVersion` and a limit, it shows another state than a
        // list of a namespace.
        (Some(namespace), Some(name)) if !name.is_empty() && check_key(namespace, name).is_ok() => {
            Range::Name(Key::new(namespace, name))
        }
        (Some(namespace), _) => Range::Namespace(namespace.into()),
    }
}

/// Returns the start of a list: the state that the list must show, and its limit (Kubernetes API concepts, "Semantics
/// for get and list").
pub(super) fn list_start(table: &Table, options: &ListOptions, range: Range) -> Result<ListStart, ApiError> {
    let limit = usize::try_from(options.limit).unwrap_or(0);
    if !options.continue_token.is_empty() {
        // With a `continue` token, kube-apiserver lists the whole namespace even if the field selector names one Lease
        // (apiserver `storage`, `MatchesSingle`). The field selector then selects by name within the page.
        let range = match range {
            Range::Name(key) => Range::Namespace(key.parts().0.into()),
            other => other,
        };
        let token = ContinueToken::decode(&options.continue_token)?.within(&range);
        if !matches!(options.resource_version.as_str(), "" | "0") {
            let message = "specifying resource version is not allowed when using continue".into();
            return Err(ApiError::BadRequest { message });
        }
        // A list at `resourceVersion` 0 has no limit, even with a `continue` token. kube-apiserver serves such a list
        // from its cache, which ignores limits.
        let limit = if options.resource_version == "0" { 0 } else { limit };
        return Ok(ListStart { snapshot: next_page(table, &token, range)?, limit, state: AskedState::Page(token) });
    }
    let version = parse_list_resource_version(&options.resource_version)?;
    not_in_the_future(table, version).map_err(|error| match (error, &range) {
        // kube-apiserver reads a list of one name from etcd and not from its cache if the list has a limit or names an
        // exact version. So the error has no `retryAfterSeconds`.
        (ApiError::TooLargeResourceVersion { requested, current, .. }, Range::Name(_))
            if limit != 0 && options.resource_version_match == ResourceVersionMatch::None
                || options.resource_version_match == ResourceVersionMatch::Exact =>
        {
            ApiError::TooLargeResourceVersion { requested, current, retry_after_seconds: 0 }
        }
        (error, _) => error,
    })?;
    let now = |range, limit| ListStart { snapshot: Snapshot::now(table, range), limit, state: AskedState::Newest };
    match options.resource_version_match {
        // An exact version 0 is refused earlier, unless it is spelled differently, such as `00`. etcd treats this as no
        // version, so the list shows the newest state.
        ResourceVersionMatch::Exact if version != 0 => at(table, range, version, limit),
        // With a limit, the list shows the state at exactly this version. So all pages of the list show the same state.
        ResourceVersionMatch::None if version != 0 && limit != 0 && !matches!(range, Range::Name(_)) => {
            at(table, range, version, limit)
        }
        // kube-apiserver serves version 0 from its cache, which has no pages. So the list has no limit.
        ResourceVersionMatch::None | ResourceVersionMatch::NotOlderThan if options.resource_version == "0" => {
            Ok(now(range, 0))
        }
        ResourceVersionMatch::Exact | ResourceVersionMatch::None | ResourceVersionMatch::NotOlderThan => {
            Ok(now(range, limit))
        }
    }
}

fn at(table: &Table, range: Range, version: u64, limit: usize) -> Result<ListStart, ApiError> {
    let state = AskedState::Version;
    let snapshot = Snapshot::at(table, range, ResourceVersion(version)).map_err(|_| state.forgotten())?;
    Ok(ListStart { snapshot, limit, state })
}

/// Returns the snapshot for the page that a `continue` token requests.
fn next_page(table: &Table, token: &ContinueToken, range: Range) -> Result<Snapshot, ApiError> {
    let (start, remaining) = (token.key_in(&range), token.remaining_in(&range));
    let snapshot = match token.version() {
        None => Snapshot::now(table, range),
        // This server has not issued this version. Another server issued it for another table: the first version of a
        // new store is the time by the server's clock, and that server's clock was ahead. This table does not have that
        // state.
        Some(version) if version > table.version().0 => return Err(too_late(token)),
        Some(version) => Snapshot::at(table, range, ResourceVersion(version)).map_err(|_| too_late(token))?,
    };
    snapshot.from_key(&start, remaining).ok_or_else(|| ApiError::BadRequest {
        message: "invalid continue token: continue key is not valid: it points out of the list".into(),
    })
}

fn not_in_the_future(table: &Table, version: u64) -> Result<(), ApiError> {
    let current = table.version().0;
    if version <= current {
        return Ok(());
    }
    Err(ApiError::TooLargeResourceVersion { requested: version, current, retry_after_seconds: 1 })
}

/// Returns the error for a watch from a `resourceVersion` that this server has not issued yet. kube-apiserver waits for
/// such a version, since one kube-apiserver may be behind another. Here the request waits no longer: if this table may
/// be behind, the request has already waited (`freshness`). So another server issued the version for another table. The
/// first version of a new store is the time by the server's clock, and that server's clock was ahead. Until this server
/// reaches the version, the watch would show no change.
#[cold]
fn never_given_out(table: &Table, version: u64) -> ApiError {
    let message = format!("resource version {version} is above the newest, {}: list anew", table.version());
    ApiError::Expired { message, next: None }
}

/// Begins a watch (Kubernetes API concepts, "Semantics for watch").
fn watch(
    table: &Table,
    call: &Call<'_>,
    options: ListOptions,
    range: Range,
    form: Form,
    rng: &mut fastrand::Rng,
) -> Result<Reply, ApiError> {
    let version = parse_watch_resource_version(&options.resource_version)?;
    let with_all = |end_bookmark| WatchStart::Initial {
        snapshot: Box::new(Snapshot::now(table, range.clone())),
        end_bookmark,
        permit: None,
    };
    let start = match options.send_initial_events {
        Some(true) => match not_in_the_future(table, version) {
            Err(error) => WatchStart::Refused(Box::new(error)),
            Ok(()) => with_all(options.allow_watch_bookmarks),
        },
        // The default `sendInitialEvents=true` of a watch from version 0 does not apply here. The query lacks
        // `watch=true`, or spells the version 0 differently, such as `00`. The watch still begins with the existing
        // Leases (apiserver `storage/cacher`, `getAllEventsSinceLocked`). No bookmark marks the end of these initial
        // events.
        None if version == 0 => with_all(false),
        Some(false) if version == 0 => WatchStart::After(table.version()),
        Some(false) | None if version > table.version().0 => {
            WatchStart::Refused(Box::new(never_given_out(table, version)))
        }
        Some(false) | None => WatchStart::After(ResourceVersion(version)),
    };
    call.check_options_of(form)?;
    form.representation.check_watch().map_err(ApiError::NotAcceptable)?;
    // The number of nanoseconds overflows as in Go (apiserver `endpoints/handlers/get.go`, `ListResource`). A negative
    // number ends the watch at once. The number 0 means that the client sets no timeout.
    let timeout_ms = match options.timeout_seconds.unwrap_or(0).wrapping_mul(1_000_000_000) {
        // The timeout is random, so that watches that began together do not end together.
        0 => rng.u64(WATCH_SECONDS_MIN * 1000..2 * WATCH_SECONDS_MIN * 1000),
        timeout_ns => u64::try_from(timeout_ns).unwrap_or(0) / 1_000_000,
    };
    Ok(Reply::Watch(Box::new(WatchSpec {
        range,
        selector: options.selector,
        start,
        bookmarks: options.allow_watch_bookmarks,
        timeout_ms,
        form: form.for_watch(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Api;
    use crate::auth::Credentials;
    use crate::clock::Now;
    use crate::http::{Method, NoLines, RequestHead};
    use crate::lease::Lease;
    use crate::timestamp::Time;

    fn watch_of(path: &str, query: &str) -> WatchSpec {
        let path = format!("/apis/coordination.k8s.io/v1/{path}");
        let head = RequestHead::bare(Method::Get, &path, query, &NoLines);
        let mut table = Table::new(ResourceVersion(100), 10, usize::MAX);
        let now = Now { ms: 0, wall: Time(0) };
        match Api::new().handle(&mut table, &head, &[], None, &Credentials::insecure(), now) {
            Reply::Watch(spec) => *spec,
            other => panic!("{query}: {other:?}"),
        }
    }

    #[test]
    fn a_watch_from_0_in_any_spelling_starts_with_the_state() {
        let bookmarks = "allowWatchBookmarks=1";
        for (path, query, expected) in [
            ("leases", "watch=1", Ok(true)),
            ("leases", "watch=1&resourceVersion=0", Ok(true)),
            ("leases", "watch=1&resourceVersion=00", Ok(false)),
            ("leases", "watch=1&resourceVersion=00&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", Ok(true)),
            (
                "leases",
                "watch=1&resourceVersion=00&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
                Err(100),
            ),
            ("leases", "watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Err(100)),
            ("leases", "watch=1&resourceVersion=0090", Err(90)),
            ("watch/leases", "resourceVersion=000", Ok(false)),
            ("watch/leases", "", Ok(false)),
            ("watch/leases", "resourceVersion=7", Err(7)),
        ] {
            let found = match watch_of(path, &format!("{bookmarks}&{query}")).start {
                WatchStart::Initial { end_bookmark, .. } => Ok(end_bookmark),
                WatchStart::After(version) => Err(version.0),
                WatchStart::Refused(error) => panic!("{query}: {error:?}"),
            };
            assert_eq!(found, expected, "{path}?{query}");
        }
    }

    #[test]
    fn a_foreign_token_has_no_count_and_a_future_token_gets_410() {
        let mut table = Table::new(ResourceVersion(100), 10, usize::MAX);
        for (namespace, name) in [("a", "x"), ("a", "y"), ("b", "x")] {
            table.create(Lease::named(namespace, name));
        }
        let range = Range::Namespace("a".into());
        let token = ContinueToken::after(&Snapshot::now(&table, range.clone()));
        let remaining = |range| next_page(&table, &token, range).expect("a page").remaining();
        assert_eq!((remaining(range), remaining(Range::All)), (Some(2), None));

        // The table `younger` has not reached the version of the token. client-go lists again only after a 410, so the
        // error must be a 410.
        let younger = Table::new(ResourceVersion(7), 10, usize::MAX);
        let status = next_page(&younger, &token, Range::All).expect_err("of the future").status();
        assert_eq!((status.code, status.next.is_some()), (410, true));
    }

    #[test]
    fn timeout_seconds_overflow_as_in_go() {
        let by_default = WATCH_SECONDS_MIN * 1000..2 * WATCH_SECONDS_MIN * 1000;
        for (query, timeout_ms) in [
            ("", None),
            ("&timeoutSeconds=0", None),
            ("&timeoutSeconds=7", Some(7000)),
            ("&timeoutSeconds=9223372036", Some(9_223_372_036_000)),
            ("&timeoutSeconds=-1", Some(0)),
            // The timeout in nanoseconds overflows an `i64`, once or several times.
            ("&timeoutSeconds=9223372037", Some(0)),
            ("&timeoutSeconds=9223372036854775807", Some(0)),
            ("&timeoutSeconds=-9223372036854775808", None),
            ("&timeoutSeconds=18446744074", Some(290)),
            ("&timeoutSeconds=36028797018963968", None),
        ] {
            let found = watch_of("leases", &format!("watch=1{query}")).timeout_ms;
            match timeout_ms {
                Some(timeout_ms) => assert_eq!(found, timeout_ms, "{query}"),
                None => assert!(by_default.contains(&found), "{query}: {found}"),
            }
        }
    }
}
