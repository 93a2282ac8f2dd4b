//! Histograms of durations and of other numbers.

use super::text::Exposition;

/// A histogram with `N` bounds. The values are durations, or other numbers such as sizes of batches.
#[derive(Clone, Debug)]
pub(super) struct Histogram<const N: usize> {
    /// Upper bounds in ascending order, in µs for durations.
    bounds_us: &'static [u64; N],
    /// For each bound, the number of values up to this bound and above the previous bound.
    counts: [u64; N],
    /// Number of values above all bounds.
    above: u64,
    sum_us: u64,
}

impl<const N: usize> Histogram<N> {
    pub(super) const fn new(bounds_us: &'static [u64; N]) -> Self {
        Self { bounds_us, counts: [0; N], above: 0, sum_us: 0 }
    }

    pub(super) fn observe(&mut self, duration_us: u64) {
        self.observe_many(duration_us, 1);
    }

    /// Counts the same value `count` times.
    pub(super) fn observe_many(&mut self, duration_us: u64, count: u64) {
        let at = self.bounds_us.partition_point(|bound_us| *bound_us < duration_us);
        *self.counts.get_mut(at).unwrap_or(&mut self.above) += count;
        self.sum_us = self.sum_us.saturating_add(duration_us.saturating_mul(count));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.above == 0 && self.counts.iter().all(|count| *count == 0)
    }

    /// Writes buckets, sum and count under `name`, in seconds.
    pub(super) fn encode(&self, out: &mut Exposition, name: &str, labels: &[(&str, &str)]) {
        self.encode_as(out, name, labels, |us| seconds(us).to_string());
    }

    /// Writes buckets, sum and count of values that are not durations, without conversion.
    pub(super) fn encode_counts(&self, out: &mut Exposition, name: &str, labels: &[(&str, &str)]) {
        self.encode_as(out, name, labels, |count| count.to_string());
    }

    fn encode_as(&self, out: &mut Exposition, name: &str, labels: &[(&str, &str)], shown: impl Fn(u64) -> String) {
        let bucket = format!("{name}_bucket");
        let mut up_to = 0;
        for (bound_us, count) in self.bounds_us.iter().zip(&self.counts) {
            up_to += count;
            let bound = shown(*bound_us);
            out.sample(&bucket, &[labels, &[("le", bound.as_str())]].concat(), up_to);
        }
        up_to += self.above;
        out.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), up_to);
        out.sample(&format!("{name}_sum"), labels, shown(self.sum_us));
        out.sample(&format!("{name}_count"), labels, up_to);
    }
}

/// Converts microseconds to seconds.
pub(super) fn seconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let mut histogram = Histogram::new(&[5_000, 1_000_000]);
        assert!(histogram.is_empty());
        for duration_us in [0, 5_000, 5_001, 1_000_001] {
            histogram.observe(duration_us);
        }
        let mut out = Exposition::new();
        histogram.encode(&mut out, "h", &[("a", "b")]);
        assert_eq!(
            String::from_utf8(out.finish()).expect("text"),
            "h_bucket{a=\"b\",le=\"0.005\"} 2\nh_bucket{a=\"b\",le=\"1\"} 3\nh_bucket{a=\"b\",le=\"+Inf\"} 4\n\
             h_sum{a=\"b\"} 1.010002\nh_count{a=\"b\"} 4\n"
        );
    }
}
