//! What bounds the cost of a peer, whoever applies it: what it sends, holds or does not read, and what is done for it
//! in a turn and in a step.
//!
//! Not here: the limits of a connection of HTTP/2 ([`crate::http2::limits`]); rules of the API, such as the length of a
//! name, which stand with the other rules; and what only one module knows of, such as how far the reader of a format, a
//! list of complaints or a cache goes, or how much the transport encrypts at once, which stands there.

// ---- Requests: what a peer sends, and what is held of it until it is served ----

/// Bytes of a request head (request line and fields) that HTTP/1.1 takes; more is 431. Go's default is 1 MiB,
/// but no client of this API comes near: 64 KiB holds a very long selector and a thousand groups.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Field lines of a request head; more is 431.
pub const HEAD_FIELDS_MAX: usize = 128;

/// Bytes of a field section that an HTTP/1.1 connection keeps between two requests, so that the same one need not be
/// read again. A kubelet's are some 300.
pub const FIELDS_KEPT_BYTES_MAX: usize = 2 * 1024;

/// Bytes of a request target; more is 414.
pub const TARGET_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a request's target, in HTTP/1.1 of its line; the Lease of a longer one is not prefetched.
pub const PREFETCH_TARGET_BYTES_MAX: usize = 512;

/// Bytes of a request body; more is 413. kube-apiserver's `MaxRequestBodyBytes`.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Bytes of a body in YAML; more is 413.
pub const YAML_BYTES_MAX: usize = 512 * 1024;

/// Nodes of a body in YAML, each key, scalar, collection and alias counted; more is 413. Each takes most of a
/// microsecond to read, and two bytes make one.
pub const YAML_NODES_MAX: usize = 64 * 1024;

/// Levels of arrays and objects within each other, the outermost counted, in a body of YAML, in a patch and in what
/// that leads to; more is refused. It is what `serde_json` reads.
pub const DOCUMENT_DEPTH_MAX: usize = 127;

/// Values in the JSON of a patch, counted by commas and brackets; more is 413. Each is made, merged, and made a part of
/// a Lease, which takes most of a microsecond together, while everybody waits. A Lease that serves its purpose has some
/// twenty.
pub const PATCH_VALUES_MAX: usize = 64 * 1024;

/// Values in the `managedFields` that a client sends with a change of them, those within their keys too, but not those
/// of entries that are as they were; with more the list is taken for one that cannot be read. They are read, put in
/// order and written again, which takes most of a microsecond each.
pub const MANAGED_FIELDS_VALUES_MAX: usize = 64 * 1024;

/// Bytes of a Lease in protobuf; a write that would lead to a longer one is 500. etcd's `--max-request-bytes`, which
/// there bounds the whole request, of which all but the object is some hundred bytes.
pub const OBJECT_BYTES_MAX: usize = 1536 * 1024;

/// Bytes of a Lease above which the refusal has other words: those of etcd's client, which does not even send it.
pub const OBJECT_BYTES_SENT_MAX: usize = 2 * 1024 * 1024;

/// Labels, annotations, finalizers and owners of a Lease, all together; a write that would lead to more is 422.
/// Whatever is made of a Lease is made in one go, and takes the longer for each of them.
pub const METADATA_ENTRIES_MAX: usize = 10_000;

/// Bytes for which each Lease counts towards the quota at the least, beside its labels, annotations, owners and
/// finalizers: room for some two thousand characters of all else, each of which may take seven bytes. One that serves
/// its purpose has a few hundred.
pub const METERED_BYTES_MIN: usize = 16 * 1024;

/// Bytes of a request body from a peer without a certificate, who is refused whatever it sends.
pub const ANONYMOUS_BODY_BYTES_MAX: usize = 16 * 1024;

/// Streams of HTTP/2 that a peer without a certificate may have open.
pub const ANONYMOUS_STREAMS_MAX: u32 = 100;

/// How many bodies of the greatest size an HTTP/2 connection may have that are not served yet, in bytes and with their
/// heads; above that the greatest is refused with 429. kube-apiserver multiplexes a whole cluster over one.
pub const CONNECTION_BODIES_MAX: usize = 10;

/// Bytes received on all connections together of requests that are not answered yet, above which none may hold more
/// than [`RECEIVED_BYTES_LOW`] of them. It is no bound of the sum, since each may still hold so much. A buffer that
/// grows with what is received takes up to twice the memory.
pub const RECEIVED_BYTES_TOTAL_HIGH: usize = 64 * 1024 * 1024;

/// Bytes of requests that are not served yet which a connection may hold then: as many as one whose peer has no
/// certificate ever may. No Lease that serves its purpose comes near; one that would pass it is refused with 429.
pub const RECEIVED_BYTES_LOW: usize = ANONYMOUS_BODY_BYTES_MAX * CONNECTION_BODIES_MAX;

/// Claims to Leases from before the start, each of some twenty bytes; the holder of one more waits as others do, unless
/// it is in a namespace of the cluster itself. A cluster has some hundred locks.
pub const CLAIMS_MAX: usize = 64 * 1024;

/// Certificates that a client may send with its own. Anybody can make some that bear the name of an authority, and
/// every way through them is tried, so that with 120 an anonymous peer's handshake took 10 ms.
pub const INTERMEDIATES_MAX: usize = 3;

// ---- The turn: what each kind of work is given of it ----

/// Connections of which one turn hears that something has come. As many, beside those that were left over and those
/// that are new, may be served or closed before the first of them gets its answer.
pub const EVENTS_PER_TURN: usize = 256;

/// Connections accepted in one turn from one listener.
pub const ACCEPTS_PER_TURN: usize = 256;

/// Bytes read from one connection in one turn before the others have theirs.
pub const READ_BYTES_PER_TURN: usize = 256 * 1024;

/// The same if the peer has no certificate: what it may ask for is short, and what it sends need not be requests. Then
/// its connection is slow, see the turn in docs/architecture.md.
pub const ANONYMOUS_READ_BYTES_PER_TURN: usize = 4 * 1024;

/// Bytes read, of all connections together, between two looks at the clock: a quarter of a millisecond, or one if they
/// are TLS records with nothing in them but new keys, of which anybody can send as many as they like. Renewals, with
/// their own looks at the clock, come to less.
pub const READ_BYTES_PER_CLOCK: usize = 16 * 1024;

/// Requests served for one connection in one turn before the others have theirs.
pub const REQUESTS_PER_TURN: usize = 128;

/// Microseconds of a turn for requests, all connections together; the last may pass it by its own length, and those
/// that wait are the first of the next turn. A turn that is full of renewals serves some eight hundred.
pub const REQUEST_US_PER_TURN: u64 = 2_000;

/// Plain requests between two looks at the clock: some twenty microseconds.
pub const REQUESTS_PER_CLOCK: u32 = 8;

/// Bytes of the bodies of a request and its answer, up to which a read or an update of a Lease counts as plain. What is
/// longer is followed by a look at the clock: a Lease of a megabyte takes a thousand times as long as one of a
/// kilobyte.
pub const PLAIN_REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the texts of a Lease from which on it is large: a request about it takes a tenth of a millisecond and more,
/// or ten if each character has to be escaped.
pub const LARGE_LEASE_BYTES_MIN: usize = 64 * 1024;

/// Microseconds of a turn for steps of TLS handshakes, of which the last may pass it: each takes some hundred, and when
/// all clients come back at once there are thousands. Those who are through need not wait for them.
pub const HANDSHAKE_US_PER_TURN: u64 = 500;

/// Microseconds of a turn for steps of lists and deletions of a collection, all connections together; the last step,
/// which takes a few hundred, may pass it. However many there are, requests are served between two such times.
pub const JOB_US_PER_TURN: u64 = 250;

/// Bytes of watch events written for all watchers in one turn before requests are looked at again: half a millisecond,
/// or a whole one, most of which is their encryption.
pub const FAN_OUT_BYTES_PER_TURN: usize = 512 * 1024;

/// Events of the log and Leases that are looked at for all watchers in one turn, whether or not they are for them. One
/// that a long selector looks at counts for several, see [`SELECTOR_TERMS_PER_LOOK`].
pub const FAN_OUT_LOOKS_PER_TURN: u64 = 64 * 1024;

/// Microseconds of a turn for filling watchers, of which the last filling may pass it, once [`FAN_OUT_LOOKS_PER_CLOCK`]
/// have been made. Those who look at little and write much are stopped by [`FAN_OUT_BYTES_PER_TURN`] before.
pub const FAN_OUT_US_PER_TURN: u64 = 500;

/// Looks between two at the clock while watchers are filled: a tenth of a millisecond, or two. Most turns make fewer,
/// and never look at the clock.
pub const FAN_OUT_LOOKS_PER_CLOCK: u64 = 1024;

/// Microseconds of a turn in which states are let go of that lists and watches held which have been given up: of a
/// deletion they are the last handles, and each takes most of a microsecond.
pub const DISCARD_US_PER_TURN: u64 = 250;

// ---- Output: what waits to be sent, and the memory for it ----

/// Bytes of each text in a `Status`, and of all its causes together: a refusal may quote what it refuses in four
/// places, and JSON takes six bytes for one.
pub const STATUS_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of output queued on a connection above which nothing more is made for it: no request served, no event
/// written, no list continued. The last piece may pass it by its own size.
pub const QUEUED_BYTES_HIGH: usize = 256 * 1024;

/// Bytes of output queued on a connection above which no request is served, if its peer has no certificate, and so gets
/// refusals and needs few of them; and for everybody while more than [`QUEUED_BYTES_TOTAL_HIGH`] is queued.
pub const QUEUED_BYTES_LOW: usize = 16 * 1024;

/// Bytes of output queued on all connections together, for the socket or for a window, above which requests get only
/// [`QUEUED_BYTES_LOW`] each: many peers that do not read take memory from the Leases. It is no bound of the sum, since
/// each of them still gets one answer.
pub const QUEUED_BYTES_TOTAL_HIGH: usize = 128 * 1024 * 1024;

/// Bytes of responses that wait for the windows of one HTTP/2 connection, above which a stream whose body would wait is
/// reset. While more than [`QUEUED_BYTES_TOTAL_HIGH`] waits on all connections it is [`QUEUED_BYTES_LOW`].
pub const UNSENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of a list body up to which it is sent whole, with its length.
pub const LIST_WHOLE_BYTES_MAX: usize = 128 * 1024;

/// Bytes of a body above which it goes out compressed to those who ask for it. kube-apiserver's threshold.
pub const GZIP_BYTES_MIN: usize = 128 * 1024;

/// Versions that a watcher of one name or namespace keeps while its connection is full, before it goes back to
/// reading the log.
pub const WATCHER_PENDING_MAX: usize = 1024;

/// Events that are kept as they were written for one watcher, for the others: a turn's, as a rule.
pub const RECENT_EVENTS: usize = 256;

/// Longer events are not kept so, in bytes.
pub const RECENT_EVENT_BYTES_MAX: usize = 4 * 1024;

/// Size of a pooled buffer, in bytes: one read, and one TLS record with room.
pub const BUFFER_BYTES: usize = 32 * 1024;

/// Idle buffers kept for reuse; more are freed.
pub const BUFFERS_POOLED_MAX: usize = 256;

/// Lines of the log that wait for standard error; further ones are dropped and counted. At 200 bytes each this is under
/// 1 MiB.
pub const LOG_LINES_QUEUED_MAX: usize = 4096;

// ---- Long work: how much of it is under way, and what one step does ----

/// Lists, deletions of collections and watches that begin with what is there, of those that may take more than a few
/// steps, asked for and not over; further ones are 429, and clients come again after a second. Each may hold handles of
/// a million Leases; and as many lists of a million, 0.9 s of the core each, just end within [`JOB_MS_MAX`] if there is
/// nothing else to do: requests come first. Clients have no shares in it: whoever may list is an administrator, or
/// comes through kube-apiserver, which shares it out.
pub const LONG_JOBS_MAX: usize = 64;

/// Responses that are compressed at once, all connections together; further ones go out plain. Each holds
/// deflate's tables and what waits to be compressed, also while its client reads nothing.
pub const GZIP_JOBS_MAX: usize = 64;

/// Terms of a selector by which a look at a Lease costs as much more as one without them. A target has room for ten
/// thousand, which take a tenth of a millisecond: whatever is bounded by looks gets the fewer of them the longer its
/// selector is, and at least one. A selector of less than so many costs nothing.
pub const SELECTOR_TERMS_PER_LOOK: usize = 8;

/// Keys that a list or a deletion of a collection looks at in one step; fewer if its selector is long.
pub const JOB_KEYS_PER_STEP: usize = 512;

/// Bytes of items of a list that are collected in one step, if they must be measured first.
pub const COLLECTED_BYTES_PER_STEP: usize = 1024 * 1024;

/// Bytes of a list in YAML that are made in one step, which takes far longer than making them in JSON.
pub const YAML_BYTES_PER_STEP: usize = 16 * 1024;

/// Bytes that are compressed in one step of a list, which takes far longer than making them.
pub const GZIP_BYTES_PER_STEP: usize = 64 * 1024;

/// Lists under way, newest first, of which a change asks whether one needs what it takes away; with more it is kept for
/// the next.
pub const HOLDS_LOOKED_AT: usize = 8;

/// Events of the log that a snapshot of an older version takes in in one step.
pub const CATCH_UP_EVENTS_PER_STEP: usize = 4096;

/// Events of the log that one filling of a watcher looks at, whether or not they are for it; fewer if its selector is
/// long.
pub const SCAN_EVENTS_PER_FILL: usize = 1024;

/// Objects that a deletion of a collection deletes in one step; fewer if the log would grow by more than
/// [`UNDELIVERED_SHARE`] and [`UNDELIVERED_BYTES_MAX`] allow.
pub const DELETIONS_PER_STEP: usize = 256;

/// Part of the event log, as one of so many, that deletions of collections fill before it is delivered to watchers:
/// those who keep up are not to fall off it.
pub const UNDELIVERED_SHARE: usize = 16;

/// Bytes by which deletions of collections let the event log grow before it is delivered to watchers; the last event
/// may pass it. About what one of them is given in a turn.
pub const UNDELIVERED_BYTES_MAX: usize = FAN_OUT_BYTES_PER_TURN;

/// Leases and changes of the journal that a starting server takes in in one turn: some ten milliseconds. Probes are
/// answered between two turns.
pub const RECORDS_LOADED_PER_TURN: usize = 16 * 1024;

/// States that are let go of between two looks at the clock.
pub const STATES_DISCARDED_PER_STEP: usize = 64;

/// States waiting to be let go of, above which nobody may ask for a list that would hold more of them, or for a long
/// one.
pub const STATES_DISCARDED_MAX: usize = 1_000_000;

/// Bytes of long Leases that the table has lost and lists under way still hold, beside what the event log holds, above
/// which a write that replaces a long Lease, or makes one, is 429.
pub const OUTLIVED_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Of them, how many such a write looks at again.
pub const OUTLIVED_LOOKED_AT: usize = 256;

// ---- Waiting: requests that cannot be answered yet ----

/// Requests that wait for another change of their Lease, all connections together; a further one is 429.
///
/// The requests of an HTTP/2 connection that wait may hold as many bytes as those that are not served
/// ([`CONNECTION_BODIES_MAX`], [`RECEIVED_BYTES_LOW`]). One whose body takes more than half of what is left is 429.
pub const WAITING_FOR_KEY_MAX: usize = 4_096;

/// Requests that wait until this replica has caught up, all connections together; a further one is 429.
pub const WAITING_TO_CATCH_UP_MAX: usize = 65_536;

/// Creations that wait for their namespace, all connections together; a further one is 429.
pub const WAITING_FOR_NAMESPACE_MAX: usize = 64;

/// Changes of a request that may be rejected because another write came first; then the answer is 409.
pub const WRITE_ATTEMPTS_MAX: u32 = 8;

// ---- Time: what must have come or gone by then, and what is waited for ----

/// Milliseconds that a connection has to show a certificate before it may be ended because all places are taken and
/// another one wants its own: for the round trips of a handshake. Whoever floods the port has a place for no longer, so
/// as many of the others get in as there are places in this time.
pub const ANONYMOUS_MS_MIN: u64 = 500;

/// Milliseconds in which a TLS handshake and then each request head must arrive once it has begun; in HTTP/2 each frame
/// of it, of which there may be [`CONTINUATION_FRAMES_MAX`](crate::http2::limits::CONTINUATION_FRAMES_MAX) more.
pub const HEAD_MS_MAX: u64 = 10_000;

/// Milliseconds in which a request body must arrive.
pub const BODY_MS_MAX: u64 = 60_000;

/// Milliseconds for which a connection with no request under way is kept. Longer than the 90 s after which Go clients
/// drop one of theirs.
pub const IDLE_MS_MAX: u64 = 180_000;

/// Milliseconds in which what is queued for a peer must go, or [`WRITE_STALL_BYTES_MIN`] of it, as far as the kernel
/// tells; the same for what waits for the windows of an HTTP/2 stream.
pub const WRITE_STALL_MS_MAX: u64 = 60_000;

/// Bytes that must go in [`WRITE_STALL_MS_MAX`] while more wait. Less would let a peer hold what is under way for as
/// long as it likes.
pub const WRITE_STALL_BYTES_MIN: usize = 16 * 1024;

/// Milliseconds for which what a refused peer still sends is read and dropped, so that it can read the refusal before
/// a reset destroys it (RFC 9112 §9.6).
pub const LINGER_MS_MAX: u64 = 1_000;

/// Milliseconds after which a list or a deletion of a collection gets no further step, and a watch that begins with
/// what is there no further event of that. kube-apiserver's `--request-timeout`. A peer that reads as slowly as
/// [`WRITE_STALL_MS_MAX`] lets it puts off the end that it is told of, but not that of what is held for it.
pub const JOB_MS_MAX: u64 = 60_000;

/// Milliseconds between two looks whether there are lists or deletions of a collection that have passed [`JOB_MS_MAX`].
pub const LATE_JOBS_INTERVAL_MS: u64 = 1000;

/// Milliseconds that a creation waits for its namespace, of which the cluster may not have told yet: in a cluster that
/// is well it does within milliseconds, and after one failure within half a second.
pub const NAMESPACE_WAIT_MS: u64 = 500;

/// Longest wait of a write for the journal, in ms; then the answer is 504. kube-apiserver's `--request-timeout`.
pub const WRITE_WAIT_MS_MAX: u64 = 60_000;

/// Longest wait of a request for a barrier, in ms; then the answer is 504.
pub const BARRIER_WAIT_MS_MAX: u64 = 10_000;

/// Longest wait of a read until its version is applied, in ms; then the answer is 504. kube-apiserver waits as long
/// (apiserver `storage/cacher`, `blockTimeout`).
pub const VERSION_WAIT_MS_MAX: u64 = 3_000;

/// Milliseconds between two looks for requests whose wait is too long.
pub const WAIT_LOOK_MS: u64 = 250;

/// Shortest time-out of a watch that names none, in seconds; the longest is twice that.
/// kube-apiserver's `--min-request-timeout`.
pub const WATCH_SECONDS_MIN: u64 = 1800;

/// Seconds between two bookmarks of one watch. kube-apiserver's interval.
pub const BOOKMARK_SECONDS: u64 = 60;

/// Milliseconds for which a listener rests when the process has no file descriptor left.
pub const ACCEPT_PAUSE_MS: u64 = 100;

/// Milliseconds after which the log says again that the server has as many connections as it may.
pub const FULL_TOLD_AGAIN_MS: u64 = 60_000;

/// Milliseconds that an orderly stop waits for what is under way.
pub const SHUTDOWN_MS_MAX: u64 = 3_000;

const _: () = assert!(HEAD_BYTES_MAX >= TARGET_BYTES_MAX);
const _: () = assert!(BUFFER_BYTES <= READ_BYTES_PER_TURN);
const _: () = assert!(LIST_WHOLE_BYTES_MAX <= QUEUED_BYTES_HIGH);
const _: () = assert!(HEAD_BYTES_MAX + ANONYMOUS_BODY_BYTES_MAX <= RECEIVED_BYTES_LOW);
const _: () = assert!(HEAD_BYTES_MAX + BODY_BYTES_MAX < u32::MAX as usize);
