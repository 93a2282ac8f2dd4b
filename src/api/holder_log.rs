//! The log of holder changes: who took a lock from whom.

use crate::auth::Caller;
use crate::resource::NODE_LEASE_NAMESPACE;
use crate::table::holder::HolderChange;
use compact_str::CompactString;

/// Limits the logged lines. A client may change holders as fast as it can write.
#[derive(Debug, Default)]
pub(super) struct HolderLog {
    /// When the current second began, in ms.
    second_ms: u64,
    /// Lines logged in that second.
    lines: u32,
    /// Changes since the last line that were not logged.
    unlogged: u64,
}

impl HolderLog {
    /// Logs an applied change, unless the limit of this second is reached.
    pub(super) fn log(&mut self, change: &HolderChange, now_ms: u64) {
        // The holder of a node's Lease is always the node.
        if change.namespace == NODE_LEASE_NAMESPACE {
            return;
        }
        if now_ms.saturating_sub(self.second_ms) >= 1000 {
            (self.second_ms, self.lines) = (now_ms, 0);
        }
        if self.lines >= LINES_PER_SECOND_MAX {
            self.unlogged += 1;
            return;
        }
        self.lines += 1;
        let HolderChange { namespace, name, from, to, user, user_agent } = change;
        let [namespace, name, from, to] = [namespace, name, from, to].map(CompactString::as_str);
        let [user, user_agent] = [user, user_agent].map(CompactString::as_str);
        let unlogged = match std::mem::take(&mut self.unlogged) {
            0 => None,
            count => Some(count),
        };
        tracing::info!(namespace, name, from, to, user, user_agent, unlogged, "holder of a Lease changed");
    }
}

/// Returns the name of the caller's user, for the log.
pub(super) fn user_name(caller: &Caller) -> &str {
    match caller {
        Caller::Anonymous => "system:anonymous",
        // The user of kube-apiserver's former insecure port.
        Caller::Insecure => "system:unsecured",
        Caller::Proxied(identity) | Caller::User(identity) => &identity.user,
    }
}

/// Most lines logged in a second.
const LINES_PER_SECOND_MAX: u32 = 50;
