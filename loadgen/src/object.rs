//! A node's Lease as the server wrote it, stored in 64 bytes instead of some 700.
//!
//! A kubelet sends its Lease back with a new `renewTime`. So a node must reproduce its Lease byte for byte. The Leases
//! of all nodes have the same text except for a few values. A [`Template`] is that text with a hole for each value,
//! made from one response. [`Fields`] are the values of one Lease for these holes. A template is accepted only if
//! template and fields reproduce the response exactly. If a Lease fits no template, for example because it has several
//! field managers, its whole text is stored.
//!
//! The comparison with the template is also the cheapest check that a response contains only what was sent. For Leases
//! that fit no template, only the fields are compared.

use crate::time_text;
use memchr::memmem;
use serde_json::Value;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// Values that differ between the Leases of different nodes, besides the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// `metadata.uid`.
    pub(crate) uid: u128,
    /// `metadata.ownerReferences[0].uid`.
    pub(crate) owner_uid: u128,
    /// `metadata.resourceVersion`; 0 if the node has no Lease.
    pub(crate) version: u64,
    /// `spec.renewTime`, microseconds since the Unix epoch.
    pub(crate) renewed: u64,
    /// `metadata.creationTimestamp`, seconds since the Unix epoch.
    pub(crate) created: u32,
    /// The only `time` in `metadata.managedFields`, seconds since the Unix epoch.
    pub(crate) managed: u32,
}

/// The value that fills a hole in a [`Template`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Created,
    Managed,
    Name,
    OwnerUid,
    Renewed,
    Uid,
    Version,
}

/// The text that the Leases share, cut at the holes: `literal slot literal slot ... literal`.
#[derive(Debug)]
pub(crate) struct Template {
    /// For each hole, the literal before the hole and the kind of its value.
    parts: Vec<(Box<[u8]>, Slot)>,
    /// The literal after the last hole.
    tail: Box<[u8]>,
}

impl Template {
    /// Builds a template and fields from `object`, the Lease of the node `name`. Returns `None` if template and fields
    /// would not reproduce `object`.
    #[cold]
    pub(crate) fn learn(object: &[u8], name: &str) -> Option<(Self, Fields)> {
        let parsed: Value = serde_json::from_slice(object).ok()?;
        let metadata = &parsed["metadata"];
        if metadata["name"] != name || metadata["managedFields"].as_array().is_some_and(|all| all.len() > 1) {
            return None;
        }
        let quoted_name = format!("\"{name}\"");
        let version = format!("\"resourceVersion\":\"{}\"", metadata["resourceVersion"].as_str()?);
        let created = metadata["creationTimestamp"].as_str().unwrap_or_default();
        let created = format!("\"creationTimestamp\":\"{created}\"");
        let renewed = format!("\"renewTime\":\"{}\"", parsed["spec"]["renewTime"].as_str().unwrap_or_default());
        let owner_uid = metadata["ownerReferences"][0]["uid"].as_str().unwrap_or_default();
        let managed = metadata["managedFields"][0]["time"].as_str().unwrap_or_default();
        let managed = format!("\"time\":\"{managed}\"");
        // For each value: the text to search for, the number of its bytes before and after the value, and the kind of
        // the value.
        let needles = [
            (quoted_name.as_str(), 1, 1, Slot::Name),
            (metadata["uid"].as_str()?, 0, 0, Slot::Uid),
            (owner_uid, 0, 0, Slot::OwnerUid),
            (&version, "\"resourceVersion\":\"".len(), 1, Slot::Version),
            (&created, "\"creationTimestamp\":\"".len(), 1, Slot::Created),
            (&renewed, "\"renewTime\":\"".len(), 1, Slot::Renewed),
            (&managed, "\"time\":\"".len(), 1, Slot::Managed),
        ];
        let mut holes = Vec::new();
        for (needle, before, after, slot) in needles {
            if needle.len() > before + after {
                let found = memmem::find_iter(object, needle);
                holes.extend(found.map(|at| (at + before, at + needle.len() - after, slot)));
            }
        }
        holes.sort_unstable_by_key(|hole| hole.0);
        let (mut parts, mut end) = (Vec::new(), 0);
        for (start, hole_end, slot) in holes {
            parts.push((object.get(end..start)?.into(), slot));
            end = hole_end;
        }
        let template = Self { parts, tail: object.get(end..)?.into() };
        let fields = template.fields_of(object, name)?;
        let mut again = Vec::with_capacity(object.len());
        template.render_into(&mut again, name, &fields);
        (again == object).then_some((template, fields))
    }

    /// Returns the fields of `object`: the values in the template's holes. Returns `None` if `object` does not fit the
    /// template, or has another name than `name`.
    pub(crate) fn fields_of(&self, object: &[u8], name: &str) -> Option<Fields> {
        let mut fields = Fields::default();
        let mut rest = object;
        for (literal, slot) in &self.parts {
            rest = rest.strip_prefix(literal.as_ref())?;
            let width = match slot {
                Slot::Created | Slot::Managed => time_text::SECONDS_LEN,
                Slot::Name => name.len(),
                Slot::OwnerUid | Slot::Uid => Hyphenated::LENGTH,
                Slot::Renewed => time_text::MICROS_LEN,
                Slot::Version => memchr::memchr(b'"', rest)?,
            };
            let (value, after) = rest.split_at_checked(width)?;
            rest = after;
            match slot {
                Slot::Created => set_once(&mut fields.created, parse_seconds(value)?)?,
                Slot::Managed => set_once(&mut fields.managed, parse_seconds(value)?)?,
                Slot::Name => (value == name.as_bytes()).then_some(())?,
                Slot::OwnerUid => set_once(&mut fields.owner_uid, parse_uuid(value)?)?,
                Slot::Renewed => set_once(&mut fields.renewed, time_text::parse_micros(value)?)?,
                Slot::Uid => set_once(&mut fields.uid, parse_uuid(value)?)?,
                Slot::Version => set_once(&mut fields.version, parse_version(value)?)?,
            }
        }
        (rest == self.tail.as_ref()).then_some(fields)
    }

    /// Appends the text of the Lease with this name and these fields.
    pub(crate) fn render_into(&self, out: &mut Vec<u8>, name: &str, fields: &Fields) {
        for (literal, slot) in &self.parts {
            out.extend_from_slice(literal);
            match slot {
                Slot::Created => time_text::push_seconds(out, fields.created.into()),
                Slot::Managed => time_text::push_seconds(out, fields.managed.into()),
                Slot::Name => out.extend_from_slice(name.as_bytes()),
                Slot::OwnerUid => push_uuid(out, fields.owner_uid),
                Slot::Renewed => time_text::push_micros(out, fields.renewed),
                Slot::Uid => push_uuid(out, fields.uid),
                Slot::Version => out.extend_from_slice(itoa::Buffer::new().format(fields.version).as_bytes()),
            }
        }
        out.extend_from_slice(&self.tail);
    }
}

/// Parses the version, the UID and the `renewTime` of a Lease that fits no template. The other fields stay 0. Returns
/// `None` if a parsed value is missing.
#[cold]
pub(crate) fn fields_by_parsing(object: &[u8], name: &str) -> Option<Fields> {
    let parsed: Value = serde_json::from_slice(object).ok()?;
    let metadata = &parsed["metadata"];
    (metadata["name"] == name).then_some(())?;
    Some(Fields {
        uid: parse_uuid(metadata["uid"].as_str()?.as_bytes())?,
        version: parse_version(metadata["resourceVersion"].as_str()?.as_bytes())?,
        renewed: time_text::parse_micros(parsed["spec"]["renewTime"].as_str()?.as_bytes())?,
        ..Fields::default()
    })
}

/// Appends the Lease `object` with a new `renewTime`.
#[cold]
pub(crate) fn push_renewed(out: &mut Vec<u8>, object: &[u8], renewed: u64) {
    let key = b"\"renewTime\":\"";
    let Some(at) = memmem::find(object, key).map(|at| at + key.len()) else { return };
    out.extend_from_slice(object.get(..at).unwrap_or_default());
    time_text::push_micros(out, renewed);
    out.extend_from_slice(object.get(at + time_text::MICROS_LEN..).unwrap_or_default());
}

/// Appends the JSON of the Lease that a kubelet creates.
pub(crate) fn push_new(out: &mut Vec<u8>, namespace: &str, name: &str, owner_uid: u128, renewed: u64) {
    for part in [
        r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":""#,
        name,
        r#"","namespace":""#,
        namespace,
        r#"","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":""#,
        name,
        r#"","uid":""#,
    ] {
        out.extend_from_slice(part.as_bytes());
    }
    push_uuid(out, owner_uid);
    out.extend_from_slice(br#""}]},"spec":{"holderIdentity":""#);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(br#"","leaseDurationSeconds":40,"renewTime":""#);
    time_text::push_micros(out, renewed);
    out.extend_from_slice(b"\"}}");
}

/// Sets a field that is 0. If an earlier hole has set the field, checks that its value equals `value`, since several
/// holes of a template may belong to one field. Returns `None` if the values differ.
fn set_once<T: Copy + Default + PartialEq>(field: &mut T, value: T) -> Option<()> {
    let before = std::mem::replace(field, value);
    (before == T::default() || before == value).then_some(())
}

fn parse_seconds(text: &[u8]) -> Option<u32> {
    u32::try_from(time_text::parse_seconds(text)?).ok()
}

/// Parses a resourceVersion: digits without a leading zero.
pub(crate) fn parse_version(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.first() == Some(&b'0') {
        return None;
    }
    text.iter().try_fold(0_u64, |value, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Parses a UUID in lower case with its dashes: `8-4-4-4-12`.
fn parse_uuid(text: &[u8]) -> Option<u128> {
    let uuid = Uuid::try_parse_ascii(text).ok()?;
    (uuid.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH]).as_bytes() == text).then_some(uuid.as_u128())
}

/// Appends a UUID in lower case with its dashes.
pub(crate) fn push_uuid(out: &mut Vec<u8>, uuid: u128) {
    let text = Uuid::from_u128(uuid).hyphenated();
    out.extend_from_slice(text.encode_lower(&mut [0; Hyphenated::LENGTH]).as_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the JSON of a Lease as in a response of kube-apiserver.
    pub(crate) fn object_text(name: &str, version: u64, renewed: &str) -> String {
        format!(
            r#"{{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{{"name":"{name}","namespace":"n","uid":"0a000000-0000-4000-8000-00000000000b","resourceVersion":"{version}","creationTimestamp":"2026-01-02T03:04:05Z","ownerReferences":[{{"apiVersion":"v1","kind":"Node","name":"{name}","uid":"11111111-2222-3333-4444-555555555555"}}],"managedFields":[{{"manager":"x","operation":"Update","apiVersion":"coordination.k8s.io/v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"11111111-2222-3333-4444-555555555555\"}}":{{}}}}}},"f:spec":{{"f:holderIdentity":{{}}}}}}}}]}},"spec":{{"holderIdentity":"{name}","leaseDurationSeconds":40,"renewTime":"{renewed}"}}}}"#
        )
    }

    const RENEWED: &str = "2026-01-02T03:04:15.000001Z";

    #[test]
    fn a_template_learned_from_one_object_fits_every_other_node() {
        let text = object_text("node-7", 12, RENEWED);
        let (template, fields) = Template::learn(text.as_bytes(), "node-7").expect("learned");
        assert_eq!(fields.version, 12);
        assert_eq!(fields.uid, 0x0a00_0000_0000_4000_8000_0000_0000_000b);
        assert_eq!(template.parts.len(), 10);

        let other = object_text("node-123456", 1_767_323_045_678_901, "2026-01-02T03:05:00.999999Z");
        let fields = template.fields_of(other.as_bytes(), "node-123456").expect("fits");
        let mut again = Vec::new();
        template.render_into(&mut again, "node-123456", &fields);
        assert_eq!(String::from_utf8(again).expect("text"), other);
    }

    #[test]
    fn a_template_rejects_text_of_a_different_form() {
        let text = object_text("node-7", 12, RENEWED);
        let (template, _) = Template::learn(text.as_bytes(), "node-7").expect("learned");
        assert!(template.fields_of(text.as_bytes(), "node-8").is_none());
        assert!(template.fields_of(text.replace("40", "41").as_bytes(), "node-7").is_none());
        assert!(template.fields_of(format!("{text}x").as_bytes(), "node-7").is_none());
        assert!(template.fields_of(text.replacen("555555\"", "555556\"", 1).as_bytes(), "node-7").is_none());
        for end in 0..text.len() {
            assert!(template.fields_of(&text.as_bytes()[..end], "node-7").is_none());
        }
    }

    #[test]
    fn an_object_with_two_manager_times_has_no_template() {
        let text = object_text("node-7", 12, RENEWED);
        let second = text.replace("}]},\"spec\"", "},{\"time\":\"2026-01-02T03:04:06Z\"}]},\"spec\"");
        assert_ne!(second, text);
        assert!(Template::learn(second.as_bytes(), "node-7").is_none());
        let fields = fields_by_parsing(second.as_bytes(), "node-7").expect("parsed");
        assert_eq!(fields.version, 12);
        let mut out = Vec::new();
        push_renewed(&mut out, second.as_bytes(), fields.renewed + 1);
        assert_eq!(String::from_utf8(out).expect("text"), second.replace(RENEWED, "2026-01-02T03:04:15.000002Z"));
    }

    #[test]
    fn a_created_object_is_valid_json() {
        let mut out = Vec::new();
        push_new(&mut out, "kube-node-lease", "node-1", 5, 1_000_000);
        let value: Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(value["metadata"]["ownerReferences"][0]["uid"], "00000000-0000-0000-0000-000000000005");
        assert_eq!(value["spec"]["renewTime"], "1970-01-01T00:00:01.000000Z");
    }
}
