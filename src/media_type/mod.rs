//! The media types that a client accepts and sends (RFC 9110 §12.5.1, §8.3), with their meaning in kube-apiserver.
//!
//! This module defines the forms of responses, and determines the format of a request body. `accept` parses the header
//! fields. `parameters` parses the parameters of a media range. `negotiation` chooses the form of each response.

mod accept;
mod negotiation;
mod parameters;

pub(crate) use negotiation::{
    check_json_route, negotiate, negotiate_discovery, negotiate_routed_discovery, negotiate_status, takes_json,
};

use crate::api_error::Unacceptable;
use crate::codec::Format;
use crate::resource::MetaVersion;

/// The transformation of an object before it is encoded (the media type parameter `as`). A `Status` is never
/// transformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transform {
    /// No transformation: the object itself.
    #[default]
    None,
    /// `PartialObjectMetadata`, for a single object and for the events of a watch.
    Partial(MetaVersion),
    /// `PartialObjectMetadataList`, for a list.
    PartialList(MetaVersion),
    /// `Table`, for objects, lists and the events of a watch. A Table has no protobuf form.
    Table(MetaVersion),
}

/// The form of a response: its format, indentation and transformation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Representation {
    /// Format in which the response is encoded.
    pub format: Format,
    /// Whether JSON is indented for people. The events of a watch are never indented. An indented body ends without a
    /// line feed.
    pub pretty: bool,
    /// Transformation of the objects.
    pub transform: Transform,
}

impl Representation {
    /// Plain JSON, the most common form.
    pub const JSON: Self = Self { format: Format::Json, pretty: false, transform: Transform::None };

    /// Form of an error response to a client that accepts no form that the server can generate.
    pub const FALLBACK: Self = Self { pretty: true, ..Self::JSON };

    const PROTOBUF: Self = Self { format: Format::Protobuf, ..Self::JSON };

    /// Returns the `Content-Type` of the response. `watch` is true if the response is a stream of watch events.
    #[must_use]
    pub fn content_type(self, watch: bool) -> &'static str {
        match (self.format, watch) {
            (Format::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
            (format, _) => format.media_type(),
        }
    }

    /// Returns this form without a transformation, for a `Status`. Errors, and the response to a successful deletion,
    /// are a `Status`.
    #[must_use]
    pub fn for_status(self) -> Self {
        Self { transform: Transform::None, ..self }
    }

    /// Returns this form, with indentation if `wanted` is set and the format is JSON.
    #[must_use]
    pub fn pretty_if(self, wanted: bool) -> Self {
        Self { pretty: (self.pretty || wanted) && self.format == Format::Json, ..self }
    }

    /// Checks that the transformation is possible for a single object. Call this function after the change that the
    /// request makes, if any: the error must not prevent the change.
    ///
    /// # Errors
    /// 406 if the client accepts only a list.
    pub fn check_object(self) -> Result<(), Unacceptable> {
        match self.transform {
            Transform::PartialList(_) => Err(Unacceptable::NotAList),
            Transform::None | Transform::Partial(_) | Transform::Table(_) => Ok(()),
        }
    }

    /// Checks that the transformation is possible for a list.
    ///
    /// # Errors
    /// 406 if the client accepts only a single object.
    pub fn check_list(self) -> Result<(), Unacceptable> {
        match self.transform {
            Transform::Partial(_) => Err(Unacceptable::List),
            Transform::None | Transform::PartialList(_) | Transform::Table(_) => Ok(()),
        }
    }

    /// Checks that this format can encode the events of a watch.
    ///
    /// # Errors
    /// 406 if the format cannot encode a stream of events.
    pub fn check_watch(self) -> Result<(), Unacceptable> {
        match self.format {
            Format::Json | Format::Protobuf => Ok(()),
            Format::Yaml => Err(Unacceptable::Stream),
        }
    }
}

/// A version of the aggregated discovery document (`apidiscovery.k8s.io`), which lists all groups and their resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DiscoveryVersion {
    /// `v2`
    V2,
    /// `v2beta1`
    V2Beta1,
}

/// The form of a discovery document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiscoveryForm {
    /// Format in which the document is encoded.
    pub format: Format,
    /// Whether JSON is indented for people.
    pub pretty: bool,
    /// Version of the aggregated document; `None` for the discovery document of the path alone.
    pub aggregated: Option<DiscoveryVersion>,
}

impl DiscoveryForm {
    /// Returns the `Content-Type` of the document.
    #[must_use]
    pub(crate) fn content_type(self) -> &'static str {
        match (self.format, self.aggregated) {
            (Format::Json, Some(DiscoveryVersion::V2)) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (Format::Json, Some(DiscoveryVersion::V2Beta1)) => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (Format::Yaml, Some(DiscoveryVersion::V2)) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (Format::Yaml, Some(DiscoveryVersion::V2Beta1)) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (Format::Protobuf, Some(DiscoveryVersion::V2)) => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (Format::Protobuf, Some(DiscoveryVersion::V2Beta1)) => {
                "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (format, None) => format.media_type(),
        }
    }
}

/// `Content-Type` of plain text.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// `Content-Type` of metrics in the text format of Prometheus.
pub(crate) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a client wants indented JSON. `pretty` is the query parameter of that name. Without this parameter, tools
/// for people get indented JSON.
#[must_use]
pub(crate) fn wants_pretty(pretty: Option<&str>, user_agent: Option<&[u8]>) -> bool {
    match pretty {
        None | Some("") => {
            let user_agent = user_agent.unwrap_or_default();
            [&b"curl"[..], b"Wget", b"Mozilla/5.0"].into_iter().any(|prefix| user_agent.starts_with(prefix))
        }
        // These are the values that Go's `strconv.ParseBool` reads as true.
        Some(text) => matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    }
}

/// Returns the format of a request body. Without a `Content-Type`, the format is JSON. Returns `None` for an
/// unsupported media type.
#[must_use]
pub(crate) fn body_format(content_type: Option<&[u8]>) -> Option<Format> {
    match content_type {
        None | Some(b"" | b"application/json") => Some(Format::Json),
        Some(b"application/vnd.kubernetes.protobuf") => Some(Format::Protobuf),
        Some(text) => {
            let (media_type, parameters) = match text.iter().position(|byte| *byte == b';') {
                Some(at) => text.split_at_checked(at)?,
                None => (text, &[][..]),
            };
            let format = Format::from_media_type(&media_type.trim_ascii().to_ascii_lowercase())?;
            accept::are_parameters(parameters).then_some(format)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(format: Format) -> Representation {
        Representation { format, ..Representation::JSON }
    }

    #[test]
    fn some_transformations_suit_only_lists_or_only_objects() {
        let of = |transform| Representation { transform, ..Representation::JSON };
        let (one, many) = (of(Transform::Partial(MetaVersion::V1)), of(Transform::PartialList(MetaVersion::V1)));
        assert_eq!((one.check_object(), one.check_list()), (Ok(()), Err(Unacceptable::List)));
        assert_eq!((many.check_object(), many.check_list()), (Err(Unacceptable::NotAList), Ok(())));
        let table = of(Transform::Table(MetaVersion::V1));
        assert_eq!((table.check_object(), table.check_list()), (Ok(()), Ok(())));
        assert_eq!(plain(Format::Yaml).check_watch(), Err(Unacceptable::Stream));
        assert_eq!(plain(Format::Protobuf).check_watch(), Ok(()));
    }

    #[test]
    fn browsers_and_curl_get_indented_json() {
        assert!(wants_pretty(Some("true"), None));
        assert!(wants_pretty(None, Some(b"curl/8.5.0")));
        assert!(wants_pretty(Some(""), Some(b"Mozilla/5.0 (X11)")));
        assert!(!wants_pretty(Some("false"), Some(b"curl/8.5.0")));
        assert!(!wants_pretty(Some("nonsense"), Some(b"Wget/1")));
        assert!(!wants_pretty(None, Some(b"kubectl/v1.34.4")));
        assert!(plain(Format::Json).pretty_if(true).pretty);
        assert!(!plain(Format::Protobuf).pretty_if(true).pretty);
    }

    #[test]
    fn bodies_are_read_by_their_type() {
        for (content_type, format) in [
            ("", Some(Format::Json)),
            ("application/json", Some(Format::Json)),
            ("Application/JSON ; charset=utf-8", Some(Format::Json)),
            ("application/json;", Some(Format::Json)),
            ("application/json; charset=\"utf-8\"; x=y", Some(Format::Json)),
            ("application/json; charset", None),
            ("application/json; a=1; A=2", None),
            ("application/json; a=1; A=\"1\"", Some(Format::Json)),
            ("application/yaml; charset=utf-8", Some(Format::Yaml)),
            ("application/vnd.kubernetes.protobuf", Some(Format::Protobuf)),
            ("application/vnd.kubernetes.protobuf; x=y", Some(Format::Protobuf)),
            ("text/plain", None),
            ("application/*", None),
            ("application/apply-patch+yaml", None),
        ] {
            assert_eq!(body_format(Some(content_type.as_bytes())), format, "{content_type}");
        }
        assert_eq!(body_format(None), Some(Format::Json));
    }

    #[test]
    fn random_header_values_do_not_panic() {
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..20_000 {
            let noise: Vec<u8> = (0..random.usize(..60))
                .map(|_| *random.choice(b"*/,;=\" \\.q01aapplication/json\xff").expect("some"))
                .collect();
            let _ = body_format(Some(&noise));
            let _ = negotiate(Some(&noise), true);
            let _ = negotiate_status(Some(&noise));
        }
    }
}
