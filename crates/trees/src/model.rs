//! A model that is ready to score.

mod double;

use std::{io::BufRead, ops::Range};

use crate::{
    AnyRows, Budget, Columns, Error, Explainer, Header, Library, Limits, Options, Output,
    SparseRows, Unexplained,
    contributions::Covers,
    double::Double,
    forest::Forest,
    linear::Linear,
    ranks::Ranks,
    read::{self, Extent},
    rows::{Input, Memory},
    slots::Slots,
};

/// A tree model: read, validated and immutable.
///
/// Margins are equal to those of XGBoost in every bit: an f32 sum that begins with the base score
/// and takes the leaves in the order of the trees. Values are equal too where XGBoost uses the same
/// mathematical library. LightGBM and CatBoost have sums in f64, of which [`Self::predict`] returns
/// the nearest f32, and [`Self::predict_f64`] the sums.
#[derive(Debug)]
pub struct Model {
    header: Header,
    /// The base margin of each output.
    base: Vec<f32>,
    forest: Forest,
    slots: Slots,
    /// The numbers that stand for values, of a model that compares in f64.
    ranks: Option<Ranks>,
    /// The covers of the trees; None if the file has none.
    covers: Option<Covers>,
    /// The way from sums to values, if leaves are f64.
    double: Option<Double>,
    /// The linear models of leaves; None if all leaves are plain values.
    linear: Option<Linear>,
    /// The output of each tree. Empty if each tree has a value for every output.
    groups: Vec<u32>,
}

impl Model {
    /// Reads a model from a file of `size` bytes, of any format of the libraries
    /// ([`Library`]). No more than those are read.
    ///
    /// # Errors
    /// [`Error`]. A file that is malformed in any way is an error.
    pub fn read(source: &mut dyn BufRead, size: u64, limits: &Limits) -> Result<Self, Error> {
        Self::read_extent(source, size, limits, Extent::All)
    }

    /// Reads a model as [`Self::read`] does, for rows of f64: a model of LightGBM compares values as
    /// they are then, those of f32 too.
    ///
    /// # Errors
    /// As [`Self::read`], and [`Error::Unsupported`] if a feature of LightGBM has categories from
    /// 2^24 on, or both categories and thresholds.
    pub fn read_for_f64(
        source: &mut dyn BufRead,
        size: u64,
        limits: &Limits,
    ) -> Result<Self, Error> {
        Self::read_extent(source, size, limits, Extent::Doubles)
    }

    fn read_extent(
        source: &mut dyn BufRead,
        size: u64,
        limits: &Limits,
        extent: Extent,
    ) -> Result<Self, Error> {
        let (mut content, mut budget) = read::read(source, size, limits, extent)?;
        content.complete(&mut budget)?;
        let header = Header::new(&mut content);
        let objective = header.objective;
        if content.base_is_margin {
            // XGBoost turns such a score into a value and back, which may change its last bits.
            content.base.iter_mut().for_each(|base| objective.values(std::slice::from_mut(base)));
        }
        objective.base_margins(&mut content.base);
        // Contributions are computed in f32, of trees of XGBoost.
        let covers = match content.double {
            Some(_) => None,
            None => Covers::take(&mut content.trees, &mut budget)?,
        };
        let ranks = match (content.library, extent) {
            (Library::Lightgbm, Extent::Doubles) => {
                Some(Ranks::replace(&mut content.trees, &mut budget)?)
            }
            _ => None,
        };
        let forest = match content.oblivious {
            Some(oblivious) => Forest::oblivious(oblivious),
            None => Forest::new(content.trees, &mut budget)?,
        };
        let slots = forest.slots(&mut budget)?;
        Ok(Self {
            header,
            base: content.base,
            forest,
            slots,
            ranks,
            covers,
            double: content.double,
            linear: Some(content.linear).filter(|linear| !linear.is_empty()),
            groups: content.groups,
        })
    }

    /// The description of the model, as [`Header::read`] reads it.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The library that wrote the model: [`Header::library`].
    pub fn library(&self) -> Library {
        self.header.library()
    }

    /// Columns of a dense row.
    pub fn features(&self) -> usize {
        self.header.features()
    }

    /// The names of the features: [`Header::feature_names`].
    pub fn feature_names(&self) -> &[String] {
        self.header.feature_names()
    }

    /// Outputs of a row: classes or targets.
    pub fn groups(&self) -> usize {
        self.header.groups()
    }

    /// Boosting iterations.
    pub fn iterations(&self) -> u32 {
        self.header.iterations()
    }

    /// The best iteration: [`Header::best_iteration`].
    pub fn best_iteration(&self) -> Option<u32> {
        self.header.best_iteration()
    }

    /// Columns of an output: [`Header::width`].
    pub fn width(&self, output: Output) -> usize {
        self.header.width(output)
    }

    /// Columns of the output of a prediction with these settings: [`Header::columns`].
    pub fn columns(&self, options: &Options) -> usize {
        self.header.columns(options)
    }

    /// Scores dense or sparse rows. The outputs of a row are put into `out` beside each other, row
    /// after row. The memory that a sparse row takes depends on the features that splits use, not
    /// on [`Self::features`].
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times [`Self::columns`].
    pub fn predict<'a>(&self, rows: impl Into<AnyRows<'a>>, options: &Options, out: &mut [f32]) {
        let rows = rows.into();
        let mut memory = Memory::default();
        let input = self.input(rows, options.output, &mut memory);
        self.predict_input(rows, input, options, out);
    }

    /// Values for [`Self::leaf_places`]: the result of `value` for each place, called with a tree and
    /// the number that a node of it has in the file. Places of nodes that are no leaves count too.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn at_places<T>(
        &self,
        budget: &mut Budget,
        mut value: impl FnMut(usize, u32) -> T,
    ) -> Result<Vec<T>, Error> {
        let (mut values, mut places) = (Vec::new(), 0);
        self.forest.for_each_node(|_, _, _| places += 1);
        budget.reserve(&mut values, places)?;
        self.forest.for_each_node(|tree, id, _| values.push(value(tree, id)));
        Ok(values)
    }

    /// Calls `visit` for each leaf, tree after tree, with its tree and its number in the file, which
    /// is that of [`Output::Leaf`].
    pub fn for_each_leaf(&self, mut visit: impl FnMut(usize, u32)) {
        self.forest.for_each_node(|tree, id, is_leaf| {
            if is_leaf {
                visit(tree, id);
            }
        });
    }

    /// Writes the place of the leaf of each tree, tree after tree with one for each row. Leaves of
    /// all trees have places of their own, among those of [`Self::at_places`].
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times that of trees.
    pub fn leaf_places(&self, rows: SparseRows<'_>, out: &mut [u32]) {
        let trees = 0..self.width(Output::Leaf);
        assert_eq!(out.len(), rows.len() * trees.len(), "the length of the output");
        let mut memory = Memory::default();
        let rows = self.input(rows.into(), Output::Leaf, &mut memory);
        self.forest.leaf_places(rows, trees, out);
    }

    /// The rows as the trees take them for an output.
    fn input<'a>(&'a self, rows: AnyRows<'a>, output: Output, memory: &'a mut Memory) -> Input<'a> {
        // XGBoost's prediction of leaves does not count entries.
        let is_counted = self.library() == Library::Xgboost && output != Output::Leaf;
        let counted = is_counted.then(|| self.features());
        Input::new(rows, &self.slots, self.ranks.as_ref(), counted, memory)
    }

    fn predict_input(&self, all: AnyRows<'_>, rows: Input<'_>, options: &Options, out: &mut [f32]) {
        let columns = self.columns(options);
        assert_eq!(out.len(), rows.len() * columns, "the length of the output");
        if self.double.is_some() && options.output != Output::Leaf {
            let mut wide = vec![0.0; out.len()];
            self.predict_double(all, rows, options, &mut wide);
            out.iter_mut().zip(wide).for_each(|(out, value)| *out = value as f32);
            return;
        }
        let (trees, objective) = (self.header.trees(options), self.header.objective);
        match options.output {
            Output::Leaf => self.forest.leaves(rows, trees, out),
            Output::Margin => self.margins(rows, trees, out),
            Output::Value if columns == self.groups() => {
                self.margins(rows, trees, out);
                let rows = out.chunks_exact_mut(columns);
                rows.for_each(|row| objective.values(row));
            }
            Output::Value => {
                let mut margins = vec![0.0; rows.len() * self.groups()];
                self.margins(rows, trees, &mut margins);
                let rows = margins.chunks_exact_mut(self.groups());
                for (margins, out) in rows.zip(out.chunks_exact_mut(columns)) {
                    objective.values(margins);
                    out.copy_from_slice(&margins[..columns]);
                }
            }
        }
    }

    /// Finds the leaf of each tree for `rows`, as [`Output::Leaf`] does, but as exact integers.
    /// `iterations` are those of [`Options::iterations`].
    ///
    /// # Panics
    /// Panics if the length of `out` is not the number of rows times [`Self::columns`].
    pub fn leaves<'a>(
        &self,
        rows: impl Into<AnyRows<'a>>,
        iterations: Option<Range<u32>>,
        out: &mut [u32],
    ) {
        let mut memory = Memory::default();
        let rows = self.input(rows.into(), Output::Leaf, &mut memory);
        let trees = self.header.trees(&Options { output: Output::Leaf, iterations });
        assert_eq!(out.len(), rows.len() * trees.len(), "the length of the output");
        self.forest.leaves(rows, trees, out);
    }

    /// Explains the margins of rows by the contributions of these columns. `iterations` are those
    /// of [`Options::iterations`].
    ///
    /// # Errors
    /// [`Unexplained`].
    pub fn explainer(
        &self,
        iterations: Option<Range<u32>>,
        columns: Columns,
    ) -> Result<Explainer<'_>, Unexplained> {
        if self.linear.is_some() {
            return Err(Unexplained::Linear);
        }
        let explainer = Explainer {
            forest: &self.forest,
            covers: self.covers.as_ref().ok_or(Unexplained::NoCovers)?,
            trees: self.header.trees(&Options { output: Output::Margin, iterations }),
            groups: &self.groups,
            base: &self.base,
            features: self.features(),
            slots: &self.slots,
            columns,
        };
        explainer.checked()
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        let words = self.base.capacity() + self.groups.capacity();
        let covers = self.covers.as_ref().map_or(0, Covers::memory);
        let double = self.double.as_ref().map_or(0, Double::memory);
        let linear = self.linear.as_ref().map_or(0, Linear::memory);
        let ranks = self.ranks.as_ref().map_or(0, Ranks::memory);
        let parts = self.forest.memory() + self.slots.memory() + covers + double + linear + ranks;
        size_of::<Self>() + self.header.memory() + parts + 4 * words
    }

    fn margins(&self, rows: Input<'_>, trees: Range<usize>, out: &mut [f32]) {
        out.chunks_exact_mut(self.groups()).for_each(|row| row.copy_from_slice(&self.base));
        self.forest.add(rows, trees, &self.groups, self.groups(), out);
    }
}
