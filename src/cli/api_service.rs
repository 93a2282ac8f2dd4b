//! The manifest that the flag `--apiservice` names.

use crate::codec::yaml;
use k8s_openapi::ByteString;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde::Deserialize as _;
use std::fs;
use std::path::Path;

/// Name of the APIService for Leases.
pub(crate) const API_SERVICE: &str = "v1.coordination.k8s.io";

/// Reads the APIService for Leases from a file. The file may contain other objects too.
///
/// # Errors
/// One line about the file: it cannot be read, or contains no usable APIService for Leases.
pub(crate) fn read_api_service(file: &Path) -> Result<APIService, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string());
    text.and_then(|text| parse(&text)).map_err(|why| format!("--apiservice {}: {why}", file.display()))
}

fn parse(text: &str) -> Result<APIService, String> {
    let found = documents(text).into_iter().find_map(|document| {
        let value = yaml::decode(document.as_bytes()).ok()?.value;
        (value["kind"] == "APIService" && value["metadata"]["name"] == API_SERVICE).then_some(value)
    });
    let found = found.ok_or_else(|| format!("no APIService {API_SERVICE} in it"))?;
    let bundle = &found["spec"]["caBundle"];
    if !bundle.is_null()
        && let Err(error) = ByteString::deserialize(bundle)
    {
        return Err(format!(
            "the caBundle is not Base64 ({error}); write the file again with manifests/make-apiservice"
        ));
    }
    let service: APIService =
        serde_json::from_value(found).map_err(|error| format!("the APIService is malformed: {error}"))?;
    let spec = service.spec.as_ref();
    if spec.is_none_or(|spec| spec.service.is_none() || spec.ca_bundle.is_none()) {
        return Err("the APIService has no service or no caBundle".to_owned());
    }
    Ok(service)
}

/// Splits a file into its YAML documents.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match documents.last_mut() {
            Some(last) if line.trim_end() != "---" => *last += &format!("{line}\n"),
            _ => documents.push(String::new()),
        }
    }
    documents
}
