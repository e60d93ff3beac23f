//! What TCP and Unix sockets have in common.

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
    /// Waits until there is something to read, or the end.
    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Waits until there is room to write.
    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Does `io`, which reads or writes; the socket counts as not ready for it
    /// from when `io` says [`io::ErrorKind::WouldBlock`] on.
    ///
    /// # Errors
    /// What `io` says, and that the socket is not ready.
    fn try_io<R>(&self, interest: Interest, io: impl FnOnce() -> io::Result<R>) -> io::Result<R>;

    /// Writes as much of `pieces` as there is room for.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] without room.
    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Tells the peer that nothing more will be written.
    ///
    /// # Errors
    /// The connection is gone already.
    fn shut_down(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self, rustix::net::Shutdown::Write)?)
    }
}

/// A socket by itself, which may be moved.
pub trait Socket: Stream + Unpin + Sized {
    /// The same socket, driven by the current runtime.
    ///
    /// # Errors
    /// The runtime cannot drive it.
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
