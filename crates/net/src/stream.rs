//! The common interface of TCP and Unix sockets.

use std::{
    io::{self, IoSlice},
    os::fd::AsFd,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::Interest,
    net::{TcpStream, UnixStream},
};

/// A connected socket that can be read from and written to through a shared
/// reference.
pub trait Stream: AsFd + Send + Sync + 'static {
    /// Waits until there are bytes to read, or the end of the stream.
    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Waits until the socket accepts bytes.
    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Runs `io`, which reads or writes. If it returns [`io::ErrorKind::WouldBlock`], the socket is
    /// marked as not ready.
    ///
    /// # Errors
    /// The error of `io`, or [`io::ErrorKind::WouldBlock`] if the socket is not ready.
    fn try_io<R>(&self, interest: Interest, io: impl FnOnce() -> io::Result<R>) -> io::Result<R>;

    /// Writes as much of `pieces` as the socket accepts now.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it accepts nothing now.
    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Shuts down writing, so that the peer reads the end of the stream.
    ///
    /// # Errors
    /// The connection is already closed.
    fn shut_down(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self, rustix::net::Shutdown::Write)?)
    }
}

/// An owned socket, which can be moved to another runtime.
pub trait Socket: Stream + Unpin + Sized {
    /// Registers the socket with the current runtime.
    ///
    /// # Errors
    /// The runtime cannot register it.
    fn here(self) -> io::Result<Self>;
}

macro_rules! stream {
    ($socket:ty) => {
        impl Socket for $socket {
            fn here(self) -> io::Result<Self> {
                Self::from_std(self.into_std()?)
            }
        }

        impl Stream for $socket {
            fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_read_ready(context)
            }

            fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_write_ready(context)
            }

            fn try_io<R>(
                &self,
                interest: Interest,
                io: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                self.try_io(interest, io)
            }

            fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
                self.try_write_vectored(pieces)
            }
        }
    };
}

impl<S: Stream> Stream for Arc<S> {
    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        S::poll_read_ready(self, context)
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        S::poll_write_ready(self, context)
    }

    fn try_io<R>(&self, interest: Interest, io: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        S::try_io(self, interest, io)
    }

    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        S::try_write_vectored(self, pieces)
    }
}

stream!(TcpStream);
stream!(UnixStream);
