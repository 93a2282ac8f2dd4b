//! Options of a get, in the query.

use super::{Query, is_true, keep_first};
use crate::api_error::ApiError;
use compact_str::CompactString;

/// `metav1.GetOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// Oldest `resourceVersion` that the response may have, not parsed yet
    /// ([`parse_watch_resource_version`](super::parse_watch_resource_version)); empty for the newest state.
    pub resource_version: CompactString,
}

impl GetOptions {
    /// Parses the options of a get.
    ///
    /// # Errors
    /// 400 for the parameter `export`, which the API no longer has.
    pub fn parse(query: &Query<'_>) -> Result<Self, ApiError> {
        if query.is_empty() {
            return Ok(Self::default());
        }
        let (mut export, mut resource_version) = (None, None);
        for (name, value) in query.pairs() {
            match name.as_ref() {
                "export" => keep_first(&mut export, is_true(&value)),
                "resourceVersion" => keep_first(&mut resource_version, CompactString::from(value)),
                _ => {}
            }
        }
        if export == Some(true) {
            let message = "the export parameter, deprecated since v1.14, is no longer supported".to_owned();
            return Err(ApiError::BadRequest { message });
        }
        Ok(Self { resource_version: resource_version.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_resource_version() {
        let parse = |raw| GetOptions::parse(&Query::new(raw)).expect("options").resource_version;
        assert_eq!(parse(""), "");
        assert_eq!(parse("resourceVersion=5&resourceVersion=6&pretty=true&export=0"), "5");
    }

    #[test]
    fn refuses_to_export() {
        let error = GetOptions::parse(&Query::new("export=true")).expect_err("no export");
        assert_eq!(error.status().code, 400);
        assert_eq!(error.status().message, "the export parameter, deprecated since v1.14, is no longer supported");
    }
}
