//! The progress line on a terminal: the stage of the run, and the figures of the last second.
//!
//! The line is no wider than the terminal: the least important parts are left out first. If standard error is not a
//! terminal, no progress line is written. So a log of standard error contains only errors.

use crate::figures::{counted, grouped, time_text, whole};
use crate::stage::Stage;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

/// The progress line on standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Whether the progress line is never shown.
    pub(crate) is_hidden: bool,
    /// Whether the terminal shows a progress line, which must be cleared at the end.
    is_shown: bool,
    /// When the line is drawn again, in nanoseconds since the start of the run.
    next: u64,
}

/// Figures of the last second, and counts of the whole run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Live {
    /// Number of requests answered per second.
    pub(crate) requests: f64,
    /// p50 and p99 of the latencies of these requests, in milliseconds.
    pub(crate) ms: Option<[f64; 2]>,
    /// Number of events per second that all watchers received; `None` without watchers.
    pub(crate) events: Option<f64>,
    /// Number of errors, and number of violations (wrong behaviour of the server that a check found), in the whole run.
    pub(crate) errors: u64,
    pub(crate) violations: u64,
}

impl Progress {
    /// Creates the progress line. It is never shown if the user disabled it, if standard error is not a terminal, or if
    /// `TERM` is missing or `dumb`.
    pub(crate) fn new(is_quiet: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { is_hidden: is_quiet || is_dumb || !io::stderr().is_terminal(), ..Self::hidden() }
    }

    /// Creates a progress line that is never shown.
    pub(crate) fn hidden() -> Self {
        Self { is_hidden: true, is_shown: false, next: 0 }
    }

    /// Draws the progress line again, if [`DRAW_NS`] have passed since the last drawing.
    pub(crate) fn show(&mut self, stage: &Stage, live: &Live, now: u64) {
        if self.is_hidden || now < self.next {
            return;
        }
        self.next = now + DRAW_NS;
        self.is_shown = true;
        // One column stays free, since some terminals wrap the line after the last column.
        let line = line(stage, live, now, columns().saturating_sub(1));
        // A failure to write the progress line is no error.
        _ = write!(io::stderr(), "\r{line}{CLEAR_TO_END}");
    }
}

impl Drop for Progress {
    /// Removes the progress line from the terminal.
    fn drop(&mut self) {
        if self.is_shown {
            _ = write!(io::stderr(), "\r{CLEAR_TO_END}");
        }
    }
}

/// Returns the text of the progress line, in at most `columns` columns.
fn line(stage: &Stage, live: &Live, now: u64, columns: usize) -> String {
    // The parts of the line in order, each with its rank. The part with the highest rank is left out first.
    let mut parts = vec![(0, stage.name.to_owned())];
    if let Some(ends_at) = stage.ends_at {
        parts.push((1, time_left(ends_at.saturating_sub(now))));
    }
    parts.push((3, format!("{}/s", grouped(whole(live.requests)))));
    if let Some([p50, p99]) = live.ms {
        parts.push((5, format!("p50 {}", time_text(p50))));
        parts.push((4, format!("p99 {}", time_text(p99))));
    }
    parts.push((2, counted(live.errors, "error")));
    if live.violations > 0 {
        parts.push((2, counted(live.violations, "violation")));
    }
    if let Some(events) = live.events {
        parts.push((6, format!("{} events/s", grouped(whole(events)))));
    }
    let length = |parts: &[(u8, String)]| {
        parts.iter().map(|(_, text)| text.chars().count()).sum::<usize>() + GAP.len() * parts.len().saturating_sub(1)
    };
    while length(&parts) > columns
        && let Some(worst) = (0..parts.len()).max_by_key(|&index| parts[index].0)
    {
        parts.remove(worst);
    }
    let room = columns.saturating_sub(length(&parts) + GAP.len() + "[]".len());
    if let Some((done, of)) = stage.part.filter(|&(_, of)| of > 0)
        && room >= BAR_MIN
        && !parts.is_empty()
    {
        parts.insert(1, (0, bar(done, of, room.min(BAR_MAX))));
    }
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(GAP)
}

/// Returns a bar with `places` columns between its brackets. The filled part is `done` of `of`.
fn bar(done: u64, of: u64, places: usize) -> String {
    // `done` counts as at most `of`, so `full` is at most `places`.
    let full = usize::try_from(u128::from(done.min(of)) * places as u128 / u128::from(of)).unwrap_or(0);
    format!("[{}{}]", "=".repeat(full), " ".repeat(places - full))
}

/// Formats the remaining time for the progress line.
fn time_left(ns: u64) -> String {
    let seconds = Duration::from_nanos(ns).as_secs_f64().ceil();
    match whole(seconds) {
        seconds @ ..120 => format!("{seconds} s left"),
        seconds @ ..7_200 => format!("{} min {} s left", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min left", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Returns the width of the terminal, in columns.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0).unwrap_or(80)
}

/// Text between the parts of the line.
const GAP: &str = "  ";
/// Minimum and maximum width of the bar, in columns.
const BAR_MIN: usize = 8;
const BAR_MAX: usize = 30;
/// Time between two drawings, in nanoseconds.
const DRAW_NS: u64 = 200_000_000;
/// Escape sequence that clears the terminal's line from the cursor to the end (ECMA-48, EL).
const CLEAR_TO_END: &str = "\x1b[K";

#[cfg(test)]
mod tests {
    use super::*;

    const STAGE: Stage =
        Stage { name: "measuring", is_measured: true, part: Some((15_000, 60_000)), ends_at: Some(45_000_000_000) };
    const LIVE: Live =
        Live { requests: 1_979.6, ms: Some([0.0612, 1.284]), events: Some(990.2), errors: 1, violations: 0 };

    #[test]
    fn a_wide_progress_line_shows_all_fields() {
        let expected = "measuring  [=======                       ]  45 s left  1,980/s  p50 61 µs  p99 1.28 ms  1 error  990 events/s";
        assert_eq!(line(&STAGE, &LIVE, 0, 200), expected);
    }

    #[test]
    fn a_narrow_progress_line_keeps_the_most_important_fields() {
        for columns in 0..200 {
            let live = Live { errors: 2, violations: 1, ..LIVE };
            let line = line(&STAGE, &live, 0, columns);
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
        assert_eq!(
            line(&STAGE, &LIVE, 0, 80),
            "measuring  45 s left  1,980/s  p50 61 µs  p99 1.28 ms  1 error  990 events/s"
        );
        assert_eq!(line(&STAGE, &LIVE, 0, 40), "measuring  45 s left  1,980/s  1 error");
        assert_eq!(line(&STAGE, &LIVE, 0, 32), "measuring  45 s left  1 error");
        assert_eq!(line(&STAGE, &LIVE, 0, 9), "measuring");
    }

    #[test]
    fn the_remaining_time_is_shown_in_a_short_form() {
        let texts = [0, 1, 119_000_000_000, 125_000_000_000, 7_260_000_000_000].map(time_left);
        assert_eq!(texts, ["0 s left", "1 s left", "119 s left", "2 min 5 s left", "2 h 1 min left"]);
    }
}
