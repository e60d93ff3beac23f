//! Checks and writes the entries of a layer.

use std::{
    collections::HashSet,
    fs::File,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use bytesize::ByteSize;
use outrigger_core::Digest;

use super::{
    archive::{Archive, Entry, Kind},
    name::{Place, Whiteout, is_ignored, shown},
    root::{Fault, Root},
    seal::Links,
};
use crate::{EntryProblem, Error, InUse, Reservation, Result, space};

/// The size of the pieces in which content is copied.
const CHUNK: usize = 64 << 10;
/// The bytes of all names of one layer, which are kept in memory while it is unpacked.
const NAMES: usize = 8 << 20;

/// Reserves space as the tree grows.
pub(super) struct Room<'a> {
    pub(super) reservation: &'a Reservation,
    pub(super) in_use: InUse<'a>,
}

/// Writes the entries of one layer below the image's root.
pub(super) struct Writer<'a> {
    root: &'a Root,
    layer: Digest,
    links: &'a mut Links,
    room: &'a Room<'a>,
    /// Paths that this layer has written; its own whiteouts do not hide them.
    written: HashSet<PathBuf>,
    /// Whiteouts already applied. Applying one again would change nothing, but scan everything
    /// written since.
    hidden: HashSet<Whiteout>,
    /// The bytes that the names of the layer may still have.
    names: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        root: &'a Root,
        layer: Digest,
        links: &'a mut Links,
        room: &'a Room<'a>,
    ) -> Self {
        Self {
            root,
            layer,
            links,
            room,
            written: HashSet::new(),
            hidden: HashSet::new(),
            names: NAMES,
        }
    }

    pub(super) fn entry(&mut self, entry: &Entry, archive: &mut Archive<'_>) -> Result<(), Fault> {
        let place = self.root.real(&Place::parse(&entry.name)?)?;
        // A link on the way may lead out of what is kept.
        if is_ignored(place.path().as_os_str().as_bytes()) {
            return Ok(());
        }
        let names = self.names.checked_sub(entry.name.len());
        self.names = names.ok_or(EntryProblem::Names(ByteSize(NAMES as u64)))?;
        if let Some(whiteout) = place.whiteout()? {
            return self.hide(whiteout);
        }
        self.make(entry, &place, archive)?;
        self.written.insert(place.path());
        Ok(())
    }

    fn make(
        &mut self,
        entry: &Entry,
        place: &Place,
        archive: &mut Archive<'_>,
    ) -> Result<(), Fault> {
        match &entry.kind {
            Kind::Refused(what) => Err(EntryProblem::Kind(what).into()),
            Kind::Unknown(byte) => Err(EntryProblem::UnknownKind(*byte).into()),
            Kind::Symlink(target) => {
                let target = place.symlink(target)?;
                self.symlink(entry, place, &target)
            }
            Kind::HardLink(target) => {
                let target = self.root.real(&Place::hard_link(target)?)?;
                self.root.make_hard_link(place, &target)
            }
            Kind::Dir => {
                self.room.entries(1)?;
                self.root.make_dir(place)
            }
            Kind::File => self.file(entry, place, archive),
        }
    }

    fn file(&self, entry: &Entry, place: &Place, archive: &mut Archive<'_>) -> Result<(), Fault> {
        let file = self.root.make_file(place)?;
        Ok(self.room.copy(|buffer| archive.read(buffer), entry.size, file, &place.path())?)
    }

    fn symlink(&mut self, entry: &Entry, place: &Place, target: &Path) -> Result<(), Fault> {
        self.root.make_symlink(place, target)?;
        self.links.insert(place.path(), (self.layer, shown(&entry.name)));
        Ok(())
    }

    /// Applies a whiteout, whatever the type of its entry.
    fn hide(&mut self, whiteout: Whiteout) -> Result<(), Fault> {
        if self.hidden.contains(&whiteout) {
            return Ok(());
        }
        match &whiteout {
            Whiteout::Of(place) => self.root.hide(place, &self.written)?,
            // Hides the whole image, of which only `/data` is kept.
            Whiteout::Inside(place) if place.0.is_empty() => {
                self.root.hide(&Place(vec!["data".into()]), &self.written)?;
            }
            Whiteout::Inside(place) => self.root.hide_inside(place, &self.written)?,
            Whiteout::Internal => {}
        }
        self.hidden.insert(whiteout);
        Ok(())
    }
}

impl Room<'_> {
    /// Reserves the first block of each of `count` files or directories.
    pub(super) fn entries(&self, count: u64) -> Result<()> {
        if count == 0 { Ok(()) } else { self.content(space::on_disk(0).saturating_mul(count)) }
    }

    fn content(&self, bytes: u64) -> Result<()> {
        self.reservation.write(bytes, self.in_use)
    }

    /// Writes what `read` returns until it returns 0, about `size` bytes, to the new `file` at
    /// `path`.
    pub(super) fn copy(
        &self,
        mut read: impl FnMut(&mut [u8]) -> Result<usize>,
        size: u64,
        mut file: File,
        path: &Path,
    ) -> Result<()> {
        let failed = |error| Error::io("write", path, error);
        let mut buffer = vec![0; usize::try_from(size).unwrap_or(CHUNK).clamp(1, CHUNK)];
        self.entries(1)?;
        loop {
            let count = read(&mut buffer)?;
            if count == 0 {
                break;
            }
            self.content(count as u64)?;
            file.write_all(&buffer[..count]).map_err(failed)?;
        }
        file.sync_all().map_err(failed)
    }
}
