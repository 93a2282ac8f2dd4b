//! Logs each change of a Lease's holder, except in the Leases of nodes. A line names the old holder, the new holder and
//! the client that made the change.

use crate::auth::Caller;
use crate::resource::NODE_LEASE_NAMESPACE;
use crate::table::holder::{HolderChange, cut};
use compact_str::CompactString;

/// The limit on logged lines. Without it, a client could fill the log by changing holders.
#[derive(Debug, Default)]
pub(super) struct HolderLog {
    /// Start of the second in which `lines` are counted, in ms.
    second_ms: u64,
    /// Number of lines logged in the current second.
    lines: u64,
    /// Number of lines omitted since the last logged line.
    unlogged: u64,
}

impl HolderLog {
    /// Logs an applied change of a holder, unless the limit for this second is reached.
    pub(super) fn log(&mut self, change: &HolderChange, now_ms: u64) {
        // Only the node itself holds a node's Lease, so a line about its holder would tell nothing.
        if change.namespace == NODE_LEASE_NAMESPACE {
            return;
        }
        if !self.count_line(now_ms) {
            return;
        }
        let HolderChange { namespace, name, from, to, user, user_agent } = change;
        let [namespace, name, from, to] = [namespace, name, from, to].map(CompactString::as_str);
        let [user, user_agent] = [user, user_agent].map(CompactString::as_str);
        let unlogged = self.take_unlogged();
        tracing::info!(namespace, name, from, to, user, user_agent, unlogged, "holder of a Lease changed");
    }

    /// Logs a request that deletes a collection of Leases, unless the limit for this second is reached.
    pub(super) fn log_collection(&mut self, namespace: &str, user: &str, user_agent: &[u8], now_ms: u64) {
        if self.count_line(now_ms) {
            let user_agent = String::from_utf8_lossy(user_agent);
            let [namespace, user, user_agent] = [namespace, user, &user_agent].map(cut);
            let unlogged = self.take_unlogged();
            tracing::info!(namespace, user, user_agent, unlogged, "deletion of a collection of Leases requested");
        }
    }

    /// Returns and resets the number of omitted lines, which the next logged line contains; `None` if no line was
    /// omitted.
    fn take_unlogged(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.unlogged)).filter(|&count| count > 0)
    }

    /// Counts a line of the log in the current second. Returns whether the line may be logged.
    fn count_line(&mut self, now_ms: u64) -> bool {
        if now_ms.saturating_sub(self.second_ms) >= 1000 {
            (self.second_ms, self.lines) = (now_ms, 0);
        }
        let may_log = self.lines < LINES_PER_SECOND_MAX;
        *(if may_log { &mut self.lines } else { &mut self.unlogged }) += 1;
        may_log
    }
}

/// Returns the user name of the caller, as in kube-apiserver's audit log.
pub(super) fn user_name(caller: &Caller) -> &str {
    match caller {
        Caller::Anonymous => "system:anonymous",
        // kube-apiserver used this name for requests to its former insecure port.
        Caller::Insecure => "system:unsecured",
        Caller::Proxied(identity) | Caller::User(identity) => &identity.user,
    }
}

/// Maximum number of lines logged in one second.
const LINES_PER_SECOND_MAX: u64 = 50;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tls::identity::Identity;
    use std::io;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};

    /// The output of the log.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no writer panics").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines that a function logs.
    pub(crate) fn lines_of(log: impl FnOnce()) -> Vec<String> {
        let output = Output::default();
        let writer = output.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).without_time().finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = output.0.lock().expect("no writer panics").clone();
        String::from_utf8(bytes).expect("text").lines().map(str::to_owned).collect()
    }

    fn change_in(namespace: &str) -> HolderChange {
        HolderChange {
            namespace: namespace.into(),
            name: "l".into(),
            from: "a".into(),
            to: "b".into(),
            user: "u".into(),
            user_agent: "m/1".into(),
        }
    }

    /// Maximum number of lines in one second, as docs/monitoring.md says.
    const MAX: usize = 50;

    #[test]
    fn a_proxied_request_is_logged_with_its_own_user() {
        let identity = |user: &str| Rc::new(Identity { user: user.into(), groups: vec!["system:masters".into()] });
        for (caller, user) in [
            // kube-apiserver passes on the user's name in a header, and has its own name in its certificate.
            (Caller::Proxied(identity("system:kube-scheduler")), "system:kube-scheduler"),
            (Caller::User(identity("system:node:n1")), "system:node:n1"),
            (Caller::Insecure, "system:unsecured"),
            (Caller::Anonymous, "system:anonymous"),
        ] {
            assert_eq!(user_name(&caller), user, "{caller:?}");
        }
    }

    #[test]
    fn a_line_names_the_holders_and_their_author() {
        let lines = lines_of(|| HolderLog::default().log(&change_in("n"), 0));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let (_, fields) = line.split_once(": ").expect("a target");
        let expected = "holder of a Lease changed namespace=\"n\" name=\"l\" from=\"a\" to=\"b\" user=\"u\" \
                        user_agent=\"m/1\"";
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_line_counts_the_lines_dropped_in_the_second_before() {
        let lines = lines_of(|| {
            let mut log = HolderLog::default();
            for _ in 0..MAX + 9 {
                log.log(&change_in("n"), 5_999);
            }
            log.log_collection("n", "u", b"m/1", 6_998);
            for _ in 0..MAX {
                log.log(&change_in("n"), 6_999);
            }
        });
        assert_eq!(lines.len(), 2 * MAX);
        let unlogged: Vec<_> = lines.iter().enumerate().filter(|(_, line)| line.contains("unlogged")).collect();
        let [(MAX, line)] = unlogged[..] else { panic!("{unlogged:?}") };
        assert!(line.ends_with(" unlogged=10"), "{line}");
    }

    #[test]
    fn a_collection_deletion_line_counts_dropped_lines() {
        let lines = lines_of(|| {
            let mut log = HolderLog::default();
            for now_ms in [0, 1_000, 2_000] {
                for _ in 0..MAX + 1 {
                    log.log_collection("n", "u", b"m/1", now_ms);
                }
            }
        });
        assert_eq!(lines.len(), 3 * MAX);
        for (at, line) in lines.iter().enumerate() {
            let (_, fields) = line.split_once(": ").expect("a target");
            let words = "deletion of a collection of Leases requested namespace=\"n\" user=\"u\" user_agent=\"m/1\"";
            let unlogged = if at == MAX || at == 2 * MAX { " unlogged=1" } else { "" };
            assert_eq!(fields, format!("{words}{unlogged}"), "line {at}");
        }
    }

    #[test]
    fn changes_of_node_leases_are_neither_logged_nor_counted() {
        let lines = lines_of(|| {
            let mut log = HolderLog::default();
            for _ in 0..=MAX {
                log.log(&change_in(NODE_LEASE_NAMESPACE), 0);
            }
            log.log(&change_in("n"), 0);
        });
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.contains("namespace=\"n\"") && !line.contains("unlogged"), "{line}");
    }
}
