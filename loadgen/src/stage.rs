//! The stage of a run, for simulated nodes and benches.

/// The stage of a run: its phase, and how much of the phase is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Name of the phase.
    pub(crate) name: &'static str,
    /// Whether the phase is the measured time.
    pub(crate) is_measured: bool,
    /// Finished part and whole of the phase's work, in the same unit; `None` if they are unknown.
    pub(crate) part: Option<(u64, u64)>,
    /// When the measured time will end, in nanoseconds since the start of the run; `None` if the end is unknown.
    pub(crate) ends_at: Option<u64>,
}
