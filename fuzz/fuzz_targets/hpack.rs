//! Fuzzes HPACK field blocks. Decoding stays within its limits. Decoded fields that are encoded and decoded again stay
//! the same.
#![no_main]

use coordination_apiserver::hpack::{Decoded, Decoder, DecoderLimits, Encoder, FieldBuf, FieldName, Indexing};
use libfuzzer_sys::fuzz_target;

const LIMITS: DecoderLimits = DecoderLimits { list_size_max: 1024, list_size_abort: 4096 };

fuzz_target!(|data: &[u8]| {
    let mut decoder = Decoder::new(512, LIMITS);
    let mut encoder = Encoder::new(512);
    let mut second_decoder = Decoder::new(4096, LIMITS);
    let (mut fields, mut second_fields) = (FieldBuf::new(), FieldBuf::new());
    let mut rest = data;
    // The input is a series of field blocks. Each has its length in the byte before it. The length 255 also changes the
    // size limit of the encoder's dynamic table.
    while let Some((&length, after)) = rest.split_first() {
        let (block, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        if length == 255 {
            encoder.set_peer_table_size(block.len() * 2);
        }
        let Ok(decoded) = decoder.decode(block, &mut fields) else { return };
        assert!(fields.list_size() <= LIMITS.list_size_max);
        if decoded == Decoded::Oversized {
            continue;
        }
        let mut encoded = Vec::new();
        encoder.begin_block(&mut encoded);
        for (at, field) in fields.iter().enumerate() {
            let indexing = [Indexing::Value, Indexing::Name, Indexing::Never][(at + block.len()) % 3];
            encoder.encode_field(FieldName::new(field.name), field.value, indexing, &mut encoded);
        }
        assert_eq!(second_decoder.decode(&encoded, &mut second_fields), Ok(Decoded::Whole));
        let both = fields.iter().zip(second_fields.iter());
        assert_eq!(fields.len(), second_fields.len());
        for (first, second) in both {
            assert_eq!((first.id, first.name, first.value), (second.id, second.name, second.value));
        }
    }
});
