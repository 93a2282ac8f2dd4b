//! [`Lease`]: a Lease as the commands `takeover` and `rollback` read and write it.

use crate::cluster::impl_lease_resource;
use k8s_openapi::api::coordination::v1;
use k8s_openapi::jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::ops::{Deref, DerefMut};

/// Replacement for a time that a [`Timestamp`] cannot represent.
const LATEST: &str = "9999-12-30T00:00:00Z";
/// Times of a Lease, apart from those in `managedFields`.
const TIMES: [&str; 4] =
    ["/metadata/creationTimestamp", "/metadata/deletionTimestamp", "/spec/acquireTime", "/spec/renewTime"];

/// A Lease. Kubernetes accepts times that a [`Timestamp`] cannot represent, such as the end of the year 9999. Any
/// client that may create Leases can write such a time. Such a time must not make the commands fail, so [`LATEST`]
/// replaces it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Lease(v1::Lease);

impl Lease {
    /// Returns `spec.renewTime`.
    pub(super) fn renew_time(&self) -> Option<Timestamp> {
        Some(self.spec.as_ref()?.renew_time.as_ref()?.0)
    }
}

impl From<v1::Lease> for Lease {
    fn from(lease: v1::Lease) -> Self {
        Self(lease)
    }
}

impl Deref for Lease {
    type Target = v1::Lease;

    fn deref(&self) -> &v1::Lease {
        &self.0
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut v1::Lease {
        &mut self.0
    }
}

impl<'de> Deserialize<'de> for Lease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut lease = Value::deserialize(deserializer)?;
        TIMES.iter().for_each(|time| bound(lease.pointer_mut(time)));
        let managers = lease.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
        managers.into_iter().flatten().for_each(|manager| bound(manager.get_mut("time")));
        serde_json::from_value(lease).map(Self).map_err(D::Error::custom)
    }
}

fn bound(time: Option<&mut Value>) {
    if let Some(Value::String(text)) = time
        && text.parse::<Timestamp>().is_err()
    {
        LATEST.clone_into(text);
    }
}

impl_lease_resource!(Lease, 0.metadata);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_time_out_of_range_does_not_make_a_lease_unreadable() {
        let of = |time: &str| {
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "l", "managedFields": [{"manager": "m", "time": time}]},
                "spec": {"acquireTime": time, "renewTime": time}})
        };
        let written = |time: &str| serde_json::to_value(serde_json::from_value::<Lease>(of(time)).expect("a Lease"));
        for time in ["9999-12-31T23:59:59Z", "292277026596-12-04T15:30:07.000000Z", "-0001-01-01T00:00:00Z"] {
            let written = written(time).expect("JSON");
            assert_eq!(written["spec"]["renewTime"], "9999-12-30T00:00:00.000000Z", "{time}");
            assert_eq!(written["metadata"]["managedFields"][0]["time"], LATEST, "{time}");
        }
        let written = written("2026-01-02T03:04:05Z").expect("JSON");
        assert_eq!(written["spec"]["acquireTime"], "2026-01-02T03:04:05.000000Z");
    }
}
