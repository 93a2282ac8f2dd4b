//! A set of fields that a manager owns, stored as the text of `fieldsV1`.
//!
//! A million kubelet Leases have a million such texts. These texts differ only in the UID of the Lease's owner, the
//! node. So the server stores one shared text without the UID, and one UID for each Lease. [`SharedTexts`] finds the
//! texts that Leases can share.

use super::SpecFields;
use super::set::Set;
use std::borrow::Cow;
use std::collections::HashSet;
use std::rc::Rc;
use uuid::Uuid;

/// A set of fields as the text of `fieldsV1`. A clone shares the text.
#[derive(Clone, Debug)]
pub struct FieldsV1 {
    text: Text,
    /// The fields of the spec in this set; `None` if they are unknown, since the text comes from a client and is not
    /// parsed.
    pub(super) spec: Option<SpecFields>,
}

#[derive(Clone, Debug)]
enum Text {
    Whole(Rc<str>),
    /// The text is `rest`, with `uid` inserted after the first `before` bytes.
    Parted {
        rest: Rc<str>,
        before: u16,
        uid: Uuid,
    },
}

/// Length of a UID, in bytes.
const UID_BYTES: usize = uuid::fmt::Hyphenated::LENGTH;

/// Text that precedes an owner's UID. This text begins the key of a list element, which is JSON within a JSON string.
const UID_KEY: &str = r#""k:{\"uid\":\""#;

impl FieldsV1 {
    /// `fieldsType` of every entry.
    pub const TYPE: &str = "FieldsV1";

    /// Creates a set from a client's text. The text is parsed later, and only if it differs from the text in the stored
    /// Lease.
    #[must_use]
    pub fn from_client(json: &str) -> Self {
        Self { text: Text::Whole(json.into()), spec: None }
    }

    /// Creates a set from a stored text. `spec_bits` are the fields of the spec, as [`FieldsV1::spec_bits`] returned
    /// them.
    #[must_use]
    pub fn stored(json: &str, spec_bits: Option<u8>) -> Self {
        Self { text: Text::Whole(json.into()), spec: spec_bits.map(SpecFields) }
    }

    /// Returns the fields of the spec in this set: one bit for each, in the order of the constants of `SpecFields`.
    /// Returns `None` if these fields are unknown. Then a renewal takes no short cut: the server parses the set, as for
    /// any other update.
    #[must_use]
    pub fn spec_bits(&self) -> Option<u8> {
        self.spec.map(|spec| spec.0)
    }

    pub(super) fn of(set: &Set) -> Self {
        let mut json = Vec::with_capacity(256);
        set.push_json(&mut json);
        // The text consists of valid strings and ASCII. So this conversion replaces no byte.
        let json = String::from_utf8_lossy(&json);
        Self { text: Text::Whole(json.as_ref().into()), spec: Some(SpecFields::in_set(set)) }
    }

    /// Returns the set as the JSON object `fieldsV1`.
    #[must_use]
    pub fn as_json(&self) -> Cow<'_, str> {
        match &self.text {
            Text::Whole(text) => Cow::Borrowed(text),
            Text::Parted { rest, before, uid } => {
                let (before, after) = rest.split_at_checked(usize::from(*before)).unwrap_or((rest, ""));
                let mut buffer = Uuid::encode_buffer();
                Cow::Owned([before, uid.hyphenated().encode_lower(&mut buffer), after].concat())
            }
        }
    }

    /// Returns the length of the set as a JSON object, in bytes.
    #[must_use]
    pub fn json_bytes(&self) -> usize {
        match &self.text {
            Text::Whole(text) => text.len(),
            Text::Parted { rest, .. } => rest.len() + UID_BYTES,
        }
    }

    /// Whether two sets share one text in memory.
    #[cfg(test)]
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.text, &other.text) {
            (Text::Whole(own), Text::Whole(other)) => Rc::ptr_eq(own, other),
            (Text::Parted { rest: own, .. }, Text::Parted { rest: other, .. }) => Rc::ptr_eq(own, other),
            _ => false,
        }
    }
}

impl PartialEq for FieldsV1 {
    fn eq(&self, other: &Self) -> bool {
        match (&self.text, &other.text) {
            (Text::Whole(own), Text::Whole(other)) => Rc::ptr_eq(own, other) || own == other,
            (Text::Parted { rest: own, before: own_before, uid: own_uid }, Text::Parted { rest, before, uid }) => {
                own_uid == uid && own_before == before && (Rc::ptr_eq(own, rest) || own == rest)
            }
            (Text::Whole(whole), Text::Parted { rest, before, uid })
            | (Text::Parted { rest, before, uid }, Text::Whole(whole)) => {
                let mut buffer = Uuid::encode_buffer();
                let uid = uid.hyphenated().encode_lower(&mut buffer);
                let parts = rest.split_at_checked(usize::from(*before));
                let after = parts.and_then(|(before, after)| Some((whole.strip_prefix(before)?, after)));
                after.is_some_and(|(whole, after)| whole.strip_prefix(&*uid) == Some(after))
            }
        }
    }
}

impl Eq for FieldsV1 {}

/// Texts that Leases share, up to `TEXTS_MAX`. At this limit, the texts that at most one Lease uses are dropped. If
/// there are no such texts, a new text is not shared.
#[derive(Debug, Default)]
pub struct SharedTexts {
    texts: HashSet<Rc<str>>,
}

/// Maximum number of shared texts. How many texts there are depends on the number of kinds of writers, not on the
/// number of Leases.
const TEXTS_MAX: usize = 256;
/// Maximum length of a shared text, in bytes.
const TEXT_BYTES_MAX: usize = 2048;

impl SharedTexts {
    /// Returns the same set with a shared text; `None` if the text cannot be shared, or is a shared one already.
    #[must_use]
    pub fn share(&mut self, fields: &FieldsV1) -> Option<FieldsV1> {
        let Text::Whole(text) = &fields.text else { return None };
        let parted = text.find(UID_KEY).and_then(|at| {
            let start = at + UID_KEY.len();
            let uid = text.get(start..start + UID_BYTES)?;
            let parsed = Uuid::try_parse(uid).ok()?;
            let mut buffer = Uuid::encode_buffer();
            // [`FieldsV1::as_json`] inserts the UID in lower case. So a text with a UID in upper case is not split.
            let is_plain = &*parsed.hyphenated().encode_lower(&mut buffer) == uid;
            is_plain.then_some((start, parsed))
        });
        let text = match parted {
            Some((start, uid)) => {
                let rest = [text.get(..start)?, text.get(start + UID_BYTES..)?].concat();
                Text::Parted { rest: self.text(&rest)?, before: u16::try_from(start).ok()?, uid }
            }
            None => Text::Whole(self.text(text)?),
        };
        Some(FieldsV1 { text, spec: fields.spec })
    }

    fn text(&mut self, text: &str) -> Option<Rc<str>> {
        if let Some(known) = self.texts.get(text) {
            return Some(Rc::clone(known));
        }
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        if self.texts.len() == TEXTS_MAX {
            // Drops each text that at most one Lease uses. Otherwise unusual Leases could end the sharing for all.
            self.texts.retain(|text| Rc::strong_count(text) > 2);
        }
        if self.texts.len() == TEXTS_MAX {
            return None;
        }
        let text: Rc<str> = text.into();
        self.texts.insert(Rc::clone(&text));
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(uid: &str) -> String {
        format!(
            r#"{{"f:metadata":{{"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"{uid}\"}}":{{}}}}}},"f:spec":{{"f:renewTime":{{}}}}}}"#
        )
    }

    #[test]
    fn a_text_that_two_leases_use_stays_shared() {
        let mut shared = SharedTexts::default();
        let own = |number: usize| FieldsV1::from_client(&format!("{{\"f:{number}\":{{}}}}"));
        let mut share = |number| shared.share(&own(number));
        let mut held: Vec<_> =
            (0..TEXTS_MAX).map(|number| [(); 2].map(|()| share(number).expect("there is space"))).collect();
        assert!(share(TEXTS_MAX).is_none());
        let [first, second] = held.pop().expect("it is there");
        drop(first);
        let [late, later] = [(); 2].map(|()| share(TEXTS_MAX).expect("one Lease uses the last text"));
        assert!(late.is_shared_with(&later) && !late.is_shared_with(&second));
        assert!(share(0).expect("it is there").is_shared_with(&held[0][0]));
        assert_eq!(shared.texts.len(), TEXTS_MAX);
    }

    #[test]
    fn texts_that_differ_only_in_an_owner_uid_are_shared() {
        let mut shared = SharedTexts::default();
        let uids = ["5dfea7de-ed50-4ae2-986c-d87c7cf980f3", "6cff4ef0-663c-4b66-8690-23e85382e640"];
        let own = uids.map(|uid| FieldsV1::from_client(&text(uid)));
        let parted = own.each_ref().map(|own| shared.share(own).expect("it can be shared"));
        assert!(parted[0].is_shared_with(&parted[1]));
        for (own, parted) in own.iter().zip(&parted) {
            assert_eq!((own.as_json(), own.json_bytes()), (parted.as_json(), parted.json_bytes()));
            assert_eq!(own, parted);
            assert_eq!(parted, own);
            assert_eq!(*parted, parted.clone());
            assert!(shared.share(parted).is_none(), "it is already");
        }
        assert_ne!(own[0], parted[1]);
        assert_ne!(parted[1], own[0]);
        assert_ne!(parted[0], parted[1]);
        assert_eq!(shared.texts.len(), 1);
    }

    #[test]
    fn shared_texts_keep_their_content() {
        let mut shared = SharedTexts::default();
        let upper = text("5DFEA7DE-ED50-4AE2-986C-D87C7CF980F3");
        let (short, braces) = (text("u"), text("{5dfea7de-ed50-4ae2-986c-d87c7cf980f3}"));
        let two =
            text(r#"5dfea7de-ed50-4ae2-986c-d87c7cf980f3\"}":{},"k:{\"uid\":\"6cff4ef0-663c-4b66-8690-23e85382e640"#);
        let cut = &two[..two.len() / 4];
        for json in ["{}", "", "é", &upper, &short, &braces, &two, cut, r#""k:{\"uid\":\""#] {
            let own = FieldsV1::from_client(json);
            let other = shared.share(&own).expect("it can be shared");
            assert_eq!(other.as_json(), json);
            assert_eq!(own, other);
        }
        let long = FieldsV1::from_client(&"x".repeat(TEXT_BYTES_MAX + 1));
        assert!(shared.share(&long).is_none());
    }
}
