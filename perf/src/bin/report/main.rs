//! Turns a results file of perf/run into charts and a table.
//!
//! Writes docs/performance/*.svg, and the table between two markers in docs/performance.md. The text outside the
//! markers stays unchanged.

#![forbid(unsafe_code)]

mod chart;
mod summary;

use chart::{Bar, Line};
use clap::Parser;
use coordination_apiserver::cli::parse_for;
use perf::OURS;
use perf::results::Latency;
use perf::row::Row;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use summary::{Summary, label};

/// Writes the charts and the table of docs/performance.md from results of perf/run.
///
/// Exit status: 0 for success; 1 if a file cannot be read or written; 2 for wrong usage.
#[derive(Debug, Parser)]
#[command(name = "perf/report", version, max_term_width = 120)]
struct Args {
    /// Results of perf/run: perf/results/NAME.jsonl
    file: PathBuf,
}

fn main() -> ExitCode {
    let args: Args = match parse_for("perf/report") {
        Ok(args) => args,
        Err(status) => return status,
    };
    match run(&args.file) {
        Ok(words) => {
            _ = writeln!(io::stdout(), "{words}");
            ExitCode::SUCCESS
        }
        Err(words) => {
            complain(&words);
            ExitCode::FAILURE
        }
    }
}

fn complain(words: &str) {
    _ = writeln!(io::stderr(), "perf/report: {words}");
}

fn run(file: &Path) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let summary = Summary::of(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    let charts = charts(&summary);
    let page = fs::read_to_string(PAGE).map_err(|e| format!("{PAGE}: {e}"))?;
    // This check comes before all writing: new charts beside an old page would be worse than no charts.
    let page = replaced(&page, &section(&summary, file, &charts)).ok_or_else(|| {
        format!("{PAGE}: expected the markers {BEGIN:?} and {END:?} in this order, each on its own line")
    })?;
    let folder = Path::new(CHARTS);
    fs::create_dir_all(folder).map_err(|e| format!("{CHARTS}: {e}"))?;
    for Chart { name, svg, .. } in &charts {
        let path = folder.join(format!("{name}.svg"));
        fs::write(&path, svg).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    fs::write(PAGE, page).map_err(|e| format!("{PAGE}: {e}"))?;
    Ok(format!("{}: {} rows, {} charts; see {PAGE}", file.display(), summary.rows.len(), charts.len()))
}

/// Returns the page with `section` in place of the text between the markers; `None` without the markers.
fn replaced(page: &str, section: &str) -> Option<String> {
    let (before, rest) = page.split_once(&format!("{BEGIN}\n"))?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{section}{END}{after}"))
}

/// A chart above the table of docs/performance.md.
#[derive(Debug)]
struct Chart {
    /// Name of the chart's file, without the extension.
    name: &'static str,
    title: &'static str,
    svg: String,
}

/// Returns the charts for which the summary has figures.
fn charts(summary: &Summary) -> Vec<Chart> {
    let mut charts = Vec::new();
    let bars = |rows: &[&Row], value: fn(&Row) -> Option<f64>| -> Vec<Bar> {
        let bar = |row: &&Row| Some(Bar { label: label(row), value: value(row)?, is_other: row.subject != OURS });
        rows.iter().filter_map(bar).collect()
    };
    let cost = |row: &Row| row.cpu_us.map(|[_, median, _]| median);
    let in_groups = |groups: &[&str]| -> Vec<&Row> {
        summary.rows.iter().filter(|row| groups.contains(&row.group.as_str())).collect()
    };
    let mut add = |name, title, unit, bars: Vec<Bar>| {
        if !bars.is_empty() {
            charts.push(Chart { name, title, svg: chart::bars(title, unit, &bars) });
        }
    };
    let requests = in_groups(&["renew", "read", "floor"]);
    add("cost", "Server processor time for each request", "µs", bars(&requests, cost));
    let stalls = in_groups(&["stalls"]);
    let title = "Longest wait of a renewal during long work, and longest turn of the loop";
    add("stalls", title, "ms", bars(&stalls, |row| row.latency.ms_max));
    let with_bytes: Vec<&Row> = summary.rows.iter().filter(|row| row.bytes_each.is_some()).collect();
    add(
        "memory",
        "Memory of the server for each Lease, idle connection and watcher",
        "bytes",
        bars(&with_bytes, |row| row.bytes_each),
    );
    let points = |prefix: &str| -> Vec<(f64, f64)> {
        let point = |row: &Row| Some((row.scenario.strip_prefix(prefix)?.parse().ok()?, cost(row)?));
        summary.rows.iter().filter_map(point).collect()
    };
    let mut lines = vec![Line { label: "Leases in the table".to_owned(), points: points("renew-of-") }];
    for (prefix, label) in [
        ("memory-idle-", "idle connections, with 10,000 Leases"),
        ("memory-watchers-", "watchers of other names, with 10,000 Leases"),
    ] {
        lines.push(Line { label: label.to_owned(), points: points(prefix) });
    }
    let title = "Server processor time for a renewal, by number of Leases, connections or watchers";
    if lines.iter().any(|line| line.points.len() > 1) {
        charts.push(Chart { name: "growth", title, svg: chart::lines(title, "number", "µs", &lines) });
    }
    let fan_out = vec![Line { label: "JSON, HTTP/2 and TLS".to_owned(), points: points("fan-out-") }];
    let title = "Server processor time for a delivered event, including the renewals";
    if fan_out[0].points.len() > 1 {
        let svg = chart::lines(title, "watchers of all Leases", "µs", &fan_out);
        charts.push(Chart { name: "fan-out", title, svg });
    }
    charts
}

/// Returns the text of docs/performance.md between the markers.
fn section(summary: &Summary, file: &Path, charts: &[Chart]) -> String {
    let mut out = String::new();
    _ = writeln!(out, "{}\n\nFrom `{}`, by {}.\n", summary.context_words(), file.display(), summary.run_words());
    for Chart { name, title, .. } in charts {
        _ = writeln!(out, "![{title}](performance/{name}.svg)\n");
    }
    _ = writeln!(
        out,
        "| scenario | server | rounds | per second | server µs for each | p50 ms | p99 ms | p99.9 ms | max ms | server, load | limit | bytes each | errors |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|"
    );
    for row in &summary.rows {
        let number =
            |value: Option<f64>, digits: usize| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
        let cost = row.cpu_us.map_or_else(String::new, |[least, median, most]| {
            format!("{median:.2} [{least:.2}–{most:.2}] {}", row.unit)
        });
        let share =
            |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0));
        let Latency { ms_p50, ms_p99, ms_p99_9, ms_max } = row.latency;
        _ = writeln!(
            out,
            "| {} | {} | {} | {} | {cost} | {} | {} | {} | {} | {}, {} | {} | {} | {} |",
            row.scenario,
            row.subject,
            row.rounds,
            number(row.per_second, 0),
            number(ms_p50, 3),
            number(ms_p99, 3),
            number(ms_p99_9, 3),
            number(ms_max, 2),
            share(row.server_cpu_share),
            share(row.generator_cpu_share),
            row.limits.join(", "),
            number(row.bytes_each, 0),
            row.errors
        );
    }
    out.push('\n');
    out
}

const PAGE: &str = "docs/performance.md";
const CHARTS: &str = "docs/performance";
const BEGIN: &str = "<!-- perf/report: begin -->";
const END: &str = "<!-- perf/report: end -->";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_markers_changes() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let expected = format!("before\n{BEGIN}\nnew\n{END}\nafter\n");
        assert_eq!(replaced(&page, "new\n"), Some(expected));
        assert_eq!(replaced("before\n", "new\n"), None);
    }

    #[test]
    fn charts_are_made_of_measured_values() {
        let line = |group: &str, scenario: &str, round: u32, cpu: f64| {
            format!(
                r#"{{"group":"{group}","scenario":"{scenario}","subject":"this","unit":"request","cpu_us":{cpu},"ms_max":4.5,"limit":"server","errors":0,"command":"loadgen","told":{{}},"round":{round},"context":{{"at":1,"commit":{{"id":"abc","changed":false}},"machine":{{"cpu":"x","cores":2,"kernel":"Linux","arch":"x86_64"}},"run":"--rounds 2","quick":false}}}}"#
            )
        };
        let text = [
            line("renew", "renew-json", 0, 3.0),
            line("table", "renew-of-1000", 0, 4.0),
            line("table", "renew-of-10000", 0, 5.0),
            line("stalls", "stall-list", 0, 6.0),
            line("renew", "renew-json", 1, 5.0),
        ]
        .join("\n");
        let summary = Summary::of(&text).expect("results");
        assert_eq!(summary.rows.len(), 4);
        assert_eq!(summary.rows[0].cpu_us, Some([3.0, 4.0, 5.0]));
        let charts = charts(&summary);
        assert_eq!(charts.iter().map(|chart| chart.name).collect::<Vec<_>>(), ["cost", "stalls", "growth"]);
        assert!(charts.iter().all(|Chart { svg, .. }| svg.starts_with("<svg") && svg.ends_with("</svg>\n")));
        let section = section(&summary, Path::new("x.jsonl"), &charts);
        assert!(section.contains("| renew-json | this | 2 |  | 4.00 [3.00–5.00] request |"), "{section}");
    }
}
