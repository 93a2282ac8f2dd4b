//! Chooses the form of a response by the `Accept` field of the request.
//!
//! As in kube-apiserver, the choice has two stages. First, the router (go-restful) requires one of the path's media
//! types or `*/*` in `Accept`, and ignores parameters. Second, the ranges are sorted by preference
//! (`endpoints/handlers/negotiation`). The first range that the server can generate with all its parameters is chosen.
//! Both stages depart from RFC 9110. The router refuses `application/*`. In the second stage, a quality of 0 does not
//! exclude a media type, but is only the lowest quality.

use super::accept::{Range, ranges, trimmed};
use super::parameters::Parameters;
use super::{DiscoveryForm, Representation, Transform};
use crate::api_error::Unacceptable;
use crate::codec::Format;

/// Negotiates the form of a response. `streaming` is true if the path allows a watch, which changes only the message of
/// the error.
///
/// # Errors
/// 406 if the server can generate no form that the client accepts.
pub(crate) fn negotiate(accept: Option<&[u8]>, streaming: bool) -> Result<Representation, Unacceptable> {
    if let Some(common) = common(accept) {
        return Ok(common);
    }
    let accept = accept.unwrap_or_default();
    if !is_routed(accept, &Format::ALL) {
        return Err(Unacceptable::Route { streaming });
    }
    let transform = |parameters: &Parameters<'_>, format| parameters.transform(format);
    ranges(accept)
        .iter()
        .find_map(|range| select(range, transform))
        .map(Representation::from)
        .ok_or(Unacceptable::Transform)
}

/// Negotiates the form of an error response. If the client accepts no form without a transformation, returns
/// [`Representation::FALLBACK`].
#[must_use]
pub(crate) fn negotiate_status(accept: Option<&[u8]>) -> Representation {
    match common(accept) {
        Some(common) => common.for_status(),
        None => {
            let found = ranges(accept.unwrap_or_default())
                .iter()
                .find_map(|range| select(range, |parameters, _| parameters.for_status()));
            found.map_or(Representation::FALLBACK, Representation::from)
        }
    }
}

/// Negotiates the form of a discovery document. `may_aggregate` is true if the path also has an aggregated document.
///
/// # Errors
/// 406 if the server can generate no form that the client accepts.
pub(crate) fn negotiate_discovery(accept: Option<&[u8]>, may_aggregate: bool) -> Result<DiscoveryForm, Unacceptable> {
    let accept = accept.unwrap_or_default().trim_ascii();
    if accept.is_empty() {
        return Ok(DiscoveryForm::default());
    }
    let aggregated = |parameters: &Parameters<'_>, _| match parameters.for_status() {
        Some(_) => Some(None),
        None => parameters.aggregated().filter(|_| may_aggregate).map(Some),
    };
    let found = ranges(accept).iter().find_map(|range| select(range, aggregated));
    let Some(Selected { format, pretty, transform: aggregated }) = found else { return Err(Unacceptable::Transform) };
    Ok(DiscoveryForm { format, pretty, aggregated })
}

/// Negotiates like [`negotiate_discovery`], for a path that has its own route in kube-apiserver's router. So the stage
/// of the router comes first, which refuses `application/*`, for example.
///
/// # Errors
/// 406 if the server can generate no form that the client accepts.
pub(crate) fn negotiate_routed_discovery(
    accept: Option<&[u8]>,
    may_aggregate: bool,
) -> Result<DiscoveryForm, Unacceptable> {
    let text = accept.unwrap_or_default();
    if !text.trim_ascii().is_empty() && !is_routed(text, &Format::ALL) {
        return Err(Unacceptable::Route { streaming: false });
    }
    negotiate_discovery(accept, may_aggregate)
}

/// Checks `Accept` as kube-apiserver's router does, for a path that serves only JSON. The second stage of the
/// negotiation does not apply to this path.
///
/// # Errors
/// 406 if the client does not accept JSON.
pub(crate) fn check_json_route(accept: Option<&[u8]>) -> Result<(), Unacceptable> {
    let text = accept.unwrap_or_default();
    let is_accepted = text.trim_ascii().is_empty() || is_routed(text, &[Format::Json]);
    if is_accepted { Ok(()) } else { Err(Unacceptable::JsonRoute) }
}

/// Whether a client accepts JSON without a transformation, on a path that serves no other format. The stage of the
/// router does not apply to this path.
#[must_use]
pub(crate) fn takes_json(accept: Option<&[u8]>) -> bool {
    let accept = accept.unwrap_or_default().trim_ascii();
    let is_json = |range: &Range<'_>| {
        matches(range, Format::Json) && Parameters::of(range).is_some_and(|parameters| parameters.is_plain())
    };
    accept.is_empty() || ranges(accept).iter().any(is_json)
}

/// Returns the form for the `Accept` values that nearly all clients send. The server need not parse these values.
#[inline]
fn common(accept: Option<&[u8]>) -> Option<Representation> {
    match accept {
        None | Some(b"" | b"application/json" | b"*/*" | b"application/json, */*") => Some(Representation::JSON),
        Some(
            b"application/vnd.kubernetes.protobuf"
            | b"application/vnd.kubernetes.protobuf,application/json"
            | b"application/vnd.kubernetes.protobuf, */*",
        ) => Some(Representation::PROTOBUF),
        Some(_) => None,
    }
}

/// Whether kube-apiserver's router accepts a request. `accept` must contain `*/*` or the media type of one of
/// `formats`, with any parameters.
fn is_routed(accept: &[u8], formats: &[Format]) -> bool {
    accept.split(|byte| *byte == b',').any(|range| {
        let media_type = range.split(|byte| *byte == b';').next().unwrap_or_default();
        let media_type = trimmed(media_type);
        media_type == b"*/*" || formats.iter().any(|format| format.media_type().as_bytes() == media_type)
    })
}

/// The form that a media range chooses.
struct Selected<T> {
    format: Format,
    pretty: bool,
    transform: T,
}

impl From<Selected<Transform>> for Representation {
    fn from(Selected { format, pretty, transform }: Selected<Transform>) -> Self {
        Self { format, pretty, transform }
    }
}

/// Returns the form that a media range chooses. Returns `None` if the server cannot generate that form with the range's
/// parameters. `transform` evaluates the part of the parameters that the caller needs, and returns `None` if the server
/// cannot meet them.
fn select<T>(range: &Range<'_>, transform: impl Fn(&Parameters<'_>, Format) -> Option<T>) -> Option<Selected<T>> {
    Format::ALL.into_iter().filter(|format| matches(range, *format)).find_map(|format| {
        let parameters = Parameters::of(range)?;
        if parameters.is_stream && format == Format::Yaml {
            return None;
        }
        let pretty = parameters.pretty && format == Format::Json;
        Some(Selected { format, pretty, transform: transform(&parameters, format)? })
    })
}

/// Whether a media range includes the media type of a format.
fn matches(range: &Range<'_>, format: Format) -> bool {
    let Some((main_type, subtype)) = format.media_type().split_once('/') else { return false };
    match (range.main_type, range.subtype) {
        (b"*", b"*") => true,
        (found, b"*") => found == main_type.as_bytes(),
        found => found == (main_type.as_bytes(), subtype.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media_type::DiscoveryVersion;
    use crate::resource::MetaVersion;

    fn accepted(accept: &str) -> Result<Representation, Unacceptable> {
        negotiate(Some(accept.as_bytes()), false)
    }

    fn plain(format: Format) -> Representation {
        Representation { format, ..Representation::JSON }
    }

    #[test]
    fn formats_are_found_by_preference() {
        assert_eq!(negotiate(None, false), Ok(Representation::JSON));
        for (accept, format) in [
            ("", Format::Json),
            ("*/*", Format::Json),
            ("application/json", Format::Json),
            ("application/json;charset=utf-8", Format::Json),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Format::Json),
            ("application/json;q=0.1,application/nonsense", Format::Json),
            ("application/yaml", Format::Yaml),
            ("application/json;q=0.5,application/yaml", Format::Yaml),
            ("application/json;q=0.5, application/yaml;q=0.4", Format::Json),
            ("application/json;stream=watch", Format::Json),
            ("application/vnd.kubernetes.protobuf", Format::Protobuf),
            ("application/vnd.kubernetes.protobuf,application/json", Format::Protobuf),
            ("application/vnd.kubernetes.protobuf;stream=watch", Format::Protobuf),
            // A specific media type is preferred to a wildcard.
            ("*/*,application/yaml", Format::Yaml),
            ("*/*;q=0.1,application/yaml;q=0", Format::Yaml),
            ("application/json;sv=v2,application/yaml;sv=v1", Format::Yaml),
            // The router accepts this value because of `application/yaml`. The second stage prefers YAML in spite of
            // its quality 0, since its range is more specific than `application/*`.
            ("application/*,application/yaml;q=0", Format::Yaml),
        ] {
            assert_eq!(accepted(accept), Ok(plain(format)), "{accept}");
        }
    }

    #[test]
    fn an_unsupported_accept_value_is_unacceptable() {
        for accept in
            ["text/html", "application/*", "*", "application/xml", "application/cbor", "APPLICATION/JSON", ",", " "]
        {
            assert_eq!(accepted(accept), Err(Unacceptable::Route { streaming: false }), "{accept}");
        }
        for accept in [
            "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
            "application/json;as=Table",
            "application/json;as=Table;v=v2;g=meta.k8s.io",
            "application/json;g=meta.k8s.io",
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            "application/yaml;stream=watch",
            "application/json;stream=other",
            "application/json;sv=v2",
        ] {
            assert_eq!(accepted(accept), Err(Unacceptable::Transform), "{accept}");
        }
    }

    #[test]
    fn transformations_are_found_with_their_versions() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let informer = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let falls_through = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, format, transform) in [
            (kubectl, Format::Json, Transform::Table(MetaVersion::V1)),
            (informer, Format::Protobuf, Transform::Partial(MetaVersion::V1)),
            (falls_through, Format::Json, Transform::Table(MetaVersion::V1)),
            (
                "application/yaml ; as = Table ; g=meta.k8s.io ; v=v1beta1",
                Format::Yaml,
                Transform::Table(MetaVersion::V1Beta1),
            ),
            (
                "*/*;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Format::Json,
                Transform::PartialList(MetaVersion::V1),
            ),
            ("application/json;as=Nonsense;v=v1;g=meta.k8s.io,application/json", Format::Json, Transform::None),
        ] {
            assert_eq!(accepted(accept), Ok(Representation { format, pretty: false, transform }), "{accept}");
        }
        assert_eq!(negotiate_status(Some(kubectl.as_bytes())), Representation::JSON);
        assert_eq!(negotiate_status(Some(informer.as_bytes())), Representation::JSON);
        assert_eq!(negotiate_status(Some(falls_through.as_bytes())), Representation::FALLBACK);
        assert_eq!(negotiate_status(Some(b"text/html")), Representation::FALLBACK);
        assert_eq!(negotiate_status(Some(b"application/json;sv=v1")), Representation::FALLBACK);
        assert_eq!(negotiate_status(Some(b"application/yaml")), plain(Format::Yaml));
    }

    #[test]
    fn only_json_is_indented() {
        assert!(accepted("application/json;pretty=1").expect("JSON").pretty);
        assert!(!accepted("application/yaml;pretty=1").expect("YAML").pretty);
    }

    #[test]
    fn thousands_of_accept_ranges_are_negotiated() {
        let many = b"*/*;q=0.1,".repeat(2_000);
        assert_eq!(negotiate(Some(&many), true), Ok(Representation::JSON));
    }

    #[test]
    fn discovery_takes_the_first_form_that_is_served() {
        const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        let later = V2.replace("v=v2", "v=v3");
        let plain = |format| DiscoveryForm { format, ..DiscoveryForm::default() };
        let of = |format, version| DiscoveryForm { aggregated: Some(version), ..plain(format) };
        for (accept, form) in [
            (String::new(), plain(Format::Json)),
            ("application/json".into(), plain(Format::Json)),
            ("application/json;pretty=1".into(), DiscoveryForm { pretty: true, ..plain(Format::Json) }),
            ("text/html, */*;q=0.8".into(), plain(Format::Json)),
            (V2.into(), of(Format::Json, DiscoveryVersion::V2)),
            (V2BETA1.into(), of(Format::Json, DiscoveryVersion::V2Beta1)),
            // kube-apiserver's aggregator and client-go send these values.
            (format!("{V2},{V2BETA1}"), of(Format::Json, DiscoveryVersion::V2)),
            (format!("{V2},{V2BETA1},application/json"), of(Format::Json, DiscoveryVersion::V2)),
            (format!("{later},{V2BETA1}"), of(Format::Json, DiscoveryVersion::V2Beta1)),
            (format!("{V2BETA1};q=0.5, {V2};q=0.9"), of(Format::Json, DiscoveryVersion::V2)),
            (format!("{later},application/json"), plain(Format::Json)),
            (V2.replace("json", "vnd.kubernetes.protobuf"), of(Format::Protobuf, DiscoveryVersion::V2)),
            ("application/vnd.kubernetes.protobuf,application/json".into(), plain(Format::Protobuf)),
            ("application/yaml".into(), plain(Format::Yaml)),
            ("application/json;as=Table;g=meta.k8s.io;v=v1,application/yaml".into(), plain(Format::Yaml)),
        ] {
            assert_eq!(negotiate_discovery(Some(accept.as_bytes()), true), Ok(form), "{accept}");
            let alone = if form.aggregated.is_some() && !accept.ends_with(",application/json") {
                Err(Unacceptable::Transform)
            } else {
                Ok(DiscoveryForm { aggregated: None, ..form })
            };
            assert_eq!(negotiate_discovery(Some(accept.as_bytes()), false), alone, "{accept}, of one group");
        }
        for accept in ["text/html", later.as_str(), "application/json;as=Table", "application/json;sv=v1"] {
            let refused = Err(Unacceptable::Transform);
            assert_eq!(negotiate_discovery(Some(accept.as_bytes()), true), refused, "{accept}");
        }
        let routed = |accept: &str| negotiate_routed_discovery(Some(accept.as_bytes()), false);
        assert_eq!(routed("text/html"), Err(Unacceptable::Route { streaming: false }));
        assert_eq!(routed(&later), Err(Unacceptable::Transform));
        assert_eq!(routed(""), Ok(plain(Format::Json)));
    }

    #[test]
    fn json_may_be_one_of_many() {
        for accept in ["", "*/*", "application/json", "application/yaml, application/json;q=0.5", "application/*"] {
            assert!(takes_json(Some(accept.as_bytes())), "{accept}");
        }
        for accept in ["application/yaml", "text/html", "application/json;as=Table;g=meta.k8s.io;v=v1"] {
            assert!(!takes_json(Some(accept.as_bytes())), "{accept}");
        }
    }
}
