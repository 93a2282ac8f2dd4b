//! The Leases that a bench renews and reads, each stored byte for byte as the server wrote it.
//!
//! A renewal sends back the object in the last response, with a new `renewTime` written over the old one. So the
//! generator writes only the bytes of one time for each request. The checks of a response are cheap too. Its object
//! must have the same bytes up to the version, a higher version, and the `renewTime` that was sent. The `renewTime` of
//! some events is checked too. The other fields after the version are checked only by the simulated nodes, in a run
//! without `bench`.

use super::places::Places;
use super::protobuf;
use crate::origin::MediaType;
use crate::{node, object, time_text};
use memchr::memmem::Finder;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The Leases of a run, by index.
#[derive(Debug)]
pub(super) struct Leases {
    media_type: MediaType,
    namespace: String,
    slots: Vec<Slot>,
    keys: Keys,
    rng: fastrand::Rng,
    /// Scratch buffer for the text of a `renewTime`.
    time: Vec<u8>,
    /// Number of acknowledged renewals of all Leases.
    pub(super) all_writes: u64,
}

/// One Lease, with what the checks of its responses need.
#[derive(Debug, Default)]
struct Slot {
    /// The object in the last response, with the `renewTime` that was last sent; empty until the first response.
    body: Box<[u8]>,
    /// Offsets of the resourceVersion and of `renewTime` in `body`, in bytes.
    version_at: u32,
    renewed_at: u32,
    /// resourceVersion in `body`; 0 until the first response.
    version: u64,
    /// `renewTime` in `body`, in microseconds since the Unix epoch.
    renewed: u64,
    /// Number of acknowledged renewals of this Lease.
    writes: u32,
    /// Whether a request for this Lease is in flight, or was encoded and waits because the server accepts no more
    /// requests now.
    busy: bool,
    /// Whether the last renewal was acknowledged. If not, an earlier renewal may still take effect, so the Lease's
    /// events are not checked.
    is_sure: bool,
}

/// What is wrong with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The response is no Lease, or another Lease.
    Malformed,
    /// The response differs from the object that was sent, or from an earlier response with the same version.
    NotWhatWasSent,
    /// The version in the response to a renewal is not higher than before, or a read shows a lower version.
    WentBack,
}

/// Searchers for substrings of a Lease, built once.
#[derive(Debug)]
struct Keys {
    name: Finder<'static>,
    version: Finder<'static>,
    renewed: Finder<'static>,
}

impl Leases {
    pub(super) fn new(media_type: MediaType, namespace: &str, len: u32) -> Self {
        Self {
            media_type,
            namespace: namespace.to_owned(),
            slots: std::iter::repeat_with(Slot::default).take(len as usize).collect(),
            keys: Keys {
                name: Finder::new(b"\"name\":\""),
                version: Finder::new(b"\"resourceVersion\":\""),
                renewed: Finder::new(b"\"renewTime\":\""),
            },
            rng: fastrand::Rng::new(),
            time: Vec::new(),
            all_writes: 0,
        }
    }

    /// Returns the number of acknowledged renewals of one Lease.
    pub(super) fn writes(&self, index: u32) -> u64 {
        self.slots.get(index as usize).map_or(0, |slot| slot.writes.into())
    }

    /// Records that a request for a Lease is in flight. Returns false if another request for this Lease is in flight.
    pub(super) fn begin(&mut self, index: u32) -> bool {
        self.slots.get_mut(index as usize).is_some_and(|slot| !std::mem::replace(&mut slot.busy, true))
    }

    /// Records that a request for this Lease has failed or was lost. The `renewTime` in events of the Lease is not
    /// checked until the next acknowledged renewal.
    #[cold]
    pub(super) fn doubt(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.is_sure = false;
        }
    }

    /// Records that no request for a Lease is in flight.
    pub(super) fn end(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.busy = false;
        }
    }

    /// Appends the object of a Lease that does not exist yet, for a POST.
    pub(super) fn write_new(&mut self, out: &mut Vec<u8>, name: &str, now_us: u64) {
        let owner_uid = self.rng.u128(..);
        match self.media_type {
            MediaType::Json => object::push_new(out, &self.namespace, name, owner_uid, now_us),
            MediaType::Protobuf => {
                protobuf::push_new(out, &self.namespace, name, owner_uid, protobuf::spread(now_us));
            }
        }
    }

    /// Builds every Lease in this process, with at least `body_bytes` each. The echo bench needs this: its server
    /// stores no Leases.
    pub(super) fn make(&mut self, body_bytes: usize) {
        for index in 0..self.slots.len() {
            let mut body = Vec::with_capacity(body_bytes);
            self.write_new(&mut body, &format!("node-{index}"), 0);
            let renewed_at = self.keys.renewed.find(&body).map_or(0, |at| at + self.keys.renewed.needle().len());
            // JSON allows white space after an object, so spaces fill the body.
            body.resize(body_bytes.max(body.len()), b' ');
            if let Some(slot) = self.slots.get_mut(index) {
                slot.renewed_at = u32::try_from(renewed_at).unwrap_or(0);
                slot.body = body.into();
            }
        }
    }

    /// Returns the size of a Lease in a request, in bytes.
    pub(super) fn body_len(&self) -> usize {
        self.slots.first().map_or(0, |slot| slot.body.len())
    }

    /// Checks the response of an echo: it must equal the body of the request.
    pub(super) fn echoed(&mut self, index: u32, answer: &[u8]) -> Result<(), Wrong> {
        let is_same = self.slots.get(index as usize).is_some_and(|slot| *slot.body == *answer);
        if is_same { Ok(()) } else { Err(Wrong::NotWhatWasSent) }
    }

    /// Writes a new `renewTime` into the object of a Lease. Returns the object, for the body of a PUT.
    pub(super) fn renewed(&mut self, index: u32, now_us: u64) -> &[u8] {
        let Some(slot) = self.slots.get_mut(index as usize) else { return &[] };
        slot.renewed = now_us.max(slot.renewed + 1);
        self.time.clear();
        let at = slot.renewed_at as usize;
        match self.media_type {
            MediaType::Json => {
                time_text::push_micros(&mut self.time, slot.renewed);
            }
            MediaType::Protobuf => {
                slot.renewed = protobuf::spread(slot.renewed);
                protobuf::push_time(&mut self.time, slot.renewed);
            }
        }
        if let Some(place) = slot.body.get_mut(at..at + self.time.len()) {
            place.copy_from_slice(&self.time);
        }
        &slot.body
    }

    /// Stores the Lease in a response. The request was a creation, or a read of a Lease whose content was unknown.
    pub(super) fn learn(&mut self, index: u32, answer: &[u8]) -> Result<(), Wrong> {
        let answer = self.renewable(answer);
        let places = self.keys.places(self.media_type, &answer).ok_or(Wrong::Malformed)?;
        let version = version_at(&answer, places.version.start).ok_or(Wrong::Malformed)?;
        if !self.media_type.is_named(answer.get(places.identity).unwrap_or_default(), &node::name_of(index)) {
            return Err(Wrong::Malformed);
        }
        let slot = self.slots.get_mut(index as usize).ok_or(Wrong::Malformed)?;
        slot.version_at = u32::try_from(places.version.start).map_err(|_| Wrong::Malformed)?;
        slot.renewed_at = u32::try_from(places.renewed.start).map_err(|_| Wrong::Malformed)?;
        slot.version = version;
        slot.body = answer.into();
        Ok(())
    }

    /// Returns the response with a `renewTime` of fixed length, over which another `renewTime` can be written.
    fn renewable<'a>(&self, answer: &'a [u8]) -> Cow<'a, [u8]> {
        match self.media_type {
            MediaType::Json => answer.into(),
            MediaType::Protobuf => protobuf::lengthened(answer).map_or(Cow::Borrowed(answer), Cow::Owned),
        }
    }

    /// Checks the response to a renewal, and stores its object.
    pub(super) fn written(&mut self, index: u32, answer: &[u8]) -> Result<(), Wrong> {
        let slot = self.slots.get_mut(index as usize).ok_or(Wrong::Malformed)?;
        slot.writes += 1;
        self.all_writes += 1;
        let renewed_len = self.media_type.renewed_len();
        let renewed_at = slot.renewed_at as usize;
        if answer.len() != slot.body.len() {
            return self.relearn(index, answer, true);
        }
        let version = slot.version_of(answer).ok_or(Wrong::Malformed)?;
        if version <= slot.version {
            return Err(Wrong::WentBack);
        }
        let place = renewed_at..renewed_at + renewed_len;
        if answer.get(place.clone()) != slot.body.get(place) {
            return Err(Wrong::NotWhatWasSent);
        }
        slot.version = version;
        slot.is_sure = true;
        slot.body.copy_from_slice(answer);
        Ok(())
    }

    /// Checks the response to a read.
    pub(super) fn read(&mut self, index: u32, answer: &[u8]) -> Result<(), Wrong> {
        let slot = self.slots.get_mut(index as usize).ok_or(Wrong::Malformed)?;
        if answer.len() != slot.body.len() {
            return self.relearn(index, answer, false);
        }
        match slot.version_of(answer).ok_or(Wrong::Malformed)?.cmp(&slot.version) {
            Ordering::Less => Err(Wrong::WentBack),
            Ordering::Equal if *answer != *slot.body => Err(Wrong::NotWhatWasSent),
            Ordering::Equal | Ordering::Greater => Ok(()),
        }
    }

    /// Checks and stores an object that is not as long as the stored one. Its version has more digits, or a field was
    /// added or removed.
    #[cold]
    fn relearn(&mut self, index: u32, answer: &[u8], is_written: bool) -> Result<(), Wrong> {
        let slot = self.slots.get(index as usize).ok_or(Wrong::Malformed)?;
        if !slot.body.is_empty() {
            let answer = self.renewable(answer);
            let places = |body| self.keys.places(self.media_type, body).ok_or(Wrong::Malformed);
            let (before, now) = (places(&slot.body)?, places(&answer)?);
            if answer.get(now.identity) != slot.body.get(before.identity) {
                return Err(Wrong::Malformed);
            }
            let version = version_at(&answer, now.version.start).ok_or(Wrong::Malformed)?;
            if version < slot.version || is_written && version == slot.version {
                return Err(Wrong::WentBack);
            }
            if is_written && answer.get(now.renewed) != slot.body.get(before.renewed) {
                return Err(Wrong::NotWhatWasSent);
            }
        }
        self.learn(index, answer)?;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.is_sure = is_written;
        }
        Ok(())
    }

    /// Whether an event of this version can have this `renewTime`, in microseconds since the Unix epoch. The time must
    /// be that of the last acknowledged renewal, or of the renewal in flight. If the time of this version's renewal is
    /// not known, any time is possible.
    pub(super) fn can_show(&self, index: u32, version: u64, renewed: u64) -> bool {
        let Some(slot) = self.slots.get(index as usize).filter(|slot| slot.is_sure) else { return true };
        // While a renewal is in flight, `slot.renewed` is already the time of this renewal. The time of the previous
        // renewal is unknown.
        let is_known = if slot.busy { version > slot.version } else { version == slot.version };
        !is_known || renewed == slot.renewed
    }
}

impl Slot {
    /// Returns the version in a response. `None` if the bytes before the version differ from this object.
    fn version_of(&self, answer: &[u8]) -> Option<u64> {
        let at = self.version_at as usize;
        (answer.get(..at)? == self.body.get(..at)?).then_some(())?;
        version_at(answer, at)
    }
}

impl MediaType {
    /// Whether an object has this `metadata.name`. `identity` is the part of the object at [`Places::identity`].
    fn is_named(self, identity: &[u8], name: &str) -> bool {
        let rest = match self {
            Self::Json => identity.strip_prefix(name.as_bytes()).map(|rest| rest.first() == Some(&b'"')),
            Self::Protobuf => protobuf::name_of(identity).map(|found| found == name.as_bytes()),
        };
        rest == Some(true)
    }

    /// Returns the length of an encoded `renewTime`, in bytes.
    fn renewed_len(self) -> usize {
        match self {
            Self::Json => time_text::MICROS_LEN,
            Self::Protobuf => protobuf::TIME_LEN,
        }
    }
}

impl Keys {
    fn places(&self, media_type: MediaType, body: &[u8]) -> Option<Places> {
        match media_type {
            MediaType::Json => {
                let name = self.name.find(body)? + self.name.needle().len();
                let version = self.version.find(body)? + self.version.needle().len();
                let renewed = self.renewed.find(body)? + self.renewed.needle().len();
                let renewed = renewed..renewed + time_text::MICROS_LEN;
                time_text::parse_micros(body.get(renewed.clone())?)?;
                let version = version..version + memchr::memchr(b'"', body.get(version..)?)?;
                Some(Places { identity: name..version.start, version, renewed })
            }
            MediaType::Protobuf => protobuf::places(body),
        }
    }
}

/// Returns the first resourceVersion in a JSON response. In a list this is the version of the list itself.
pub(super) fn version_in(body: &[u8]) -> Result<u64, Wrong> {
    let key = b"\"resourceVersion\":\"";
    let at = memchr::memmem::find(body, key).ok_or(Wrong::Malformed)? + key.len();
    version_at(body, at).ok_or(Wrong::Malformed)
}

/// Parses the digits of a resourceVersion, which start at offset `at`.
fn version_at(body: &[u8], at: usize) -> Option<u64> {
    let rest = body.get(at..)?;
    let len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    object::parse_version(rest.get(..len)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::object_text;

    const NOW_US: u64 = 1_790_000_000_123_456;

    #[test]
    fn a_renewal_sends_the_last_response_with_a_new_renew_time() {
        let mut leases = Leases::new(MediaType::Json, "n", 2);
        let text = object_text("node-1", 12, "2026-01-02T03:04:15.000001Z");
        leases.learn(1, text.as_bytes()).expect("a Lease");
        let sent = String::from_utf8(leases.renewed(1, NOW_US).to_vec()).expect("text");
        assert_eq!(sent, object_text("node-1", 12, "2026-09-21T14:13:20.123456Z"));
        let answer = |name, version| object_text(name, version, "2026-09-21T14:13:20.123456Z");
        for (text, wrong) in [
            (answer("node-1", 12), Wrong::WentBack),
            (answer("node-2", 13), Wrong::Malformed),
            (object_text("node-1", 13, "2026-09-21T14:13:20.123457Z"), Wrong::NotWhatWasSent),
        ] {
            assert_eq!(leases.written(1, text.as_bytes()), Err(wrong), "{text}");
        }
        assert_eq!(leases.written(1, answer("node-1", 13).as_bytes()), Ok(()));
        assert_eq!(leases.read(1, answer("node-1", 12).as_bytes()), Err(Wrong::WentBack));
        assert_eq!(leases.read(1, answer("node-1", 13).as_bytes()), Ok(()));
        assert_eq!(leases.read(1, answer("node-1", 13).replace(":40", ":41").as_bytes()), Err(Wrong::NotWhatWasSent));
    }

    #[test]
    fn a_response_of_a_different_length_is_checked() {
        let mut leases = Leases::new(MediaType::Json, "n", 2);
        leases.learn(1, object_text("node-1", 99, "2026-01-02T03:04:15.000001Z").as_bytes()).expect("a Lease");
        leases.renewed(1, NOW_US);
        let sent = "2026-09-21T14:13:20.123456Z";
        for (text, wrong) in [
            (object_text("node-1", 100, "2026-09-21T14:13:20.123457Z"), Wrong::NotWhatWasSent),
            (object_text("node-1", 9, sent), Wrong::WentBack),
            (object_text("node-1", 99, sent).replace(":40", ":400"), Wrong::WentBack),
            (object_text("node-10", 100, sent), Wrong::Malformed),
            (object_text("node-1", 100, sent).replace("0000b\",", "0000c\","), Wrong::Malformed),
        ] {
            assert_eq!(leases.written(1, text.as_bytes()), Err(wrong), "{text}");
        }
        assert_eq!(leases.written(1, object_text("node-1", 100, sent).as_bytes()), Ok(()));
        assert_eq!(leases.read(1, object_text("node-1", 99, sent).as_bytes()), Err(Wrong::WentBack));
        assert_eq!(leases.read(1, object_text("node-10", 100, sent).as_bytes()), Err(Wrong::Malformed));
        assert_eq!(leases.read(1, object_text("node-1", 1_000, sent).as_bytes()), Ok(()));
        // The name in the first response for a Lease is checked too.
        assert_eq!(leases.learn(0, object_text("node-1", 99, sent).as_bytes()), Err(Wrong::Malformed));
    }

    #[test]
    fn an_event_must_show_the_renew_time_of_a_known_write() {
        let mut leases = Leases::new(MediaType::Json, "n", 1);
        leases.learn(0, object_text("node-0", 12, "2026-01-02T03:04:15.000001Z").as_bytes()).expect("a Lease");
        assert!(leases.can_show(0, 12, 1), "nothing is known of it yet");
        leases.begin(0);
        let sent = leases.renewed(0, NOW_US).to_vec();
        let answer = String::from_utf8(sent).expect("text").replace("\"12\"", "\"13\"");
        assert_eq!(leases.written(0, answer.as_bytes()), Ok(()));
        leases.end(0);
        assert!(leases.can_show(0, 13, NOW_US) && !leases.can_show(0, 13, NOW_US + 1));
        leases.begin(0);
        leases.renewed(0, NOW_US + 5);
        assert!(leases.can_show(0, 14, NOW_US + 5) && !leases.can_show(0, 14, NOW_US));
        assert!(leases.can_show(0, 13, NOW_US), "the one before");
        leases.doubt(0);
        assert!(leases.can_show(0, 14, NOW_US));
    }

    #[test]
    fn a_lease_has_at_most_one_request_in_flight() {
        let mut leases = Leases::new(MediaType::Json, "n", 1);
        assert!(leases.begin(0) && !leases.begin(0));
        leases.end(0);
        assert!(leases.begin(0) && !leases.begin(1));
    }

    /// A renewal changes only the `renewTime` in the bytes of a protobuf Lease, and the result is a valid Lease. The
    /// test plays the server: the server's codec parses the Lease of a request, and encodes it with a resourceVersion
    /// for the response.
    #[test]
    fn a_protobuf_lease_is_renewed_in_place() {
        use coordination_apiserver::codec::protobuf::{decode_lease, encode_lease_into};
        use coordination_apiserver::resource::{ApiVersion, ResourceVersion};
        let decode = |body: &[u8]| decode_lease(body, ApiVersion::V1).expect("a Lease").lease;
        let mut leases = Leases::new(MediaType::Protobuf, "n", 1);
        let mut new = Vec::new();
        leases.write_new(&mut new, "node-0", NOW_US);
        let decoded = decode(&new);
        assert_eq!((decoded.metadata.name.as_str(), decoded.metadata.namespace.as_str()), ("node-0", "n"));
        let answer = |body: &[u8], version| {
            let mut out = Vec::new();
            encode_lease_into(&mut out, &decode(body), Some(ResourceVersion(version)), "coordination.k8s.io/v1");
            out
        };
        leases.learn(0, &answer(&new, 1_000)).expect("a Lease with a version");
        for version in 1_001..1_050 {
            let sent = leases.renewed(0, NOW_US + 1_000_000).to_vec();
            assert_eq!(leases.written(0, &answer(&sent, version)), Ok(()));
            assert_ne!(decode(&sent).spec, decode(&new).spec);
        }
        // The encoded `renewTime` of this Lease is shorter than a `renewTime` that is written over it. So `learn` must
        // lengthen it.
        let mut lease = decode(&new);
        lease.spec.renew_time = Some(coordination_apiserver::timestamp::MicroTime(1_790_000_000_000_000));
        let mut short = Vec::new();
        let version = Some(ResourceVersion(1_048));
        encode_lease_into(&mut short, &lease, version, "coordination.k8s.io/v1");
        leases.learn(0, &short).expect("a Lease");
        let sent = leases.renewed(0, NOW_US + 1_000_000).to_vec();
        lease = decode(&sent);
        assert_eq!(lease.metadata.resource_version, "1048");
        assert_eq!(lease.spec, decode(&answer(&sent, 1)).spec);
        assert_eq!(leases.written(0, &answer(&new, 1_050)), Err(Wrong::NotWhatWasSent));
        assert_eq!(leases.written(0, &answer(&sent, 1_048)), Err(Wrong::WentBack));
        assert_eq!(leases.read(0, &answer(&sent, 1_049)), Ok(()));
    }
}
