//! Generates Leases of every kind that a table can hold, and some that it cannot.

use crate::lease::managed_fields::{FieldsV1, ManagedFields, ManagedFieldsEntry, Operation};
use crate::lease::{Lease, OwnerReference};
use crate::timestamp::{MicroTime, Time};
use compact_str::CompactString;
use fastrand::Rng;

const TEXTS: [&str; 9] =
    ["", "a", "kube-node-lease", "é\u{1}\"\\", "\0", "0123456789abcdef0123456789abcdef", "<&>", "🦀", "{}"];

const NUMBERS: [i64; 9] =
    [0, 1, -1, i64::MAX, i64::MIN, -62_135_596_800, -62_135_596_800_000_000, 1_700_000_000_000_000, 1 << 35];

pub(super) fn text(random: &mut Rng) -> CompactString {
    match random.u8(..40) {
        0 => "long".repeat(random.usize(..2_000)).into(),
        _ => TEXTS[random.usize(..TEXTS.len())].into(),
    }
}

pub(super) fn number(random: &mut Rng) -> i64 {
    if random.bool() { NUMBERS[random.usize(..NUMBERS.len())] } else { random.i64(..) >> random.u32(..64) }
}

fn optional<T>(random: &mut Rng, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    random.bool().then(|| make(random))
}

fn list<T>(random: &mut Rng, mut make: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    if random.bool() {
        return Vec::new();
    }
    (0..random.usize(..4)).map(|_| make(random)).collect()
}

pub(super) fn lease(random: &mut Rng) -> Lease {
    let mut lease = Lease::default();
    let meta = &mut lease.metadata;
    meta.name = text(random);
    meta.generate_name = text(random);
    meta.namespace = text(random);
    meta.self_link = text(random);
    meta.uid = text(random);
    meta.resource_version = text(random);
    meta.generation = number(random);
    meta.creation_timestamp = optional(random, |random| Time(number(random)));
    meta.deletion_timestamp = optional(random, |random| Time(number(random)));
    meta.deletion_grace_period_seconds = optional(random, number);
    meta.labels = list(random, |random| (text(random), text(random))).into_iter().collect();
    meta.annotations = list(random, |random| (text(random), text(random))).into_iter().collect();
    meta.owner_references = list(random, owner);
    meta.finalizers = list(random, text);
    meta.managed_fields = match random.u8(..3) {
        0 => ManagedFields::ABSENT,
        1 => ManagedFields::reset(),
        _ => ManagedFields::new((0..random.usize(1..4)).map(|_| entry(random)).collect()),
    };
    let spec = &mut lease.spec;
    spec.holder_identity = optional(random, text);
    spec.lease_duration_seconds = optional(random, |random| random.i32(..));
    spec.acquire_time = optional(random, |random| MicroTime(number(random)));
    spec.renew_time = optional(random, |random| MicroTime(number(random)));
    spec.lease_transitions = optional(random, |random| random.i32(..));
    spec.strategy = optional(random, text);
    spec.preferred_holder = optional(random, text);
    lease
}

fn owner(random: &mut Rng) -> OwnerReference {
    OwnerReference {
        api_version: text(random),
        kind: text(random),
        name: text(random),
        uid: text(random),
        controller: optional(random, Rng::bool),
        block_owner_deletion: optional(random, Rng::bool),
    }
}

fn entry(random: &mut Rng) -> ManagedFieldsEntry {
    const FIELDS: [&str; 4] = [
        "{}",
        "not even JSON",
        "",
        r#"{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"3c5a2a3e-8b5e-4b0c-9a83-0f0e9f6a7b11\"}":{}}}}"#,
    ];
    ManagedFieldsEntry {
        manager: text(random),
        operation: if random.bool() { Operation::Apply } else { Operation::Update },
        api_version: text(random),
        time: optional(random, |random| Time(number(random))),
        fields: FieldsV1::stored(FIELDS[random.usize(..FIELDS.len())], optional(random, |random| random.u8(..))),
        subresource: text(random).into(),
    }
}
