//! Decodes `metav1.DeleteOptions` in the protobuf body of a DELETE request.

use super::decode::Unknown;
use super::reader::{Reader, WireError};
use crate::api_error::ApiError;
use crate::codec::refusal::not_registered;
use crate::codec::{DeleteOptions, Preconditions};

/// Decodes `DeleteOptions` in the body of a DELETE request.
///
/// # Errors
/// 400 with kube-apiserver's message.
pub fn decode_delete_options(body: &[u8]) -> Result<DeleteOptions, ApiError> {
    let read = || {
        let unknown = Unknown::read(body)?;
        let meta = unknown.type_meta.or("meta.k8s.io", "v1", "DeleteOptions");
        if meta.kind != "DeleteOptions" {
            return Err(not_registered(&meta.kind, &meta.group, &meta.version, DeleteOptions::SCHEME));
        }
        read_delete_options(unknown.raw).map_err(|error| error.to_string())
    };
    read().map_err(|message| ApiError::BadRequest { message })
}

fn read_delete_options(message: &[u8]) -> Result<DeleteOptions, WireError> {
    let mut options = DeleteOptions::default();
    let mut reader = Reader::new("DeleteOptions", message);
    while let Some(field) = reader.next()? {
        match field {
            1 => options.grace_period_seconds = Some(reader.int64("GracePeriodSeconds")?),
            2 => {
                let bytes = reader.bytes("Preconditions")?;
                read_preconditions(bytes, options.preconditions.get_or_insert_default())?;
            }
            3 => options.orphan_dependents = Some(reader.boolean("OrphanDependents")?),
            4 => options.propagation_policy = Some(reader.repaired_text("PropagationPolicy")?),
            5 => options.dry_run.push(reader.repaired_text("DryRun")?),
            6 => {
                let field = "IgnoreStoreReadErrorWithClusterBreakingPotential";
                options.ignore_store_read_error = Some(reader.boolean(field)?);
            }
            _ => reader.skip()?,
        }
    }
    Ok(options)
}

fn read_preconditions(bytes: &[u8], preconditions: &mut Preconditions) -> Result<(), WireError> {
    let mut reader = Reader::new("Preconditions", bytes);
    while let Some(field) = reader.next()? {
        match field {
            1 => preconditions.uid = Some(reader.repaired_text("UID")?),
            2 => preconditions.resource_version = Some(reader.repaired_text("ResourceVersion")?),
            _ => reader.skip()?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::envelope::tests::body;
    use super::super::sink::{SHORT, Sink};
    use super::*;

    #[test]
    fn all_fields_are_read_under_every_version_that_clients_send() {
        let mut message = Vec::new();
        message.put_integer(1, 5);
        message.put_message(2, SHORT, |out: &mut Vec<u8>| {
            out.put_bytes(1, b"u");
            out.put_bytes(2, b"1");
        });
        message.put_integer(3, 0);
        message.put_bytes(4, b"Background");
        message.put_bytes(5, b"All");
        message.put_integer(6, 1);
        let options = DeleteOptions {
            grace_period_seconds: Some(5),
            preconditions: Some(Preconditions { uid: Some("u".into()), resource_version: Some("1".into()) }),
            orphan_dependents: Some(false),
            propagation_policy: Some("Background".into()),
            dry_run: vec!["All".into()],
            ignore_store_read_error: Some(true),
        };
        for api_version in ["", "v1", "meta.k8s.io/v1", "coordination.k8s.io/v1"] {
            assert_eq!(decode_delete_options(&body(api_version, "DeleteOptions", &message)), Ok(options.clone()));
        }
        assert_eq!(decode_delete_options(&body("", "", &[])), Ok(DeleteOptions::default()));
        for end in 0..message.len() {
            let _ = decode_delete_options(&body("v1", "DeleteOptions", &message[..end]));
        }
    }

    #[test]
    fn invalid_options_get_the_errors_of_kube_apiserver() {
        for (body, words) in [
            (
                body("v1", "Pod", &[]),
                "no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
            ),
            (body("v1", "DeleteOptions", &[0x0a, 0]), "proto: wrong wireType = 2 for field GracePeriodSeconds"),
            (b"{}".to_vec(), "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        ] {
            assert_eq!(decode_delete_options(&body), Err(ApiError::BadRequest { message: words.into() }));
        }
    }
}
