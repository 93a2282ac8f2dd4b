//! Fuzzes the decoder of Leases in protobuf. A valid Lease that is encoded and decoded again stays the same.
#![no_main]

use coordination_apiserver::codec::protobuf::{decode_delete_options, decode_lease, encode_lease_into};
use coordination_apiserver::lease::validation::validate_create;
use coordination_apiserver::resource::ApiVersion;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    _ = decode_delete_options(data);
    let Ok(mut decoded) = decode_lease(data, ApiVersion::V1) else { return };
    // The encoder takes the resourceVersion as an argument (here `None`), not from the Lease. So the version in the
    // input is not encoded.
    decoded.lease.metadata.resource_version = Default::default();
    let is_valid = validate_create(&decoded.lease).is_empty();
    let mut encoded = Vec::new();
    encode_lease_into(&mut encoded, &decoded.lease, None, "coordination.k8s.io/v1");
    if is_valid {
        assert_eq!(decode_lease(&encoded, ApiVersion::V1).expect("our own encoding decodes").lease, decoded.lease);
    }
});
