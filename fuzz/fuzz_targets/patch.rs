//! Fuzzes patches of a Lease. Each patch is applied or refused, with a bounded amount of work. The result of a JSON
//! patch or a merge patch is valid JSON.
#![no_main]

use coordination_apiserver::codec::json::Decoder;
use coordination_apiserver::patch::{
    apply_json_patch, apply_merge_patch, apply_strategic_merge_patch, decode_strategic_merge_patch,
};
use coordination_apiserver::resource::ApiVersion;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const CURRENT: &[u8] = br#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"a","namespace":"b","uid":"c","labels":{"x":"y"},"finalizers":["d/e"],"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"o"}]},"spec":{"holderIdentity":"h","leaseDurationSeconds":40,"renewTime":"2026-01-02T03:04:05.000006Z"}}"#;

fuzz_target!(|data: &[u8]| {
    let json = [true, false].map(|is_checked| apply_json_patch(CURRENT, data, is_checked));
    let merged = [true, false].map(|is_checked| apply_merge_patch(CURRENT, data, is_checked));
    for patched in json.into_iter().chain(merged) {
        if let Ok(mut patched) = patched {
            assert!(serde_json::from_slice::<Value>(&patched).is_ok(), "{}", String::from_utf8_lossy(&patched));
            _ = Decoder::new().decode_patched(&mut patched, ApiVersion::V1);
        }
    }
    _ = decode_strategic_merge_patch(data).and_then(|patch| apply_strategic_merge_patch(CURRENT, patch));
});
