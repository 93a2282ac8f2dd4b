//! Fuzzes the parsers of `Time` and `MicroTime`, which accept what Go accepts. The text that the server formats can be
//! parsed again.
#![no_main]

use coordination_apiserver::timestamp::{parse_micro_time, parse_time, push_micro_time, push_time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut out = Vec::new();
    if let Ok(time) = parse_time(text) {
        push_time(&mut out, time);
        let written = std::str::from_utf8(&out).expect("it is ASCII");
        // A time zone offset can lead to a year that has not four digits. Such a time is not parsed again.
        if written.len() == "2006-01-02T15:04:05Z".len() {
            assert_eq!(parse_time(written), Ok(time), "{written}");
        }
    }
    out.clear();
    if let Ok(time) = parse_micro_time(text) {
        push_micro_time(&mut out, time);
        let written = std::str::from_utf8(&out).expect("it is ASCII");
        if written.len() == "2006-01-02T15:04:05.000000Z".len() {
            assert_eq!(parse_micro_time(written), Ok(time), "{written}");
        }
    }
});
