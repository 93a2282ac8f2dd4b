//! How figures are made of counts for the results.

/// A count to reckon with.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn count(number: u64) -> f64 {
    number as f64
}

/// So much for each; `None` if there is nothing to divide by.
pub(crate) fn per(value: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| round(value / of))
}

/// To four decimals.
pub(crate) fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
