//! Encodings of which others are made. Nearly all states of a Lease are renewals: between them nothing changes but
//! three values, so all are made of one encoding, the [`Template`], with these values put in.
//!
//! The other way round it tells a renewal: a client that renews a Lease sends back what it got, with another
//! `renewTime`. Where a body is what the template gives for the Lease's state but for that time, nothing needs to be
//! decoded. Whether a renewal is one by the rules is not known here.
//!
//! ```text
//!   template   {"kind":"Lease",…"resourceVersion":"1795219345000001",…"time":"2026-11-20T…Z"…"renewTime":"2026-…Z"}}
//!   marks                                          └ version            └ managed_time          └ renew_time
//! ```

use crate::codec::values::Values;
use crate::codec::{Format, json, protobuf};
use crate::lease::Lease;
use crate::resource::{API_VERSION, ResourceVersion};
use crate::timestamp::MicroTime;
use std::cell::Cell;

/// The encoding of one state, and where in it the values of others are put.
#[derive(Debug)]
pub struct Template {
    encoding: Box<[u8]>,
    version: ResourceVersion,
    /// None if nothing can be put in.
    marks: Option<Marks>,
    format: Format,
    /// What was said of the Lease when [`Template::renewed`] first asked.
    is_renewable: Cell<Option<bool>>,
}

/// Where the values stand in an encoding. Places are bytes from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    Json(json::Marks),
    Protobuf(protobuf::Marks),
}

impl Template {
    /// The whole body of a response with `lease`, whose values `of` are.
    ///
    /// # Panics
    /// In debug builds if the format is YAML, which is made of JSON.
    #[must_use]
    pub fn new(format: Format, lease: &Lease, of: Values) -> Self {
        debug_assert_ne!(format, Format::Yaml, "no template in YAML");
        let mut encoding = Vec::new();
        encode_into(&mut encoding, format, lease, of.version);
        let encoding = encoding.into_boxed_slice();
        let marks = match format {
            Format::Protobuf => protobuf::Marks::of(&encoding, &of).map(Marks::Protobuf),
            Format::Json | Format::Yaml => json::Marks::of(&encoding, &of).map(Marks::Json),
        };
        Self { encoding, version: of.version, marks, format, is_renewable: Cell::new(None) }
    }

    /// JSON or protobuf.
    #[inline]
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Appends the encoding of the state with `values`, without the first `from` bytes, which must be before all
    /// values. `false`, and nothing done, if they cannot be put in: as many digits or bytes as those of the template
    /// are needed.
    #[inline]
    #[must_use]
    pub fn push(&self, out: &mut Vec<u8>, from: usize, values: &Values) -> bool {
        if values.version == self.version {
            out.extend_from_slice(self.encoding.get(from..).unwrap_or_default());
            return true;
        }
        let start = out.len();
        let is_put = match &self.marks {
            Some(Marks::Json(marks)) => marks.push(out, &self.encoding, from, values),
            Some(Marks::Protobuf(marks)) => marks.push(out, &self.encoding, from, values),
            None => false,
        };
        if !is_put {
            out.truncate(start);
        }
        is_put
    }

    /// The `renewTime` in `body` if all else in it is as in the encoding of the state with `values`, and it is written
    /// as we would write it. It may be the same time. `is_renewable` is asked once, whether a Lease that differs from
    /// the template's by these values only is valid whatever they are.
    #[inline]
    #[must_use]
    pub fn renewed(&self, values: &Values, body: &[u8], is_renewable: impl FnOnce() -> bool) -> Option<MicroTime> {
        let renew_time = match self.marks.as_ref()? {
            Marks::Json(marks) => marks.renewed(&self.encoding, values, body),
            Marks::Protobuf(marks) => marks.renewed(&self.encoding, values, body),
        }?;
        let is_renewable = self.is_renewable.get().unwrap_or_else(|| {
            let is_renewable = is_renewable();
            self.is_renewable.set(Some(is_renewable));
            is_renewable
        });
        is_renewable.then_some(renew_time)
    }

    /// Reads a little of it, so that it comes to the caches: a byte of each cache line, as far as a Lease is long as a
    /// rule.
    #[inline]
    #[must_use]
    pub fn touch(&self) -> usize {
        const CACHE_LINE_BYTES: usize = 64;
        const LINES: usize = 16;
        self.encoding.iter().step_by(CACHE_LINE_BYTES).take(LINES).map(|byte| usize::from(*byte)).sum()
    }

    /// Bytes of the template's own state: those of the others are as many, give or take what a time needs.
    #[must_use]
    pub fn len_hint(&self) -> usize {
        self.encoding.len()
    }
}

/// Appends the whole body of a response: in JSON an object and a line feed, as kube-apiserver ends it.
pub fn encode_into(out: &mut Vec<u8>, format: Format, lease: &Lease, version: ResourceVersion) {
    if format == Format::Protobuf {
        protobuf::encode_lease_into(out, lease, Some(version), API_VERSION);
    } else {
        json::encode_lease_into(out, lease, Some(version), true);
        out.push(b'\n');
    }
}

/// What the tests of both formats begin with.
#[cfg(test)]
pub(super) mod fixture {
    use super::*;
    use crate::timestamp::Time;

    pub(in crate::codec) const STORED: Values = Values {
        version: ResourceVersion(12_345),
        renew_time: Some(MicroTime(1_795_219_345_123_456)),
        managed_time: Some(Time(1_795_219_345)),
    };

    pub(in crate::codec) fn encode(format: Format, lease: &Lease, version: ResourceVersion) -> Vec<u8> {
        let mut out = Vec::new();
        encode_into(&mut out, format, lease, version);
        out
    }
}
