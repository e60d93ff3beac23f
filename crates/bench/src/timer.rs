//! A timer with microsecond precision. tokio's timer waits for whole milliseconds, which
//! would send thousands of requests a second in bursts.

use std::{
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::{Interest, unix::AsyncFd};

/// A timer that is set to at most one point in time.
#[derive(Debug)]
pub(crate) struct Timer {
    descriptor: AsyncFd<OwnedFd>,
    armed: Option<Instant>,
}

impl Timer {
    /// Creates a timer of the current runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an `OwnedFd` is open, and stays the same descriptor, until it is
        // dropped.
        let descriptor =
            unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        Ok(Self { descriptor, armed: None })
    }

    /// Waits until `moment`. The wait may be cancelled and repeated.
    pub(crate) async fn until(&mut self, moment: Instant) -> io::Result<()> {
        loop {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.armed != Some(moment) {
                self.arm(left)?;
                self.armed = Some(moment);
            }
            // Each expiry triggers its own edge, so the descriptor need not be read.
            self.descriptor.readable().await?.clear_ready();
            self.armed = None;
        }
    }

    fn arm(&self, left: Duration) -> io::Result<()> {
        let it_value = Timespec::try_from(left).map_err(io::Error::other)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}
