//! Leases as JSON: builds the bodies of requests, and parses the bodies of responses.
//!
//! Each write has a unique `renewTime`, which encodes the number of its operation. So each state identifies the
//! operation that wrote it.

use crate::history::{Event, EventKind, Key, Nanos, Seen};
use coordination_apiserver::timestamp::{MicroTime, parse_canonical_micro_time, push_micro_time};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::hash::BuildHasher as _;
use uuid::Uuid;

/// A Kubernetes object whose `metadata` and `spec` are not parsed yet.
#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    holder_identity: Cow<'a, str>,
    #[serde(borrow)]
    renew_time: Cow<'a, str>,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow)]
    items: Vec<Object<'a>>,
}

#[derive(Deserialize)]
struct WatchLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Status {
    code: u16,
}

/// Namespace of the identity Leases, which the replicas themselves write. An event of such a Lease counts as a
/// bookmark: the checks only need its version, which must not decrease.
const IDENTITIES: &str = "kube-system";

/// One event in the body of a watch's response.
#[derive(Debug)]
pub(crate) enum Line {
    Event(Event),
    Bookmark(u64),
    /// An ERROR event with this status code, which ends the watch.
    Error(u16),
}

/// Parses the Lease in a body.
pub(crate) fn lease(body: &[u8]) -> Result<Seen, String> {
    seen(&serde_json::from_slice(body).map_err(|e| wrong(body, &e.to_string()))?)
}

/// Parses a list. Returns its resourceVersion and its Leases, without the replicas' own Leases.
pub(crate) fn list(body: &[u8]) -> Result<(u64, Vec<Seen>), String> {
    let list: List<'_> = serde_json::from_slice(body).map_err(|e| wrong(body, &e.to_string()))?;
    let is_identity = |object: &&Object<'_>| meta(object).is_ok_and(|meta| meta.namespace == IDENTITIES);
    let items = list.items.iter().filter(|object| !is_identity(object)).map(seen).collect::<Result<_, _>>()?;
    Ok((version(&list.metadata)?, items))
}

/// Parses one line of a watch's response, which arrived at `at`.
pub(crate) fn line(body: &[u8], at: Nanos) -> Result<Line, String> {
    let read = |e: serde_json::Error| wrong(body, &e.to_string());
    let line: WatchLine<'_> = serde_json::from_slice(body).map_err(read)?;
    let kind = match &*line.kind {
        "ADDED" => Some(EventKind::Added),
        "MODIFIED" => Some(EventKind::Modified),
        "DELETED" => Some(EventKind::Deleted),
        "BOOKMARK" => None,
        "ERROR" => return Ok(Line::Error(serde_json::from_str::<Status>(line.object.get()).map_err(read)?.code)),
        _ => return Err(wrong(body, "unknown event type")),
    };
    let object: Object<'_> = serde_json::from_str(line.object.get()).map_err(read)?;
    let meta = meta(&object)?;
    match kind {
        Some(kind) if meta.namespace != IDENTITIES => Ok(Line::Event(Event { kind, seen: seen(&object)?, at })),
        _ => Ok(Line::Bookmark(version(&meta)?)),
    }
}

fn meta<'a>(object: &Object<'a>) -> Result<Meta<'a>, String> {
    let raw = object.metadata.get();
    serde_json::from_str(raw).map_err(|e| wrong(raw.as_bytes(), &e.to_string()))
}

fn seen(object: &Object<'_>) -> Result<Seen, String> {
    let raw = object.metadata.get();
    let meta = meta(object)?;
    let spec_raw = object.spec.map_or("{}", RawValue::get);
    let spec: Spec<'_> = serde_json::from_str(spec_raw).map_err(|e| wrong(spec_raw.as_bytes(), &e.to_string()))?;
    let part = |value: Option<u64>, what: &str| value.ok_or_else(|| wrong(raw.as_bytes(), what));
    let holder = spec.holder_identity.strip_prefix("client-").and_then(|number| number.parse().ok());
    Ok(Seen {
        key: Key::parse(&meta.namespace, &meta.name)
            .ok_or_else(|| wrong(raw.as_bytes(), "a name of another program"))?,
        version: version(&meta)?,
        uid: Uuid::parse_str(&meta.uid).map_err(|_| wrong(raw.as_bytes(), "no uid"))?.as_u128(),
        op: part(parse_time(&spec.renew_time), &format!("renewTime {}", spec.renew_time))?,
        holder: holder.ok_or_else(|| wrong(spec_raw.as_bytes(), "a holder that is not a client"))?,
        hash: foldhash::fast::FixedState::default().hash_one((raw, spec_raw)),
    })
}

fn version(meta: &Meta<'_>) -> Result<u64, String> {
    meta.resource_version.parse().map_err(|_| format!("resourceVersion {:?}", meta.resource_version))
}

/// The `renewTime` of operation 0, in microseconds since 1970: the start of 2030. Each operation adds a microsecond.
const RENEW_TIME_0: i64 = 1_893_456_000_000_000;

/// Formats the `renewTime` of an operation.
fn time_text(op: u64) -> String {
    let mut text = Vec::new();
    push_micro_time(&mut text, MicroTime(RENEW_TIME_0 + op.cast_signed()));
    String::from_utf8(text).expect("ASCII")
}

fn parse_time(text: &str) -> Option<u64> {
    let MicroTime(micros) = parse_canonical_micro_time(text.as_bytes().try_into().ok()?)?;
    u64::try_from(micros - RENEW_TIME_0).ok()
}

/// Builds the body of a POST or of a PUT. For a PUT, `from` is the uid and the version of the state that it replaces.
pub(crate) fn body(key: Key, client: u32, op: u64, from: Option<(u128, u64)>) -> String {
    let owned = from.map_or_else(String::new, |(uid, version)| {
        format!(r#","uid":"{}","resourceVersion":"{version}""#, Uuid::from_u128(uid))
    });
    format!(
        concat!(
            r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"{}","namespace":"{}"{}}},"#,
            r#""spec":{{"holderIdentity":"client-{}","leaseDurationSeconds":40,"renewTime":"{}"}}}}"#
        ),
        key.name(),
        key.space.name(),
        owned,
        client,
        time_text(op)
    )
}

/// Builds the merge patch that writes the operation's `renewTime`.
pub(crate) fn patch(op: u64) -> String {
    format!(r#"{{"spec":{{"renewTime":"{}"}}}}"#, time_text(op))
}

/// Builds `DeleteOptions` with the uid, and optionally the resourceVersion, as preconditions.
pub(crate) fn delete_options(uid: u128, from: Option<u64>) -> String {
    let uid = Uuid::from_u128(uid);
    let version = from.map_or_else(String::new, |version| format!(r#","resourceVersion":"{version}""#));
    format!(r#"{{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{{"uid":"{uid}"{version}}}}}"#)
}

fn wrong(body: &[u8], why: &str) -> String {
    /// Maximum number of bytes of a body that a message shows.
    const SHOWN_BYTES: usize = 600;
    let shown = String::from_utf8_lossy(body.get(..SHOWN_BYTES).unwrap_or(body));
    format!("{why}: {shown}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Space;

    #[test]
    fn an_operation_is_identified_by_its_write() {
        let key = Key { space: Space::Locks, number: 7 };
        for op in [0, 1, 999_999, 1_000_000, 86_400_000_000, 123_456_789_012] {
            let uid = 0x0123_4567_89ab_cdef;
            let body = body(key, 3, op, Some((uid, 42)));
            let seen = lease(body.as_bytes()).expect("a Lease");
            assert_eq!((seen.key, seen.version, seen.uid, seen.op, seen.holder), (key, 42, uid, op, 3));
        }
    }

    #[test]
    fn a_foreign_lease_is_reported() {
        let body = body(Key { space: Space::Locks, number: 7 }, 3, 5, None);
        assert!(lease(body.as_bytes()).is_err(), "no version");
        let told = lease(body.replace("lease-7", "other").as_bytes()).expect_err("a name");
        assert!(told.contains("another program"), "{told}");
    }

    #[test]
    fn lines_of_a_watch_are_classified() {
        let bookmark = br#"{"type":"BOOKMARK","object":{"kind":"Lease","metadata":{"resourceVersion":"9"},"spec":{}}}"#;
        assert!(matches!(line(bookmark, 1), Ok(Line::Bookmark(9))));
        let gone = br#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#;
        assert!(matches!(line(gone, 1), Ok(Line::Error(410))));
    }
}
