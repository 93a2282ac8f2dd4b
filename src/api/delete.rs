//! The verbs delete and deletecollection.

use super::answer::Answer;
use super::deletion::{Deletion, Fate};
use super::holder_log::user_name;
use super::job::Job;
use super::key::check_key;
use super::negotiate::{format_of_body, json_of_yaml};
use super::read::{ListStart, list_start, range_of, select_shard};
use super::{Api, Call, Reply, Verdict, object_response};
use crate::api_error::{ApiError, Status};
use crate::codec::DeleteOptions;
use crate::codec::Format;
use crate::codec::protobuf;
use crate::form::{Form, LeaseState, Response};
use crate::lease::Lease;
use crate::options::{ListOptions, merge_delete_collection_options, merge_delete_options};
use crate::table::Table;
use crate::table::change::Change;

impl Api {
    /// Decides the deletion of a Lease. If finalizers remain, the server only sets `deletionTimestamp`.
    pub(super) fn decide_delete(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        namespace: &str,
        name: &str,
    ) -> Result<Verdict, ApiError> {
        let form = call.form(false)?;
        let options = merge_delete_options(&call.query, self.delete_options(call)?)?;
        check_key(namespace, name)?;
        let Some((slot, current)) = table.find(namespace, name) else {
            return Err(ApiError::NotFound { name: name.to_owned() });
        };
        // `ignoreStoreReadErrorWithClusterBreakingPotential` deletes only objects that cannot be decoded. Every Lease
        // in the table is already decoded.
        if options.ignore_store_read_error == Some(true) {
            return Err(ApiError::NotCorrupt { namespace: namespace.to_owned(), name: name.to_owned() });
        }
        let deletion = Deletion::of(&options);
        // For a Lease with finalizers, kube-apiserver returns 202 only if the deprecated `orphanDependents` is false.
        let held = if options.orphan_dependents == Some(false) { 202 } else { 200 };
        let refused = call.check_options_of(form);
        let state = match deletion.decide(current, call.now)? {
            // A deletion may itself remove finalizers, such as `orphan`, and then delete the Lease. For a dry run of
            // such a deletion, kube-apiserver shows an empty object.
            Fate::Gone if deletion.dry_run && !current.metadata().finalizers.is_empty() => {
                return reply_unless(refused, 200, LeaseState::Loose(&Lease::default(), None), form, call);
            }
            Fate::Gone => {
                let body = form.for_status().status_body(&Status::deleted(name, &current.metadata().uid));
                let response = refused.map(|()| Response::new(200, form.content_type(), body));
                if deletion.dry_run {
                    return response.map(Verdict::response);
                }
                return Ok(Verdict::Write(Change::Delete(table.target(slot)), Answer::prepared(response)));
            }
            Fate::Held(marked) if deletion.dry_run => {
                return reply_unless(refused, held, LeaseState::Loose(&marked, Some(current.version)), form, call);
            }
            Fate::Held(marked) => {
                let change = Change::Replace(table.target(slot), marked);
                return Ok(Verdict::Write(change, Answer::applied(held, form, refused)));
            }
            Fate::Unchanged => LeaseState::Stored(current),
        };
        reply_unless(refused, held, state, form, call)
    }

    /// Deletes a collection: the Leases that a list request with the same options would return.
    pub(super) fn delete_collection(
        &mut self,
        table: &Table,
        call: &Call<'_>,
        namespace: &str,
    ) -> Result<Reply, ApiError> {
        self.handover.check_collection_deletion()?;
        let form = call.form(false)?;
        // kube-apiserver checks the requested form of the response only after the deletions. This server checks the
        // form first, so a request for a form that it cannot send deletes nothing.
        call.check_options_of(form)?;
        form.representation.check_list().map_err(ApiError::NotAcceptable)?;
        let mut list = ListOptions::parse(&call.query)?;
        let options = merge_delete_collection_options(&call.query, self.delete_options(call)?)?;
        // kube-apiserver deletes all Leases of a list with these options. If the client sets no limit, kube-apiserver
        // lists the Leases in pages (apiserver `registry/generic/registry`, `DeleteCollection`). So even without a
        // limit, a `resourceVersion` means the state at exactly that version, as in a list with a limit. Leases created
        // after that version are not deleted. With a negative limit, kube-apiserver lists all Leases in one page. This
        // list may show a newer state than that version.
        select_shard(call, &mut list)?;
        let is_paged = list.limit == 0;
        if is_paged {
            list.limit = PAGE_ITEMS;
        }
        let ListStart { snapshot, limit, state } = list_start(table, &list, range_of(Some(namespace), &list.selector))?;
        // All pages of kube-apiserver's list show the state at the `resourceVersion` of the first page. So this server
        // needs only one snapshot and no pages.
        let limit = if is_paged { 0 } else { limit };
        let deletion = Deletion::of(&options);
        // If other replicas write to the store, the server decides this request again once the table has all their
        // earlier writes. The server logs only the last decision.
        if !deletion.dry_run && !self.awaits_barrier(call) {
            let user_agent = call.head.user_agent.unwrap_or_default();
            self.holder_log.log_collection(namespace, user_name(call.caller), user_agent, call.now.ms);
        }
        let job = Job::delete_collection(snapshot, list.selector, limit, deletion, form);
        Ok(Reply::Job(Box::new(job.with_state(state))))
    }

    /// Decodes the `DeleteOptions` in the body; `None` for an empty body.
    fn delete_options(&mut self, call: &Call<'_>) -> Result<Option<DeleteOptions>, ApiError> {
        let body = call.body;
        if body.is_empty() {
            return Ok(None);
        }
        let options = match format_of_body(call.head)? {
            Format::Json => self.decoder.decode_delete_options(body)?,
            Format::Yaml => {
                let unread = |message| ApiError::BadRequest { message };
                self.decoder.decode_delete_options(&json_of_yaml(body, unread)?.0)?
            }
            Format::Protobuf => protobuf::decode_delete_options(body)?,
        };
        Ok(Some(options))
    }
}

/// Returns the response to a deletion that changes no stored Lease. If `refused` is an error, returns that error
/// instead.
fn reply_unless(
    refused: Result<(), ApiError>,
    status: u16,
    state: LeaseState<'_>,
    form: Form,
    call: &Call<'_>,
) -> Result<Verdict, ApiError> {
    refused?;
    object_response(status, state, form, call.now).map(Verdict::response)
}

/// kube-apiserver's `deleteCollectionPageSize`, in Leases. In this server, any positive number has the same effect: it
/// selects the state that a list with a limit shows. The server itself deletes the collection without pages.
const PAGE_ITEMS: i64 = 10_000;
