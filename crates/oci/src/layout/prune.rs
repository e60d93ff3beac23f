//! Deletes the blobs of a layout directory that no image of its index uses.

use std::{collections::HashSet, fs, io, time::Duration};

use outrigger_core::{Digest, Selector};

use super::{BLOBS, Layout, entries};
use crate::{
    Error,
    manifest::{self, Manifest},
};

/// Younger blobs are kept: they may belong to a push whose image is not in the index yet.
const MINIMUM_AGE: Duration = Duration::from_secs(60);

impl Layout {
    /// Deletes the blobs, of at least [`MINIMUM_AGE`], that no image of the index uses.
    pub(crate) fn prune(&self) -> Result<(), Error> {
        let _lock = self.lock()?;
        let used = self.used()?;
        let directory = self.directory.join(BLOBS);
        for blob in fs::read_dir(&directory).map_err(Error::io(&directory))? {
            let blob = blob.map_err(Error::io(&directory))?;
            if blob.file_name().to_str().is_some_and(|name| used.contains(name)) {
                continue;
            }
            if is_old(&blob).map_err(Error::io(&blob.path()))? {
                fs::remove_file(blob.path()).map_err(Error::io(&blob.path()))?;
            }
        }
        Ok(())
    }

    /// The names of the blobs of all images in the index.
    fn used(&self) -> Result<HashSet<String>, Error> {
        let index = self.index()?.ok_or_else(|| self.missing())?;
        let what = self.index_path().display().to_string();
        let digest = |text: &str| {
            text.parse::<Digest>().map_err(|error| Error::invalid(&what, error.to_string()))
        };
        let mut used = HashSet::new();
        let listed = entries(&index).iter().map(|entry| entry["digest"].as_str());
        let mut manifests: Vec<_> = listed.flatten().map(digest).collect::<Result<_, _>>()?;
        while let Some(next) = manifests.pop() {
            if !used.insert(next.hex()) {
                continue;
            }
            let stored = self.manifest(&Selector::Digest(next))?;
            match manifest::parse(&what, &stored.body, None)? {
                Manifest::Image(image) => {
                    for blob in image.layers.iter().chain([&image.config]) {
                        used.insert(digest(&blob.digest)?.hex());
                    }
                }
                Manifest::Index(index) => {
                    for entry in index.manifests {
                        manifests.push(digest(&entry.digest)?);
                    }
                }
            }
        }
        Ok(used)
    }
}

fn is_old(blob: &fs::DirEntry) -> io::Result<bool> {
    let age = blob.metadata()?.modified()?.elapsed();
    Ok(age.is_ok_and(|age| age >= MINIMUM_AGE))
}
