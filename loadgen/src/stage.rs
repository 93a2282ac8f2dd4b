//! Where a run stands, whatever its load.

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    /// The phase.
    pub(crate) name: &'static str,
    /// Whether it is the measured time.
    pub(crate) is_measured: bool,
    /// How much of how much of the phase is done, if it is known.
    pub(crate) part: Option<(u64, u64)>,
    /// When the measured time will end, in nanoseconds of the run, if that is known.
    pub(crate) ends_at: Option<u64>,
}
