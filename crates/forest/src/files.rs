//! The files of a package's models.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use outrigger_core::Failure;
use outrigger_trees::{Error, Header, Limits, Model};

use crate::{invalid, libraries};

/// Reads the trees of the model in `directory`, for rows of float64 if `is_double`. Blocks.
///
/// # Errors
/// IMAGE_INVALID when the file is missing or is not valid.
pub(crate) fn model(directory: &Path, is_double: bool) -> Result<Model, Failure> {
    read(directory, reader(is_double), &Limits::default())
}

/// Reads the description of the model in `directory` within `limits`, without its trees. Blocks.
///
/// # Errors
/// As [`model`], or the description does not fit the limits.
pub(crate) fn header(directory: &Path, limits: &Limits) -> Result<Header, Failure> {
    read(directory, Header::read, limits)
}

/// Reads the trees in the file at `path`, which messages call `name`, as [`model`] does. Blocks.
///
/// # Errors
/// IMAGE_INVALID when the file is not valid.
pub(crate) fn model_at(path: &Path, name: &str, is_double: bool) -> Result<Model, Failure> {
    read_at(path, name, reader(is_double), &Limits::default())
}

fn reader(is_double: bool) -> Reader<Model> {
    if is_double { Model::read_for_f64 } else { Model::read }
}

type Reader<T> = fn(&mut dyn BufRead, u64, &Limits) -> Result<T, Error>;

fn read<T>(directory: &Path, reader: Reader<T>, limits: &Limits) -> Result<T, Failure> {
    let path = libraries::file(directory)?;
    let name = path.file_name().unwrap_or_default().display().to_string();
    read_at(&path, &name, reader, limits)
}

fn read_at<T>(path: &Path, name: &str, reader: Reader<T>, limits: &Limits) -> Result<T, Failure> {
    let read = || {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        reader(&mut BufReader::new(file), size, limits)
    };
    read().map_err(|error: Error| invalid(format!("{name}: {error}")))
}
