//! The form of the answer to a request, and the format of its body.

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
    /// The form that the client wants. `streaming` is for requests that may open a watch.
    ///
    /// # Errors
    /// 406 if there is none.
    pub(super) fn form(&self, streaming: bool) -> Result<Form, ApiError> {
        let representation = negotiate(self.head.accept, streaming).map_err(ApiError::NotAcceptable)?;
        let include = match representation.transform {
            Transform::Table(_) => self.include_object().unwrap_or_default(),
            Transform::None | Transform::Partial(_) | Transform::PartialList(_) => IncludeObject::default(),
        };
        let representation = representation.pretty_if(is_pretty(self.head, &self.query));
        Ok(Form { representation, include, version: self.version })
    }

    /// Checks the options of a Table. To be called where there is an answer: what the request was to change has been
    /// changed by then.
    ///
    /// # Errors
    /// 400 for a Table whose rows are to carry something unknown.
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

/// The form of an error.
pub(super) fn form_of_error(head: &RequestHead<'_>, query: &Query<'_>) -> Form {
    let representation = negotiate_status(head.accept).pretty_if(is_pretty(head, query));
    Form { representation, ..Form::default() }
}

/// The format of a body.
///
/// # Errors
/// 415.
pub(super) fn format_of_body(head: &RequestHead<'_>) -> Result<Format, ApiError> {
    body_format(head.content_type).ok_or(ApiError::UnsupportedMediaType)
}

/// Whether the client wants indented JSON.
pub(super) fn is_pretty(head: &RequestHead<'_>, query: &Query<'_>) -> bool {
    // Few requests have a query, and few clients are people.
    let pretty = if query.is_empty() { None } else { query.value("pretty") };
    wants_pretty(pretty.as_deref(), head.user_agent)
}

/// What a body in YAML says.
///
/// # Errors
/// 413, and what `malformed` makes of the words about a body that is no YAML.
pub(super) fn read_yaml(body: &[u8], malformed: impl FnOnce(String) -> ApiError) -> Result<Document, ApiError> {
    yaml::decode(body).map_err(|unread| match unread {
        DecodeError::Malformed(words) => malformed(words),
        DecodeError::TooLong => ApiError::RequestEntityTooLarge { bytes_max: YAML_BYTES_MAX },
        DecodeError::TooManyNodes => ApiError::TooManyValues { count_max: YAML_NODES_MAX },
    })
}

/// A body in YAML, as the JSON that means the same, and what stands twice in it.
///
/// # Errors
/// Those of [`read_yaml`].
pub(super) fn json_of_yaml(
    body: &[u8],
    malformed: impl FnOnce(String) -> ApiError,
) -> Result<(Vec<u8>, Vec<String>), ApiError> {
    let Document { value, duplicates } = read_yaml(body, malformed)?;
    let json = serde_json::to_vec(&value).map_err(|error| ApiError::Unclassified { message: error.to_string() })?;
    Ok((json, duplicates))
}
