//! A timer that ends the wait of the poll. The timeout of the poll itself is a whole number of milliseconds. With
//! thousands of requests a second, that inaccuracy would show in every latency. On Linux a `timerfd` wakes the poll
//! with an accuracy of microseconds.

use mio::{Registry, Token};
use std::io;
use std::time::Duration;

/// A timer that ends the wait of the poll.
#[derive(Debug)]
pub(crate) struct Wake {
    #[cfg(target_os = "linux")]
    timer: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Wake {
    /// Registers a timer with the poll under `token`. The caller ignores the events of `token`.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd as _;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut mio::unix::SourceFd(&timer.as_raw_fd()), token, mio::Interest::READABLE)?;
        Ok(Self { timer })
    }

    /// Sets the timer. Returns the timeout to pass to a poll that waits for `wait_ns` at most.
    pub(crate) fn timeout_until(&mut self, wait_ns: u64) -> io::Result<Duration> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // A thread takes longer than 20 µs to fall asleep. So a shorter wait polls without blocking.
        if wait_ns < 20_000 {
            return Ok(Duration::ZERO);
        }
        let wait = Duration::from_nanos(wait_ns);
        let it_value = Timespec::try_from(wait).map_err(io::Error::other)?;
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Setting the timer again also clears its expiry, so the descriptor need not be read.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        // The timeout of the poll ends later than the timer, so the timer ends the wait.
        Ok(wait + Duration::from_millis(1))
    }
}

#[cfg(not(target_os = "linux"))]
impl Wake {
    /// Creates a timer that does nothing: the caller relies on the poll's own timeout.
    pub(crate) fn new(_registry: &Registry, _token: Token) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Returns the timeout to pass to a poll that waits for `wait_ns`.
    pub(crate) fn timeout_until(&mut self, wait_ns: u64) -> io::Result<Duration> {
        Ok(Duration::from_nanos(wait_ns))
    }
}
