//! What the rounds of a measurement come to: for the table of perf/run and for that of perf/report.

/// The least, the median and the most of what is there.
pub(crate) fn spread(values: impl Iterator<Item = Option<f64>>) -> Option<[f64; 3]> {
    let mut values: Vec<f64> = values.flatten().collect();
    values.sort_unstable_by(f64::total_cmp);
    let (first, last, upper) = (*values.first()?, *values.last()?, *values.get(values.len() / 2)?);
    let lower = *values.get((values.len() - 1) / 2)?;
    Some([first, f64::midpoint(lower, upper), last])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds() {
        let of = |values: &[f64]| spread(values.iter().copied().map(Some));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some([3.0, 3.0, 3.0]));
        assert_eq!(of(&[3.0, 1.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some([1.0, 2.0, 9.0]));
        assert_eq!(spread([None, Some(1.0)].into_iter()), Some([1.0, 1.0, 1.0]));
    }
}
