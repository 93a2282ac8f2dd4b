//! The fence: this process writes to built-in storage (kube-apiserver's own Leases in etcd) only while the APIService
//! of Leases names a Service, and has the expected UID. Otherwise clients may already write to built-in storage,
//! through kube-apiserver. An APIService with another UID shows that the expected one was deleted for a time. Clients
//! may have written to built-in storage during that time.

use crate::etcd::client::{Client, Failure};
use crate::etcd::messages::{Compare, Compared, RangeRequest};
use serde::Deserialize;
use tonic::Status;

/// The APIService of Leases, as this process last saw it.
#[derive(Debug)]
pub(super) struct Fence {
    key: Vec<u8>,
    /// UID that the APIService must have; `None` permits any UID.
    expected: Option<String>,
    /// The registered APIService; `None` if the APIService names no Service or has another UID than the expected one.
    registered: Option<Registered>,
}

/// An APIService that names a Service.
#[derive(Debug, PartialEq, Eq)]
struct Registered {
    uid: String,
    /// Revision of the APIService's last write.
    revision: i64,
}

/// The parts of an APIService that [`uid_if_registered`] reads.
#[derive(Deserialize)]
struct ApiService {
    #[serde(default)]
    metadata: Metadata,
    spec: Spec,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    uid: String,
}

#[derive(Deserialize)]
struct Spec {
    service: Option<serde::de::IgnoredAny>,
}

impl Fence {
    /// Creates a fence that blocks all writes until [`Fence::read`] has found a Service.
    pub(super) fn new(prefix: &str) -> Self {
        let key = format!("{prefix}/apiregistration.k8s.io/apiservices/v1.coordination.k8s.io");
        Self { key: key.into_bytes(), expected: None, registered: None }
    }

    /// Accepts only an APIService with this UID from the next read on; `None` permits any UID.
    pub(super) fn expect(&mut self, uid: Option<String>) {
        self.expected = uid;
    }

    /// Reads the APIService. Returns whether it has changed since the last read.
    ///
    /// # Errors
    /// [`Failure`]
    pub(super) async fn read(&mut self, client: &Client) -> Result<bool, Failure> {
        let found = client.range(RangeRequest { key: self.key.clone(), ..RangeRequest::default() }).await?.kvs;
        let mut registered = None;
        if let Some(found) = found.first()
            && let Some(uid) = uid_if_registered(&found.value)?
            && self.expected.as_ref().is_none_or(|expected| *expected == uid)
        {
            registered = Some(Registered { uid, revision: found.mod_revision });
        }
        let has_changed = registered != self.registered;
        self.registered = registered;
        Ok(has_changed)
    }

    /// Returns the UID of the APIService; `None` if this process must not write.
    pub(super) fn uid(&self) -> Option<&str> {
        self.registered.as_ref().map(|registered| registered.uid.as_str())
    }

    /// Returns the comparison that a write's transaction must contain; `None` if this process must not write.
    pub(super) fn compare(&self) -> Option<Compare> {
        self.registered.as_ref().map(|registered| unchanged(self.key.clone(), registered.revision))
    }
}

/// Returns the UID of an APIService; `None` if the APIService names no Service. kube-apiserver stores APIServices as
/// JSON.
///
/// # Errors
/// `value` is not valid JSON.
fn uid_if_registered(value: &[u8]) -> Result<Option<String>, Failure> {
    serde_json::from_slice(value)
        .map(|ApiService { metadata, spec }| spec.service.map(|_| metadata.uid))
        .map_err(|error| Failure::Refused(Status::internal(format!("the APIService cannot be read: {error}"))))
}

/// Returns a comparison that holds if the mod revision of `key` is `revision`. If `revision` is 0, it holds if the key
/// does not exist.
pub(super) fn unchanged(key: Vec<u8>, revision: i64) -> Compare {
    /// Target of a comparison: the revision of the last write.
    const MOD_REVISION: i32 = 2;
    let compared = Some(Compared::ModRevision(revision));
    Compare { result: 0, target: MOD_REVISION, key, compared, range_end: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::uid_if_registered;

    #[test]
    fn an_api_service_is_ours_if_it_names_a_service() {
        let of = |spec: &str| {
            format!(r#"{{"kind":"APIService","metadata":{{"name":"n","uid":"u"}},"spec":{spec},"status":{{}}}}"#)
        };
        let read = |spec: &str| uid_if_registered(of(spec).as_bytes()).ok();
        let registered = read(r#"{"group":"coordination.k8s.io","service":{"name":"a"}}"#);
        assert_eq!(registered, Some(Some("u".to_owned())));
        assert_eq!(read(r#"{"group":"coordination.k8s.io"}"#), Some(None));
        assert_eq!(read(r#"{"service":null}"#), Some(None));
        assert_eq!(uid_if_registered(b"k8s\0").ok(), None);
    }
}
