//! The parameters of a media range.

use super::accept::Range;
use super::{DiscoveryVersion, Transform};
use crate::codec::Format;
use crate::resource::MetaVersion;

/// The parameters of a media range that this server supports. The server ignores other parameters, such as `charset`.
#[derive(Default)]
pub(super) struct Parameters<'a> {
    kind: Option<&'a [u8]>,
    group: Option<&'a [u8]>,
    version: Option<&'a [u8]>,
    pub(super) is_stream: bool,
    /// Whether the range has the parameter `sv`: the version of the group `meta.k8s.io` for generic objects, such as
    /// `Status`. The only valid value is `v1`.
    names_server_version: bool,
    pub(super) pretty: bool,
}

impl<'a> Parameters<'a> {
    /// Parses the parameters of a media range. Returns `None` if a parameter has an unsupported value. The last value
    /// of a repeated parameter counts.
    pub(super) fn of(range: &Range<'a>) -> Option<Self> {
        let mut found = Self::default();
        let (mut stream, mut server_version): (&[u8], &[u8]) = (&[], &[]);
        for (name, value) in range.parameters() {
            match name {
                b"as" => found.kind = Some(value),
                b"g" => found.group = Some(value),
                b"v" => found.version = Some(value),
                b"stream" => stream = value,
                b"sv" => server_version = value,
                b"pretty" => found.pretty = value == b"1",
                _ => {}
            }
        }
        found.is_stream = !stream.is_empty();
        found.names_server_version = !server_version.is_empty();
        let may_be = matches!(stream, b"" | b"watch") && matches!(server_version, b"" | b"v1");
        may_be.then_some(found)
    }

    /// Whether the parameters demand no transformation.
    pub(super) fn is_plain(&self) -> bool {
        self.kind.is_none() && self.group.is_none() && self.version.is_none()
    }

    /// Returns [`Transform::None`], for a `Status` or an unaggregated discovery document, which cannot be transformed.
    /// Returns `None` if the parameters demand a transformation or include `sv`.
    pub(super) fn for_status(&self) -> Option<Transform> {
        (self.is_plain() && !self.names_server_version).then_some(Transform::None)
    }

    /// Returns the version of the aggregated discovery document that the parameters demand; `None` if they demand
    /// another document.
    pub(super) fn aggregated(&self) -> Option<DiscoveryVersion> {
        match (self.group?, self.version?, self.kind?) {
            (b"apidiscovery.k8s.io", b"v2", b"APIGroupDiscoveryList") => Some(DiscoveryVersion::V2),
            (b"apidiscovery.k8s.io", b"v2beta1", b"APIGroupDiscoveryList") => Some(DiscoveryVersion::V2Beta1),
            _ => None,
        }
    }

    /// Returns the transformation that the parameters demand. Returns `None` if the server does not support this
    /// transformation in `format`.
    pub(super) fn transform(&self, format: Format) -> Option<Transform> {
        if self.is_plain() {
            return Some(Transform::None);
        }
        let version = match (self.group?, self.version?) {
            (b"meta.k8s.io", b"v1") => MetaVersion::V1,
            (b"meta.k8s.io", b"v1beta1") => MetaVersion::V1Beta1,
            _ => return None,
        };
        match self.kind? {
            b"PartialObjectMetadata" => Some(Transform::Partial(version)),
            b"PartialObjectMetadataList" => Some(Transform::PartialList(version)),
            b"Table" if format != Format::Protobuf => Some(Transform::Table(version)),
            _ => None,
        }
    }
}
