//! Fuzzes the decoder of YAML bodies. A body is decoded or refused, with a bounded amount of work.
#![no_main]

use coordination_apiserver::codec::yaml::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    _ = decode(data);
});
