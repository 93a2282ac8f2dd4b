//! Limits on what a peer costs the server: received bytes, memory, unread responses, and work. A turn is one pass
//! through the event loop.
//!
//! A TLS peer is anonymous if it has no certificate, or one that gives it no rights
//! ([`crate::auth::Credentials::is_anonymous`]).
//!
//! Other modules have further limits. [`crate::http2::limits`] contains the limits of an HTTP/2 connection. Limits on
//! API values, such as the length of a name, are with the other rules of the API. A limit that only one module needs is
//! in the file of that module. Examples are the limits of a parser, of a list of error messages, of a cache, and of the
//! bytes encrypted at once.

// ---- Requests: what a peer sends, and what the server holds of a request until it is served ----

/// Maximum bytes of an HTTP/1.1 request head (request line and header fields); a longer head gets 431. Go's default is
/// 1 MiB. 64 KiB is enough for a target of [`TARGET_BYTES_MAX`] bytes and [`HEAD_FIELDS_MAX`] field lines of 250 bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of field lines of a request head; a head with more field lines gets 431.
pub const HEAD_FIELDS_MAX: usize = 128;

/// Maximum bytes of a header section that an HTTP/1.1 connection stores for the next request. If the next request has
/// the same header section, the section is not parsed again. A kubelet's header section has about 300 bytes.
pub const FIELDS_KEPT_BYTES_MAX: usize = 2 * 1024;

/// Maximum bytes of a request target; a longer target gets 414.
pub const TARGET_BYTES_MAX: usize = 32 * 1024;

/// Maximum bytes of a request target (in HTTP/1.1: of a request line) for which the server prefetches the Lease, that
/// is, loads its memory into the processor's caches early.
pub const PREFETCH_TARGET_BYTES_MAX: usize = 512;

/// Maximum bytes of a request body; a longer body gets 413. The value is kube-apiserver's `MaxRequestBodyBytes`.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Maximum bytes of a YAML body; a longer body gets 413. The parsing of YAML takes far longer than that of JSON.
pub const YAML_BYTES_MAX: usize = 512 * 1024;

/// Maximum number of nodes in a YAML body: keys, scalars, collections and aliases. A body with more nodes gets 413.
/// Parsing a node takes almost a microsecond, and a node can be as short as two bytes.
pub const YAML_NODES_MAX: usize = 64 * 1024;

/// Maximum nesting depth of arrays and objects in a YAML body, in a patch and in its result. The value is the limit of
/// `serde_json`.
pub const DOCUMENT_DEPTH_MAX: usize = 127;

/// Maximum number of values in a JSON patch, merge patch or strategic merge patch, counted by commas and brackets. A
/// patch with more values gets 413. Each value is parsed, merged and written to a Lease. This takes almost a
/// microsecond for each value, in which the event loop serves no other client. An ordinary Lease has about twenty
/// values.
pub const PATCH_VALUES_MAX: usize = 64 * 1024;

/// Maximum number of values in the changed `managedFields` entries of a request, including values inside the keys of
/// `fieldsV1`. A `managedFields` list with more values is ignored like a malformed list, and the stored list stays in
/// effect. The reason: each value is parsed, sorted and written again, which takes almost a microsecond.
pub const MANAGED_FIELDS_VALUES_MAX: usize = 64 * 1024;

/// Maximum bytes of a Lease in protobuf; a write whose result is longer gets 500. etcd limits a request to 1.5 MiB
/// (`--max-request-bytes`). Besides the Lease, a request to etcd has a few hundred bytes, and more with a long
/// `--etcd-prefix`.
pub const OBJECT_BYTES_MAX: usize = 1536 * 1024 - 4096;

/// Bytes of a Lease above which a refused write gets the error message of etcd's client, as in kube-apiserver. That
/// client does not send a longer request to etcd. A refused write of a shorter Lease gets the error message of the etcd
/// server.
pub const OBJECT_BYTES_SENT_MAX: usize = 2 * 1024 * 1024;

/// Maximum number of labels, annotations, finalizers and owners of a Lease, together. A write whose result has more of
/// them gets 422. A write cannot be interrupted, and each of these entries makes the write longer.
pub const METADATA_ENTRIES_MAX: usize = 1_000;

/// Minimum bytes that a Lease counts towards the quota, apart from its entries: labels, annotations, owners and
/// finalizers. The bytes of the entries are added. In the namespaces `kube-system` and `kube-node-lease`, this number
/// is an allowance instead, once for the entries and once for the rest of the Lease: only the bytes above it count. A
/// character may take seven bytes of memory. So the rest of a Lease stays below this number up to about two thousand
/// characters. An ordinary Lease has a few hundred characters.
pub const METERED_BYTES_MIN: usize = 16 * 1024;

/// Maximum bytes of a request body from an anonymous peer. Such a peer may only read the health and the version of the
/// server.
pub const ANONYMOUS_BODY_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of open HTTP/2 streams of an anonymous peer.
pub const ANONYMOUS_STREAMS_MAX: u32 = 100;

/// Maximum bytes of unserved requests on an HTTP/2 connection, as a multiple of the maximum body size. Above this
/// limit, the largest incomplete request gets 429. kube-apiserver multiplexes the requests of a whole cluster over one
/// connection.
pub const CONNECTION_BODIES_MAX: usize = 10;

/// Received bytes of unanswered requests on all connections, at which each connection except a front proxy's is limited
/// to [`RECEIVED_BYTES_LOW`]. This does not limit the sum, since each connection may still store
/// [`RECEIVED_BYTES_LOW`]. A receive buffer that grows takes up to twice as much memory as its bytes.
pub const RECEIVED_BYTES_TOTAL_HIGH: usize = 64 * 1024 * 1024;

/// Maximum bytes of unserved requests on a connection while all connections together have [`RECEIVED_BYTES_TOTAL_HIGH`]
/// or more. The limit always applies to an anonymous peer, and never to a front proxy. A request beyond this limit gets
/// 429. An ordinary Lease is far smaller.
pub const RECEIVED_BYTES_LOW: usize = ANONYMOUS_BODY_BYTES_MAX * CONNECTION_BODIES_MAX;

/// Maximum number of claims (`api::reclaim`), which only claims in the namespace `kube-system` may exceed. After a
/// switch to this server, a lock (a Lease with a holder, other than a node's Lease) may be missing. A claim lets the
/// former holder create the missing lock, while all other clients wait. Each claim takes about twenty bytes. At this
/// number, former holders in other namespaces get no claim. They wait like any client. A cluster has about a hundred
/// locks.
pub const CLAIMS_MAX: usize = 64 * 1024;

/// Maximum number of intermediate certificates that a client may send. Anybody can make certificates with the name of a
/// CA, and the verification tries every path through the certificates. With 120 certificates, the handshake of an
/// anonymous peer took 10 ms.
pub const INTERMEDIATES_MAX: usize = 3;

/// Maximum bytes of the certificates that a client may send: its own and the intermediate ones. rustls stores them for
/// each connection. If the client CA itself has issued the client's certificate, the intermediate ones are not
/// verified. So a client could send 64 KiB of any bytes. A certificate has about 1 KiB.
pub const CHAIN_BYTES_MAX: usize = 16 * 1024;

// ---- A turn of the event loop: the share of each kind of work ----

/// Maximum number of events that one poll returns. A turn sends its responses only after it has served the connections
/// of these events, new connections, and connections left from the last turn. So a larger number would delay responses.
pub const EVENTS_PER_TURN: usize = 256;

/// Maximum number of connections that run in one turn. As many other connections may get watch events in the same turn.
/// The turn ends with one write to the socket of each of these connections, which takes some ten microseconds. All
/// remaining connections wait for the next turn. Without this limit, ten thousand answers to one batch of the journal
/// stop the event loop for a tenth of a second.
pub const CONNECTIONS_PER_TURN: usize = 256;

/// Maximum number of connections in one turn that run only because the server verifies the certificates of all peers
/// again, such as after a reload of CAs. A verification takes up to a tenth of a millisecond. Without this limit,
/// requests would wait until the peers of 16,000 connections are verified, which takes a second.
pub const RECHECKED_PER_TURN: usize = 16;

/// Time budget in a turn for connections that end, in µs. The last connection may exceed the budget. When a load
/// balancer dies, thousands of connections end at once. The end of 19,000 watches took 0.14 s. The budget applies
/// separately to:
///
/// - connections whose peer is gone, or that the server ends because it stops or is cut off from etcd;
/// - due timers of connections, also outdated ones;
/// - connections and Leases that a reload of the store has replaced.
pub const END_US_PER_TURN: u64 = 2_000;

/// Maximum number of connections accepted from one listener in one turn.
pub const ACCEPTS_PER_TURN: usize = 256;

/// Bytes read from one connection in one turn after which the next connection is served.
pub const READ_BYTES_PER_TURN: usize = 256 * 1024;

/// Bytes read in one turn from one connection of an anonymous peer, after which the next connection is served. The
/// requests of such a peer are short. A connection whose bytes contain no request counts as slow: at most one slow
/// connection runs in a turn (see the description of a turn in docs/architecture.md).
pub const ANONYMOUS_READ_BYTES_PER_TURN: usize = 4 * 1024;

/// Bytes read from all connections between two reads of the clock. Reading these bytes takes a quarter of a
/// millisecond. If the bytes are TLS key updates, which any peer can send in large numbers, it takes a whole
/// millisecond. While the server serves renewals, it reads the clock more often.
pub const READ_BYTES_PER_CLOCK: usize = 16 * 1024;

/// Number of requests served on one connection in one turn after which the next connection is served.
pub const REQUESTS_PER_TURN: usize = 128;

/// Time budget for the requests of all connections in a turn, in µs. The last request may exceed the budget. Requests
/// that are left come first in the next turn. A turn with only renewals serves about eight hundred renewals.
pub const REQUEST_US_PER_TURN: u64 = 2_000;

/// Number of plain requests ([`PLAIN_REQUEST_BYTES_MAX`]) between two reads of the clock. Serving this number of plain
/// requests takes about twenty microseconds.
pub const REQUESTS_PER_CLOCK: u32 = 8;

/// Maximum bytes of the body, and of the response, of a plain request. A plain request reads or updates one Lease. The
/// clock is read after any longer request, since a Lease of a megabyte takes a thousand times as long as a Lease of a
/// kilobyte. In HTTP/2, a request with a longer body waits in the queue of long requests. YAML of 64 KiB, for example,
/// may take ten milliseconds.
pub const PLAIN_REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Minimum size of a large Lease, in bytes of its texts and of the elements of its lists and maps. A request for a
/// large Lease takes a tenth of a millisecond or more. In HTTP/2, it waits in the queue of long requests.
pub const LARGE_LEASE_BYTES_MIN: usize = 64 * 1024;

/// Time budget for steps of TLS handshakes in a turn, in µs. The last step may exceed the budget. A step takes a few
/// hundred µs, and thousands of steps are due when all clients reconnect at once. Without this budget, they would delay
/// connected clients.
pub const HANDSHAKE_US_PER_TURN: u64 = 500;

/// Time budget for steps of jobs on all connections in a turn, in µs: lists, collection deletions and compressions. The
/// last step, of a few hundred µs, may exceed the budget. So requests are served, however many lists are in progress.
pub const JOB_US_PER_TURN: u64 = 250;

/// Bytes of watch events written for all watchers in one turn, after which further watchers wait for the next turn.
/// Writing these bytes takes between half a millisecond and a millisecond, mostly for encryption.
pub const FAN_OUT_BYTES_PER_TURN: usize = 512 * 1024;

/// Number of log events and Leases examined for all watchers in one turn, whether or not they match. Each is weighted
/// by the cost of the selector, see [`SELECTOR_TERMS_PER_LOOK`]. Further watchers wait for the next turn.
pub const FAN_OUT_LOOKS_PER_TURN: u64 = 64 * 1024;

/// Number of watchers that the changes of one turn may mark as dirty, that is, as having an event to read. A watcher
/// counts once for each change. Marking this number takes about half a millisecond. The remaining changes mark their
/// watchers in the next turns. But a turn exceeds this number as long as more than one in [`UNDELIVERED_SHARE`] events
/// of the log remains. Otherwise the log could drop a change that has marked no watcher yet.
pub const WATCHER_MARKS_PER_TURN: usize = 32 * 1024;

/// Time budget for filling watchers in a turn, in µs. To fill a watcher is to write its next events to its connection.
/// The time is checked after each [`FAN_OUT_LOOKS_PER_CLOCK`] examined events and watchers. The first check starts the
/// budget. The last filling may exceed the budget. Watchers that examine few events and write many bytes reach
/// [`FAN_OUT_BYTES_PER_TURN`] first.
pub const FAN_OUT_US_PER_TURN: u64 = 500;

/// Number of watchers, and of log events and Leases examined for them, between two reads of the clock. Examining this
/// number takes one or two tenths of a millisecond. Most turns examine fewer, and never read the clock for this
/// purpose.
pub const FAN_OUT_LOOKS_PER_CLOCK: u64 = 1024;

/// Time budget in a turn for freeing old states of Leases, in µs. A list or a watch may hold the last handle to an old
/// state, such as that of a deleted Lease. The state is freed after the list or watch has ended. Freeing one state
/// takes almost a microsecond.
pub const DISCARD_US_PER_TURN: u64 = 250;

// ---- Output: bytes that wait to be sent, and their memory ----

/// Maximum bytes of each text in a `Status`, and of all causes in a `Status` together. An error may quote the refused
/// value in four places, and JSON may need six bytes for one byte. So without this limit, the error about a value of 3
/// MiB could have 72 MiB.
pub const STATUS_TEXT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of output queued on a connection above which the server adds no output. It then serves no request, writes no
/// event, and continues no list. The last piece of output may exceed this number by its own size.
pub const QUEUED_BYTES_HIGH: usize = 256 * 1024;

/// Bytes of output queued on the connection of an anonymous peer, above which no request is served. While more than
/// [`QUEUED_BYTES_TOTAL_HIGH`] is queued on all connections, this limit applies to all peers.
pub const QUEUED_BYTES_LOW: usize = 16 * 1024;

/// Bytes of output that wait for a socket or a flow-control window on all connections, above which each connection is
/// limited to [`QUEUED_BYTES_LOW`]. Otherwise, many peers that do not read would take memory from the Leases. This does
/// not limit the sum, since each peer still gets one response.
pub const QUEUED_BYTES_TOTAL_HIGH: usize = 128 * 1024 * 1024;

/// Maximum bytes of responses that wait for the flow-control windows of one HTTP/2 connection. Above this limit, the
/// server resets the stream with the most waiting bytes. While more than [`QUEUED_BYTES_TOTAL_HIGH`] waits on all
/// connections, the limit is [`QUEUED_BYTES_LOW`], except for a front proxy.
pub const UNSENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Maximum bytes of a list body that is sent in one piece, with a `Content-Length`.
pub const LIST_WHOLE_BYTES_MAX: usize = 128 * 1024;

/// Bytes of a body above which the server compresses the body for clients that accept gzip. kube-apiserver has the same
/// threshold.
pub const GZIP_BYTES_MIN: usize = 128 * 1024;

/// Maximum number of unread changes that a watcher of a single name, namespace or shard stores while its connection is
/// full. A watcher with more unread changes reads every event of the event log until it has caught up.
pub const WATCHER_PENDING_MAX: usize = 1024;

/// Maximum number of encoded events that are cached for further watchers. Usually these are the events of one turn.
pub const RECENT_EVENTS: usize = 256;

/// Maximum bytes of an encoded event that is cached.
pub const RECENT_EVENT_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a pooled buffer. This is enough for one read, or for more than one TLS record.
pub const BUFFER_BYTES: usize = 32 * 1024;

/// Maximum number of idle buffers kept for reuse. Further buffers are freed.
pub const BUFFERS_POOLED_MAX: usize = 256;

/// Maximum number of log lines that wait for standard error. Further lines are dropped and counted. At 200 bytes a
/// line, this is less than 1 MiB.
pub const LOG_LINES_QUEUED_MAX: usize = 4096;

// ---- Long work: its concurrency, and the size of a step ----

/// Maximum number of long lists, long collection deletions and watches with a long initial state in progress. Further
/// ones get 429, and clients retry after a second. Each of them may hold handles to a million Leases. A list of a
/// million Leases takes 0.6 s of processor time. So 64 such lists end within [`JOB_MS_MAX`] if nothing else is served.
/// [`crate::schedule`] limits the share of one user.
pub const LONG_JOBS_MAX: usize = 64;

/// Maximum number of responses that are compressed at once, on all connections. Further responses are sent
/// uncompressed. The number is limited, since each compressed response holds deflate's tables and its uncompressed
/// data, even while its client reads nothing.
pub const GZIP_JOBS_MAX: usize = 64;

/// Number of selector terms that cost as much as examining a Lease without a selector. A request target can contain ten
/// thousand terms, which take a tenth of a millisecond for each Lease. So limits on examined Leases and events allow
/// fewer of them for a longer selector, but at least one. A selector with fewer terms than this number adds no cost.
pub const SELECTOR_TERMS_PER_LOOK: usize = 8;

/// Maximum nesting of the expressions of a shard selector. A selector has two levels, and one more level for each pair
/// of parentheses. cel-go allows 250 levels, which would take more of the stack.
pub const SELECTOR_DEPTH_MAX: usize = 50;

/// Number of keys that a list, a collection deletion, a watch's initial state or a snapshot of the journal examines in
/// one step; fewer if the selector is long.
pub const JOB_KEYS_PER_STEP: usize = 512;

/// Bytes of list items collected in one step, if the length of the items must be known before they are written.
pub const COLLECTED_BYTES_PER_STEP: usize = 1024 * 1024;

/// Bytes of a YAML list encoded in one step. YAML takes far longer than JSON.
pub const YAML_BYTES_PER_STEP: usize = 16 * 1024;

/// Bytes of a list compressed in one step. Compression takes far longer than encoding.
pub const GZIP_BYTES_PER_STEP: usize = 64 * 1024;

/// Number of running lists that a change of a Lease examines. The change checks whether these lists need the Lease's
/// previous state, the newest list first. If none of them needs the state, the state is kept for the next older list
/// without a check. So the cost of a change does not grow with the number of lists.
pub const HOLDS_LOOKED_AT: usize = 8;

/// Number of log events that a list of an older `resourceVersion` reads in one step.
pub const CATCH_UP_EVENTS_PER_STEP: usize = 4096;

/// Number of log events that one filling of a watcher examines, whether or not they match; fewer if the selector is
/// long.
pub const SCAN_EVENTS_PER_FILL: usize = 1024;

/// Number of Leases that a collection deletion removes in one step. The step removes fewer Leases if the event log
/// would grow by more than [`UNDELIVERED_SHARE`] and [`UNDELIVERED_BYTES_MAX`] allow.
pub const DELETIONS_PER_STEP: usize = 256;

/// Divisor of the event log's maximum number of events, and of its maximum bytes. The quotients limit how many
/// undelivered events collection deletions may add to the log. So the log drops no event that a watcher still needs, if
/// the client of the watcher keeps up.
pub const UNDELIVERED_SHARE: usize = 16;

/// Bytes by which collection deletions may let the event log grow before the events are delivered to watchers. The last
/// event may exceed this limit. One turn writes about as many bytes to watchers.
pub const UNDELIVERED_BYTES_MAX: usize = FAN_OUT_BYTES_PER_TURN;

/// Number of Leases and journal changes that a starting server loads in one turn. This takes about ten milliseconds.
/// The server responds to probes between two turns.
pub const RECORDS_LOADED_PER_TURN: usize = 16 * 1024;

/// Number of durable changes that a loaded table applies in one turn. Each takes one to three microseconds. After a
/// pause of the store, a batch may have many more changes. The next turns then apply the rest of the batch.
pub const CHANGES_APPLIED_PER_TURN: usize = 2 * 1024;

/// Number of old states of Leases freed between two reads of the clock.
pub const STATES_DISCARDED_PER_STEP: usize = 64;

/// Maximum number of old states of Leases that wait to be freed. Above this number, the server refuses long lists,
/// watches with initial events, and all requests that collect states before they respond.
pub const STATES_DISCARDED_MAX: usize = 1_000_000;

/// Maximum bytes of long Leases that the table has replaced or deleted, and that may still be in memory because running
/// lists or the event log hold them. The bytes of the event log are added to this maximum. Above the sum, a write that
/// replaces a long Lease, or results in a long Lease, gets 429. A Lease is long if it takes more than
/// [`METERED_BYTES_MIN`] bytes of memory.
pub const OUTLIVED_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Number of replaced or deleted long Leases that a write checks at once while the limit [`OUTLIVED_BYTES_MAX`] is
/// exceeded. The check stops counting each Lease that was freed meanwhile. If it finds at least one such Lease, and the
/// limit is still exceeded, the write checks as many again.
pub const OUTLIVED_SWEPT_AT_ONCE: usize = 256;

// ---- Waiting: requests that cannot get a response yet ----

/// Maximum number of requests on all connections that wait for the change of the same Lease by another request. Further
/// requests get 429.
///
/// The bytes of waiting requests are limited too. On an HTTP/2 connection, their limit is that of the connection's
/// unserved requests ([`CONNECTION_BODIES_MAX`], [`RECEIVED_BYTES_LOW`]). A request whose body takes more than half of
/// the bytes that are still free gets 429. So small requests find room beside large ones. The head counts with the body
/// if it is above [`FIELD_LIST_BYTES_MAX`](crate::http2::limits::FIELD_LIST_BYTES_MAX). Requests of a front proxy that
/// have long heads and no body may hold only a quarter of the bytes.
pub const WAITING_FOR_KEY_MAX: usize = 4_096;

/// Maximum number of requests on all connections that wait until this replica has applied the newest changes of other
/// replicas. Further requests get 429.
pub const WAITING_TO_CATCH_UP_MAX: usize = 65_536;

/// Maximum number of requests on all connections that create a Lease and wait for its namespace. Further requests get
/// 429.
pub const WAITING_FOR_NAMESPACE_MAX: usize = 64;

/// Number of changes of one request that the journal may reject because another write came first. After this number of
/// rejections, the response is 409.
pub const WRITE_ATTEMPTS_MAX: u32 = 8;

// ---- Time: deadlines and intervals ----

/// Time that each peer gets to present a certificate with rights, in ms. At the connection limit, each new connection
/// then replaces the oldest connection of a peer without such a certificate. The time is enough for the round trips of
/// a handshake. If a peer floods the port with connections, the server can close each of them after this time. So other
/// peers soon get in.
pub const ANONYMOUS_MS_MIN: u64 = 500;

/// Time for a TLS handshake, and for each request head from its first byte, in ms. In HTTP/2, each frame of a head gets
/// this time. Besides HEADERS, a head may have the frames of
/// [`FIELD_BLOCKS`](crate::http2::limits::FIELD_BLOCKS), so it may take nine times as long.
pub const HEAD_MS_MAX: u64 = 10_000;

/// Time for a request body, in ms.
pub const BODY_MS_MAX: u64 = 60_000;

/// Time for which an idle connection is kept, in ms. This is longer than the 90 s after which Go clients close an idle
/// connection.
pub const IDLE_MS_MAX: u64 = 180_000;

/// Time in which the output queued for a peer must be sent, or at least [`WRITE_STALL_BYTES_MIN`] of it, in ms. Bytes
/// count as sent when the kernel has accepted them. The same limit applies to output that waits for the flow-control
/// window of an HTTP/2 stream.
pub const WRITE_STALL_MS_MAX: u64 = 60_000;

/// Bytes that must be sent within [`WRITE_STALL_MS_MAX`] while more bytes wait. With a smaller number, a peer could
/// hold a response almost forever.
pub const WRITE_STALL_BYTES_MIN: usize = 16 * 1024;

/// Time for which the input of a refused peer is read and dropped, in ms. So the peer can read the refusal before a TCP
/// reset destroys it (RFC 9112 §9.6).
pub const LINGER_MS_MAX: u64 = 1_000;

/// Time after which a job, such as a list, gets no further step, and a watch gets no further initial event, in ms. The
/// value is the default of kube-apiserver's `--request-timeout`. The server then frees the memory of the response, and
/// ends the response early. A peer that reads as slowly as [`WRITE_STALL_MS_MAX`] allows sees this end later.
pub const JOB_MS_MAX: u64 = 60_000;

/// Interval of the checks for long responses that are past [`JOB_MS_MAX`] or unread, in ms. If two checks find that a
/// response waits for its peer and has made no progress, another user may get its permit: its place among the
/// concurrent long responses.
pub const JOBS_CHECK_MS: u64 = 1000;

/// Time for which a request to create a Lease waits for its namespace, in ms. kube-apiserver may not have reported a
/// new namespace to this server yet. A healthy cluster reports the namespace within milliseconds, and after one failure
/// within half a second.
pub const NAMESPACE_WAIT_MS: u64 = 500;

/// Longest wait of a write for the journal, in ms; then the response is 504. The value is the default of
/// kube-apiserver's `--request-timeout`.
pub const WRITE_WAIT_MS_MAX: u64 = 60_000;

/// Longest wait of a request until this replica has applied the newest entries of the journal, in ms; then the response
/// is 504. The limit also applies to a request that waits for the next copy of kube-apiserver's Leases during a
/// takeover.
pub const BARRIER_WAIT_MS_MAX: u64 = 10_000;

/// Longest wait of a read until this replica has reached the requested `resourceVersion`, in ms; then the response is
/// 504. kube-apiserver waits equally long (apiserver `storage/cacher`, `blockTimeout`).
pub const VERSION_WAIT_MS_MAX: u64 = 3_000;

/// Interval of the checks for requests that are past their deadline, in ms.
pub const WAIT_LOOK_MS: u64 = 250;

/// Shortest default timeout of a watch, in seconds. The server chooses the default of each watch at random, between
/// this value and twice this value. The value is the default of kube-apiserver's `--min-request-timeout`.
pub const WATCH_SECONDS_MIN: u64 = 1800;

/// Seconds between two bookmarks of one watch. kube-apiserver has the same interval.
pub const BOOKMARK_SECONDS: u64 = 60;

/// Pause of a listener when the process has no file descriptor left, in ms.
pub const ACCEPT_PAUSE_MS: u64 = 100;

/// Minimum interval between two log lines of a warning that peers can cause, in ms.
pub const TOLD_AGAIN_MS: u64 = 60_000;

/// Time from the moment at which a replica is no longer current until it closes its connections, so that clients
/// connect to other replicas, in ms. A replica is current for 5 s after its last contact with etcd. So leaders, whose
/// renew deadline is 10 s, reach another replica in time.
pub const MOVE_AFTER_MS: u64 = 3_000;

/// Interval at which a replica that stays cut off from etcd closes its connections again, in ms. A client may have
/// connected to this replica anew, before the cluster stopped routing connections to it.
pub const MOVE_EVERY_MS: u64 = 30_000;

/// Longest time that an orderly stop waits for requests in flight, in ms. If some connections still wait for their
/// close by then, the stop takes longer.
pub const SHUTDOWN_MS_MAX: u64 = 3_000;

const _: () = assert!(HEAD_BYTES_MAX >= TARGET_BYTES_MAX);
const _: () = assert!(BUFFER_BYTES <= READ_BYTES_PER_TURN);
const _: () = assert!(LIST_WHOLE_BYTES_MAX <= QUEUED_BYTES_HIGH);
const _: () = assert!(HEAD_BYTES_MAX + ANONYMOUS_BODY_BYTES_MAX <= RECEIVED_BYTES_LOW);
const _: () = assert!(HEAD_BYTES_MAX + BODY_BYTES_MAX < u32::MAX as usize);
