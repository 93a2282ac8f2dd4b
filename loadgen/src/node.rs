//! A simulated node: what the node knows of its Lease, and the next step of its renewal, as in a kubelet's lease
//! controller.
//!
//! This module owns the state of a node and the steps of its renewal. It uses neither connections, the clock nor the
//! checks. A node has at most one write in flight. A million nodes must fit in memory, so each node stores its Lease as
//! [`Fields`]. The [`fleet`](crate::fleet), which owns all nodes, stores the rest of their Leases.
//!
//! ```text
//!            due                404              201
//!   no Lease ───▶ GET ─────────────────▶ POST ─────────▶ done
//!                 ▲ │ 200                 ▲ │ 409
//!             409 │ ▼                 404 │ └──▶ GET
//!   Lease   ───▶ PUT ─────────────────────┘
//!     due         └─── 200 ───▶ done                 anything else: the same again, up to five times in all
//! ```

use crate::object::Fields;

/// A node's state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// Fields of the node's Lease in the last response to a step of a renewal. The version is 0 while the node has no
    /// Lease.
    pub(crate) object: Fields,
    /// Version of the Lease that the last acknowledged write replaced; 0 if there was none.
    pub(crate) base: u64,
    /// Highest version of the node's Lease that any response or event has shown.
    pub(crate) highest: u64,
    /// `renewTime` of the last write that the node sent, whether or not a response has arrived.
    pub(crate) sent_renewed: u64,
    /// When the response that showed `object` arrived, in nanoseconds since the start of the run.
    pub(crate) acked_at: u64,
    /// Number of writes of the Lease that were acknowledged, or that a later read has shown as applied.
    pub(crate) writes: u32,
    /// Where the fleet stores the part of the Lease that is not in `object`.
    pub(crate) form: Form,
    /// Whether a PUT of this node wrote the present object. Later renewals then change only the Lease's times.
    pub(crate) settled: bool,
    /// Whether a renewal of the node is in progress, from its first request to its last response.
    pub(crate) busy: bool,
    /// Whether the outcome of the last write is unknown, since its response was lost, malformed or an error (5xx).
    pub(crate) uncertain: bool,
    /// Whether another client wrote the Lease, or the Lease was missing. The Lease's writes can then no longer be
    /// counted.
    pub(crate) foreign: bool,
}

/// Where the fleet stores the part of a node's Lease that is not in its [`Fields`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// The whole object is in the fleet's map, under the node's index. Before the first response the map has no such
    /// object.
    #[default]
    Whole,
    /// The rest of the object is the text of a template, which many Leases share. The number is the template's index in
    /// the fleet.
    Template(u8),
}

/// A step of a node's renewal, or a read: the kind of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// GET, to find the Lease or a newer version.
    Get,
    /// POST, to create the Lease.
    Post,
    /// PUT, to renew the Lease.
    Put,
    /// GET by another client, outside of renewals.
    Read,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A response with this status.
    Status(u16),
    /// No response.
    Lost,
}

/// What follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The renewal, or the read, is over.
    Done,
    /// Five attempts have failed. The node tries again in the next period.
    GiveUp,
    /// Another request, at once. `failed` says whether the previous request counts as a failed attempt.
    Send { step: Step, failed: bool },
}

impl Node {
    /// Whether the node knows that its Lease exists.
    pub(crate) fn has_lease(&self) -> bool {
        self.object.version != 0
    }

    /// Returns the first step of a renewal: PUT, or GET if the node has no Lease yet.
    pub(crate) fn first_step(&self) -> Step {
        if self.has_lease() { Step::Put } else { Step::Get }
    }
}

/// Returns the step after `step`. `tries` is the number of failed attempts of the renewal before `step`.
pub(crate) fn next(step: Step, outcome: Outcome, tries: u8) -> Next {
    let (step, failed) = match (step, outcome) {
        (Step::Read, _) | (Step::Post, Outcome::Status(201)) | (Step::Put, Outcome::Status(200)) => return Next::Done,
        (Step::Get, Outcome::Status(200)) => (Step::Put, false),
        (Step::Get, Outcome::Status(404)) => (Step::Post, false),
        (Step::Put, Outcome::Status(404)) => (Step::Post, true),
        (Step::Post | Step::Put, Outcome::Status(409)) => (Step::Get, true),
        (_, Outcome::Status(_) | Outcome::Lost) => (step, true),
    };
    if failed && tries + 1 >= TRIES_MAX { Next::GiveUp } else { Next::Send { step, failed } }
}

/// Maximum number of attempts of a renewal, as a kubelet's `maxUpdateRetries`.
const TRIES_MAX: u8 = 5;

/// Appends the name of the node with this index.
pub(crate) fn push_name(out: &mut String, index: u32) {
    out.push_str(NAME_PREFIX);
    out.push_str(itoa::Buffer::new().format(index));
}

/// Returns the name of the node with this index.
pub(crate) fn name_of(index: u32) -> String {
    format!("{NAME_PREFIX}{index}")
}

/// Returns the index of the node with this name; `None` for a name that [`push_name`] does not make.
pub(crate) fn index_of(name: &[u8]) -> Option<u32> {
    let digits = name.strip_prefix(NAME_PREFIX.as_bytes())?;
    if digits.is_empty() || (digits.first() == Some(&b'0') && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0_u32, |value, b| {
        let digit = b.is_ascii_digit().then(|| u32::from(b - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

const NAME_PREFIX: &str = "node-";

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the steps of a renewal that begins with `first` and whose requests have these outcomes.
    fn steps(first: Step, outcomes: &[Outcome]) -> (Vec<Step>, Next) {
        let (mut step, mut tries, mut taken) = (first, 0, vec![first]);
        for &outcome in outcomes {
            match next(step, outcome, tries) {
                Next::Send { step: following, failed } => {
                    step = following;
                    tries += u8::from(failed);
                    taken.push(following);
                }
                end => return (taken, end),
            }
        }
        panic!("no end: {taken:?}");
    }

    #[test]
    fn a_node_without_a_lease_gets_404_and_creates_it() {
        use Outcome::Status;
        let (taken, end) = steps(Step::Get, &[Status(404), Status(201)]);
        assert_eq!((taken, end), (vec![Step::Get, Step::Post], Next::Done));
        let (taken, end) = steps(Step::Get, &[Status(404), Status(409), Status(200), Status(200)]);
        assert_eq!((taken, end), (vec![Step::Get, Step::Post, Step::Get, Step::Put], Next::Done));
    }

    #[test]
    fn a_conflict_leads_to_a_get_and_a_404_to_a_create() {
        use Outcome::Status;
        let (taken, end) = steps(Step::Put, &[Status(409), Status(200), Status(200)]);
        assert_eq!((taken, end), (vec![Step::Put, Step::Get, Step::Put], Next::Done));
        let (taken, end) = steps(Step::Put, &[Status(404), Status(201)]);
        assert_eq!((taken, end), (vec![Step::Put, Step::Post], Next::Done));
    }

    #[test]
    fn a_request_is_given_up_after_five_tries() {
        let (taken, end) = steps(Step::Put, &[Outcome::Status(500); 9]);
        assert_eq!((taken.len(), end), (5, Next::GiveUp));
        let conflicts = [Outcome::Status(409), Outcome::Status(200)].repeat(9);
        let (taken, end) = steps(Step::Put, &conflicts);
        assert_eq!((taken.iter().filter(|&&s| s == Step::Put).count(), end), (5, Next::GiveUp));
        assert_eq!(steps(Step::Get, &[Outcome::Lost; 9]).1, Next::GiveUp);
    }

    #[test]
    fn node_names_have_one_valid_spelling() {
        for index in [0, 7, 10, 999_999, u32::MAX] {
            assert_eq!(index_of(name_of(index).as_bytes()), Some(index));
        }
        for name in ["node-", "node-01", "node-x", "pod-1", "node-4294967296"] {
            assert_eq!(index_of(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn a_million_nodes_fit_in_little_memory() {
        assert!(size_of::<Node>() <= 128, "{}", size_of::<Node>());
    }
}
