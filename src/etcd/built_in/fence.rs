//! The fence: this process writes to built-in storage only while the APIService of Leases names a Service.

use crate::etcd::client::{Client, Failure};
use crate::etcd::messages::{Compare, Compared, RangeRequest};
use serde::Deserialize;
use tonic::Status;

/// The APIService of Leases, as this process last saw it.
#[derive(Debug)]
pub(super) struct Fence {
    key: Vec<u8>,
    /// Revision of the APIService's last write; `None` if the APIService names no Service.
    revision: Option<i64>,
}

/// The parts of an APIService that [`names_service`] reads.
#[derive(Deserialize)]
struct ApiService {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    service: Option<serde::de::IgnoredAny>,
}

impl Fence {
    /// Creates a fence that blocks all writes until [`Fence::read`] has found a Service.
    pub(super) fn new(prefix: &str) -> Self {
        let key = format!("{prefix}/apiregistration.k8s.io/apiservices/v1.coordination.k8s.io");
        Self { key: key.into_bytes(), revision: None }
    }

    /// Reads the APIService. Returns whether it has changed since the last read.
    ///
    /// # Errors
    /// [`Failure`]
    pub(super) async fn read(&mut self, client: &Client) -> Result<bool, Failure> {
        let found = client.range(RangeRequest { key: self.key.clone(), ..RangeRequest::default() }).await?.kvs;
        let revision = match found.first() {
            Some(found) if names_service(&found.value)? => Some(found.mod_revision),
            Some(_) | None => None,
        };
        Ok(std::mem::replace(&mut self.revision, revision) != revision)
    }

    /// Returns the comparison that a write's transaction must contain; `None` if the APIService names no Service.
    pub(super) fn compare(&self) -> Option<Compare> {
        self.revision.map(|revision| unchanged(self.key.clone(), revision))
    }
}

/// Whether an APIService names a Service. kube-apiserver stores APIServices as JSON.
///
/// # Errors
/// `value` is not valid JSON.
fn names_service(value: &[u8]) -> Result<bool, Failure> {
    serde_json::from_slice(value)
        .map(|ApiService { spec }| spec.service.is_some())
        .map_err(|error| Failure::Refused(Status::internal(format!("the APIService cannot be read: {error}"))))
}

/// Returns the comparison that a key has this mod revision. If `revision` is 0, the key must not exist.
pub(super) fn unchanged(key: Vec<u8>, revision: i64) -> Compare {
    /// Target of a comparison: the revision of the last write.
    const MOD_REVISION: i32 = 2;
    let compared = Some(Compared::ModRevision(revision));
    Compare { result: 0, target: MOD_REVISION, key, compared, range_end: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::names_service;

    #[test]
    fn an_api_service_is_ours_if_it_names_a_service() {
        let of =
            |spec: &str| format!(r#"{{"kind":"APIService","metadata":{{"name":"n"}},"spec":{spec},"status":{{}}}}"#);
        let read = |spec: &str| names_service(of(spec).as_bytes()).ok();
        assert_eq!(read(r#"{"group":"coordination.k8s.io","service":{"name":"a"}}"#), Some(true));
        assert_eq!(read(r#"{"group":"coordination.k8s.io"}"#), Some(false));
        assert_eq!(read(r#"{"service":null}"#), Some(false));
        assert_eq!(names_service(b"k8s\0").ok(), None);
    }
}
