//! The log of the holders of locks. A line names the old holder, the new holder and the client that made the change.

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
    /// Number of lines omitted since the last logged change of a holder.
    unlogged: u64,
}

impl HolderLog {
    /// Logs an applied change of a holder, unless the limit for this second is reached.
    pub(super) fn log(&mut self, change: &HolderChange, now_ms: u64) {
        // The holder of a node's Lease is always the node.
        if change.namespace == NODE_LEASE_NAMESPACE {
            return;
        }
        if !self.count_line(now_ms) {
            return;
        }
        let HolderChange { namespace, name, from, to, user, user_agent } = change;
        let [namespace, name, from, to] = [namespace, name, from, to].map(CompactString::as_str);
        let [user, user_agent] = [user, user_agent].map(CompactString::as_str);
        let unlogged = match std::mem::take(&mut self.unlogged) {
            0 => None,
            count => Some(count),
        };
        tracing::info!(namespace, name, from, to, user, user_agent, unlogged, "holder of a Lease changed");
    }

    /// Logs a request that deletes a collection of Leases, unless the limit for this second is reached.
    pub(super) fn log_collection(&mut self, namespace: &str, user: &str, user_agent: &[u8], now_ms: u64) {
        if self.count_line(now_ms) {
            let user_agent = String::from_utf8_lossy(user_agent);
            let [namespace, user, user_agent] = [namespace, user, &user_agent].map(cut);
            tracing::info!(namespace, user, user_agent, "deletion of a collection of Leases requested");
        }
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
