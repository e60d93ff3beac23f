//! A model that both sides score, and the rows for it.

use std::{
    fs::{self, File},
    io::BufReader,
    ops::Range,
    path::{Path, PathBuf},
};

use outrigger_trees as trees;

use crate::{Result, rows::Entries};

/// A model with rows.
pub(crate) struct Model {
    /// The name of its files.
    pub(crate) name: String,
    /// The file of its library.
    pub(crate) file: PathBuf,
    /// The model, as this project reads it.
    pub(crate) trees: trees::Model,
    /// The columns of a row.
    pub(crate) width: usize,
    /// Dense rows, one after the other.
    pub(crate) rows: Vec<f32>,
}

impl Model {
    /// Reads `PATH.json` or `PATH.txt`, and `PATH.rows`.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let files = ["json", "txt"].map(|ending| path.with_extension(ending));
        let file = files.into_iter().find(|file| file.exists()).ok_or("there is no model")?;
        let trees = read_trees(&file)?;
        let bytes = fs::read(path.with_extension("rows"))?;
        let (values, rest) = bytes.as_chunks::<4>();
        let rows: Vec<_> = values.iter().copied().map(f32::from_le_bytes).collect();
        let width = trees.features();
        if !rest.is_empty() || rows.len() % width != 0 {
            return Err(format!("{}: no whole rows of {width} columns", path.display()).into());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, file, trees, width, rows })
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() / self.width
    }

    /// Batches of `count` rows each. Rows beyond the last whole batch are left out.
    pub(crate) fn batches(&self, count: usize) -> Vec<Range<usize>> {
        let starts = (0..self.len()).step_by(count);
        starts.map(|start| start..start + count).filter(|batch| batch.end <= self.len()).collect()
    }
}

/// Reads a model file as this project does.
pub(crate) fn read_trees(file: &Path) -> Result<trees::Model> {
    let opened = File::open(file)?;
    let size = opened.metadata()?.len();
    Ok(trees::Model::read(&mut BufReader::new(opened), size, &trees::Limits::default())?)
}

/// Margins in the precision of a library.
pub(crate) enum Margins<'a> {
    Single(&'a [f32]),
    Double(&'a [f64]),
}

impl Margins<'_> {
    /// Appends the bits of all margins.
    pub(crate) fn append_bits(&self, bits: &mut Vec<u64>) {
        match self {
            Self::Single(margins) => {
                bits.extend(margins.iter().map(|margin| u64::from(margin.to_bits())));
            }
            Self::Double(margins) => bits.extend(margins.iter().map(|margin| margin.to_bits())),
        }
    }
}

/// A library with a model loaded into it.
pub(crate) trait Scorer {
    /// Prepares calls for batches of `rows`, of which each has `width` columns. The rows must not
    /// move or change until the last call with them.
    fn prepare(&mut self, rows: &[f32], width: usize, batches: &[Range<usize>]) -> Result<()>;

    /// The margins of the batch `at` of those that were prepared with `rows`.
    fn margins(&mut self, rows: &[f32], at: usize) -> Result<Margins<'_>>;

    /// The margins of sparse rows, which need no preparation.
    fn margins_of(&mut self, _: &Entries) -> Result<Margins<'_>> {
        Err("this library is only asked about dense rows".into())
    }
}

/// The place of a batch of rows among all values.
pub(crate) fn values(batch: &Range<usize>, width: usize) -> Range<usize> {
    batch.start * width..batch.end * width
}
