//! Runs the steps of jobs. A job is a response made in steps: a list, a deletion of a collection, or a compression of a
//! long body. HTTP/1.1 and HTTP/2 share this code. [`begin`] runs the steps before the response head is sent, [`go_on`]
//! the later steps. Metrics count the request when its response begins, and when the last part of its response is made.

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
    let permitted = service.api.handover.check_job(job);
    let stepped =
        permitted.and_then(|()| job.step(&mut service.table, &mut service.api.storage, now, &mut body, bytes_max));
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
    let permitted = service.api.handover.check_job(job);
    let stepped = permitted.and_then(|()| job.step(&mut service.table, &mut service.api.storage, now, out, bytes_max));
    if !matches!(stepped, Ok(Stepped::More)) {
        job.count_end(&mut service.api.metrics, now);
    }
    stepped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Api, Reply};
    use crate::auth::Credentials;
    use crate::handover::{NAME, NAMESPACE, PHASE, Phase};
    use crate::http::{Method, NoLines, RequestHead};
    use crate::lease::Lease;
    use crate::limits::GZIP_BYTES_MIN;
    use crate::resource::ResourceVersion;
    use crate::table::Table;
    use crate::tls::trust::Trust;
    use std::sync::Arc;

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases";

    /// Returns a service with 2,000 Leases in the namespace `n`.
    fn new_service() -> Service {
        let mut table = Table::new(ResourceVersion(1), 10_000, usize::MAX);
        for number in 0..2_000 {
            table.create(Lease::named("n", &number.to_string()));
        }
        Service::new(Api::new(), table, Arc::new(Trust::none()))
    }

    /// Returns the job of a request.
    fn job_of(service: &mut Service, method: Method, path: &str, query: &str, accept_encoding: &[u8]) -> Box<Job> {
        let bare = RequestHead::bare(method, path, query, &NoLines);
        let head = RequestHead { accept_encoding: Some(accept_encoding), ..bare };
        let (credentials, now) = (Credentials::insecure(), Now::default());
        match service.api.handle(&mut service.table, &head, b"", None, &credentials, now) {
            Reply::Job(job) => job,
            other => panic!("{path}?{query}: {other:?}"),
        }
    }

    /// Requests a phase of a hand-over (the move of Leases from or to kube-apiserver's own storage), as the commands
    /// `takeover` and `rollback` do.
    fn ask_for(service: &mut Service, phase: Phase) {
        let mut asked = Lease::named(NAMESPACE, NAME);
        asked.metadata.annotations.insert(PHASE.into(), phase.name().into());
        service.table.put(asked);
        service.hand_over(Now::default(), |_| {});
    }

    /// Runs steps of a job until the head of its response is sent, but not the whole body.
    fn send_head(job: &mut Job, service: &mut Service) {
        loop {
            match begin(job, service, Now::default(), 1_000) {
                Begun::Nothing => {}
                Begun::Part(..) => return,
                Begun::Whole(response) => panic!("{response:?}"),
            }
        }
    }

    #[test]
    fn a_deletion_under_way_ends_when_leases_are_handed_over() {
        let (mut service, now) = (new_service(), Now::default());
        let mut job = job_of(&mut service, Method::Delete, LEASES, "", b"");
        assert!(matches!(begin(&mut job, &mut service, now, usize::MAX), Begun::Nothing));
        ask_for(&mut service, Phase::Freeze);
        let left = service.table.len();
        let Begun::Whole(response) = begin(&mut job, &mut service, now, usize::MAX) else { panic!("it goes on") };
        assert_eq!(response.status, 429);
        assert!(left > 1 && service.table.len() == left);
    }

    /// In a freeze, clients lose the right to write and to list Leases, before this server gives the Leases back to
    /// kube-apiserver. Goal: no list that began before a freeze gives a client a `resourceVersion` of this server long
    /// after the freeze.
    #[test]
    fn a_freeze_ends_lists_in_progress() {
        let now = Now::default();
        for query in ["", "pretty=1", "limit=1500"] {
            let mut service = new_service();
            let [mut begun, mut not_begun] = [(); 2].map(|()| job_of(&mut service, Method::Get, LEASES, query, b""));
            send_head(&mut begun, &mut service);
            ask_for(&mut service, Phase::Freeze);
            let ended = go_on(&mut begun, &mut service, now, &mut Vec::new(), 1_000);
            assert!(matches!(ended, Err(JobError::Refused(_))), "{query}: {ended:?}");
            let Begun::Whole(response) = begin(&mut not_begun, &mut service, now, 1_000) else {
                panic!("{query}: the list goes on");
            };
            assert_eq!(response.status, 410, "{query}");
        }
    }

    /// Goal: two jobs go on after a freeze, here that of the phase `Hold`. One compresses the body of a single Lease,
    /// so it is not a list. The other is a list that begins after the freeze, as the command `rollback` requests it.
    #[test]
    fn a_freeze_ends_neither_a_read_of_one_lease_nor_a_later_list() {
        let (mut service, now) = (new_service(), Now::default());
        let mut large = Lease::named("n", "large");
        large.metadata.annotations.insert("a".into(), "x".repeat(2 * GZIP_BYTES_MIN).as_str().into());
        service.table.create(large);
        let mut single = job_of(&mut service, Method::Get, &format!("{LEASES}/large"), "", b"gzip");
        send_head(&mut single, &mut service);
        ask_for(&mut service, Phase::Hold);
        let mut list = job_of(&mut service, Method::Get, LEASES, "", b"");
        send_head(&mut list, &mut service);
        // The same phase is requested again, so no second freeze begins.
        ask_for(&mut service, Phase::Hold);
        for job in [&mut single, &mut list] {
            let stepped = go_on(job, &mut service, now, &mut Vec::new(), 1_000);
            assert!(matches!(stepped, Ok(Stepped::More)), "{stepped:?}");
        }
    }
}
