//! The binary form of a Lease in entries and snapshots. This form can represent everything that a Lease in the table
//! can contain.
//!
//! The API's protobuf encoding is not suitable. It does not distinguish an empty list of `managedFields` from a missing
//! list. Its times cannot represent 64 bits of microseconds. And a new version of the API can change the encoding.
//!
//! In the layout of the form, the `number` is a varint (module `wire`):
//!
//! ```text
//!   number   set of the fields that follow, one bit for each, in this order:
//!            name, generateName, namespace, selfLink, uid, resourceVersion   texts, absent if empty
//!            generation                                                      absent if 0
//!            creationTimestamp, deletionTimestamp, deletionGracePeriodSeconds
//!            labels, annotations                                             count, keys and values
//!            ownerReferences                                                 count, see `put_owner`
//!            finalizers                                                      count, texts
//!            managedFields                                                   count, see `put_entry`
//!            holderIdentity, leaseDurationSeconds, acquireTime, renewTime, leaseTransitions, strategy,
//!            preferredHolder
//! ```

use super::wire::{FormError, Reader, put_length, put_signed, put_text, put_varint};
use crate::lease::managed_fields::{FieldsV1, ManagedFields, ManagedFieldsEntry, Operation};
use crate::lease::{Lease, LeaseSpec, ObjectMeta, OwnerReference, StringMap};
use crate::table::object::Object;
use crate::timestamp::{MicroTime, Time};
use compact_str::CompactString;

/// The values that a renewal changes. The table stores them beside the [`Lease`], whose own values stay as they were
/// before the renewal. So these values are encoded instead of those in the [`Lease`].
#[derive(Clone, Copy, Debug)]
struct Times<'l> {
    /// Version of the Lease in built-in storage (kube-apiserver's own storage); empty without one. A renewal of the
    /// Lease at this server removes the version.
    resource_version: &'l str,
    renew_time: Option<MicroTime>,
    /// Time of the last entry of `managedFields`; `None` to keep the time in the Lease.
    managed_time: Option<Time>,
}

/// Appends the binary form of a Lease.
pub(super) fn put_lease(out: &mut Vec<u8>, lease: &Lease) {
    let resource_version = &lease.metadata.resource_version;
    put(out, lease, Times { resource_version, renew_time: lease.spec.renew_time, managed_time: None });
}

/// Appends the binary form of the Lease of an object in the table, with the times of its last renewal.
pub(super) fn put_object(out: &mut Vec<u8>, object: &Object) {
    let resource_version = object.built_in_version_text();
    let (renew_time, managed_time) = (object.renew_time(), object.managed_time());
    put(out, object.unrenewed(), Times { resource_version, renew_time, managed_time });
}

fn put(out: &mut Vec<u8>, lease: &Lease, times: Times<'_>) {
    let (meta, spec) = (&lease.metadata, &lease.spec);
    put_varint(out, Fields::of(lease, times).0);
    let [name, generate_name] = [meta.name.as_str(), &meta.generate_name];
    let texts = [name, generate_name, &meta.namespace, &meta.self_link, &meta.uid, times.resource_version];
    for text in texts.into_iter().filter(|text| !text.is_empty()) {
        put_text(out, text);
    }
    if meta.generation != 0 {
        put_signed(out, meta.generation);
    }
    let times_of_meta = [meta.creation_timestamp.map(|time| time.0), meta.deletion_timestamp.map(|time| time.0)];
    for number in times_of_meta.into_iter().chain([meta.deletion_grace_period_seconds]).flatten() {
        put_signed(out, number);
    }
    for map in [&meta.labels, &meta.annotations].into_iter().filter(|map| !map.is_empty()) {
        put_length(out, map.len());
        for (key, value) in map.iter() {
            put_text(out, key);
            put_text(out, value);
        }
    }
    if !meta.owner_references.is_empty() {
        put_length(out, meta.owner_references.len());
        meta.owner_references.iter().for_each(|owner| put_owner(out, owner));
    }
    if !meta.finalizers.is_empty() {
        put_length(out, meta.finalizers.len());
        meta.finalizers.iter().for_each(|finalizer| put_text(out, finalizer));
    }
    if !meta.managed_fields.is_absent() {
        let entries = meta.managed_fields.entries();
        put_length(out, entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let is_last = index + 1 == entries.len();
            put_entry(out, entry, times.managed_time.filter(|_| is_last).or(entry.time));
        }
    }
    put_spec(out, spec, times.renew_time);
}

fn put_spec(out: &mut Vec<u8>, spec: &LeaseSpec, renew_time: Option<MicroTime>) {
    if let Some(text) = &spec.holder_identity {
        put_text(out, text);
    }
    let numbers = [
        spec.lease_duration_seconds.map(i64::from),
        spec.acquire_time.map(|time| time.0),
        renew_time.map(|time| time.0),
        spec.lease_transitions.map(i64::from),
    ];
    numbers.into_iter().flatten().for_each(|number| put_signed(out, number));
    [&spec.strategy, &spec.preferred_holder].into_iter().flatten().for_each(|text| put_text(out, text));
}

/// Appends an owner: four texts, and one byte with the two optional booleans.
fn put_owner(out: &mut Vec<u8>, owner: &OwnerReference) {
    for text in [&owner.api_version, &owner.kind, &owner.name, &owner.uid] {
        put_text(out, text);
    }
    out.push(mark(owner.controller) | mark(owner.block_owner_deletion) << 2);
}

fn mark(mark: Option<bool>) -> u8 {
    match mark {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    }
}

/// Appends an entry of `managedFields`: a byte of flags; manager, apiVersion, fields and subresource as texts; the
/// time, if present; a byte for the fields of the Lease's spec that the entry names, if known. The bits of this byte
/// from bit 0: acquireTime, holderIdentity, leaseDurationSeconds, leaseTransitions, preferredHolder, renewTime,
/// strategy.
fn put_entry(out: &mut Vec<u8>, entry: &ManagedFieldsEntry, time: Option<Time>) {
    let spec_bits = entry.fields.spec_bits();
    let marks = [
        (entry.operation == Operation::Apply, IS_APPLY),
        (time.is_some(), HAS_TIME),
        (spec_bits.is_some(), HAS_SPEC_BITS),
    ];
    out.push(marks.into_iter().filter(|(is_set, _)| *is_set).fold(0, |marks, (_, mark)| marks | mark));
    put_text(out, &entry.manager);
    put_text(out, &entry.api_version);
    put_text(out, &entry.fields.as_json());
    put_text(out, &entry.subresource);
    if let Some(time) = time {
        put_signed(out, time.0);
    }
    out.extend(spec_bits);
}

/// Flags of an entry of `managedFields`.
const IS_APPLY: u8 = 1;
const HAS_TIME: u8 = 2;
const HAS_SPEC_BITS: u8 = 4;

/// Reads a Lease that [`put_lease`] or [`put_object`] appended.
pub(super) fn read_lease(reader: &mut Reader<'_>) -> Result<Lease, FormError> {
    let start = reader.damaged("a field that no Lease has");
    let fields = Fields(reader.varint()?);
    if fields.0 >> Fields::COUNT != 0 {
        return Err(start);
    }
    let mut next = 0;
    // The fields are read in the order of their bits.
    let mut has = || {
        next += 1;
        fields.0 & (1 << (next - 1)) != 0
    };
    let mut meta = ObjectMeta::default();
    let ObjectMeta { name, generate_name, namespace, self_link, uid, resource_version, .. } = &mut meta;
    for text in [name, generate_name, namespace, self_link, uid, resource_version] {
        if has() {
            *text = reader.text()?;
        }
    }
    meta.generation = has().then(|| reader.signed()).transpose()?.unwrap_or_default();
    meta.creation_timestamp = has().then(|| reader.signed()).transpose()?.map(Time);
    meta.deletion_timestamp = has().then(|| reader.signed()).transpose()?.map(Time);
    meta.deletion_grace_period_seconds = has().then(|| reader.signed()).transpose()?;
    for map in [&mut meta.labels, &mut meta.annotations] {
        if has() {
            *map = read_map(reader)?;
        }
    }
    if has() {
        meta.owner_references = read_list(reader, read_owner)?;
    }
    if has() {
        meta.finalizers = read_list(reader, Reader::text)?;
    }
    if has() {
        meta.managed_fields = ManagedFields::new(read_list(reader, read_entry)?);
    }
    let spec = LeaseSpec {
        holder_identity: has().then(|| reader.text()).transpose()?,
        lease_duration_seconds: has().then(|| reader.narrow_signed()).transpose()?,
        acquire_time: has().then(|| reader.signed()).transpose()?.map(MicroTime),
        renew_time: has().then(|| reader.signed()).transpose()?.map(MicroTime),
        lease_transitions: has().then(|| reader.narrow_signed()).transpose()?,
        strategy: has().then(|| reader.text()).transpose()?,
        preferred_holder: has().then(|| reader.text()).transpose()?,
    };
    Ok(Lease { metadata: meta, spec })
}

fn read_list<'b, T>(
    reader: &mut Reader<'b>,
    mut read: impl FnMut(&mut Reader<'b>) -> Result<T, FormError>,
) -> Result<Vec<T>, FormError> {
    // The count may be wrong, and an item takes much more memory than its encoded bytes. So memory is not reserved for
    // all items in advance.
    let count = reader.length()?;
    let mut list = Vec::with_capacity(count.min(LIST_RESERVED_MAX));
    for _ in 0..count {
        list.push(read(reader)?);
    }
    Ok(list)
}

/// Maximum number of items for which a list reserves memory in advance.
const LIST_RESERVED_MAX: usize = 64;

fn read_map(reader: &mut Reader<'_>) -> Result<StringMap, FormError> {
    let error = reader.damaged("keys out of order");
    let pairs = read_list(reader, |reader| Ok((reader.text()?, reader.text()?)))?;
    // Keys are written in order, so keys out of order mean damage. Inserting sorted keys is also fast.
    if !pairs.is_sorted_by(|(a, _), (b, _): &(CompactString, CompactString)| a < b) {
        return Err(error);
    }
    Ok(pairs.into_iter().collect())
}

fn read_owner(reader: &mut Reader<'_>) -> Result<OwnerReference, FormError> {
    let (api_version, kind) = (reader.text()?, reader.text()?);
    let (name, uid) = (reader.text()?, reader.text()?);
    let error = reader.damaged("a mark that no owner has");
    let marks = reader.u8()?;
    let mark = |bits: u8| match bits {
        0 => Ok(None),
        1 => Ok(Some(false)),
        2 => Ok(Some(true)),
        _ => Err(error),
    };
    let (controller, block_owner_deletion) = (mark(marks & 3)?, mark(marks >> 2)?);
    Ok(OwnerReference { api_version, kind, name, uid, controller, block_owner_deletion })
}

fn read_entry(reader: &mut Reader<'_>) -> Result<ManagedFieldsEntry, FormError> {
    let error = reader.damaged("a mark that no entry has");
    let marks = reader.u8()?;
    if marks & !(IS_APPLY | HAS_TIME | HAS_SPEC_BITS) != 0 {
        return Err(error);
    }
    let operation = if marks & IS_APPLY == 0 { Operation::Update } else { Operation::Apply };
    let (manager, api_version) = (reader.text()?, reader.text()?);
    let json = reader.str()?;
    let subresource = reader.text()?.into();
    let time = (marks & HAS_TIME != 0).then(|| reader.signed()).transpose()?.map(Time);
    let spec_bits = (marks & HAS_SPEC_BITS != 0).then(|| reader.u8()).transpose()?;
    let fields = FieldsV1::stored(json, spec_bits);
    Ok(ManagedFieldsEntry { manager, operation, api_version, time, fields, subresource })
}

/// A set of the fields of a Lease, one bit for each.
struct Fields(u64);

impl Fields {
    const COUNT: u32 = 22;

    fn of(lease: &Lease, times: Times<'_>) -> Self {
        let (meta, spec) = (&lease.metadata, &lease.spec);
        let are_there: [bool; Self::COUNT as usize] = [
            !meta.name.is_empty(),
            !meta.generate_name.is_empty(),
            !meta.namespace.is_empty(),
            !meta.self_link.is_empty(),
            !meta.uid.is_empty(),
            !times.resource_version.is_empty(),
            meta.generation != 0,
            meta.creation_timestamp.is_some(),
            meta.deletion_timestamp.is_some(),
            meta.deletion_grace_period_seconds.is_some(),
            !meta.labels.is_empty(),
            !meta.annotations.is_empty(),
            !meta.owner_references.is_empty(),
            !meta.finalizers.is_empty(),
            !meta.managed_fields.is_absent(),
            spec.holder_identity.is_some(),
            spec.lease_duration_seconds.is_some(),
            spec.acquire_time.is_some(),
            times.renew_time.is_some(),
            spec.lease_transitions.is_some(),
            spec.strategy.is_some(),
            spec.preferred_holder.is_some(),
        ];
        Self(are_there.iter().enumerate().fold(0, |bits, (bit, is_there)| bits | u64::from(*is_there) << bit))
    }
}
