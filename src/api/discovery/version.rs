//! `/version`: the Kubernetes version whose Lease API this is, with this project's own behind it.

use super::document::Document;
use serde::Serialize;
use std::env::consts::{ARCH, OS};

/// `version.Info` of apimachinery, in its order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    major: &'static str,
    minor: &'static str,
    emulation_major: &'static str,
    emulation_minor: &'static str,
    min_compatibility_major: &'static str,
    min_compatibility_minor: &'static str,
    git_version: &'static str,
    git_commit: &'static str,
    git_tree_state: &'static str,
    build_date: &'static str,
    go_version: &'static str,
    compiler: &'static str,
    platform: String,
}

/// The document. Builds are reproducible, so there is no date in it.
pub(super) fn version() -> Document {
    // Go's names of what runs this.
    let arch = match ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    };
    let os = if OS == "macos" { "darwin" } else { OS };
    let info = Info {
        major: "1",
        minor: "34",
        emulation_major: "1",
        emulation_minor: "34",
        min_compatibility_major: "1",
        min_compatibility_minor: "33",
        git_version: concat!("v1.34.4+coordination-apiserver-", env!("CARGO_PKG_VERSION")),
        git_commit: "",
        git_tree_state: "clean",
        build_date: "1970-01-01T00:00:00Z",
        go_version: "",
        compiler: "rustc",
        platform: format!("{os}/{arch}"),
    };
    Document::new(serde_json::to_vec_pretty(&info).expect("strings have a JSON form"))
}
