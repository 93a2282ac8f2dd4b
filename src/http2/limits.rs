//! Every limit of an HTTP/2 connection, in one place.
//!
//! What a peer can make us keep for one connection is bounded by these: [`STREAMS_MAX`] streams of some 64 octets, one
//! field block of [`FIELD_BLOCK_BYTES_MAX`], two dynamic tables of [`TABLE_SIZE_MAX`]. What it can make us do without
//! paying for it is bounded by the [`Allowance`]s. Bodies are bounded by whoever keeps them.

use super::frame;

/// Largest frame that we take (`SETTINGS_MAX_FRAME_SIZE`, its default) and that we send. Larger ones would hold up the
/// other streams of the connection.
pub const FRAME_SIZE_MAX: usize = 16_384;

/// A read buffer must hold at least this: one whole frame.
pub const RECV_BUFFER_BYTES_MIN: usize = frame::HEAD_BYTES + FRAME_SIZE_MAX;

/// Streams that a client may have open at once. kube-apiserver keeps all its watches on a few connections.
pub const STREAMS_MAX: u32 = 4_096;

/// Streams that a client opens before it knows what the server allows: no server should allow fewer (RFC 9113 §6.5.2).
pub const STREAMS_BEFORE_SETTINGS: u32 = 100;

/// Octets of body that a peer may send on one stream before it must wait.
pub const STREAM_WINDOW: u32 = 1 << 20;

/// Octets of bodies that a peer may send on all streams before it must wait.
pub const CONNECTION_WINDOW: u32 = 4 << 20;

/// The window of a stream and of the connection until somebody says otherwise (RFC 9113 §6.9.2).
pub const WINDOW_DEFAULT: u32 = 65_535;

/// Largest flow-control window (RFC 9113 §6.9.1).
pub const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Largest dynamic table, in each direction.
pub const TABLE_SIZE_MAX: usize = 4_096;

/// Decoded field list that is served (`SETTINGS_MAX_HEADER_LIST_SIZE`); a request with a larger one is answered 431.
pub const FIELD_LIST_BYTES_MAX: usize = 65_536;

/// Decoded field list that ends the connection: what grows that much was made to.
pub const FIELD_LIST_BYTES_ABORT: usize = 4 * FIELD_LIST_BYTES_MAX;

/// Encoded field block, over HEADERS and all its CONTINUATION frames.
pub const FIELD_BLOCK_BYTES_MAX: usize = 65_536;

/// CONTINUATION frames after one HEADERS frame: twice what the largest block needs in frames of full size.
pub const CONTINUATION_FRAMES_MAX: u32 = 8;

/// Streams reset by us whose late frames are surely told from misbehaviour; for older ones we are lenient.
pub const RESET_MEMORY: usize = 32;

/// How often a peer may do something that costs us more than it.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// At once.
    pub burst: u32,
    /// In the long run.
    pub per_second: u32,
}

/// Streams that are reset by the peer, or by us for what it did: rapid reset (CVE-2023-44487) and its sister "made you
/// reset". All streams may be cancelled at once. A peer that speaks for many has one more for each request: there it
/// bounds what is none.
pub const RESETS: Allowance = Allowance { burst: STREAMS_MAX, per_second: 100 };

/// PING and SETTINGS frames, which we must answer; a stream that is reset allows for one more, as Go's client sends a
/// PING with each RST_STREAM.
pub const ANSWERS: Allowance = Allowance { burst: 256, per_second: 32 };

/// DATA frames with nothing in them that do not end their stream.
pub const EMPTY_FRAMES: Allowance = Allowance { burst: 128, per_second: 16 };

/// WINDOW_UPDATE frames; a DATA frame that we send and that no window cut short allows for two more, and one for each
/// [`WINDOW_UPDATE_OCTETS`] of it.
pub const WINDOW_UPDATES: Allowance = Allowance { burst: 4_096, per_second: 500 };

/// Octets of DATA that a peer may take at a time, and tell of that with a WINDOW_UPDATE. Go's client tells of each
/// read, on the stream and on the connection, and what unpacks gzip for it reads 4 KiB.
pub const WINDOW_UPDATE_OCTETS: usize = 1024;

/// PRIORITY frames, frames of unknown types, frames on streams that are over.
pub const IGNORED_FRAMES: Allowance = Allowance { burst: 512, per_second: 64 };

const _: () = {
    assert!(FRAME_SIZE_MAX >= 16_384, "RFC 9113 §4.2: everybody takes frames of this size");
    assert!(STREAM_WINDOW <= WINDOW_MAX && CONNECTION_WINDOW <= WINDOW_MAX);
    assert!(CONNECTION_WINDOW >= WINDOW_DEFAULT, "the connection's window can only grow");
    assert!(STREAM_WINDOW as usize >= 2 * FRAME_SIZE_MAX, "updates come when half a window is used");
    assert!(FIELD_BLOCK_BYTES_MAX <= CONTINUATION_FRAMES_MAX as usize * FRAME_SIZE_MAX / 2);
    assert!(RESETS.burst >= STREAMS_MAX, "all streams may be cancelled at once");
};
