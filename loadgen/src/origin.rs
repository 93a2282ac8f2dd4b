//! What all requests of a run to one server have in common: the version of HTTP, the media type, the server's name.

/// The version of HTTP that a run speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// HTTP/1.1: responses in the order of the requests.
    Http1,
    /// HTTP/2: each request is a stream.
    Http2,
}

/// The media type of all bodies, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaType {
    /// `application/json`.
    Json,
    /// Kubernetes' protobuf, as kubelets and controllers speak it.
    Protobuf,
}

/// What all requests of a run to one server have in common.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The HTTP version.
    pub(crate) version: Version,
    /// The media type of bodies.
    pub(crate) media_type: MediaType,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Value of `Host` or `:authority`: host and port as in the URL.
    pub(crate) authority: String,
    /// In HTTP/1.1: the end of the request line, from the space after the target on, and the header fields that all
    /// requests have.
    pub(crate) fields: String,
}

impl Version {
    /// Returns the protocol's name in ALPN.
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }

    /// Returns the name of this version in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

impl MediaType {
    /// Returns the media type's name, for `Accept` and `Content-Type`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

impl Origin {
    /// Creates the origin for a server with this authority.
    pub(crate) fn new(version: Version, secure: bool, authority: &str, media_type: MediaType) -> Self {
        let accept = media_type.name();
        let fields = format!(" HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {USER_AGENT}\r\nAccept: {accept}\r\n");
        let scheme = if secure { "https" } else { "http" };
        Self { version, media_type, scheme, authority: authority.to_owned(), fields }
    }
}

/// Value of `User-Agent`.
pub(crate) const USER_AGENT: &str = concat!("loadgen/", env!("CARGO_PKG_VERSION"));
