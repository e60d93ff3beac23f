//! Checks names of entries and targets of links before anything is written.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

use crate::EntryProblem;

/// The longest name or link target, bytes; leaves room for the store's own path.
const MAX_NAME: usize = 1024;
/// The longest part of a name, bytes; the limit of common file systems.
const MAX_PART: usize = 255;
const MAX_DEPTH: usize = 64;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The prefix of files that AUFS keeps for itself; they are ignored.
const WHITEOUT_INTERNAL: &[u8] = b".wh..wh.";

/// The path of an entry, as parts from the image's root down; empty for the root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(pub(super) Vec<OsString>);

/// The content of lower layers that a whiteout hides.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Whiteout {
    /// An entry, with its content if it is a directory.
    Of(Place),
    /// The content of a directory, but not the directory.
    Inside(Place),
    /// Nothing: a file that AUFS keeps for itself.
    Internal,
}

impl Place {
    /// Parses an entry's name, which starts at the image's root and must be without `..`.
    pub(super) fn parse(name: &[u8]) -> Result<Self, EntryProblem> {
        if name.is_empty() || name.contains(&0) {
            return Err(EntryProblem::Name);
        }
        bounded(name)?;
        let mut parts = Vec::new();
        for part in parts_of(name) {
            match part {
                b".." => return Err(EntryProblem::ParentDir),
                _ if part.len() > MAX_PART => return Err(EntryProblem::PartTooLong(MAX_PART)),
                _ => parts.push(OsStr::from_bytes(part).to_owned()),
            }
        }
        if parts.len() > MAX_DEPTH {
            return Err(EntryProblem::TooDeep(MAX_DEPTH));
        }
        Ok(Self(parts))
    }

    /// Parses a hard link's target, which starts at the image's root.
    pub(super) fn hard_link(target: &[u8]) -> Result<Self, EntryProblem> {
        if target.is_empty() || target.contains(&0) {
            return Err(EntryProblem::LinkEmpty);
        }
        bounded(target)?;
        let mut parts: Vec<OsString> = Vec::new();
        for part in parts_of(target) {
            match part {
                b".." if parts.pop().is_none() => {
                    return Err(EntryProblem::LinkOutside(shown(target)));
                }
                b".." => {}
                _ if part.len() > MAX_PART => return Err(EntryProblem::LinkTarget(shown(target))),
                _ => parts.push(OsStr::from_bytes(part).to_owned()),
            }
        }
        Ok(Self(parts))
    }

    /// The target to write for a symbolic link at this place: always relative. An absolute target
    /// starts at the image's root.
    pub(super) fn symlink(&self, target: &[u8]) -> Result<PathBuf, EntryProblem> {
        if target.is_empty() || target.contains(&0) {
            return Err(EntryProblem::LinkEmpty);
        }
        bounded(target)?;
        let up = self.0.len().saturating_sub(1);
        let absolute = target.starts_with(b"/");
        let mut depth = if absolute { 0 } else { up };
        for part in parts_of(target) {
            let step = if part == b".." { depth.checked_sub(1) } else { Some(depth + 1) };
            depth = step.ok_or_else(|| EntryProblem::LinkOutside(shown(target)))?;
        }
        if !absolute {
            return Ok(PathBuf::from(OsStr::from_bytes(target)));
        }
        let parts = parts_of(target).map(OsStr::from_bytes);
        Ok(std::iter::repeat_n(OsStr::new(".."), up).chain(parts).collect())
    }

    /// The whiteout that this entry's name stands for, if it is one (OCI image specification,
    /// layer.md).
    pub(super) fn whiteout(&self) -> Result<Option<Whiteout>, EntryProblem> {
        let Some((last, parents)) = self.0.split_last() else { return Ok(None) };
        let Some(hidden) = last.as_bytes().strip_prefix(WHITEOUT) else { return Ok(None) };
        if last.as_bytes() == OPAQUE {
            return Ok(Some(Whiteout::Inside(Self(parents.to_vec()))));
        }
        if last.as_bytes().starts_with(WHITEOUT_INTERNAL) {
            return Ok(Some(Whiteout::Internal));
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(EntryProblem::Whiteout);
        }
        let mut place = parents.to_vec();
        place.push(OsStr::from_bytes(hidden).to_owned());
        Ok(Some(Whiteout::Of(Self(place))))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.iter().collect()
    }
}

/// True if the entry of this name does not concern `/data`, the part of an image that is kept: it
/// is neither there nor a whiteout of it. A name with `..` could lead anywhere.
pub(super) fn is_ignored(name: &[u8]) -> bool {
    let mut parts = parts_of(name);
    let first = parts.next();
    if parts.clone().chain(first).any(|part| part == b"..") {
        return false;
    }
    let hides = parts.next().is_none() && matches!(first, Some(OPAQUE | b".wh.data"));
    first != Some(b"data") && !hides
}

/// Makes untrusted text readable and short for an error message.
pub(super) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut shown: String = text.chars().take(200).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn bounded(name: &[u8]) -> Result<(), EntryProblem> {
    let fits = name.len() <= MAX_NAME;
    fits.then_some(()).ok_or(EntryProblem::NameTooLong(MAX_NAME))
}

pub(super) fn parts_of(name: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        Place::parse(name.as_bytes()).expect("a good name")
    }

    #[test]
    fn names_are_taken_apart_into_plain_parts() {
        assert_eq!(place("./data//a/./b/").0, ["data", "a", "b"]);
        assert_eq!(place("//data/a").0, ["data", "a"]);
        assert_eq!(place("./").0, [""; 0]);
        for bad in ["", "/data/../x", "data/../x", "..", "a\0b"] {
            assert!(Place::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Place::parse("d/".repeat(65).as_bytes()).is_err());
        assert!(Place::parse("d".repeat(256).as_bytes()).is_err());
        assert!(Place::parse("d/d".repeat(400).as_bytes()).is_err());
    }

    #[test]
    fn an_absolute_link_means_the_root_of_the_image() {
        let link = |at: &str, to: &str| place(at).symlink(to.as_bytes()).ok();
        assert_eq!(link("data/a/link", "/data/b"), Some("../../data/b".into()));
        assert_eq!(link("data/a/link", "../b"), Some("../b".into()));
        assert_eq!(link("data/link", "../../etc"), None);
        assert_eq!(link("data/link", "/../etc"), None);
        assert_eq!(link("data/link", "a/../../../etc"), None);
        assert_eq!(link("data/link", ""), None);
    }

    #[test]
    fn whiteouts_name_the_hidden_entry() {
        let whiteout = |name: &str| place(name).whiteout();
        assert!(
            matches!(whiteout("data/.wh.x"), Ok(Some(Whiteout::Of(of))) if of == place("data/x"))
        );
        let opaque = whiteout("data/.wh..wh..opq");
        assert!(matches!(opaque, Ok(Some(Whiteout::Inside(dir))) if dir == place("data")));
        assert!(matches!(whiteout(".wh..wh.plnk"), Ok(Some(Whiteout::Internal))));
        assert!(matches!(whiteout("data/x.wh.y"), Ok(None)));
        for bad in ["data/.wh.", "data/.wh..", "data/.wh..."] {
            assert!(whiteout(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn untrusted_text_is_cut() {
        assert_eq!(shown(b"plain"), "plain");
        assert!(shown(&[b'x'; 9000]).len() < 210);
        assert!(shown(&[0xff; 9000]).len() < 700);
    }
}
