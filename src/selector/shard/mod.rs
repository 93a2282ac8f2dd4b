//! Shard selectors (KEP-5866): `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`.
//!
//! A shard selector hashes one field of a Lease, and selects the Lease if the hash is in one of the selector's ranges.
//! If several clients divide the range of all hashes among themselves, they also divide the Leases.

mod cel;

use crate::api_error::ApiError;
use crate::go::quote::go_quoted;
use crate::lease::ObjectMeta;
use cel::Expr;
use std::ops::RangeInclusive;

/// A shard selector: one field of a Lease, and ranges of the hashes of this field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSelector {
    field: ShardField,
    /// Ranges of the selected hashes, sorted and without overlap.
    ranges: Box<[RangeInclusive<u64>]>,
    text: Box<str>,
}

/// The field of a Lease whose value is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShardField {
    /// `metadata.namespace`
    Namespace,
    /// `metadata.uid`
    Uid,
}

/// The hash of a field's value. The set of all hashes is called the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardHash(u64);

/// A part of the ring of hashes: all hashes with the same first 6 bits. By these parts, the watch module finds the
/// watchers whose shards may contain a changed Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingPart(u8);

impl ShardField {
    /// All fields that a shard selector can hash.
    pub const ALL: [Self; 2] = [Self::Namespace, Self::Uid];

    /// Returns the hash of the field's value in this metadata.
    #[must_use]
    pub fn hash(self, meta: &ObjectMeta) -> ShardHash {
        ShardHash(fnv_1a(match self {
            Self::Namespace => &meta.namespace,
            Self::Uid => &meta.uid,
        }))
    }

    fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.path() == path)
    }

    fn path(self) -> &'static str {
        match self {
            Self::Namespace => "object.metadata.namespace",
            Self::Uid => "object.metadata.uid",
        }
    }
}

impl ShardHash {
    /// Returns the part of the ring that contains this hash.
    #[must_use]
    pub fn part(self) -> RingPart {
        RingPart((self.0 >> (u64::BITS - PART_BITS)) as u8)
    }
}

impl ShardSelector {
    /// Parses the text of a selector.
    ///
    /// # Errors
    /// kube-apiserver's message about the first mistake, with the status 500 (apiserver `sharding`, `Parse`).
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let ranges = parse(text)
            .map_err(|reason| ApiError::Unclassified { message: format!("invalid shard selector: {reason}") })?;
        let text = ranges.iter().map(ShardRange::text).collect::<Vec<_>>().join(" || ");
        let field = ranges.first().map_or(ShardField::Uid, |range| range.field);
        let ranges = ranges.into_iter().map(|range| range.hashes).collect();
        Ok(Self { field, ranges: without_overlap(ranges).into(), text: text.into() })
    }

    /// Returns the selector in kube-apiserver's normalized form, for `shardInfo` in a list.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the field whose value is hashed.
    #[must_use]
    pub fn field(&self) -> ShardField {
        self.field
    }

    /// Whether the selector selects an object with this metadata.
    #[must_use]
    pub fn matches(&self, meta: &ObjectMeta) -> bool {
        self.has(self.field.hash(meta))
    }

    /// Whether the selector selects an object whose field has this hash.
    #[must_use]
    pub fn has(&self, hash: ShardHash) -> bool {
        let at = self.ranges.partition_point(|range| *range.end() < hash.0);
        self.ranges.get(at).is_some_and(|range| range.contains(&hash.0))
    }

    /// Returns the parts of the ring that contain selected hashes, in ascending order.
    pub fn parts(&self) -> impl Iterator<Item = RingPart> {
        let part = |hash| ShardHash(hash).part().0;
        let mut last = None;
        self.ranges.iter().flat_map(move |range| {
            let (start, end) = (part(*range.start()), part(*range.end()));
            // One range may end in the part of the ring in which the next range begins. The part is returned only once.
            let is_known = last.replace(end) == Some(start);
            (start..=end).skip(usize::from(is_known)).map(RingPart)
        })
    }
}

/// Number of leading bits of a hash that determine its part of the ring. The watch module lists a watcher once for each
/// part that its shard touches. With more bits, the server examines fewer watchers of other shards at each change of a
/// Lease. But then a watcher of a large shard takes more memory.
const PART_BITS: u32 = 6;

/// Returns the FNV-1a hash of 64 bits (draft-eastlake-fnv).
fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Sorts the ranges, and joins ranges that overlap or adjoin.
fn without_overlap(mut ranges: Vec<RangeInclusive<u64>>) -> Vec<RangeInclusive<u64>> {
    ranges.sort_unstable_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// The arguments of one call of `shardRange`.
#[derive(Debug)]
struct ShardRange {
    field: ShardField,
    hashes: RangeInclusive<u64>,
}

impl ShardRange {
    fn text(&self) -> String {
        let (path, start, end) = (self.field.path(), self.hashes.start(), u128::from(*self.hashes.end()) + 1);
        format!("shardRange({path}, '0x{start:016x}', '0x{end:016x}')")
    }

    /// Parses the arguments of a call of `shardRange`.
    fn of(args: Vec<Expr>) -> Result<Self, String> {
        let [field, start, end] = <[Expr; 3]>::try_from(args)
            .map_err(|args| format!("shardRange() requires exactly 3 arguments, got {}", args.len()))?;
        let path = field.path().map_err(|kind| {
            format!(
                "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind {kind}"
            )
        })?;
        let field = ShardField::of_path(&path).ok_or_else(|| {
            let supported = "object.metadata.uid, object.metadata.namespace";
            format!("unsupported field path {}; supported: {supported}", go_quoted(&path))
        })?;
        let (start, end) = (bound(&start, "hexStart")?, bound(&end, "hexEnd")?);
        if start >= end {
            return Err(format!("shard range start 0x{start:016x} must be less than end 0x{end:016x}"));
        }
        // The start is less than the end, and the end is at most 2^64. So the start and the last hash of the range both
        // fit in 64 bits.
        let below = |bound: u128| u64::try_from(bound).unwrap_or(u64::MAX);
        Ok(Self { field, hashes: below(start)..=below(end - 1) })
    }
}

/// Parses the ranges of a selector. There must be at least one range, and all ranges must be of the same field.
fn parse(text: &str) -> Result<Vec<ShardRange>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("empty shard selector is not allowed; omit the parameter for unfiltered lists".into());
    }
    let mut ranges = Vec::new();
    collect(cel::parse(text).map_err(|reason| format!("CEL parse error: {reason}"))?, &mut ranges)?;
    let field = |range: &ShardRange| go_quoted(range.field.path());
    if let [first, rest @ ..] = &ranges[..]
        && let Some(other) = rest.iter().find(|range| range.field != first.field)
    {
        return Err(format!("all shard ranges must use the same field, got {} and {}", field(first), field(other)));
    }
    Ok(ranges)
}

/// Appends the ranges in an expression to `ranges`.
fn collect(expr: Expr, ranges: &mut Vec<ShardRange>) -> Result<(), String> {
    match expr {
        Expr::Or(terms) => terms.into_iter().try_for_each(|term| collect(term, ranges)),
        Expr::Call { function, args } if function == "shardRange" => {
            ranges.push(ShardRange::of(args)?);
            Ok(())
        }
        Expr::Call { function, .. } => {
            Err(format!("unsupported function {}; only shardRange() and || are allowed", go_quoted(&function)))
        }
        other => Err(format!("unexpected expression kind {}; expected shardRange() call or || operator", other.kind())),
    }
}

/// Parses the start or the end of a range: 16 hexadecimal digits, or 2^64.
fn bound(expr: &Expr, name: &str) -> Result<u128, String> {
    let text = match expr {
        Expr::Text(text) => text,
        Expr::Literal(go_type) => return Err(format!("{name} must be a string literal, got {go_type}")),
        other => {
            let kind = other.kind();
            return Err(format!("{name} must be a string literal (e.g. '0xff'), got expression kind {kind}"));
        }
    };
    let quoted = go_quoted(text);
    let Some(digits) = text.strip_prefix("0x") else {
        return Err(format!("{name} must have '0x' prefix, got {quoted}"));
    };
    let is_hex = |c: &char| matches!(c, '0'..='9' | 'a'..='f');
    match digits.len() {
        0 => Err(format!("{name}: hex value is required after '0x'")),
        18.. => Err(format!("{name}: hex value too long ({} chars, max 17): {}", digits.len(), go_quoted(digits))),
        len => match digits.chars().find(|c| !is_hex(c)) {
            Some(wrong) => Err(format!("{name}: invalid hex character {} in {quoted}", go_quoted(&wrong.to_string()))),
            None if len == 17 && text != "0x10000000000000000" => {
                Err(format!("{name}: 17-digit hex value must be '0x10000000000000000' (2^64), got {quoted}"))
            }
            None if len < 16 => Err(format!(
                "{name} must be a 0x-prefixed 16-digit hex value, got {quoted} (did you mean \"0x{digits:0>16}\"?)"
            )),
            None => u128::from_str_radix(digits, 16).map_err(|_| format!("{name}: no number")),
        },
    }
}

#[cfg(test)]
mod tests;
