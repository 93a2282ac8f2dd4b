//! A server beside the etcd of a kube-apiserver, for tests of the hand-over: the move of Leases from or to built-in
//! storage (kube-apiserver's own storage of Leases in etcd). The tests write Leases to etcd as kube-apiserver would.
//! The commands `takeover` and `rollback` request each phase of the hand-over by a write to one Lease; so do the tests.

use super::client::{Client, request};
use super::etcd::Etcd;
use super::eventually;
use super::lease::{collection, path};
use super::process::Process;
use super::stream::Endpoint;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

const FILES_MAX: u32 = 1024;
pub(crate) const NAMESPACE: &str = "default";
pub(crate) const HANDOVER: &str = "coordination-apiserver-handover";
pub(crate) const API_SERVICE: &str = "/registry/apiregistration.k8s.io/apiservices/v1.coordination.k8s.io";

// Times of renewals, in ascending order.
pub(crate) const EARLY: &str = "2026-01-01T00:00:01.000000Z";
pub(crate) const LATE: &str = "2026-01-01T00:00:09.000000Z";
pub(crate) const LATER: &str = "2026-01-01T00:00:20.000000Z";

/// A server beside the etcd of a kube-apiserver.
pub(crate) struct Rig {
    pub(crate) etcd: Etcd,
    pub(crate) server: Process,
    /// Number of phases that the test has requested.
    asked: AtomicU32,
}

impl Rig {
    /// Starts an etcd, and a server with this storage beside it. Returns `None` if this machine has no etcd.
    pub(crate) fn start(storage: &str) -> Option<Self> {
        Self::start_with(&[], storage)
    }

    /// Starts an etcd with these flags, and a server as [`Rig::start`] does.
    pub(crate) fn start_with(etcd_flags: &[&str], storage: &str) -> Option<Self> {
        let etcd = Etcd::start(etcd_flags)?;
        let server = start_server(&etcd, storage);
        Some(Self { etcd, server, asked: AtomicU32::new(0) })
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(self.server.endpoint())
    }

    /// Sends a request. Returns the status and the body.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        call(&self.server, method, path, body)
    }

    /// Writes a Lease as JSON to built-in storage. Returns its `resourceVersion` there.
    pub(crate) fn put_built_in(&self, name: &str, holder: &str, renew_time: &str) -> u64 {
        self.etcd.put(&key(name), built_in_lease(name, holder, renew_time).as_bytes())
    }

    /// Returns the value of a Lease in built-in storage.
    pub(crate) fn built_in(&self, name: &str) -> Option<String> {
        let value = BASE64_STANDARD.decode(self.stored(name)["value"].as_str()?).expect("base64");
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    /// Returns the revision of a Lease's last write in built-in storage.
    pub(crate) fn built_in_revision(&self, name: &str) -> u64 {
        self.stored(name)["mod_revision"].as_str().expect("a revision").parse().expect("a number")
    }

    /// Returns the key and the value of a Lease in built-in storage, as etcd's gateway shows them; null if the Lease is
    /// not there.
    fn stored(&self, name: &str) -> Value {
        let key = BASE64_STANDARD.encode(key(name));
        self.ask_etcd("kv/range", &json!({"key": key}))["kvs"][0].clone()
    }

    /// Sends a request to etcd's gateway. Returns the answer.
    pub(crate) fn ask_etcd(&self, path: &str, body: &Value) -> Value {
        let answer = self.etcd.call(path, &body.to_string()).expect("an answer");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// Makes `holder` the holder of a Lease in built-in storage, if the Lease's last write there has `revision`.
    /// Returns whether etcd has written the new holder.
    pub(crate) fn acquire_built_in(&self, name: &str, holder: &str, revision: u64) -> bool {
        let [key, value] = [key(name), built_in_lease(name, holder, LATER)].map(|text| BASE64_STANDARD.encode(text));
        let transaction = json!({
            "compare": [{"key": key, "target": "MOD", "mod_revision": revision.to_string()}],
            "success": [{"request_put": {"key": key, "value": value}}],
        });
        self.ask_etcd("kv/txn", &transaction)["succeeded"] == true
    }

    /// Writes Leases as JSON to built-in storage, up to 100 in each transaction.
    pub(crate) fn put_many_built_in(&self, names: &[String]) {
        for names in names.chunks(100) {
            let put = |name: &String| {
                let texts = [key(name), built_in_lease(name, "h", EARLY)];
                let [key, value] = texts.map(|text| BASE64_STANDARD.encode(text));
                json!({"request_put": {"key": key, "value": value}})
            };
            let transaction = json!({"success": names.iter().map(put).collect::<Vec<_>>()});
            let answer = self.ask_etcd("kv/txn", &transaction);
            assert_eq!(answer["succeeded"], true, "{answer}");
        }
    }

    /// Returns the number of Leases in built-in storage.
    pub(crate) fn count_built_in(&self) -> usize {
        let [first, end] = ["/registry/leases/", "/registry/leases0"].map(|text| BASE64_STANDARD.encode(text));
        let range = json!({"key": first, "range_end": end, "count_only": true});
        let answer = self.ask_etcd("kv/range", &range);
        answer["count"].as_str().expect("a count").parse().expect("a number")
    }

    pub(crate) fn delete_built_in(&self, name: &str) {
        self.delete(&key(name));
    }

    /// Deletes a key of kube-apiserver's etcd.
    pub(crate) fn delete(&self, key: &str) {
        let key = BASE64_STANDARD.encode(key);
        self.ask_etcd("kv/deleterange", &json!({"key": key}));
    }

    /// Replaces the APIService of Leases. With `is_ours` it names this server's Service, so kube-apiserver forwards
    /// requests for Leases to this server. Otherwise kube-apiserver serves Leases from built-in storage.
    pub(crate) fn register(&self, is_ours: bool) {
        let service = if is_ours { json!({"name": "coordination-apiserver"}) } else { Value::Null };
        self.put_api_service("first", &service);
    }

    /// Replaces the APIService of Leases by one with another UID, as if somebody had deleted it and created it again.
    /// The new APIService names this server's Service.
    pub(crate) fn recreate_api_service(&self, uid: &str) {
        self.put_api_service(uid, &json!({"name": "coordination-apiserver"}));
    }

    fn put_api_service(&self, uid: &str, service: &Value) {
        let api_service = json!({"metadata": {"uid": uid}, "spec": {"service": service}});
        self.etcd.put(API_SERVICE, api_service.to_string().as_bytes());
    }

    /// Moves the Leases from built-in storage to this server, as `takeover` does.
    pub(crate) fn take_over(&self) {
        self.reach("import", "imported");
        self.register(true);
        self.reach("serve", "serving");
    }

    /// Requests a phase of the hand-over, and waits until the server has reached `step` of the phase.
    pub(crate) fn reach(&self, phase: &str, step: &str) {
        self.ask_for(phase);
        eventually(step, || self.step() == step);
    }

    pub(crate) fn ask_for(&self, phase: &str) {
        self.ask_with(phase, None);
    }

    /// Requests a phase of the hand-over, beginning at this step. The Lease of the hand-over keeps the UID of the
    /// APIService, except at the beginning of a takeover. The commands `takeover` and `rollback` do the same.
    pub(crate) fn ask_with(&self, phase: &str, step: Option<&str>) {
        const UID: &str = "coordination-apiserver/apiservice-uid";
        let mut lease = json!({
            "metadata": {"name": HANDOVER, "annotations": {
                "coordination-apiserver/phase": phase,
                "coordination-apiserver/asked": self.asked.fetch_add(1, Ordering::Relaxed).to_string(),
            }},
            "spec": {"renewTime": "2099-01-01T00:00:00.000000Z"},
        });
        if let Some(step) = step {
            lease["metadata"]["annotations"]["coordination-apiserver/step"] = step.into();
        }
        let path = path("kube-system", HANDOVER);
        eventually(phase, || {
            let (status, found) = self.call("GET", &path, "");
            let (status, answer) = match status {
                404 => self.call("POST", &collection("kube-system"), &lease.to_string()),
                _ => {
                    let uid = found["metadata"]["annotations"].get(UID);
                    if let Some(uid) = uid.filter(|_| !["import", "copy"].contains(&phase)) {
                        lease["metadata"]["annotations"][UID] = uid.clone();
                    }
                    lease["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
                    self.call("PUT", &path, &lease.to_string())
                }
            };
            // The server also writes the Lease of the hand-over, so the test's update may get 409. Then it is repeated.
            assert!([200, 201, 409].contains(&status), "{answer}");
            status != 409
        });
    }

    pub(crate) fn annotation(&self, name: &str) -> String {
        let (_, lease) = self.call("GET", &path("kube-system", HANDOVER), "");
        let text = lease["metadata"]["annotations"][format!("coordination-apiserver/{name}")].as_str();
        text.unwrap_or_default().to_owned()
    }

    pub(crate) fn step(&self) -> String {
        self.annotation("step")
    }

    pub(crate) fn lease(&self, name: &str) -> Value {
        let (status, lease) = self.call("GET", &path(NAMESPACE, name), "");
        assert_eq!(status, 200, "{lease}");
        lease
    }

    pub(crate) fn holder(&self, name: &str) -> String {
        self.lease(name)["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Sends an update of a Lease: the state `lease`, with `version` as its `resourceVersion`, and with the spec as
    /// `change` changes it. Returns the status.
    pub(crate) fn update(&self, mut lease: Value, version: &str, change: impl FnOnce(&mut Value)) -> u16 {
        let name = lease["metadata"]["name"].as_str().expect("a name").to_owned();
        lease["metadata"]["resourceVersion"] = version.into();
        change(&mut lease["spec"]);
        self.call("PUT", &path(NAMESPACE, &name), &lease.to_string()).0
    }
}

/// Starts a server with this storage beside an etcd.
pub(crate) fn start_server(etcd: &Etcd, storage: &str) -> Process {
    let url = etcd.url();
    let mut flags = vec![format!("--storage={storage}"), format!("--cluster-etcd-servers={url}")];
    if storage == "etcd" {
        flags.push(format!("--etcd-servers={url}"));
    }
    Process::start(&flags.iter().map(String::as_str).collect::<Vec<_>>(), FILES_MAX)
}

/// Sends a request to a server. Returns the status and the body.
pub(crate) fn call(server: &Process, method: &str, path: &str, body: &str) -> (u16, Value) {
    try_call(server.endpoint(), method, path, body).expect("an answer")
}

/// Sends a request to a server that may die. Returns the status and the body.
pub(crate) fn try_call(endpoint: &Endpoint, method: &str, path: &str, body: &str) -> io::Result<(u16, Value)> {
    let mut client = Client::try_open(endpoint)?;
    client.try_send(&request(method, path, body))?;
    let answer = client.try_recv(method)?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    Ok((answer.status(), serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

/// Returns the key of a Lease in built-in storage.
pub(crate) fn key(name: &str) -> String {
    format!("/registry/leases/{NAMESPACE}/{name}")
}

/// Returns a Lease as JSON, the format in which older kube-apiservers store it.
fn built_in_lease(name: &str, holder: &str, renew_time: &str) -> String {
    let lease = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid-of-{name}"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renew_time},
    });
    lease.to_string()
}
