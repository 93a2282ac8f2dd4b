//! The server keeps running if the wall clock jumps to before 1970. To move the clock, the test preloads a small
//! library in C into the server's process.

#![cfg(target_os = "linux")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use support::client::Client;
use support::lease;
use support::process::Process;
use support::stream::Endpoint;
use support::tls::{AUTHORITY, admin_client_config, anonymous_client_config};

/// Source of a library that moves the clock back by 80 years while a file exists. The environment variable
/// `BEFORE_1970` names the file.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *time) {
    int status = syscall(SYS_clock_gettime, id, time);
    const char *file = getenv("BEFORE_1970");
    if (status == 0 && id == CLOCK_REALTIME && file && access(file, F_OK) == 0) time->tv_sec -= 80L * 365 * 86400;
    return status;
}
"#;

fn compile_shim(folder: &Path) -> OsString {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    fs::write(&source, SHIM).unwrap();
    let done = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(done.is_ok_and(|status| status.success()), "the C compiler makes a library");
    library.into_os_string()
}

#[test]
fn a_clock_before_1970_does_not_stop_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    AUTHORITY.write_serving(folder.path());
    fs::write(path("ca.crt"), AUTHORITY.pem()).unwrap();
    let mut environment: Vec<OsString> = vec!["env".into(), "LD_PRELOAD=".into(), "BEFORE_1970=".into()];
    environment[1].push(compile_shim(folder.path()));
    environment[2].push(path("jumped"));
    let flags = [("tls-cert-file", "tls.crt"), ("tls-private-key-file", "tls.key"), ("client-ca-file", "ca.crt")];
    let flags = flags.map(|(flag, file)| format!("--{flag}={}", path(file).display()));
    let mut process = Process::start_under(&environment, &flags.each_ref().map(String::as_str), 256);
    let endpoint = |config| Endpoint { address: process.secure_address(), tls: Some(config) };
    let (admin, anybody) = (endpoint(admin_client_config()), endpoint(anonymous_client_config()));
    let mut open = Client::open(&admin);
    open.call("POST", &lease::collection("n"), &lease::new("a")).expect_status(201, "before the jump");

    fs::write(path("jumped"), "").unwrap();
    // TLS handshakes read the wall clock, with a client certificate and without.
    for _ in 0..3 {
        let answer = Client::open(&anybody).call("GET", "/healthz", "").expect_status(200, "without a certificate");
        let epoch = "Thu, 01 Jan 1970 00:00:00 GMT";
        assert_eq!(answer.head.field("date"), Some(epoch), "a clock before the epoch counts as the epoch");
        let mut client = Client::open(&admin);
        let sent = client.try_send(&support::client::request("GET", "/healthz", ""));
        // By the moved clock, the client certificate is not valid yet, so the handshake may fail.
        let _refused = sent.and_then(|()| client.try_recv("GET"));
    }
    assert!(process.answers() && process.is_running(), "the process goes on");

    fs::remove_file(path("jumped")).unwrap();
    let mut client = Client::open(&admin);
    client.call("GET", &lease::path("n", "a"), "").expect_status(200, "after the jump");
}
