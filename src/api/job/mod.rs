//! Work that may be long: lists, deletions of a collection, and bodies that are compressed. Cut into steps, so that
//! none of it holds a renewal up.
//!
//! As long as something may still refuse the request its response has no head, and [`Job::has_head`] is false: steps
//! then append nothing. From there on only the end of the connection can say that something went wrong.

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
use crate::permits::Permit;
use crate::selector::Selector;
use crate::table::Table;
use crate::table::discard::States;
use crate::table::snapshot::{Forgotten, Snapshot, Stepped};
use bytes::Bytes;
use delete_collection::CollectionDeletion;
use found::{Found, OwnedMeta};

/// A response that is made in steps: a list, that of a deletion of a collection, or one that is at hand and is
/// compressed.
#[derive(Debug)]
pub struct Job {
    selector: Selector,
    form: Form,
    /// Of an indented list, what indents it.
    printer: Option<Printer>,
    stage: Stage,
    /// Which state of the table it is about.
    state: AskedState,
    /// What the request counts as; it is counted with the status of its response.
    request: Option<PendingRequest>,
    /// How the body goes out, for a client that takes gzip.
    gzip: Option<Gzip>,
    /// Milliseconds at which its first step was made, or was first seen not to have been.
    since_ms: Option<u64>,
    /// If it is one of those of which there may not be many.
    permit: Option<Permit>,
    /// Whether the next step waits for changes that the job has made.
    is_waiting: bool,
}

/// Why a job ends before its response is whole.
#[derive(Debug)]
pub enum JobError {
    /// The body cannot be compressed.
    Compression,
    /// The log has forgotten what the rest needs.
    Forgotten,
    /// It has taken longer than [`JOB_MS_MAX`].
    Overtaken,
    /// The request is refused; there is no head yet.
    Refused(ApiError),
}

impl From<Forgotten> for JobError {
    fn from(_: Forgotten) -> Self {
        Self::Forgotten
    }
}

/// What indents a list as it goes out.
#[derive(Debug, Default)]
struct Printer {
    pretty: Pretty,
    /// A piece that is not indented yet.
    compact: Vec<u8>,
}

impl Printer {
    /// The form in which a list is made, and what it is indented by, if it is.
    fn of(form: Form) -> (Form, Option<Self>) {
        let mut compact = form;
        let is_pretty = std::mem::take(&mut compact.representation.pretty);
        (compact, is_pretty.then(Self::default))
    }
}

/// What the next step does. From [`Stage::Collect`] and [`Stage::Delete`] a job goes on to [`Stage::Send`]; the others
/// it stays in to its end, unless its time is over.
#[derive(Debug)]
enum Stage {
    /// Of a list with a limit: its items are collected, since what stands before them tells what comes after them.
    Collect { found: Found },
    /// Of a deletion: the Leases are found, then deleted.
    Delete { found: Found, deletion: CollectionDeletion },
    /// A list without a limit: items go out as they are found.
    Stream(StreamedList),
    /// A response that was at hand, and is too long to be compressed in one go.
    Body { head: Response, body: Bytes },
    /// Its time was over before its client had read what it has got; what it held is gone.
    GivenUp,
    /// Collected items go out.
    Send(Unsent),
}

/// A list of which nothing is collected.
#[derive(Debug)]
struct StreamedList {
    snapshot: Snapshot,
    head_sent: bool,
    items_sent: usize,
}

impl StreamedList {
    /// Appends the next items.
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
        if !std::mem::replace(head_sent, true) {
            form.push_list_head(out, &ListMeta::at(snapshot.version()), 0);
        }
        let stepped = snapshot.next(table, selector.share_of(JOB_KEYS_PER_STEP), |object| {
            if object.is_selected_by(selector) {
                form.push_list_item(out, object, *items_sent == 0, now.wall);
                *items_sent += 1;
            }
            out.len() < bytes_max
        })?;
        if stepped == Stepped::Done {
            form.push_list_close(out, &ListMeta::at(snapshot.version()), *items_sent == 0);
        }
        Ok(stepped)
    }
}

/// What was collected and has not gone out.
#[derive(Debug)]
struct Unsent {
    meta: OwnedMeta,
    items: States,
    is_first: bool,
    is_empty: bool,
}

impl Unsent {
    /// Appends the next items.
    fn send(&mut self, form: Form, now: Now, out: &mut Vec<u8>, bytes_max: usize) -> Stepped {
        while out.len() < bytes_max {
            // Each is let go of when it has been written: all at once would take long.
            let Some(object) = self.items.pop_front() else {
                form.push_list_close(out, &self.meta.borrowed(), self.is_empty);
                return Stepped::Done;
            };
            form.push_list_item(out, &object, std::mem::take(&mut self.is_first), now.wall);
        }
        Stepped::More
    }
}

impl Job {
    /// A list of what `snapshot` holds and `selector` takes; of at most `limit` items, or 0 for all.
    #[must_use]
    pub fn list(snapshot: Snapshot, selector: Selector, limit: usize, form: Form) -> Self {
        let (form, printer) = Printer::of(form);
        let stage = match limit {
            0 if !form.needs_whole_list() => Stage::Stream(StreamedList { snapshot, head_sent: false, items_sent: 0 }),
            limit => Stage::Collect { found: Found::nothing(snapshot, limit) },
        };
        Self { printer, ..Self::new(selector, form, stage) }
    }

    /// A deletion of what `snapshot` holds and `selector` takes; of at most `limit` Leases, or 0 for all.
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

    /// A response that is at hand, in pieces.
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
            gzip: None,
            since_ms: None,
            permit: None,
            is_waiting: false,
        }
    }

    /// Whether the next step waits until changes that the job has made are settled. It may be made before, in vain.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Lets the next step be made.
    pub fn end_waiting(&mut self) {
        self.is_waiting = false;
    }

    /// Whether its next step may delete Leases.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        matches!(self.stage, Stage::Delete { .. })
    }

    /// Whether it is more than a step's work. Such a one may hold much, and all of them share the core.
    #[must_use]
    pub(super) fn is_long(&self) -> bool {
        let (snapshot, limit) = match &self.stage {
            Stage::Collect { found } | Stage::Delete { found, .. } => (&found.snapshot, found.limit),
            Stage::Stream(list) => (&list.snapshot, usize::MAX),
            Stage::Body { .. } | Stage::GivenUp | Stage::Send(_) => return false,
        };
        // Of a page with a selector nobody knows how many do not count; of one behind which nobody has counted, all
        // will be.
        let is_page = self.selector.is_everything() && snapshot.remaining().is_some();
        snapshot.is_long(if is_page { limit } else { usize::MAX }, self.selector.share_of(JOB_KEYS_PER_STEP))
    }

    /// Whether it collects what it finds before it sends it.
    #[must_use]
    pub(super) fn holds_states(&self) -> bool {
        matches!(self.stage, Stage::Collect { .. } | Stage::Delete { .. })
    }

    /// Where it keeps a permit until it is over.
    pub(super) fn permit_mut(&mut self) -> &mut Option<Permit> {
        &mut self.permit
    }

    /// Says which state its snapshot is of.
    #[must_use]
    pub(super) fn with_state(self, state: AskedState) -> Self {
        Self { state, ..self }
    }

    /// The same for a client that takes gzip: it gets that if the body is long.
    #[must_use]
    pub(super) fn compressed(self, gzip: Gzip) -> Self {
        Self { gzip: Some(gzip), ..self }
    }

    /// Says what the request counts as.
    pub(super) fn set_request(&mut self, request: PendingRequest) {
        self.request = Some(request);
    }

    /// Counts the request, whose response begins.
    pub fn count_begin(&self, metrics: &mut Metrics, status: u16) {
        if let Some(request) = &self.request {
            request.count_begin(metrics, status);
        }
    }

    /// Counts how long the request took, when its last step has been made.
    pub fn count_end(&self, metrics: &mut Metrics, now: Now) {
        if let Some(request) = &self.request {
            request.count_end(metrics, now);
        }
    }

    /// The head of the response, with an empty body.
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

    /// Whether the head can go out: nothing can refuse the request any more, and what the head says of the body is
    /// known.
    #[must_use]
    pub fn has_head(&self) -> bool {
        match (&self.stage, &self.gzip) {
            // Of a version that the log may still forget nothing has come out.
            (Stage::Collect { .. } | Stage::Delete { .. } | Stage::GivenUp, _) => false,
            (Stage::Stream(list), _) if !list.head_sent => false,
            (_, Some(gzip)) => gzip.is_decided(),
            (_, None) => true,
        }
    }

    /// The response of a job that ended with `error` and has no head.
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

    /// One step; what it has to say is appended to `out` until that holds about `bytes_max`. `out` must be empty as
    /// long as there is no head.
    ///
    /// # Errors
    /// [`JobError`]; the response cannot be finished, or, without a head, is [`Job::refusal`].
    pub fn step(
        &mut self,
        table: &mut Table,
        storage: &mut Storage,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<Stepped, JobError> {
        // What it holds, and what must be kept for it, cannot be held as long as a peer likes.
        if self.is_late(now) {
            return Err(JobError::Overtaken);
        }
        let Some(mut gzip) = self.gzip.take() else { return self.plain_step(table, storage, now, out, bytes_max) };
        let stepped = match gzip.wants_more() {
            Some((made, bytes_max)) => self.plain_step(table, storage, now, made, bytes_max),
            None => Ok(Stepped::More),
        };
        if let Ok(Stepped::Done) = stepped {
            gzip.end();
        }
        let stepped = stepped.and_then(|_| gzip.step(out).map_err(|_| JobError::Compression));
        self.gzip = Some(gzip);
        stepped
    }

    /// One step of the body as it is before it is compressed.
    fn plain_step(
        &mut self,
        table: &mut Table,
        storage: &mut Storage,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<Stepped, JobError> {
        let Some(mut printer) = self.printer.take() else {
            return self.compact_step(table, storage, now, out, bytes_max);
        };
        printer.compact.clear();
        // About half of what goes out is spaces.
        let bytes_max = (bytes_max.saturating_sub(out.len()) / 2).max(1);
        let stepped = self.compact_step(table, storage, now, &mut printer.compact, bytes_max);
        printer.pretty.push(out, &printer.compact);
        self.printer = Some(printer);
        stepped
    }

    /// One step of the body as it is before it is indented.
    fn compact_step(
        &mut self,
        table: &mut Table,
        storage: &mut Storage,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<Stepped, JobError> {
        let bytes_max = match self.form.representation.format {
            Format::Yaml => bytes_max.min(out.len().saturating_add(YAML_BYTES_PER_STEP)),
            Format::Json | Format::Protobuf => bytes_max,
        };
        self.is_waiting = false;
        let Self { selector, form, stage, .. } = self;
        match stage {
            Stage::Collect { found } => {
                let stepped = found.collect(table, selector, *form)?;
                self.finish(stepped, table, storage, now, out, bytes_max)
            }
            Stage::Delete { found, deletion } => {
                let stepped = deletion.step(found, table, storage, selector, *form, now)?;
                self.is_waiting = deletion.is_waiting();
                self.finish(stepped, table, storage, now, out, bytes_max)
            }
            Stage::Body { body, .. } => {
                let piece =
                    body.split_to(bytes_max.saturating_sub(out.len()).clamp(1, body.len().max(1)).min(body.len()));
                out.extend_from_slice(&piece);
                Ok(if body.is_empty() { Stepped::Done } else { Stepped::More })
            }
            Stage::Stream(list) => list.step(table, selector, *form, now, out, bytes_max),
            Stage::GivenUp => Err(JobError::Overtaken),
            Stage::Send(rest) => Ok(rest.send(*form, now, out, bytes_max)),
        }
    }

    /// Begins to send what was found, if no more is to be found: `stepped` says whether there may be more, and the page
    /// may be full.
    fn finish(
        &mut self,
        stepped: Stepped,
        table: &mut Table,
        storage: &mut Storage,
        now: Now,
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
        let Some(meta) = found.meta(table, may_be_more, &self.selector)? else { return Ok(Stepped::More) };
        self.form.push_list_head(out, &meta.borrowed(), found.bytes);
        let items = found.take_items();
        self.stage = Stage::Send(Unsent { meta, is_first: true, is_empty: items.is_empty(), items });
        self.compact_step(table, storage, now, out, bytes_max)
    }

    /// Lets go of what it holds, if its time is over: to be called now and then. A peer that puts its next step off, or
    /// its first, puts off the end of that no further.
    pub fn on_timeout(&mut self, now: Now) {
        if self.is_late(now) {
            (self.stage, self.gzip, self.permit) = (Stage::GivenUp, None, None);
        }
    }

    /// When a step finds the job late, in ms.
    #[must_use]
    pub fn late_ms(&self, now: Now) -> u64 {
        self.since_ms.unwrap_or(now.ms).saturating_add(JOB_MS_MAX + 1)
    }

    fn is_late(&mut self, now: Now) -> bool {
        self.since_ms.get_or_insert(now.ms);
        now.ms >= self.late_ms(now)
    }
}

#[cfg(test)]
mod tests;
