//! delete and deletecollection.

use super::answer::Answer;
use super::deletion::{Deletion, Fate};
use super::holder_log::user_name;
use super::job::Job;
use super::key::check_key;
use super::negotiate::{format_of_body, json_of_yaml};
use super::read::{ListStart, list_start, range_of};
use super::{Api, Call, Reply, Verdict, object_response};
use crate::api_error::{ApiError, Status};
use crate::codec::DeleteOptions;
use crate::codec::Format;
use crate::codec::protobuf;
use crate::form::{Form, Response, State};
use crate::lease::Lease;
use crate::options::{ListOptions, merge_delete_collection_options, merge_delete_options};
use crate::table::Table;
use crate::table::change::Change;

impl Api {
    /// Deletes a Lease, or marks it if finalizers hold it.
    pub(super) fn delete(
        &mut self,
        table: &mut Table,
        call: &Call<'_>,
        body: &[u8],
        namespace: &str,
        name: &str,
    ) -> Result<Verdict, ApiError> {
        let form = call.form(false)?;
        let options = merge_delete_options(&call.query, self.delete_options(call, body)?)?;
        check_key(namespace, name)?;
        let Some((slot, current)) = table.find(namespace, name) else {
            return Err(ApiError::NotFound { name: name.to_owned() });
        };
        // The option deletes only what does not decode, and every Lease in the table does.
        if options.ignore_store_read_error == Some(true) {
            return Err(ApiError::NotCorrupt { namespace: namespace.to_owned(), name: name.to_owned() });
        }
        let deletion = Deletion::of(&options);
        // That it is not gone yet is told to those alone who ask in the old way for the dependents to go too.
        let held = if options.orphan_dependents == Some(false) { 202 } else { 200 };
        let refused = call.check_options_of(form);
        let state = match deletion.decide(current, call.now)? {
            // What kube-apiserver shows of a deletion that it only would have done, when it had to take finalizers out
            // first.
            Fate::Gone if deletion.dry_run && !current.metadata().finalizers.is_empty() => {
                return reply_unless(refused, 200, State::Loose(&Lease::default(), None), form, call);
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
                return reply_unless(refused, held, State::Loose(&marked, Some(current.version)), form, call);
            }
            Fate::Held(marked) => {
                let change = Change::Replace(table.target(slot), marked);
                return Ok(Verdict::Write(change, Answer::applied(held, form, refused)));
            }
            Fate::Unchanged => State::Stored(current),
        };
        reply_unless(refused, held, state, form, call)
    }

    /// Deletes what a list would show.
    pub(super) fn delete_collection(
        &mut self,
        table: &Table,
        call: &Call<'_>,
        body: &[u8],
        namespace: &str,
    ) -> Result<Reply, ApiError> {
        self.handover.admit_collection()?;
        let form = call.form(false)?;
        // kube-apiserver finds out when all are deleted that it cannot answer in this form.
        call.check_options_of(form)?;
        form.representation.check_list().map_err(ApiError::NotAcceptable)?;
        let mut list = ListOptions::parse(&call.query)?;
        let options = merge_delete_collection_options(&call.query, self.delete_options(call, body)?)?;
        // What a list with these options would show is what goes, page after page if the client has set no limit
        // (apiserver `registry/generic/registry`, `DeleteCollection`). So a version always means the state at it, as
        // with a limit: what was created later stays. A limit below 0 is none, and no pages either.
        let is_paged = list.limit == 0;
        if is_paged {
            list.limit = PAGE_ITEMS;
        }
        let ListStart { snapshot, limit, state } = list_start(table, &list, range_of(Some(namespace), &list.selector))?;
        // All pages are of the first one's version, and so one snapshot here.
        let limit = if is_paged { 0 } else { limit };
        let deletion = Deletion::of(&options);
        if !deletion.dry_run {
            let user = user_name(call.caller);
            let user_agent = &*String::from_utf8_lossy(call.head.user_agent.unwrap_or_default());
            tracing::info!(namespace, user, user_agent, "deletion of a collection of Leases begins");
        }
        let job = Job::delete_collection(snapshot, list.selector, limit, deletion, form);
        Ok(Reply::Job(Box::new(job.with_state(state))))
    }

    /// The options in the body, if there is one.
    fn delete_options(&mut self, call: &Call<'_>, body: &[u8]) -> Result<Option<DeleteOptions>, ApiError> {
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

/// The answer to a deletion that changes nothing, unless it is refused.
fn reply_unless(
    refused: Result<(), ApiError>,
    status: u16,
    state: State<'_>,
    form: Form,
    call: &Call<'_>,
) -> Result<Verdict, ApiError> {
    refused?;
    object_response(status, state, form, call.now).map(Verdict::response)
}

/// kube-apiserver's `deleteCollectionPageSize`. Here it only says that there is a limit.
const PAGE_ITEMS: i64 = 10_000;
