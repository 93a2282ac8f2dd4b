//! The stage of a run, for any kind of load.

/// The stage of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Name of the phase.
    pub(crate) name: &'static str,
    /// Whether the phase is the measured time.
    pub(crate) is_measured: bool,
    /// Done part of the phase's work, and all of the work; `None` if they are not known.
    pub(crate) part: Option<(u64, u64)>,
    /// When the measured time will end, in nanoseconds of the run; `None` if that is not known.
    pub(crate) ends_at: Option<u64>,
}
