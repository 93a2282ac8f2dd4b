//! The percentile distribution in HdrHistogram's text format, which HdrHistogram's plotter reads.
//!
//! Values are in milliseconds. Every five rows halve the distance to the percentile 100 %. The last row is the maximum.

use crate::latencies::Latencies;
use std::fmt::Write as _;

/// Returns the percentile distribution of these latencies, as text.
pub(crate) fn text(latencies: &Latencies) -> String {
    let mut out = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    // Writing to a string cannot fail.
    for row in latencies.distribution(ROWS_PER_HALF) {
        _ = write!(out, "{:>12.3} {:.12} {:>10}", row.ms, row.quantile, row.count);
        _ = if row.quantile < 1.0 { writeln!(out, " {:>14.2}", 1.0 / (1.0 - row.quantile)) } else { writeln!(out) };
    }
    let [mean, deviation] = latencies.ms_mean_and_deviation();
    let [.., max] = latencies.ms();
    let (buckets, sub_buckets) = latencies.buckets();
    _ = writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
    _ = writeln!(out, "#[Max     = {max:>12.3}, Total count    = {:>12}]", latencies.len());
    _ = writeln!(out, "#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]");
    out
}

/// Rows for each halving of the distance to 100 %, as in HdrHistogram's own tools.
const ROWS_PER_HALF: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_ends_with_its_maximum_and_a_footer() {
        let mut latencies = Latencies::new();
        // The histogram's unit is 0.1 µs. With three significant digits, it stores values below 2048 units exactly. So
        // times below 200 µs are exact.
        (1..=100).for_each(|us| latencies.record(us * 1_000));
        let text = text(&latencies);
        let (head, rest) = text.split_once("\n\n").expect("a head");
        assert_eq!(head, "       Value     Percentile TotalCount 1/(1-Percentile)");
        let (footer, rows): (Vec<&str>, Vec<&str>) = rest.lines().partition(|line| line.starts_with('#'));
        let rows: Vec<Vec<f64>> = rows
            .iter()
            .map(|row| row.split_whitespace().map(|word| word.parse().expect("a number")).collect())
            .collect();
        assert!(rows.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] < pair[1][1]), "{text}");
        let half = rows.iter().find(|row| row[1] == 0.5).expect("a row of the median");
        assert_eq!((half[0], half[2], half[3]), (0.05, 50.0, 2.0));
        assert_eq!(rows.last().expect("a row"), &[0.1, 1.0, 100.0]);
        let expected = [
            "#[Mean    =        0.051, StdDeviation   =        0.029]",
            "#[Max     =        0.100, Total count    =          100]",
        ];
        assert_eq!(footer[..2], expected);
        assert!(
            footer[2].starts_with("#[Buckets = ") && footer[2].ends_with("SubBuckets     =         2048]"),
            "{text}"
        );
    }

    #[test]
    fn an_empty_histogram_is_written_without_rows() {
        let text = text(&Latencies::new());
        assert_eq!(text.lines().count(), 2 + 3, "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }
}
