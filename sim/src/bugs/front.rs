//! Deliberate bugs in the API's rules: a filter between network and server changes requests and responses.

use super::Bug;
use crate::kernel::LinkId;
use coordination_apiserver::table::Table;
use memchr::memmem;
use std::collections::BTreeMap;

/// A filter between the network and one server. It changes requests or responses, as if the server had the bug.
#[derive(Debug)]
pub struct Front {
    bug: Option<Bug>,
    /// Last request of each connection.
    requests: BTreeMap<LinkId, Vec<u8>>,
    /// Last response with status 200 to each GET, by the request line. [`Bug::StaleRead`] sometimes sends it again in
    /// place of a newer one.
    answers: BTreeMap<Vec<u8>, Vec<u8>>,
    count: u64,
}

/// One in this many events or reads is wrong.
const WRONG_ONE_IN: u64 = 15;

impl Front {
    /// Creates the filter of a server with this bug.
    #[must_use]
    pub fn new(bug: Option<Bug>) -> Self {
        Self { bug, requests: BTreeMap::new(), answers: BTreeMap::new(), count: 0 }
    }

    /// Returns the request that the server receives in place of `bytes`, changed so that the server seems to have the
    /// bug. Most requests are unchanged. For the bugs that change responses and need the request, stores a copy for
    /// [`response`](Self::response).
    pub fn request(&mut self, link: LinkId, mut bytes: Vec<u8>, table: &Table) -> Vec<u8> {
        match self.bug {
            Some(Bug::DryRunDone) => replace(&mut bytes, b"?dryRun=All", b""),
            Some(Bug::VersionNotCompared) if bytes.starts_with(b"PUT") => {
                if let Some(version) = newest(&bytes, table) {
                    set_number(&mut bytes, b"\"resourceVersion\":\"", version);
                }
            }
            Some(Bug::WindowNotFilled) if memmem::find(&bytes, b"watch=1").is_some() => {
                set_number(&mut bytes, b"&resourceVersion=", table.version().0);
            }
            Some(Bug::ConflictAsSuccess | Bug::StaleRead) => {
                self.requests.insert(link, bytes.clone());
            }
            _ => {}
        }
        bytes
    }

    /// Changes the server's output before it is sent to the client, so that the server seems to have the bug.
    pub fn response(&mut self, link: LinkId, output: &mut Vec<u8>) {
        match self.bug {
            Some(Bug::EventLost) => {
                if let Some(at) = memmem::find(output, b"\"type\":\"MODIFIED\"") {
                    self.count += 1;
                    if self.count.is_multiple_of(WRONG_ONE_IN) {
                        output[at + 8..at + 16].copy_from_slice(b"BOOKMARK");
                    }
                }
            }
            Some(Bug::ConflictAsSuccess) if output.starts_with(b"HTTP/1.1 409") => {
                let Some(request) = self.requests.get(&link).filter(|request| request.starts_with(b"PUT")) else {
                    return;
                };
                let Some(body) = memmem::find(request, b"\r\n\r\n").map(|end| &request[end + 4..]) else { return };
                if body.ends_with(b"}") && memmem::find(body, b"\"resourceVersion\"").is_some() {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    *output = [head.as_bytes(), body].concat();
                }
            }
            Some(Bug::SpaceDenied) if output.starts_with(b"HTTP/1.1 201") => {
                *output = b"HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n".to_vec();
            }
            Some(Bug::StaleRead) if output.starts_with(b"HTTP/1.1 200") => {
                let Some(request) = self.requests.remove(&link).filter(|request| request.starts_with(b"GET")) else {
                    return;
                };
                let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default().to_vec();
                self.count += 1;
                match self.answers.get(&line) {
                    Some(old) if self.count.is_multiple_of(WRONG_ONE_IN) => output.clone_from(old),
                    _ => {
                        self.answers.insert(line, output.clone());
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns the current resourceVersion of the Lease in the path of a request.
fn newest(request: &[u8], table: &Table) -> Option<u64> {
    let path = str::from_utf8(request.get(..memmem::find(request, b" HTTP/")?)?).ok()?;
    let path = path.split_once(' ')?.1.split('?').next()?;
    let mut parts = path.rsplit('/');
    let (name, _, namespace) = (parts.next()?, parts.next()?, parts.next()?);
    table.find(namespace, name).map(|(_, object)| object.version.0)
}

/// Overwrites the digits after `before` with `number`. Does nothing if there are fewer digits than `number` has.
fn set_number(bytes: &mut [u8], before: &[u8], number: u64) {
    let Some(start) = memmem::find(bytes, before).map(|at| at + before.len()) else { return };
    let digits = number.to_string();
    if let Some(place) = bytes.get_mut(start..start + digits.len())
        && place.iter().all(u8::is_ascii_digit)
    {
        place.copy_from_slice(digits.as_bytes());
    }
}

fn replace(bytes: &mut Vec<u8>, what: &[u8], with: &[u8]) {
    if let Some(at) = memmem::find(bytes, what) {
        bytes.splice(at..at + what.len(), with.iter().copied());
    }
}
