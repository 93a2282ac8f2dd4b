//! The supported releases of etcd.
//!
//! The oldest supported release is etcd 3.5.13. kube-apiserver requires this release for consistent reads from its
//! cache: in older releases, a progress notification of a watch could precede earlier events (etcd issue 15220). This
//! server needs no progress notifications, but supports no older releases than kube-apiserver.

use super::client::{Client, Failure};
use super::messages::StatusResponse;
use crate::engine::EngineError;
use std::io;

/// The oldest supported release.
const OLDEST: [u64; 3] = [3, 5, 13];

/// Checks the release of every member that answers. Waits until at least one member answers.
///
/// # Errors
/// A member has an older release, or refuses the request.
pub(super) async fn check(client: &Client) -> Result<(), EngineError> {
    let config = client.config();
    for attempt in 0.. {
        let mut has_answer = false;
        for (member, url) in config.endpoints.iter().enumerate() {
            match client.status(member).await {
                Ok(status) if is_new_enough(&status.version) => has_answer = true,
                Ok(StatusResponse { version, .. }) => {
                    let [major, minor, patch] = OLDEST;
                    let cause = format!("{url} runs etcd {version}; {major}.{minor}.{patch} or newer is needed");
                    return Err(EngineError::Io { what: config.store(), cause: io::Error::other(cause) });
                }
                Err(Failure::Unknown(_)) => {}
                Err(failure) => return Err(failure.into_error(config)),
            }
        }
        if has_answer {
            break;
        }
        if attempt == 0 {
            tracing::warn!(reason = client.last_failure(), "no member of etcd answers; trying again");
        }
        client.pause(attempt).await;
    }
    Ok(())
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = [0; 3];
    let release = version.split(['-', '+']).next().unwrap_or_default();
    for (place, number) in numbers.iter_mut().zip(release.split('.')) {
        *place = number.parse().unwrap_or(0);
    }
    numbers >= OLDEST
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for version in ["3.5.13", "3.5.21", "3.6.0", "3.6.4", "3.7.0-rc.1", "4.0.0"] {
            assert!(is_new_enough(version), "{version}");
        }
        for version in ["3.5.12", "3.5.0", "3.4.37", "3.5", "", "x"] {
            assert!(!is_new_enough(version), "{version}");
        }
    }
}
