//! Some version numbers, such as that of the Rust compiler, are in several files, because different programs read them.
//! The tests check that the files agree.

use std::fs;
use std::path::Path;

#[test]
fn the_image_is_built_with_the_tested_compiler() {
    let tested = value("rust-toolchain.toml", "channel = ");
    assert_eq!(value("Dockerfile", "ARG RUST_VERSION="), tested);
}

#[test]
fn the_pages_name_the_tested_versions_of_kubernetes() {
    for module in ["tests/e2e/go.mod", "tests/e2e/controlplane/1.34/go.mod"] {
        let tested = value(module, "\tk8s.io/kubernetes v");
        let (tested, _) = tested.split_once(' ').unwrap_or((&tested, ""));
        for page in ["docs/known-problems.md", "docs/compatibility.md"] {
            let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect("a page");
            assert!(text.contains(tested), "{page} does not name Kubernetes {tested} of {module}");
        }
    }
}

/// Returns the text after `key` in the line of `file` that begins with it, without quotes.
#[track_caller]
fn value(file: &str, key: &str) -> String {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("a file of the repository");
    let value = text.lines().find_map(|line| line.strip_prefix(key)).expect("a line that begins so");
    value.trim_matches('"').to_owned()
}
