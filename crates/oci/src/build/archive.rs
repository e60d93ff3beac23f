//! Writes one layer: a tar archive with fixed headers, hashed while it is written.

use std::{
    fs::File,
    io::{self, BufWriter, Read as _, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder};
use outrigger_core::{Digest, LayerKind};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::{BuildError, scan::Entry};
use crate::Layer;

/// The package's directory in the image.
const ROOT: &str = "data";
/// The gzip header's value for an unknown operating system (RFC 1952).
const UNKNOWN_OS: u8 = 255;

/// A layer in a temporary file.
pub(super) struct Packed {
    pub(super) layer: Layer,
    /// The digest of the archive, uncompressed.
    pub(super) diff_id: Digest,
    pub(super) path: PathBuf,
}

/// A writer that hashes and counts the bytes it passes on.
struct Hashing<W> {
    to: W,
    hash: Sha256,
    size: u64,
}

impl<W> Hashing<W> {
    fn new(to: W) -> Self {
        Self { to, hash: Sha256::new(), size: 0 }
    }

    fn digest(self) -> (Digest, W) {
        (Digest::from_sha256(self.hash.finalize().into()), self.to)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Packs `entries` into a temporary file in the directory `work`.
pub(super) fn pack(work: &Path, kind: LayerKind, entries: &[Entry]) -> Result<Packed, BuildError> {
    let file = tempfile::Builder::new().prefix("layer").tempfile_in(work);
    let (file, path) = file
        .and_then(|file| file.keep().map_err(|error| error.error))
        .map_err(BuildError::io(work))?;
    let out = Hashing::new(BufWriter::new(file));
    let (diff_id, out) = match kind {
        LayerKind::TarGzip => {
            let gzip = GzBuilder::new().mtime(0).operating_system(UNKNOWN_OS);
            let (diff_id, gzip) = archive(gzip.write(out, Compression::default()), entries)?;
            (diff_id, gzip.finish().map_err(BuildError::io(&path))?)
        }
        _ => archive(out, entries)?,
    };
    let size = out.size;
    let (digest, mut buffer) = out.digest();
    buffer.flush().map_err(BuildError::io(&path))?;
    Ok(Packed { layer: Layer { digest, size, kind }, diff_id, path })
}

fn archive<W: Write>(out: W, entries: &[Entry]) -> Result<(Digest, W), BuildError> {
    let mut tar = Builder::new(Hashing::new(out));
    // A layer of one large file has no directory entries; the other layer has them. So its digest
    // depends on the file only.
    if entries.iter().any(|entry| !entry.is_file()) {
        append(&mut tar, &format!("{ROOT}/"), None, io::empty()).map_err(BuildError::io(ROOT))?;
    }
    for entry in entries {
        add(&mut tar, entry).map_err(BuildError::io(&entry.path))?;
    }
    tar.into_inner().map(Hashing::digest).map_err(BuildError::io(ROOT))
}

fn add<W: Write>(tar: &mut Builder<W>, entry: &Entry) -> io::Result<()> {
    let name = format!("{ROOT}/{}", entry.name);
    let Some(size) = entry.size else {
        return append(tar, &format!("{name}/"), None, io::empty());
    };
    let file = File::open(&entry.path)?;
    if file.metadata()?.len() != size {
        return Err(io::Error::other("the file changed while it was packed"));
    }
    append(tar, &name, Some(size), file.take(size))
}

fn append<W: Write>(
    tar: &mut Builder<W>,
    name: &str,
    size: Option<u64>,
    content: impl io::Read,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    let (kind, mode) = match size {
        Some(_) => (EntryType::Regular, 0o644),
        None => (EntryType::Directory, 0o755),
    };
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size.unwrap_or(0));
    tar.append_data(&mut header, name, content)
}
