//! Reads the files of a factorisation machine.

mod binary;
mod leaf_mapping;
mod lines;
mod text;

use std::io::BufRead;

use outrigger_trees::{Budget, Limits, Numbering};

use crate::{Error, Names, Part, Skipped, table::Growing};
pub(crate) use leaf_mapping::leaf_mapping;
pub(crate) use lines::{Faults, Lines, fields, quoted, text, unsigned};

/// A file of a model.
pub struct File<'a> {
    /// The content. No more than `size` bytes are read.
    pub content: &'a mut dyn BufRead,
    /// The length, in bytes.
    pub size: u64,
}

/// The files of a model. The names are those of XGBoost Serving.
pub struct Files<'a> {
    /// `deploy.model`: the trees, in any format that [`outrigger_trees::Model::read`] accepts.
    pub trees: File<'a>,
    /// `deploy.fm`: the factorisation machine, in the text form of XGBoost Serving, or in a text
    /// or binary form of alphaFM, or in the text form of alphaFM_softmax.
    pub fm: File<'a>,
    /// `deploy.leaf_mapping`: the features of the leaves. A line has a tree and pairs of a leaf
    /// and its feature: `0 31:4097 32:4098`.
    pub leaf_mapping: File<'a>,
}

/// The kinds of factorisation machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two classes; alphaFM.
    Binary,
    /// Any number of classes; alphaFM_softmax.
    Softmax,
}

/// Settings of reading a model.
#[derive(Debug, Clone)]
pub struct Reading<'a> {
    /// The kind of the factorisation machine. None is that of its file: a softmax model with one
    /// class, whose score is always 1, is then read as a binary one.
    pub kind: Option<Kind>,
    /// True if malformed lines and features that occur twice are skipped and counted, as XGBoost
    /// Serving does. Otherwise they are errors.
    pub lenient: bool,
    /// The ids of features that have names in the files.
    pub names: Option<&'a Names>,
    /// Bounds on the model.
    pub limits: Limits,
}

impl Reading<'_> {
    /// Settings for a kind: strict, without names, and with the default limits.
    pub fn new(kind: impl Into<Option<Kind>>) -> Self {
        Self { kind: kind.into(), lenient: false, names: None, limits: Limits::default() }
    }
}

/// The features that are read from an FM file.
pub(crate) struct Features<'a> {
    reading: &'a Reading<'a>,
    budget: &'a mut Budget,
    faults: Faults,
    /// Features that are left out of the table, because their numbers are all 0.
    zeros: Numbering,
}

/// A fault of an entry, as text.
type Fault = String;

impl<'a> Features<'a> {
    fn new(
        reading: &'a Reading<'a>,
        budget: &'a mut Budget,
        entry: &'static str,
    ) -> Result<Self, Error> {
        let faults = Faults::new(Part::Fm, entry, reading.lenient);
        Ok(Self { reading, faults, zeros: Numbering::new(budget)?, budget })
    }

    /// The id of the feature `name`.
    fn id(&self, name: &[u8]) -> Result<u64, Fault> {
        let id = unsigned(name);
        match (id, self.reading.names) {
            (Ok(id), _) => Ok(id),
            (Err(fault), None) => Err(format!("{fault}, and there is no table of names")),
            (Err(_), Some(names)) => names
                .id(text(name)?)
                .ok_or_else(|| format!("the table of names does not have {}", quoted(name))),
        }
    }

    /// Adds a feature to `table`.
    ///
    /// Unless the mode is lenient, features whose numbers are all 0 are left out: they add nothing
    /// to a score, and they are most features of a sparse model.
    fn add(
        &mut self,
        id: u64,
        values: &[f32],
        table: &mut Growing,
        last_wins: bool,
    ) -> Result<(), Error> {
        let is_zero = !self.reading.lenient && values.iter().all(|value| *value == 0.0);
        let is_new = match is_zero {
            true => table.ids().get(id).is_none() && self.zeros.insert(id, self.budget)?,
            false => self.zeros.get(id).is_none() && table.add(id, values, self.budget)?,
        };
        if !is_new {
            self.faults.found(format!("the feature {id} is there already"))?;
            if last_wins {
                table.replace(id, values);
            }
        }
        Ok(())
    }

    /// Frees what was held while the features were read. Returns the entries that were skipped.
    fn end(self) -> Skipped {
        let zeros = self.zeros.into_ids(self.budget);
        self.budget.release::<u64>(zeros.capacity());
        self.faults.skipped
    }
}

/// The kind and the number of classes of a factorisation machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    kind: Kind,
    classes: usize,
}

impl Head {
    /// Reads them from the beginning of an FM file, whose features are not read.
    ///
    /// # Errors
    /// [`Error`] if the beginning is malformed.
    pub fn read(file: File<'_>, reading: &Reading<'_>) -> Result<Self, Error> {
        let mut budget = Budget::of(reading.limits.memory);
        let (kind, classes) = match is_text(file.content, reading)? {
            true => text::kind(file, Features::new(reading, &mut budget, "line")?)?,
            false => {
                binary::check(file, &Features::new(reading, &mut budget, "record")?)?;
                (Kind::Binary, 1)
            }
        };
        Ok(Self { kind, classes })
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Columns of the output: 1 for a binary model, or the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }
}

/// Reads an FM file. Also returns the entries that were skipped.
pub(crate) fn fm(
    file: File<'_>,
    reading: &Reading<'_>,
    budget: &mut Budget,
) -> Result<(Growing, Skipped), Error> {
    match is_text(file.content, reading)? {
        true => text::read(file, Features::new(reading, budget, "line")?),
        false => binary::read(file, Features::new(reading, budget, "record")?),
    }
}

/// True if an FM file is a text, false if it has the binary form.
fn is_text(content: &mut dyn BufRead, reading: &Reading<'_>) -> Result<bool, Error> {
    // Texts begin with a name; a binary file begins with its version, which is 1.
    let is_text = lines::peek(content, Part::Fm)? != Some(1);
    if !is_text && reading.kind == Some(Kind::Softmax) {
        return Err(Error::Invalid(Part::Fm, "a softmax model has no binary form".to_owned()));
    }
    Ok(is_text)
}
