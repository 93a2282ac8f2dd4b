//! What the ConfigMap `kube-system/extension-apiserver-authentication` says: kube-apiserver writes into it which
//! authorities it takes clients from, and how its aggregator proves itself and names users (Kubernetes, "Configure the
//! Aggregation Layer").

use super::trust::{FrontProxy, HeaderNames};
use std::collections::BTreeMap;
use std::fmt;

/// Name of the ConfigMap.
pub const CONFIG_MAP: &str = "extension-apiserver-authentication";
/// Its namespace.
pub const CONFIG_MAP_NAMESPACE: &str = "kube-system";

/// How the cluster authenticates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterAuthentication {
    /// PEM of the authorities of clients; empty if kube-apiserver takes no client certificates.
    pub client_ca: String,
    /// PEM of the front proxy's authorities; empty if kube-apiserver has no aggregator.
    pub front_proxy_ca: String,
    /// Which of them may speak for others, and how.
    pub front_proxy: FrontProxy,
}

/// A value of the ConfigMap that is no list of strings.
#[derive(Debug)]
pub struct WrongValue {
    key: &'static str,
    cause: serde_json::Error,
}

impl fmt::Display for WrongValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigMap {CONFIG_MAP_NAMESPACE}/{CONFIG_MAP}: {}: {}", self.key, self.cause)
    }
}

impl std::error::Error for WrongValue {}

impl ClusterAuthentication {
    /// Reads the data of the ConfigMap.
    ///
    /// # Errors
    /// [`WrongValue`]. A key that is absent is none; the names of field lines are the usual ones then.
    pub fn from_data(data: &BTreeMap<String, String>) -> Result<Self, WrongValue> {
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        let list = |key: &'static str| match data.get(key).filter(|value| !value.is_empty()) {
            None => Ok(Vec::new()),
            Some(value) => serde_json::from_str::<Vec<String>>(value).map_err(|cause| WrongValue { key, cause }),
        };
        let names =
            |key: &'static str, usual: Vec<String>| list(key).map(|names| if names.is_empty() { usual } else { names });
        let usual = HeaderNames::default();
        Ok(Self {
            client_ca: text("client-ca-file"),
            front_proxy_ca: text("requestheader-client-ca-file"),
            front_proxy: FrontProxy {
                allowed_names: list("requestheader-allowed-names")?,
                header_names: HeaderNames {
                    username: names("requestheader-username-headers", usual.username)?,
                    group: names("requestheader-group-headers", usual.group)?,
                    uid: names("requestheader-uid-headers", usual.uid)?,
                    extra_prefix: names("requestheader-extra-headers-prefix", usual.extra_prefix)?,
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_are_read_as_kube_apiserver_writes_them() {
        let found = ClusterAuthentication::from_data(&data(&[
            ("client-ca-file", "A"),
            ("requestheader-client-ca-file", "B"),
            ("requestheader-allowed-names", r#"["front-proxy-client","other"]"#),
            ("requestheader-username-headers", r#"["X-User"]"#),
            ("requestheader-group-headers", r#"["X-Group"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Extra-"]"#),
        ]))
        .expect("it is right");
        assert_eq!((found.client_ca.as_str(), found.front_proxy_ca.as_str()), ("A", "B"));
        assert_eq!(found.front_proxy.allowed_names, ["front-proxy-client", "other"]);
        let names = found.front_proxy.header_names;
        assert_eq!((names.username, names.group), (vec!["X-User".to_owned()], vec!["X-Group".to_owned()]));
        assert_eq!((names.uid, names.extra_prefix), (vec!["X-Remote-Uid".to_owned()], vec!["X-Extra-".to_owned()]));
    }

    /// No names are any; a name that is empty is a name.
    #[test]
    fn names_that_are_empty_stay() {
        for (value, names) in [("[]", &[][..]), (r#"[""]"#, &[""]), (r#"["",""]"#, &["", ""])] {
            let found = ClusterAuthentication::from_data(&data(&[("requestheader-allowed-names", value)]));
            assert_eq!(found.expect("a list").front_proxy.allowed_names, names);
        }
    }

    #[test]
    fn nothing_is_nothing_and_noise_is_an_error() {
        assert_eq!(ClusterAuthentication::from_data(&data(&[])).expect("nothing"), ClusterAuthentication::default());
        let wrong = ClusterAuthentication::from_data(&data(&[("requestheader-allowed-names", "front-proxy-client")]));
        let message = wrong.expect_err("no list").to_string();
        assert!(
            message
                .starts_with("ConfigMap kube-system/extension-apiserver-authentication: requestheader-allowed-names: "),
            "{message}"
        );
    }
}
