//! The clock. Each turn (one pass) of the event loop reads it once, after the poll, and passes the time to all code of
//! the turn. So all decisions of a turn use the same time. Code that limits the duration of a turn reads the clock
//! again (`server`, `schedule::Pace`).

use crate::limits::TOLD_AGAIN_MS;
use crate::timestamp::{Time, civil_from_days};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment by the monotonic clock and the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the server started; never goes back.
    pub ms: u64,
    /// Wall-clock time, in whole seconds.
    pub wall: Time,
}

/// The clocks of the process.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    /// Starts the clock at 0 ms.
    #[must_use]
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Now {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { ms, wall: Time(i64::try_from(wall.as_secs()).unwrap_or(i64::MAX)) }
    }
}

/// A warning that peers can cause, and that is therefore logged at most once in [`TOLD_AGAIN_MS`].
#[derive(Debug, Default)]
pub struct RareWarning {
    /// Time from which the warning may be logged again, in ms.
    again_ms: u64,
    /// Number of times that the warning's cause has occurred since the last log line.
    unlogged: u64,
}

impl RareWarning {
    /// Counts one occurrence of the warning's cause. If the warning must be logged now, returns the number of
    /// occurrences since the last log line, without this one.
    pub fn count(&mut self, now: Now) -> Option<u64> {
        if now.ms < self.again_ms {
            self.unlogged += 1;
            return None;
        }
        self.again_ms = now.ms + TOLD_AGAIN_MS;
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// Returns the wall-clock time in µs since the Unix epoch. A new lease table takes such a time as its first
/// `resourceVersion`.
#[must_use]
pub fn wall_micros() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the CPU time that the calling thread has used, in µs. Costs a system call.
#[must_use]
pub fn thread_cpu_micros() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let spent = Duration::try_from(spent).unwrap_or_default();
    u64::try_from(spent.as_micros()).unwrap_or(u64::MAX)
}

/// The `Date` of responses: an IMF-fixdate (RFC 9110 §5.6.7), formatted once a second.
#[derive(Debug)]
pub struct HttpDate {
    of: Time,
    text: [u8; 29],
}

impl Default for HttpDate {
    fn default() -> Self {
        let mut date = Self { of: Time(1), text: *b"Thu, 01 Jan 1970 00:00:00 GMT" };
        date.update(Time(0));
        date
    }
}

impl HttpDate {
    /// Formats `wall` as the `Date`, unless the text already shows this time.
    pub fn update(&mut self, wall: Time) {
        if self.of == wall {
            return;
        }
        self.of = wall;
        let (days, seconds) = (wall.0.div_euclid(86_400), wall.0.rem_euclid(86_400));
        let (year, month, day) = civil_from_days(days);
        let weekday =
            ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][usize::try_from(days.rem_euclid(7)).unwrap_or(0)];
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let month = months.get(usize::try_from(month - 1).unwrap_or(0)).unwrap_or(&"Jan");
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let text = format!("{weekday}, {day:02} {month} {year:04} {hours:02}:{minutes:02}:{seconds:02} GMT");
        if let Ok(text) = <[u8; 29]>::try_from(text.as_bytes()) {
            self.text = text;
        }
    }

    /// Returns the text of the `Date`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_logged_once_in_an_interval_with_the_number_of_its_unlogged_causes() {
        let mut warning = RareWarning::default();
        let mut count = |ms| warning.count(Now { ms, ..Now::default() });
        assert_eq!(count(7), Some(0));
        assert_eq!((count(7), count(7 + TOLD_AGAIN_MS - 1)), (None, None));
        assert_eq!(count(7 + TOLD_AGAIN_MS), Some(2));
        assert_eq!(count(7 + TOLD_AGAIN_MS), None);
        assert_eq!(count(7 + 3 * TOLD_AGAIN_MS), Some(1));
    }

    #[test]
    fn http_dates_have_the_imf_fixdate_format() {
        let mut date = HttpDate::default();
        assert_eq!(date.as_bytes(), b"Thu, 01 Jan 1970 00:00:00 GMT");
        date.update(Time(784_111_777));
        assert_eq!(date.as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        date.update(Time(4_102_444_800));
        assert_eq!(date.as_bytes(), b"Fri, 01 Jan 2100 00:00:00 GMT");
    }
}
