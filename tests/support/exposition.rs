//! A strict parser of Prometheus' text format, version 0.0.4. Faults that a scraper may forgive are errors here.

use crate::support::response::Response;
use std::collections::{BTreeMap, BTreeSet};

/// The parsed metrics: each series by its name and labels as written, with its value.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    pub(crate) series: BTreeMap<String, f64>,
}

impl Exposition {
    /// Parses the metrics of a response strictly.
    ///
    /// # Panics
    /// If the response is not 200, or not in this format.
    #[track_caller]
    pub(crate) fn of(response: Response) -> Self {
        let response = response.expect_status(200, "/metrics");
        assert_eq!(response.head.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let text = String::from_utf8(response.body).expect("metrics are UTF-8");
        parse(&text).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    /// Returns the value of a series.
    ///
    /// # Panics
    /// If the series does not exist.
    #[track_caller]
    pub(crate) fn value(&self, series: &str) -> f64 {
        *self.series.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.series))
    }

    /// Returns the sum of all series with this name and with all of `labels`.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let is_meant =
            |series: &str| series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label));
        // `sum` would return negative zero for no series.
        self.series.iter().filter(|(series, _)| is_meant(series)).fold(0.0, |sum, (_, value)| sum + value)
    }

    /// Returns [`Exposition::sum`] as a whole number.
    ///
    /// # Panics
    /// If the sum is not a whole number, or if `labels` is empty and no series has the name.
    #[track_caller]
    pub(crate) fn count(&self, name: &str, labels: &[&str]) -> usize {
        let is_there = !labels.is_empty() || self.series.keys().any(|series| series.split('{').next() == Some(name));
        assert!(is_there, "no {name}");
        let sum = self.sum(name, labels).to_string();
        sum.parse().unwrap_or_else(|_| panic!("{name} is {sum}"))
    }
}

/// A metric family, as its HELP and TYPE lines declare it.
struct Family<'t> {
    name: &'t str,
    kind: &'t str,
}

/// A sample line.
struct Sample<'t> {
    name: &'t str,
    labels: Vec<(&'t str, String)>,
    value: f64,
}

/// The only gauge whose name has the suffix of a counter, `_total`. kube-apiserver has chosen the name.
const GAUGE_NAMED_TOTAL: &str = "apiserver_watch_shards_total";

/// Parses the whole text.
///
/// # Errors
/// The first fault, with its line.
pub(crate) fn parse(text: &str) -> Result<Exposition, String> {
    let mut exposition = Exposition::default();
    let mut families = BTreeSet::new();
    let mut help: Option<&str> = None;
    let mut family: Option<Family<'_>> = None;
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    if !text.ends_with('\n') {
        return Err("the last line has no end".into());
    }
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let wrong = |what: &str| format!("{what}: {line:?}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').ok_or_else(|| wrong("HELP without words"))?;
            if !is_name(name, true) || !words.ends_with('.') || !are_escapes_known(words) {
                return Err(wrong("HELP"));
            }
            if !families.insert(name) {
                return Err(wrong("the family occurs twice"));
            }
            help = Some(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("TYPE without a type"))?;
            if help.take() != Some(name) {
                return Err(wrong("TYPE does not follow its HELP"));
            }
            let is_named_well = (kind == "counter") == name.ends_with("_total") || name == GAUGE_NAMED_TOTAL;
            if !matches!(kind, "counter" | "gauge" | "histogram") || !is_named_well {
                return Err(wrong("TYPE"));
            }
            family = Some(Family { name, kind });
        } else {
            let sample = sample(line).ok_or_else(|| wrong("no sample"))?;
            let family = family.as_ref().ok_or_else(|| wrong("a sample without a family"))?;
            let suffix = sample.name.strip_prefix(family.name).ok_or_else(|| wrong("a sample of another family"))?;
            let bound = sample.labels.iter().find(|(label, _)| *label == "le").map(|(_, bound)| bound.clone());
            let is_right = match (family.kind, suffix) {
                ("histogram", "_bucket") => bound.is_some(),
                ("histogram", "_sum" | "_count") | ("counter" | "gauge", "") => bound.is_none(),
                _ => false,
            };
            if !is_right || (family.kind != "gauge" && sample.value < 0.0) {
                return Err(wrong("the sample does not belong to its family"));
            }
            let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
            if exposition.series.insert(series.to_owned(), sample.value).is_some() {
                return Err(wrong("the series occurs twice"));
            }
            if let Some(bound) = bound {
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().map_err(|_| wrong("le"))? };
                let others: Vec<_> = sample.labels.iter().filter(|(label, _)| *label != "le").collect();
                buckets.entry(format!("{}{others:?}", family.name)).or_default().push((bound, sample.value));
            } else if suffix == "_count" {
                let of = buckets.get(&format!("{}{:?}", family.name, sample.labels.iter().collect::<Vec<_>>()));
                let last = of.and_then(|of| of.last()).ok_or_else(|| wrong("a count without buckets"))?;
                if last.0.is_finite() || (last.1 - sample.value).abs() > f64::EPSILON {
                    return Err(wrong("the count differs from the last bucket"));
                }
            }
        }
    }
    if help.is_some() {
        return Err("a HELP without TYPE at the end".into());
    }
    for (name, buckets) in buckets {
        if !buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
            return Err(format!("buckets of {name} do not ascend: {buckets:?}"));
        }
    }
    Ok(exposition)
}

/// Parses a sample: name, labels, one space and the value.
fn sample(line: &str) -> Option<Sample<'_>> {
    let name_end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            if !is_name(label, false) || labels.iter().any(|(other, _)| *other == label) {
                return None;
            }
            labels.push((label, value));
            rest = after;
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?;
    let is_number = value.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && value.bytes().all(|b| b.is_ascii_digit() || b"+-.e".contains(&b));
    let value: f64 = value.parse().ok().filter(|_| is_number)?;
    is_name(name, true).then_some(Sample { name, labels, value })
}

/// Parses a label's value, after its opening quote. Returns the value and the text after the closing quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                _ => return None,
            },
            c => value.push(c),
        }
    }
    None
}

/// Whether all escapes in the words of a HELP line are valid.
fn are_escapes_known(text: &str) -> bool {
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if c == '\\' && !matches!(characters.next(), Some('\\' | 'n')) {
            return false;
        }
    }
    true
}

fn is_name(name: &str, is_metric: bool) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_' || (is_metric && c == ':');
    !name.is_empty() && name.chars().all(is_good) && !name.starts_with(|c: char| c.is_ascii_digit())
}
