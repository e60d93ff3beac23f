//! Reads a layer's decompressed bytes, within limits. Errors of a damaged disk are distinguished
//! from those of the image.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::PathBuf,
};

use bytesize::ByteSize;
use flate2::bufread::MultiGzDecoder;
use outrigger_core::{Digest, LayerKind};

use crate::{
    Error, LayerProblem, Result,
    blobs::{self, Hashing},
};

/// The largest window of zstd: 8 MiB, which every decoder should support (RFC 8878, 3.1.1.1.2), and
/// which `zstd` exceeds only with `--ultra` or `--long`. The layer decides how much memory its
/// window takes.
const WINDOW_LOG: u32 = 23;

type Blob = BufReader<Hashing<File>>;

/// The bytes of one layer, decompressed.
pub(super) struct Source<'a> {
    pub(super) layer: Digest,
    path: PathBuf,
    decoder: Decoder,
    budget: &'a mut Budget,
}

/// The limit of decompressed bytes of one image, and the bytes used so far.
pub(super) struct Budget {
    pub(super) max: ByteSize,
    pub(super) used: u64,
}

enum Decoder {
    Tar(Blob),
    Gzip(Box<MultiGzDecoder<Blob>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Blob>>),
}

impl<'a> Source<'a> {
    /// Opens the blob at `path`; its compression must match `kind`.
    pub(super) fn open(
        path: PathBuf,
        (layer, kind): (Digest, LayerKind),
        budget: &'a mut Budget,
    ) -> Result<Self> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Error::BlobMissing(layer),
            _ => Error::io("read", &path, error),
        };
        let file = File::open(&path).map_err(failed)?;
        let mut blob = BufReader::with_capacity(64 << 10, Hashing::new(file));
        let found = compression(blob.fill_buf().map_err(failed)?);
        if found != kind {
            let problem =
                LayerProblem::Compression { declared: declared(kind), found: actual(found) };
            return Err(Error::Layer { layer, problem });
        }
        let decoder = match kind {
            LayerKind::Tar => Decoder::Tar(blob),
            LayerKind::TarGzip => Decoder::Gzip(Box::new(MultiGzDecoder::new(blob))),
            LayerKind::TarZstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(blob).map_err(failed)?;
                decoder.window_log_max(WINDOW_LOG).map_err(failed)?;
                Decoder::Zstd(Box::new(decoder))
            }
        };
        Ok(Self { layer, path, decoder, budget })
    }

    /// Reads some bytes; 0 at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = loop {
            match self.decoder.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let count = read.map_err(|error| self.failure(error))?;
        self.budget.used = self.budget.used.saturating_add(count as u64);
        self.expect(0)?;
        Ok(count)
    }

    /// Fails if `bytes` more would exceed the limit.
    pub(super) fn expect(&self, bytes: u64) -> Result<()> {
        let Budget { max, used } = *self.budget;
        let fits = used.saturating_add(bytes) <= max.as_u64();
        fits.then_some(()).ok_or_else(|| self.error(LayerProblem::TooLarge(max)))
    }

    /// Reads to the end, so that the compression's checksums are verified, and checks the blob's
    /// digest.
    pub(super) fn finish(mut self) -> Result<()> {
        let mut buffer = vec![0; 64 << 10];
        while self.read(&mut buffer)? > 0 {}
        let digest = self.decoder.into_blob().into_inner().finish();
        let digest = digest.map_err(|error| Error::io("read", &self.path, error))?;
        blobs::check(&self.path, self.layer, digest)
    }

    pub(super) fn error(&self, problem: LayerProblem) -> Error {
        Error::Layer { layer: self.layer, problem }
    }

    fn failure(&self, error: io::Error) -> Error {
        if self.decoder.blob().get_ref().failed {
            return Error::io("read", &self.path, error);
        }
        self.error(LayerProblem::Damaged(self.decoder.name(), error))
    }
}

impl Decoder {
    fn blob(&self) -> &Blob {
        match self {
            Self::Tar(blob) => blob,
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Zstd(decoder) => decoder.get_ref(),
        }
    }

    fn into_blob(self) -> Blob {
        match self {
            Self::Tar(blob) => blob,
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Tar(_) => "tar",
            Self::Gzip(_) => "gzip",
            Self::Zstd(_) => "zstd",
        }
    }
}

impl Read for Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tar(blob) => blob.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// The compression by the first bytes (RFC 1952, RFC 8878); anything else counts as a plain tar.
fn compression(start: &[u8]) -> LayerKind {
    match start {
        [0x1f, 0x8b, ..] => LayerKind::TarGzip,
        // A Zstandard frame, or a skippable one in front of it.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => LayerKind::TarZstd,
        _ => LayerKind::Tar,
    }
}

fn declared(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::Tar => "plain tar",
        LayerKind::TarGzip => "compressed with gzip",
        LayerKind::TarZstd => "compressed with zstd",
    }
}

fn actual(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::Tar => "neither gzip nor zstd",
        LayerKind::TarGzip => "gzip",
        LayerKind::TarZstd => "zstd",
    }
}
