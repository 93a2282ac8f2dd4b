//! The index of watchers. It finds the watchers that a change may concern.
//!
//! ```text
//!   group                          its members
//!   everything                     the broad watchers, which watch all Leases without a shard selector
//!   a namespace, a name            the watchers of its Leases
//!   everything or a namespace,     the watchers whose shard selectors contain hashes in this part
//!     and a part of the hash ring
//! ```
//!
//! A shard selector selects ranges of a ring of hashes. A watcher with a shard selector is in one group for each part
//! of the ring that these ranges overlap. Any other watcher is in one group. When many watchers divide a ring among
//! them, a change finds only the watchers whose ranges overlap one part: usually one or two.
//!
//! If very many watchers each watch a different Lease, there are as many groups as watchers. A single hash table would
//! move all groups at once when it grows, and block the event loop meanwhile. So the groups are in [`Shards`], many
//! small hash tables. Only the group of everything is stored apart, since each change needs its members.

use crate::selector::shard::{RingPart, ShardField, ShardHash, ShardSelector};
use crate::shards::Shards;
use crate::table::event_log::Event;
use crate::table::snapshot::Range;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher as _;

/// Groups of watchers. A watcher is identified by the number of its slot.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Members of the group of everything: the broad watchers.
    broad: Vec<Member>,
    /// All other groups.
    groups: Shards<HashTable<(Group, Vec<Member>)>>,
    /// Number of groups in `groups`. If it is 0, a change needs no look-up, and so no hash.
    len: usize,
    hasher: RandomState,
    /// Number of watchers with a shard selector, by the field that the selector hashes.
    sharded: [usize; ShardField::ALL.len()],
}

/// The condition that all members of a group share: a scope, and for watchers with a shard selector a part of the ring.
#[derive(Debug, Hash)]
struct Group {
    /// The scope: `namespace/name` for a Lease, `namespace/` for a namespace, or an empty text for all Leases.
    scope: Box<str>,
    part: Option<Part>,
}

/// A part of the ring, and the field whose hash is on the ring.
type Part = (ShardField, RingPart);

/// A borrowed [`Group`]. It has the same hash as the [`Group`], so a look-up need not allocate.
#[derive(Clone, Copy, Hash)]
struct GroupRef<'a> {
    scope: &'a str,
    part: Option<Part>,
}

impl GroupRef<'_> {
    /// Whether this is the group of everything.
    fn is_broad(self) -> bool {
        self.scope.is_empty() && self.part.is_none()
    }

    /// Whether this is `group`.
    fn is(self, group: &Group) -> bool {
        *self.scope == *group.scope && self.part == group.part
    }
}

/// A member of a group: a watcher.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) slot: u32,
    /// Index of this group in `Places::parts` of the watcher.
    nth: u16,
}

/// The groups of a watcher, and the watcher's place in each group.
#[derive(Debug)]
pub(super) struct Places {
    scope: Box<str>,
    shard: Option<ShardField>,
    parts: Box<[(Option<Part>, u32)]>,
}

impl Index {
    /// Adds the watcher in `slot`.
    pub(super) fn add(&mut self, slot: u32, range: &Range, shard: Option<&ShardSelector>) -> Places {
        let scope = range.to_string().into_boxed_str();
        let Self { broad, groups, len, hasher, sharded } = self;
        if let Some(shard) = shard {
            sharded[shard.field() as usize] += 1;
        }
        let mut nth = 0;
        let mut join = |part| {
            let group = GroupRef { scope: &scope, part };
            let members = if group.is_broad() {
                &mut *broad
            } else {
                let hash = hasher.hash_one(group);
                let is_it = |(known, _): &(Group, Vec<Member>)| group.is(known);
                let found = groups.of_mut(hash).entry(hash, is_it, |(known, _)| hasher.hash_one(known));
                let found = found.or_insert_with(|| (Group { scope: scope.clone(), part }, Vec::new()));
                let (_, members) = found.into_mut();
                *len += usize::from(members.is_empty());
                members
            };
            members.push(Member { slot, nth });
            nth += 1;
            (part, u32::try_from(members.len() - 1).expect("memory ends long before 2^32 watchers"))
        };
        let parts = match (range, shard) {
            (Range::All | Range::Namespace(_), Some(shard)) => {
                shard.parts().map(|part| join(Some((shard.field(), part)))).collect()
            }
            (Range::Name(_), _) | (_, None) => Box::from([join(None)]),
        };
        Places { scope, shard: shard.map(ShardSelector::field), parts }
    }

    /// Removes a watcher from its groups. In each group, the last member may move into the free place. For this member,
    /// calls `moved` with the place, and `moved` must call [`Places::moved`].
    pub(super) fn remove(&mut self, places: &Places, mut moved: impl FnMut(Member, u32)) {
        if let Some(field) = places.shard {
            self.sharded[field as usize] -= 1;
        }
        for (part, place) in &places.parts {
            let group = GroupRef { scope: &places.scope, part: *part };
            if group.is_broad() {
                self.broad.swap_remove(*place as usize);
                if let Some(member) = self.broad.get(*place as usize) {
                    moved(*member, *place);
                }
                continue;
            }
            let hash = self.hasher.hash_one(group);
            let found = self.groups.of_mut(hash).find_entry(hash, |(known, _)| group.is(known));
            let Ok(mut entry) = found else { continue };
            let (_, members) = entry.get_mut();
            members.swap_remove(*place as usize);
            match members.get(*place as usize) {
                Some(member) => moved(*member, *place),
                None if members.is_empty() => {
                    entry.remove();
                    self.len -= 1;
                }
                None => {}
            }
        }
    }

    /// Returns the broad watchers. They watch all Leases without a shard selector, so they read every event in the log.
    pub(super) fn broad(&self) -> &[Member] {
        &self.broad
    }

    /// Returns the number of watchers with a shard selector.
    pub(super) fn sharded(&self) -> usize {
        self.sharded.iter().sum()
    }

    /// Calls `found` for each watcher that a change may concern, except broad watchers. For a watcher with a shard
    /// selector, `found` also gets a hash. The change concerns this watcher only if its selector contains the hash. If
    /// the change gave a Lease another UID, and so another hash, the same watcher may be found twice.
    pub(super) fn find(&self, event: &Event, mut found: impl FnMut(Member, Option<ShardHash>)) {
        if self.len == 0 {
            return;
        }
        let key = event.after.key().as_str();
        let namespace = &key[..key.len() - event.after.key().parts().1.len()];
        for scope in [key, namespace] {
            self.members(scope, None).iter().for_each(|member| found(*member, None));
        }
        for field in ShardField::ALL {
            if self.sharded[field as usize] == 0 {
                continue;
            }
            let after = field.hash(event.after.metadata());
            let before = event.before.as_ref().filter(|before| !before.is_renewal_of(&event.after));
            let before = before.map(|before| field.hash(before.metadata())).filter(|before| *before != after);
            for hash in [Some(after), before].into_iter().flatten() {
                for scope in [namespace, ""] {
                    let members = self.members(scope, Some((field, hash.part())));
                    members.iter().for_each(|member| found(*member, Some(hash)));
                }
            }
        }
    }

    fn members(&self, scope: &str, part: Option<Part>) -> &[Member] {
        let group = GroupRef { scope, part };
        if group.is_broad() {
            return &self.broad;
        }
        let hash = self.hasher.hash_one(group);
        self.groups.of(hash).find(hash, |(known, _)| group.is(known)).map_or(&[], |(_, members)| members.as_slice())
    }

    /// Checks that the groups have exactly the members in `places`. `places` contains the slot and the places of each
    /// watcher.
    pub(super) fn check_invariants(&self, places: &mut dyn Iterator<Item = (usize, &Places)>) {
        let mut count = 0;
        for (slot, places) in places {
            for (nth, (part, place)) in places.parts.iter().enumerate() {
                let member = self.members(&places.scope, *part).get(*place as usize);
                let member = member.map(|member| (member.slot as usize, usize::from(member.nth)));
                assert_eq!(member, Some((slot, nth)), "place in a group");
            }
            count += places.parts.len();
        }
        let members = || self.groups.iter().flatten().map(|(_, members)| members);
        assert_eq!(self.len, members().count(), "the number of groups");
        let in_groups = members().map(Vec::len).sum::<usize>();
        assert_eq!(count, self.broad.len() + in_groups, "slab, broad watchers and groups");
        assert!(!members().any(Vec::is_empty), "a group without members");
    }
}

impl Places {
    /// Records that the watcher has moved to `place` within the group that `member` names.
    pub(super) fn moved(&mut self, member: Member, place: u32) {
        self.parts[usize::from(member.nth)].1 = place;
    }
}
