//! Plots of lines in HTML: an SVG that stretches to the size of its place, and text around the SVG that keeps its size.
//!
//! Coordinates in the SVG are thousandths of its width and height. The labels of axes and lines are HTML text, whose
//! places are percentages. So a plot needs no script to fit a narrow screen.

use super::escaped;
use std::fmt::Write as _;

/// A plot of some lines over a common x axis.
#[derive(Debug)]
pub(super) struct Plot {
    /// Title of the plot.
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Notes on parts of the x axis. Each has start, end, and the text that the pointer shows there.
    pub(super) notes: Vec<(f64, f64, String)>,
}

/// An axis of a plot, with the values at its two ends.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    is_log: bool,
    from: f64,
    to: f64,
    /// Values at which the axis has a tick, each with the text of its label.
    ticks: Vec<(f64, String)>,
}

/// A line of a plot.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// CSS class of the line.
    pub(super) class: &'static str,
    /// Points of the line, in the units of the axes. The line has a gap between two runs of points.
    pub(super) runs: Vec<Vec<(f64, f64)>>,
}

impl Axis {
    /// Creates a linear axis from 0 to `max`, or to a round number above `max`.
    pub(super) fn linear(max: f64, text: impl Fn(f64) -> String) -> Self {
        let step = round_up(max.max(f64::MIN_POSITIVE) / TICKS);
        let steps = (max / step).ceil().max(1.0);
        Self { is_log: false, from: 0.0, to: steps * step, ticks: multiples(step, 0.0, steps * step, text) }
    }

    /// Creates a linear axis that begins exactly at `from` and ends exactly at `to`.
    pub(super) fn exact(from: f64, to: f64, text: impl Fn(f64) -> String) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { is_log: false, from, to, ticks: multiples(round_up((to - from) / TICKS), from, to, text) }
    }

    /// Creates a logarithmic axis between round numbers that includes `min` and `max`. Both are positive.
    pub(super) fn log(min: f64, max: f64, text: impl Fn(f64) -> String) -> Self {
        let steps = || (-9..12).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
        let from = steps().rfind(|&step| step <= min * CLOSE).unwrap_or(min);
        let to = steps().find(|&step| step >= max / CLOSE && step > from).unwrap_or(max);
        let decades = (to / from).log10();
        // If the axis has many decades, only the ends of the decades have room for ticks.
        let has_room = |step: f64| decades <= DECADES_OF_STEPS || (step.log10() - step.log10().round()).abs() < 1e-6;
        let inner = steps().filter(|&step| step >= from / CLOSE && step <= to * CLOSE && has_room(step));
        Self { is_log: true, from, to, ticks: inner.map(|step| (step, text(step))).collect() }
    }

    /// Creates an axis of percentiles p, on which every further nine of p has the same width. The values of the axis
    /// are 1/(1-p). `count` is the number of latencies, which limits the number of nines.
    pub(super) fn percentiles(count: f64) -> Self {
        let nines = count.max(10.0).log10().min(NINES_MAX);
        let tick = |power: f64| {
            let digits = match power {
                0.0 => "0".to_owned(),
                1.0 => "90".to_owned(),
                2.0 => "99".to_owned(),
                _ => format!("99.{}", "9".repeat(usize::from(to_u8(power)) - 2)),
            };
            (10_f64.powf(power), format!("{digits} %"))
        };
        let ticks = (0..=to_u8(nines)).map(|power| tick(f64::from(power))).collect();
        Self { is_log: true, from: 1.0, to: 10_f64.powf(nines), ticks }
    }

    /// Returns the place of a value on the axis: 0 is the start of the axis, 1 the end.
    fn place(&self, value: f64) -> f64 {
        let place = if self.is_log {
            (value.max(f64::MIN_POSITIVE) / self.from).log10() / (self.to / self.from).log10()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        place.clamp(0.0, 1.0)
    }
}

impl Plot {
    /// Appends the HTML of the plot to a page.
    pub(super) fn write(&self, out: &mut String) {
        let names: Vec<_> = self.lines.iter().map(|line| line.name.as_str()).collect();
        let label = escaped(&format!("{}: {}", self.title, names.join(", ")));
        // Writing to a string cannot fail.
        _ = write!(
            out,
            "<figure><figcaption>{}</figcaption>\n<div class=\"plot\"><div class=\"y\">",
            escaped(&self.title)
        );
        for (value, text) in &self.y.ticks {
            _ = write!(out, "<span style=\"bottom:{:.1}%\">{}</span>", self.y.place(*value) * 100.0, escaped(text));
        }
        _ = write!(
            out,
            "</div>\n<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}\">\n\
             <path class=\"grid\" d=\""
        );
        for (value, _) in &self.y.ticks {
            _ = write!(out, "M0 {:.1}H1000", thousandths(1.0 - self.y.place(*value)));
        }
        out.push_str("\"/>\n");
        for line in &self.lines {
            _ = writeln!(out, "<path class=\"line {}\" d=\"{}\"/>", line.class, self.path(line));
        }
        for (from, to, text) in &self.notes {
            let (left, right) = (thousandths(self.x.place(*from)), thousandths(self.x.place(*to)));
            _ = writeln!(
                out,
                "<rect class=\"note\" x=\"{left:.1}\" y=\"0\" width=\"{:.1}\" height=\"1000\"><title>{}</title></rect>",
                right - left,
                escaped(text)
            );
        }
        out.push_str("</svg>\n<div class=\"names\">");
        for (line, place) in self.lines.iter().zip(self.name_places()) {
            let name = escaped(&line.name);
            _ = write!(out, "<span class=\"{}\" style=\"bottom:{:.1}%\">{name}</span>", line.class, place * 100.0);
        }
        out.push_str("</div>\n<div class=\"x\">");
        for (value, text) in &self.x.ticks {
            _ = write!(out, "<span style=\"left:{:.1}%\">{}</span>", self.x.place(*value) * 100.0, escaped(text));
        }
        out.push_str("</div></div></figure>\n");
    }

    fn path(&self, line: &Line) -> String {
        let mut path = String::new();
        for run in &line.runs {
            for (index, &(x, y)) in run.iter().enumerate() {
                let (x, y) = (thousandths(self.x.place(x)), thousandths(1.0 - self.y.place(y)));
                _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
            }
        }
        path
    }

    /// Returns the heights of the lines' names: beside the ends of the lines, without overlap.
    fn name_places(&self) -> Vec<f64> {
        let end = |line: &Line| line.runs.last().and_then(|run| run.last()).map_or(0.0, |&(_, y)| self.y.place(y));
        let mut order: Vec<(usize, f64)> = self.lines.iter().map(end).enumerate().collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut lowest = 0.0;
        for (_, place) in &mut order {
            *place = place.max(lowest);
            lowest = *place + NAME_HEIGHT;
        }
        // A name above the plot is lowered to the top of the plot. It then lowers the names below it.
        let mut highest = 1.0;
        for (_, place) in order.iter_mut().rev() {
            *place = place.min(highest);
            highest = *place - NAME_HEIGHT;
        }
        order.sort_by_key(|&(index, _)| index);
        order.into_iter().map(|(_, place)| place).collect()
    }
}

fn thousandths(part: f64) -> f64 {
    part * 1_000.0
}

/// Returns the multiples of `step` between `from` and `to`, each with the text of its label.
fn multiples(step: f64, from: f64, to: f64, text: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    let mut ticks = Vec::new();
    let mut at = (from / step).ceil();
    while at * step <= to + step / 1_000.0 {
        ticks.push((at * step, text(at * step)));
        at += 1.0;
    }
    ticks
}

/// Rounds a number up to 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|step| step * power).find(|&step| step >= value * 0.999).unwrap_or(10.0 * power)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of digits")]
fn to_u8(value: f64) -> u8 {
    value as u8
}

/// Approximate maximum number of intervals between ticks.
const TICKS: f64 = 6.0;
/// Maximum number of decades of an axis with ticks inside the decades.
const DECADES_OF_STEPS: f64 = 3.05;
/// Maximum number of nines on an axis of percentiles: 99.99999 %.
const NINES_MAX: f64 = 7.0;
/// Ratio of two numbers up to which they count as equal.
const CLOSE: f64 = 1.000_001;
/// Height of the name of a line, as a part of the plot's height.
const NAME_HEIGHT: f64 = 0.085;

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(texts(&Axis::linear(1_980.0, |value| format!("{value}"))), ["0", "500", "1000", "1500", "2000"]);
        assert_eq!(texts(&Axis::linear(0.0, |value| format!("{value:.0}"))).len(), 2);
        assert_eq!(texts(&Axis::log(0.06, 1.3, |value| format!("{value}"))), ["0.05", "0.1", "0.2", "0.5", "1", "2"]);
        assert_eq!(texts(&Axis::log(0.06, 600.0, |value| format!("{value}"))), ["0.1", "1", "10", "100", "1000"]);
        assert_eq!(texts(&Axis::percentiles(1_500.0)), ["0 %", "90 %", "99 %", "99.9 %"]);
        assert_eq!(texts(&Axis::exact(0.0, 3.0, |value| format!("{value:.1}"))).last(), Some(&"3.0"));
    }

    #[test]
    fn percentiles_are_placed_by_their_number_of_nines() {
        let axis = Axis::percentiles(10_000.0);
        assert_eq!([1.0, 10.0, 100.0, 1e9].map(|value| axis.place(value)), [0.0, 0.25, 0.5, 1.0]);
    }

    #[test]
    fn a_plot_keeps_gaps_and_separates_the_line_names() {
        let line = |name: &str, y| Line {
            name: name.to_owned(),
            class: "a",
            runs: vec![vec![(0.0, y), (1.0, y)], vec![(2.0, y), (4.0, y)]],
        };
        let plot = Plot {
            title: "a < b".to_owned(),
            x: Axis::exact(0.0, 4.0, |value| format!("{value} s")),
            y: Axis::linear(10.0, |value| format!("{value}")),
            lines: vec![line("p99", 10.0), line("max", 9.9), line("p50", 0.0)],
            notes: vec![(0.0, 1.0, "0 s".to_owned())],
        };
        let mut out = String::new();
        plot.write(&mut out);
        assert!(out.contains("<figcaption>a &lt; b</figcaption>"), "{out}");
        assert!(out.contains(r#"d="M0.0 1000.0L250.0 1000.0M500.0 1000.0L1000.0 1000.0"/>"#), "{out}");
        let places = plot.name_places();
        assert_eq!((places[0], places[2]), (1.0, 0.0));
        assert!((places[1] - (1.0 - NAME_HEIGHT)).abs() < 1e-9, "{places:?}");
    }
}
