//! Tests of the server's command line.

use super::args::parse_bytes;
use super::*;
use crate::build_info::BuildInfo;
use crate::cluster::ReplicaEndpoint;
use crate::journal::{FORMAT, FORMAT_WRITTEN_MIN};
use crate::logging::LogFormat;
use crate::tls::source::FrontProxySource;
use crate::tls::trust::FrontProxy;
use clap::CommandFactory;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

fn parse(words: &[&str]) -> Result<Args, Stop> {
    Args::parse_checked([PROGRAM].iter().chain(words).map(OsString::from))
}

fn wrong(words: &[&str]) -> String {
    match parse(words) {
        Err(Stop::Wrong(line)) => line,
        other => panic!("{words:?} gave {other:?}"),
    }
}

#[test]
fn the_command_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn no_arguments_give_the_documented_defaults() {
    let args = parse(&[]).expect("defaults");
    assert_eq!(args.secure_addr(), Some("127.0.0.1:8443".parse().expect("an address")));
    assert_eq!(args.insecure_addr(), None);
    assert_eq!(args.serving_files(), None);
    assert_eq!((args.max_connections.get(), args.watch_window_events.get()), (16_384, 100_000));
    assert_eq!(args.watch_window_bytes.get(), 256 << 20);
    assert_eq!((args.lease_quota_bytes.get(), args.reclaim_seconds), (512 << 20, 0));
    assert_eq!((args.log_format, args.verbosity), (LogFormat::Text, 0));
}

#[test]
fn verbosity_is_written_in_each_way_of_klog() {
    for words in [&["-v", "4"][..], &["-v=4"], &["-v4"], &["--v", "4"], &["--v=4"]] {
        assert_eq!(parse(words).expect("a command line").verbosity, 4, "{words:?}");
    }
}

#[test]
fn the_last_value_of_a_repeated_flag_counts_and_lists_grow() {
    let words = ["--storage=memory", "--log-format=text", "--storage=etcd", "--log-format=json"];
    let servers = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
    let lists = servers.map(|url| format!("--etcd-servers={url}"));
    let words: Vec<_> = words.into_iter().chain(lists.iter().map(String::as_str)).collect();
    let args = parse(&words).expect("a command line");
    assert_eq!((args.storage, args.log_format), (StorageKind::Etcd, LogFormat::Json));
    assert_eq!(args.etcd.etcd_servers, servers);
    assert!(parse(&["--stop-expires-watches"; 2]).expect("a command line").stop_expires_watches);
    let args = parse(&["inspect", "--data-dir=/nowhere/a", "--data-dir=/nowhere/b"]).expect("a command line");
    let Some(Command::Inspect(inspect)) = args.command else { panic!("no inspect") };
    assert_eq!(inspect.data_dir.as_deref(), Some(Path::new("/nowhere/b")));
}

#[test]
fn bytes_take_binary_suffixes() {
    for (text, bytes) in [("1", 1), ("1048576", 1 << 20), ("3KiB", 3 << 10), ("256MiB", 256 << 20), ("2GiB", 2 << 30)] {
        assert_eq!(parse_bytes(text).map(NonZeroUsize::get), Ok(bytes), "{text}");
    }
    for text in
        ["", "0", "0MiB", "-1", "+1", "1.5GiB", "1MB", "1M", "MiB", "KiBKiB", "1KiBiB", "1 MiB", "99999999999GiB", "é"]
    {
        assert!(parse_bytes(text).is_err(), "{text}");
    }
}

#[test]
fn the_insecure_port_is_on_loopback_for_any_bind_address() {
    let args = parse(&["--bind-address=::", "--secure-port=0", "--insecure-port=8080"]).expect("a command line");
    assert_eq!(args.secure_addr(), None);
    assert_eq!(args.insecure_addr(), Some("127.0.0.1:8080".parse().expect("an address")));
}

#[test]
fn conflicting_flags_are_refused() {
    assert!(wrong(&["--secure-port=0"]).contains("--insecure-port"));
    assert!(wrong(&["--insecure-port=8443"]).contains("both 8443"));
    assert!(wrong(&["--tls-cert-file=/dev/null"]).contains("--tls-private-key-file"));
    assert!(wrong(&["--tls-private-key-file=/dev/null"]).contains("--tls-cert-file"));
    assert!(wrong(&["--kubeconfig=/dev/null"]).contains("--requestheader-from-cluster"));
    assert!(parse(&["--kubeconfig=/dev/null", "--namespaces-from-cluster"]).is_ok());
    let publish = "--publish-endpoints=kube-system/leases";
    let published = ["--storage=etcd", "--etcd-servers=http://127.0.0.1:2379", publish];
    let endpoint = parse(&[&published[..], &["--advertise-address=10.0.0.1"]].concat()).expect("flags").endpoint();
    let address = "10.0.0.1:8443".parse().expect("an address");
    assert_eq!(endpoint, Some(ReplicaEndpoint { address, node: None }));
    assert!(wrong(&["--node-name=node-a"]).contains("--publish-endpoints"));
    for (node, is_name) in [("node-a.example", true), ("", false), ("Node", false), ("a/b", false)] {
        let flags = ["--advertise-address=10.0.0.1".to_owned(), format!("--node-name={node}")];
        let flags = flags.iter().map(String::as_str);
        let parsed = parse(&published.iter().copied().chain(flags).collect::<Vec<_>>());
        let named = parsed.ok().and_then(|args| args.endpoint()?.node);
        assert_eq!(named, is_name.then(|| node.into()), "{node:?}");
    }
    assert!(wrong(&[publish]).contains("--advertise-address"));
    assert!(wrong(&["--advertise-address=10.0.0.1"]).contains("--publish-endpoints"));
    assert!(wrong(&[publish, "--advertise-address=10.0.0.1"]).contains("--storage etcd"));
    assert!(wrong(&["--publish-endpoints=leases", "--advertise-address=10.0.0.1"]).contains("NAMESPACE/NAME"));
    for address in ["0.0.0.0", "127.0.0.1", "::", "::1", "169.254.0.1", "fe80::1", "224.0.0.1"] {
        let address = format!("--advertise-address={address}");
        assert!(
            wrong(&[&published[..], &[&address]].concat()).contains("an EndpointSlice cannot hold it"),
            "{address}"
        );
    }
    let ca = "--requestheader-client-ca-file";
    for rest in ["allowed-names", "username-headers", "group-headers", "uid-headers", "extra-headers-prefix"] {
        let flag = format!("--requestheader-{rest}=x");
        assert!(wrong(&[&flag]).contains(ca));
        assert!(wrong(&[&flag, "--requestheader-from-cluster"]).contains("--requestheader-from-cluster"));
        assert!(parse(&[&flag, &format!("{ca}=/dev/null")]).is_ok());
    }
    assert!(wrong(&["--client-ca-file=/nowhere/ca.crt"]).contains("--client-ca-file /nowhere/ca.crt: No such file"));
}

#[test]
fn storage_is_disk_by_default_and_its_flags_are_checked() {
    assert_eq!(parse(&[]).expect("defaults").storage, StorageKind::Disk);
    assert!(parse(&["--data-dir=/nowhere/data"]).is_ok());
    assert!(wrong(&["--data-dir=/nowhere/data", "--storage=memory"]).contains("--storage disk"));
    assert!(wrong(&["--data-dir="]).contains("--data-dir"));
    assert!(wrong(&["--data-dir=/dev/null"]).contains("--data-dir /dev/null: not a folder"));
    assert!(wrong(&["--storage=tape"]).contains("[possible values: disk, etcd, memory]"));
    let inspect = parse(&["inspect", "--data-dir=/nowhere/data", "--changes"]).expect("a command line");
    assert!(matches!(inspect.command, Some(Command::Inspect(InspectArgs { data_dir: Some(_), changes: true, .. }))));
    assert!(wrong(&["inspect", "--data-dir=/dev/null"]).contains("not a folder"));
    assert!(wrong(&["inspect", "--storage=disk"]).contains("--storage"));
    assert!(wrong(&["inspect", "--data-dir=/x", "--etcd-servers=http://127.0.0.1:1"]).contains("cannot be used with"));
    assert!(wrong(&["inspect", "--etcd-cafile=/dev/null"]).contains("need --etcd-servers"));
}

#[test]
fn a_migration_needs_two_different_stores() {
    let [command, etcd] = ["migrate-storage", "--etcd-servers=http://127.0.0.1:1"];
    let both = ["--from=disk", "--to=etcd"];
    assert!(parse(&[command, both[0], both[1], etcd]).is_ok());
    assert!(wrong(&[command, both[0], etcd]).contains("--to"));
    assert!(wrong(&[command, both[0], both[1]]).contains("needs --etcd-servers"));
    assert!(wrong(&[command, "--from=disk", "--to=disk", etcd]).contains("the same"));
    assert!(wrong(&[command, "--from=memory", "--to=disk", etcd]).contains("possible values: disk, etcd"));
    assert!(wrong(&[command, both[0], both[1], etcd, "--data-dir=/dev/null"]).contains("not a folder"));
}

#[test]
fn cluster_etcd_flags_are_allowed_with_any_storage() {
    assert_eq!(parse(&[]).expect("defaults").cluster_etcd.config(), None);
    let [servers, ca] = ["--cluster-etcd-servers=https://10.0.0.1:2379", "--cluster-etcd-cafile=/dev/null"];
    let config = parse(&[servers, ca]).expect("a command line").cluster_etcd.config().expect("an etcd");
    assert_eq!((config.endpoints.len(), config.prefix.as_str()), (1, "/registry"));
    assert!(wrong(&[servers]).contains("needs --cluster-etcd-cafile"));
    assert!(wrong(&[ca]).contains("--cluster-etcd-servers"));
    assert!(wrong(&["--cluster-etcd-servers=10.0.0.1"]).contains("not a URL such as"));
    assert!(wrong(&[servers, ca, "--cluster-etcd-certfile=/dev/null"]).contains("--cluster-etcd-keyfile"));
    assert!(wrong(&[servers, ca, "--cluster-etcd-prefix=registry"]).contains("must begin with /"));
}

#[test]
fn a_switch_needs_a_kubeconfig_and_endpoints() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("apiservice.yaml");
    let manifest = "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: \
                    v1.coordination.k8s.io}\nspec:\n  groupPriorityMinimum: 16500\n  versionPriority: 15\n  \
                    caBundle: Y2E=\n  service: {name: a, namespace: b}\n";
    fs::write(&file, manifest).expect("written");
    let service = format!("--apiservice={}", file.display());
    let [kubeconfig, endpoint] = ["--kubeconfig=/dev/null", "--endpoint=https://10.0.0.1:8443"];
    assert!(parse(&["takeover", kubeconfig, endpoint, endpoint, &service, "--dry-run"]).is_ok());
    assert!(parse(&["rollback", kubeconfig, endpoint, &service]).is_ok());
    assert!(parse(&["rollback", kubeconfig, endpoint, "--kube-apiserver=https://[::1]:6443/"]).is_ok());
    assert!(wrong(&["takeover", kubeconfig, endpoint]).contains("--apiservice"));
    assert!(wrong(&["rollback", kubeconfig]).contains("--endpoint"));
    assert!(wrong(&["rollback", endpoint]).contains("--kubeconfig"));
    for url in ["http://10.0.0.1:8443", "10.0.0.1:8443", "https://", "https://10.0.0.1/api"] {
        assert!(wrong(&["rollback", kubeconfig, "--endpoint", url]).contains("not a URL such as"), "{url}");
    }
    for command in ["takeover", "rollback"] {
        let with = |file| wrong(&[command, kubeconfig, endpoint, file]);
        assert!(with("--apiservice=/nowhere").starts_with("--apiservice /nowhere: No such file"), "{command}");
        assert!(with("--apiservice=/dev/null").contains("no APIService v1.coordination.k8s.io in it"), "{command}");
    }
}

#[test]
fn feature_gates_are_off_unless_switched_on() {
    let is_on = |words: &[&str]| parse(words).expect("a command line").features().sharded_list_and_watch;
    assert!(!is_on(&[]) && !is_on(&["--feature-gates="]));
    assert!(is_on(&["--feature-gates=ShardedListAndWatch=true"]));
    assert!(!is_on(&["--feature-gates", "ShardedListAndWatch=true,ShardedListAndWatch=false"]));
    assert!(is_on(&["--feature-gates=ShardedListAndWatch=false", "--feature-gates=ShardedListAndWatch=true"]));
}

#[test]
fn only_known_formats_can_be_written() {
    assert_eq!(parse(&[]).expect("defaults").journal_format, FORMAT);
    for format in [FORMAT_WRITTEN_MIN - 1, FORMAT + 1] {
        assert!(wrong(&["--journal-format", &format.to_string()]).contains("--journal-format"), "{format}");
    }
}

#[test]
fn etcd_flags_are_parsed_and_checked() {
    let etcd = "--storage=etcd";
    assert!(wrong(&[etcd]).contains("--etcd-servers"));
    assert!(wrong(&["--etcd-servers=http://127.0.0.1:2379"]).contains("--storage etcd"));
    let args = parse(&[etcd, "--etcd-servers=http://127.0.0.1:2379,http://[::1]:2379"]).expect("a command line");
    assert_eq!(args.etcd.etcd_servers, ["http://127.0.0.1:2379", "http://[::1]:2379"]);
    assert_eq!(args.etcd.etcd_prefix, "/coordination-apiserver");
    for url in ["127.0.0.1:2379", "http://127.0.0.1", "http://:1", "http://a:b", "ftp://a:1", "http://a:1/x", ""] {
        assert!(wrong(&[etcd, &format!("--etcd-servers={url}")]).contains("not a URL"), "{url}");
    }
    assert!(wrong(&[etcd, "--etcd-servers=https://127.0.0.1:2379"]).contains("needs --etcd-cafile"));
    let servers = "--etcd-servers=http://127.0.0.1:2379";
    for prefix in ["", "/", "//", "leases"] {
        assert!(wrong(&[etcd, servers, &format!("--etcd-prefix={prefix}")]).contains("--etcd-prefix"), "{prefix}");
    }
    assert!(wrong(&[etcd, servers, "--etcd-certfile=/dev/null"]).contains("--etcd-keyfile"));
    assert!(wrong(&[etcd, servers, "--etcd-cafile=/nowhere/ca"]).contains("--etcd-cafile /nowhere/ca: No such"));
    assert!(wrong(&[etcd, servers, "--data-dir=/nowhere/data"]).contains("--storage disk"));
    assert!(wrong(&[etcd, servers, "--etcd-compaction-seconds=59"]).contains("at least 60"));
    assert!(wrong(&["--etcd-compaction-seconds=60"]).contains("--storage etcd"));
    let config = parse(&[etcd, servers]).expect("a command line").etcd_config();
    assert_eq!((config.journal_bytes_max, config.store_bytes_max, config.compaction_interval), (256 << 20, None, None));
}

#[test]
fn request_header_flags_are_lists_with_defaults() {
    let ca = "--requestheader-client-ca-file=/dev/null";
    let FrontProxySource::File(_, usual) = parse(&[ca]).expect("a command line").front_proxy() else {
        panic!("no file")
    };
    assert_eq!(usual, FrontProxy::default());
    let words = [
        ca,
        "--requestheader-allowed-names=a,b",
        "--requestheader-allowed-names=c",
        "--requestheader-group-headers=X-A, X-B",
    ];
    let FrontProxySource::File(_, own) = parse(&words).expect("a command line").front_proxy() else {
        panic!("no file")
    };
    assert_eq!(own.allowed_names, ["a", "b", "c"]);
    assert_eq!(own.header_names.group, ["X-A", "X-B"]);
    assert_eq!(own.header_names.username, ["X-Remote-User"]);
    // An empty list, which a script may pass, allows any name.
    let any = parse(&[ca, "--requestheader-allowed-names="]).expect("a command line").front_proxy();
    assert!(matches!(any, FrontProxySource::File(_, front_proxy) if front_proxy.allowed_names.is_empty()));
    for value in [",", ",,"] {
        let flag = format!("--requestheader-allowed-names={value}");
        assert!(wrong(&[ca, &flag]).contains("--requestheader-allowed-names"), "{value}");
    }
    for value in ["", "X-A,,X-B", "X A", "X:"] {
        let flag = format!("--requestheader-username-headers={value}");
        assert!(wrong(&[ca, &flag]).contains("--requestheader-username-headers"), "{value}");
    }
}

#[test]
fn the_front_proxy_comes_from_the_cluster_or_from_a_file() {
    let cluster = parse(&["--requestheader-from-cluster"]).expect("a command line").front_proxy();
    assert!(matches!(cluster, FrontProxySource::Cluster { with_clients: true }));
    let cluster = parse(&["--requestheader-from-cluster", "--client-ca-file=/dev/null"]).expect("a command line");
    assert!(matches!(cluster.front_proxy(), FrontProxySource::Cluster { with_clients: false }));
    assert!(matches!(parse(&[]).expect("a command line").front_proxy(), FrontProxySource::None));
    for flag in ["--requestheader-client-ca-file=/dev/null", "--requestheader-allowed-names=a"] {
        assert!(wrong(&["--requestheader-from-cluster", flag]).contains("--requestheader-from-cluster"), "{flag}");
    }
    let words = ["--requestheader-from-cluster", "--secure-port=0", "--insecure-port=8080"];
    assert!(wrong(&words).contains("--requestheader-from-cluster"));
    assert!(
        wrong(&["--namespaces-from-cluster", "--kubeconfig=/nowhere/x"])
            .contains("--kubeconfig /nowhere/x: No such file")
    );
}

#[test]
fn an_error_message_is_one_line_for_any_input() {
    for words in [&["--log-format=y\nx\u{1b}[31m"][..], &["--sekure-port=1"], &["stray\r\n"], &["-x"]] {
        let line = wrong(words);
        assert!(!line.chars().any(char::is_control) && !line.contains("Usage"), "{line}");
    }
    assert!(wrong(&["--log-format=xml"]).contains("[possible values: text, json]"));
    assert!(wrong(&["--secure-port=70000"]).contains("70000"));
}

#[test]
fn help_and_version_are_not_errors() {
    let Err(Stop::Information(help)) = parse(&["--help"]) else { panic!("no help") };
    for argument in Args::command().get_arguments() {
        let flag = argument.get_long().expect("every flag has a long name");
        assert!(help.contains(&format!("--{flag}")), "{flag}");
    }
    assert!(help.matches("[default: ").count() == 25, "{help}");
    let Err(Stop::Information(version)) = parse(&["--version"]) else { panic!("no version") };
    assert_eq!(version.trim(), format!("{PROGRAM} {}", BuildInfo::version()));
}
