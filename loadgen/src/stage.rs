//! The stage of a run, for any kind of load.

/// The stage of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Name of the phase.
    pub(crate) name: &'static str,
    /// Whether the phase is the measured time.
    pub(crate) is_measured: bool,
    /// Finished part and total of the phase's work; `None` if they are unknown.
    pub(crate) part: Option<(u64, u64)>,
    /// When the measured time will end, in nanoseconds of the run; `None` if the end is unknown.
    pub(crate) ends_at: Option<u64>,
}
