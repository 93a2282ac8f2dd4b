//! Requests that may be long: lists and deletions of a collection. Cut into steps, so that none of them holds a
//! renewal up.
//!
//! As long as something may still refuse the request its response has no head, and [`Job::has_head`] is false: steps then
//! append nothing. From there on only the end of the connection can say that something went wrong.

use super::gzip::{self, Gzip};
use super::preconditions::Preconditions;
use super::read::AskedState;
use super::token::ContinueToken;
use crate::api_error::ApiError;
use crate::clock::Now;
use crate::codec::list_meta::ListMeta;
use crate::codec::render::Pretty;
use crate::form::Form;
use crate::http::{Body, Response};
use crate::lease::strategy::{Propagation, deletion_finalizers, marked_for_deletion};
use crate::lease::{ApiVersion, ResourceVersion};
use crate::limits::{COLLECTED_BYTES_PER_STEP, DELETIONS_PER_STEP, JOB_KEYS_PER_STEP, JOB_MS_MAX};
use crate::media_type::Format;
use crate::metrics::RequestKind;
use crate::permits::Permit;
use crate::selector::Selector;
use crate::table::Table;
use crate::table::discard::States;
use crate::table::object::Object;
use crate::table::snapshot::{Forgotten, Snapshot};
use crate::watch::is_selected;
use bytes::Bytes;

/// A request that is worked on in steps, and whose response is a list.
#[derive(Debug)]
pub struct Job {
    selector: Selector,
    form: Form,
    /// Of an indented list, what indents it: as it goes out, not when it is whole.
    printer: Option<Printer>,
    stage: Stage,
    /// Which state of the table it is about.
    state: AskedState,
    /// What the request counts as; it is counted with the status of its response.
    kind: RequestKind,
    version: ApiVersion,
    /// How the body goes out, for a client that takes gzip.
    gzip: Option<Gzip>,
    /// Milliseconds at the end of the turn in which it was asked for.
    asked_ms: Option<u64>,
    /// Milliseconds at which the first step was made.
    began_ms: Option<u64>,
    /// If it is one of those of which there may not be many.
    permit: Option<Permit>,
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

/// What makes the list for people out of the compact one.
#[derive(Debug)]
struct Printer {
    /// Indents each piece as it goes out. Without it the list goes out when it is whole: YAML is made in one go.
    pretty: Option<Pretty>,
    /// What is not printed yet.
    compact: Vec<u8>,
}

impl Printer {
    /// The form in which a list is made, and what it is printed by, if it is.
    fn of(form: Form) -> (Form, Option<Self>) {
        let mut compact = form;
        let is_pretty = std::mem::take(&mut compact.representation.pretty);
        match form.representation.format {
            Format::Json if is_pretty => (compact, Some(Self { pretty: Some(Pretty::default()), compact: Vec::new() })),
            Format::Yaml => (form, Some(Self { pretty: None, compact: Vec::new() })),
            Format::Json | Format::Protobuf => (form, None),
        }
    }
}

/// Stages follow each other in this order; a job begins at the first that it needs.
#[derive(Debug)]
enum Stage {
    /// Of a list with a limit: its items are collected, since what stands before them tells what comes after them.
    Collect { snapshot: Snapshot, limit: usize, found: Found },
    /// Of a deletion: the Leases are found, then deleted.
    Delete { snapshot: Snapshot, deletion: Deletion, found: Found },
    /// A list without a limit: items go out as they are found.
    Stream { snapshot: Snapshot, head_sent: bool, items_sent: usize },
    /// A response that was at hand, and is too long to be compressed in one go.
    Body { head: Response, body: Bytes },
    /// Its time was over before its client had read what it has got; what it held is gone.
    GivenUp,
    /// Collected items go out.
    Send { meta: OwnedMeta, items: States, is_first: bool, is_empty: bool },
}

/// Items of a list, and the bytes that they will take as far as that must be known.
#[derive(Debug)]
struct Found {
    items: States,
    bytes: usize,
    /// What is behind them, once they are a full page.
    rest: Option<Rest>,
}

/// What is left of a list behind a page.
#[derive(Debug)]
struct Rest {
    token: ContinueToken,
    /// Leases of it that have been counted, where nobody knew how many there are.
    counted: usize,
}

impl Found {
    /// Nothing of `snapshot` yet.
    fn nothing(snapshot: &Snapshot) -> Self {
        Self { items: snapshot.no_states(), bytes: 0, rest: None }
    }

    fn push(&mut self, object: Object, form: Form) {
        self.bytes += form.list_item_len(&object);
        self.items.push_back(object);
    }

    /// What the list says of itself, now that its items are found; behind them there are more if `is_page`. `None` if
    /// another step must go on to count those: the token of a page whose version is gone does not know how many are left.
    fn meta(
        &mut self,
        snapshot: &mut Snapshot,
        table: &Table,
        is_page: bool,
        selector: &Selector,
    ) -> Result<Option<OwnedMeta>, Forgotten> {
        let version = snapshot.version();
        if !is_page {
            return Ok(Some(OwnedMeta { version, next: String::new(), remaining: None }));
        }
        let Rest { token, counted } =
            self.rest.get_or_insert_with(|| Rest { token: ContinueToken::after(snapshot), counted: 0 });
        // With a selector nobody knows how many of them count.
        let is_told = selector.is_everything();
        if is_told && token.remaining().is_none() {
            let count = |_: &Object| {
                *counted += 1;
                true
            };
            if snapshot.next(table, JOB_KEYS_PER_STEP, count)? {
                return Ok(None);
            }
            token.set_remaining(*counted);
        }
        if token.remaining() == Some(0) {
            // What could still have come was created later than the version.
            return Ok(Some(OwnedMeta { version, next: String::new(), remaining: None }));
        }
        let remaining = token.remaining().filter(|_| is_told).map(|remaining| remaining as u64);
        Ok(Some(OwnedMeta { version, next: token.encode(), remaining }))
    }
}

/// How the Leases of a collection are to be deleted.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// What becomes of their dependents.
    pub propagation: Propagation,
    /// What must hold of each. The first of which it does not ends the deletion; those before it are gone.
    pub preconditions: Preconditions,
    /// Whether nothing is to be deleted really.
    pub dry_run: bool,
    /// The most that are deleted; 0 is all.
    pub limit: usize,
}

impl Job {
    /// A list of what `snapshot` holds and `selector` takes; of at most `limit` items, or 0 for all.
    #[must_use]
    pub fn list(mut snapshot: Snapshot, selector: Selector, limit: usize, form: Form) -> Self {
        let (form, printer) = Printer::of(form);
        pin_if_whole(&mut snapshot, form);
        let stage = match limit {
            0 if form.needs_whole_list() => Stage::collect(snapshot, usize::MAX),
            0 => Stage::Stream { snapshot, head_sent: false, items_sent: 0 },
            limit => Stage::collect(snapshot, limit),
        };
        Self { printer, ..Self::new(selector, form, stage) }
    }

    /// A deletion of what `snapshot` holds and `selector` takes.
    #[must_use]
    pub fn delete_collection(mut snapshot: Snapshot, selector: Selector, deletion: Deletion, form: Form) -> Self {
        let (form, printer) = Printer::of(form);
        pin_if_whole(&mut snapshot, form);
        let found = Found::nothing(&snapshot);
        let stage = Stage::Delete { snapshot, deletion, found };
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
            kind: RequestKind::OtherVerb,
            version: ApiVersion::default(),
            gzip: None,
            asked_ms: None,
            began_ms: None,
            permit: None,
        }
    }

    /// Whether it is more than a step's work. Such a one may hold much, and all of them share the core.
    #[must_use]
    pub(super) fn is_long(&self) -> bool {
        let (snapshot, limit) = match &self.stage {
            Stage::Collect { snapshot, limit, .. } => (snapshot, *limit),
            Stage::Delete { snapshot, deletion, .. } if deletion.limit != 0 => (snapshot, deletion.limit),
            Stage::Delete { snapshot, .. } | Stage::Stream { snapshot, .. } => (snapshot, usize::MAX),
            Stage::Body { .. } | Stage::GivenUp | Stage::Send { .. } => return false,
        };
        // Of a page with a selector nobody knows how many do not count; of one behind which nobody has counted, all will be.
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
    pub(super) fn of_state(self, state: AskedState) -> Self {
        Self { state, ..self }
    }

    /// The same for a client that takes gzip: it gets that if the body is long.
    #[must_use]
    pub(super) fn compressed(self, gzip: Gzip) -> Self {
        Self { gzip: Some(gzip), ..self }
    }

    /// Says what the request counts as.
    pub fn count_as(&mut self, kind: RequestKind, version: ApiVersion) {
        (self.kind, self.version) = (kind, version);
    }

    /// What the request counts as.
    #[must_use]
    pub fn counts_as(&self) -> (RequestKind, ApiVersion) {
        (self.kind, self.version)
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

    /// Whether the head can go out: nothing can refuse the request any more, and what the head says of the body is known.
    #[must_use]
    pub fn has_head(&self) -> bool {
        match (&self.stage, &self.gzip) {
            // Of a version that the log may still forget nothing has come out.
            (Stage::Collect { .. } | Stage::Delete { .. } | Stage::Stream { head_sent: false, .. }, _)
            | (Stage::GivenUp, _) => false,
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
            JobError::Overtaken => ApiError::ServiceUnavailable { message: "overtaken".into() },
            JobError::Refused(error) => error,
        };
        let mut form = self.form.of_status();
        form.representation.pretty |= self.printer.as_ref().is_some_and(|printer| printer.pretty.is_some());
        Response::from_status(&error.status(), form)
    }

    /// One step; what it has to say is appended to `out` until that holds about `bytes_max`. `Ok(true)` when the
    /// response is whole. `out` must be empty as long as there is no head.
    ///
    /// # Errors
    /// [`JobError`]; the response cannot be finished, or, without a head, is [`Job::refusal`].
    pub fn step(&mut self, table: &mut Table, now: Now, out: &mut Vec<u8>, bytes_max: usize) -> Result<bool, JobError> {
        // What it holds, and what must be kept for it, cannot be held as long as a peer likes.
        let began_ms = match self.began_ms {
            Some(began_ms) => began_ms,
            None => {
                let was_long = self.is_long();
                self.stage.begin(table);
                // What was short when it was asked for has no permit.
                if self.is_long() && !was_long {
                    return Err(JobError::Refused(ApiError::TooManyRequests));
                }
                *self.began_ms.insert(now.ms)
            }
        };
        if now.ms.saturating_sub(began_ms) > JOB_MS_MAX {
            return Err(JobError::Overtaken);
        }
        let Some(mut gzip) = self.gzip.take() else { return self.plain_step(table, now, out, bytes_max) };
        let stepped = match gzip.wants_more() {
            Some((made, bytes_max)) => self.plain_step(table, now, made, bytes_max),
            None => Ok(false),
        };
        if let Ok(true) = stepped {
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
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<bool, JobError> {
        let Some(mut printer) = self.printer.take() else { return self.compact_step(table, now, out, bytes_max) };
        let stepped = match &mut printer.pretty {
            Some(pretty) => {
                printer.compact.clear();
                // About half of what goes out is spaces.
                let bytes_max = (bytes_max.saturating_sub(out.len()) / 2).max(1);
                let stepped = self.compact_step(table, now, &mut printer.compact, bytes_max);
                pretty.push(out, &printer.compact);
                stepped
            }
            None => {
                let stepped = self.compact_step(table, now, &mut printer.compact, usize::MAX);
                if let Ok(true) = stepped {
                    out.append(&mut printer.compact);
                }
                stepped
            }
        };
        self.printer = Some(printer);
        stepped
    }

    /// One step of the body as it is before it is indented or made YAML.
    fn compact_step(
        &mut self,
        table: &mut Table,
        now: Now,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<bool, JobError> {
        let Self { selector, form, stage, .. } = self;
        let (form, keys_max) = (*form, selector.share_of(JOB_KEYS_PER_STEP));
        match stage {
            Stage::Collect { snapshot, limit, found } => {
                let found_bytes_max = found.bytes + COLLECTED_BYTES_PER_STEP;
                let is_full = found.rest.is_some();
                let more = is_full
                    || snapshot.next(table, keys_max, |object| {
                        if is_selected(selector, object) {
                            found.push(object.clone(), form);
                        }
                        found.items.len() < *limit && found.bytes < found_bytes_max
                    })?;
                if more && found.items.len() < *limit {
                    return Ok(false);
                }
                let Some(meta) = found.meta(snapshot, table, more, selector)? else { return Ok(false) };
                let found = std::mem::replace(found, Found::nothing(snapshot));
                *stage = Stage::send(meta, found, form, out);
                self.compact_step(table, now, out, bytes_max)
            }
            Stage::Delete { snapshot, deletion, found } => {
                let mut doomed = Vec::new();
                let limit = if deletion.limit == 0 { usize::MAX } else { deletion.limit };
                let is_full = found.rest.is_some();
                let more = is_full
                    || snapshot.next(table, keys_max, |object| {
                        if is_selected(selector, object) {
                            doomed.push(object.clone());
                        }
                        doomed.len() < DELETIONS_PER_STEP && found.items.len() + doomed.len() < limit
                    })?;
                for object in doomed {
                    delete(table, &object, deletion, now).map_err(JobError::Refused)?;
                    found.push(object, form);
                }
                if more && found.items.len() < limit {
                    return Ok(false);
                }
                let Some(meta) = found.meta(snapshot, table, more, selector)? else { return Ok(false) };
                let found = std::mem::replace(found, Found::nothing(snapshot));
                *stage = Stage::send(meta, found, form, out);
                self.compact_step(table, now, out, bytes_max)
            }
            Stage::Body { body, .. } => {
                let piece =
                    body.split_to(bytes_max.saturating_sub(out.len()).clamp(1, body.len().max(1)).min(body.len()));
                out.extend_from_slice(&piece);
                Ok(body.is_empty())
            }
            Stage::Stream { snapshot, head_sent, items_sent } => {
                if !snapshot.catch_up(table)? {
                    return Ok(false);
                }
                if !std::mem::replace(head_sent, true) {
                    form.push_list_head(out, &ListMeta::at(snapshot.version()), 0);
                }
                let more = snapshot.next(table, keys_max, |object| {
                    if is_selected(selector, object) {
                        form.push_list_item(out, object, *items_sent == 0, now.wall);
                        *items_sent += 1;
                    }
                    out.len() < bytes_max
                })?;
                if !more {
                    form.push_list_close(out, &ListMeta::at(snapshot.version()), *items_sent == 0);
                }
                Ok(!more)
            }
            Stage::GivenUp => Err(JobError::Overtaken),
            Stage::Send { meta, items, is_first, is_empty } => {
                while out.len() < bytes_max {
                    // Each is let go of when it has been written: all at once would take long.
                    let Some(object) = items.pop_front() else {
                        form.push_list_close(out, &meta.borrowed(), *is_empty);
                        return Ok(true);
                    };
                    form.push_list_item(out, &object, std::mem::take(is_first), now.wall);
                }
                Ok(false)
            }
        }
    }

    /// Keeps what the rest of the response needs, before the log forgets it, for as long as it has time: to be called each
    /// turn. A peer that puts its next step off, or its first, puts off the end of what it holds by that no further.
    pub fn absorb(&mut self, table: &Table, now: Now) {
        let asked_ms = *self.asked_ms.get_or_insert(now.ms);
        if now.ms.saturating_sub(self.began_ms.unwrap_or(asked_ms)) > JOB_MS_MAX {
            (self.stage, self.gzip, self.permit) = (Stage::GivenUp, None, None);
            return;
        }
        let has_begun = self.began_ms.is_some();
        if let Some(snapshot) = self.stage.snapshot_mut()
            && (has_begun || !snapshot.is_refreshable())
        {
            // If that fails the next step fails as well.
            let _ = snapshot.absorb(table);
        }
    }
}

/// What is printed in one go must be as short when it begins as it was when that was looked at.
fn pin_if_whole(snapshot: &mut Snapshot, form: Form) {
    if form.representation.format == Format::Yaml {
        snapshot.pin();
    }
}

impl Stage {
    /// What the rest of it is read from.
    fn snapshot_mut(&mut self) -> Option<&mut Snapshot> {
        match self {
            Self::Collect { snapshot, .. } | Self::Delete { snapshot, .. } | Self::Stream { snapshot, .. } => {
                Some(snapshot)
            }
            Self::Body { .. } | Self::GivenUp | Self::Send { .. } => None,
        }
    }

    /// A list of how things stand is one of how they stand when it begins: so it need not follow the table while it waits,
    /// however many wait.
    fn begin(&mut self, table: &Table) {
        if let Some(snapshot) = self.snapshot_mut() {
            snapshot.refresh(table);
        }
    }

    fn collect(snapshot: Snapshot, limit: usize) -> Self {
        let found = Found::nothing(&snapshot);
        Self::Collect { snapshot, limit, found }
    }

    /// Begins to send what was collected.
    fn send(meta: OwnedMeta, found: Found, form: Form, out: &mut Vec<u8>) -> Self {
        let Found { items, bytes, .. } = found;
        form.push_list_head(out, &meta.borrowed(), bytes);
        Self::Send { meta, is_first: true, is_empty: items.is_empty(), items }
    }
}

/// What a list says of itself, kept until its end: in some forms it stands there.
#[derive(Debug)]
struct OwnedMeta {
    version: ResourceVersion,
    next: String,
    remaining: Option<u64>,
}

impl OwnedMeta {
    fn borrowed(&self) -> ListMeta<'_> {
        ListMeta { version: Some(self.version), next: &self.next, remaining: self.remaining }
    }
}

/// Deletes the Lease that `object` was, unless another has taken its name since, or marks it if finalizers hold it.
///
/// # Errors
/// 409 if a precondition does not hold.
fn delete(table: &mut Table, object: &Object, deletion: &Deletion, now: Now) -> Result<(), ApiError> {
    let (namespace, name) = object.key().parts();
    let Some((slot, current)) = table.find(namespace, name) else { return Ok(()) };
    if current.metadata().uid != object.metadata().uid {
        return Ok(());
    }
    deletion.preconditions.check(current)?;
    if deletion.dry_run {
        return Ok(());
    }
    let finalizers = deletion_finalizers(&current.metadata().finalizers, deletion.propagation);
    if finalizers.is_empty() {
        table.remove(slot);
        return Ok(());
    }
    let live = current.lease();
    let marked = marked_for_deletion(&live, finalizers, now.wall);
    if marked != *live {
        table.replace(slot, marked);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Api, Reply};
    use crate::auth::Credentials;
    use crate::http::{FieldLines, Method, RequestHead};
    use crate::lease::{Lease, Time};
    use crate::limits::{CATCH_UP_EVENTS_PER_STEP, SELECTOR_TERMS_PER_LOOK};
    use crate::media_type::Representation;
    use crate::permits::Permits;
    use crate::selector::label::LabelSelector;
    use crate::table::snapshot::Range;

    fn table_of(leases: usize) -> Table {
        let mut table = Table::new(ResourceVersion(1), 10, usize::MAX);
        (0..leases).for_each(|number| create(&mut table, number));
        table
    }

    fn create(table: &mut Table, number: usize) {
        let mut lease = Lease::default();
        lease.metadata.namespace = "n".into();
        lease.metadata.name = format!("l{number}").into();
        table.create(lease);
    }

    /// Goal: whoever puts a step off, the first or a later one, holds no permit for longer than the list may take.
    #[test]
    fn what_waits_for_its_client_is_let_go_of_when_its_time_is_over() {
        for (has_begun, limit) in [(false, 0), (true, 0), (true, 2 * JOB_KEYS_PER_STEP)] {
            let mut table = table_of(3 * JOB_KEYS_PER_STEP);
            let permits = Permits::new(1);
            let snapshot = Snapshot::now(&table, Range::All);
            let mut job = Job::list(snapshot, Selector::default(), limit, Form::default());
            *job.permit_mut() = permits.take();
            let at = |ms| Now { ms, wall: Time(0) };
            let mut out = Vec::new();
            job.absorb(&table, at(1000));
            if has_begun {
                assert!(matches!(job.step(&mut table, at(1000), &mut out, 1000), Ok(false)));
            }
            job.absorb(&table, at(1000 + JOB_MS_MAX));
            assert!(permits.take().is_none(), "its time is not over");
            job.absorb(&table, at(1001 + JOB_MS_MAX));
            assert!(permits.take().is_some(), "begun: {has_begun}, limit {limit}");
            assert!(matches!(job.step(&mut table, at(1001 + JOB_MS_MAX), &mut out, 1000), Err(JobError::Overtaken)));
        }
    }

    #[test]
    fn what_was_collected_for_one_who_has_gone_is_not_freed_at_once() {
        let mut table = table_of(3 * JOB_KEYS_PER_STEP);
        let now = Now { ms: 0, wall: Time(0) };
        let snapshot = Snapshot::now(&table, Range::All);
        let mut job = Job::list(snapshot, Selector::default(), 3 * JOB_KEYS_PER_STEP, Form::default());
        let mut out = Vec::new();
        for _ in 0..2 {
            assert!(matches!(job.step(&mut table, now, &mut out, 1000), Ok(false)));
        }
        // A change that the rest of the list must not see.
        let (slot, _) = table.find("n", "l999").expect("there");
        table.remove(slot);
        job.absorb(&table, now);
        drop(job);
        assert_eq!(table.discard().len(), 2 * JOB_KEYS_PER_STEP + 1);
        // One that is read to its end leaves nothing.
        table.discard().step(usize::MAX);
        let snapshot = Snapshot::now(&table, Range::All);
        let mut job = Job::list(snapshot, Selector::default(), JOB_KEYS_PER_STEP, Form::default());
        assert!(matches!(job.step(&mut table, now, &mut out, usize::MAX), Ok(true)));
        drop(job);
        assert!(table.discard().is_empty());
    }

    /// However long it waits for its first step, and whatever the log forgets meanwhile.
    #[test]
    fn a_list_is_of_how_things_stand_when_it_begins() {
        let mut table = table_of(2);
        let now = Now { ms: 0, wall: Time(0) };
        let mut job = Job::list(Snapshot::now(&table, Range::All), Selector::default(), 5, Form::default());
        let old = table.version();
        let of_version = Snapshot::at(&table, Range::All, old).expect("nothing is forgotten");
        let mut older = Job::list(of_version, Selector::default(), 5, Form::default());
        // More changes than the log keeps.
        for _ in 0..20 {
            let (slot, found) = table.find("n", "l0").expect("there");
            let lease = found.lease().into_owned();
            table.replace(slot, lease);
            job.absorb(&table, now);
            older.absorb(&table, now);
        }
        let (slot, _) = table.find("n", "l1").expect("there");
        table.remove(slot);
        for (job, version, items) in [(&mut job, table.version(), 1), (&mut older, old, 2)] {
            job.absorb(&table, now);
            let mut out = Vec::new();
            assert!(matches!(job.step(&mut table, now, &mut out, usize::MAX), Ok(true)));
            let list: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
            assert_eq!(list["metadata"]["resourceVersion"], version.to_string());
            assert_eq!(list["items"].as_array().map(Vec::len), Some(items));
        }
    }

    struct NoLines;

    impl FieldLines for NoLines {
        fn for_each(&self, _each: &mut dyn FnMut(&[u8], &[u8])) {}
    }

    /// A job by request, about namespace `n`.
    fn asked(table: &mut Table, method: Method, query: &str) -> Box<Job> {
        let request = RequestHead {
            method,
            path: "/apis/coordination.k8s.io/v1/namespaces/n/leases",
            query,
            accept: None,
            content_type: None,
            user_agent: None,
            fields: &NoLines,
        };
        let now = Now { ms: 0, wall: Time(0) };
        match Api::new().handle(table, &request, &mut Vec::from("{}"), &Credentials::insecure(), now) {
            Reply::Job(job) => job,
            other => panic!("{other:?}"),
        }
    }

    /// The next of what has changed since is taken in while others write faster: nothing has gone out, so that clients can be
    /// told what lets them begin anew.
    #[test]
    fn a_version_that_is_forgotten_on_the_way_is_expired() {
        const LOG_EVENTS: usize = 3 * CATCH_UP_EVENTS_PER_STEP;
        let now = Now { ms: 0, wall: Time(0) };
        let mut table = Table::new(ResourceVersion(1), LOG_EVENTS, usize::MAX);
        (0..2).for_each(|number| create(&mut table, number));
        let version = table.version();
        let mut out = Vec::new();
        let first = asked(&mut table, Method::Get, "limit=1").step(&mut table, now, &mut out, usize::MAX);
        assert!(matches!(first, Ok(true)));
        let first: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        let token = first["metadata"]["continue"].as_str().expect("there is another page");
        let renew = |table: &mut Table, count| {
            for _ in 0..count {
                let (slot, found) = table.find("n", "l0").expect("there");
                let lease = found.lease().into_owned();
                table.replace(slot, lease);
            }
        };
        renew(&mut table, 2 * CATCH_UP_EVENTS_PER_STEP);
        let next_page = format!("limit=1&continue={token}");
        let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
        let (pretty, limited) = (format!("{exact}&pretty=1"), format!("{exact}&limit=1"));
        let mut jobs: Vec<_> = [
            (Method::Get, &exact),
            (Method::Get, &pretty),
            (Method::Get, &limited),
            (Method::Delete, &exact),
            (Method::Get, &next_page),
            (Method::Delete, &next_page),
        ]
        .map(|(method, query)| (query, asked(&mut table, method, query)))
        .into();
        for (query, job) in &mut jobs {
            out.clear();
            assert!(matches!(job.step(&mut table, now, &mut out, usize::MAX), Ok(false)), "{query}");
            assert!(out.is_empty() && !job.has_head(), "{query}");
        }
        renew(&mut table, LOG_EVENTS);
        for (query, mut job) in jobs {
            job.absorb(&table, now);
            let error = job.step(&mut table, now, &mut out, usize::MAX).expect_err("it is forgotten");
            let response = job.refusal(error);
            let status: serde_json::Value = serde_json::from_slice(&response.body.into_bytes()).expect("JSON");
            assert_eq!((response.status, &status["reason"]), (410, &"Expired".into()), "{query}");
            let message = status["message"].as_str().expect("words");
            let fresh = status["metadata"]["continue"].as_str();
            if query == &next_page {
                assert!(message.contains("use the continue token in this response"), "{message}");
                let fresh = ContinueToken::decode(fresh.expect("a token")).expect("a token");
                assert_eq!((fresh.version(), fresh.start()), (None, "n/l0\0"));
            } else {
                assert_eq!(
                    (message, fresh),
                    ("The resourceVersion for the provided list is too old.", None),
                    "{query}"
                );
            }
        }
        assert_eq!(table.len(), 2);
    }

    /// Behind the last Lease of the page there are keys to look at, of which none was there at the version.
    #[test]
    fn a_page_behind_which_there_is_only_what_came_later_is_the_last() {
        let now = Now { ms: 0, wall: Time(0) };
        for query in ["limit=2", "limit=2&labelSelector=!a"] {
            let mut table = Table::new(ResourceVersion(1), 4 * JOB_KEYS_PER_STEP, usize::MAX);
            (0..2).for_each(|number| create(&mut table, number));
            let version = table.version();
            (2..2 + 2 * JOB_KEYS_PER_STEP).for_each(|number| create(&mut table, number));
            let query = format!("{query}&resourceVersion={version}&resourceVersionMatch=Exact");
            let mut job = asked(&mut table, Method::Get, &query);
            let mut out = Vec::new();
            while !job.step(&mut table, now, &mut out, usize::MAX).expect("nothing is forgotten") {}
            let list: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
            assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{query}");
            assert_eq!(list["metadata"], serde_json::json!({ "resourceVersion": version.to_string() }), "{query}");
        }
    }

    /// Of a page whose version is gone nobody has counted what is left: that takes steps of its own.
    #[test]
    fn what_is_left_behind_a_page_of_what_is_there_now_is_counted() {
        const LEASES: usize = 3 * JOB_KEYS_PER_STEP;
        let now = Now { ms: 0, wall: Time(0) };
        let mut table = table_of(LEASES);
        let mut others = LEASES..;
        let first = Snapshot::now(&table, Range::Namespace("n".into()));
        // Behind `l0`, which is the first.
        let token = ContinueToken::after(&first.from_key("n/l0\0", Some(7)).expect("in the range")).without_version();
        for (method, query, is_counted) in [
            (Method::Get, "limit=2", true),
            (Method::Get, "limit=2&labelSelector=!a", false),
            (Method::Delete, "limit=2", true),
        ] {
            let mut token = token.encode();
            let mut left = table.len() - 1;
            for page in 0..3 {
                let mut job = asked(&mut table, method, &format!("{query}&continue={token}"));
                // Only the first is of what is there now, and has all to count.
                assert_eq!(job.is_long(), page == 0 || !is_counted, "{query}, page {page}");
                let mut out = Vec::new();
                let mut steps = 1;
                while !job.step(&mut table, now, &mut out, usize::MAX).expect("nothing is forgotten") {
                    assert!(out.is_empty() && !job.has_head());
                    // What others do meanwhile is not of this version.
                    create(&mut table, others.next().expect("numbers do not end"));
                    job.absorb(&table, now);
                    steps += 1;
                }
                let list: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
                left -= 2;
                let remaining = list["metadata"]["remainingItemCount"].as_u64();
                assert_eq!(remaining, is_counted.then_some(left as u64), "{query}, page {page}");
                assert_eq!(steps > 1, is_counted && page == 0, "{query}, page {page}: {steps}");
                list["metadata"]["continue"].as_str().expect("there is more").clone_into(&mut token);
            }
        }
    }

    /// Of a table that has grown while it waited it would need a permit; what is made in one go does not grow.
    #[test]
    fn a_list_does_not_begin_longer_than_it_was_allowed() {
        let now = Now { ms: 0, wall: Time(0) };
        let outcome = |format| {
            let mut table = table_of(2);
            let form = Form { representation: Representation { format, ..Representation::JSON }, ..Form::default() };
            let mut job = Job::list(Snapshot::now(&table, Range::All), Selector::default(), 0, form);
            assert!(!job.is_long());
            for number in 2..=JOB_KEYS_PER_STEP {
                create(&mut table, number);
                job.absorb(&table, now);
            }
            let mut out = Vec::new();
            loop {
                match job.step(&mut table, now, &mut out, usize::MAX) {
                    Ok(false) => {}
                    over => return over,
                }
            }
        };
        assert!(matches!(outcome(Format::Json), Err(JobError::Refused(ApiError::TooManyRequests))));
        assert!(matches!(outcome(Format::Yaml), Ok(true)));
    }

    /// Goal: a selector of thousands of terms makes no step longer.
    #[test]
    fn a_step_looks_at_the_less_the_longer_the_selector_is() {
        let labels = vec!["!absent"; 1000].join(",");
        let selector = Selector { labels: LabelSelector::parse(&labels).expect("a selector"), ..Selector::default() };
        let deletion = Deletion {
            propagation: Propagation::default(),
            preconditions: Preconditions::default(),
            dry_run: false,
            limit: 0,
        };
        let now = Now { ms: 0, wall: Time(0) };
        for what in ["list", "page", "deletion"] {
            let mut table = table_of(40);
            let snapshot = Snapshot::now(&table, Range::All);
            let mut job = match what {
                "list" => Job::list(snapshot, selector.clone(), 0, Form::default()),
                "page" => Job::list(snapshot, selector.clone(), 100, Form::default()),
                _ => Job::delete_collection(snapshot, selector.clone(), deletion.clone(), Form::default()),
            };
            assert!(job.is_long(), "{what}: as much work as one of thousands");
            let (mut out, mut steps) = (Vec::new(), 1);
            while !job.step(&mut table, now, &mut out, usize::MAX).expect("nothing changes") {
                steps += 1;
            }
            assert!(steps >= 40 * 1000 / SELECTOR_TERMS_PER_LOOK / JOB_KEYS_PER_STEP, "{what}: all in {steps} steps");
            let list: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
            assert_eq!(list["items"].as_array().map(Vec::len), Some(40), "{what}");
            assert_eq!(table.len(), if what == "deletion" { 0 } else { 40 });
        }
    }

    /// What stands in the output before a list is not the list's, however many steps that takes.
    #[test]
    fn a_list_for_people_leaves_alone_what_goes_before_it() {
        let mut table = table_of(3 * JOB_KEYS_PER_STEP);
        let now = Now { ms: 0, wall: Time(0) };
        let mut list = |format, pretty, limit, head: &[u8], bytes_max| {
            let form =
                Form { representation: Representation { format, pretty, ..Representation::JSON }, ..Form::default() };
            let mut job = Job::list(Snapshot::now(&table, Range::All), Selector::default(), limit, form);
            let mut out = head.to_vec();
            loop {
                let bytes_max = out.len() + bytes_max;
                if job.step(&mut table, now, &mut out, bytes_max).expect("nothing changes") {
                    break;
                }
            }
            out.strip_prefix(head).expect("it was there before").to_vec()
        };
        for limit in [0, 2 * JOB_KEYS_PER_STEP] {
            let compact = list(Format::Json, false, limit, b"{\"head\"", 1000);
            let value: serde_json::Value = serde_json::from_slice(&compact).expect("JSON");
            let pretty = list(Format::Json, true, limit, b"{\"head\"", 1000);
            let mut expected = Vec::new();
            crate::codec::render::push_pretty(&mut expected, &compact);
            assert!(pretty == expected, "{limit}");
            let yaml = list(Format::Yaml, false, limit, b"{\"head\"", 1000);
            assert_eq!(crate::codec::yaml::decode(&yaml).expect("YAML").value, value);
        }
    }
}
