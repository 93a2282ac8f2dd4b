//! The ConfigMap `kube-system/extension-apiserver-authentication`. In this ConfigMap, kube-apiserver publishes its
//! client CA. It also publishes how its aggregator authenticates itself and names users (Kubernetes, "Configure the
//! Aggregation Layer").

use super::config::{TlsConfigError, TlsConfigErrorCause};
use super::trust::{FrontProxy, HeaderNames};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Name of the ConfigMap.
pub const CONFIG_MAP: &str = "extension-apiserver-authentication";
/// Namespace of the ConfigMap.
pub const CONFIG_MAP_NAMESPACE: &str = "kube-system";

/// Key with the client CA, in PEM.
pub(super) const CLIENT_CA: &str = "client-ca-file";
/// Key with the front-proxy CAs, in PEM.
pub(super) const FRONT_PROXY_CA: &str = "requestheader-client-ca-file";

/// The cluster's authentication settings: the data of the ConfigMap [`CONFIG_MAP`]. Each value is checked when it is
/// read. So an invalid value does not affect the other values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterAuthentication(BTreeMap<String, String>);

impl ClusterAuthentication {
    /// Creates the settings from the data of the ConfigMap.
    #[must_use]
    pub fn new(data: BTreeMap<String, String>) -> Self {
        Self(data)
    }

    /// Returns the value of a key; `None` if the value is absent or empty.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the allowed Common Names of front proxies, and the names of their field lines. If the ConfigMap has no
    /// field names, the usual names (`X-Remote-…`) apply.
    ///
    /// # Errors
    /// A value is not a list of strings.
    pub(super) fn front_proxy(&self) -> Result<FrontProxy, TlsConfigError> {
        let list = |key| match self.value(key) {
            None => Ok(Vec::new()),
            Some(value) => serde_json::from_str::<Vec<String>>(value)
                .map_err(|e| TlsConfigError::new(&origin(key), TlsConfigErrorCause::NoList(e))),
        };
        let names = |key, usual: Vec<String>| list(key).map(|names| if names.is_empty() { usual } else { names });
        let usual = HeaderNames::default();
        Ok(FrontProxy {
            allowed_names: list("requestheader-allowed-names")?,
            header_names: HeaderNames {
                username: names("requestheader-username-headers", usual.username)?,
                group: names("requestheader-group-headers", usual.group)?,
                uid: names("requestheader-uid-headers", usual.uid)?,
                extra_prefix: names("requestheader-extra-headers-prefix", usual.extra_prefix)?,
            },
        })
    }
}

/// Returns a description of a key of the ConfigMap, for use in place of a file's path.
pub(super) fn origin(key: &str) -> PathBuf {
    format!("ConfigMap {CONFIG_MAP_NAMESPACE}/{CONFIG_MAP}, {key}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&str, &str)]) -> ClusterAuthentication {
        ClusterAuthentication(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn values_are_read_as_kube_apiserver_writes_them() {
        let said = said(&[
            ("client-ca-file", "A"),
            ("requestheader-client-ca-file", "B"),
            ("requestheader-allowed-names", r#"["front-proxy-client","other"]"#),
            ("requestheader-username-headers", r#"["X-User"]"#),
            ("requestheader-group-headers", r#"["X-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Extra-"]"#),
        ]);
        assert_eq!((said.value(CLIENT_CA), said.value(FRONT_PROXY_CA)), (Some("A"), Some("B")));
        let found = said.front_proxy().expect("it is right");
        assert_eq!(found.allowed_names, ["front-proxy-client", "other"]);
        let names = found.header_names;
        assert_eq!((names.username, names.group), (vec!["X-User".to_owned()], vec!["X-Group".to_owned()]));
        assert_eq!((names.uid, names.extra_prefix), (vec!["X-Remote-Uid".to_owned()], vec!["X-Extra-".to_owned()]));
    }

    /// An empty list allows any name, but an empty name is a name. So `[""]` must not become `[]`.
    #[test]
    fn empty_allowed_names_are_kept() {
        for (value, names) in [("[]", &[][..]), (r#"[""]"#, &[""]), (r#"["",""]"#, &["", ""])] {
            let found = said(&[("requestheader-allowed-names", value)]).front_proxy();
            assert_eq!(found.expect("a list").allowed_names, names);
        }
    }

    #[test]
    fn missing_values_give_defaults_and_invalid_ones_an_error() {
        assert_eq!(said(&[]).front_proxy().expect("nothing"), FrontProxy::default());
        assert_eq!(said(&[(CLIENT_CA, "")]).value(CLIENT_CA), None);
        let wrong = said(&[("requestheader-allowed-names", "front-proxy-client")]).front_proxy();
        let message = wrong.expect_err("no list").to_string();
        assert!(
            message.starts_with(
                "ConfigMap kube-system/extension-apiserver-authentication, requestheader-allowed-names: no list of strings: "
            ),
            "{message}"
        );
    }
}
