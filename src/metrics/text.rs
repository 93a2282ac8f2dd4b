//! The Prometheus text format, version 0.0.4: each family has HELP and TYPE lines and then its samples.

use std::fmt::{Display, Write as _};

/// The text written so far.
#[derive(Debug)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    pub(super) fn new() -> Self {
        Self { text: String::with_capacity(16 * 1024) }
    }

    /// Begins the family of a counter.
    pub(super) fn counter(&mut self, name: &str, help: &str) {
        self.family(name, "counter", help);
    }

    /// Begins the family of a gauge.
    pub(super) fn gauge(&mut self, name: &str, help: &str) {
        self.family(name, "gauge", help);
    }

    /// Begins the family of a histogram.
    pub(super) fn histogram(&mut self, name: &str, help: &str) {
        self.family(name, "histogram", help);
    }

    /// Writes a gauge with one sample.
    pub(super) fn single_gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.gauge(name, help);
        self.sample(name, &[], value);
    }

    /// Writes a counter with one sample.
    pub(super) fn single_counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.counter(name, help);
        self.sample(name, &[], value);
    }

    /// Writes a sample of the current family.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (at, (label, of)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            self.push_escaped(of, true);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        _ = writeln!(self.text, " {value}");
    }

    /// Returns the text.
    pub(super) fn finish(self) -> Vec<u8> {
        self.text.into_bytes()
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        _ = write!(self.text, "# HELP {name} ");
        self.push_escaped(help, false);
        _ = writeln!(self.text, "\n# TYPE {name} {kind}");
    }

    /// Appends escaped text; quotation marks are escaped in labels only.
    fn push_escaped(&mut self, text: &str, is_label: bool) {
        for c in text.chars() {
            match c {
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '"' if is_label => self.text.push_str("\\\""),
                c => self.text.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_samples_are_written_as_the_format_says() {
        let mut out = Exposition::new();
        out.counter("a_total", "Says \"a\\b\"\nand more.");
        out.sample("a_total", &[("x", "1\"\\\n"), ("y", "")], 7);
        out.single_gauge("b", "One.", 0.25);
        assert_eq!(
            String::from_utf8(out.finish()).expect("text"),
            "# HELP a_total Says \"a\\\\b\"\\nand more.\n# TYPE a_total counter\na_total{x=\"1\\\"\\\\\\n\",y=\"\"} 7\n\
             # HELP b One.\n# TYPE b gauge\nb 0.25\n"
        );
    }
}
