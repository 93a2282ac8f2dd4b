//! A timer that wakes the poll. The poll's own timeout has whole milliseconds. That inaccuracy would show in every
//! latency of a schedule with thousands of requests a second. On Linux a timer descriptor wakes the poll to the
//! microsecond.

use mio::{Registry, Token};
use std::io;
use std::time::Duration;

/// A timer that wakes the poll.
#[derive(Debug)]
pub(crate) struct Wake {
    #[cfg(target_os = "linux")]
    timer: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Wake {
    /// Registers a timer under `token`, whose events need no handling.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd as _;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut mio::unix::SourceFd(&timer.as_raw_fd()), token, mio::Interest::READABLE)?;
        Ok(Self { timer })
    }

    /// Sets the timer. Returns the timeout for a poll that waits for `wait_ns` at most.
    pub(crate) fn timeout_until(&mut self, wait_ns: u64) -> io::Result<Duration> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // A thread takes longer than this to fall asleep.
        if wait_ns < 20_000 {
            return Ok(Duration::ZERO);
        }
        let wait = Duration::from_nanos(wait_ns);
        let it_value = Timespec::try_from(wait).map_err(io::Error::other)?;
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Setting the timer again also clears its expiry, so the descriptor need not be read.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        Ok(wait + Duration::from_millis(1))
    }
}

#[cfg(not(target_os = "linux"))]
impl Wake {
    /// Creates a timer that needs no registration.
    pub(crate) fn new(_registry: &Registry, _token: Token) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Returns the timeout for a poll that waits for `wait_ns`.
    pub(crate) fn timeout_until(&mut self, wait_ns: u64) -> io::Result<Duration> {
        Ok(Duration::from_nanos(wait_ns))
    }
}
