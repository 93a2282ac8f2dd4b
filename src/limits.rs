//! Limits on the cost of a peer: bytes it sends, memory it holds, responses it does not read, and work for it.
//!
//! Other modules have further limits. [`crate::http2::limits`] has those of an HTTP/2 connection. Limits on API values,
//! such as the length of a name, are with the other rules of the API. A limit that only one module needs is in that
//! module: for a parser, a list of error messages, a cache, or the bytes encrypted at once.

// ---- Requests: what a peer sends, and what the server holds of a request until it is served ----

/// Maximum bytes of an HTTP/1.1 request head (request line and fields); a longer head gets 431. Go's default is 1 MiB.
/// 64 KiB is enough for a very long selector and a thousand groups.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of field lines of a request head; a head with more gets 431.
pub const HEAD_FIELDS_MAX: usize = 128;

/// Maximum bytes of a field section that an HTTP/1.1 connection keeps. If the next request has the same section, it is
/// not parsed again. A kubelet's section has about 300 bytes.
pub const FIELDS_KEPT_BYTES_MAX: usize = 2 * 1024;

/// Maximum bytes of a request target; a longer target gets 414.
pub const TARGET_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a request target (HTTP/1.1: of the request line) above which its Lease is not prefetched.
pub const PREFETCH_TARGET_BYTES_MAX: usize = 512;

/// Maximum bytes of a request body; a longer body gets 413. It is kube-apiserver's `MaxRequestBodyBytes`.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Maximum bytes of a YAML body; a longer body gets 413.
pub const YAML_BYTES_MAX: usize = 512 * 1024;

/// Maximum number of nodes in a YAML body: keys, scalars, collections and aliases; a body with more gets 413. Reading a
/// node takes almost a microsecond, and two bytes can make a node.
pub const YAML_NODES_MAX: usize = 64 * 1024;

/// Maximum nesting depth of arrays and objects in a YAML body, in a patch and in its result. It is the limit of
/// `serde_json`.
pub const DOCUMENT_DEPTH_MAX: usize = 127;

/// Maximum number of values in a JSON patch, counted by commas and brackets; a patch with more gets 413. Each is
/// parsed, merged and written to a Lease, which takes almost a microsecond and blocks all clients. An ordinary Lease
/// has about twenty.
pub const PATCH_VALUES_MAX: usize = 64 * 1024;

/// Maximum number of values in the changed `managedFields` entries of a request, including those inside their keys. A
/// list with more is treated as unreadable. Each value is parsed, sorted and written again, which takes almost a
/// microsecond.
pub const MANAGED_FIELDS_VALUES_MAX: usize = 64 * 1024;

/// Maximum bytes of a Lease in protobuf; a write whose result is longer gets 500. It is etcd's `--max-request-bytes`,
/// which bounds the whole request. The rest of such a request is about a hundred bytes.
pub const OBJECT_BYTES_MAX: usize = 1536 * 1024;

/// Bytes of a Lease above which the error has the message of etcd's client. That client does not send such a request.
pub const OBJECT_BYTES_SENT_MAX: usize = 2 * 1024 * 1024;

/// Maximum number of labels, annotations, finalizers and owners of a Lease, together; a write whose result has more
/// gets 422. A write is one step, and each entry makes it longer.
pub const METADATA_ENTRIES_MAX: usize = 10_000;

/// Minimum bytes that each Lease counts towards the quota, beside its labels, annotations, owners and finalizers. A
/// Lease in the cluster's own namespaces counts only for the bytes above this minimum. The minimum covers about two
/// thousand other characters, each of which may take seven bytes. An ordinary Lease has a few hundred.
pub const METERED_BYTES_MIN: usize = 16 * 1024;

/// Maximum bytes of a request body from a peer without a certificate. Such a peer may only read health and version.
pub const ANONYMOUS_BODY_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of open HTTP/2 streams of a peer without a certificate.
pub const ANONYMOUS_STREAMS_MAX: u32 = 100;

/// Maximum bytes of unserved requests on an HTTP/2 connection, as a multiple of the maximum body size. Above it, the
/// largest incomplete request gets 429. kube-apiserver multiplexes a whole cluster over one connection.
pub const CONNECTION_BODIES_MAX: usize = 10;

/// Received bytes of unanswered requests on all connections, above which each connection may hold only
/// [`RECEIVED_BYTES_LOW`]. It does not bound the sum, since each connection may still hold that much. A receive buffer
/// that grows takes up to twice the memory.
pub const RECEIVED_BYTES_TOTAL_HIGH: usize = 64 * 1024 * 1024;

/// Bytes of unserved requests that a connection may hold above [`RECEIVED_BYTES_TOTAL_HIGH`]. A connection of a peer
/// without a certificate may never hold more. An ordinary Lease is far smaller; a request beyond this limit gets 429.
pub const RECEIVED_BYTES_LOW: usize = ANONYMOUS_BODY_BYTES_MAX * CONNECTION_BODIES_MAX;

/// Maximum number of claims to Leases held before the start, of about twenty bytes each. Above it, only holders in the
/// cluster's own namespaces get a claim; others wait like any client. A cluster has about a hundred locks.
pub const CLAIMS_MAX: usize = 64 * 1024;

/// Maximum number of intermediate certificates that a client may send. Anybody can make certificates with the name of a
/// CA, and verification tries every path through them. With 120 of them an anonymous peer's handshake took 10 ms.
pub const INTERMEDIATES_MAX: usize = 3;

// ---- A turn of the event loop: the share of each kind of work ----

/// Maximum number of events of one poll. That many connections, plus new and left-over ones, may be served or closed
/// before the first gets its response.
pub const EVENTS_PER_TURN: usize = 256;

/// Connections accepted in one turn from one listener.
pub const ACCEPTS_PER_TURN: usize = 256;

/// Bytes read from one connection in one turn before the next one is served.
pub const READ_BYTES_PER_TURN: usize = 256 * 1024;

/// Bytes read in one turn from the connection of a peer without a certificate. The requests of such a peer are short. A
/// connection whose bytes contain no request counts as slow, see the turn in docs/architecture.md.
pub const ANONYMOUS_READ_BYTES_PER_TURN: usize = 4 * 1024;

/// Bytes read from all connections between two reads of the clock. Reading them takes a quarter of a millisecond. TLS
/// key updates, which any peer can send in large numbers, take a whole millisecond. Renewals read the clock more often.
pub const READ_BYTES_PER_CLOCK: usize = 16 * 1024;

/// Requests served for one connection in one turn before the next one is served.
pub const REQUESTS_PER_TURN: usize = 128;

/// Time for requests in a turn, all connections together, in µs. The last request may exceed it. Requests that wait
/// come first in the next turn. A turn full of renewals serves about eight hundred.
pub const REQUEST_US_PER_TURN: u64 = 2_000;

/// Plain requests between two reads of the clock; serving them takes about twenty microseconds.
pub const REQUESTS_PER_CLOCK: u32 = 8;

/// Maximum bytes of the request body and of the response of a plain read or update of a Lease. The clock is read after
/// a longer one: a Lease of a megabyte takes a thousand times as long as one of a kilobyte.
pub const PLAIN_REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Minimum bytes of the texts of a large Lease. A request for a large Lease takes a tenth of a millisecond or more.
pub const LARGE_LEASE_BYTES_MIN: usize = 64 * 1024;

/// Time for steps of TLS handshakes in a turn, in µs; the last step may exceed it. A step takes a few hundred µs, and
/// thousands are due when all clients reconnect at once. The limit keeps them from delaying connected clients.
pub const HANDSHAKE_US_PER_TURN: u64 = 500;

/// Time for steps of lists and collection deletions in a turn, all connections together, in µs. The last step, of a few
/// hundred µs, may exceed it. Requests are then served, however many lists are in progress.
pub const JOB_US_PER_TURN: u64 = 250;

/// Bytes of watch events written for all watchers in one turn. Writing them takes half a millisecond to a whole one,
/// mostly for encryption.
pub const FAN_OUT_BYTES_PER_TURN: usize = 512 * 1024;

/// Entries examined for all watchers in one turn, matching or not, weighted by selector cost. See
/// [`SELECTOR_TERMS_PER_LOOK`].
pub const FAN_OUT_LOOKS_PER_TURN: u64 = 64 * 1024;

/// Time for filling watchers in a turn, in µs, checked after each [`FAN_OUT_LOOKS_PER_CLOCK`]. The last filling may
/// exceed it. Watchers that examine little and write much reach [`FAN_OUT_BYTES_PER_TURN`] first.
pub const FAN_OUT_US_PER_TURN: u64 = 500;

/// Entries examined for watchers between two reads of the clock; examining them takes one or two tenths of a
/// millisecond. Most turns examine fewer, and never read the clock.
pub const FAN_OUT_LOOKS_PER_CLOCK: u64 = 1024;

/// Time in a turn for freeing Lease states that ended lists and watches held, in µs. If the Leases were deleted, these
/// were the last handles, and freeing each takes almost a microsecond.
pub const DISCARD_US_PER_TURN: u64 = 250;

// ---- Output: bytes that wait to be sent, and their memory ----

/// Maximum bytes of each text in a `Status`, and of all its causes together. An error may quote the refused value in
/// four places, and JSON may need six bytes for one byte.
pub const STATUS_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of output queued on a connection above which the server adds no more: it serves no request, writes no event,
/// and continues no list. The last piece may exceed the limit by its own size.
pub const QUEUED_BYTES_HIGH: usize = 256 * 1024;

/// Bytes of output queued on a connection above which no request is served, if its peer has no certificate. While more
/// than [`QUEUED_BYTES_TOTAL_HIGH`] is queued on all connections, this limit applies to all peers.
pub const QUEUED_BYTES_LOW: usize = 16 * 1024;

/// Bytes of output queued on all connections, for the socket or a window, above which the limit of each is
/// [`QUEUED_BYTES_LOW`]. Many peers that do not read take memory from the Leases. It does not bound the sum, since each
/// peer still gets one response.
pub const QUEUED_BYTES_TOTAL_HIGH: usize = 128 * 1024 * 1024;

/// Bytes of responses that wait for the windows of one HTTP/2 connection. Above it, a stream whose body would wait is
/// reset. While more than [`QUEUED_BYTES_TOTAL_HIGH`] waits on all connections, it is [`QUEUED_BYTES_LOW`].
pub const UNSENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of a list body up to which it is sent whole, with its length.
pub const LIST_WHOLE_BYTES_MAX: usize = 128 * 1024;

/// Bytes of a body above which it is compressed for clients that ask for it. kube-apiserver's threshold.
pub const GZIP_BYTES_MIN: usize = 128 * 1024;

/// Maximum pending versions of a watcher of one name or namespace while its connection is full. A watcher with more
/// reads the event log again.
pub const WATCHER_PENDING_MAX: usize = 1024;

/// Maximum number of encoded events kept for further watchers: usually those of one turn.
pub const RECENT_EVENTS: usize = 256;

/// Bytes of an encoded event above which it is not kept.
pub const RECENT_EVENT_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a pooled buffer: room for one read, or for more than one TLS record.
pub const BUFFER_BYTES: usize = 32 * 1024;

/// Idle buffers kept for reuse; more are freed.
pub const BUFFERS_POOLED_MAX: usize = 256;

/// Log lines that wait for standard error; more are dropped and counted. At 200 bytes each this is under 1 MiB.
pub const LOG_LINES_QUEUED_MAX: usize = 4096;

// ---- Long work: its concurrency, and the size of a step ----

/// Maximum number of long lists, collection deletions and watches with initial events in progress; more get 429, and
/// clients retry after a second. Each may hold handles of a million Leases. A list of a million takes 0.9 s of the
/// core, so 64 of them just end within [`JOB_MS_MAX`] if nothing else is served. [`crate::permits`] has the share of
/// one user, since kube-apiserver counts a request only until the response begins.
pub const LONG_JOBS_MAX: usize = 64;

/// Responses that are compressed at once, all connections together; more are sent uncompressed. Each holds deflate's
/// tables and its uncompressed data, even while its client reads nothing.
pub const GZIP_JOBS_MAX: usize = 64;

/// Number of selector terms that cost as much as examining a Lease without a selector. A target has room for ten
/// thousand, which take a tenth of a millisecond. A limit on examined entries allows fewer entries for a longer
/// selector, but at least one. A selector with fewer terms than this number adds no cost.
pub const SELECTOR_TERMS_PER_LOOK: usize = 8;

/// Maximum nesting of the expressions of a shard selector. A selector has two levels, and one more for each pair of
/// parentheses. cel-go allows 250, which would take more of the stack.
pub const SELECTOR_DEPTH_MAX: usize = 50;

/// Keys that a list or a collection deletion examines in one step; fewer if its selector is long.
pub const JOB_KEYS_PER_STEP: usize = 512;

/// Bytes of list items collected in one step, if they must be measured first.
pub const COLLECTED_BYTES_PER_STEP: usize = 1024 * 1024;

/// Bytes of a YAML list encoded in one step. YAML takes far longer than JSON.
pub const YAML_BYTES_PER_STEP: usize = 16 * 1024;

/// Bytes of a list compressed in one step. Compression takes far longer than encoding.
pub const GZIP_BYTES_PER_STEP: usize = 64 * 1024;

/// Number of lists in progress, newest first, of which a change checks whether they need the Lease state that it
/// removes. If none of them does, the next older list keeps the state unchecked.
pub const HOLDS_LOOKED_AT: usize = 8;

/// Log events that a snapshot of an older version applies in one step.
pub const CATCH_UP_EVENTS_PER_STEP: usize = 4096;

/// Log events that one filling of a watcher examines, matching or not; fewer if its selector is long.
pub const SCAN_EVENTS_PER_FILL: usize = 1024;

/// Objects that a collection deletion removes in one step. It removes fewer if the log would grow by more than
/// [`UNDELIVERED_SHARE`] and [`UNDELIVERED_BYTES_MAX`] allow.
pub const DELETIONS_PER_STEP: usize = 256;

/// Divisor of the event log: collection deletions fill this part before the events are delivered to watchers. So
/// watchers that keep up do not fall off the log.
pub const UNDELIVERED_SHARE: usize = 16;

/// Bytes by which collection deletions let the event log grow before the events are delivered to watchers. The last
/// event may exceed it. The limit is about the fan-out of one turn.
pub const UNDELIVERED_BYTES_MAX: usize = FAN_OUT_BYTES_PER_TURN;

/// Leases and journal changes that a starting server loads in one turn: about ten milliseconds. The server responds to
/// probes between two turns.
pub const RECORDS_LOADED_PER_TURN: usize = 16 * 1024;

/// Lease states freed between two reads of the clock.
pub const STATES_DISCARDED_PER_STEP: usize = 64;

/// Lease states waiting to be freed, above which long lists and lists that hold states are refused.
pub const STATES_DISCARDED_MAX: usize = 1_000_000;

/// Bytes of long Leases that the table has replaced or deleted and lists in progress still hold, beside those in the
/// event log. Above it, a write that replaces a long Lease, or results in one, gets 429.
pub const OUTLIVED_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Number of these replaced or deleted Leases that such a write checks again.
pub const OUTLIVED_SWEPT_PER_WRITE: usize = 256;

// ---- Waiting: requests that cannot get a response yet ----

/// Requests that wait for another change of their Lease, all connections together; more get 429.
///
/// The waiting requests of an HTTP/2 connection may hold as many bytes as the unserved ones ([`CONNECTION_BODIES_MAX`],
/// [`RECEIVED_BYTES_LOW`]). A request whose body takes more than half of the remaining bytes gets 429.
pub const WAITING_FOR_KEY_MAX: usize = 4_096;

/// Requests that wait until this replica has caught up, all connections together; more get 429.
pub const WAITING_TO_CATCH_UP_MAX: usize = 65_536;

/// Creations that wait for their namespace, all connections together; more get 429.
pub const WAITING_FOR_NAMESPACE_MAX: usize = 64;

/// Times that a request's change may be rejected because another write came first; then the response is 409.
pub const WRITE_ATTEMPTS_MAX: u32 = 8;

// ---- Time: deadlines and intervals ----

/// Time for a peer to show a certificate before its connection may be evicted at the connection limit, in ms. It covers
/// the round trips of a handshake. A peer that floods the port keeps its place no longer. So in this time as many other
/// peers get in as there are places.
pub const ANONYMOUS_MS_MIN: u64 = 500;

/// Time for a TLS handshake, and for each request head from its first byte, in ms. In HTTP/2 it is for each frame of a
/// head, which may have [`CONTINUATION_FRAMES_MAX`](crate::http2::limits::CONTINUATION_FRAMES_MAX) more frames.
pub const HEAD_MS_MAX: u64 = 10_000;

/// Time for a request body, in ms.
pub const BODY_MS_MAX: u64 = 60_000;

/// Time for which an idle connection is kept, in ms. Longer than the 90 s after which Go clients close theirs.
pub const IDLE_MS_MAX: u64 = 180_000;

/// Time in which the output queued for a peer must be sent, or [`WRITE_STALL_BYTES_MIN`] of it, in ms. The kernel's
/// acceptance counts as sent. The same holds for output that waits for the window of an HTTP/2 stream.
pub const WRITE_STALL_MS_MAX: u64 = 60_000;

/// Bytes that must be sent in [`WRITE_STALL_MS_MAX`] while more wait. With less, a peer could hold a response almost
/// without end.
pub const WRITE_STALL_BYTES_MIN: usize = 16 * 1024;

/// Time for which a refused peer's input is read and dropped, in ms. So the peer can read the refusal before a reset
/// destroys it (RFC 9112 §9.6).
pub const LINGER_MS_MAX: u64 = 1_000;

/// Time after which a list or collection deletion gets no further step, in ms. A watch then gets no further initial
/// event. kube-apiserver's `--request-timeout`. A peer that reads as slowly as [`WRITE_STALL_MS_MAX`] allows delays its
/// own error, but not the release of the memory.
pub const JOB_MS_MAX: u64 = 60_000;

/// Interval of the scans for long responses that are past [`JOB_MS_MAX`] or unread, in ms. If a response waits for its
/// peer at two scans, without progress, its permit may go to another user.
pub const JOBS_CHECK_MS: u64 = 1000;

/// Time for which a creation waits for its namespace, which the cluster may not have reported yet, in ms. A healthy
/// cluster reports it within milliseconds, and after one failure within half a second.
pub const NAMESPACE_WAIT_MS: u64 = 500;

/// Longest wait of a write for the journal, in ms; then the response is 504. kube-apiserver's `--request-timeout`.
pub const WRITE_WAIT_MS_MAX: u64 = 60_000;

/// Longest wait of a request for a barrier, in ms; then the response is 504.
pub const BARRIER_WAIT_MS_MAX: u64 = 10_000;

/// Longest wait of a read until its version is applied, in ms; then the response is 504. kube-apiserver waits as long
/// (apiserver `storage/cacher`, `blockTimeout`).
pub const VERSION_WAIT_MS_MAX: u64 = 3_000;

/// Interval of the scans for requests past their deadline, in ms.
pub const WAIT_LOOK_MS: u64 = 250;

/// Shortest default timeout of a watch, in seconds; the longest is twice that. kube-apiserver's
/// `--min-request-timeout`.
pub const WATCH_SECONDS_MIN: u64 = 1800;

/// Seconds between two bookmarks of one watch. kube-apiserver's interval.
pub const BOOKMARK_SECONDS: u64 = 60;

/// Pause of a listener when the process has no file descriptor left, in ms.
pub const ACCEPT_PAUSE_MS: u64 = 100;

/// Minimum interval of a warning that peers can cause, in ms.
pub const TOLD_AGAIN_MS: u64 = 60_000;

/// Time that an orderly stop waits for requests in flight, in ms.
pub const SHUTDOWN_MS_MAX: u64 = 3_000;

const _: () = assert!(HEAD_BYTES_MAX >= TARGET_BYTES_MAX);
const _: () = assert!(BUFFER_BYTES <= READ_BYTES_PER_TURN);
const _: () = assert!(LIST_WHOLE_BYTES_MAX <= QUEUED_BYTES_HIGH);
const _: () = assert!(HEAD_BYTES_MAX + ANONYMOUS_BODY_BYTES_MAX <= RECEIVED_BYTES_LOW);
const _: () = assert!(HEAD_BYTES_MAX + BODY_BYTES_MAX < u32::MAX as usize);
