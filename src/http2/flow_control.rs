//! Flow-control windows (RFC 9113 §5.2 and §6.9), one type for each direction.

use super::limits::WINDOW_MAX;

/// Octets that we may send. Negative after SETTINGS have shrunk the window (RFC 9113 §6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendWindow(i64);

/// The error of a change that would make a window exceed 2^31 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowOverflow;

impl SendWindow {
    pub(super) fn new(size: u32) -> Self {
        Self(i64::from(size))
    }

    /// Returns how many octets may be sent now.
    #[inline]
    pub(super) fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    #[inline]
    pub(super) fn is_open(self) -> bool {
        self.0 > 0
    }

    /// Subtracts `octets` from the window. `octets` must not exceed [`SendWindow::available`].
    #[inline]
    pub(super) fn consume(&mut self, octets: usize) {
        debug_assert!(octets <= self.available(), "sent beyond the window");
        self.0 -= i64::try_from(octets).unwrap_or(i64::MAX);
    }

    /// Applies a WINDOW_UPDATE.
    #[inline]
    pub(super) fn widen(&mut self, increment: u32) -> Result<(), WindowOverflow> {
        self.shift(i64::from(increment))
    }

    /// Applies a change of `SETTINGS_INITIAL_WINDOW_SIZE` by `delta`.
    #[inline]
    pub(super) fn shift(&mut self, delta: i64) -> Result<(), WindowOverflow> {
        let shifted = self.0 + delta;
        if shifted > i64::from(WINDOW_MAX) {
            return Err(WindowOverflow);
        }
        self.0 = shifted;
        Ok(())
    }
}

/// Number of octets that the peer may send, and the size to which we refill the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecvWindow {
    /// Octets that the peer may still send. Negative while the peer still uses a larger window, because it has not
    /// read our smaller one yet.
    left: i64,
    /// Lowest value allowed for `left`: 0, or less if the peer may still use a larger window.
    left_min: i64,
    /// Size of the window after a refill, in octets.
    target: u32,
}

/// The error of a peer that has sent more than the window allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowExceeded;

impl RecvWindow {
    /// Creates a window with `left` octets. WINDOW_UPDATEs refill the window to `target`.
    pub(super) fn new(left: u32, target: u32) -> Self {
        Self { left: i64::from(left), left_min: 0, target }
    }

    /// Creates a window of `target` octets, while the peer has not read our SETTINGS. Until then the peer may believe
    /// that the window has `before` octets, and may send that many. But the window is refilled as if the peer knew
    /// `target`.
    pub(super) fn unacknowledged(target: u32, before: u32) -> Self {
        Self { left: i64::from(target), left_min: -i64::from(before.saturating_sub(target)), target }
    }

    /// Counts received octets.
    #[inline]
    pub(super) fn recv(&mut self, octets: usize) -> Result<(), WindowExceeded> {
        let left = i64::try_from(octets).ok().map(|octets| self.left - octets);
        self.left = left.filter(|left| *left >= self.left_min).ok_or(WindowExceeded)?;
        Ok(())
    }

    /// Returns the increment for a WINDOW_UPDATE once half of the window is used. So one WINDOW_UPDATE serves many
    /// DATA frames.
    #[inline]
    pub(super) fn poll_update(&mut self) -> Option<u32> {
        let target = i64::from(self.target);
        if self.left > target / 2 {
            return None;
        }
        let increment = u32::try_from(target - self.left).unwrap_or(0);
        self.left = target;
        (increment > 0).then_some(increment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_can_be_negative_but_not_too_large() {
        let mut window = SendWindow::new(100);
        window.consume(100);
        assert!(!window.is_open());
        window.shift(-50).unwrap();
        assert_eq!(window.available(), 0);
        window.widen(50).unwrap();
        assert!(!window.is_open());
        window.widen(1).unwrap();
        assert_eq!(window.available(), 1);
        assert_eq!(window.widen(WINDOW_MAX), Err(WindowOverflow));
        assert_eq!(window.available(), 1);
        assert_eq!(window.widen(WINDOW_MAX - 1), Ok(()));
    }

    #[test]
    fn a_receive_window_is_refilled_when_half_is_used() {
        let mut window = RecvWindow::new(100, 100);
        window.recv(49).unwrap();
        assert_eq!(window.poll_update(), None);
        window.recv(1).unwrap();
        assert_eq!(window.poll_update(), Some(50));
        assert_eq!(window.poll_update(), None);
        assert_eq!(window.recv(101), Err(WindowExceeded));
        assert_eq!(window.recv(100), Ok(()));
    }

    #[test]
    fn a_small_window_is_refilled_before_and_after_its_settings_ack() {
        let mut window = RecvWindow::unacknowledged(4096, 65_535);
        window.recv(4096).unwrap();
        assert_eq!(window.poll_update(), Some(4096), "a peer that has read our SETTINGS waits for this");
        window.recv(65_535).unwrap();
        assert_eq!(window.recv(1), Err(WindowExceeded));
        assert_eq!(window.poll_update(), Some(65_535), "refills the window to 4096");
        let mut window = RecvWindow::unacknowledged(100_000, 65_535);
        assert_eq!(window.recv(100_001), Err(WindowExceeded));
    }

    #[test]
    fn a_window_that_begins_small_grows_to_its_target() {
        let mut window = RecvWindow::new(65_535, 1 << 20);
        assert_eq!(window.poll_update(), Some((1 << 20) - 65_535));
    }
}
