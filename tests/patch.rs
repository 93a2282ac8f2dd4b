//! Checks of a patch itself: `fieldValidation` reports duplicate fields, and unknown fields of JSON patch operations.
//! The size of a patch is limited.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use coordination_apiserver::limits::PATCH_VALUES_MAX;
use support::lease;
use support::response::Response;
use support::server::TestServer;

const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn patch(server: &TestServer, query: &str, media_type: &str, body: &str) -> Response {
    let lines = format!("User-Agent: test/1.0\r\nContent-Type: {media_type}\r\n");
    server.client().call_with("PATCH", &format!("{}{query}", lease::path("n", "a")), &lines, body)
}

/// Returns the texts of the response's warnings, without quotes.
fn warnings(response: &Response) -> Vec<String> {
    let values = response.head.fields.iter().filter(|(name, _)| name == "warning").map(|(_, value)| value);
    values
        .map(|value| value.strip_prefix("299 - \"").and_then(|v| v.strip_suffix('"')).unwrap().replace("\\\"", "\""))
        .collect()
}

#[test]
fn duplicate_fields_of_a_patch_are_reported() {
    let server = TestServer::start();
    server.client().call("POST", &lease::collection("n"), &lease::new("a")).expect_status(201, "a");
    for (media_type, body, words) in [
        (
            MERGE,
            r#"{"spec":{"leaseTransitions":1,"leaseTransitions":2,"size":1},"spec":{"leaseTransitions":3,"size":1}}"#,
            &[
                r#"duplicate field "spec.leaseTransitions""#,
                r#"duplicate field "spec""#,
                r#"unknown field "spec.size""#,
            ][..],
        ),
        (
            STRATEGIC,
            r#"{"metadata":{"labels":{"a":"1","a":"2","a":"3"}},"spec":{"leaseTransitions":3,"size":1}}"#,
            &[r#"duplicate field "metadata.labels.a""#, r#"unknown field "spec.size""#],
        ),
        (
            JSON,
            r#"[{"op":"test","op":"add","path":"/spec/leaseTransitions","value":3,"why":"x"},{"op":"add","path":"/metadata/annotations","value":{"b":"1","b":"2"}}]"#,
            &[
                r#"json patch duplicate field "[0].op""#,
                r#"json patch unknown field "[0].why""#,
                r#"json patch duplicate field "[1].value.b""#,
            ],
        ),
    ] {
        // Warn is the default.
        for query in ["", "?fieldValidation=Warn"] {
            let got = patch(&server, query, media_type, body).expect_status(200, body);
            assert_eq!(warnings(&got), words, "{media_type}");
            assert_eq!(lease::transitions(&got.json()), 3, "the last value counts");
        }
        let got = patch(&server, "?fieldValidation=Ignore", media_type, body).expect_status(200, body);
        assert_eq!(warnings(&got), [""; 0]);

        let before = server.client().call("GET", &lease::path("n", "a"), "").json();
        let refused = patch(&server, "?fieldValidation=Strict", media_type, body).expect_failure(422, "Invalid", body);
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        let strict = format!("strict decoding error: {}", words.join(", "));
        assert!(
            message.starts_with(" \"\" is invalid: patch: Invalid value: ") && message.ends_with(&strict),
            "{message}"
        );
        assert_eq!(server.client().call("GET", &lease::path("n", "a"), "").json(), before);
    }
}

#[test]
fn duplicate_fields_of_an_applied_configuration_are_reported_with_their_lines() {
    let server = TestServer::start();
    let head = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a"},"#;
    let json = format!("{head}\n\"spec\":{{\"leaseTransitions\":2,\n\"leaseTransitions\":3}}}}");
    let yaml = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nspec:\n  leaseTransitions: 2\n  leaseTransitions: 3\nmetadata: {name: a}\n";
    for (body, line) in [(&*json, 3), (yaml, 5)] {
        let words = format!("line {line}: key \"leaseTransitions\" already set in map");
        for (validation, told) in [
            ("", vec![words.clone()]),
            ("&fieldValidation=Warn", vec![words.clone()]),
            ("&fieldValidation=Ignore", vec![]),
        ] {
            let got = patch(&server, &format!("?fieldManager=m&dryRun=All{validation}"), APPLY, body);
            let got = got.expect_status(201, body);
            assert_eq!(warnings(&got), told);
            assert_eq!(lease::transitions(&got.json()), 3, "the last value counts");
        }
        let strict = patch(&server, "?fieldManager=m&fieldValidation=Strict", APPLY, body);
        let strict = strict.expect_failure(400, "BadRequest", body).json();
        let prefix = "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  ";
        assert_eq!(strict["message"], format!("{prefix}{words}"));
        // An invalid merged Lease is refused, and the response still warns of the duplicate. A configuration that
        // cannot be merged causes no warning.
        let wrong = body.replace('3', "-3");
        let refused = patch(&server, "?fieldManager=m", APPLY, &wrong).expect_failure(422, "Invalid", body);
        assert_eq!(warnings(&refused).len(), 1);
        let unmerged = patch(&server, "?fieldManager=m", APPLY, &body.replace('3', "\"x\""));
        assert_eq!((unmerged.head.status, warnings(&unmerged).len()), (500, 0), "{unmerged}");
    }
}

#[test]
fn a_patch_whose_result_is_not_a_lease_is_refused() {
    let server = TestServer::start();
    server.client().call("POST", &lease::collection("n"), &lease::new("a")).expect_status(201, "a");
    let body = r#"{"spec":{"leaseTransitions":1,"leaseTransitions":"x"}}"#;
    for query in ["", "?fieldValidation=Strict"] {
        let refused = patch(&server, query, MERGE, body).expect_failure(422, "Invalid", body);
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        let words = "json: cannot unmarshal string into Go struct field LeaseSpec.spec.leaseTransitions of type int32";
        assert!(message.ends_with(words), "{message}");
    }
    let clean = r#"{"metadata":{"labels":{"a":"1"},"annotations":{"a":"1"}},"spec":{"leaseTransitions":2}}"#;
    for media_type in [MERGE, STRATEGIC] {
        let got = patch(&server, "?fieldValidation=Strict", media_type, clean).expect_status(200, clean);
        assert_eq!(warnings(&got), [""; 0]);
    }
}

#[test]
fn a_strict_refusal_names_the_version_of_the_path() {
    let server = TestServer::start();
    let body = r#"{"metadata":{"name":"b"},"spec":{"size":1}}"#;
    for version in ["v1", "v1beta1"] {
        let target = format!("/apis/coordination.k8s.io/{version}/namespaces/n/leases?fieldValidation=Strict");
        let refused = server.client().call("POST", &target, body).expect_failure(400, "BadRequest", body).json();
        let words = format!(
            "Lease in version \"{version}\" cannot be handled as a Lease: strict decoding error: unknown field \"spec.size\""
        );
        assert_eq!(refused["message"], words);
    }
}

#[test]
fn the_number_of_values_is_limited() {
    let server = TestServer::start();
    server.client().call("POST", &lease::collection("n"), &lease::new("a")).expect_status(201, "a");
    // The limit also counts the values around the list's items. In a merge patch these are the list and its object. In
    // a JSON patch they are the list, `op`, `path`, the operation and the outer array.
    let list = |count: usize| format!("[0{}]", ",0".repeat(count - 1));
    let object = |count: usize| format!("{{\"zz\":{}}}", list(count - 2));
    let operations = |count: usize| format!("[{{\"op\":\"add\",\"path\":\"/zz\",\"value\":{}}}]", list(count - 5));
    let bodies = |count| [(JSON, operations(count)), (MERGE, object(count)), (STRATEGIC, object(count))];
    for (media_type, body) in bodies(PATCH_VALUES_MAX) {
        patch(&server, "", media_type, &body).expect_status(200, media_type);
    }
    let config = format!(
        "{{\"metadata\":{{\"annotations\":{{\"a\":\"{}\"}}}},{}",
        " ".repeat(512 * 1024),
        &object(PATCH_VALUES_MAX)[1..]
    );
    for (media_type, body) in bodies(PATCH_VALUES_MAX + 1).into_iter().chain([(APPLY, config)]) {
        patch(&server, "?fieldManager=m", media_type, &body).expect_failure(413, "RequestEntityTooLarge", media_type);
    }
}
