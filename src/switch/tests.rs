use super::phase::Handover;
use super::takeover::{read_api_service, register};
use super::{AUTOMANAGED, make_local, names_service};
use crate::handover::{MESSAGE, PHASE, Phase, STEP, Step};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde_json::json;
use std::fs;

const WANTED: &str = "
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1.coordination.k8s.io
  labels: {app: coordination-apiserver}
spec:
  group: coordination.k8s.io
  version: v1
  groupPriorityMinimum: 16500
  versionPriority: 15
  caBundle: Y2E=
  service: {name: coordination-apiserver, namespace: kube-system, port: 443}
";

fn read(text: &str) -> Result<APIService, String> {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("apiservice.yaml");
    fs::write(&file, text).expect("written");
    read_api_service(&file).map_err(|error| error.to_string().replace(&file.display().to_string(), "FILE"))
}

fn local() -> APIService {
    serde_json::from_value(json!({
        "metadata": {"name": "v1.coordination.k8s.io", "labels": {AUTOMANAGED: "onstart"}, "resourceVersion": "7"},
        "spec": {"group": "coordination.k8s.io", "version": "v1", "groupPriorityMinimum": 16500, "versionPriority": 15},
    }))
    .expect("an APIService")
}

#[test]
fn registration_replaces_spec_and_label_and_can_be_undone() {
    let wanted = read(WANTED).expect("an APIService");
    let mut service = local();
    register(&mut service, &wanted);
    assert!(names_service(&service));
    assert_eq!(service.spec, wanted.spec);
    assert_eq!(service.metadata.resource_version.as_deref(), Some("7"), "somebody else's change is not undone");
    let labels = service.metadata.labels.clone().expect("labels");
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), [("app".to_owned(), "coordination-apiserver".to_owned())]);
    make_local(&mut service);
    assert!(!names_service(&service));
    assert_eq!(service.spec, local().spec);
    assert_eq!(service.metadata.labels.expect("labels").get(AUTOMANAGED).map(String::as_str), Some("onstart"));
}

#[test]
fn the_api_service_is_found_among_other_objects() {
    let file = format!("---\nkind: Service\nmetadata: {{name: v1.coordination.k8s.io}}\n---{WANTED}---\nkind: Role\n");
    assert_eq!(read(&file), read(WANTED));
}

#[test]
fn a_file_without_a_whole_api_service_is_refused() {
    for (text, says) in [
        (WANTED.replace("v1.coordination.k8s.io", "v1.apps"), "no APIService v1.coordination.k8s.io in it"),
        (WANTED.replace("kind: APIService", "kind: Service"), "no APIService v1.coordination.k8s.io in it"),
        (WANTED.replace("  caBundle: Y2E=\n", ""), "no service or no caBundle"),
        (WANTED.replace("Y2E=", "Y2E"), "the caBundle is not Base64 (Invalid padding); write the file again"),
        (WANTED.replace("16500", "many"), "the APIService is malformed: invalid type"),
        ("\0".to_owned(), "no APIService"),
    ] {
        let error = read(&text).expect_err("no APIService");
        assert!(error.starts_with("--apiservice FILE: ") && error.contains(says), "{error}");
    }
}

#[test]
fn the_handover_lease_gives_phase_and_step() {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {PHASE: "import", STEP: "imported", MESSAGE: "7 Leases are here"}},
    }))
    .expect("a Lease");
    let message = "7 Leases are here".to_owned();
    let uid = Some("u".to_owned());
    let (phase, step) = (Some(Phase::Import), Some(Step::Imported));
    let seen = Handover { uid, version: "7".to_owned(), phase, asked: String::new(), step, message };
    assert_eq!(Handover::of(Some(&lease)), seen);
    assert_eq!(Handover::of(None), Handover::default());
}
