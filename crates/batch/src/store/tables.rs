//! Objects that are tables.

use std::{path::Path, sync::Arc};

use outrigger_tables::{self as tables, Format, Limits, ReadAt, Root, Table, TextFile};

use super::{Kind, Store};
use crate::Error;

impl Store {
    /// Opens an object that is a table of Parquet.
    ///
    /// # Errors
    /// It is missing, or is no table within the limits.
    pub(crate) fn table(&self, name: &str, limits: Limits) -> Result<Table, Error> {
        let local = |path: &Path| Table::open(&Root::Any, path, limits);
        self.opened(name, local, |object, path| Table::elsewhere(object, path, limits))
    }

    /// Opens an object that is text. Nothing is read.
    ///
    /// # Errors
    /// It is missing.
    pub(crate) fn text(
        &self,
        name: &str,
        format: Format,
        limits: Limits,
    ) -> Result<TextFile, Error> {
        let local = |path: &Path| TextFile::open(&Root::Any, path, format, limits);
        self.opened(name, local, |object, path| TextFile::elsewhere(object, path, format, limits))
    }

    fn opened<T>(
        &self,
        name: &str,
        local: impl FnOnce(&Path) -> Result<T, tables::Error>,
        elsewhere: impl FnOnce(Arc<dyn ReadAt>, &Path) -> Result<T, tables::Error>,
    ) -> Result<T, Error> {
        let path = self.root().join(name);
        match &self.kind {
            Kind::Local(_) => Ok(local(&path)?),
            Kind::Remote(remote) => {
                let object = remote.open(name).map_err(|error| Error::store(name, &error))?;
                let missing = || Error::failed(format!("{} is missing", path.display()));
                Ok(elsewhere(Arc::new(object.ok_or_else(missing)?), &path)?)
            }
        }
    }
}
