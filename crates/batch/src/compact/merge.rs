//! The making of one file of several.

use outrigger_tables::{BatchWriter, Format, Table};

use super::tree::{Child, Node};
use crate::{
    Error, Manifest, Store,
    commit::DataFile,
    finished::{self, batch_rows},
    store::NewObject,
};

/// Makes the files of a compaction.
#[derive(Debug)]
pub(super) struct Merger<'a> {
    pub(super) source: &'a Store,
    pub(super) to: &'a Store,
    /// The files of the job.
    pub(super) files: &'a [DataFile],
    /// The format of these files, and of those that are made.
    pub(super) format: Format,
    /// Bytes of an answer for one row.
    pub(super) answer_bytes: u64,
}

impl Merger<'_> {
    /// Makes the file of a node, unless it is there, and removes its parts.
    ///
    /// # Errors
    /// A file is missing or was changed, has other columns, or the store failed.
    pub(super) fn merge(&self, node: &Node) -> Result<(), Error> {
        let (name, children) = (node.name(self.format), node.children());
        let object = self.to.begin(&name).map_err(|error| Error::store(&name, &error))?;
        let object = match (&children[..], self.format) {
            // A file that stays alone is copied as it is, and lines are joined as they are.
            ([Child::File(_)], _) | (_, Format::Jsonl | Format::Csv) => {
                self.joined(&children, object)?
            }
            (children, Format::Parquet) => self.merged(&name, children, object)?,
        };
        // It is no error if another process was faster.
        object.finish().map_err(|error| Error::store(&name, &error))?;
        for child in children {
            if let Child::Part(part) = child {
                let part = part.name(self.format);
                self.to.remove(&part).map_err(|error| Error::store(&part, &error))?;
            }
        }
        Ok(())
    }

    /// Writes the content of files, one after the other. Those of the job are compared with their
    /// hash; parts are whole.
    fn joined(&self, children: &[Child], mut object: NewObject) -> Result<NewObject, Error> {
        for child in children {
            match child {
                Child::File(file) => {
                    finished::copy_checked(self.source, &self.files[*file], &mut object)?;
                }
                Child::Part(part) => {
                    finished::copy(self.to, &part.name(self.format), &mut object)?;
                }
            }
        }
        Ok(object)
    }

    fn merged(
        &self,
        name: &str,
        children: &[Child],
        object: NewObject,
    ) -> Result<NewObject, Error> {
        let failed = |error: String| Error::failed(format!("{name}: {error}"));
        let tables = children.iter().map(|child| self.table(child));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let first = tables.first().ok_or_else(|| failed("it has no parts".to_owned()))?;
        let schema = first.schema().clone();
        let columns: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut writer = BatchWriter::new(object, &schema).map_err(failed)?;
        for table in &tables {
            if table.schema().fields() != schema.fields() {
                return Err(failed("its parts have different columns".to_owned()));
            }
            let all = 0..table.rows();
            let mut rows = table.read(std::slice::from_ref(&all), &columns)?;
            while let Some(rows) = rows.next(batch_rows(self.answer_bytes))? {
                writer.write(&rows).map_err(failed)?;
            }
        }
        writer.finish().map_err(failed)
    }

    /// Opens a file of the job, after its content was compared with its hash, or a part, which
    /// is whole.
    fn table(&self, child: &Child) -> Result<Table, Error> {
        match child {
            Child::File(file) => {
                let file = &self.files[*file];
                finished::check(self.source, file)?;
                finished::parquet(self.source, &file.name)
            }
            Child::Part(part) => finished::parquet(self.to, &part.name(self.format)),
        }
    }

    /// Joins the dead letters in one object, if there are any.
    ///
    /// # Errors
    /// A file is missing or was changed, or the store failed.
    pub(super) fn letters(&self, manifest: &Manifest, name: &str) -> Result<(), Error> {
        if manifest.dead_letters().next().is_none() {
            return Ok(());
        }
        let mut object = self.to.begin(name).map_err(|error| Error::store(name, &error))?;
        for letters in manifest.dead_letters() {
            finished::copy_checked(self.source, letters, &mut object)?;
        }
        object.finish().map(drop).map_err(|error| Error::store(name, &error))
    }
}
