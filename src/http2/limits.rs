//! All limits of an HTTP/2 connection.
//!
//! The limits bound the memory of one connection: [`STREAMS_MAX`] streams of some 64 octets, one field block
//! ([`FieldBlocks`]), two dynamic tables of [`TABLE_SIZE_MAX`]. The [`Allowance`]s limit how often a peer may cause
//! work that costs us more than the peer. The caller of [`Connection`](super::Connection) limits the size of bodies.

use super::frame;

/// Largest frame payload that we accept and send, in octets. It is the default of `SETTINGS_MAX_FRAME_SIZE`. Larger
/// frames would delay the connection's other streams.
pub const FRAME_SIZE_MAX: usize = 16_384;

/// Smallest allowed size of the read buffer, in octets. The buffer must have space for one whole frame.
pub const RECV_BUFFER_BYTES_MIN: usize = frame::HEAD_BYTES + FRAME_SIZE_MAX;

/// Maximum number of streams that a client may have open at once. The number is large, since kube-apiserver opens all
/// its watches on a few connections.
pub const STREAMS_MAX: u32 = 4_096;

/// Maximum number of streams that a client opens before it knows the server's limit. No server should allow fewer
/// streams (RFC 9113 §6.5.2).
pub const STREAMS_BEFORE_SETTINGS: u32 = 100;

/// Initial receive window of a stream, in octets.
pub const STREAM_WINDOW: u32 = 1 << 20;

/// Receive window of the connection, in octets.
pub const CONNECTION_WINDOW: u32 = 4 << 20;

/// The protocol's default size of all windows (RFC 9113 §6.9.2), in octets.
pub const WINDOW_DEFAULT: u32 = 65_535;

/// Largest flow-control window (RFC 9113 §6.9.1), in octets.
pub const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Largest dynamic table in each direction, in octets.
pub const TABLE_SIZE_MAX: usize = 4_096;

/// Largest decoded field list of a request that a client sends itself, not through a front proxy, in octets. Also the
/// largest single field of any request, without the 32 octets that HPACK adds for each field. A larger list or field
/// gets 431.
pub const FIELD_LIST_BYTES_MAX: usize = 65_536;

/// Limits of the field blocks of a peer.
#[derive(Clone, Copy, Debug)]
pub struct FieldBlocks {
    /// Largest decoded field list that is stored and served (`SETTINGS_MAX_HEADER_LIST_SIZE`), in octets. A larger
    /// request gets 431.
    pub served_octets_max: usize,
    /// Largest encoded field block, over HEADERS and all its CONTINUATION frames, in octets. Above it, the connection
    /// ends.
    pub octets_max: usize,
    /// Maximum number of CONTINUATION frames after one HEADERS frame. Above it, the connection ends.
    pub continuations_max: u32,
    /// Largest decoded field list, in octets. Above it, the connection ends.
    pub list_octets_max: usize,
}

/// Limits for a peer that sends only its own requests. A longer block or list is an attack. The maximum number of
/// frames is twice what the largest block needs in frames of full size.
pub const FIELD_BLOCKS: FieldBlocks = FieldBlocks {
    served_octets_max: FIELD_LIST_BYTES_MAX,
    octets_max: 65_536,
    continuations_max: 8,
    list_octets_max: 4 * FIELD_LIST_BYTES_MAX,
};

/// Limits for a front proxy. kube-apiserver adds a field for each group of the user. 3,000 groups with UUIDs as names
/// take 240 KiB of the list, so more is served than for other peers. If a list is longer than our
/// `SETTINGS_MAX_HEADER_LIST_SIZE`, Go's client does not send the request, and kube-apiserver answers 503.
///
/// On a new connection, Go's client sends requests before it has read our settings, and so sends long heads too. If
/// such a head exceeded a limit that ends the connection, any user could end the connection that all users share. So
/// these limits (all but `served_octets_max`) are above the longest head that kube-apiserver forwards, and such a head
/// gets 431.
///
/// The longest head: kube-apiserver accepts heads of 1 MiB plus 4 KiB. It escapes an octet of a target as up to three,
/// such as `%FF`, which take 20 bits in HPACK. So a block is shorter than 3 MiB. A field line of three octets counts as
/// 33 octets of the list. So a list is shorter than 12 MiB.
pub const FIELD_BLOCKS_OF_FRONT_PROXY: FieldBlocks = FieldBlocks {
    served_octets_max: 4 * FIELD_LIST_BYTES_MAX,
    octets_max: 3 << 20,
    continuations_max: 256,
    list_octets_max: 16 << 20,
};

/// Number of streams reset by us whose ids are remembered. A closed stream whose id is below a forgotten one may have
/// been reset too. So frames on it are ignored, and are no error.
pub const RESET_MEMORY: usize = 32;

/// How often a peer may do something that costs us more than it costs the peer.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Number of occurrences allowed at once.
    pub burst: u32,
    /// Number of occurrences allowed per second in the long run.
    pub per_second: u32,
}

/// Streams reset by the peer, or by us because of the peer's error. Requests that the HTTP/2 layer itself refuses, with
/// 400 or 431, count too. This limits the attacks "rapid reset" (CVE-2023-44487) and "made you reset" (CVE-2025-8671).
/// The peer may cancel all its streams at once, so the burst is [`STREAMS_MAX`]. If the peer is a front proxy, each
/// request adds one to the allowance. So a front proxy may reset every one of its requests.
pub const RESETS: Allowance = Allowance { burst: STREAMS_MAX, per_second: 100 };

/// PING and SETTINGS frames, which we must acknowledge, and GOAWAY frames. Each stream that the peer resets adds one to
/// the allowance, since Go's client sends a PING with each RST_STREAM.
pub const ANSWERS: Allowance = Allowance { burst: 256, per_second: 32 };

/// Empty DATA frames that do not end their stream.
pub const EMPTY_FRAMES: Allowance = Allowance { burst: 128, per_second: 16 };

/// WINDOW_UPDATE frames. Each DATA frame that we send adds two to the allowance, and one more for each
/// [`WINDOW_UPDATE_OCTETS`] of its data. A DATA frame adds nothing if a flow-control window has shortened it to less
/// than 1 KiB. Otherwise a peer could raise its allowance with tiny windows.
pub const WINDOW_UPDATES: Allowance = Allowance { burst: 4_096, per_second: 500 };

/// Octets of DATA that a peer must read before it may send another WINDOW_UPDATE. Go's client sends a WINDOW_UPDATE for
/// each read, both on the stream and on the connection. The smallest reads are those of its gzip reader, of 4 KiB. For
/// each 4 KiB, the client then sends two WINDOW_UPDATEs, and the allowance grows by four.
pub const WINDOW_UPDATE_OCTETS: usize = 1024;

/// PRIORITY frames, frames of unknown types, and field blocks of streams that we have reset or do not serve any more.
pub const IGNORED_FRAMES: Allowance = Allowance { burst: 512, per_second: 64 };

const _: () = {
    assert!(FRAME_SIZE_MAX >= 16_384, "RFC 9113 §4.2: everybody takes frames of this size");
    assert!(STREAM_WINDOW <= WINDOW_MAX && CONNECTION_WINDOW <= WINDOW_MAX);
    assert!(CONNECTION_WINDOW >= WINDOW_DEFAULT, "the connection's window can only grow");
    assert!(STREAM_WINDOW as usize >= 2 * FRAME_SIZE_MAX, "updates come when half a window is used");
    assert!(FIELD_BLOCKS.octets_max <= FIELD_BLOCKS.continuations_max as usize * FRAME_SIZE_MAX / 2);
    assert!(
        FIELD_BLOCKS_OF_FRONT_PROXY.octets_max
            <= FIELD_BLOCKS_OF_FRONT_PROXY.continuations_max as usize * FRAME_SIZE_MAX
    );
    assert!(RESETS.burst >= STREAMS_MAX, "all streams may be cancelled at once");
};
