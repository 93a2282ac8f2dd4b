//! The readable log of a run, for `--log`.

use std::fmt::Write;

/// Lines of a run: virtual time, actor, action. The same seed gives the same bytes.
#[derive(Debug, Default)]
pub struct Log {
    text: Option<String>,
}

impl Log {
    /// Creates a log that stores its lines.
    #[must_use]
    pub fn on() -> Self {
        Self { text: Some(String::new()) }
    }

    /// Creates a log that drops its lines.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Whether the log stores its lines.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.text.is_some()
    }

    /// Adds a line at the virtual time `now_us`: `who` does `what`.
    pub(super) fn push(&mut self, now_us: u64, who: &str, what: &str) {
        if let Some(text) = &mut self.text {
            let (seconds, us) = (now_us / 1_000_000, now_us % 1_000_000);
            writeln!(text, "{seconds:>5}.{us:06}  {who:<14} {what}").expect("a String takes everything");
        }
    }

    /// Returns all lines of the log as one text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text.unwrap_or_default()
    }
}
