//! The manifests and the chart contain only flags that the server has. The Go test in tests/manifests checks the rest.

use clap::CommandFactory as _;
use coordination_apiserver::cli::Args;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FILES: [&str; 5] = [
    "charts/coordination-apiserver/templates/_helpers.tpl",
    "manifests/cluster-etcd/deployment.json",
    "manifests/disk/deployment.yaml",
    "manifests/etcd/daemonset.yaml",
    "manifests/static-pod/pod.yaml",
];

#[test]
fn the_server_has_every_flag_in_the_manifests() {
    let command = Args::command();
    let known: BTreeSet<_> = command.get_arguments().filter_map(|argument| argument.get_long()).collect();
    for file in FILES {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("a file");
        // A flag is an item of a YAML list (`- --flag`) or a JSON string (`"--flag"`).
        let flags: Vec<_> =
            text.lines().filter_map(|line| line.split_once("- --").or_else(|| line.split_once("\"--"))).collect();
        assert!(flags.len() >= 4, "{file}: {flags:?}");
        for (_, flag) in flags {
            let name = flag.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).next().expect("a part");
            assert!(known.contains(name), "{file}: --{name}");
        }
    }
}
