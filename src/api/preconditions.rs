//! Checks the preconditions of a deletion (apiserver `registry/rest/delete.go`, `BeforeDelete`).

use crate::api_error::ApiError;
use crate::codec::Preconditions;
use crate::table::object::Object;

/// Checks `preconditions` against the current Lease.
///
/// # Errors
/// 409 for the first precondition that fails.
pub(super) fn check(preconditions: &Preconditions, current: &Object) -> Result<(), ApiError> {
    let uid = &current.metadata().uid;
    if let Some(wanted) = &preconditions.uid
        && wanted != uid
    {
        return Err(failed(
            current,
            format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ));
    }
    let version = current.version;
    if let Some(wanted) = &preconditions.resource_version
        && *wanted != *version.to_string()
        && current.built_in_version().is_none_or(|built_in| *wanted != *built_in.to_string())
    {
        return Err(failed(
            current,
            format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}

#[cold]
fn failed(current: &Object, message: String) -> ApiError {
    ApiError::PreconditionFailed { name: current.key().parts().1.to_owned(), message }
}
