//! Two kinds of charts as SVG: bars, and lines over a logarithmic x axis. Colours follow the reader's colour scheme,
//! light or dark.

use std::fmt::Write as _;

/// One bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// Whether the bar shows another server than this project's server.
    pub(crate) is_other: bool,
}

/// One line of a line chart. The x values of its points are positive.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Returns a chart of horizontal bars, each with its value.
pub(crate) fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let height = TOP + BAR * whole(bars.len()) + MARGIN;
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let scale = if most > 0.0 { (WIDTH - LABELS - VALUES) / most } else { 0.0 };
    let mut out = head(title, height);
    for (index, bar) in bars.iter().enumerate() {
        let y = TOP + BAR * whole(index);
        let (middle, width) = (y + BAR / 2.0 + 4.0, (bar.value * scale).max(1.0));
        let class = if bar.is_other { "b" } else { "a" };
        _ = writeln!(
            out,
            r#"<text x="{:.0}" y="{middle:.0}" text-anchor="end">{}</text>"#,
            LABELS - 8.0,
            escaped(&bar.label)
        );
        _ = writeln!(
            out,
            r#"<rect class="{class}" x="{LABELS}" y="{:.0}" width="{width:.1}" height="{:.0}" rx="2"/>"#,
            y + 3.0,
            BAR - 6.0
        );
        _ = writeln!(
            out,
            r#"<text x="{:.1}" y="{middle:.0}">{} {unit}</text>"#,
            LABELS + width + 6.0,
            figure(bar.value)
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Returns a chart of lines over a logarithmic x axis. The y axis starts at 0.
pub(crate) fn lines(title: &str, x_label: &str, unit: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    let step = round_step(most * 1.1 / 4.0);
    let most = step * 4.0;
    let decades = points().map(|point| point.0.max(1.0).log10()).fold(1.0, f64::max).ceil();
    let (left, right, bottom) = (60.0, WIDTH - 30.0, LINES_HEIGHT - 60.0);
    let x = |value: f64| left + (right - left) * value.max(1.0).log10() / decades;
    let y = |value: f64| bottom - (bottom - TOP) * value / most;
    let mut out = head(title, LINES_HEIGHT + 18.0 * whole(lines.len()));
    for number in 0..=4_u8 {
        let value = step * f64::from(number);
        _ = writeln!(
            out,
            r#"<path class="g" d="M{left} {0:.1}H{right}"/><text x="{1}" y="{2:.1}" text-anchor="end">{3}</text>"#,
            y(value),
            left - 6.0,
            y(value) + 4.0,
            figure(value)
        );
    }
    _ = writeln!(out, r#"<text x="{left}" y="{:.0}">{unit}</text>"#, TOP - 8.0);
    let mut decade = 0.0;
    while decade <= decades {
        let at = x(10_f64.powf(decade));
        _ = writeln!(
            out,
            r#"<text x="{at:.1}" y="{:.0}" text-anchor="middle">{}</text>"#,
            bottom + 18.0,
            figure(10_f64.powf(decade))
        );
        decade += 1.0;
    }
    _ = writeln!(
        out,
        r#"<text x="{:.0}" y="{:.0}" text-anchor="middle">{}</text>"#,
        f64::midpoint(left, right),
        bottom + 38.0,
        escaped(x_label)
    );
    for (index, line) in lines.iter().enumerate() {
        let class = CLASSES.get(index % CLASSES.len()).copied().unwrap_or("a");
        let path: Vec<String> =
            line.points.iter().map(|&(at, value)| format!("{:.1} {:.1}", x(at), y(value))).collect();
        if path.len() > 1 {
            _ = writeln!(out, r#"<path class="l{class}" d="M{}"/>"#, path.join("L"));
        }
        for &(at, value) in &line.points {
            _ = writeln!(out, r#"<circle class="{class}" cx="{:.1}" cy="{:.1}" r="4"/>"#, x(at), y(value));
            _ = writeln!(
                out,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                x(at),
                y(value) - 9.0,
                figure(value)
            );
        }
        let row = LINES_HEIGHT - 8.0 + 18.0 * whole(index);
        _ = writeln!(
            out,
            r#"<circle class="{class}" cx="{left}" cy="{:.0}" r="4"/><text x="{:.0}" y="{row:.0}">{}</text>"#,
            row - 4.0,
            left + 10.0,
            escaped(&line.label)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn head(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{0}\">\n\
         <style>{STYLE}</style>\n<rect class=\"p\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n\
         <text class=\"t\" x=\"16\" y=\"24\">{0}</text>\n",
        escaped(title)
    )
}

/// Formats a number for a label: a million or more in millions (`M`), a smaller number with at most two decimals.
fn figure(value: f64) -> String {
    match value {
        _ if value >= 1_000_000.0 => format!("{:.3}M", value / 1_000_000.0).replace(".000M", "M"),
        _ if value == value.trunc() || value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Rounds the distance of two ticks up to 1, 2, 2.5 or 5 times a power of ten.
fn round_step(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 2.5, 5.0].into_iter().map(|step| step * power).find(|&step| step >= value).unwrap_or(10.0 * power)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[expect(clippy::cast_precision_loss, reason = "a few dozen")]
fn whole(number: usize) -> f64 {
    number as f64
}

const WIDTH: f64 = 860.0;
const LINES_HEIGHT: f64 = 400.0;
const TOP: f64 = 56.0;
const BAR: f64 = 22.0;
const MARGIN: f64 = 12.0;
/// Width for the labels before the bars, and for the values after them.
const LABELS: f64 = 290.0;
const VALUES: f64 = 110.0;
const CLASSES: [&str; 3] = ["a", "b", "c"];
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#24292f}.t{font-size:15px;font-weight:600}.p{fill:#fff}\
    .a{fill:#1f6feb}.b{fill:#8c959f}.c{fill:#d1730b}.la,.lb,.lc{fill:none;stroke-width:2}.la{stroke:#1f6feb}.lb{stroke:#8c959f}\
    .lc{stroke:#d1730b}.g{stroke:#d0d7de;stroke-width:1}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.p{fill:#0d1117}\
    .g{stroke:#30363d}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_figures_are_short() {
        let bar = Bar { label: "a<b & \"c\"".to_owned(), value: 1.5, is_other: false };
        let svg = bars("title", "ms", &[bar]);
        assert!(svg.contains("a&lt;b &amp; &quot;c&quot;</text>") && svg.contains("1.50 ms"), "{svg}");
        assert_eq!([0.3, 1.0, 2.2, 30.0, 90.0].map(round_step), [0.5, 1.0, 2.5, 50.0, 100.0]);
        let figures = [0.0, 0.126, 1.0, 12.34, 123.4, 1_000_000.0, 1_500_000.0].map(figure);
        assert_eq!(figures, ["0", "0.13", "1", "12.3", "123", "1M", "1.500M"]);
    }

    #[test]
    fn a_line_goes_from_left_to_right() {
        let line = Line { label: "x".to_owned(), points: vec![(1_000.0, 3.0), (1_000_000.0, 4.0)] };
        let svg = lines("title", "Leases", "us", &[line]);
        assert!(svg.contains(r#"d="M445.0"#) && svg.contains("L830.0"), "{svg}");
    }
}
