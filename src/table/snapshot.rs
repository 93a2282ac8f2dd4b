//! [`Snapshot`]: the table at one version, read in steps while the table changes.
//!
//! A list must show one version, and a list of a million Leases must not stop the event loop. So a [`Snapshot`] copies
//! nothing when it is made. It walks the ordered index together with the lost states. A state of a Lease is lost when a
//! change replaces or removes it in the table. [`History`] keeps the states that were lost after the snapshot was made.
//! A snapshot of an older version also needs states that were lost before the snapshot was made. It reads these states
//! from the event log, in steps.
//!
//! ```text
//!   table now:    a  b' c' e  f'
//!   lost after:         c  d            c changed, d was deleted, after the snapshot was made
//!   lost before:     b        f         b and f changed after `version`, before the snapshot was made
//!   snapshot:     a  b  c  d  e  f
//!                    ^ start
//! ```
//!
//! [`History`]: crate::table::history

use crate::limits::CATCH_UP_EVENTS_PER_STEP;
use crate::resource::ResourceVersion;
use crate::table::Table;
use crate::table::discard::{Changes, Discard, States};
use crate::table::event_log::Event;
use crate::table::history::{Hold, Stood};
use crate::table::object::{Key, Object};
use std::cmp::Ordering;
use std::fmt;
use std::iter::Peekable;
use std::ops::Bound;

/// Leases that a list or a watch covers, before its selectors apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// All Leases.
    All,
    /// The Leases of one namespace.
    Namespace(Box<str>),
    /// The Lease of this name, whether or not it exists.
    Name(Key),
}

impl Range {
    /// Whether the range contains a key.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.parts().0 == &**namespace,
            Self::Name(name) => key == name,
        }
    }

    /// Returns the bounds of the keys in the range. `0` follows `/` in ASCII, so the text `namespace0` follows all keys
    /// `namespace/…`.
    pub(super) fn bounds(&self) -> (String, Bound<String>) {
        match self {
            Self::All => (String::new(), Bound::Unbounded),
            Self::Namespace(namespace) => (format!("{namespace}/"), Bound::Excluded(format!("{namespace}0"))),
            Self::Name(key) => (key.as_str().to_owned(), Bound::Included(key.as_str().to_owned())),
        }
    }
}

impl fmt::Display for Range {
    /// Writes the prefix of the range's keys, or its only key. No two ranges have the same text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Namespace(namespace) => write!(f, "{namespace}/"),
            Self::Name(key) => f.write_str(key.as_str()),
        }
    }
}

/// The reason why a snapshot fails: the event log has dropped events that the snapshot needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten;

/// The outcome of one step of a long operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The operation may need more steps.
    More,
    /// The operation is complete.
    Done,
}

/// The Leases of a range of the table at one version, read in steps.
#[derive(Debug)]
pub struct Snapshot {
    range: Range,
    version: ResourceVersion,
    /// Start of the unread keys: a key, or the last key read followed by a NUL.
    start: String,
    end: Bound<String>,
    /// Hold on the history. It keeps the states that the table loses after the snapshot was made.
    hold: Hold,
    /// States of Leases with keys from `start` on that were lost before the snapshot was made. They come from the log's
    /// events up to `caught_up`.
    lost_before: Changes,
    discard: Discard,
    /// Version up to which `lost_before` includes the log's events. No Lease is returned before `caught_up` reaches the
    /// hold's version.
    caught_up: ResourceVersion,
    /// Whether the snapshot began after the first key of the range, as a later page of a list does. If so, `remaining`
    /// cannot be computed from the counts of the whole range.
    is_page: bool,
    /// Number of Leases added to the range, and removed from it, after `version` and before the snapshot was made.
    added: usize,
    removed: usize,
    /// Number of Leases of the range at `version` that are not read yet. Not valid before [`Snapshot::catch_up`] is
    /// complete. `None` if the snapshot began within the range and the caller gave no number.
    remaining: Option<usize>,
    /// Number of Leases of the range when the snapshot was made.
    initial_count: usize,
}

impl Snapshot {
    /// Returns a snapshot of the range at the current version.
    #[must_use]
    pub fn now(table: &Table, range: Range) -> Self {
        let initial_count = count(table, &range);
        let (start, end) = range.bounds();
        let version = table.version();
        Self {
            range,
            version,
            hold: table.history.hold(version, &start, &end),
            start,
            end,
            lost_before: Changes::new(),
            discard: table.discard.clone(),
            caught_up: version,
            is_page: false,
            added: 0,
            removed: 0,
            remaining: Some(initial_count),
            initial_count,
        }
    }

    /// Returns a snapshot of the range at `version` that has read all changes from the log. `version` must not be in
    /// the future.
    ///
    /// # Errors
    /// [`Forgotten`] if the log does not go back that far.
    #[cfg(test)]
    pub(super) fn whole_at(table: &Table, range: Range, version: ResourceVersion) -> Result<Self, Forgotten> {
        let mut snapshot = Self::at(table, range, version)?;
        while snapshot.catch_up(table)? == Stepped::More {}
        Ok(snapshot)
    }

    /// Returns a snapshot of the range at `version`, which must not be in the future. [`Snapshot::next`] reads the
    /// changes after `version` from the log in steps, since there may be many changes.
    ///
    /// # Errors
    /// [`Forgotten`] if the log does not go back that far.
    pub fn at(table: &Table, range: Range, version: ResourceVersion) -> Result<Self, Forgotten> {
        let mut snapshot = Self::now(table, range);
        (snapshot.version, snapshot.caught_up) = (version, version);
        match table.log().since(version) {
            Some(_) => Ok(snapshot),
            None => Err(Forgotten),
        }
    }

    /// Reads some of the changes that came after the snapshot's version and before the snapshot was made. No Lease is
    /// returned before all of these changes are read.
    ///
    /// # Errors
    /// [`Forgotten`] if the log has dropped the next change; the snapshot is then useless.
    pub fn catch_up(&mut self, table: &Table) -> Result<Stepped, Forgotten> {
        let lag = self.lag_events();
        if lag == 0 {
            return Ok(Stepped::Done);
        }
        let events = table.log().since(self.caught_up).ok_or(Forgotten)?;
        for event in events.take(lag.min(CATCH_UP_EVENTS_PER_STEP)) {
            self.take_in(event);
            self.caught_up = event.version();
        }
        if self.lag_events() > 0 {
            return Ok(Stepped::More);
        }
        if !self.is_page {
            // Number of Leases at the snapshot's version. `initial_count` is the number at a later version. So the
            // Leases that were added in between are subtracted, and the removed ones are added.
            self.remaining = Some((self.initial_count + self.removed).saturating_sub(self.added));
        }
        Ok(Stepped::Done)
    }

    /// Returns the number of changes still to be read from the log. They came after the snapshot's version and before
    /// the snapshot was made.
    fn lag_events(&self) -> usize {
        usize::try_from(self.hold.version().0.saturating_sub(self.caught_up.0)).unwrap_or(usize::MAX)
    }

    fn take_in(&mut self, event: &Event) {
        let key = event.after.key();
        if !self.range.contains(key) {
            return;
        }
        self.added += usize::from(event.before.is_none());
        self.removed += usize::from(event.deleted);
        if key.as_str() >= self.start.as_str() && !self.lost_before.contains_key(key) {
            self.lost_before.insert(key.clone(), event.before.clone());
        }
    }

    /// Returns the rest of this snapshot, from `start` on. `start` is a key in the range, or a key followed by a NUL.
    /// `remaining` is the number of Leases from `start` on, if known. Returns `None` if `start`, which comes from a
    /// client, is not in the range.
    #[must_use]
    pub fn from_key(mut self, start: &str, remaining: Option<usize>) -> Option<Self> {
        let is_before_end = match &self.end {
            Bound::Included(end) => start <= end.as_str() || start.strip_prefix(end.as_str()) == Some("\0"),
            Bound::Excluded(end) => start < end.as_str(),
            Bound::Unbounded => true,
        };
        if start < self.start.as_str() || !is_before_end {
            return None;
        }
        start.clone_into(&mut self.start);
        self.hold.advance(start);
        self.remaining = remaining;
        self.is_page = true;
        Some(self)
    }

    /// Whether reading the snapshot, or `keys_max` of its keys, takes more than one step of `keys_per_step` keys.
    /// Ignores the number of remaining Leases in a `continue` token, which a client can forge.
    #[must_use]
    pub fn is_long(&self, keys_max: usize, keys_per_step: usize) -> bool {
        self.initial_count.min(keys_max) > keys_per_step || self.lag_events() > CATCH_UP_EVENTS_PER_STEP
    }

    /// Returns the version of the snapshot.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        self.version
    }

    /// Returns the range of the snapshot.
    #[must_use]
    pub fn range(&self) -> &Range {
        &self.range
    }

    /// Returns the number of Leases of the range that are not read yet, if known.
    #[must_use]
    pub fn remaining(&self) -> Option<usize> {
        self.remaining
    }

    /// Returns an empty queue, in which the caller can collect states of Leases. When the queue is dropped, the event
    /// loop frees its states in steps, since freeing many states at once takes long.
    #[must_use]
    pub fn no_states(&self) -> States {
        States::new(self.discard.clone())
    }

    /// Returns the start of the unread keys. A later snapshot of the same version can continue there.
    #[must_use]
    pub fn start(&self) -> &str {
        &self.start
    }

    /// Passes the next Leases to `each`, in order. Stops when `each` returns `false`, or after about `keys_max`
    /// examined keys. Returns [`Stepped::More`] if Leases are left. Also returns [`Stepped::More`] if Leases may be
    /// left: after `keys_max` keys, or while [`Snapshot::catch_up`] has changes to read.
    ///
    /// # Errors
    /// Those of [`Snapshot::catch_up`].
    pub fn next(
        &mut self,
        table: &Table,
        keys_max: usize,
        mut each: impl FnMut(&Object) -> bool,
    ) -> Result<Stepped, Forgotten> {
        if self.catch_up(table)? == Stepped::More {
            return Ok(Stepped::More);
        }
        if let Bound::Included(end) = &self.end
            && self.start > *end
        {
            // The range is one name, and this name was read. `BTreeMap::range` would panic, since the start is after
            // the end.
            return Ok(Stepped::Done);
        }
        let bounds = (Bound::Included(self.start.as_str()), self.end.as_ref().map(String::as_str));
        let history = self.hold.history();
        let present = table.ordered.range::<str, _>(bounds).map(|(key, slot)| (key, Some(Some(table.object(*slot)))));
        let lost = history.changes(bounds, self.hold.version());
        let lost_before = self.lost_before.range::<str, _>(bounds).map(|(key, before)| (key, Some(before.as_ref())));
        let mut keys = Layered::new(Layered::new(present, lost), lost_before).peekable();
        let mut last = None;
        let mut wanted = true;
        let mut is_one_more = false;
        let mut may_be_more = true;
        for _ in 0..keys_max {
            let Some((key, object)) = keys.next() else {
                may_be_more = false;
                break;
            };
            // `None` means that no Lease existed at the snapshot's version. The skipped key also counts as examined.
            let Some(object) = object.flatten() else {
                last = Some(key.clone());
                continue;
            };
            if !wanted {
                // `each` wants no more Leases, and this Lease shows that more are left.
                is_one_more = true;
                break;
            }
            last = Some(key.clone());
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(1));
            wanted = each(object);
        }
        // If no key is left, the whole snapshot is read, even if this step has examined `keys_max` keys.
        may_be_more &= is_one_more || keys.peek().is_some();
        drop(keys);
        drop(history);
        if let Some(last) = last {
            self.start.clear();
            self.start.push_str(last.as_str());
            self.start.push('\0');
            self.hold.advance(&self.start);
            // The entries are removed one by one, since `BTreeMap::split_off` counts all remaining entries, which takes
            // long.
            while let Some(first) = self.lost_before.first_entry()
                && first.key().as_str() < self.start.as_str()
            {
                first.remove();
            }
        }
        Ok(if may_be_more { Stepped::More } else { Stepped::Done })
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.discard.put_changes(std::mem::take(&mut self.lost_before));
    }
}

/// Returns the number of Leases in a range.
fn count(table: &Table, range: &Range) -> usize {
    match range {
        Range::All => table.len(),
        Range::Namespace(namespace) => table.count_in(namespace),
        Range::Name(key) => {
            let (namespace, name) = key.parts();
            usize::from(table.find(namespace, name).is_some())
        }
    }
}

/// Merges two sequences that are ordered by key. If both have a key, the state in `upper` counts. Only if `upper` does
/// not know the state, the state in `lower` counts.
struct Layered<L: Iterator, U: Iterator> {
    lower: Peekable<L>,
    upper: Peekable<U>,
}

impl<L: Iterator, U: Iterator> Layered<L, U> {
    fn new(lower: L, upper: U) -> Self {
        Self { lower: lower.peekable(), upper: upper.peekable() }
    }
}

impl<'t, L, U> Iterator for Layered<L, U>
where
    L: Iterator<Item = (&'t Key, Stood<'t>)>,
    U: Iterator<Item = (&'t Key, Stood<'t>)>,
{
    type Item = (&'t Key, Stood<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.lower.peek(), self.upper.peek()) {
            (_, None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((below, _)), Some((above, _))) => below.cmp(above),
        };
        if order == Ordering::Less {
            return self.lower.next();
        }
        let below = if order == Ordering::Equal { self.lower.next() } else { None };
        let (key, stood) = self.upper.next()?;
        Some((key, stood.or_else(|| below.and_then(|(_, stood)| stood))))
    }
}
