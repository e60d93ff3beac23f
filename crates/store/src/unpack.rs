//! From layers to a tree: nothing in an image is trusted.

mod archive;
mod name;
mod root;
mod seal;
mod source;

use std::{
    collections::{BTreeMap, HashSet},
    io::Write,
    path::{Path, PathBuf},
    sync::PoisonError,
    time::Instant,
};

use outrigger_core::{Digest, LayerKind};

use self::{
    archive::{Archive, Entry, Kind},
    name::{Place, Whiteout, shown},
    root::{Fault, Root},
    seal::Links,
    source::{Budget, Source},
};
use crate::{
    EntryProblem, Error, InUse, LayerProblem, Reservation, Result, Store, Tree, blobs, disk,
    metrics, space, tree::Sidecar,
};

/// An image to unpack.
#[derive(Debug, Clone)]
pub struct Package {
    /// What its reference resolved to; the tree is called so.
    pub digest: Digest,
    /// The manifest for this platform.
    pub platform_digest: Digest,
    /// The labels of its configuration.
    pub labels: BTreeMap<String, String>,
    /// Its layers, the lowest first.
    pub layers: Vec<(Digest, LayerKind)>,
}

impl Store {
    /// Unpacks the layers of an image, which are in the store, to its tree. What
    /// lies outside of `/data` is checked and not written. Who comes second for
    /// the same digest waits and gets the same tree. A failure leaves nothing.
    ///
    /// Every entry must be a file, a directory, or a link that stays inside of
    /// the image; under `/data` a link must also lead to something under `/data`.
    ///
    /// # Errors
    /// [`Error::Entry`], [`Error::Layer`] and [`Error::Package`] for what the
    /// image is to blame for; [`Error::BlobMissing`] and [`Error::BlobCorrupt`]
    /// when a layer has to be pulled again; [`Error::Full`] and
    /// [`Error::NoSpace`] when it does not fit.
    pub fn unpack(&self, package: &Package, in_use: InUse<'_>) -> Result<Tree> {
        let turn = self.inner.turn(package.digest);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = self.tree(&package.digest) {
            return Ok(tree);
        }
        let started = Instant::now();
        match self.unpack_new(package, in_use) {
            Ok(tree) => {
                metrics::unpacked(started.elapsed());
                Ok(tree)
            }
            Err(error) => {
                metrics::unpack_failed(&error);
                Err(error)
            }
        }
    }

    fn unpack_new(&self, package: &Package, in_use: InUse<'_>) -> Result<Tree> {
        let layout = &self.inner.layout;
        let digests: Vec<_> = package.layers.iter().map(|(layer, _)| *layer).collect();
        let reservation = Reservation::for_tree(&self.inner, package.digest, &digests)?;
        let staging = Staging::make(&layout.trees())?;
        let mut unpacking = Unpacking {
            store: self,
            root: Root::open(staging.0.clone())?,
            budget: Budget { max: self.inner.limits.max_bytes, used: 0 },
            entries: 0,
            links: Links::new(),
            room: Room { reservation: &reservation, in_use },
        };
        for layer in &package.layers {
            unpacking.layer(*layer)?;
        }
        let links = std::mem::take(&mut unpacking.links);
        let (parts, bytes) = seal::seal(&staging.0, package.digest, &links)?;
        let sidecar = Sidecar {
            digest: package.digest,
            platform_digest: package.platform_digest,
            bytes,
            labels: package.labels.clone(),
            layers: digests,
            model: parts.model,
            metadata: parts.metadata,
            golden: parts.golden,
        };
        sidecar.write(&staging.0)?;
        disk::sync_dir(&staging.0)?;
        // What stands there could not be opened as a tree.
        disk::remove_tree(&layout.tree(&package.digest))?;
        disk::rename(&staging.0, &layout.tree(&package.digest))?;
        sidecar.layers.iter().for_each(|layer| disk::touch(&layout.blob(layer)));
        self.tree(&package.digest).ok_or(Error::TreeMissing(package.digest))
    }
}

/// Content is copied in pieces of this size.
const CHUNK: usize = 64 << 10;

/// One image on its way to a tree.
struct Unpacking<'a> {
    store: &'a Store,
    root: Root,
    budget: Budget,
    entries: u64,
    links: Links,
    room: Room<'a>,
}

/// Asks for space as the tree grows.
struct Room<'a> {
    reservation: &'a Reservation,
    in_use: InUse<'a>,
}

/// A directory without a name of its own, removed unless it was renamed.
struct Staging(PathBuf);

/// What one layer has written: its own whiteouts do not hide that.
type Written = HashSet<PathBuf>;

impl Unpacking<'_> {
    fn layer(&mut self, layer: (Digest, LayerKind)) -> Result<()> {
        let path = self.store.inner.layout.blob(&layer.0);
        self.apply(&path, layer).map_err(|error| match error {
            // A damaged disk must not be blamed on the image.
            Error::Layer { .. } | Error::Entry { .. } => {
                blobs::verify(&path, layer.0).err().unwrap_or(error)
            }
            other => other,
        })
    }

    fn apply(&mut self, path: &Path, layer: (Digest, LayerKind)) -> Result<()> {
        let max_entries = self.store.inner.limits.max_entries;
        let source = Source::open(path.to_owned(), layer, &mut self.budget)?;
        let mut archive = Archive::new(source);
        let mut written = Written::new();
        let mut writer = Writer {
            root: &self.root,
            layer: layer.0,
            links: &mut self.links,
            room: &self.room,
            written: &mut written,
        };
        while let Some(entry) = archive.next()? {
            self.entries += 1;
            if self.entries > max_entries {
                let problem = LayerProblem::TooManyEntries(max_entries);
                return Err(Error::Layer { layer: layer.0, problem });
            }
            writer.entry(&entry, &mut archive).map_err(|fault| match fault {
                Fault::Failed(error) => error,
                Fault::Entry(problem) => {
                    Error::Entry { layer: layer.0, entry: shown(&entry.name), problem }
                }
            })?;
        }
        archive.finish()
    }
}

struct Writer<'a> {
    root: &'a Root,
    layer: Digest,
    links: &'a mut Links,
    room: &'a Room<'a>,
    written: &'a mut Written,
}

impl Writer<'_> {
    fn entry(&mut self, entry: &Entry, archive: &mut Archive<'_>) -> Result<(), Fault> {
        let place = Place::parse(&entry.name)?;
        if entry.size > 0 && !matches!(entry.kind, Kind::File | Kind::Refused(_)) {
            return Err(EntryProblem::Content(entry.size).into());
        }
        if let Some(whiteout) = place.whiteout()? {
            return self.hide(&whiteout, &entry.kind);
        }
        self.make(entry, &place, archive)?;
        if place.is_data() {
            self.written.insert(place.path());
        }
        Ok(())
    }

    fn make(
        &mut self,
        entry: &Entry,
        place: &Place,
        archive: &mut Archive<'_>,
    ) -> Result<(), Fault> {
        let wanted = place.is_data();
        match &entry.kind {
            Kind::Refused(what) => Err(EntryProblem::Kind(what).into()),
            Kind::Unknown(byte) => Err(EntryProblem::UnknownKind(*byte).into()),
            Kind::Symlink(target) => {
                let target = place.symlink(target)?;
                if wanted { self.symlink(entry, place, &target) } else { Ok(()) }
            }
            Kind::HardLink(target) => {
                let target = Place::hard_link(target)?;
                if wanted { self.root.make_hard_link(place, &target) } else { Ok(()) }
            }
            Kind::Dir if wanted => {
                self.room.entry()?;
                self.root.make_dir(place)
            }
            Kind::File if wanted => self.file(entry, place, archive),
            Kind::Dir | Kind::File => Ok(()),
        }
    }

    fn file(&self, entry: &Entry, place: &Place, archive: &mut Archive<'_>) -> Result<(), Fault> {
        let mut file = self.root.make_file(place)?;
        let path = place.path();
        let failed = |error| Error::io("write", &path, error);
        let mut buffer = vec![0; usize::try_from(entry.size).unwrap_or(CHUNK).clamp(1, CHUNK)];
        self.room.entry()?;
        loop {
            let count = archive.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            self.room.content(count as u64)?;
            file.write_all(&buffer[..count]).map_err(failed)?;
        }
        Ok(file.sync_all().map_err(failed)?)
    }

    fn symlink(&mut self, entry: &Entry, place: &Place, target: &Path) -> Result<(), Fault> {
        self.root.make_symlink(place, target)?;
        self.links.insert(place.path(), (self.layer, shown(&entry.name)));
        Ok(())
    }

    /// A whiteout is a file by itself, and as harmless as its kind.
    fn hide(&self, whiteout: &Whiteout, kind: &Kind) -> Result<(), Fault> {
        match (kind, whiteout) {
            (Kind::File | Kind::Dir, Whiteout::Of(place)) if place.is_data() => {
                self.root.hide(place, self.written)
            }
            // All of the image, and of it only this is kept.
            (Kind::File | Kind::Dir, Whiteout::Inside(place)) if place.0.is_empty() => {
                self.root.hide(&Place(vec!["data".into()]), self.written)
            }
            (Kind::File | Kind::Dir, Whiteout::Inside(place)) if place.is_data() => {
                self.root.hide_inside(place, self.written)
            }
            (Kind::File | Kind::Dir, _) => Ok(()),
            (Kind::Refused(what), _) => Err(EntryProblem::Kind(what).into()),
            _ => Err(EntryProblem::Whiteout.into()),
        }
    }
}

impl Room<'_> {
    /// For the beginning of a file, or for a directory.
    fn entry(&self) -> Result<()> {
        self.content(space::on_disk(0))
    }

    fn content(&self, bytes: u64) -> Result<()> {
        self.reservation.write(bytes, self.in_use)
    }
}

impl Staging {
    fn make(dir: &Path) -> Result<Self> {
        let staging = Self(disk::temporary(dir));
        disk::make_dir(&staging.0)?;
        Ok(staging)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = disk::remove(&self.0) {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot remove a half tree");
        }
    }
}

#[cfg(test)]
mod tests;
