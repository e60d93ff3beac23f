//! The packages of Python that the code of a package needs.

use std::{iter, path::Path};

use crate::{
    framework::{MODELS, Package},
    repository::read,
};

const FILE: &str = "requirements.txt";
/// The most requirements that a remark lists.
const MOST: usize = 32;

/// A remark that lists the requirements of a package and of the models that it carries. No server of
/// the protocol can be asked for its packages.
pub(crate) fn remark(directory: &Path) -> Option<String> {
    let carried = Package::read(directory).ok()?.carried;
    let models = carried.iter().map(|name| directory.join(MODELS).join(&**name));
    let files = iter::once(directory.to_owned()).chain(models).map(|place| place.join(FILE));
    let texts: Vec<_> = files.filter_map(|file| read(&file).ok()?).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let lines = lines.map(|line| line.split(" #").next().unwrap_or(line).trim());
    let names: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let listed = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| {
        format!("{FILE} names {listed}{more}: nothing installs them, so the servers must have them")
    })
}
