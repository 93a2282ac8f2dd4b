//! Negotiates the form of a response, and determines the format of a request body.

use super::Call;
use crate::api_error::ApiError;
use crate::codec::Format;
use crate::codec::table::IncludeObject;
use crate::codec::yaml::{self, DecodeError, Document};
use crate::form::Form;
use crate::http::RequestHead;
use crate::limits::{YAML_BYTES_MAX, YAML_NODES_MAX};
use crate::media_type::{Transform, body_format, negotiate, negotiate_status, wants_pretty};
use crate::options::Query;

impl Call<'_> {
    /// Negotiates the form of the response. `streaming` is true if the path allows a watch, which changes only the
    /// message of the error.
    ///
    /// # Errors
    /// 406 if the server can generate no form that the client accepts.
    pub(super) fn form(&self, streaming: bool) -> Result<Form, ApiError> {
        let representation = negotiate(self.head.accept, streaming).map_err(ApiError::NotAcceptable)?;
        let include = match representation.transform {
            Transform::Table(_) => self.include_object().unwrap_or_default(),
            Transform::None | Transform::Partial(_) | Transform::PartialList(_) => IncludeObject::default(),
        };
        let representation = representation.pretty_if(is_pretty(self.head, &self.query));
        Ok(Form { representation, include, version: self.version })
    }

    /// Checks the options of a Table in the query. Call this function where the response is generated, since
    /// kube-apiserver checks these options only after it has written the change.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`.
    pub(super) fn check_options_of(&self, form: Form) -> Result<(), ApiError> {
        match form.representation.transform {
            Transform::Table(_) => self.include_object().map(drop),
            Transform::None | Transform::Partial(_) | Transform::PartialList(_) => Ok(()),
        }
    }

    fn include_object(&self) -> Result<IncludeObject, ApiError> {
        IncludeObject::parse(&self.query.value("includeObject").unwrap_or_default())
    }
}

/// Returns the form of an error response.
pub(super) fn form_of_error(head: &RequestHead<'_>, query: &Query<'_>) -> Form {
    let representation = negotiate_status(head.accept).pretty_if(is_pretty(head, query));
    Form { representation, ..Form::default() }
}

/// Returns the format of a request body.
///
/// # Errors
/// 415 for an unsupported `Content-Type`.
pub(super) fn format_of_body(head: &RequestHead<'_>) -> Result<Format, ApiError> {
    body_format(head.content_type).ok_or(ApiError::UnsupportedMediaType)
}

/// Whether the client wants indented JSON.
pub(super) fn is_pretty(head: &RequestHead<'_>, query: &Query<'_>) -> bool {
    // The query is empty in most requests. The test for an empty query is faster than the search.
    let pretty = if query.is_empty() { None } else { query.value("pretty") };
    wants_pretty(pretty.as_deref(), head.user_agent)
}

/// Decodes a YAML body.
///
/// # Errors
/// 413 if the body is too long or contains too many values. The error that `malformed` returns if the body is not YAML.
pub(super) fn read_yaml(body: &[u8], malformed: impl FnOnce(String) -> ApiError) -> Result<Document, ApiError> {
    yaml::decode(body).map_err(|unread| match unread {
        DecodeError::Malformed(words) => malformed(words),
        DecodeError::TooLong => ApiError::RequestEntityTooLarge { bytes_max: YAML_BYTES_MAX },
        DecodeError::TooManyNodes => ApiError::TooManyValues { count_max: YAML_NODES_MAX },
    })
}

/// Converts a YAML body to JSON. Also returns the fields that the body repeats.
///
/// # Errors
/// The errors of [`read_yaml`].
pub(super) fn json_of_yaml(
    body: &[u8],
    malformed: impl FnOnce(String) -> ApiError,
) -> Result<(Vec<u8>, Vec<String>), ApiError> {
    let Document { value, duplicates } = read_yaml(body, malformed)?;
    let json = serde_json::to_vec(&value).map_err(|error| ApiError::Unclassified { message: error.to_string() })?;
    Ok((json, duplicates))
}
