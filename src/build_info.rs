//! Build information for `--version`, `/version` and the metric `kubernetes_build_info`.
//!
//! Builds are reproducible, so the build date is always the Unix epoch.

use serde::Serialize;
use std::env::consts::{ARCH, OS};
use std::sync::LazyLock;

/// The Kubernetes version whose Lease API this program serves. The build metadata, after the plus sign, contains the
/// version of this program.
const GIT_VERSION: &str = concat!("v1.37.2+coordination-apiserver-", env!("CARGO_PKG_VERSION"));

/// The fields of apimachinery's `version.Info`, in the same order.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildInfo {
    /// Major version of Kubernetes.
    pub major: &'static str,
    /// Minor version of Kubernetes.
    pub minor: &'static str,
    /// Major version that this program emulates.
    pub emulation_major: &'static str,
    /// Minor version that this program emulates.
    pub emulation_minor: &'static str,
    /// Oldest major version with which this program is compatible.
    pub min_compatibility_major: &'static str,
    /// Oldest minor version with which this program is compatible.
    pub min_compatibility_minor: &'static str,
    /// Version of Kubernetes, a plus sign, and the version of this program.
    pub git_version: &'static str,
    /// Commit of the sources; empty if the build did not name a commit.
    pub git_commit: &'static str,
    /// `clean` if the build named a commit, else empty. A build may name a commit only if the tree is clean.
    pub git_tree_state: &'static str,
    /// Always the Unix epoch, so that builds are reproducible.
    pub build_date: &'static str,
    /// Version of Go; empty, since this is not a Go program.
    pub go_version: &'static str,
    /// Name of the compiler.
    pub compiler: &'static str,
    /// Operating system and architecture in Go's names.
    pub platform: &'static str,
}

impl BuildInfo {
    /// Returns the build information; the build's environment variable `GIT_COMMIT` names the commit.
    #[must_use]
    pub fn get() -> &'static Self {
        static INFO: LazyLock<BuildInfo> = LazyLock::new(|| BuildInfo::of(option_env!("GIT_COMMIT").unwrap_or("")));
        &INFO
    }

    /// Returns the version of this program and its commit, for `--version`.
    #[must_use]
    pub fn version() -> &'static str {
        static VERSION: LazyLock<String> = LazyLock::new(|| BuildInfo::get().described());
        &VERSION
    }

    fn of(git_commit: &'static str) -> Self {
        static PLATFORM: LazyLock<String> = LazyLock::new(|| {
            let arch = match ARCH {
                "aarch64" => "arm64",
                "x86_64" => "amd64",
                other => other,
            };
            format!("{}/{arch}", if OS == "macos" { "darwin" } else { OS })
        });
        Self {
            major: "1",
            minor: "37",
            emulation_major: "1",
            emulation_minor: "37",
            min_compatibility_major: "1",
            min_compatibility_minor: "36",
            git_version: GIT_VERSION,
            git_commit,
            git_tree_state: if git_commit.is_empty() { "" } else { "clean" },
            build_date: "1970-01-01T00:00:00Z",
            go_version: "",
            compiler: "rustc",
            platform: &PLATFORM,
        }
    }

    fn described(&self) -> String {
        let commit = if self.git_commit.is_empty() { "unknown" } else { self.git_commit };
        format!("{} (commit {commit})", env!("CARGO_PKG_VERSION"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_build_that_names_its_commit_is_clean() {
        let (named, unnamed) = (BuildInfo::of("0123abcd"), BuildInfo::of(""));
        assert_eq!((named.git_commit, named.git_tree_state), ("0123abcd", "clean"));
        assert_eq!((unnamed.git_commit, unnamed.git_tree_state), ("", ""));
        assert_eq!(named.described(), concat!(env!("CARGO_PKG_VERSION"), " (commit 0123abcd)"));
        assert_eq!(unnamed.described(), concat!(env!("CARGO_PKG_VERSION"), " (commit unknown)"));
    }
}
