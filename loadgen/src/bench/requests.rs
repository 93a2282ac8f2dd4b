//! The encoding of the requests of a bench: method, path and body.

use super::lane::{Ask, Tag};
use super::lease::Leases;
use crate::http::Request;
use crate::node;

/// Writes requests into buffers that are reused.
#[derive(Debug)]
pub(super) struct Requests {
    /// Path of all Leases of the namespace.
    pub(super) collection: String,
    path: String,
    body: Vec<u8>,
}

impl Requests {
    /// Creates a writer of requests for Leases in this namespace.
    pub(super) fn new(namespace: &str) -> Self {
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Self { collection, path: String::new(), body: Vec::new() }
    }

    /// Encodes the request of `tag`. `now_us` is the present time, in microseconds since the Unix epoch.
    pub(super) fn write<'r>(&'r mut self, tag: Tag, leases: &'r mut Leases, now_us: u64) -> Request<'r> {
        self.path.clear();
        self.path.push_str(&self.collection);
        if tag.ask == Ask::Version {
            self.path.push_str("?limit=1");
        } else if !matches!(tag.ask, Ask::Post | Ask::List | Ask::DeleteCollection) {
            self.path.push('/');
            node::push_name(&mut self.path, tag.lease);
        }
        let (method, body) = match tag.ask {
            Ask::Get | Ask::Read | Ask::List | Ask::Version => ("GET", None),
            Ask::DeleteCollection => ("DELETE", None),
            Ask::Put => ("PUT", Some(leases.renewed(tag.lease, now_us))),
            Ask::Post => {
                self.body.clear();
                leases.write_new(&mut self.body, &node::name_of(tag.lease), now_us);
                ("POST", Some(self.body.as_slice()))
            }
        };
        Request { method, target: &self.path, body }
    }
}
