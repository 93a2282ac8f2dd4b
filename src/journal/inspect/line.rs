//! Formats a change, or damage, as a line of JSON.

use super::known::Key;
use crate::codec::json::encode_lease_into;
use crate::engine::Position;
use crate::journal::entry::{Header, StoredChange};
use crate::lease::Lease;
use crate::resource::ResourceVersion;
use crate::timestamp::{push_micro_time, push_time};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Display;

/// The fields that the output lines of all changes of one entry share.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryLine {
    pub(super) position: Position,
    writer: u64,
    sequence: u64,
}

impl EntryLine {
    pub(super) fn new(position: Position, header: &Header) -> Self {
        Self { position, writer: header.writer, sequence: header.sequence }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    /// Version of the table after the change; `None` if the change was rejected.
    version: Option<u64>,
    position: u64,
    writer: String,
    sequence: u64,
    kind: &'static str,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    managed_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Value>,
}

#[derive(Serialize)]
struct Damage {
    position: u64,
    damage: String,
}

/// Formats a change. `version` is the version of the table after the change; `None` if the change was rejected.
pub(super) fn change_line(
    entry: EntryLine,
    change: &StoredChange,
    key: Option<Key>,
    version: Option<ResourceVersion>,
) -> String {
    let (kind, origin, times, lease) = match change {
        StoredChange::Create(lease) => ("create", None, None, Some(lease)),
        StoredChange::Replace(origin, lease) => ("replace", Some(origin), None, Some(lease)),
        StoredChange::Renew(origin, times) => ("renew", Some(origin), Some(times), None),
        StoredChange::Delete(origin) => ("delete", Some(origin), None, None),
    };
    let key = key.as_ref();
    to_json(&Line {
        version: version.map(|version| version.0),
        position: entry.position.0,
        writer: format!("{:016x}", entry.writer),
        sequence: entry.sequence,
        kind,
        namespace: key.map(|(namespace, _)| &**namespace),
        name: key.map(|(_, name)| &**name),
        number: origin.map(|origin| origin.number.0),
        from: origin.map(|origin| origin.from.0),
        renew_time: times.map(|times| text(|out| push_micro_time(out, times.renew_time))),
        managed_time: times.and_then(|times| times.managed_time).map(|time| text(|out| push_time(out, time))),
        lease: lease.map(|lease| json_of(lease, version)),
    })
}

/// Formats an error of the entry at `position`.
pub(super) fn damage_line(position: Position, error: &dyn Display) -> String {
    to_json(&Damage { position: position.0, damage: error.to_string() })
}

fn to_json(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap_or_else(|error| format!("{{\"damage\":\"{error}\"}}"))
}

fn json_of(lease: &Lease, version: Option<ResourceVersion>) -> Value {
    let mut json = Vec::new();
    encode_lease_into(&mut json, lease, version, true);
    // `fieldsV1` comes from a client, and may not be valid JSON.
    serde_json::from_slice(&json).unwrap_or_else(|_| String::from_utf8_lossy(&json).into())
}

fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    push(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}
