//! The worker copies Leases between the table and built-in storage (kube-apiserver's own storage of Leases in etcd).
//! Only one replica's worker is active. To import a Lease means to copy its state from built-in storage to the table.
//!
//! A command (`takeover` or `rollback`) writes the phase that it requests to the Lease of the hand-over. The worker
//! writes the step that it has reached to the same Lease. To read and write built-in storage, the worker sends commands
//! of its own to a separate thread, the thread of built-in storage. The feed ([`super::feed`]) is the worker's queue of
//! Leases whose newest change may not be in built-in storage yet.
//!
//! ```text
//!   import   read, import, report `imported`; then rounds: read, import, write the renewals made here, publish
//!   serve    read, import, write all Leases but those of nodes, report `serving`; then write each change of a Lease,
//!            and check whether the APIService is local
//!   undo     read, import, write every Lease, report `written-back`; then check whether the APIService is local
//!   freeze   read, write every Lease, report `written-back`; then check whether the APIService is local
//! ```
//!
//! Until the step `serving`, the worker writes only once the table has all changes of the last read. A write of a Lease
//! fails exactly if the Lease has changed in built-in storage since the last read. So a write before the import could
//! overwrite a new holder that is read, but not yet in the table.
//!
//! In the phase `serve`, and when a command requests `import` again, rounds continue until all replicas confirm the
//! phase. A dead replica confirms no phase, but counts as live until its identity Lease expires. Without these rounds,
//! clients that renew Leases would wait until then. For the same reason, rounds continue while some Lease cannot be
//! imported.
//!
//! The APIService is local if it names no Service, so that kube-apiserver serves the built-in Leases itself. Each check
//! also finds out whether somebody has deleted the APIService and created it again: the new one has another UID. When
//! another replica becomes the active one, the worker of that replica begins the phase again with a complete read. In
//! the phase `freeze`, a read of the changes is enough.
//!
//! A million Leases together would delay requests by a second. So each turn of the event loop imports, encodes and
//! compares only some of the Leases. One kind of work is not divided. If the worker must discard Leases that it has
//! read, encoded or queued, one turn frees all of them. The worker does so when a new phase begins, and when another
//! replica becomes the active one.

use super::encode::{Encoding, wanted};
use super::feed::{Feed, RENEWAL_MS};
use super::imports::Imports;
use super::state::{HandoverState, Progress, note_api_service, publish, say};
use super::{Mode, TAKEN_AWAY};
use crate::api::identity::{client_leases, is_own};
use crate::api::storage::Storage;
use crate::clock::Now;
use crate::codec::json::Decoder;
use crate::etcd::built_in::{BuiltInCommand, BuiltInEvent, BuiltInPort, Wanted};
use crate::handover::{Phase, ReadLeases, Step};
use crate::resource::ResourceVersion;
use crate::table::Table;
use crate::table::object::Key;
use crate::table::snapshot::Stepped;

/// Pause between two reads of built-in storage, in ms. `READ_MS` applies while the command `takeover` or `rollback`
/// probably runs, and `READ_LATER_MS` applies once [`SWITCH_SECONDS`] have passed since the `renewTime` of the
/// hand-over's Lease.
const READ_MS: u64 = 50;
const READ_LATER_MS: u64 = 250;
/// Time after the `renewTime` of the hand-over's Lease during which a command probably still runs, in seconds.
const SWITCH_SECONDS: i64 = 60;
/// Pause after a failed command to the thread of built-in storage, before the next attempt, in ms.
const RETRY_MS: u64 = 1_000;
/// Interval of the worker's checks in the stage [`Stage::Rest`], in ms.
const REST_MS: u64 = 1_000;
/// Time between two writes of due Leases to built-in storage, in ms.
const FEED_MS: u64 = 200;
/// Maximum duration of a watch that a client opened at built-in storage before a takeover, in seconds. kube-apiserver
/// ends a watch after at most an hour, unless its `--min-request-timeout` exceeds the default of 1,800 s.
const WATCH_SECONDS_MAX: i64 = 65 * 60;
/// The duration [`WATCH_SECONDS_MAX`] in ms.
pub(super) const WATCH_MS_MAX: u64 = WATCH_SECONDS_MAX.unsigned_abs() * 1_000;
/// Maximum number of due Leases that one command to the thread of built-in storage writes.
const FEED_LEASES_MAX: usize = 2_000;
/// Maximum number of Leases of a complete read that one turn of the event loop compares with the table.
pub(super) const COMPARED_PER_TURN: usize = 2_000;

/// Copies Leases between the table and built-in storage at this replica, during a hand-over.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) port: BuiltInPort,
    /// State of the hand-over in the last call of [`Worker::work`].
    state: HandoverState,
    stage: Stage,
    /// The command that the thread of built-in storage carries out now; `None` if the thread is idle.
    under_way: Option<UnderWay>,
    /// Whether the next read must return all Leases of built-in storage (a complete read), and not only the changes
    /// since the last read. In the phase `freeze`, no read is complete, and the field keeps its value for the next
    /// phase.
    reads_all: bool,
    imports: Imports,
    /// Leases of the last complete read that the worker has yet to compare with the table, while this server serves.
    /// The worker deletes from built-in storage those that the table lacks.
    uncompared: ReadLeases,
    /// The Leases for the write of the stage [`Stage::Write`], while the worker encodes them.
    encoding: Option<Encoding>,
    feed: Feed,
    /// Progress that the worker publishes at the end of the current round, in a Lease only for the progress.
    round: Progress,
    /// Whether all replicas had confirmed the phase before the last read began.
    is_read_confirmed: bool,
    /// `resourceVersion` of the table when the worker last queued renewals for built-in storage.
    write_version: ResourceVersion,
    /// Time at which the worker next continues its stage, in ms.
    stage_ms: u64,
    /// Time at which the feed next takes in the changes of the table, and writes due Leases, in ms.
    feed_ms: u64,
    /// Time before which the feed writes nothing, in ms: some time after a failed command.
    feed_retry_ms: u64,
    /// Whether the feed sent the last command and has skipped no turn since. If so, the feed skips the next turn in
    /// which a stage is due, for the command of the stage.
    has_fed: bool,
    /// Time, by the monotonic clock, by which every watch from before the takeover has ended, in ms; 0 if this worker
    /// has seen no takeover.
    watches_end_ms: u64,
    /// Whether this replica's worker is the active one.
    is_working: bool,
    /// Number of failed commands to the thread of built-in storage since the start.
    errors: u64,
}

/// The stage of the worker within a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A read of built-in storage is next, or in progress.
    Read,
    /// The worker imports the Leases that the last read returned.
    TakeIn,
    /// A write to built-in storage is next, or in progress.
    Write,
    /// The worker publishes the progress of its round.
    Publish,
    /// The phase needs no more work, apart from periodic checks.
    Rest,
}

/// The command that the thread of built-in storage carries out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnderWay {
    purpose: Purpose,
    /// Whether the worker has discarded its work since it gave the command, for example because a new phase began. If
    /// so, the result does not complete the stage. The worker may still import the Leases of a read.
    is_stale: bool,
}

/// The purpose of a command to the thread of built-in storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A write of due Leases while this server serves the Leases.
    Feed,
    /// A check whether the APIService is local or was deleted.
    Look,
    /// A read of the stage [`Stage::Read`].
    Read {
        /// Whether the command asks for all Leases.
        is_complete: bool,
    },
    /// A write of the stage [`Stage::Write`].
    Write,
}

impl Worker {
    pub(super) fn new(port: BuiltInPort) -> Self {
        Self {
            port,
            state: HandoverState::default(),
            stage: Stage::Rest,
            under_way: None,
            reads_all: true,
            imports: Imports::default(),
            uncompared: ReadLeases::new(),
            encoding: None,
            feed: Feed::default(),
            round: Progress::default(),
            is_read_confirmed: false,
            write_version: ResourceVersion::default(),
            stage_ms: 0,
            feed_ms: 0,
            feed_retry_ms: 0,
            has_fed: false,
            watches_end_ms: 0,
            is_working: false,
            errors: 0,
        }
    }

    /// Returns the number of failed commands to the thread of built-in storage since the start.
    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    /// Returns the number of Leases that cannot be imported.
    pub(super) fn refused_leases(&self) -> usize {
        self.imports.refused_leases()
    }

    /// Returns the time of the worker's next work, in ms. Returns `None` if another replica's worker is active.
    pub(super) fn due_ms(&self) -> Option<u64> {
        // The end of the feed's write wakes the event loop. So the stage needs no timer while it waits for that end.
        let stage_ms = if self.waits_for_feed() { u64::MAX } else { self.stage_ms };
        self.is_working.then(|| stage_ms.min(self.feed_ms))
    }

    /// Whether the next command of the stage must wait for the end of the feed's current write.
    fn waits_for_feed(&self) -> bool {
        let is_feeding = self.under_way.is_some_and(|under_way| under_way.purpose == Purpose::Feed);
        is_feeding && matches!(self.stage, Stage::Read | Stage::Rest)
    }

    /// Continues the work in a phase. `is_confirmed` is true once every replica has confirmed the phase.
    pub(super) fn work(
        &mut self,
        state: &HandoverState,
        is_confirmed: bool,
        table: &mut Table,
        storage: &mut Storage,
        decoder: &mut Decoder,
        now: Now,
    ) {
        // Another replica may have noticed in the middle of this worker's work that the APIService is local or was
        // deleted. Then this worker discards its work.
        let is_given_back = state.step == Some(Step::NotOurs) && self.state.step != state.step;
        if !self.is_working || is_given_back || self.state.asked != state.asked || self.state.phase != state.phase {
            self.begin(state);
        }
        if self.state != *state {
            self.state = state.clone();
        }
        if !takes_in(state) {
            self.imports.clear();
        }
        self.take_event(state, table, storage, now);
        self.compare(table, now);
        self.imports.take_in(table, storage, decoder, now);
        let shows_progress = state.phase == Some(Phase::Import) && state.step.is_none();
        self.imports.report(shows_progress, table, storage, now);
        self.feed(state, table, now);
        // The next round begins once the table shows this round as complete. Either this worker has published the
        // round, or another replica has published a round with the same number.
        if self.stage == Stage::Publish && self.round.round <= state.progress.round {
            (self.stage, self.stage_ms) = (Stage::Read, now.ms + self.pause_ms(state, now));
        }
        // While a stage waits for the feed's write, `stage_ms` does not change. So the stage stays due, and its command
        // comes before the feed's next write.
        while !self.waits_for_feed()
            && (self.stage_ms <= now.ms || matches!(self.stage, Stage::TakeIn | Stage::Write | Stage::Publish))
        {
            let before = self.stage;
            self.go_on(state, is_confirmed, table, storage, now);
            self.stage_ms = now.ms + self.pause_ms(state, now);
            if self.stage == before {
                break;
            }
        }
    }

    /// Returns the time until the next check of the current stage, in ms.
    fn pause_ms(&self, state: &HandoverState, now: Now) -> u64 {
        let is_left = state.since.is_none_or(|since| since.saturating_add(SWITCH_SECONDS) < now.wall.0);
        match self.stage {
            Stage::Read if self.imports.is_runnable() => 0,
            Stage::TakeIn if self.imports.is_runnable() || !self.uncompared.is_empty() => 0,
            Stage::Write if self.under_way.is_none() && (self.encoding.is_some() || self.feed.is_filling()) => 0,
            Stage::Rest => REST_MS,
            Stage::Read | Stage::TakeIn | Stage::Write | Stage::Publish if is_left => READ_LATER_MS,
            Stage::Read | Stage::TakeIn | Stage::Write | Stage::Publish => READ_MS,
        }
    }

    /// Begins a phase. If the new phase imports Leases, the worker still imports those that it has read in an earlier
    /// phase.
    fn begin(&mut self, state: &HandoverState) {
        // Once the APIService has named no Service, built-in storage may have newer Leases. So this server neither
        // reads nor writes them, even if the APIService names its Service again.
        self.stage = if state.step == Some(Step::NotOurs) { Stage::Rest } else { Stage::Read };
        // An incremental read returns only the Leases that have changed in built-in storage since the last read. It
        // would miss Leases that only the table has changed since then, by writes of clients or by imports of another
        // replica.
        //
        // A rollback that has given up may leave a Lease in built-in storage that clients have deleted at this server.
        // Only a complete read finds such a Lease.
        self.reads_all |= !self.is_working || state.phase == Some(Phase::Import) || state.step == Some(Step::Serving);
        self.is_working = true;
        self.imports.retry_refused();
        self.discard(state.phase != Some(Phase::Freeze));
        (self.stage_ms, self.feed_ms, self.feed_retry_ms) = (0, 0, 0);
    }

    /// Stops the work, since another replica's worker is active now. Discards all Leases in progress.
    pub(super) fn stand_by(&mut self) {
        self.is_working = false;
        self.imports = Imports::default();
        self.discard(true);
        // Discards a result that has already arrived. It would be outdated when this replica's worker is active again.
        while self.port.next().is_some() {
            self.under_way = None;
        }
    }

    /// Makes the command under way stale. Discards all Leases that wait for their comparison or for their write to
    /// built-in storage. The command under way ends early: the next command must not wait until the thread has read or
    /// written Leases that the new phase reads or writes again.
    ///
    /// If `ends_read` is false, a read does not end early. After an interrupted complete read, the thread would have to
    /// read all Leases again. The phase `freeze` has no time for that.
    fn discard(&mut self, ends_read: bool) {
        if let Some(under_way) = &mut self.under_way {
            under_way.is_stale = true;
            if ends_read || !matches!(under_way.purpose, Purpose::Read { .. }) {
                self.port.cancel();
            }
        }
        self.uncompared = ReadLeases::new();
        self.encoding = None;
        self.feed = Feed::default();
    }

    fn send(&mut self, purpose: Purpose, command: BuiltInCommand) {
        debug_assert!(self.under_way.is_none(), "the thread has a command");
        debug_assert!(self.encoding.is_none(), "a later write could precede the write of all Leases");
        self.under_way = Some(UnderWay { purpose, is_stale: false });
        self.has_fed = purpose == Purpose::Feed;
        self.port.send(command);
    }

    /// Continues the current stage if its condition is met.
    fn go_on(&mut self, state: &HandoverState, is_confirmed: bool, table: &mut Table, storage: &mut Storage, now: Now) {
        let is_idle = self.under_way.is_none();
        match self.stage {
            Stage::Read if (is_confirmed || may_only_renew(state)) && is_idle && self.imports.is_empty() => {
                // The phase `freeze` imports and compares no Leases. Its write uses only what the thread knows of
                // built-in storage, and a read of the changes updates that. A complete read would take longer, and no
                // client may write in this phase.
                let is_complete = state.phase != Some(Phase::Freeze) && std::mem::take(&mut self.reads_all);
                self.is_read_confirmed = is_confirmed;
                self.round = Progress { round: state.progress.round + 1, ..state.progress };
                self.send(Purpose::Read { is_complete }, BuiltInCommand::Read { is_complete });
            }
            // While writes to built-in storage fail, `compare` may wait for room in the feed for a long time. The next
            // stage does not wait for `compare`, since it checks the APIService. `compare` continues once the feed has
            // room.
            Stage::TakeIn
                if self.imports.is_empty() && (self.uncompared.is_empty() || self.feed.is_half_full(table)) =>
            {
                self.after_read(state, table, storage, now);
            }
            Stage::Write if is_idle && self.is_round(state) => self.write_renewals(state, table, now),
            Stage::Write if is_idle => self.write(state, table),
            Stage::Publish => publish(table, storage, self.round, now),
            // The Lease of the hand-over lacks the step that the worker reported: the journal did not apply that write.
            // So the worker begins with a read again.
            Stage::Rest if state.step.is_none() => self.stage = Stage::Read,
            // An operator may make the APIService local by hand while this server has no Lease to write. Without this
            // check, the watches at this server would then stay open, and show no changes of built-in Leases.
            Stage::Rest if is_idle && matches!(state.step, Some(Step::Serving | Step::WrittenBack)) => {
                self.send(Purpose::Look, BuiltInCommand::Look { api_service: state.api_service.clone() });
            }
            Stage::Read | Stage::TakeIn | Stage::Write | Stage::Rest => {}
        }
    }

    /// Handles the next event of the thread of built-in storage.
    fn take_event(&mut self, state: &HandoverState, table: &mut Table, storage: &mut Storage, now: Now) {
        let Some(event) = self.port.next() else { return };
        let Some(UnderWay { purpose, is_stale }) = self.under_way.take() else { return };
        match event {
            // The worker drops this read, so the next read must return all Leases. One reason: after this read, another
            // replica may have imported newer states.
            BuiltInEvent::Read { .. } if is_stale && (self.reads_all || !takes_in(state)) => self.reads_all = true,
            BuiltInEvent::Read { leases, is_complete } => {
                if takes_in(state) {
                    self.imports.put(leases, is_complete);
                } else if is_complete && state.step == Some(Step::Serving) {
                    self.uncompared = leases;
                }
                // A stale read began before the phase, so it does not complete the stage. But no later read of changes
                // returns its Leases, so they are imported. A complete read instead would also return the renewals that
                // the worker has written to built-in storage. Their import would give these Leases new versions, and
                // the next renewals of their holders would get 409.
                if !is_stale {
                    self.stage = Stage::TakeIn;
                }
            }
            _ if is_stale => {}
            BuiltInEvent::Written { overtaken } if purpose == Purpose::Feed => {
                self.feed.end(!overtaken.is_empty(), now);
                if let (Some(lease), Some(Step::Serving)) = (overtaken.first(), state.step) {
                    tracing::warn!(lease, "another client has written a built-in Lease; this server writes it again");
                    self.stage = Stage::Read;
                }
            }
            BuiltInEvent::Written { overtaken } if overtaken.is_empty() => self.after_write(state, table, storage, now),
            BuiltInEvent::Written { .. } => {
                self.feed.end(true, now);
                (self.stage, self.stage_ms) = (Stage::Read, now.ms);
            }
            BuiltInEvent::Ours { uid } if state.step == Some(Step::Serving) => {
                if state.api_service.is_none() {
                    note_api_service(table, storage, &uid, now);
                }
                if self.reads_all && self.uncompared.is_empty() {
                    // The complete read finds deletions that the event log has dropped and the feed lacks. The read
                    // comes after a check, since reads in a row would leave the thread no time for checks.
                    (self.stage, self.stage_ms) = (Stage::Read, now.ms);
                }
            }
            BuiltInEvent::Ours { .. } => {}
            // While the APIService names no Service, the thread writes no Leases. So built-in storage lacks the
            // renewals of this round, and the next round writes them.
            BuiltInEvent::NotOurs if self.is_round(state) => {
                self.feed.end(true, now);
                self.stage = Stage::Publish;
            }
            BuiltInEvent::NotOurs => {
                self.rest(now);
                self.discard(true);
                let is_taken_away = state.phase == Some(Phase::Serve);
                let why = if is_taken_away { TAKEN_AWAY } else { "the APIService is local or was deleted" };
                say(table, storage, Some(Step::NotOurs), why, now);
            }
            BuiltInEvent::Failed { why, is_lost } => {
                self.errors += 1;
                tracing::warn!(why, "a command to built-in storage failed; the hand-over of Leases tries again");
                self.feed.end(true, now);
                if is_lost && state.step == Some(Step::Serving) {
                    // etcd may have been restored from a backup. Then it may have earlier holders again, and Leases
                    // that this server has deleted. So the worker reads all Leases, and feeds those that differ, as
                    // after a start.
                    self.reads_all = true;
                    self.begin(state);
                }
                // The next attempt of the stage comes before the next write of the feed. While every write fails, the
                // feed would otherwise leave the thread no time to check the APIService. Meanwhile the feed takes in
                // changes, before the event log drops them.
                (self.stage_ms, self.feed_retry_ms) = (now.ms + RETRY_MS, now.ms + RETRY_MS + FEED_MS);
                if purpose != Purpose::Feed && self.stage != Stage::Rest {
                    self.stage = Stage::Read;
                    // The next read of changes returns what a failed one would have returned. A complete read instead
                    // would also return the renewals that the worker has written, and change their versions.
                    self.reads_all |= purpose == Purpose::Read { is_complete: true };
                }
                // The commands `takeover` and `rollback` do not wait for a check of the APIService, so they need no
                // message. A message would also renew the Lease of the hand-over. The worker would then feed renewals
                // again, as after a takeover. The message `why` does not replace the reason why a Lease cannot be
                // imported.
                if purpose != Purpose::Look && self.imports.refusal().is_none() {
                    say(table, storage, None, &why, now);
                }
            }
        }
    }

    /// Queues the deletion of Leases that only built-in storage has. The former active replica may have died before it
    /// deleted such a Lease there, or the event log has dropped the deletion. While the feed is half full, queues
    /// nothing: the other half is for the Leases that clients delete.
    fn compare(&mut self, table: &Table, now: Now) {
        for _ in 0..COMPARED_PER_TURN {
            if self.feed.is_half_full(table) {
                break;
            }
            let Some((key, _)) = self.uncompared.pop_first() else { break };
            if let Some((namespace, name)) = key.split_once('/')
                && table.find(namespace, name).is_none()
            {
                self.feed.put(&Key::new(namespace, name), now.ms);
            }
        }
    }

    /// Starts the next stage once the table has all Leases that were read.
    fn after_read(&mut self, state: &HandoverState, table: &mut Table, storage: &mut Storage, now: Now) {
        self.stage = match state.phase {
            _ if self.is_round(state) => Stage::Write,
            _ if self.imports.refusal().is_some() => Stage::Read,
            Some(Phase::Import) => {
                let message = format!("{} Leases are here", client_leases(table));
                let is_said = say(table, storage, Some(Step::Imported), &message, now);
                if is_said { Stage::Read } else { Stage::TakeIn }
            }
            Some(Phase::Serve) if state.step == Some(Step::Serving) => Stage::Rest,
            Some(Phase::Serve | Phase::Undo | Phase::Freeze) => Stage::Write,
            Some(Phase::Copy | Phase::Hold) | None => Stage::Rest,
        };
    }

    /// Whether the last read belongs to a round. Otherwise the read belongs to the last step of a phase. A Lease that
    /// cannot be imported delays this step, but not the renewals of other Leases.
    fn is_round(&self, state: &HandoverState) -> bool {
        let is_delayed = !self.is_read_confirmed || self.imports.refusal().is_some();
        // In the phase `import`, each write belongs to a round. During this write, the journal may apply an earlier
        // removal of the step `imported`.
        let is_write = state.phase == Some(Phase::Import) && self.stage == Stage::Write;
        may_only_renew(state) && (state.step == Some(Step::Imported) || is_delayed || is_write)
    }

    /// Writes the renewals that built-in storage lacks. The caller has imported every change that the last read
    /// returned. The table lacks each Lease that cannot be imported, so this function does not write it.
    fn write_renewals(&mut self, state: &HandoverState, table: &Table, now: Now) {
        debug_assert!(self.imports.is_empty(), "a write compares what was read");
        self.write_version = table.version();
        self.feed.take_in(table, Some(0), now);
        let leases = self.take_fed(table, false, now);
        if leases.is_empty() {
            self.after_renewals(now);
        } else {
            self.send(Purpose::Write, changed(leases, state));
        }
    }

    /// Continues the round once built-in storage has the written renewals.
    fn after_renewals(&mut self, now: Now) {
        self.feed.end(false, now);
        if !self.feed.is_filling() && !self.feed.is_due(now) {
            self.round.written = self.write_version;
            self.stage = Stage::Publish;
        }
    }

    /// Removes the due Leases from the queue, and returns their states for built-in storage. Records that the worker's
    /// next command writes these Leases.
    fn take_fed(&mut self, table: &Table, is_serving: bool, now: Now) -> Vec<Wanted> {
        let (mut keys, mut leases) = (Vec::new(), Vec::new());
        while leases.len() < FEED_LEASES_MAX && self.feed.is_due(now) {
            for key in self.feed.take_due(FEED_LEASES_MAX - leases.len(), now) {
                if let Some(lease) = fed(table, &key, is_serving) {
                    leases.push(lease);
                    keys.push(key);
                }
            }
        }
        self.feed.begin(keys);
        leases
    }

    /// Writes the Leases that the phase requires: in `serve` all Leases but those of nodes, otherwise all Leases. Each
    /// call encodes some of the Leases. The call that encodes the last ones sends the command. The write contains all
    /// Leases at the version that the table had at the first call.
    fn write(&mut self, state: &HandoverState, table: &Table) {
        let is_everything = matches!(state.phase, Some(Phase::Undo | Phase::Freeze));
        let mut encoding = self.encoding.take().unwrap_or_else(|| {
            // Clients may delete Leases as soon as the worker has reported this write. So that no deletion is missed,
            // the feed reads all changes from this version of the table on.
            self.feed.start(table.version());
            Encoding::begin(table, is_everything)
        });
        if encoding.step(table) == Stepped::More {
            self.encoding = Some(encoding);
            return;
        }
        let leases = encoding.into_leases();
        // A forced write also writes locks that have not changed. A late update of a lock by kube-apiserver is based on
        // the older state, so the update then fails.
        let (is_complete, is_forced) = (is_everything, !is_everything);
        let api_service = state.api_service.clone();
        self.send(Purpose::Write, BuiltInCommand::Write { leases, is_complete, is_forced, api_service });
    }

    /// Continues a round after its write. In any other case, reports the step that the write has completed.
    fn after_write(&mut self, state: &HandoverState, table: &mut Table, storage: &mut Storage, now: Now) {
        let (step, message) = match state.phase {
            _ if self.is_round(state) => return self.after_renewals(now),
            Some(Phase::Serve) => (Step::Serving, "no request reaches built-in storage any more".to_owned()),
            Some(Phase::Undo | Phase::Freeze) => {
                (Step::WrittenBack, format!("{} Leases written back", client_leases(table)))
            }
            Some(Phase::Import | Phase::Copy | Phase::Hold) | None => return,
        };
        if say(table, storage, Some(step), &message, now) {
            self.rest(now);
        } else {
            self.stage = Stage::Read;
        }
    }

    /// Begins the stage [`Stage::Rest`] after the report of a step. The first check comes later, since the journal has
    /// yet to apply the report.
    fn rest(&mut self, now: Now) {
        (self.stage, self.stage_ms) = (Stage::Rest, now.ms + REST_MS);
    }

    /// Writes due Leases to built-in storage while this server serves the Leases.
    fn feed(&mut self, state: &HandoverState, table: &Table, now: Now) {
        if self.feed_ms > now.ms {
            return;
        }
        if (state.phase, state.step) != (Some(Phase::Serve), Some(Step::Serving)) {
            self.feed_ms = now.ms + REST_MS;
            self.watches_end_ms = now.ms + WATCH_MS_MAX;
            return;
        }
        self.feed_ms = now.ms + FEED_MS;
        // Another replica's worker may have completed the takeover, so that `watches_end_ms` is not set here. Then the
        // wall clock shows the time since the takeover.
        let has_watches = now.ms < self.watches_end_ms
            || state.since.is_some_and(|since| now.wall.0 < since.saturating_add(WATCH_SECONDS_MAX));
        if !self.feed.is_full(table) {
            // The feed cannot queue a deletion that the event log has dropped. A complete read finds the deleted Lease
            // in built-in storage.
            self.reads_all |= self.feed.take_in(table, has_watches.then_some(RENEWAL_MS), now);
            if self.feed.is_behind() {
                // The next turn reads the remaining changes. Otherwise the event log could drop changes before the feed
                // has read them.
                self.feed_ms = now.ms;
            }
        }
        // While the worker encodes all Leases for a write, that write has older states than the feed. So it must come
        // first.
        if self.under_way.is_some() || self.encoding.is_some() || now.ms < self.feed_retry_ms {
            return;
        }
        // Under constant load, each turn has Leases to write. So the feed skips one turn if it wrote last and the stage
        // is due. Otherwise the thread would have no time for checks of the APIService and for reads.
        let is_stage_due = self.stage_ms <= now.ms && matches!(self.stage, Stage::Read | Stage::Rest);
        if is_stage_due && std::mem::take(&mut self.has_fed) {
            return;
        }
        let leases = self.take_fed(table, true, now);
        if !leases.is_empty() {
            self.send(Purpose::Feed, changed(leases, state));
        }
    }
}

/// Returns the command that writes Leases that have changed.
fn changed(leases: Vec<Wanted>, state: &HandoverState) -> BuiltInCommand {
    BuiltInCommand::Write { leases, is_complete: false, is_forced: false, api_service: state.api_service.clone() }
}

/// Returns the state that a Lease must have in built-in storage; `None` if built-in storage needs no write. Before the
/// step `serving`, the worker writes only Leases that a client has written at this server, and deletes none.
fn fed(table: &Table, key: &Key, is_serving: bool) -> Option<Wanted> {
    let (namespace, name) = key.parts();
    match table.find(namespace, name) {
        Some((_, object)) => {
            let is_wanted = is_serving || object.built_in_version().is_none();
            (is_wanted && !is_own(object.metadata())).then(|| wanted(object))
        }
        None => is_serving.then(|| Wanted { key: key.as_str().to_owned(), value: None }),
    }
}

/// Whether clients may only renew Leases at this server, while other clients write to built-in storage.
fn may_only_renew(state: &HandoverState) -> bool {
    state.mode() == Mode::Following
}

/// Whether the worker imports the Leases that it reads. While this server has the newer Leases, the worker imports
/// none. After the step `not-ours`, the worker reads none. In the phases `copy` and `hold`, the worker does not work.
fn takes_in(state: &HandoverState) -> bool {
    match state.phase {
        Some(Phase::Import) => true,
        Some(Phase::Undo) => state.step != Some(Step::NotOurs),
        Some(Phase::Serve) => !matches!(state.step, Some(Step::Serving | Step::NotOurs)),
        Some(Phase::Freeze | Phase::Copy | Phase::Hold) | None => false,
    }
}
