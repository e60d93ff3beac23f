//! Trees whose leaves are features of a factorisation machine: the models of XGBoost Serving's
//! `alphafm` and `alphafm_softmax`.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use outrigger_core::{DType, Describer, Failure, Interface, PackageLayout, Tensor, TensorSpec};
use outrigger_fm::{
    self as fm, Files, Head, Kind, Limits, Names, Output, Precision, Reading, Rows, RowsError,
};
use outrigger_run::{
    Call, Framework, PackagedModel, RunError, StageTimes,
    local::{self, malformed, not_finite, tensor},
};
use serde::Deserialize;

use crate::{
    describe, divide, invalid, model,
    scoring::read_options,
    sparse::{CallRows, FM_FEATURES, SparseInput, XGBOOST_FEATURES},
};

/// The framework of models with two classes. Its describer is that of both frameworks.
pub const GBDT_FM: Framework = Framework {
    describer: Some(describe::MACHINE),
    ..framework("gbdt_fm", |model, signature| interface(model, signature, Kind::Binary))
};

/// The framework of models with any number of classes.
pub const GBDT_FM_SOFTMAX: Framework =
    framework("gbdt_fm_softmax", |model, signature| interface(model, signature, Kind::Softmax));

/// The file of the factorisation machine, and that of the leaves' features.
const PARTS: [&str; 2] = ["deploy.fm", "deploy.leaf_mapping"];

/// The file with the ids of features that have names in the file of the machine, if it exists.
const NAMES: &str = "deploy.names";

/// Reading a model may take this many times the size of its files, in bytes: a short line becomes
/// the numbers of a feature, padded, which are copied once.
const PER_BYTE: u64 = 4;

/// Bytes that reading a model may take whatever the size of its files.
const OVERHEAD: u64 = 4 << 20;

/// The outputs by name.
const OUTPUTS: [(&str, Output); 2] = [("score", Output::Value), ("margin", Output::Margin)];

/// The stage of a run that finds the leaves of the trees in which the rows end, or scores with them.
pub(crate) const TREES: &str = "trees";

/// The stage of a run that scores with the machine.
const MACHINE: &str = "machine";

/// The inputs.
const INPUTS: [&SparseInput; 2] = [&XGBOOST_FEATURES, &FM_FEATURES];

type ReadInterface = fn(&PackagedModel, &str) -> Result<Interface, Failure>;

const fn framework(name: &'static str, interface: ReadInterface) -> Framework {
    let layout = PackageLayout {
        directory: "gbdt_fm",
        files: &[describe::MODEL, "model.ubj", "model.json", "model.bin"],
        parts: &PARTS,
        max_file: 8 << 30,
        versioned: false,
    };
    Framework {
        name,
        layout,
        reading,
        interface,
        others: Some(NAMES),
        describer: None,
        remark: None,
    }
}

fn reading(size: u64) -> u64 {
    size.saturating_mul(PER_BYTE).saturating_add(OVERHEAD)
}

fn interface(model: &PackagedModel, signature: &str, kind: Kind) -> Result<Interface, Failure> {
    let head = head(model.without_uplift()?)?;
    if head.kind() != kind {
        let (found, declared) = (name(head.kind()), name(kind));
        return Err(invalid(format!("its framework is {found}, not {declared}: see deploy.fm")));
    }
    let interface = interface_of(head.classes(), signature);
    interface.ok_or_else(|| {
        let text = format!(
            "{} has the signature {:?}, whose rows are sparse",
            name(kind),
            model::SIGNATURE
        );
        invalid(format!("a model of {text}, and no signature {signature:?}"))
    })
}

/// The name of the framework of models of this kind.
pub(crate) fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Binary => GBDT_FM.name,
        Kind::Softmax => GBDT_FM_SOFTMAX.name,
    }
}

/// Reads the description of the machine in `directory` from the beginning of its file. Other faults
/// of the model are found by [`read`]. Blocks.
///
/// # Errors
/// IMAGE_INVALID when a file cannot be read, or its beginning is not valid.
pub(crate) fn head(directory: &Path) -> Result<Head, Failure> {
    let Options { lenient, .. } = read_options(directory)?;
    let mut file = Opened::open(directory.join(PARTS[0]))?;
    let limits = Limits { memory: Describer::MEMORY, ..Limits::default() };
    let reading = Reading { lenient, limits, ..Reading::new(None) };
    Head::read(file.file(), &reading).map_err(|error| invalid(error.to_string()))
}

fn interface_of(classes: usize, signature: &str) -> Option<Interface> {
    let inputs = [XGBOOST_FEATURES.specs(false), FM_FEATURES.specs(true)].concat();
    let output = |(name, _): &(&str, Output)| -> TensorSpec {
        model::output_spec(name, DType::Float32, classes)
    };
    let outputs = OUTPUTS.iter().map(output).collect();
    (signature == model::SIGNATURE).then(|| Interface::new(inputs, outputs))
}

/// True if `directory` holds such a model. Blocks.
pub(crate) fn is_in(directory: &Path) -> bool {
    PARTS.iter().any(|part| directory.join(part).is_file())
}

/// Settings of reading and scoring: the file `options.json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// The numbers in which sums are taken.
    precision: Numbers,
    /// True if malformed lines are skipped, as by XGBoost Serving, and not refused.
    lenient: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum Numbers {
    #[default]
    #[serde(rename = "float32")]
    Single,
    #[serde(rename = "float64")]
    Double,
}

impl From<Numbers> for Precision {
    fn from(numbers: Numbers) -> Self {
        match numbers {
            Numbers::Single => Self::Single,
            Numbers::Double => Self::Double,
        }
    }
}

/// A model with its settings of scoring.
#[derive(Debug)]
pub struct GbdtFm {
    fm: fm::Model,
    precision: Precision,
}

/// Reads the model in `directory`. Blocks.
///
/// # Errors
/// IMAGE_INVALID when a file is missing or is not valid, or the model takes more memory than the
/// size of its files allows.
pub(crate) fn read(directory: &Path) -> Result<GbdtFm, Failure> {
    let options: Options = read_options(directory)?;
    let trees = GBDT_FM.file(directory).ok_or_else(|| {
        let files = GBDT_FM.layout.files.join(" or ");
        invalid(format!("the model's directory has no {files}"))
    })?;
    let [mut trees, mut fm, mut leaf_mapping] = [
        Opened::open(trees)?,
        Opened::open(directory.join(PARTS[0]))?,
        Opened::open(directory.join(PARTS[1]))?,
    ];
    let names = Some(directory.join(NAMES)).filter(|path| path.exists());
    let mut names = names.map(Opened::open).transpose()?;
    let sizes = [Some(&trees), Some(&fm), Some(&leaf_mapping), names.as_ref()];
    let size = sizes.iter().flatten().fold(0_u64, |sum, file| sum.saturating_add(file.size));
    let mut limits = Limits { memory: reading(size), ..Limits::default() };
    let names = names.as_mut().map(|file| Names::read(file.file(), &limits)).transpose();
    let names = names.map_err(|error| invalid(error.to_string()))?;
    // The names are held while the model is read.
    limits.memory -= names.as_ref().map_or(0, |names| names.memory() as u64).min(limits.memory);
    let (lenient, names) = (options.lenient, names.as_ref());
    let reading = Reading { lenient, limits, names, ..Reading::new(None) };
    let files = Files { trees: trees.file(), fm: fm.file(), leaf_mapping: leaf_mapping.file() };
    let fm = fm::Model::read(files, &reading).map_err(|error| invalid(error.to_string()))?;
    Ok(GbdtFm { fm, precision: options.precision.into() })
}

/// A file, with its size in bytes.
struct Opened {
    content: BufReader<File>,
    size: u64,
}

impl Opened {
    fn open(path: PathBuf) -> Result<Self, Failure> {
        let open = || -> io::Result<Self> {
            let file = File::open(&path)?;
            Ok(Self { size: file.metadata()?.len(), content: BufReader::new(file) })
        };
        open().map_err(|error| {
            let name = path.file_name().unwrap_or_default().display();
            invalid(format!("{name} cannot be read: {error}"))
        })
    }

    fn file(&mut self) -> fm::File<'_> {
        let content: &mut dyn BufRead = &mut self.content;
        fm::File { content, size: self.size }
    }
}

/// The parts of the rows of a call: for the trees and the machine, and for the machine alone.
fn parts(call: &Call) -> Result<[CallRows<'_>; 2], RunError> {
    let trees = XGBOOST_FEATURES.rows(call)?;
    let machine = match FM_FEATURES.is_in(call) {
        true => FM_FEATURES.rows(call)?,
        false => CallRows::empty(trees.get().len()),
    };
    Ok([trees, machine])
}

impl GbdtFm {
    /// The rows of these parts.
    ///
    /// # Errors
    /// REQUEST_MALFORMED: the parts have different numbers of rows. FEATURE_NOT_FINITE: a weight is
    /// infinite, or is NaN and the machine has its feature.
    fn rows<'a>(&self, [trees, machine]: &'a [CallRows<'_>; 2]) -> Result<Rows<'a>, RunError> {
        let rows = Rows::new(trees.get(), machine.get()).map_err(|error| match error {
            RowsError::Infinite { .. } => not_finite(error.to_string()),
            RowsError::Rows { .. } => malformed(error.to_string()),
        })?;
        match self.fm.not_finite(rows) {
            None => Ok(rows),
            Some((row, id)) => Err(not_finite(format!(
                "row {row}: the weight of the feature {id} of the factorisation machine is not finite"
            ))),
        }
    }

    /// The scores of `rows` as the output called `name`.
    fn score(
        &self,
        name: &Arc<str>,
        rows: Rows<'_>,
        stages: &StageTimes,
    ) -> Result<Tensor, RunError> {
        let output = OUTPUTS.iter().find(|(known, _)| *known == &**name);
        let (_, output) =
            *output.ok_or_else(|| malformed(format!("the model has no output {name}")))?;
        let options = fm::Options { output, precision: self.precision };
        let mut scores = vec![0.0; rows.len() * self.fm.classes()];
        let start = Instant::now();
        let of_trees = self.fm.score(rows, &options, &mut scores);
        stages.add(TREES, of_trees);
        stages.add(MACHINE, start.elapsed().saturating_sub(of_trees));
        let shape = model::sizes(rows.len(), self.fm.classes());
        Ok(tensor(Arc::clone(name), shape, &scores))
    }
}

impl local::Model for GbdtFm {
    fn interface(&self, signature: &str) -> Option<Interface> {
        interface_of(self.fm.classes(), signature)
    }

    fn run(&self, call: Call) -> Result<Vec<Tensor>, RunError> {
        let parts = parts(&call)?;
        let rows = self.rows(&parts)?;
        let score = |name: &Arc<str>| self.score(name, rows, &call.stages);
        match &call.outputs[..] {
            [] => OUTPUTS.iter().map(|(name, _)| score(&Arc::from(*name))).collect(),
            wanted => wanted.iter().map(score).collect(),
        }
    }

    fn rows(&self, call: &Call) -> Option<usize> {
        divide::rows(call, &INPUTS)
    }

    fn divide(&self, call: &Call, rows: usize) -> Option<Vec<Call>> {
        // The message about a weight that is not finite has the number of its row in the whole call.
        self.rows(&parts(call).ok()?).ok()?;
        divide::parts(call, &INPUTS, rows)
    }

    fn remark(&self) -> Option<String> {
        let skipped = self.fm.skipped();
        (skipped.count > 0).then(|| skipped.to_string())
    }

    fn memory(&self) -> usize {
        size_of::<Self>() - size_of::<fm::Model>() + self.fm.memory()
    }
}

#[cfg(test)]
mod tests;
