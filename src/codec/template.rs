//! Templates. A template is the encoding of a Lease at one `resourceVersion`. Nearly all writes of a Lease are
//! renewals, and a renewal changes only three values. So the encoding after a renewal is the [`Template`] with these
//! three values replaced.
//!
//! A template also serves to recognize a renewal: a client renews a Lease by sending the body that it received, with
//! another `renewTime`. If the rest of the body equals the encoding of the current Lease, the server need not decode
//! the body. The caller decides whether the API allows the renewal.
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

/// The encoding of a Lease at one `resourceVersion`, and the positions of the three values that renewals change.
#[derive(Debug)]
pub struct Template {
    encoding: Box<[u8]>,
    version: ResourceVersion,
    /// Positions of the three values in the encoding; `None` if they cannot be replaced, for example because the Lease
    /// has no `renewTime`.
    marks: Option<Marks>,
    format: Format,
    /// Result of the first `is_renewable` call in [`Template::match_body`]; `None` before this call.
    is_renewable: Cell<Option<bool>>,
}

/// Positions of the three values in an encoding, as byte offsets, for either format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    Json(json::Marks),
    Protobuf(protobuf::Marks),
}

impl Template {
    /// Encodes `lease` as the whole body of a response. `of` contains the three values of the Lease.
    ///
    /// # Panics
    /// In debug builds, if the format is YAML. YAML is always converted from JSON.
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

    /// Returns the format of the encoding: JSON or protobuf.
    #[inline]
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Appends the encoding of the Lease with the three values in `values`. Omits the first `from` bytes. They must end
    /// before the three values, and in protobuf also before the length of the Lease message. Returns `false` and
    /// appends nothing if the values do not fit. In JSON, a value fits if it takes as many bytes as the value in the
    /// template. In protobuf, another `renewTime` may take more or fewer bytes, if the lengths of the messages around
    /// it take as many bytes as before.
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

    /// Compares `body` with the encoding of the Lease that has the three values in `values`. If both are equal except
    /// for `renewTime`, returns the `renewTime` in `body`. This time must have the form that the server encodes, and
    /// may equal the time in `values`. Returns `None` too if `is_renewable` returns false. `is_renewable` returns
    /// whether the Lease is valid whatever its `renewTime`. It is called at most once for each template.
    #[inline]
    #[must_use]
    pub fn match_body(&self, values: &Values, body: &[u8], is_renewable: impl FnOnce() -> bool) -> Option<MicroTime> {
        let renew_time = match self.marks.as_ref()? {
            Marks::Json(marks) => marks.match_encoding(&self.encoding, values, body),
            Marks::Protobuf(marks) => marks.match_encoding(&self.encoding, values, body),
        }?;
        let is_renewable = self.is_renewable.get().unwrap_or_else(|| {
            let is_renewable = is_renewable();
            self.is_renewable.set(Some(is_renewable));
            is_renewable
        });
        is_renewable.then_some(renew_time)
    }

    /// Loads the template into the processor's caches before it is needed: reads a byte of each cache line, up to the
    /// usual length of a Lease. Returns the sum of these bytes, so that the compiler does not remove the reads.
    #[inline]
    #[must_use]
    pub fn touch(&self) -> usize {
        const CACHE_LINE_BYTES: usize = 64;
        const LINES: usize = 16;
        self.encoding.iter().step_by(CACHE_LINE_BYTES).take(LINES).map(|byte| usize::from(*byte)).sum()
    }

    /// Returns the length of the encoding in the template, in bytes. An encoding with other values may be a few bytes
    /// longer or shorter.
    #[must_use]
    pub fn len_hint(&self) -> usize {
        self.encoding.len()
    }
}

/// Appends a Lease as the whole body of a response. A JSON body ends with a line feed, as in kube-apiserver.
pub fn encode_into(out: &mut Vec<u8>, format: Format, lease: &Lease, version: ResourceVersion) {
    if format == Format::Protobuf {
        protobuf::encode_lease_into(out, lease, Some(version), API_VERSION);
    } else {
        json::encode_lease_into(out, lease, Some(version), true);
        out.push(b'\n');
    }
}

/// Input for the tests of both formats.
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
