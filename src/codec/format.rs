//! Formats of request and response bodies.

/// A format in which objects are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `application/json`
    #[default]
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl Format {
    /// All formats.
    pub(crate) const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    /// Returns the media type, without parameters.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Returns the format with this media type; `None` for any other text. The media type must have no parameters.
    pub(crate) fn from_media_type(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.media_type().as_bytes() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_error::Unacceptable;

    #[test]
    fn refusals_name_each_format() {
        let all = Format::ALL.map(Format::media_type).join(", ");
        assert_eq!(Unacceptable::Transform.to_string(), format!("only the following media types are accepted: {all}"));
    }
}
