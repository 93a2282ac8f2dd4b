//! The steps of lists and deletions of a collection, as far as they are the same in both protocols: the first are made
//! before there is a head, and the request is counted when its response begins and when the last of it is made.

use super::Service;
use crate::api::job::{Job, JobError};
use crate::clock::Now;
use crate::form::Response;
use crate::table::snapshot::Stepped;

/// What a step gave of a response whose head is not out.
pub(super) enum Begun {
    /// Nothing yet.
    Nothing,
    /// All of it, or a refusal in its place.
    Whole(Response),
    /// The head, and the first piece of the body.
    Part(Response, Vec<u8>),
}

/// A step of a job whose head is not out. Most are short: those are made whole, with their length.
pub(super) fn begin(job: &mut Job, service: &mut Service, now: Now, bytes_max: usize) -> Begun {
    let mut body = Vec::new();
    let stepped = job.step(&mut service.table, &mut service.api.storage, now, &mut body, bytes_max);
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

/// A step of a job whose head is out, which appends to `out`.
///
/// # Errors
/// The body cannot be finished.
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
