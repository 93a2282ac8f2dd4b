//! One operation of a client on one connection: builds the request and interprets the response.

use crate::history::{Action, Outcome, Space};
use crate::http::{Answer, Connection, is_malformed};
use crate::object;
use std::io;

/// Sends the request of an operation. Returns the outcome, and whether the connection can be used again. For a response
/// that no correct server sends, returns a description instead of the outcome.
///
/// # Errors
/// If the connection was lost.
pub(crate) fn perform(
    connection: &mut Connection,
    client: u32,
    id: u64,
    action: Action,
) -> io::Result<(Result<Outcome, String>, bool)> {
    const JSON: &str = "application/json";
    const MERGE: &str = "application/merge-patch+json";
    let one = action.key().map(|key| format!("{}/{}", leases(Some(key.space)), key.name())).unwrap_or_default();
    let (method, path, media_type, body) = match action {
        Action::Create(key) => ("POST", leases(Some(key.space)), JSON, object::body(key, client, id, None)),
        Action::Put { key, uid, from } => ("PUT", one, JSON, object::body(key, client, id, Some((uid, from)))),
        Action::Patch(_) => ("PATCH", one, MERGE, object::patch(id)),
        Action::Delete { uid, from, .. } => ("DELETE", one, JSON, object::delete_options(uid, from)),
        Action::DeleteCollection(space) => ("DELETE", leases(Some(space)), "", String::new()),
        Action::Get(_) => ("GET", one, "", String::new()),
        Action::List(space) => ("GET", leases(space), "", String::new()),
    };
    let (answer, keeps) = match connection.ask(method, &path, media_type, &body) {
        Err(e) if is_malformed(&e) => return Ok((Err(format!("{action:?}: {e}")), false)),
        asked => asked?,
    };
    Ok((outcome(action, &answer), keeps))
}

/// Returns the path of the Leases of one namespace, or of all namespaces.
pub(crate) fn leases(space: Option<Space>) -> String {
    match space {
        Some(space) => format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", space.name()),
        None => "/apis/coordination.k8s.io/v1/leases".to_owned(),
    }
}

/// Interprets a response.
///
/// # Errors
/// A description of the response, if no correct server sends it.
fn outcome(action: Action, answer: &Answer) -> Result<Outcome, String> {
    let wrong = || format!("{action:?}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    Ok(match answer.status {
        200..=202 => match action {
            Action::Delete { .. } | Action::DeleteCollection(_) => Outcome::Deleted,
            Action::List(_) => {
                let (version, items) = object::list(&answer.body)?;
                Outcome::List { version, items }
            }
            _ => Outcome::Lease(object::lease(&answer.body)?),
        },
        404 => Outcome::NotFound,
        409 => Outcome::Conflict,
        // The server was busy, not ready or full: the request had no effect.
        status @ (429 | 503 | 507) => Outcome::Refused(status),
        // The server had an error, so the request may have taken effect.
        500..=599 => Outcome::Unknown,
        _ => return Err(wrong()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::serve;
    use std::time::Duration;

    /// Sends the request for a list to a server that answers with these bytes and closes the connection.
    fn list_of(bytes: &[u8]) -> io::Result<(Result<Outcome, String>, bool)> {
        let (port, server) = serve(vec![bytes.to_vec()]);
        let mut connection = Connection::open(port, Duration::from_secs(10)).expect("a connection");
        let done = perform(&mut connection, 0, 0, Action::List(None));
        server.join().expect("a request was answered");
        done
    }

    #[test]
    fn a_malformed_response_is_reported_and_a_lost_connection_is_an_error() {
        let (outcome, keeps) = list_of(b"not HTTP\r\n\r\n").expect("no lost connection");
        assert!(outcome.expect_err("a complaint").contains("malformed response") && !keeps);
        assert!(list_of(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{").is_err());
    }
}
