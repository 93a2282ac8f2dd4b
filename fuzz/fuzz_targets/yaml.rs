//! YAML bodies are decoded or refused, with bounded work.
#![no_main]

use coordination_apiserver::codec::yaml::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    _ = decode(data);
});
