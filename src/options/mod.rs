//! Options in the query of a request, converted and validated as in kube-apiserver.
//!
//! [`Query`] decodes the query. Each `*Options` type contains the parameters of one verb, or of several similar verbs.
//! First, each value is converted. If a conversion fails, the response is 400 with Go's message. Then, all values are
//! validated together. If the validation fails, the response is 422 with one cause for each complaint. Parameters that
//! a verb does not have are ignored.

mod delete;
mod get;
mod list;
mod query;
mod timeout;
mod write;

pub use delete::{merge_delete_collection_options, merge_delete_options};
pub use get::GetOptions;
pub use list::{ListOptions, ResourceVersionMatch};
pub use query::Query;
pub use timeout::check_timeout;
pub use write::{FieldValidation, WriteOptions};

use crate::api_error::{ApiError, FieldError, InvalidSubject};
use crate::go::json::json_strings;
use crate::go::number::{parse_int, parse_uint};
use std::borrow::Cow;

/// Parses the `resourceVersion` parameter of a list. An empty text means 0.
///
/// # Errors
/// 400 if the text is not a number.
pub fn parse_list_resource_version(text: &str) -> Result<u64, ApiError> {
    resource_version(text).map_err(|why| ApiError::BadRequest { message: format!("invalid resource version: {why}") })
}

/// Parses the `resourceVersion` parameter of a watch or a get. An empty text means 0.
///
/// # Errors
/// 500 if the text is not a number. For a watch or a get, kube-apiserver does not convert this error to 400.
pub fn parse_watch_resource_version(text: &str) -> Result<u64, ApiError> {
    resource_version(text).map_err(|message| ApiError::Unclassified { message })
}

/// Parses the `metadata.resourceVersion` of an object in a body. An empty text means 0, a version that no object has.
///
/// # Errors
/// 500 if the text is not a number.
pub fn parse_object_resource_version(text: &str) -> Result<u64, ApiError> {
    if text.is_empty() {
        return Ok(0);
    }
    parse_uint(text).map_err(|why| ApiError::Unclassified { message: why.to_string() })
}

fn resource_version(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    parse_uint(text).map_err(|why| {
        let error = FieldError::invalid("resourceVersion", text, why.to_string());
        format!("{}: {}", error.field, error.body())
    })
}

/// Converts the value of a boolean parameter. `0` and `false` are false. Any other value is true, even an empty one.
fn is_true(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

/// Whether the query of a list asks for a watch by the parameter `watch`.
#[must_use]
pub fn asks_to_watch(query: &Query<'_>) -> bool {
    query.value("watch").is_some_and(|value| is_true(&value))
}

/// Converts the value of an integer parameter.
fn integer(value: &str) -> Result<i64, ApiError> {
    parse_int(value).map_err(|why| ApiError::BadRequest { message: why.to_string() })
}

/// Stores the value of a parameter in `kept`, unless `kept` has the value of an earlier occurrence.
fn keep_first<T>(kept: &mut Option<T>, value: T) {
    kept.get_or_insert(value);
}

/// Returns the complaint about a `dryRun` value other than `All`; `None` if all values are `All`.
fn dry_run_complaint<S: AsRef<str>>(dry_run: &[S]) -> Option<FieldError> {
    let is_valid = dry_run.iter().all(|value| value.as_ref() == "All");
    (!is_valid).then(|| FieldError::not_supported_unquoted("dryRun", json_strings(dry_run), &["All"]))
}

/// Returns the error 422 if there are complaints. `kind` is the kind of the options.
fn valid_or(kind: &'static str, causes: Vec<FieldError>) -> Result<(), ApiError> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid { subject: InvalidSubject::Options(kind), name: String::new(), causes })
}

/// Returns the value of a parameter; an empty text if the parameter is absent.
fn text_or_empty<'a>(value: &'a Option<Cow<'_, str>>) -> &'a str {
    value.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_resource_version_is_zero() {
        for text in ["", "0", "00"] {
            assert_eq!(parse_list_resource_version(text), Ok(0));
            assert_eq!(parse_watch_resource_version(text), Ok(0));
            assert_eq!(parse_object_resource_version(text), Ok(0));
        }
        assert_eq!(parse_list_resource_version("1763689287000001"), Ok(1_763_689_287_000_001));
    }

    #[test]
    fn only_a_list_answers_an_invalid_resource_version_with_400() {
        let field = "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
        let message = format!("invalid resource version: {field}");
        assert_eq!(parse_list_resource_version("x"), Err(ApiError::BadRequest { message }));
        assert_eq!(parse_watch_resource_version("x"), Err(ApiError::Unclassified { message: field.to_owned() }));
        let message = "strconv.ParseUint: parsing \"abc\": invalid syntax".to_owned();
        assert_eq!(parse_object_resource_version("abc"), Err(ApiError::Unclassified { message }));
        let message = "invalid resource version: resourceVersion: Invalid value: \"-1\": strconv.ParseUint: parsing \"-1\": invalid syntax".to_owned();
        assert_eq!(parse_list_resource_version("-1"), Err(ApiError::BadRequest { message }));
    }

    #[test]
    fn every_boolean_except_0_and_false_is_true() {
        for value in ["", "true", "1", "yes", "no"] {
            assert!(is_true(value), "{value}");
        }
        for value in ["0", "false", "FALSE"] {
            assert!(!is_true(value), "{value}");
        }
    }
}
