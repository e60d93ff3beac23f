//! The formulas of factorisation machines (Rendle, 2010), over the features of rows.
//!
//! With `S_f` as the sum of `v_f x` over all features, the cross terms of a row are
//! `0.5 sum_f (S_f^2 - sum (v_f x)^2)`.
//!
//! All numbers of a feature are added up at once, as they are beside each other in the table. A sum
//! waits for its last addition, so several rows of a binary model are scored at once, which wait
//! together. The sums of squares of a softmax model leave no registers for a second row.

use std::array;

use outrigger_trees::SparseRows;

use crate::{
    quad::{Number, Quad},
    rows::{Options, Output, Precision},
    table::{NO_FEATURE, Table},
};

/// Rows, and the numbers of their features in the table.
#[derive(Clone, Copy)]
pub(crate) struct Features<'a> {
    /// Parts of the rows, whose features count one part after the other. For each of their ids there
    /// is a number; [`NO_FEATURE`] for ids that the table does not have.
    pub(crate) parts: [(SparseRows<'a>, &'a [u32]); 2],
    /// The places of leaves: tree after tree, with one for each row.
    pub(crate) leaves: &'a [u32],
    /// The feature of each place, whose weight is 1.
    pub(crate) of_leaves: &'a [u32],
}

impl Features<'_> {
    fn len(&self) -> usize {
        self.parts[0].0.len()
    }
}

/// Rows of a binary model whose sums fit into the registers of every processor at once.
const ROWS: usize = 4;

/// Scores rows. `out` has an element for each row and class.
pub(crate) fn score(table: &Table, features: &Features<'_>, options: Options, out: &mut [f32]) {
    let rows = Scored { table, features };
    match (table.shape.softmax, options.precision) {
        (false, Precision::Single) => rows.binary::<WithNorms>(options.output, out),
        (false, Precision::Double) => rows.binary::<WithSquares<f64>>(options.output, out),
        (true, Precision::Single) => rows.softmax::<f32>(options.output, out),
        (true, Precision::Double) => rows.softmax::<f64>(options.output, out),
    }
}

/// The rows that are scored.
#[derive(Clone, Copy)]
struct Scored<'a> {
    table: &'a Table,
    features: &'a Features<'a>,
}

impl Scored<'_> {
    /// The outputs of a binary model.
    fn binary<M: Margin>(self, output: Output, out: &mut [f32]) {
        let value = |margin: M::Number| {
            let margin: f64 = margin.into();
            match output {
                Output::Margin => margin as f32,
                Output::Value => (1.0 / (1.0 + (-margin).exp())) as f32,
            }
        };
        let (several, alone) = out.as_chunks_mut();
        let first_alone = several.len() * ROWS;
        for (out, first) in several.iter_mut().zip((0..).step_by(ROWS)) {
            *out = self.margins::<M, ROWS>(first, 0).map(value);
        }
        for (out, row) in alone.iter_mut().zip(first_alone..) {
            [*out] = self.margins::<M, 1>(row, 0).map(value);
        }
    }

    /// The outputs of a softmax model.
    fn softmax<N: Number>(self, output: Output, out: &mut [f32]) {
        let classes = self.table.shape.classes;
        let mut margins = vec![N::default(); classes];
        for (row, out) in out.chunks_exact_mut(classes).enumerate() {
            for (class, margin) in margins.iter_mut().enumerate() {
                [*margin] = self.margins::<WithSquares<N>, 1>(row, class);
            }
            if output == Output::Value {
                probabilities(&mut margins);
            }
            let margins = margins.iter().map(|margin| (*margin).into() as f32);
            out.iter_mut().zip(margins).for_each(|(out, margin)| *out = margin);
        }
    }

    /// The margins of a class for `R` rows from `first` on.
    fn margins<M: Margin, const R: usize>(self, first: usize, class: usize) -> [M::Number; R] {
        let (shape, bias) = (self.table.shape, self.table.bias[class]);
        let pass = |from| {
            let (head, bias) = if from == 0 { (shape.head(), bias) } else { (0, 0.0) };
            (self.table.numbers(class, from), Pass { features: self.features, first, head, bias })
        };
        let mut margins = [M::default(); R];
        if shape.factors == 0 {
            let (numbers, pass) = pass(0);
            pass.add(|feature| numbers.weight(feature), &mut margins);
            return margins.map(|margin| margin.end(bias));
        }
        let mut from = 0;
        while from < shape.of_class() {
            let (numbers, pass) = pass(from);
            from += match shape.of_class() - from {
                4 => pass.add(|feature| numbers.quads::<1>(feature), &mut margins),
                8 => pass.add(|feature| numbers.quads::<2>(feature), &mut margins),
                _ => pass.add(|feature| numbers.quads::<3>(feature), &mut margins),
            };
        }
        margins.map(|margin| margin.end(bias))
    }
}

/// A pass over the features of rows, which adds up some of the numbers of each feature.
#[derive(Clone, Copy)]
struct Pass<'a> {
    features: &'a Features<'a>,
    /// The first row.
    first: usize,
    /// How many of the numbers come before those of the vector.
    head: usize,
    /// The bias, if the numbers begin with the weight, or 0.
    bias: f32,
}

impl Pass<'_> {
    /// Adds up 4 times `N` numbers of each feature of `R` rows, in the order of the features. Returns
    /// how many numbers of a feature these are.
    #[inline(always)]
    fn add<M: Margin, const R: usize, const N: usize>(
        self,
        numbers: impl Fn(u32) -> [[f32; 4]; N],
        to: &mut [M; R],
    ) -> usize {
        let features = self.features;
        let numbers = |feature| numbers(feature).map(Quad::of);
        let mut sums: [_; R] =
            array::from_fn(|row| self.weighted::<M, N>(self.first + row, numbers));
        let ones = [Quad::of([1.0; 4]); N];
        for of_tree in features.leaves.chunks_exact(features.len()) {
            let places: &[_; R] = of_tree[self.first..].first_chunk().expect("these rows");
            sums = array::from_fn(|row| {
                M::add(sums[row], numbers(features.of_leaves[places[row] as usize]), ones)
            });
        }
        to.iter_mut().zip(sums).for_each(|(to, sums)| to.take(sums, self.head));
        4 * N
    }

    /// The sums of the features of a row that have weights.
    #[inline(always)]
    fn weighted<M: Margin, const N: usize>(
        self,
        row: usize,
        numbers: impl Fn(u32) -> Quads<M, N>,
    ) -> M::Sums<N> {
        let mut sums = M::begin(self.bias);
        for (rows, known) in &self.features.parts {
            for (feature, x) in rows.looked_up(known, row) {
                if feature != NO_FEATURE {
                    let mut by = [Quad::of([x; 4]); N];
                    if self.head == 2 {
                        // The second number is the norm.
                        by[0] = Quad::of([x, x * x, x, x]);
                    }
                    sums = M::add(sums, numbers(feature), by);
                }
            }
        }
        sums
    }
}

/// Turns the margins of all classes into probabilities.
fn probabilities<N: Number>(margins: &mut [N]) {
    let larger = |a: N, b: &N| if *b > a { *b } else { a };
    let largest = margins.iter().fold(N::nearest(f64::from(f32::MIN)), larger);
    let exponential = |margin: N| N::nearest((margin - largest).into().exp());
    margins.iter_mut().for_each(|margin| *margin = exponential(*margin));
    let sum = margins.iter().fold(N::default(), |sum, value| sum + *value);
    margins.iter_mut().for_each(|value| *value = N::nearest((*value).into() / sum.into()));
}

/// The margin of a row in progress. Its parts are added in a fixed order: first all features, one
/// after the other, then the factors.
trait Margin: Copy + Default {
    /// The numbers in which sums are taken.
    type Number: Number;

    /// The sums of 4 times `N` numbers of all features.
    type Sums<const N: usize>: Copy;

    /// The sums of no features. `bias` is in front of those that begin with the weights, and
    /// otherwise 0.
    fn begin<const N: usize>(bias: f32) -> Self::Sums<N>;

    /// Adds the numbers of a feature, each multiplied by one of `by`: the weight in the row, or its
    /// square for the norm.
    fn add<const N: usize>(
        sums: Self::Sums<N>,
        numbers: Quads<Self, N>,
        by: Quads<Self, N>,
    ) -> Self::Sums<N>;

    /// Takes the sums of all features. There are `head` of them before those of factors.
    fn take<const N: usize>(&mut self, sums: Self::Sums<N>, head: usize);

    fn end(self, bias: f32) -> Self::Number;
}

/// 4 times `N` numbers of a feature.
type Quads<M, const N: usize> = [<<M as Margin>::Number as Number>::Quad; N];

/// With the operations of XGBoost Serving in their order, in f32. The squares of a feature are taken
/// together, from the norm of its vector.
#[derive(Clone, Copy, Default)]
struct WithNorms {
    linear: f32,
    cross: f32,
}

impl Margin for WithNorms {
    type Number = f32;
    type Sums<const N: usize> = Quads<Self, N>;

    #[inline(always)]
    fn begin<const N: usize>(_: f32) -> Self::Sums<N> {
        [Quad::of([0.0; 4]); N]
    }

    #[inline(always)]
    fn add<const N: usize>(
        sums: Self::Sums<N>,
        numbers: Quads<Self, N>,
        by: Quads<Self, N>,
    ) -> Self::Sums<N> {
        array::from_fn(|at| sums[at] + numbers[at] * by[at])
    }

    #[inline(always)]
    fn take<const N: usize>(&mut self, sums: Self::Sums<N>, head: usize) {
        let sums = sums.map(Quad::to_array);
        let (head, factors) = sums.as_flattened().split_at(head);
        if let [linear, cross] = *head {
            *self = Self { linear, cross };
        }
        factors.iter().for_each(|sum| self.cross += sum * sum);
    }

    fn end(self, bias: f32) -> f32 {
        let cross = f64::from(self.cross) * 0.5 + f64::from(bias);
        (f64::from(self.linear) + cross) as f32
    }
}

/// With the operations of alphaFM and alphaFM_softmax in their order.
#[derive(Clone, Copy, Default)]
struct WithSquares<N>(N);

impl<T: Number> Margin for WithSquares<T> {
    type Number = T;
    /// Sums, and sums of squares.
    type Sums<const N: usize> = [Quads<Self, N>; 2];

    #[inline(always)]
    fn begin<const N: usize>(bias: f32) -> Self::Sums<N> {
        let mut sums = [[Quad::of([0.0; 4]); N]; 2];
        sums[0][0] = Quad::of([bias, 0.0, 0.0, 0.0]);
        sums
    }

    #[inline(always)]
    fn add<const N: usize>(
        [sums, squares]: Self::Sums<N>,
        numbers: Quads<Self, N>,
        by: Quads<Self, N>,
    ) -> Self::Sums<N> {
        let products: Quads<Self, N> = array::from_fn(|at| numbers[at] * by[at]);
        let sums = array::from_fn(|at| sums[at] + products[at]);
        [sums, array::from_fn(|at| squares[at] + products[at] * products[at])]
    }

    #[inline(always)]
    fn take<const N: usize>(&mut self, [sums, squares]: Self::Sums<N>, head: usize) {
        let [sums, squares] = [sums, squares].map(|sums| sums.map(Quad::to_array));
        let (sums, squares) = (sums.as_flattened(), squares.as_flattened());
        if head > 0 {
            self.0 = sums[0];
        }
        for (sum, squares) in sums.iter().zip(squares).skip(head) {
            let factor = 0.5 * (*sum * *sum - *squares).into();
            self.0 = T::nearest(self.0.into() + factor);
        }
    }

    fn end(self, _: f32) -> T {
        self.0
    }
}
