//! The sources of a configuration, kept so that it can be loaded again.

use std::{fs, path::PathBuf};

use super::{Invalid, Kinds, Loaded, load};
use crate::file_error::FileError;

/// The sources of a configuration: its file, and the environment and flags of the start.
#[derive(Clone)]
pub struct Source {
    kinds: Kinds,
    file: Option<PathBuf>,
    environment: Vec<(String, String)>,
    overrides: Vec<(String, String)>,
    text: Option<String>,
}

impl Source {
    /// Reads the file, if there is one. `kinds`, `environment` and `overrides` are as for [`load`].
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(
        kinds: Kinds,
        file: Option<PathBuf>,
        environment: Vec<(String, String)>,
        overrides: Vec<(String, String)>,
    ) -> Result<Self, FileError> {
        let mut source = Self { kinds, file, environment, overrides, text: None };
        source.text = source.read()?;
        Ok(source)
    }

    /// Makes a configuration from the text that the file had when it was opened.
    ///
    /// # Errors
    /// As for [`load`].
    pub fn load(&self) -> Result<Loaded, Invalid> {
        self.parse(self.text.as_deref())
    }

    /// Makes a configuration from another text of the file.
    ///
    /// # Errors
    /// As for [`load`].
    pub(crate) fn parse(&self, text: Option<&str>) -> Result<Loaded, Invalid> {
        load(&self.kinds, text, self.environment.iter().cloned(), &self.overrides)
    }

    /// The kinds of engines that there are.
    pub(crate) fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// The text that the file had when it was opened.
    pub(crate) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Reads the text that the file has now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(&self) -> Result<Option<String>, FileError> {
        let Some(path) = &self.file else { return Ok(None) };
        fs::read_to_string(path).map(Some).map_err(|error| FileError::new(path, error))
    }
}
