//! HPACK (RFC 7541): header compression for HTTP/2, as two state machines over slices.
//!
//! [`Decoder`] turns a whole field block into fields in a [`FieldBuf`]; [`Encoder`] appends representations to a
//! `Vec<u8>`. The caller owns and reuses both buffers. Decoder and encoder do not depend on frames, streams or
//! sockets. They usually allocate no memory: each table reuses one vector of octets, and the buffers keep their
//! memory.
//!
//! Everything that a peer can make large is limited. The agreed size limits the dynamic table. An integer has at most
//! four continuation octets. [`DecoderLimits`] limits the decoded list.

mod decoder;
mod dynamic_table;
mod encoder;
mod field_buf;
mod huffman;
mod integer;
mod name;
mod static_table;
#[cfg(test)]
pub(crate) mod tests;

pub use decoder::{DecodeError, Decoded, Decoder, DecoderLimits};
pub use encoder::{Encoder, Indexing};
pub use field_buf::{Field, FieldBuf};
pub use name::{FieldName, NameId};

/// Overhead of each field in octets, in the dynamic table (RFC 7541 §4.1) and in the size of a field list (RFC 9113
/// §6.5.2).
pub const FIELD_OVERHEAD: usize = 32;

/// Initial size of the dynamic table (`SETTINGS_HEADER_TABLE_SIZE`, RFC 9113 §6.5.2), in octets.
pub const TABLE_SIZE_DEFAULT: usize = 4096;
