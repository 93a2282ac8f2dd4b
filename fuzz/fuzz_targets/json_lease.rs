//! Fuzzes the decoder of Leases in JSON. A valid Lease that is encoded and decoded again stays the same.
#![no_main]

use coordination_apiserver::codec::json::{Decoder, encode_lease_into};
use coordination_apiserver::lease::managed_fields::ManagedFields;
use coordination_apiserver::lease::validation::{validate_create, validate_update};
use coordination_apiserver::resource::ApiVersion;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

thread_local! {
    static DECODER: RefCell<Decoder> = RefCell::new(Decoder::new());
}

fuzz_target!(|data: &[u8]| {
    DECODER.with_borrow_mut(|decoder| {
        _ = decoder.decode_delete_options(&mut data.to_vec());
        _ = decoder.decode_patched(&mut data.to_vec(), ApiVersion::V1);
        let Ok(decoded) = decoder.decode_lease(&mut data.to_vec(), ApiVersion::V1) else { return };
        let mut lease = decoded.lease;
        // The encoder takes the resourceVersion as an argument (here `None`), not from the Lease. So the version in the
        // input is not encoded.
        lease.metadata.resource_version = Default::default();
        // A list that resets `managedFields` is a client's command. It is never stored, so it is never encoded.
        if lease.metadata.managed_fields == ManagedFields::reset() {
            lease.metadata.managed_fields = ManagedFields::ABSENT;
        }
        let is_valid = validate_create(&lease).is_empty();
        _ = validate_update(&lease, &lease);
        let mut encoded = Vec::new();
        encode_lease_into(&mut encoded, &lease, None, true);
        if is_valid {
            let again = decoder.decode_lease(&mut encoded.clone(), ApiVersion::V1).expect("our own encoding decodes");
            assert!(again.warnings.is_empty(), "{}", String::from_utf8_lossy(&encoded));
            assert_eq!(again.lease, lease);
        }
    });
});
