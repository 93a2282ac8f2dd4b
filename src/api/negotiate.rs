//! `Accept` and `Content-Type` (RFC 9110 §12.5.1, §8.3), as apiserver `endpoints/handlers/negotiation` reads them.

use crate::api_error::ApiError;
use crate::http::RequestHead;

/// Checks that the client takes JSON, the one representation of today. `streaming` is for requests that may open a
/// watch, and only words the refusal.
///
/// # Errors
/// 406.
pub(super) fn check_accept(request: &RequestHead<'_>, streaming: bool) -> Result<(), ApiError> {
    match request.accept {
        // By far the most common ones need no parsing.
        None | Some(b"" | b"application/json" | b"*/*") => Ok(()),
        Some(accept) => check_ranges(&String::from_utf8_lossy(accept), streaming),
    }
}

fn check_ranges(accept: &str, streaming: bool) -> Result<(), ApiError> {
    let mut only_transform_missing = false;
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        if !matches!(media_type, "application/json" | "*/*") {
            continue;
        }
        // Table and PartialObjectMetadata: clients that ask for them name plain JSON behind them.
        let is_transformed = parts.any(|parameter| parameter.split_once('=').is_some_and(|(name, _)| name == "as"));
        if !is_transformed {
            return Ok(());
        }
        only_transform_missing = true;
    }
    Err(if only_transform_missing { ApiError::NotAcceptableTransform } else { ApiError::NotAcceptable { streaming } })
}

/// Checks that a body is JSON. None said is JSON.
///
/// # Errors
/// 415.
pub(super) fn check_content_type(request: &RequestHead<'_>) -> Result<(), ApiError> {
    let Some(content_type) = request.content_type else { return Ok(()) };
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if media_type.is_empty() || media_type.eq_ignore_ascii_case(b"application/json") {
        Ok(())
    } else {
        Err(ApiError::UnsupportedMediaType)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_found_among_what_is_accepted() {
        for accept in [
            "application/json",
            "*/*",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "application/json;q=0.1,application/nonsense",
            "application/vnd.kubernetes.protobuf,application/json",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        ] {
            assert_eq!(check_ranges(accept, false), Ok(()), "{accept}");
        }
        for accept in ["text/html", "application/*", "application/vnd.kubernetes.protobuf", ""] {
            assert_eq!(check_ranges(accept, true), Err(ApiError::NotAcceptable { streaming: true }), "{accept}");
        }
        let table_only = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(check_ranges(table_only, false), Err(ApiError::NotAcceptableTransform));
    }
}
