//! Layers of images, valid and hostile: tar archives built byte by byte, so that they can hold what
//! no regular tool would write.

use std::io::Write;

use outrigger_core::{Digest, LayerKind};
use tar::{EntryType, Header};

/// A built layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltLayer {
    /// The digest of `bytes`.
    pub digest: Digest,
    /// The digest of the uncompressed archive, which an image's configuration lists.
    pub diff_id: Digest,
    /// The format of `bytes`.
    pub kind: LayerKind,
    /// The layer's content.
    pub bytes: Vec<u8>,
}

/// Builds a layer. Names and targets are written unchanged: `../../etc/passwd` appears so in the
/// archive. The same calls give the same bytes.
#[derive(Debug, Clone, Default)]
pub struct LayerBuilder {
    archive: Vec<u8>,
}

impl LayerBuilder {
    /// An empty layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file with its content.
    #[must_use]
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.entry(EntryType::Regular, name, "", content.as_ref())
    }

    /// Adds a directory.
    #[must_use]
    pub fn dir(self, name: &str) -> Self {
        self.entry(EntryType::Directory, name, "", b"")
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, b"")
    }

    /// Adds a hard link; its target is relative to the image's root.
    #[must_use]
    pub fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, target, b"")
    }

    /// Adds a whiteout, which hides `name` of the layers below.
    #[must_use]
    pub fn whiteout(self, name: &str) -> Self {
        let (dir, last) = name.rsplit_once('/').unwrap_or(("", name));
        let slash = if dir.is_empty() { "" } else { "/" };
        self.file(&format!("{dir}{slash}.wh.{last}"), b"")
    }

    /// Adds an opaque whiteout, which hides the content that `dir` has in the layers below.
    #[must_use]
    pub fn opaque(self, dir: &str) -> Self {
        self.file(&format!("{dir}/.wh..wh..opq"), b"")
    }

    /// Adds an entry of any type. A name or target of more than 100 bytes gets a pax header before
    /// it.
    #[must_use]
    pub fn entry(self, kind: EntryType, name: &str, target: &str, content: &[u8]) -> Self {
        let long = |text: &str| text.len() > 100;
        let mut records = Vec::new();
        records.extend(long(name).then_some(("path", name)));
        records.extend(long(target).then_some(("linkpath", target)));
        let builder = if records.is_empty() { self } else { self.pax(&records) };
        let size = content.len() as u64;
        builder.header(kind, name, target, size).content(content)
    }

    /// Adds a pax extended header for the next entry.
    #[must_use]
    pub fn pax(self, records: &[(&str, &str)]) -> Self {
        let records: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        self.entry(EntryType::XHeader, "pax", "", &records)
    }

    /// Adds only a header, whose size may be wrong.
    #[must_use]
    pub fn header(mut self, kind: EntryType, name: &str, target: &str, size: u64) -> Self {
        let mut header = Header::new_gnu();
        put(&mut header.as_old_mut().name, name.as_bytes());
        put(&mut header.as_old_mut().linkname, target.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(size);
        header.set_cksum();
        self.archive.extend_from_slice(header.as_bytes());
        self
    }

    /// Adds raw bytes.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.archive.extend_from_slice(bytes);
        self
    }

    /// Adds bytes, padded to a whole block.
    #[must_use]
    pub fn content(mut self, bytes: &[u8]) -> Self {
        self.archive.extend_from_slice(bytes);
        self.archive.resize(self.archive.len().next_multiple_of(512), 0);
        self
    }

    /// The complete layer, with the two zero blocks that end an archive.
    pub fn build(&self, kind: LayerKind) -> BuiltLayer {
        self.clone().raw(&[0; 1024]).build_unfinished(kind)
    }

    /// The layer without the end of the archive.
    pub fn build_unfinished(self, kind: LayerKind) -> BuiltLayer {
        let diff_id = Digest::of(&self.archive);
        let bytes = compress(self.archive, kind);
        BuiltLayer { digest: Digest::of(&bytes), diff_id, kind, bytes }
    }
}

/// A minimal package, `metadata.json` and a SavedModel of one file at their preferred paths, to
/// which more can be added.
pub fn package_layer(metadata_json: &[u8], saved_model_pb: &[u8]) -> LayerBuilder {
    LayerBuilder::new()
        .dir("data")
        .file("data/metadata.json", metadata_json)
        .dir("data/tensorflow_serving_model")
        .dir("data/tensorflow_serving_model/model")
        .file("data/tensorflow_serving_model/model/saved_model.pb", saved_model_pb)
}

fn compress(archive: Vec<u8>, kind: LayerKind) -> Vec<u8> {
    match kind {
        LayerKind::Tar => archive,
        LayerKind::TarGzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&archive).expect("writing to memory");
            encoder.finish().expect("writing to memory")
        }
        LayerKind::TarZstd => {
            zstd::stream::encode_all(archive.as_slice(), 0).expect("writing to memory")
        }
    }
}

/// A pax record. It begins with its own length in decimal digits, these digits included.
fn record(key: &str, value: &str) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n").into_bytes()
}

fn put(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tar_crate_reads_a_built_layer() {
        let long = format!("data/{}", "x".repeat(150));
        let layer = LayerBuilder::new().dir("data").file(&long, b"content").build(LayerKind::Tar);
        let mut archive = tar::Archive::new(layer.bytes.as_slice());
        let entries = archive.entries().expect("an archive");
        let names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path().expect("a name").display().to_string())
            .collect();
        assert_eq!(names, ["data", &long]);
    }

    #[test]
    fn a_record_counts_its_own_length() {
        assert_eq!(record("path", "x"), b"9 path=x\n");
        for length in [1, 80, 88, 89, 90, 91, 980, 990] {
            let record = record("path", &"x".repeat(length));
            let text = String::from_utf8(record.clone()).expect("text");
            let counted = text.split_once(' ').expect("a length").0;
            assert_eq!(counted, record.len().to_string());
        }
    }

    #[test]
    fn the_same_calls_give_the_same_layer() {
        let build = || package_layer(b"{}", b"pb").build(LayerKind::TarGzip);
        assert_eq!(build(), build());
    }
}
