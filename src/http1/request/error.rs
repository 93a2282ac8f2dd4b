//! Errors for requests that are refused before the API sees them.

/// Why a request is refused before the API sees it. The error closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// 400: the message is malformed or its framing is ambiguous.
    Malformed(&'static str),
    /// The first bytes are not an HTTP request line. So the peer does not speak HTTP, and gets no response.
    NotHttp,
    /// 413: the body is too long.
    BodyTooLarge,
    /// 414: the target is longer than [`TARGET_BYTES_MAX`](crate::limits::TARGET_BYTES_MAX).
    TargetTooLong,
    /// 417: an expectation other than `100-continue`.
    ExpectationUnknown,
    /// 431: the head is longer than [`HEAD_BYTES_MAX`](crate::limits::HEAD_BYTES_MAX) or has more lines than
    /// [`HEAD_FIELDS_MAX`](crate::limits::HEAD_FIELDS_MAX).
    HeadTooLarge,
    /// 501: a registered transfer coding that the server does not implement, such as `gzip` in `gzip, chunked`.
    CodingUnknown,
    /// 505: an HTTP version other than 1.0 and 1.1.
    VersionUnknown,
}

impl RequestError {
    /// Returns the status code of the refusal. The server sends none for [`NotHttp`](Self::NotHttp).
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) | Self::NotHttp => 400,
            Self::BodyTooLarge => 413,
            Self::TargetTooLong => 414,
            Self::ExpectationUnknown => 417,
            Self::HeadTooLarge => 431,
            Self::CodingUnknown => 501,
            Self::VersionUnknown => 505,
        }
    }

    /// Returns a short description.
    #[must_use]
    pub fn detail(self) -> &'static str {
        match self {
            Self::Malformed(what) => what,
            Self::NotHttp => "this is not HTTP",
            Self::BodyTooLarge => "the body is too large",
            Self::TargetTooLong => "the request target is too long",
            Self::ExpectationUnknown => "unknown expectation",
            Self::HeadTooLarge => "the request head is too large",
            Self::CodingUnknown => "unknown transfer coding",
            Self::VersionUnknown => "unknown HTTP version",
        }
    }
}
