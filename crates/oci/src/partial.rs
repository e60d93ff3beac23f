//! The file that a blob is downloaded into: hashed as it grows, resumable.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use outrigger_core::Digest;
use sha2::{Digest as _, Sha256};

use crate::{Error, Layer, Receiver, metrics};

const PIECE: usize = 1 << 20;

/// A blob's file, locked against other writers, with the hash of its content so far. All methods
/// block.
///
/// Dropping it leaves the file, and the next one resumes from it.
#[derive(Debug)]
pub(crate) struct Partial {
    path: PathBuf,
    file: File,
    layer: Layer,
    position: u64,
    /// Bytes found in the file when it was opened. They may not belong to the blob.
    leftover: u64,
    hash: Sha256,
    receiver: Receiver,
}

impl Partial {
    /// Opens the file at `path`, creates it if necessary, and hashes its content.
    pub(crate) fn open(path: &Path, layer: Layer, receiver: Receiver) -> Result<Self, Error> {
        let file = open_locked(path).map_err(Error::io(path))?;
        let (path, hash) = (path.to_owned(), Sha256::new());
        let mut partial = Self { path, file, layer, position: 0, leftover: 0, hash, receiver };
        partial.adopt()?;
        Ok(partial)
    }

    fn adopt(&mut self) -> Result<(), Error> {
        let length = self.file.metadata().map_err(Error::io(&self.path))?.len();
        if length > self.layer.size {
            return self.restart();
        }
        let mut piece = vec![0; PIECE];
        loop {
            match self.file.read(&mut piece).map_err(Error::io(&self.path))? {
                0 => break,
                read => self.advance(&piece[..read]),
            }
        }
        self.leftover = self.position;
        Ok(())
    }

    /// The offset of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.position == self.layer.size
    }

    /// True if the file held bytes when it was opened; these may be wrong.
    pub(crate) fn has_leftover(&self) -> bool {
        self.leftover > 0
    }

    /// Empties the file.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(Error::io(&self.path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(Error::io(&self.path))?;
        self.receiver.progress.take(self.position);
        (self.position, self.leftover, self.hash) = (0, 0, Sha256::new());
        Ok(())
    }

    /// Appends `bytes`; an error if the blob gets longer than its descriptor states, or if there is
    /// no space for them.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let end = self.position + bytes.len() as u64;
        if end > self.layer.size {
            return Err(self.wrong_size(end));
        }
        self.receiver.grant(&self.layer, end).map_err(Error::NoSpace)?;
        self.file.write_all(bytes).map_err(Error::io(&self.path))?;
        metrics::received(bytes.len() as u64);
        self.advance(bytes);
        Ok(())
    }

    fn advance(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.position += bytes.len() as u64;
        self.receiver.progress.add(bytes.len() as u64);
    }

    pub(crate) fn wrong_size(&self, actual: u64) -> Error {
        let what = format!("blob {}", self.layer.digest);
        Error::SizeMismatch { what, expected: self.layer.size, actual }
    }

    /// Compares the complete blob's digest with the expected one, and syncs the file.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        let actual = Digest::from_sha256(self.hash.clone().finalize().into());
        if actual != self.layer.digest {
            let (what, expected) = ("a blob".to_owned(), self.layer.digest);
            return Err(Error::DigestMismatch { what, expected, actual });
        }
        self.file.sync_all().map_err(Error::io(&self.path))
    }

    /// Removes the file, whose content is of no use to a later attempt.
    pub(crate) fn remove(self) {
        self.receiver.progress.take(self.position);
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a broken blob");
        }
    }
}

/// Opens and locks the file; repeats this if the path was renamed or removed before the lock was
/// held.
fn open_locked(path: &Path) -> io::Result<File> {
    loop {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock()?;
        let ours = file.metadata()?;
        match fs::symlink_metadata(path) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => return Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
}
