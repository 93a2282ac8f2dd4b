//! The report of `--report`: one HTML page in one file. The page loads no other files and runs no script.
//!
//! This module owns the structure and the words of the page; [`plot`] draws the plots.

mod plot;

use crate::figures::{count, counted, grouped, per, time_text, whole};
use crate::operation::Operation;
use crate::recorder::Count;
use crate::span::{Sample, Span};
use crate::summary::Summary;
use crate::time_text::push_micros;
use loadgen_account::{BUSY_SHARE, Limit};
use plot::{Axis, Line, Plot};
use std::fmt::Write as _;

/// Returns the HTML page about the results of a run.
pub(crate) fn page(summary: &Summary<'_>) -> String {
    let mut out = String::new();
    let title = escaped(&summary.title);
    // Writing to a string cannot fail.
    _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>loadgen: {title}</title>\n<style>\n{STYLE}</style>\n<body>\n"
    );
    push_head(&mut out, summary);
    push_tiles(&mut out, summary);
    push_latency(&mut out, summary);
    push_over_time(&mut out, summary);
    push_errors(&mut out, summary);
    push_facts(&mut out, summary);
    out.push_str("</body>\n</html>\n");
    out
}

/// Appends the title, the server's URL, the time of the run, and whether it had errors or violations.
fn push_head(out: &mut String, summary: &Summary<'_>) {
    let early = if summary.is_interrupted { "; the run was ended early" } else { "" };
    _ = write!(
        out,
        "<header>\n<h1>{}</h1>\n<p class=\"dim url\">{}<br>{}, measured for {:.1} s{early}</p>\n",
        escaped(&summary.title),
        escaped(summary.url),
        began_words(summary.history.epoch_us),
        summary.window.seconds(),
    );
    let (class, mark, words) = if summary.is_fine() {
        ("good", '✓', "No errors, no violations".to_owned())
    } else if !summary.is_measured() {
        ("bad", '✗', "Nothing was measured".to_owned())
    } else {
        let errors = counted(summary.recorder.errors_count(), "error");
        ("bad", '✗', format!("{errors}, {}", counted(summary.violations, "violation")))
    };
    _ = writeln!(out, "<p class=\"verdict {class}\">{mark} {words}</p>");
    if summary.limit() == Some(Limit::Generator) {
        out.push_str(
            "<p class=\"verdict bad\">⚠ The generator was the limit: the server may be better than this</p>\n",
        );
    }
    out.push_str("</header>\n");
}

/// Appends the most important figures.
fn push_tiles(out: &mut String, summary: &Summary<'_>) {
    let main = summary.recorder.total(summary.main);
    let mut tiles = Vec::new();
    if let Some(rate) = per(count(summary.recorder.requests()), summary.window.seconds()) {
        tiles.push(("Requests/s".to_owned(), grouped(whole(rate))));
    }
    if !main.latencies.is_empty() {
        let [p50, _, p99, _, max] = main.latencies.ms();
        for (name, ms) in [("p50", p50), ("p99", p99), ("max", max)] {
            tiles.push((format!("{name} of {}", noun(summary.main)), time_text(ms)));
        }
    }
    let events = summary.recorder.total(Operation::WatchEvent).answered;
    if let Some(rate) = per(count(events), summary.window.seconds()).filter(|_| events > 0) {
        tiles.push(("Events/s".to_owned(), grouped(whole(rate))));
    }
    if let Some(share) = summary.server_share() {
        tiles.push(("Server CPU".to_owned(), percent(share)));
    }
    if !tiles.is_empty() {
        out.push_str("<dl class=\"tiles\">\n");
        for (name, value) in tiles {
            _ = writeln!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
        }
        out.push_str("</dl>\n");
    }
}

/// Appends the table of latencies by operation, and the plot of percentiles.
fn push_latency(out: &mut String, summary: &Summary<'_>) {
    let rows: Vec<_> = summary.recorded().collect();
    if rows.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Latency</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>Operation<th>count<th>per second<th>p50<th>p90\
         <th>p99<th>p99.9<th>max</tr></thead>\n<tbody>\n",
    );
    for &(operation, Count { answered, latencies }, seconds) in &rows {
        let rate = per(count(*answered), seconds).map_or_else(|| "–".to_owned(), |rate| grouped(whole(rate)));
        _ = write!(out, "<tr><th>{}<td>{}<td>{rate}", operation_text(operation), grouped(latencies.len()));
        for ms in latencies.ms() {
            _ = write!(out, "<td>{}", time_text(ms));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
    let measured: Vec<_> = rows.iter().filter(|(operation, ..)| is_plotted(summary, *operation)).collect();
    let extremes =
        measured.iter().flat_map(|(_, count, _)| count.latencies.distribution(ROWS_PER_HALF).map(|row| row.ms));
    let Some((min, max)) = bounds(extremes) else { return };
    let most = measured.iter().map(|(_, of, _)| of.latencies.len()).max().unwrap_or(0);
    let lines = measured.iter().zip(CLASSES).map(|((operation, of, _), class)| {
        let points = of.latencies.distribution(ROWS_PER_HALF).map(|row| {
            // The last row, for 100 %, would lie at infinity on the axis. It is drawn at the number of latencies.
            let nines = if row.quantile < 1.0 { 1.0 / (1.0 - row.quantile) } else { count(of.latencies.len()) };
            (nines.max(1.0), row.ms)
        });
        Line { name: operation_text(*operation).to_owned(), class, runs: vec![points.collect()] }
    });
    let plot = Plot {
        title: "Latency by percentile".to_owned(),
        x: Axis::percentiles(count(most)),
        y: latency_axis(min, max),
        lines: lines.collect(),
        notes: Vec::new(),
    };
    plot.write(out);
    out.push_str(
        "<p class=\"dim\">A latency runs from when a request was due until its answer, so a stall counts in every \
         request that it held up. The latency of an event starts at the acknowledgement of its write, \
         but in a bench when the write was sent.</p>\n",
    );
}

/// Appends plots of the figures over the measured time, and a table of the same figures.
fn push_over_time(out: &mut String, summary: &Summary<'_>) {
    let spans = plotted(&summary.history.spans);
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return };
    let began = first.since;
    let at = |ns: u64| count(ns.saturating_sub(began)) / 1e9;
    let x = Axis::exact(0.0, at(last.until), seconds_text);
    out.push_str("<h2>Over time</h2>\n");
    let per_point = spans.len().div_ceil(POINTS_MAX).max(1);
    if per_point > 1 {
        _ = writeln!(out, "<p class=\"dim\">Each point is the worst of {per_point} seconds.</p>");
    }
    out.push_str("<div class=\"plots\">\n");
    let groups: Vec<&[Span]> = spans.chunks(per_point).collect();
    let time_of = |group: &[Span]| {
        let since = group.first().map_or(0.0, |span| at(span.since));
        (since, group.last().map_or(since, |span| at(span.until)))
    };
    let line = |name: String, class, value: &dyn Fn(&Span) -> Option<f64>, worst: fn(f64, f64) -> f64| Line {
        name,
        class,
        runs: steps(groups.iter().map(|group| (time_of(group), group.iter().filter_map(value).reduce(worst)))),
    };
    // A point of a plot stands for a group of spans (seconds of the run). The point's note describes the span that has
    // the greatest latency in the group.
    let notes = |words: &dyn Fn(&Span) -> String, latency: &dyn Fn(&Span) -> Option<f64>| -> Vec<(f64, f64, String)> {
        let latency = |span: &Span| latency(span).unwrap_or(0.0);
        let note = |group: &&[Span]| {
            let (since, until) = time_of(group);
            let worst = group.iter().max_by(|a, b| latency(a).total_cmp(&latency(b)));
            let text = worst.map(|span| format!("{}: {}", seconds_text(at(span.since)), words(span)));
            (since, until, text.unwrap_or_default())
        };
        groups.iter().map(note).collect()
    };
    let operations: Vec<Operation> =
        Operation::ALL.into_iter().filter(|&operation| is_plotted(summary, operation)).collect();
    for &operation in &operations {
        let of =
            move |index: usize| move |span: &Span| span.sample(operation)?.ms.and_then(|ms| ms.get(index).copied());
        let lines = [("p50", "a", 0), ("p99", "b", 2), ("max", "c", 4)]
            .map(|(name, class, index)| line(name.to_owned(), class, &of(index), f64::max));
        let Some((min, max)) = bounds(lines.iter().flat_map(|line| line.runs.iter().flatten().map(|point| point.1)))
        else {
            continue;
        };
        let plot = Plot {
            title: format!("Latency of {}", noun(operation)),
            x: x.clone(),
            y: latency_axis(min, max),
            lines: lines.into(),
            notes: notes(&|span| span.sample(operation).map_or_else(String::new, sample_words), &of(4)),
        };
        plot.write(out);
    }
    let rate = |operation: Operation| move |span: &Span| rate_of(span, operation);
    let rates: Vec<_> = operations
        .iter()
        .zip(CLASSES)
        .map(|(&operation, class)| line(operation_text(operation).to_owned(), class, &rate(operation), f64::min))
        .collect();
    push_shares(out, "Operations per second", &x, rates, |value| grouped(whole(value)));
    let shares = vec![
        line("server".to_owned(), "a", &|span| span.server_share, f64::max),
        line("generator".to_owned(), "b", &|span| Some(span.generator_share), f64::max),
    ];
    push_shares(out, "CPU, share of a core", &x, shares, percent);
    let errors = line("errors".to_owned(), "b", &|span| Some(count(errors_of(span)) / span.seconds()), f64::max);
    if summary.recorder.errors_count() > 0 {
        push_shares(out, "Errors per second", &x, vec![errors], |value| grouped(whole(value)));
    }
    out.push_str("</div>\n");
    push_seconds(out, spans, &operations, at);
}

/// Appends a plot of some lines, whose y axis begins at 0.
fn push_shares(out: &mut String, title: &str, x: &Axis, mut lines: Vec<Line>, text: impl Fn(f64) -> String) {
    lines.retain(|line| !line.runs.is_empty());
    let values = lines.iter().flat_map(|line| line.runs.iter().flatten().map(|point| point.1));
    let Some((_, max)) = bounds(values) else { return };
    let y = Axis::linear(max, text);
    Plot { title: title.to_owned(), x: x.clone(), y, lines, notes: Vec::new() }.write(out);
}

/// Appends a table of the figures of each second, for readers who cannot see the plots. A long run has no such table.
fn push_seconds(out: &mut String, spans: &[Span], operations: &[Operation], at: impl Fn(u64) -> f64) {
    if spans.len() > POINTS_MAX {
        return;
    }
    out.push_str(
        "<details><summary>The same as a table</summary>\n<div class=\"scroll\"><table>\n<thead><tr><th>Time\
         <th>operation<th>count<th>errors<th>p50<th>p99<th>max<th>server</tr></thead>\n<tbody>\n",
    );
    for span in spans {
        for sample in span.samples.iter().filter(|sample| operations.contains(&sample.operation)) {
            let [p50, _, p99, _, max] = sample.ms.map_or_else(|| [const { String::new() }; 5], |ms| ms.map(time_text));
            let server = span.server_share.map(percent).unwrap_or_default();
            _ = writeln!(
                out,
                "<tr><td>{}<td>{}<td>{}<td>{}<td>{p50}<td>{p99}<td>{max}<td>{server}</tr>",
                seconds_text(at(span.since)),
                operation_text(sample.operation),
                grouped(sample.count),
                grouped(sample.errors.iter().map(|(_, number)| number).sum())
            );
        }
    }
    out.push_str("</tbody>\n</table></div></details>\n");
}

/// Appends the number of errors by kind, and the text of the first errors and violations.
fn push_errors(out: &mut String, summary: &Summary<'_>) {
    let errors = summary.recorder.errors();
    if errors.is_empty() && summary.violations == 0 {
        return;
    }
    out.push_str("<h2>Errors</h2>\n");
    if !errors.is_empty() {
        out.push_str(
            "<div class=\"scroll\"><table>\n<thead><tr><th>Operation<th>kind<th>count</tr></thead>\n<tbody>\n",
        );
        for ((operation, kind), number) in errors {
            let (operation, kind) = (operation_text(*operation), escaped(&kind.name()));
            _ = writeln!(out, "<tr><th>{operation}<td>{kind}<td>{}</tr>", grouped(*number));
        }
        out.push_str("</tbody>\n</table></div>\n");
    }
    push_words(out, "The first errors", summary.recorder.first_errors());
    push_words(out, "The first violations", summary.first_violations);
}

fn push_words(out: &mut String, title: &str, words: &[String]) {
    if !words.is_empty() {
        let items: String = words.iter().map(|words| format!("<li><code>{}</code>\n", escaped(words))).collect();
        _ = write!(out, "<p>{title}:</p>\n<ul class=\"words\">\n{items}</ul>\n");
    }
}

/// Appends the command line, the facts about the load and the machine, and the limit of the run.
fn push_facts(out: &mut String, summary: &Summary<'_>) {
    // Each word of the command has its own HTML element, so that lines do not break at hyphens.
    let words = std::env::args_os().map(|word| format!("<span>{}</span>", escaped(&quoted(&word.to_string_lossy()))));
    let command = words.collect::<Vec<_>>().join(" ");
    _ = write!(out, "<h2>The run</h2>\n<dl class=\"facts\">\n<dt>Command</dt><dd><code>{command}</code></dd>\n");
    let mut facts = summary.facts.clone();
    facts.push(("Limit", limit_words(summary)));
    facts.push(("Generator", format!("loadgen {}", env!("CARGO_PKG_VERSION"))));
    for (name, value) in facts {
        _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
    }
    out.push_str("</dl>\n");
}

/// Describes which process limited the run, with the figures of both processes.
fn limit_words(summary: &Summary<'_>) -> String {
    let server = summary.window.busiest_server_share();
    let limit = match summary.limit() {
        Some(Limit::Generator) => "the generator",
        Some(Limit::Server) => "the server",
        None if !summary.is_measured() => "unknown",
        // The limit considers only the busiest process of the server. But if the server has several processes, they may
        // use up a core together.
        None if server.is_none() || summary.window.server_share() >= Some(BUSY_SHARE) => {
            "not the generator, perhaps the server"
        }
        None => "neither server nor generator",
    };
    let server = server.map(|share| format!("busiest process of the server at {} of a core", percent(share)));
    let late =
        summary.recorder.late_ms_p99().map(|ms| format!("99 % of the requests taken up within {}", time_text(ms)));
    let share = summary.window.generator_share().map(|share| format!("generator at {} of a core", percent(share)));
    let crowded = summary.recorder.crowded_count();
    let crowded = (crowded > 0).then(|| format!("{} found no room at first", counted(crowded, "request")));
    [Some(limit.to_owned()), server, share, late, crowded].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Returns the spans (seconds of the run) that plots show, from the start of the measured time. Very short spans at the
/// end are left out. A long wait for late responses after the measured time is shown.
fn plotted(spans: &[Span]) -> &[Span] {
    let from = spans.iter().position(|span| span.is_measured).unwrap_or(spans.len());
    let spans = spans.get(from..).unwrap_or_default();
    let last = spans.iter().rposition(|span| span.seconds() >= RATE_SECONDS_MIN);
    spans.get(..last.map_or(spans.len(), |last| last + 1)).unwrap_or_default()
}

/// Whether the plots show an operation. They show the operations that have a measured rate, but not the creation of
/// Leases as a preparation.
fn is_plotted(summary: &Summary<'_>, operation: Operation) -> bool {
    let is_measured = summary.rows.iter().any(|&(of, seconds)| of == operation && seconds > 0.0);
    let is_preparation = operation == Operation::Create && summary.main != Operation::Create;
    is_measured && !is_preparation && summary.recorder.total(operation).answered > 0
}

/// Returns the runs of points of a stepped line, in which each step is as long as its span. A span without a value
/// leaves a gap.
fn steps(values: impl Iterator<Item = ((f64, f64), Option<f64>)>) -> Vec<Vec<(f64, f64)>> {
    let mut runs: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut goes_on = false;
    for ((since, until), value) in values {
        if let Some(value) = value {
            if !goes_on {
                runs.push(Vec::new());
            }
            if let Some(run) = runs.last_mut() {
                run.extend([(since, value), (until, value)]);
            }
        }
        goes_on = value.is_some();
    }
    runs
}

/// Returns the smallest and the greatest of some values; `None` without values.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |bounds, value| {
        let (min, max) = bounds.unwrap_or((value, value));
        Some((value.min(min), value.max(max)))
    })
}

fn rate_of(span: &Span, operation: Operation) -> Option<f64> {
    // A very short span has no meaningful rate.
    let sample = span.sample(operation).filter(|_| span.seconds() > RATE_SECONDS_MIN)?;
    Some(count(sample.count) / span.seconds())
}

fn errors_of(span: &Span) -> u64 {
    span.samples.iter().flat_map(|sample| &sample.errors).map(|(_, number)| number).sum()
}

/// Describes the figures of one operation in a span.
fn sample_words(sample: &Sample) -> String {
    let times = sample.ms.map_or_else(String::new, |[p50, _, p99, _, max]| {
        format!(", p50 {}, p99 {}, max {}", time_text(p50), time_text(p99), time_text(max))
    });
    format!("{} {}{times}", grouped(sample.count), noun(sample.operation))
}

/// Formats the start of the run for people. `epoch_us` is in microseconds since the Unix epoch.
fn began_words(epoch_us: u64) -> String {
    let mut text = Vec::new();
    push_micros(&mut text, epoch_us);
    let text = String::from_utf8_lossy(&text).replace('T', " ");
    format!("{} UTC", text.get(..16).unwrap_or(&text))
}

/// Returns the name of an operation in tables and plots.
fn operation_text(operation: Operation) -> &'static str {
    if operation == Operation::WatchEvent { "event" } else { operation.name() }
}

/// Returns a noun in the plural for an operation, for titles and notes.
fn noun(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "creations",
        Operation::Renew => "renewals",
        Operation::Read => "reads",
        Operation::List => "lists",
        Operation::DeleteCollection => "deletions",
        Operation::Echo => "echoes",
        Operation::WatchEvent => "events",
        Operation::Watch => "watches",
        Operation::Connection => "connections",
    }
}

/// Returns an axis of latencies from `min` to `max`, in milliseconds.
fn latency_axis(min: f64, max: f64) -> Axis {
    Axis::log(min.max(PLOT_MS_MIN), max.max(PLOT_MS_MIN), tick_text)
}

/// Formats a time at a tick of an axis, which is a round number of milliseconds.
fn tick_text(ms: f64) -> String {
    match ms {
        _ if ms >= 999.0 => format!("{:.0} s", ms / 1_000.0),
        _ if ms >= 0.999 => format!("{ms:.0} ms"),
        _ if ms >= 0.000_999 => format!("{:.0} µs", ms * 1_000.0),
        _ => format!("{:.1} µs", ms * 1_000.0),
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let is_whole = (percent - percent.round()).abs() < 0.005;
    if percent >= 9.95 || is_whole { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// Formats a time since the start of the measured time, in seconds.
fn seconds_text(seconds: f64) -> String {
    let tenths = whole(seconds * 10.0);
    match tenths {
        _ if (0.000_5..0.999_5).contains(&seconds) => format!("{} ms", whole(seconds * 1_000.0)),
        _ if !tenths.is_multiple_of(10) => format!("{seconds:.1} s"),
        ..3_000 => format!("{} s", tenths / 10),
        _ => format!("{}:{:02} min", tenths / 600, tenths % 600 / 10),
    }
}

/// Quotes a word of a command line for a shell, if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Escapes a text for HTML content and for HTML attributes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Lowest latency of a plot, in milliseconds. Shorter latencies are drawn at this value. For example, the latency is 0
/// if an event arrived before the acknowledgement of its write.
const PLOT_MS_MIN: f64 = 0.01;
const STYLE: &str = include_str!("style.css");
/// CSS classes of the lines of a plot, in the lines' order.
const CLASSES: [&str; 4] = ["a", "b", "c", "d"];
/// Maximum number of points of a line, and of seconds in the table of seconds.
const POINTS_MAX: usize = 600;
/// Length of a span (a part of the run, mostly a second) up to which the plots show no rate, in seconds.
const RATE_SECONDS_MIN: f64 = 0.2;
/// Points of a percentile line for each halving of the distance to 100 %.
const ROWS_PER_HALF: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_kind::ErrorKind;
    use crate::recorder::Recorder;
    use crate::span::tests::second;
    use crate::timeline::History;
    use crate::usage::Window;

    /// Returns the page about these counts and spans, for a measured time of `seconds`.
    fn page_of(recorder: &Recorder, spans: Vec<Span>, seconds: f64) -> String {
        let mut window = Window::default();
        window.begin(&[], || 0);
        window.end(&[], || whole(seconds * 1e9));
        page_of_window(recorder, spans, &window)
    }

    fn page_of_window(recorder: &Recorder, spans: Vec<Span>, window: &Window) -> String {
        let history = History { epoch_us: 1_767_323_045_000_000, spans, series: Ok(()) };
        page(&Summary {
            title: "2 nodes".to_owned(),
            url: "http://127.0.0.1:1",
            facts: vec![("Load", "a < b".to_owned())],
            recorder,
            rows: vec![(Operation::Renew, window.seconds())],
            main: Operation::Renew,
            window,
            violations: 0,
            first_violations: &[],
            history: &history,
            is_interrupted: false,
        })
    }

    fn span(since_s: u64, ms: Option<[f64; 5]>, errors: u64) -> Span {
        let errors = if errors > 0 { vec![(ErrorKind::Status(500), errors)] } else { vec![] };
        let sample = Sample { operation: Operation::Renew, count: u64::from(ms.is_some()), errors, ms };
        second(since_s * 1_000_000_000, vec![sample])
    }

    #[test]
    fn text_of_the_server_is_escaped_and_errors_are_shown() {
        let mut recorder = Recorder::new(&[]);
        recorder.begin(0);
        recorder.answered(Operation::Renew, 0, 1_000_000);
        recorder.failed(Operation::Renew, ErrorKind::Status(500), || "<script>alert(1)</script>".to_owned());
        let page = page_of(&recorder, vec![span(0, Some([1.0; 5]), 1)], 1.0);
        assert!(page.contains("✗ 1 error, 0 violations") && page.contains("2026-01-02 03:04 UTC"), "{page}");
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !page.contains("<script"), "{page}");
        assert!(page.contains("<dd>a &lt; b</dd>") && page.contains("Errors per second"), "{page}");
        assert!(!page.contains("server</span>"), "its processor time is not known: {page}");
    }

    /// With `--pid`, the page shows the server's share of the whole measured time, which is unknown if a process ended.
    /// With `--metrics`, it shows the share of the seconds in which the server reported one.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_server_that_ended_early_has_no_share() {
        let (own, ended) = ([std::process::id()], [u32::MAX]);
        for (before, after, is_shown) in [(&own[..], &ended[..], false), (&own[..0], &own[..0], true)] {
            let mut window = Window::default();
            window.begin(before, || 0);
            window.end(after, || 1_000_000_000);
            let spans = vec![Span { server_share: Some(0.5), ..span(0, Some([1.0; 5]), 0) }];
            let page = page_of_window(&Recorder::new(&[]), spans, &window);
            assert_eq!(page.contains("<dt>Server CPU</dt><dd>50 %</dd>"), is_shown, "{page}");
            assert!(page.contains("<dt>Limit</dt><dd>not the generator, perhaps the server;"), "{page}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_limit_names_the_shares_of_both_processes() {
        let mut window = Window::default();
        let own = [std::process::id()];
        window.begin(&own, || 0);
        window.end(&own, || 3_600_000_000_000);
        let page = page_of_window(&Recorder::new(&[]), vec![span(0, None, 0)], &window);
        assert!(page.contains("<dd>neither server nor generator; busiest process of the server at 0"), "{page}");
        assert!(page_of(&Recorder::new(&[]), Vec::new(), 0.0).contains("<dt>Limit</dt><dd>unknown</dd>"));
    }

    #[test]
    fn a_second_without_responses_is_a_gap_in_the_plot() {
        let values = [Some(1.0), None, Some(2.0), Some(3.0)];
        let runs = steps([(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)].into_iter().zip(values));
        assert_eq!(runs, [vec![(0.0, 1.0), (1.0, 1.0)], vec![(2.0, 2.0), (3.0, 2.0), (3.0, 3.0), (4.0, 3.0)]]);
    }

    #[test]
    fn a_run_without_measured_time_has_a_page() {
        let page = page_of(&Recorder::new(&[]), Vec::new(), 0.0);
        assert!(page.contains("✗ Nothing was measured") && !page.contains("<svg"), "{page}");
    }

    #[test]
    fn a_long_run_has_a_bounded_page() {
        let mut recorder = Recorder::new(&[]);
        recorder.begin(0);
        (0..9_000)
            .for_each(|second| recorder.answered(Operation::Renew, second * 1_000_000_000, second * 1_000_000_001));
        let spans = (0..9_000).map(|second| span(second, Some([0.1, 0.2, 0.3, 0.4, 0.5]), 0)).collect();
        let page = page_of(&recorder, spans, 9_000.0);
        assert!(page.contains("the worst of 15 seconds") && page.len() < 500_000, "{} bytes", page.len());
    }

    #[test]
    fn a_point_of_a_long_run_shows_its_worst_second() {
        let mut recorder = Recorder::new(&[]);
        recorder.begin(0);
        recorder.answered(Operation::Renew, 0, 1_000_000);
        let mut spans: Vec<_> = (0..1_200).map(|second| span(second, Some([1.0; 5]), 0)).collect();
        spans.iter_mut().for_each(|span| span.samples[0].count = 100);
        let slow = &mut spans[1].samples[0];
        (slow.count, slow.ms) = (20, Some([2.0, 3.0, 4.0, 5.0, 7.0]));
        let page = page_of(&recorder, spans, 1_200.0);
        assert!(page.contains("<title>1 s: 20 renewals, p50 2.00 ms, p99 4.00 ms, max 7.00 ms</title>"), "{page}");
        // On an axis from 0 to 100, a rate of 20 is 800 thousandths of the plot's height below the top.
        let (_, rates) = page.split_once("Operations per second").expect("a plot of rates");
        assert!(rates.contains(r#"d="M0.0 800.0L"#), "{page}");
    }

    #[test]
    fn arguments_are_quoted_for_the_shell() {
        assert_eq!(
            ["--server=http://x:1", "a b", "it's", ""].map(quoted),
            ["--server=http://x:1", "'a b'", r"'it'\''s'", "''"]
        );
    }

    #[test]
    fn durations_are_shown_in_a_short_form() {
        assert_eq!(
            [0.0, 0.05, 1.5, 60.0, 300.0, 3_725.0].map(seconds_text),
            ["0 s", "50 ms", "1.5 s", "60 s", "5:00 min", "62:05 min"]
        );
    }
}
