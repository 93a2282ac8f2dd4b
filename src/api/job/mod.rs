//! Jobs. A job generates a long response in steps: a list, a deletion of a collection, or a compressed body. Between
//! two steps, the event loop serves other requests. So a job delays no renewal.
//!
//! The server sends the head of the response once the request can no longer fail. Until then, [`Job::has_head`] is
//! false, and steps append no bytes. Afterwards, the server can signal an error only by closing the connection.

mod delete_collection;
mod found;

use super::asked_state::AskedState;
use super::deletion::Deletion;
use super::gzip::{self, Gzip};
use super::pending_request::PendingRequest;
use super::storage::Storage;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::codec::Format;
use crate::codec::json::Pretty;
use crate::codec::list_meta::ListMeta;
use crate::form::{Body, Form, Response};
use crate::limits::{JOB_KEYS_PER_STEP, JOB_MS_MAX, YAML_BYTES_PER_STEP};
use crate::metrics::Metrics;
use crate::schedule::Permit;
use crate::selector::Selector;
use crate::table::Table;
use crate::table::discard::States;
use crate::table::snapshot::{Forgotten, Snapshot, Stepped};
use bytes::Bytes;
use delete_collection::CollectionDeletion;
use found::{Found, OwnedMeta};

/// A response that the server generates in steps: a list, a deletion of a collection, or a compressed body.
#[derive(Debug)]
pub struct Job {
    selector: Selector,
    form: Form,
    /// Printer that indents the list; `None` if the client wants compact output.
    printer: Option<Printer>,
    stage: Stage,
    /// State of the Leases that the request asks for. It determines the error if the server can no longer restore that
    /// state from the event log (the last changes of the table).
    state: AskedState,
    /// Data of the request, for the metrics and for an error response.
    request: Option<PendingRequest>,
    /// Number of freezes before the list began; `None` if the job is no list. The hand-over freezes this server when
    /// clients may no longer write to it or list its Leases, for example in a rollback.
    freezes: Option<u64>,
    /// Compression of the body; `None` if the client does not accept gzip.
    gzip: Option<Gzip>,
    /// Start of the job's time limit, in ms: its first step or its first deadline check, whichever came first.
    since_ms: Option<u64>,
    /// Permit of a long job: its place among the long responses in progress.
    permit: Option<Permit>,
    /// Whether the next step must wait for changes in flight: the job's own deletions, and other clients' changes of
    /// the Leases that the job must delete.
    is_waiting: bool,
}

/// The reason why a job ends before its response is complete.
#[derive(Debug)]
pub enum JobError {
    /// The body cannot be compressed.
    Compression,
    /// The event log (the last changes of the table) no longer has the states of Leases that the rest of the response
    /// needs.
    Forgotten,
    /// The job has taken longer than [`JOB_MS_MAX`], or another user needed its permit (its place among the long
    /// responses in progress).
    Overtaken,
    /// The request fails with this error. If the head of the response is sent, the response remains incomplete.
    Refused(ApiError),
}

impl From<Forgotten> for JobError {
    fn from(_: Forgotten) -> Self {
        Self::Forgotten
    }
}

/// The context of one step.
struct Context<'a> {
    table: &'a mut Table,
    storage: &'a mut Storage,
    now: Now,
}

/// Indents a list while the job generates it.
#[derive(Debug, Default)]
struct Printer {
    pretty: Pretty,
    /// Bytes of the list that the printer has yet to indent.
    compact: Vec<u8>,
}

impl Printer {
    /// Returns `form` without indentation, and a printer if `form` has indentation.
    fn of(form: Form) -> (Form, Option<Self>) {
        let mut compact = form;
        let is_pretty = std::mem::take(&mut compact.representation.pretty);
        (compact, is_pretty.then(Self::default))
    }
}

/// The work of the next step. [`Stage::Send`] follows [`Stage::Collect`] and [`Stage::Delete`]. If the job ends early,
/// [`Stage::GivenUp`] follows any stage. Any other stage lasts until the job is complete.
#[derive(Debug)]
enum Stage {
    /// Collects the items of a list with a limit, or of any list in protobuf. In the response, the start of the list
    /// depends on all items: with a limit, on whether more Leases follow; in protobuf, on the length of the items.
    Collect { found: Found },
    /// Deletes the Leases of a collection, and collects the deleted Leases.
    Delete { found: Found, deletion: CollectionDeletion },
    /// Sends the items of a JSON or YAML list without a limit, while the job finds them.
    Stream(StreamedList),
    /// Sends a complete response whose body is too long to compress in one step.
    Body { head: Response, body: Bytes },
    /// The job has ended early and has released its memory. Either its deadline passed before the client had read the
    /// response, or another user needed its place among the long responses.
    GivenUp,
    /// Sends the collected items, after [`Stage::Collect`] or [`Stage::Delete`].
    Send(Unsent),
}

/// A list without a limit. Each step sends the items that it finds.
#[derive(Debug)]
struct StreamedList {
    snapshot: Snapshot,
    head_sent: bool,
    items_sent: usize,
}

impl StreamedList {
    /// Appends the next items of the list to the output.
    fn step(
        &mut self,
        table: &Table,
        selector: &Selector,
        form: Form,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<Stepped, JobError> {
        let Self { snapshot, head_sent, items_sent } = self;
        if snapshot.catch_up(table)? == Stepped::More {
            return Ok(Stepped::More);
        }
        let meta = ListMeta { shard: form.shard_of(selector), ..ListMeta::at(snapshot.version()) };
        if !std::mem::replace(head_sent, true) {
            form.push_list_head(out, &meta, 0);
        }
        let stepped = snapshot.next(table, selector.share_of(JOB_KEYS_PER_STEP), |object| {
            if object.is_selected_by(selector) {
                form.push_list_item(out, object, *items_sent == 0, now.wall);
                *items_sent += 1;
            }
            out.len() < bytes_max
        })?;
        if stepped == Stepped::Done {
            form.push_list_close(out, &meta, *items_sent == 0);
        }
        Ok(stepped)
    }
}

/// Items of a list that the job has collected and not sent yet.
#[derive(Debug)]
struct Unsent {
    meta: OwnedMeta,
    items: States,
    /// Whether the next item is the first item of the list.
    is_first: bool,
    /// Whether the list has no items.
    is_empty: bool,
}

impl Unsent {
    /// Appends the next items of the list to the output.
    fn send(&mut self, selector: &Selector, form: Form, now: Now, out: &mut Vec<u8>, bytes_max: usize) -> Stepped {
        while out.len() < bytes_max {
            // The job drops each item once it is written. To drop all items at once would delay the event loop.
            let Some(object) = self.items.pop_front() else {
                form.push_list_close(out, &self.meta.borrowed(form.shard_of(selector)), self.is_empty);
                return Stepped::Done;
            };
            form.push_list_item(out, &object, std::mem::take(&mut self.is_first), now.wall);
        }
        Stepped::More
    }
}

impl Job {
    /// Creates a list of the Leases in `snapshot` that `selector` matches. The list has at most `limit` items; 0
    /// means no limit.
    #[must_use]
    pub fn list(snapshot: Snapshot, selector: Selector, limit: usize, form: Form) -> Self {
        let (form, printer) = Printer::of(form);
        let stage = match limit {
            0 if !form.needs_whole_list() => Stage::Stream(StreamedList { snapshot, head_sent: false, items_sent: 0 }),
            limit => Stage::Collect { found: Found::nothing(snapshot, limit) },
        };
        Self { printer, ..Self::new(selector, form, stage) }
    }

    /// Creates a deletion of the Leases in `snapshot` that `selector` matches. The job deletes at most `limit` Leases;
    /// 0 means no limit.
    #[must_use]
    pub fn delete_collection(
        snapshot: Snapshot,
        selector: Selector,
        limit: usize,
        deletion: Deletion,
        form: Form,
    ) -> Self {
        let (form, printer) = Printer::of(form);
        let deletion = CollectionDeletion::new(deletion);
        let stage = Stage::Delete { found: Found::nothing(snapshot, limit), deletion };
        Self { printer, ..Self::new(selector, form, stage) }
    }

    /// Creates a job that sends the complete body of `response` in pieces.
    #[must_use]
    pub fn body(mut response: Response) -> Self {
        let body = std::mem::take(&mut response.body).into_bytes();
        Self::new(Selector::default(), Form::default(), Stage::Body { head: response, body })
    }

    fn new(selector: Selector, form: Form, stage: Stage) -> Self {
        Self {
            selector,
            form,
            printer: None,
            stage,
            state: AskedState::default(),
            request: None,
            freezes: None,
            gzip: None,
            since_ms: None,
            permit: None,
            is_waiting: false,
        }
    }

    /// Whether the next step must wait for changes in flight: the job's own deletions, and other clients' changes of
    /// the Leases that the job must delete. Before the journal has settled these changes, a step has no effect.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Ends the job's wait, so that the next step runs. Call this function once the outcome of a change in flight may
    /// be known. If the step needs further outcomes, the job waits again.
    pub fn end_waiting(&mut self) {
        self.is_waiting = false;
    }

    /// Whether the next step may delete Leases.
    pub(super) fn is_deletion(&self) -> bool {
        matches!(self.stage, Stage::Delete { .. })
    }

    /// Whether the search for the items takes more than one step. Such a job needs a permit, since it may use much
    /// memory, and since all jobs share one core.
    #[must_use]
    pub(super) fn is_long(&self) -> bool {
        let (snapshot, limit) = match &self.stage {
            Stage::Collect { found } | Stage::Delete { found, .. } => (&found.snapshot, found.limit),
            Stage::Stream(list) => (&list.snapshot, usize::MAX),
            Stage::Body { .. } | Stage::GivenUp | Stage::Send(_) => return false,
        };
        // With a selector, or if a step must count the items after the page, the limit does not bound the number of
        // steps. The job is then treated as if it had no limit.
        let is_page = self.selector.is_everything() && snapshot.remaining().is_some();
        snapshot.is_long(if is_page { limit } else { usize::MAX }, self.selector.share_of(JOB_KEYS_PER_STEP))
    }

    /// Whether the job collects all its items before it sends any.
    #[must_use]
    pub(super) fn holds_states(&self) -> bool {
        matches!(self.stage, Stage::Collect { .. } | Stage::Delete { .. })
    }

    /// Returns the place for the job's permit. The job holds a permit until the job ends.
    pub(super) fn permit_mut(&mut self) -> &mut Option<Permit> {
        &mut self.permit
    }

    /// Sets the state of the Leases that the request asks for.
    #[must_use]
    pub(super) fn with_state(self, state: AskedState) -> Self {
        Self { state, ..self }
    }

    /// Compresses the body with `gzip` if the body is long.
    #[must_use]
    pub(super) fn compressed(self, gzip: Gzip) -> Self {
        Self { gzip: Some(gzip), ..self }
    }

    /// Sets the data of the request, for the metrics and for an error response.
    pub(super) fn set_request(&mut self, request: PendingRequest) {
        self.request = Some(request);
    }

    /// If the job is a list, records `freezes`: how often the hand-over has frozen this server so far. Call this
    /// function before the first step.
    pub(super) fn note_freezes(&mut self, freezes: u64) {
        let is_list = matches!(self.stage, Stage::Collect { .. } | Stage::Stream(_));
        self.freezes = is_list.then_some(freezes);
    }

    /// Returns how often the hand-over had frozen this server when the list began; `None` if the job is no list. If the
    /// number is higher now, clients have lost the permission to list, so the server ends the list.
    pub(super) fn freezes(&self) -> Option<u64> {
        self.freezes
    }

    /// Counts the request with its status in the metrics. Call this function at the start of the response.
    pub fn count_begin(&self, metrics: &mut Metrics, status: u16) {
        if let Some(request) = &self.request {
            request.count_begin(metrics, status);
        }
    }

    /// Counts the duration of the request in the metrics. Call this function after the last step.
    pub fn count_end(&self, metrics: &mut Metrics, now: Now) {
        if let Some(request) = &self.request {
            request.count_end(metrics, now);
        }
    }

    /// Returns the head of the response, with an empty body.
    #[must_use]
    pub fn head(&self) -> Response {
        let mut head = match &self.stage {
            Stage::Body { head, .. } => head.clone(),
            _ => Response::new(200, self.form.content_type(), Body::default()),
        };
        if self.gzip.as_ref().is_some_and(Gzip::is_packed) {
            gzip::mark(&mut head);
        }
        head
    }

    /// Whether the head can be sent. The request can then no longer fail, and it is decided whether the body is
    /// compressed.
    #[must_use]
    pub fn has_head(&self) -> bool {
        match (&self.stage, &self.gzip) {
            // In these stages, the response may still become an error. For example, the event log may drop states that
            // the snapshot has not read yet.
            (Stage::Collect { .. } | Stage::Delete { .. } | Stage::GivenUp, _) => false,
            (Stage::Stream(list), _) if !list.head_sent => false,
            (_, Some(gzip)) => gzip.is_decided(),
            (_, None) => true,
        }
    }

    /// Returns the error response of a job that ended with `error` before its head was sent.
    #[cold]
    #[must_use]
    pub fn refusal(&self, error: JobError) -> Response {
        let error = match error {
            JobError::Compression => ApiError::Unclassified { message: "the response cannot be compressed".into() },
            JobError::Forgotten => self.state.forgotten(),
            JobError::Overtaken => ApiError::overtaken(),
            JobError::Refused(error) => error,
        };
        self.request.as_ref().map_or_else(|| Response::from_error(&error), |request| request.refusal(&error))
    }

    /// Makes one step: appends bytes to `out` until the length of `out` is about `bytes_max`. `out` must be empty until
    /// [`Job::has_head`] is true.
    ///
    /// # Errors
    /// [`JobError`]. If the head is not sent yet, the caller sends [`Job::refusal`]. Otherwise the response remains
    /// incomplete.
    pub fn step(
        &mut self,
        table: &mut Table,
        storage: &mut Storage,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<Stepped, JobError> {
        // After the deadline, the job must release its memory, and the table must release the old states of Leases that
        // it keeps for the job. A slow client must not prevent that.
        if self.check_deadline(now) {
            return Err(JobError::Overtaken);
        }
        self.permit.iter().for_each(Permit::note_progress);
        let cx = &mut Context { table, storage, now };
        let Some(mut gzip) = self.gzip.take() else { return self.plain_step(cx, out, bytes_max) };
        let stepped = match gzip.buffer_to_fill() {
            Some((made, bytes_max)) => self.plain_step(cx, made, bytes_max),
            None => Ok(Stepped::More),
        };
        if let Ok(Stepped::Done) = stepped {
            gzip.end();
        }
        let stepped = stepped.and_then(|_| gzip.step(out).map_err(|_| JobError::Compression));
        self.gzip = Some(gzip);
        stepped
    }

    /// Makes one step of the uncompressed body.
    fn plain_step(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, bytes_max: usize) -> Result<Stepped, JobError> {
        let Some(mut printer) = self.printer.take() else {
            return self.compact_step(cx, out, bytes_max);
        };
        printer.compact.clear();
        // In indented JSON, about half of the bytes are spaces. So the compact output may have only half of
        // `bytes_max`.
        let bytes_max = (bytes_max.saturating_sub(out.len()) / 2).max(1);
        let stepped = self.compact_step(cx, &mut printer.compact, bytes_max);
        printer.pretty.push(out, &printer.compact);
        self.printer = Some(printer);
        stepped
    }

    /// Makes one step of the body, neither compressed nor indented.
    fn compact_step(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, bytes_max: usize) -> Result<Stepped, JobError> {
        let bytes_max = match self.form.representation.format {
            Format::Yaml => bytes_max.min(out.len().saturating_add(YAML_BYTES_PER_STEP)),
            Format::Json | Format::Protobuf => bytes_max,
        };
        self.is_waiting = false;
        let Self { selector, form, stage, .. } = self;
        match stage {
            Stage::Collect { found } => {
                let stepped = found.collect(cx.table, selector, *form)?;
                self.finish(stepped, cx, out, bytes_max)
            }
            Stage::Delete { found, deletion } => {
                let stepped = deletion.step(found, cx.table, cx.storage, selector, *form, cx.now)?;
                self.is_waiting = deletion.is_waiting();
                self.finish(stepped, cx, out, bytes_max)
            }
            Stage::Body { body, .. } => {
                let piece =
                    body.split_to(bytes_max.saturating_sub(out.len()).clamp(1, body.len().max(1)).min(body.len()));
                out.extend_from_slice(&piece);
                Ok(if body.is_empty() { Stepped::Done } else { Stepped::More })
            }
            Stage::Stream(list) => list.step(cx.table, selector, *form, cx.now, out, bytes_max),
            Stage::GivenUp => Err(JobError::Overtaken),
            Stage::Send(rest) => Ok(rest.send(selector, *form, cx.now, out, bytes_max)),
        }
    }

    /// Changes to the stage [`Stage::Send`] if the page is full, or if `stepped` says that no more items exist. Then
    /// makes the first step of that stage.
    fn finish(
        &mut self,
        stepped: Stepped,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<Stepped, JobError> {
        let (Stage::Collect { found } | Stage::Delete { found, .. }) = &mut self.stage else {
            return Ok(Stepped::More);
        };
        let may_be_more = stepped == Stepped::More;
        if may_be_more && !found.is_full() {
            return Ok(Stepped::More);
        }
        let Some(meta) = found.meta(cx.table, may_be_more, &self.selector)? else { return Ok(Stepped::More) };
        self.form.push_list_head(out, &meta.borrowed(self.form.shard_of(&self.selector)), found.bytes);
        let items = found.take_items();
        self.stage = Stage::Send(Unsent { meta, is_first: true, is_empty: items.is_empty(), items });
        self.compact_step(cx, out, bytes_max)
    }

    /// Releases the job's memory if its deadline has passed, or if the server has given the job's permit to another
    /// user. Call this function periodically, since a client may delay the next step, even the first. `is_blocked` is
    /// true if the client's unread output leaves no room for that step.
    pub fn check(&mut self, now: Now, is_blocked: bool) {
        let waits_for_peer = is_blocked && !self.is_waiting;
        let is_held = self.permit.as_ref().is_none_or(|permit| permit.check_reading(waits_for_peer));
        if !is_held || self.check_deadline(now) {
            (self.stage, self.gzip, self.permit) = (Stage::GivenUp, None, None);
        }
    }

    /// Returns the deadline of the job, in ms.
    #[must_use]
    pub fn late_ms(&self, now: Now) -> u64 {
        self.since_ms.unwrap_or(now.ms).saturating_add(JOB_MS_MAX + 1)
    }

    /// Starts the job's time limit if it has not started. Returns whether the deadline has passed.
    fn check_deadline(&mut self, now: Now) -> bool {
        self.since_ms.get_or_insert(now.ms);
        now.ms >= self.late_ms(now)
    }
}

#[cfg(test)]
mod tests;
