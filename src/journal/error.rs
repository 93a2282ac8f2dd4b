//! Errors of a store: damage, a newer format, or a contradiction to what this process knows.

use super::seal::FORMAT;
use super::wire::FormError;
use crate::engine::EngineError;

/// Returns the error for damage in `store`: `value` is missing, or its bytes are not those that were written. Intact
/// bytes that contradict other values are damage too. So is a command or an event that must not occur; `value` is then
/// `worker`.
#[cold]
pub(super) fn damaged(store: &str, value: &str, what: &str) -> EngineError {
    EngineError::Damaged { place: format!("{store}: {value}"), what: what.to_owned() }
}

/// Returns the error for a contradiction between `store` and what this process knows about it. The store is intact, and
/// the process must load it again.
#[cold]
pub(super) fn lost(store: &str, what: &str) -> EngineError {
    EngineError::Lost { store: store.to_owned(), what: what.to_owned() }
}

/// Returns the error for a value in `store` that cannot be decoded.
#[cold]
pub(super) fn unreadable(store: &str, value: &str, error: FormError) -> EngineError {
    match error {
        FormError::Damaged { .. } => damaged(store, value, &error.to_string()),
        FormError::Newer { found } => {
            EngineError::NewerFormat { store: format!("{store}: {value}"), found, known: FORMAT.into() }
        }
    }
}
