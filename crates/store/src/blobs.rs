//! Blobs: layers as they were pulled.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use outrigger_core::Digest;
use sha2::Digest as _;

use crate::{Error, Result, Store, disk};

impl Store {
    /// The path to download the layer `digest` to. A file that exists there is an unfinished
    /// download, to be resumed.
    pub fn partial(&self, digest: &Digest) -> PathBuf {
        self.inner.layout.partial(digest)
    }

    /// The path of the layer `digest` when its download is complete.
    pub fn blob(&self, digest: &Digest) -> PathBuf {
        self.inner.layout.blob(digest)
    }

    /// Whether the complete layer `digest` is in the store.
    pub fn has_blob(&self, digest: &Digest) -> bool {
        self.blob(digest).is_file()
    }

    /// Moves a complete download from `partial/` to `blobs/`. The caller has verified its digest
    /// and synced it; [`Store::unpack`] verifies it again. Succeeds if the layer is in the store
    /// already.
    pub fn commit_blob(&self, digest: &Digest) -> Result<()> {
        let (partial, blob) = (self.partial(digest), self.blob(digest));
        let _claims = self.inner.claims();
        if self.has_blob(digest) {
            return disk::remove(&partial);
        }
        if !partial.is_file() {
            return Err(Error::BlobMissing(*digest));
        }
        disk::set_mode(&partial, disk::FILE_MODE)?;
        disk::rename(&partial, &blob)?;
        disk::touch(&blob);
        Ok(())
    }
}

/// A reader that hashes the bytes it reads, and records whether reading failed.
#[derive(Debug)]
pub(crate) struct Hashing<R> {
    inner: R,
    hasher: sha2::Sha256,
    pub(crate) failed: bool,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hasher: sha2::Sha256::new(), failed: false }
    }

    /// Reads the rest and returns the digest of all bytes.
    pub(crate) fn finish(mut self) -> io::Result<Digest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Digest::from_sha256(self.hasher.finalize().into()))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        match &read {
            Ok(count) => self.hasher.update(&buffer[..*count]),
            Err(error) => self.failed |= error.kind() != io::ErrorKind::Interrupted,
        }
        read
    }
}

/// Verifies the digest of the blob at `path`; removes the blob and fails if it differs.
pub(crate) fn verify(path: &Path, expected: Digest) -> Result<()> {
    let digest = || Hashing::new(File::open(path)?).finish();
    check(path, expected, digest().map_err(|error| Error::io("read", path, error))?)
}

/// Like [`verify`], for a blob whose actual digest is known.
pub(crate) fn check(path: &Path, expected: Digest, actual: Digest) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    disk::remove(path)?;
    Err(Error::BlobCorrupt { expected, actual })
}
