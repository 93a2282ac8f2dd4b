//! The steps of jobs: lists, collection deletions, and long bodies that are compressed. HTTP/1.1 and HTTP/2 share this
//! code. [`begin`] runs the steps before the response head is sent, [`go_on`] the later steps. Metrics count the
//! request when its response begins, and when the last part of its response is made.

use super::Service;
use crate::api::job::{Job, JobError};
use crate::clock::Now;
use crate::form::Response;
use crate::table::snapshot::Stepped;

/// Result of a step before the response head is sent.
pub(super) enum Begun {
    /// The response has not begun yet.
    Nothing,
    /// The whole response to the request, or a refusal of the request.
    Whole(Response),
    /// The head of the response, and the first piece of its body.
    Part(Response, Vec<u8>),
}

/// Runs a step of a job whose response head is not sent yet. The step makes at most about `bytes_max` bytes of the
/// body. Most responses are then complete, and the server sends their length in the head.
pub(super) fn begin(job: &mut Job, service: &mut Service, now: Now, bytes_max: usize) -> Begun {
    let mut body = Vec::new();
    // A hand-over of the Leases to another storage may have begun after this deletion began. Then the rest of the
    // deletion is refused.
    let permitted = if job.is_deletion() { service.api.handover.check_collection_deletion() } else { Ok(()) };
    let stepped = permitted
        .map_err(JobError::Refused)
        .and_then(|()| job.step(&mut service.table, &mut service.api.storage, now, &mut body, bytes_max));
    let metrics = &mut service.api.metrics;
    let response = match stepped {
        Ok(Stepped::More) if !job.has_head() => return Begun::Nothing,
        Ok(Stepped::More) => {
            let head = job.head();
            job.count_begin(metrics, head.status);
            return Begun::Part(head, body);
        }
        Ok(Stepped::Done) => Response { body: body.into(), ..job.head() },
        Err(error) => job.refusal(error),
    };
    job.count_begin(metrics, response.status);
    job.count_end(metrics, now);
    Begun::Whole(response)
}

/// Runs a step of a job whose response head is sent. Appends the next piece of the body to `out`.
///
/// # Errors
/// The body cannot be completed.
pub(super) fn go_on(
    job: &mut Job,
    service: &mut Service,
    now: Now,
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<Stepped, JobError> {
    let stepped = job.step(&mut service.table, &mut service.api.storage, now, out, bytes_max);
    if !matches!(stepped, Ok(Stepped::More)) {
        job.count_end(&mut service.api.metrics, now);
    }
    stepped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Api;
    use crate::auth::Credentials;
    use crate::handover::{NAME, NAMESPACE, PHASE, Phase};
    use crate::http::{Method, NoLines, RequestHead};
    use crate::lease::Lease;
    use crate::resource::ResourceVersion;
    use crate::table::Table;
    use crate::table::change::Change;
    use crate::tls::trust::Trust;
    use std::sync::Arc;

    fn lease(namespace: &str, name: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.namespace = namespace.into();
        lease.metadata.name = name.into();
        lease
    }

    #[test]
    fn a_deletion_under_way_ends_when_leases_are_handed_over() {
        let mut table = Table::new(ResourceVersion(1), 10_000, usize::MAX);
        for number in 0..2_000 {
            table.apply(Change::Create(Box::new(lease("n", &number.to_string())))).expect("a free name");
        }
        let mut service = Service::new(Api::new(), table, Arc::new(Trust::none()));
        let now = Now::default();
        let head = RequestHead {
            method: Method::Delete,
            path: "/apis/coordination.k8s.io/v1/namespaces/n/leases",
            query: "",
            accept: None,
            content_type: None,
            user_agent: None,
            fields: &NoLines,
        };
        let reply = service.api.handle(&mut service.table, &head, b"", None, &Credentials::insecure(), now);
        let crate::api::Reply::Job(mut job) = reply else { panic!("{reply:?}") };
        assert!(matches!(begin(&mut job, &mut service, now, usize::MAX), Begun::Nothing));
        let mut phase = lease(NAMESPACE, NAME);
        phase.metadata.annotations.insert(PHASE.into(), Phase::Freeze.name().into());
        service.table.apply(Change::Create(Box::new(phase))).expect("a free name");
        service.hand_over(now, |_| {});
        let left = service.table.len();
        let Begun::Whole(response) = begin(&mut job, &mut service, now, usize::MAX) else { panic!("it goes on") };
        assert_eq!(response.status, 429);
        assert!(left > 1 && service.table.len() == left);
    }
}
