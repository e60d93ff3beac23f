//! A timer that is exact to microseconds; tokio's own waits for whole
//! milliseconds, which at thousands of requests a second sends them in bursts.

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

/// One moment to wait for at a time.
#[derive(Debug)]
pub(crate) struct Timer {
    descriptor: AsyncFd<OwnedFd>,
    armed: Option<Instant>,
}

impl Timer {
    /// A timer of the runtime it is made in.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an `OwnedFd` is open, and the same descriptor, until it is dropped.
        let descriptor =
            unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        Ok(Self { descriptor, armed: None })
    }

    /// Waits until `moment`. May be given up and called again.
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
            // Each expiry is an edge of its own: nothing need be read.
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
