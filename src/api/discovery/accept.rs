//! Which form of a discovery document `Accept` asks for (apiserver `endpoints/discovery/aggregated`).

use crate::api_error::ApiError;
use crate::http::ContentType;
use crate::media_type::Unacceptable;

/// The form of `/api` and `/apis` that a client likes best: aggregated if it says so, else the list of groups alone.
///
/// # Errors
/// 406 if it takes none.
pub(super) fn preferred(accept: Option<&[u8]>) -> Result<ContentType, ApiError> {
    let accept = accept.unwrap_or_default().trim_ascii();
    if accept.is_empty() {
        return Ok(ContentType::Json);
    }
    let accept = String::from_utf8_lossy(accept);
    let mut best: Option<(f32, ContentType)> = None;
    for (quality, form) in accept.split(',').filter_map(range) {
        // Of equals the first counts.
        if best.is_none_or(|(best_quality, _)| quality > best_quality) {
            best = Some((quality, form));
        }
    }
    best.map(|(_, form)| form).ok_or(ApiError::NotAcceptable(Unacceptable::Route { streaming: false }))
}

/// One media range: how much it is liked, and which form it takes; `None` if that is not served.
fn range(range: &str) -> Option<(f32, ContentType)> {
    let mut parts = range.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut group, mut version, mut kind, mut quality) = ("", "", "", 1.0);
    for parameter in parts {
        match parameter.split_once('=').unwrap_or((parameter, "")) {
            ("as", value) => kind = value,
            ("g", value) => group = value,
            ("q", value) => quality = value.parse().unwrap_or(1.0),
            ("v", value) => version = value,
            _ => {}
        }
    }
    match (group, version, kind) {
        (_, _, "") => Some((quality, ContentType::Json)),
        ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => Some((quality, ContentType::DiscoveryV2)),
        ("apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList") => Some((quality, ContentType::DiscoveryV2beta1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_served_is_taken() {
        const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        let later = V2.replace("v=v2", "v=v3");
        for (accept, form) in [
            (String::new(), ContentType::Json),
            ("application/json".into(), ContentType::Json),
            ("text/html, */*;q=0.8".into(), ContentType::Json),
            (V2.into(), ContentType::DiscoveryV2),
            (V2BETA1.into(), ContentType::DiscoveryV2beta1),
            // kube-apiserver's aggregator, then client-go.
            (format!("{V2},{V2BETA1}"), ContentType::DiscoveryV2),
            (format!("{V2},{V2BETA1},application/json"), ContentType::DiscoveryV2),
            (format!("{later},{V2BETA1}"), ContentType::DiscoveryV2beta1),
            (format!("{V2BETA1};q=0.5, {V2};q=0.9"), ContentType::DiscoveryV2),
            (format!("{later},application/json"), ContentType::Json),
            ("application/vnd.kubernetes.protobuf,application/json".into(), ContentType::Json),
        ] {
            assert_eq!(preferred(Some(accept.as_bytes())), Ok(form), "{accept}");
        }
        for accept in ["application/vnd.kubernetes.protobuf", "text/html", later.as_str(), "application/json;as=Table"]
        {
            let refused = Err(ApiError::NotAcceptable(Unacceptable::Route { streaming: false }));
            assert_eq!(preferred(Some(accept.as_bytes())), refused, "{accept}");
        }
    }
}
