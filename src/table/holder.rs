//! Finds the changes of a Lease's holder, which the server logs: who held the Lease, who holds it now, and who changed
//! it.

use super::Table;
use super::change::Change;
use crate::lease::Lease;
use compact_str::CompactString;

/// A change of a Lease's holder, and its author.
#[derive(Debug, PartialEq, Eq)]
pub struct HolderChange {
    /// Namespace of the Lease.
    pub namespace: CompactString,
    /// Name of the Lease.
    pub name: CompactString,
    /// Holder before the change; empty if the Lease had no holder.
    pub from: CompactString,
    /// Holder after the change; empty if the Lease has no holder.
    pub to: CompactString,
    /// Name of the user who made the change.
    pub user: CompactString,
    /// User agent of the client.
    pub user_agent: CompactString,
}

impl HolderChange {
    /// Returns the change of holder in `change`; `None` if the holder stays the same. `author` returns the user and the
    /// user agent.
    #[inline]
    #[must_use]
    pub fn of<'a>(table: &Table, change: &Change, author: impl FnOnce() -> (&'a str, &'a [u8])) -> Option<Box<Self>> {
        // Most changes are renewals, which never change the holder.
        if matches!(change, Change::Renew(..)) { None } else { Self::of_other(table, change, author()) }
    }

    fn of_other(table: &Table, change: &Change, (user, user_agent): (&str, &[u8])) -> Option<Box<Self>> {
        let before = change.target().map_or("", |target| holder(table.object(target.slot).unrenewed()));
        let after = match change {
            Change::Create(lease) | Change::Replace(_, lease) => holder(lease),
            Change::Renew(..) => before,
            Change::Delete(_) => "",
        };
        if before == after {
            return None;
        }
        let (namespace, name) = table.names_of(change);
        let user_agent = String::from_utf8_lossy(user_agent);
        let [namespace, name, from, to, user, user_agent] =
            [namespace, name, before, after, user, &user_agent].map(|text| CompactString::from(cut(text)));
        Some(Box::new(Self { namespace, name, from, to, user, user_agent }))
    }

    /// Returns the memory of this value and its texts, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let Self { namespace, name, from, to, user, user_agent } = self;
        size_of::<Self>() + [namespace, name, from, to, user, user_agent].map(CompactString::len).iter().sum::<usize>()
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.holder_identity.as_deref().unwrap_or_default()
}

/// Shortens a text from a client, for the log.
#[must_use]
pub fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Maximum length of a text that [`cut`] returns, in bytes.
const TEXT_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceVersion;

    fn lease(holder: Option<&str>) -> Box<Lease> {
        let mut lease = Lease::named("n", "l");
        lease.spec.holder_identity = holder.map(Into::into);
        Box::new(lease)
    }

    #[test]
    fn a_change_of_holder_names_both_holders_and_its_author() {
        let mut table = Table::new(ResourceVersion(0), 10, usize::MAX);
        let of = |table: &Table, change: &Change| {
            HolderChange::of(table, change, || ("user", b"agent")).map(|change| {
                assert_eq!(
                    [&change.namespace, &change.name, &change.user, &change.user_agent],
                    ["n", "l", "user", "agent"]
                );
                (change.from.to_string(), change.to.to_string())
            })
        };
        let is = |from: &str, to: &str| Some((from.to_owned(), to.to_owned()));
        assert_eq!(of(&table, &Change::Create(lease(None))), None);
        assert_eq!(of(&table, &Change::Create(lease(Some("a")))), is("", "a"));
        table.create(*lease(Some("a")));
        let target = table.target(table.find("n", "l").expect("it is there").0);
        assert_eq!(of(&table, &Change::Replace(target, lease(Some("a")))), None);
        assert_eq!(of(&table, &Change::Replace(target, lease(Some("b")))), is("a", "b"));
        for nobody in [None, Some("")] {
            assert_eq!(of(&table, &Change::Replace(target, lease(nobody))), is("a", ""));
        }
        assert_eq!(of(&table, &Change::Delete(target)), is("a", ""));
        let long = "ä".repeat(TEXT_BYTES_MAX);
        let (_, to) = of(&table, &Change::Replace(target, lease(Some(&long)))).expect("another holder");
        assert_eq!(to, "ä".repeat(TEXT_BYTES_MAX / 2));
    }
}
