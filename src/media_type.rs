//! Media types: what a client accepts, and what it sends (RFC 9110 §12.5.1, §8.3), as kube-apiserver negotiates them.
//!
//! Two look at `Accept` there, one after the other, and so here. The router wants one of the types of the path to be
//! named, or `*/*`; parameters do not count (go-restful). Then the ranges are sorted by preference, and the first that
//! can be served with all its parameters is taken (`endpoints/handlers/negotiation`). Neither is quite what the RFC says:
//! `application/*` fails at the router, and a quality of 0 is only the lowest preference.

mod accept;

use crate::api_error::Unacceptable;
use crate::codec::Format;
use crate::codec::partial::MetaVersion;
use accept::{Range, ranges};

/// What is made of an object before it is written (`as=`). A `Status` is never transformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Nothing: the object itself.
    #[default]
    None,
    /// `PartialObjectMetadata`, for one object and for the events of a watch.
    Partial(MetaVersion),
    /// `PartialObjectMetadataList`, for a list.
    PartialList(MetaVersion),
    /// `Table`, for all of them. Never in protobuf.
    Table(MetaVersion),
}

/// The form of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Representation {
    /// How its bytes are written.
    pub format: Format,
    /// Whether JSON is indented for people. Watches never are, and then no line feed ends the body.
    pub pretty: bool,
    /// What is made of the objects in it.
    pub transform: Transform,
}

impl Representation {
    /// JSON as it is: by far the most common.
    pub const JSON: Self = Self { format: Format::Json, pretty: false, transform: Transform::None };

    /// For errors that a client gets who accepts nothing that could be sent.
    pub const FALLBACK: Self = Self { pretty: true, ..Self::JSON };

    const PROTOBUF: Self = Self { format: Format::Protobuf, ..Self::JSON };

    /// `Content-Type` of the response; `watch` if it is a stream of events.
    #[must_use]
    pub fn content_type(self, watch: bool) -> &'static str {
        match (self.format, watch) {
            (Format::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
            (format, _) => format.media_type(),
        }
    }

    /// The same without what is only for objects: the form of a `Status`, also where it answers a successful deletion.
    #[must_use]
    pub fn of_status(self) -> Self {
        Self { transform: Transform::None, ..self }
    }

    /// The same, indented if that is `wanted` and the format knows how.
    #[must_use]
    pub fn pretty_if(self, wanted: bool) -> Self {
        Self { pretty: (self.pretty || wanted) && self.format == Format::Json, ..self }
    }

    /// Checks that the transformation is one of a single object. To be called where the object is at hand: what the
    /// request was to change has been changed by then.
    ///
    /// # Errors
    /// 406.
    pub fn check_object(self) -> Result<(), Unacceptable> {
        match self.transform {
            Transform::PartialList(_) => Err(Unacceptable::NotAList),
            Transform::None | Transform::Partial(_) | Transform::Table(_) => Ok(()),
        }
    }

    /// Checks that the transformation is one of a list.
    ///
    /// # Errors
    /// 406.
    pub fn check_list(self) -> Result<(), Unacceptable> {
        match self.transform {
            Transform::Partial(_) => Err(Unacceptable::List),
            Transform::None | Transform::PartialList(_) | Transform::Table(_) => Ok(()),
        }
    }

    /// Checks that the format can carry a watch.
    ///
    /// # Errors
    /// 406.
    pub fn check_watch(self) -> Result<(), Unacceptable> {
        match self.format {
            Format::Json | Format::Protobuf => Ok(()),
            Format::Yaml => Err(Unacceptable::Stream),
        }
    }
}

/// A version of `apidiscovery.k8s.io`, in which all groups stand in one list with all that is in them.
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
    /// How its bytes are written.
    pub format: Format,
    /// Whether JSON is indented for people.
    pub pretty: bool,
    /// The version of the list of everything; none is the document of the path alone.
    pub aggregated: Option<DiscoveryVersion>,
}

impl DiscoveryForm {
    /// `Content-Type` of the document.
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

/// Of what is for people.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// Of metrics: Prometheus' text format.
pub(crate) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The form of the answer to a request. `streaming` is for paths that may open a watch, and only words the refusal.
///
/// # Errors
/// 406.
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
        .find_map(|range| serve(range, transform))
        .map(Representation::from)
        .ok_or(Unacceptable::Transform)
}

/// The form of an error. One that asks for a transformation without a plain alternative gets the fallback.
#[must_use]
pub(crate) fn negotiate_status(accept: Option<&[u8]>) -> Representation {
    match common(accept) {
        Some(common) => common.of_status(),
        None => {
            let found = ranges(accept.unwrap_or_default())
                .iter()
                .find_map(|range| serve(range, |parameters, _| parameters.for_status()));
            found.map_or(Representation::FALLBACK, Representation::from)
        }
    }
}

/// The form of a discovery document; aggregated only where the path has such.
///
/// # Errors
/// 406.
pub(crate) fn negotiate_discovery(accept: Option<&[u8]>, may_aggregate: bool) -> Result<DiscoveryForm, Unacceptable> {
    let accept = accept.unwrap_or_default().trim_ascii();
    if accept.is_empty() {
        return Ok(DiscoveryForm::default());
    }
    let aggregated = |parameters: &Parameters<'_>, _| match parameters.for_status() {
        Some(_) => Some(None),
        None => parameters.aggregated().filter(|_| may_aggregate).map(Some),
    };
    let found = ranges(accept).iter().find_map(|range| serve(range, aggregated));
    let Some(Served { format, pretty, transform: aggregated }) = found else { return Err(Unacceptable::Transform) };
    Ok(DiscoveryForm { format, pretty, aggregated })
}

/// The same of a path that has a route of its own, and words for those that it does not serve.
///
/// # Errors
/// 406.
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

/// Looks only at what the router of kube-apiserver does, of a path that serves JSON alone.
///
/// # Errors
/// 406.
pub(crate) fn check_json_route(accept: Option<&[u8]>) -> Result<(), Unacceptable> {
    let text = accept.unwrap_or_default();
    let is_accepted = text.trim_ascii().is_empty() || is_routed(text, &[Format::Json]);
    if is_accepted { Ok(()) } else { Err(Unacceptable::JsonRoute) }
}

/// Whether a client takes JSON as it is, of a path that has nothing else.
#[must_use]
pub(crate) fn takes_json(accept: Option<&[u8]>) -> bool {
    let accept = accept.unwrap_or_default().trim_ascii();
    let is_json = |range: &Range<'_>| {
        matches(range, Format::Json) && Parameters::of(range).is_some_and(|parameters| parameters.is_plain())
    };
    accept.is_empty() || ranges(accept).iter().any(is_json)
}

/// What needs no parsing: the values that nearly all clients send.
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

/// Whether the router lets a request pass: one of the formats of the path stands in it, or `*/*`, whatever the parameters.
fn is_routed(accept: &[u8], formats: &[Format]) -> bool {
    accept.split(|byte| *byte == b',').any(|range| {
        let media_type = range.split(|byte| *byte == b';').next().unwrap_or_default();
        let media_type = accept::trimmed(media_type);
        media_type == b"*/*" || formats.iter().any(|format| format.media_type().as_bytes() == media_type)
    })
}

/// What a range leads to.
struct Served<T> {
    format: Format,
    pretty: bool,
    transform: T,
}

impl From<Served<Transform>> for Representation {
    fn from(Served { format, pretty, transform }: Served<Transform>) -> Self {
        Self { format, pretty, transform }
    }
}

/// What a range leads to, if it can be served with its parameters, of which `transform` makes what it must know.
fn serve<T>(range: &Range<'_>, transform: impl Fn(&Parameters<'_>, Format) -> Option<T>) -> Option<Served<T>> {
    Format::ALL.into_iter().filter(|format| matches(range, *format)).find_map(|format| {
        let parameters = Parameters::of(range)?;
        if parameters.is_stream && format == Format::Yaml {
            return None;
        }
        let pretty = parameters.pretty && format == Format::Json;
        Some(Served { format, pretty, transform: transform(&parameters, format)? })
    })
}

/// Whether a range is of a format.
fn matches(range: &Range<'_>, format: Format) -> bool {
    let Some((main_type, subtype)) = format.media_type().split_once('/') else { return false };
    match (range.main_type, range.subtype) {
        (b"*", b"*") => true,
        (found, b"*") => found == main_type.as_bytes(),
        found => found == (main_type.as_bytes(), subtype.as_bytes()),
    }
}

/// Parameters of a range that mean something here. All others are passed over, `charset` among them.
#[derive(Default)]
struct Parameters<'a> {
    kind: Option<&'a [u8]>,
    group: Option<&'a [u8]>,
    version: Option<&'a [u8]>,
    is_stream: bool,
    /// `sv`, a version of the API for options; there is one.
    names_server_version: bool,
    pretty: bool,
}

impl<'a> Parameters<'a> {
    /// Nothing if one of them cannot be served at all. Of one that comes twice the last counts.
    fn of(range: &Range<'a>) -> Option<Self> {
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

    fn is_plain(&self) -> bool {
        self.kind.is_none() && self.group.is_none() && self.version.is_none()
    }

    /// Errors, and what is no object of the group, are negotiated where there are no versions to name.
    fn for_status(&self) -> Option<Transform> {
        (self.is_plain() && !self.names_server_version).then_some(Transform::None)
    }

    fn aggregated(&self) -> Option<DiscoveryVersion> {
        match (self.group?, self.version?, self.kind?) {
            (b"apidiscovery.k8s.io", b"v2", b"APIGroupDiscoveryList") => Some(DiscoveryVersion::V2),
            (b"apidiscovery.k8s.io", b"v2beta1", b"APIGroupDiscoveryList") => Some(DiscoveryVersion::V2Beta1),
            _ => None,
        }
    }

    fn transform(&self, format: Format) -> Option<Transform> {
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

/// Whether a client wants indented JSON: it says so in the query, or it is one that people look at. `pretty` is the
/// parameter of the query.
#[must_use]
pub(crate) fn wants_pretty(pretty: Option<&str>, user_agent: Option<&[u8]>) -> bool {
    match pretty {
        None | Some("") => {
            let user_agent = user_agent.unwrap_or_default();
            [&b"curl"[..], b"Wget", b"Mozilla/5.0"].into_iter().any(|prefix| user_agent.starts_with(prefix))
        }
        // Go's `strconv.ParseBool`.
        Some(text) => matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True"),
    }
}

/// The format of a body; what is not said is JSON. Nothing for a type that is not read: 415.
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
            // A specific type is preferred to a wildcard.
            ("*/*,application/yaml", Format::Yaml),
            ("*/*;q=0.1,application/yaml;q=0", Format::Yaml),
            ("application/json;sv=v2,application/yaml;sv=v1", Format::Yaml),
            // The router is satisfied by one, the other is taken.
            ("application/*,application/yaml;q=0", Format::Yaml),
        ] {
            assert_eq!(accepted(accept), Ok(plain(format)), "{accept}");
        }
    }

    #[test]
    fn what_cannot_be_served_is_406_in_the_words_of_kube_apiserver() {
        for accept in ["text/html", "application/*", "*", "application/xml", "APPLICATION/JSON", ",", " "] {
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
    fn people_get_indented_json() {
        assert!(wants_pretty(Some("true"), None));
        assert!(wants_pretty(None, Some(b"curl/8.5.0")));
        assert!(wants_pretty(Some(""), Some(b"Mozilla/5.0 (X11)")));
        assert!(!wants_pretty(Some("false"), Some(b"curl/8.5.0")));
        assert!(!wants_pretty(Some("nonsense"), Some(b"Wget/1")));
        assert!(!wants_pretty(None, Some(b"kubectl/v1.34.4")));
        assert!(accepted("application/json;pretty=1").expect("JSON").pretty);
        assert!(!accepted("application/yaml;pretty=1").expect("YAML").pretty);
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
    fn noise_is_survived() {
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..20_000 {
            let noise: Vec<u8> = (0..random.usize(..60))
                .map(|_| *random.choice(b"*/,;=\" \\.q01aapplication/json\xff").expect("some"))
                .collect();
            let _ = negotiate(Some(&noise), true);
            let _ = negotiate_status(Some(&noise));
            let _ = body_format(Some(&noise));
        }
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
            // kube-apiserver's aggregator, then client-go.
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
