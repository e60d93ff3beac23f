//! GBDT+FM, and the part of it that XGBoost Serving leaves to XGBoost.
//!
//! A directory has the files of XGBoost Serving, and `ids` and `weights`: the bytes of the u64 and
//! f32 of the features of all rows.

use std::{
    fs::{self, File},
    hint::black_box,
    io::BufReader,
    ops::Range,
    path::Path,
};

use outrigger_fm as fm;
use serde_json::Value;

use crate::{
    Result, timer,
    xgboost::{Leaves, Library, Sparse, Threads},
};

/// Features of a row.
const FEATURES: usize = 30;

/// A library with a model, and batches of rows that can be scored by several threads at once.
pub(crate) trait Batches: Sync {
    /// Prepares batches of rows, which replace those before.
    fn prepare(&mut self, batches: &[Range<usize>]) -> Result<()>;

    /// Scores a batch.
    fn score(&self, batch: usize) -> Result<()>;

    /// The number of rows that there are.
    fn rows(&self) -> usize;
}

/// Loads the model in a directory into a library.
pub(crate) fn read(library: &str, directory: &Path, threads: Threads) -> Result<Box<dyn Batches>> {
    let features = Features::read(directory)?;
    if library == "ours" {
        let (model, batches) = (model(directory)?, Vec::new());
        return Ok(Box::new(Ours { model, features, batches }));
    }
    let leaves = Leaves::new(Library::open(library)?, &directory.join("deploy.model"), threads)?;
    Ok(Box::new(LeavesOnly { leaves, features, batches: Vec::new() }))
}

/// Seconds a call with `count` rows.
pub(crate) fn seconds(library: &mut dyn Batches, count: usize) -> Result<Value> {
    let starts = (0..library.rows() / count).map(|at| at * count);
    let batches: Vec<_> = starts.map(|start| start..start + count).collect();
    library.prepare(&batches)?;
    timer::seconds(|at| library.score(at % batches.len()))
}

/// The features of all rows.
struct Features {
    ids: Vec<u64>,
    weights: Vec<f32>,
}

impl Features {
    fn read(directory: &Path) -> Result<Self> {
        let ids = numbers(&directory.join("ids"), u64::from_le_bytes)?;
        let weights = numbers(&directory.join("weights"), f32::from_le_bytes)?;
        Ok(Self { ids, weights })
    }

    fn rows(&self) -> usize {
        self.ids.len() / FEATURES
    }

    /// Ids and weights of some rows.
    fn of(&self, rows: &Range<usize>) -> (&[u64], &[f32]) {
        let values = rows.start * FEATURES..rows.end * FEATURES;
        (&self.ids[values.clone()], &self.weights[values])
    }
}

/// The numbers in a file.
fn numbers<const N: usize, T>(file: &Path, number: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
    let bytes = fs::read(file)?;
    Ok(bytes.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect())
}

/// The whole model, in this project.
struct Ours {
    model: fm::Model,
    features: Features,
    /// Rows with the offsets of their features, and as many offsets of rows without any.
    batches: Vec<(Range<usize>, Vec<u32>, Vec<u32>)>,
}

impl Batches for Ours {
    fn prepare(&mut self, batches: &[Range<usize>]) -> Result<()> {
        let described = batches.iter().map(|rows| {
            let offsets = (0..=rows.len()).map(|row| (row * FEATURES) as u32).collect();
            (rows.clone(), offsets, vec![0; rows.len() + 1])
        });
        self.batches = described.collect();
        Ok(())
    }

    fn score(&self, batch: usize) -> Result<()> {
        let (rows, offsets, none) = &self.batches[batch];
        let (ids, weights) = self.features.of(rows);
        let mut out = vec![0.0; rows.len() * self.model.classes()];
        let trees = fm::SparseRows::new(ids, weights, offsets)?;
        let rows = fm::Rows::new(trees, fm::SparseRows::new(&[], &[], none)?)?;
        self.model.score(rows, &fm::Options::default(), &mut out);
        black_box(&out);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.features.rows()
    }
}

fn model(directory: &Path) -> Result<fm::Model> {
    let open = |name| {
        let opened = File::open(directory.join(name))?;
        let size = opened.metadata()?.len();
        Ok::<_, std::io::Error>((BufReader::new(opened), size))
    };
    let mut trees = open("deploy.model")?;
    let mut machine = open("deploy.fm")?;
    let mut leaf_mapping = open("deploy.leaf_mapping")?;
    let files = fm::Files {
        trees: fm::File { content: &mut trees.0, size: trees.1 },
        fm: fm::File { content: &mut machine.0, size: machine.1 },
        leaf_mapping: fm::File { content: &mut leaf_mapping.0, size: leaf_mapping.1 },
    };
    Ok(fm::Model::read(files, &fm::Reading::new(fm::Kind::Binary))?)
}

/// The leaf prediction alone, in XGBoost.
struct LeavesOnly {
    leaves: Leaves,
    features: Features,
    batches: Vec<Sparse>,
}

impl Batches for LeavesOnly {
    fn prepare(&mut self, batches: &[Range<usize>]) -> Result<()> {
        let described = batches.iter().map(|rows| {
            let (ids, weights) = self.features.of(rows);
            let columns = ids.iter().map(|id| Ok(u32::try_from(*id)?)).collect::<Result<_>>()?;
            let offsets = (0..=rows.len()).map(|row| row * FEATURES).collect();
            Ok(Sparse { columns, values: weights.to_vec(), offsets })
        });
        self.batches = described.collect::<Result<_>>()?;
        Ok(())
    }

    fn score(&self, batch: usize) -> Result<()> {
        black_box(self.leaves.find(&self.batches[batch])?);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.features.rows()
    }
}
