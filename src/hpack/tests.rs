//! Tests the examples of RFC 7541 Appendix C, and that the decoder reads what the encoder writes.

use super::{Decoded, Decoder, DecoderLimits, Encoder, FieldBuf, FieldName, Indexing};

const LIMITS: DecoderLimits = DecoderLimits { list_size_max: 1 << 20, list_size_abort: 1 << 20 };

#[test]
fn the_decoder_passes_the_examples_of_appendix_c() {
    let stories = STORIES.iter().flat_map(|story| (0..story[0].blocks.len()).map(move |coding| (story, coding)));
    for (at, (story, coding)) in stories.enumerate() {
        // The examples in C.5 and C.6 have a table of 256 octets.
        let mut decoder = Decoder::new(if at >= 6 { 256 } else { 4096 }, LIMITS);
        let mut fields = FieldBuf::new();
        for vector in *story {
            assert_eq!(decoder.decode(&octets_of_hex(vector.blocks[coding]), &mut fields), Ok(Decoded::Whole));
            let decoded: Vec<_> = fields.iter().map(|field| line(field.name, field.value)).collect();
            assert_eq!(decoded, vector.fields);
            let table: Vec<_> = decoder.table_entries().iter().map(|(name, value)| line(name, value)).collect();
            assert_eq!(table, vector.table);
            assert_eq!(decoder.table_size(), vector.table_size);
        }
    }
}

/// Goal: the decoder reads whatever the encoder writes, and both have the same table, while the table size goes up and
/// down.
#[test]
fn encoder_and_decoder_agree_with_random_table_sizes() {
    for seed in 1..=200 {
        let mut random = Random(seed);
        let mut encoder = Encoder::new(4096);
        let mut decoder = Decoder::new(4096, LIMITS);
        let mut fields = FieldBuf::new();
        for _ in 0..60 {
            while random.below(6) == 0 {
                encoder.set_peer_table_size(match random.below(3) {
                    0 => 0,
                    1 => random.below(300),
                    _ => random.below(10_000),
                });
            }
            let mut block = Vec::new();
            encoder.begin_block(&mut block);
            let sent: Vec<_> = (0..random.below(12)).map(|_| random_field(&mut random)).collect();
            for (name, value) in &sent {
                let indexing = [Indexing::Value, Indexing::Name, Indexing::Never][random.below(3)];
                encoder.encode_field(FieldName::new(name), value, indexing, &mut block);
            }
            assert_eq!(decoder.decode(&block, &mut fields), Ok(Decoded::Whole), "seed {seed}");
            let received: Vec<_> = fields.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect();
            assert_eq!(received, sent, "seed {seed}");
        }
    }
}

#[test]
fn random_octets_never_panic() {
    let mut fields = FieldBuf::new();
    for seed in 1..=20_000 {
        let mut random = Random(seed);
        let mut decoder = Decoder::new(256, DecoderLimits { list_size_max: 500, list_size_abort: 2000 });
        for _ in 0..4 {
            let block: Vec<u8> = (0..random.below(64)).map(|_| random.octet()).collect();
            if decoder.decode(&block, &mut fields).is_err() {
                break;
            }
            assert!(fields.list_size() <= 500);
        }
    }
}

fn random_field(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let names: [&[u8]; 8] =
        [b":status", b"content-type", b"content-length", b"x-a", b"x-b", b":path", b"audit-id", b"accept-encoding"];
    let name = match random.below(10) {
        0 => (0..random.below(40)).map(|_| random.octet()).collect(),
        _ => names[random.below(names.len())].to_vec(),
    };
    let value = match random.below(4) {
        0 => (0..random.below(200)).map(|_| random.octet()).collect(),
        1 => b"gzip, deflate".to_vec(),
        _ => random.below(20).to_string().into_bytes(),
    };
    (name, value)
}

/// A pseudo-random generator (xorshift64). It is good enough for tests, and gives the same numbers everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end
    }

    pub(crate) fn octet(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

fn line(name: &[u8], value: &[u8]) -> String {
    format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
}

fn octets_of_hex(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

struct Vector {
    /// The encodings of the block: without Huffman coding, then with it.
    blocks: &'static [&'static str],
    fields: &'static [&'static str],
    /// The dynamic table after decoding, newest entry first.
    table: &'static [&'static str],
    table_size: usize,
}

/// Blocks that follow each other on one connection.
const STORIES: &[&[Vector]] = &[
    // RFC 7541 C.2.1
    &[Vector {
        blocks: &["400a637573746f6d2d6b65790d637573746f6d2d686561646572"],
        fields: &["custom-key: custom-header"],
        table: &["custom-key: custom-header"],
        table_size: 55,
    }],
    // RFC 7541 C.2.2
    &[Vector {
        blocks: &["040c2f73616d706c652f70617468"],
        fields: &[":path: /sample/path"],
        table: &[],
        table_size: 0,
    }],
    // RFC 7541 C.2.3
    &[Vector {
        blocks: &["100870617373776f726406736563726574"],
        fields: &["password: secret"],
        table: &[],
        table_size: 0,
    }],
    // RFC 7541 C.2.4
    &[Vector { blocks: &["82"], fields: &[":method: GET"], table: &[], table_size: 0 }],
    // RFC 7541 C.3 and C.4
    &[
        Vector {
            blocks: &["828684410f7777772e6578616d706c652e636f6d", "828684418cf1e3c2e5f23a6ba0ab90f4ff"],
            fields: &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
            table: &[":authority: www.example.com"],
            table_size: 57,
        },
        Vector {
            blocks: &["828684be58086e6f2d6361636865", "828684be5886a8eb10649cbf"],
            fields: &[
                ":method: GET",
                ":scheme: http",
                ":path: /",
                ":authority: www.example.com",
                "cache-control: no-cache",
            ],
            table: &["cache-control: no-cache", ":authority: www.example.com"],
            table_size: 110,
        },
        Vector {
            blocks: &[
                "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
                "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
            ],
            fields: &[
                ":method: GET",
                ":scheme: https",
                ":path: /index.html",
                ":authority: www.example.com",
                "custom-key: custom-value",
            ],
            table: &["custom-key: custom-value", "cache-control: no-cache", ":authority: www.example.com"],
            table_size: 164,
        },
    ],
    // RFC 7541 C.5 and C.6
    &[
        Vector {
            blocks: &[
                "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
                "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
            ],
            fields: &[
                ":status: 302",
                "cache-control: private",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "location: https://www.example.com",
            ],
            table: &[
                "location: https://www.example.com",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "cache-control: private",
                ":status: 302",
            ],
            table_size: 222,
        },
        Vector {
            blocks: &["4803333037c1c0bf", "4883640effc1c0bf"],
            fields: &[
                ":status: 307",
                "cache-control: private",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "location: https://www.example.com",
            ],
            table: &[
                ":status: 307",
                "location: https://www.example.com",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "cache-control: private",
            ],
            table_size: 222,
        },
        Vector {
            blocks: &[
                "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ],
            fields: &[
                ":status: 200",
                "cache-control: private",
                "date: Mon, 21 Oct 2013 20:13:22 GMT",
                "location: https://www.example.com",
                "content-encoding: gzip",
                "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ],
            table: &[
                "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "content-encoding: gzip",
                "date: Mon, 21 Oct 2013 20:13:22 GMT",
            ],
            table_size: 215,
        },
    ],
];
