//! Decompresses a message in small steps, so that its memory can be charged and its time checked
//! while it grows.

mod portions;

use std::io::{self, Read};

use bytes::{Bytes, BytesMut};
use flate2::bufread::{GzDecoder, ZlibDecoder};
use outrigger_core::{Failure, Reason};

use self::portions::Portions;
use crate::{
    Encoding,
    zstd_frame::{Header, Problem, WINDOW_LOG},
};

/// The most bytes that one step reads, and the most that it writes.
const STEP: usize = 64 << 10;
/// The bytes that a step may write before the buffer grows.
const PROBE: usize = 1 << 10;
/// The least capacity of the buffer.
const LEAST: usize = 4 << 10;
/// A declared size counts for at most this many times the compressed bytes, which have arrived. So
/// a sender cannot have memory set aside with a number alone.
const TRUST: usize = 16;
/// The memory of a decoder of gzip or deflate: its window, its tables, and the names in a member's
/// header.
const INFLATE: usize = 256 << 10;
/// The work to begin a member or a frame, in bytes: the decoder's memory is set to zero.
const BEGIN: usize = 64 << 10;

/// A compressed message that is being decompressed.
///
/// Several members of gzip or frames of zstd, one after the other, are one message, as both formats
/// define it. Everything else after the first one is an error, and so is anything after the stream of
/// deflate.
pub struct Decompressor {
    encoding: Encoding,
    state: State,
    /// The length of the compressed message.
    compressed: usize,
    decompressed: BytesMut,
    limit: usize,
    begun: usize,
}

enum State {
    /// Before a member or frame, or at the end.
    Between(Bytes),
    Gzip(Box<GzDecoder<Portions>>),
    Deflate(Box<ZlibDecoder<Portions>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Portions>>, Header),
}

impl Decompressor {
    /// Begins to decompress a message that must have at most `limit` bytes.
    pub fn new(encoding: Encoding, compressed: Bytes, limit: usize) -> Self {
        let (length, decompressed) = (compressed.len(), BytesMut::new());
        let state = State::Between(compressed);
        Self { encoding, state, compressed: length, decompressed, limit, begun: 0 }
    }

    /// Decompresses some more. Returns true when the message is complete. `admit` is called before
    /// memory is taken, with the bytes that the decoder and the message then take together.
    ///
    /// # Errors
    /// The message has more than the limit (`TOO_LARGE`); it is damaged or incomplete, or needs a
    /// window that is too large (`REQUEST_MALFORMED`); or that of `admit`.
    pub fn step(&mut self, admit: impl Fn(usize) -> Result<(), Failure>) -> Result<bool, Failure> {
        if let State::Between(rest) = &self.state {
            let is_whole = rest.is_empty() && self.begun > 0;
            return if is_whole {
                Ok(true)
            } else {
                self.begin(rest.clone(), admit).map(|()| false)
            };
        }
        if self.read(admit)? == Some(0) {
            self.end();
        }
        Ok(false)
    }

    /// The work so far, in bytes: those that were read, those that were written, and a number of
    /// them for each member or frame.
    pub fn work(&self) -> usize {
        let rest = match &self.state {
            State::Between(rest) => rest.len(),
            State::Gzip(decoder) => decoder.get_ref().rest(),
            State::Deflate(decoder) => decoder.get_ref().rest(),
            State::Zstd(decoder, _) => decoder.get_ref().rest(),
        };
        self.compressed - rest + self.decompressed.len() + BEGIN * self.begun
    }

    /// The message.
    pub fn finish(self) -> BytesMut {
        self.decompressed
    }

    fn begin(
        &mut self,
        rest: Bytes,
        admit: impl Fn(usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.begun += 1;
        match self.encoding {
            Encoding::Gzip => {
                admit(self.decompressed.capacity() + INFLATE)?;
                let decoder = GzDecoder::new(Portions::of(rest, STEP));
                self.state = State::Gzip(Box::new(decoder));
            }
            Encoding::Deflate if self.begun > 1 => {
                return Err(self.malformed("there is something behind its end"));
            }
            Encoding::Deflate => {
                admit(self.decompressed.capacity() + INFLATE)?;
                let decoder = ZlibDecoder::new(Portions::of(rest, STEP));
                self.state = State::Deflate(Box::new(decoder));
            }
            Encoding::Zstd => {
                let header = Header::read(&rest).map_err(|problem| self.refused(problem))?;
                admit(self.decompressed.capacity() + header.memory())?;
                let decoder = zstd_decoder(Portions::of(rest, STEP));
                let decoder = decoder.map_err(|error| self.damaged(&error))?;
                self.state = State::Zstd(Box::new(decoder), header);
            }
        }
        Ok(())
    }

    /// Reads once. Returns the number of bytes, which is 0 at the end of the member or frame;
    /// `None` if the decoder needs more of the compressed bytes.
    fn read(
        &mut self,
        admit: impl Fn(usize) -> Result<(), Failure>,
    ) -> Result<Option<usize>, Failure> {
        let length = self.decompressed.len();
        let room = self.decompressed.capacity() - length;
        if room > 0 {
            self.decompressed.resize(length + room.min(STEP), 0);
            let read = read(&mut self.state, &mut self.decompressed[length..]);
            let count = read.as_ref().ok().copied().flatten().unwrap_or_default();
            self.decompressed.truncate(length + count);
            return read.map_err(|error| self.damaged(&error));
        }
        let mut probe = [0; PROBE];
        let read = read(&mut self.state, &mut probe).map_err(|error| self.damaged(&error))?;
        if let Some(count @ 1..) = read {
            self.grow(length + count, admit)?;
            self.decompressed.extend_from_slice(&probe[..count]);
        }
        Ok(read)
    }

    /// Makes room for a message of at least `length` bytes.
    fn grow(
        &mut self,
        length: usize,
        admit: impl Fn(usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if length > self.limit {
            let message =
                format!("the message has more than {} bytes when decompressed", self.limit);
            return Err(Failure::new(Reason::TooLarge, message));
        }
        let capacity = self.capacity_for(length);
        // While the bytes are copied, both buffers are there.
        admit(self.decoder() + self.decompressed.capacity() + capacity)?;
        let mut larger = BytesMut::with_capacity(capacity);
        larger.extend_from_slice(&self.decompressed);
        self.decompressed = larger;
        Ok(())
    }

    fn capacity_for(&self, length: usize) -> usize {
        let twice = length.saturating_mul(2).max(LEAST);
        let trusted = self.compressed.saturating_mul(TRUST).max(twice);
        let wanted = self.declared().filter(|declared| *declared >= length).unwrap_or(twice);
        wanted.min(trusted).min(self.limit).max(length)
    }

    /// The size of the message as its sender declares it: in the header of the frame of zstd, or in
    /// the last bytes of gzip.
    fn declared(&self) -> Option<usize> {
        match &self.state {
            State::Gzip(decoder) => decoder.get_ref().last().map(|size| size as usize),
            State::Zstd(_, header) => header.content.and_then(|size| usize::try_from(size).ok()),
            State::Between(_) | State::Deflate(_) => None,
        }
    }

    /// The bytes that the decoder takes.
    fn decoder(&self) -> usize {
        match &self.state {
            State::Between(_) => 0,
            State::Gzip(_) | State::Deflate(_) => INFLATE,
            State::Zstd(_, header) => header.memory(),
        }
    }

    /// Ends a member or frame.
    fn end(&mut self) {
        let rest = match std::mem::replace(&mut self.state, State::Between(Bytes::new())) {
            State::Between(rest) => rest,
            State::Gzip(decoder) => decoder.into_inner().into_rest(),
            State::Deflate(decoder) => decoder.into_inner().into_rest(),
            State::Zstd(decoder, _) => decoder.finish().into_rest(),
        };
        self.state = State::Between(rest);
    }

    fn damaged(&self, error: &io::Error) -> Failure {
        self.malformed(&format!("it is damaged or incomplete ({error})"))
    }

    fn refused(&self, problem: Problem) -> Failure {
        self.malformed(match problem {
            Problem::NoFrame => "there is something else than a frame",
            Problem::Cut => "it is incomplete",
            Problem::Window => "it needs a window of more than 8 MiB",
        })
    }

    fn malformed(&self, problem: &str) -> Failure {
        let encoding = self.encoding.name();
        let message = format!("the message cannot be decompressed from {encoding}: {problem}");
        Failure::new(Reason::RequestMalformed, message)
    }
}

fn zstd_decoder(
    compressed: Portions,
) -> io::Result<zstd::stream::read::Decoder<'static, Portions>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed)?;
    decoder.window_log_max(WINDOW_LOG)?;
    Ok(decoder.single_frame())
}

/// Reads once from a decoder; `None` if its portion of compressed bytes is used up.
fn read(state: &mut State, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let read = match state {
        State::Between(_) => return Ok(Some(0)),
        State::Gzip(decoder) => {
            decoder.get_mut().begin_portion();
            decoder.read(buffer)
        }
        State::Deflate(decoder) => {
            decoder.get_mut().begin_portion();
            decoder.read(buffer)
        }
        State::Zstd(decoder, _) => {
            decoder.get_mut().begin_portion();
            decoder.read(buffer)
        }
    };
    match read {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests;
