//! Options of a deletion, from the body or the query of the request.

use super::{Query, dry_run_complaint, integer, is_true, keep_first, valid_or};
use crate::api_error::{ApiError, FieldError};
use crate::codec::{DeleteOptions, Preconditions};
use crate::go::json::json_quoted;
use compact_str::CompactString;

/// The supported values of `propagationPolicy` in kube-apiserver's message, in the same order. The last one, `nil`,
/// stands for an absent value.
const PROPAGATION_POLICIES: [&str; 4] = ["Foreground", "Background", "Orphan", "nil"];

/// Returns the validated options of a deletion. The options come from the body, or from the query if the body is empty.
///
/// # Errors
/// 400 for a number that cannot be parsed. 422 for unsupported values, and for options that exclude each other.
pub fn merge_delete_options(query: &Query<'_>, body: Option<DeleteOptions>) -> Result<DeleteOptions, ApiError> {
    let options = body.map_or_else(|| from_query(query), Ok)?;
    valid_or("DeleteOptions", complaints(&options))?;
    Ok(options)
}

/// Returns the validated options for the deletion of a collection, like [`merge_delete_options`].
///
/// # Errors
/// The errors of [`merge_delete_options`], and 422 for `ignoreStoreReadErrorWithClusterBreakingPotential`.
pub fn merge_delete_collection_options(
    query: &Query<'_>,
    body: Option<DeleteOptions>,
) -> Result<DeleteOptions, ApiError> {
    let options = merge_delete_options(query, body)?;
    if options.ignore_store_read_error == Some(true) {
        let detail = "is not allowed with DELETECOLLECTION, try again after removing the option";
        valid_or("DeleteOptions", vec![ignore_store_read_error_complaint(detail)])?;
    }
    Ok(options)
}

fn from_query(query: &Query<'_>) -> Result<DeleteOptions, ApiError> {
    let (mut grace, mut orphan, mut policy, mut ignore_store_read_error) = (None, None, None, None);
    let (mut uid, mut resource_version) = (None, None);
    let mut dry_run = Vec::new();
    for (name, value) in query.pairs() {
        match name.as_ref() {
            "dryRun" => dry_run.push(CompactString::from(value)),
            "gracePeriodSeconds" => keep_first(&mut grace, value),
            "ignoreStoreReadErrorWithClusterBreakingPotential" => {
                keep_first(&mut ignore_store_read_error, is_true(&value));
            }
            "orphanDependents" => keep_first(&mut orphan, is_true(&value)),
            "propagationPolicy" => keep_first(&mut policy, CompactString::from(value)),
            "resourceVersion" => keep_first(&mut resource_version, CompactString::from(value)),
            "uid" => keep_first(&mut uid, CompactString::from(value)),
            _ => {}
        }
    }
    let preconditions = Preconditions {
        uid: uid.filter(|uid: &CompactString| !uid.is_empty()),
        resource_version: resource_version.filter(|version: &CompactString| !version.is_empty()),
    };
    Ok(DeleteOptions {
        grace_period_seconds: grace.as_deref().map(integer).transpose()?,
        preconditions: Some(preconditions).filter(|preconditions| *preconditions != Preconditions::default()),
        orphan_dependents: orphan,
        propagation_policy: policy,
        dry_run,
        ignore_store_read_error,
    })
}

fn complaints(options: &DeleteOptions) -> Vec<FieldError> {
    const FIELD: &str = "propagationPolicy";
    let mut complaints = Vec::new();
    if let Some(policy) = &options.propagation_policy {
        if options.orphan_dependents.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            complaints.push(FieldError::invalid_unquoted(FIELD, json_quoted(policy), detail));
        }
        if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
            complaints.push(FieldError::not_supported_unquoted(FIELD, json_quoted(policy), &PROPAGATION_POLICIES));
        }
    }
    complaints.extend(dry_run_complaint(&options.dry_run));
    if options.ignore_store_read_error == Some(true) {
        let others = [
            (".propagationPolicy", options.propagation_policy.is_some()),
            (".orphanDependents", options.orphan_dependents.is_some()),
            (".gracePeriodSeconds", options.grace_period_seconds.is_some()),
            (".preconditions", options.preconditions.is_some()),
        ];
        for (other, _) in others.into_iter().filter(|&(_, is_set)| is_set) {
            complaints.push(ignore_store_read_error_complaint(&format!("cannot be set together with {other}")));
        }
    }
    complaints
}

fn ignore_store_read_error_complaint(detail: &str) -> FieldError {
    FieldError::invalid_unquoted("ignoreStoreReadErrorWithClusterBreakingPotential", true, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(raw: &str, body: Option<DeleteOptions>) -> (u16, String) {
        let status = merge_delete_options(&Query::new(raw), body).expect_err(raw).status();
        (status.code, status.message)
    }

    #[test]
    fn reads_every_option_of_the_query() {
        let raw = "gracePeriodSeconds=0&uid=u&resourceVersion=5&propagationPolicy=Background&dryRun=All&uid=v";
        let options = merge_delete_options(&Query::new(raw), None).expect("options");
        assert_eq!(options.grace_period_seconds, Some(0));
        let preconditions = Preconditions { uid: Some("u".into()), resource_version: Some("5".into()) };
        assert_eq!(options.preconditions, Some(preconditions));
        assert_eq!(options.propagation_policy.as_deref(), Some("Background"));
        assert_eq!(options.dry_run, ["All"]);
        let orphan = merge_delete_options(&Query::new("orphanDependents&uid="), None).expect("options");
        assert_eq!((orphan.orphan_dependents, orphan.preconditions), (Some(true), None));
    }

    #[test]
    fn a_delete_body_replaces_the_query_options() {
        let body = DeleteOptions { grace_period_seconds: Some(5), ..DeleteOptions::default() };
        let query = Query::new("gracePeriodSeconds=x&dryRun=Some&propagationPolicy=Nonsense");
        let options = merge_delete_options(&query, Some(body)).expect("the query is not read");
        assert_eq!((options.grace_period_seconds, options.dry_run.len()), (Some(5), 0));
    }

    #[test]
    fn invalid_options_get_the_errors_of_kube_apiserver() {
        let invalid = |complaints: &str| (422, format!("DeleteOptions.meta.k8s.io \"\" is invalid: {complaints}"));
        let unsupported = |policy: &str| {
            format!(
                "propagationPolicy: Unsupported value: \"{policy}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
            )
        };
        assert_eq!(refusal("propagationPolicy=Nonsense", None), invalid(&unsupported("Nonsense")));
        assert_eq!(refusal("propagationPolicy=", None), invalid(&unsupported("")));
        let both = "propagationPolicy: Invalid value: \"Background\": orphanDependents and deletionPropagation cannot be both set";
        let body = DeleteOptions {
            propagation_policy: Some("Background".into()),
            orphan_dependents: Some(true),
            ..DeleteOptions::default()
        };
        assert_eq!(refusal("", Some(body)), invalid(both));
        let dry_run = "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"";
        assert_eq!(refusal("dryRun=Some", None), invalid(dry_run));
        let number = "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned();
        assert_eq!(refusal("gracePeriodSeconds=x", None), (400, number));
    }
}
