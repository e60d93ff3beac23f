//! The final checks of an unpacked image before it becomes a tree: every symbolic link is resolved,
//! all directories are synced, and the files are a model package.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashSet},
    fs::{self, Metadata},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use bytesize::ByteSize;
use outrigger_core::{Digest, Layouts, PackageLayout};

use super::name::shown;
use crate::{
    EntryProblem, Error, PackageProblem, Result, disk,
    space::on_disk,
    tree::{MAX_GOLDEN, MAX_METADATA, MAX_PROFILE},
};

/// The origin of each symbolic link: its layer, and the entry's name in it.
pub(super) type Links = BTreeMap<PathBuf, (Digest, String)>;

/// The paths of a package's parts, relative to the tree.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) model: String,
    pub(super) metadata: String,
    pub(super) golden: Option<String>,
    pub(super) profile: Option<String>,
}

/// Checks the files unpacked into `tree`, and syncs its directories. Returns the paths of the
/// package's parts, and the tree's size on the disk.
pub(super) fn seal(
    tree: &Path,
    image: Digest,
    links: &Links,
    layouts: &Layouts,
) -> Result<(Parts, u64)> {
    let tree = fs::canonicalize(tree).map_err(|error| Error::io("look at", tree, error))?;
    let data = tree.join("data");
    let not_package = |problem| Error::Package { image, problem };
    if !fs::symlink_metadata(&data).is_ok_and(|metadata| metadata.is_dir()) {
        let to = |target: PathBuf| PackageProblem::DataLink(shown(target.as_os_str().as_bytes()));
        return Err(not_package(fs::read_link(&data).map_or(PackageProblem::NoData, to)));
    }
    let mut walk = Walk { tree: &tree, links, seen: HashSet::new(), bytes: 0 };
    walk.dir(&data)?;
    let bytes = walk.bytes;
    let metadata = find_metadata(&tree, layouts).map_err(not_package)?;
    let content = disk::read(&tree.join(&metadata), MAX_METADATA.as_u64())?.unwrap_or_default();
    let layouts = layouts.of(&content)?;
    let parts = find(&tree, metadata, &layouts).map_err(not_package)?;
    no_links_to_directories(&tree, &parts.model, links)?;
    Ok((parts, bytes))
}

struct Walk<'a> {
    tree: &'a Path,
    links: &'a Links,
    /// Inodes of files with several names, so that they count once.
    seen: HashSet<u64>,
    bytes: u64,
}

impl Walk<'_> {
    fn dir(&mut self, dir: &Path) -> Result<()> {
        self.bytes += on_disk(0);
        for path in disk::list(dir)? {
            let metadata =
                fs::symlink_metadata(&path).map_err(|error| Error::io("look at", &path, error))?;
            if metadata.is_dir() {
                self.dir(&path)?;
            } else if metadata.is_symlink() {
                self.link(&path)?;
            } else {
                self.file(&metadata);
            }
        }
        disk::sync_dir(dir)
    }

    fn file(&mut self, metadata: &Metadata) {
        if metadata.nlink() == 1 || self.seen.insert(metadata.ino()) {
            self.bytes += on_disk(metadata.len());
        }
    }

    fn link(&self, path: &Path) -> Result<()> {
        let refused = |problem: fn(String) -> EntryProblem| {
            Err(refusal(self.tree, path, self.links, problem))
        };
        match fs::canonicalize(path) {
            Ok(target) if target.starts_with(self.tree.join("data")) => Ok(()),
            Ok(target) if !target.starts_with(self.tree) => refused(EntryProblem::LinkOutside),
            _ => refused(EntryProblem::LinkTarget),
        }
    }
}

/// Refuses symbolic links to directories within the model's directory. The engine walks it to
/// estimate the model's size, and such a link could make the walk endless.
fn no_links_to_directories(tree: &Path, model: &str, links: &Links) -> Result<()> {
    let inside = links.keys().filter(|path| path.starts_with(model));
    for path in inside.map(|path| tree.join(path)) {
        // A later entry may have replaced the link.
        let is_link = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        if is_link && path.is_dir() {
            return Err(refusal(tree, &path, links, EntryProblem::LinkDirectory));
        }
    }
    Ok(())
}

fn refusal(tree: &Path, path: &Path, links: &Links, problem: fn(String) -> EntryProblem) -> Error {
    let target = fs::read_link(path).unwrap_or_default();
    let relative = path.strip_prefix(tree).unwrap_or(path);
    let (layer, entry) =
        links.get(relative).cloned().expect("every link that was created is recorded");
    Error::Entry { layer, entry, problem: problem(shown(target.as_os_str().as_bytes())) }
}

fn find(tree: &Path, metadata: String, layouts: &[PackageLayout]) -> Result<Parts, PackageProblem> {
    let beside = |name| {
        let path = metadata.replace("metadata.json", name);
        tree.join(&path).is_file().then_some(path)
    };
    let (golden, profile) = (beside("golden.jsonl"), beside("profile.json"));
    for (file, most) in [(&golden, MAX_GOLDEN), (&profile, MAX_PROFILE)] {
        file.iter().try_for_each(|file| bounded(tree, file, most))?;
    }
    let (model, layout) = find_model(tree, layouts)?;
    for file in [only_file(tree, &model, layout)?].into_iter().chain(parts(tree, &model, layout)?) {
        bounded(tree, &file, ByteSize(layout.max_file))?;
    }
    Ok(Parts { model, metadata, golden, profile })
}

/// metadata.json is in `/data`, or beside the directory of the model.
fn find_metadata(tree: &Path, layouts: &Layouts) -> Result<String, PackageProblem> {
    let places: Vec<_> = layouts.metadata().iter().map(|place| format!("data/{place}")).collect();
    let found = places.iter().find(|place| tree.join(place).is_file()).cloned();
    let found = found.ok_or_else(|| PackageProblem::NoMetadata(listed(&places, " and ")))?;
    bounded(tree, &found, MAX_METADATA)?;
    Ok(found)
}

/// The model's directory without symbolic links on its path, so that everything that the engine
/// walks has been checked; and the layout by which it was found.
fn find_model<'a>(
    tree: &Path,
    layouts: &'a [PackageLayout],
) -> Result<(String, &'a PackageLayout), PackageProblem> {
    let no_model = || {
        let places = layouts.iter().map(|layout| {
            let within = if layout.versioned { " and in its numeric directories" } else { "" };
            format!("{} in /data/{}{within}", layout.files.join(" or "), layout.directory)
        });
        PackageProblem::NoModel(places.collect::<Vec<_>>().join(", for "))
    };
    for layout in layouts {
        let Some(dir) = directory_of(tree, layout)? else { continue };
        let dir = fs::canonicalize(dir).map_err(|_| no_model())?;
        let relative = dir.strip_prefix(tree).ok().and_then(Path::to_str).ok_or_else(no_model)?;
        return Ok((relative.to_owned(), layout));
    }
    Err(no_model())
}

/// The directory of a model of `layout`, if the image holds one.
fn directory_of(tree: &Path, layout: &PackageLayout) -> Result<Option<PathBuf>, PackageProblem> {
    let outer = tree.join("data").join(layout.directory);
    let has_model = |dir: &Path| layout.paths(dir).any(|file| file.is_file());
    if has_model(&outer) {
        return Ok(Some(outer));
    }
    let children = disk::list(&outer).ok().filter(|_| layout.versioned).unwrap_or_default();
    let mut models = children.into_iter().filter(|dir| is_numeric(dir) && has_model(dir));
    let Some(first) = models.next() else { return Ok(None) };
    let others: Vec<_> = models.collect();
    if others.is_empty() {
        return Ok(Some(first));
    }
    let names = others.iter().take(5).chain([&first]).filter_map(|dir| dir.file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    names.sort();
    Err(several(layout, &names))
}

/// The model's file in its directory, both relative to the tree.
fn only_file(tree: &Path, model: &str, layout: &PackageLayout) -> Result<String, PackageProblem> {
    let is_file = |file: &&&str| tree.join(model).join(file).is_file();
    let held: Vec<_> = layout.files.iter().filter(is_file).copied().collect();
    match &held[..] {
        [file] => Ok(format!("{model}/{file}")),
        _ => Err(several(layout, &held)),
    }
}

/// The further files of the model, relative to the tree.
fn parts(tree: &Path, model: &str, layout: &PackageLayout) -> Result<Vec<String>, PackageProblem> {
    let path = |part: &&str| {
        let path = format!("{model}/{part}");
        if tree.join(&path).is_file() { Ok(path) } else { Err(PackageProblem::NoPart(path)) }
    };
    layout.parts.iter().map(path).collect()
}

fn several(layout: &PackageLayout, names: &[impl Borrow<str>]) -> PackageProblem {
    let directory = layout.directory.to_owned();
    PackageProblem::SeveralModels { directory, names: names.join(", ") }
}

fn listed(places: &[String], separator: &str) -> String {
    let places: Vec<_> = places.iter().map(|place| format!("/{place}")).collect();
    places.join(separator)
}

fn is_numeric(dir: &Path) -> bool {
    let name = dir.file_name().map(|name| name.as_bytes()).unwrap_or_default();
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

fn bounded(tree: &Path, file: &str, max: ByteSize) -> Result<(), PackageProblem> {
    let size = fs::metadata(tree.join(file)).map(|metadata| ByteSize(metadata.len()));
    match size.unwrap_or(ByteSize(0)) {
        ByteSize(0) => Err(PackageProblem::Empty(file.to_owned())),
        size if size > max => Err(PackageProblem::TooLarge { path: file.to_owned(), size, max }),
        _ => Ok(()),
    }
}
