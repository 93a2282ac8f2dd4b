//! What must hold of a Lease for its deletion (apiserver `registry/rest/delete.go`, `BeforeDelete`).

use crate::api_error::ApiError;
use crate::codec::DeleteOptions;
use crate::table::object::Object;
use compact_str::CompactString;

/// Preconditions of a `DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    uid: Option<CompactString>,
    resource_version: Option<CompactString>,
}

impl Preconditions {
    /// Those that `options` name.
    #[must_use]
    pub fn of(options: &DeleteOptions) -> Self {
        Self { uid: options.precondition_uid.clone(), resource_version: options.precondition_resource_version.clone() }
    }

    /// Checks them against what is there.
    ///
    /// # Errors
    /// 409 for the first that does not hold.
    pub fn check(&self, current: &Object) -> Result<(), ApiError> {
        let uid = &current.metadata().uid;
        if let Some(wanted) = &self.uid
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
        if let Some(wanted) = &self.resource_version
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
}

#[cold]
fn failed(current: &Object, message: String) -> ApiError {
    ApiError::PreconditionFailed { name: current.key().parts().1.to_owned(), message }
}
