//! Models made of texts, and rows.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::fmt::Write as _;

use outrigger_fm::{
    Error, File, Files, Model, Options, Output, Precision, Reading, Rows, SparseRows,
};

/// The content of the files of a model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    pub(crate) trees: Vec<u8>,
    pub(crate) fm: Vec<u8>,
    pub(crate) leaf_mapping: Vec<u8>,
}

impl Content {
    pub(crate) fn read(&self, reading: &Reading<'_>) -> Result<Model, Error> {
        let [mut trees, mut fm, mut leaf_mapping] =
            [&self.trees, &self.fm, &self.leaf_mapping].map(Vec::as_slice);
        let [a, b, c] = [trees, fm, leaf_mapping].map(|file| file.len() as u64);
        let files = Files {
            trees: File { content: &mut trees, size: a },
            fm: File { content: &mut fm, size: b },
            leaf_mapping: File { content: &mut leaf_mapping, size: c },
        };
        Model::read(files, reading)
    }
}

/// A split: feature, threshold, and true if a missing value goes left.
pub(crate) type Split = (usize, f32, bool);

/// A full tree with two levels of splits. Its leaves are 3 to 6.
pub(crate) type Tree = [Split; 3];

/// A model of `trees` over `features` features, with the keys that XGBoost writes in JSON.
pub(crate) fn trees(trees: &[Tree], features: usize) -> Vec<u8> {
    let each = trees.iter().map(|splits| {
        let indices = splits.map(|(feature, ..)| feature);
        let conditions = splits.map(|(_, threshold, _)| threshold);
        let default_left = splits.map(|(.., left)| u8::from(left));
        format!(
            "{{\"left_children\":[1,3,5,-1,-1,-1,-1],\"right_children\":[2,4,6,-1,-1,-1,-1],\
             \"split_indices\":[{},0,0,0,0],\"split_conditions\":[{},0,0,0,0],\
             \"default_left\":[{},0,0,0,0],\"tree_param\":{{\"num_nodes\":\"7\",\
             \"size_leaf_vector\":\"1\"}}}}",
            joined(indices),
            joined(conditions),
            joined(default_left)
        )
    });
    let each = each.collect::<Vec<_>>().join(",");
    let count = trees.len();
    let groups = vec!["0"; trees.len()].join(",");
    format!(
        "{{\"learner\":{{\"gradient_booster\":{{\"model\":{{\"gbtree_model_param\":\
         {{\"num_trees\":\"{count}\"}},\"tree_info\":[{groups}],\"trees\":[{each}]}},\"name\":\"gbtree\"}},\"learner_model_param\":{{\"base_score\":\
         \"0\",\"num_class\":\"0\",\"num_feature\":\"{features}\"}},\"objective\":{{\"name\":\
         \"reg:squarederror\"}}}},\"version\":[1,0,0]}}"
    )
    .into_bytes()
}

fn joined<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}

/// The leaf of a row in a tree. None and NaN are missing.
pub(crate) fn leaf(tree: &Tree, value: impl Fn(usize) -> Option<f32>) -> u32 {
    let goes_right = |(feature, threshold, left): Split| match value(feature) {
        Some(value) if !value.is_nan() => u32::from(value >= threshold),
        _ => u32::from(!left),
    };
    let child = goes_right(tree[0]);
    3 + 2 * child + goes_right(tree[1 + child as usize])
}

/// A line of an FM file.
pub(crate) fn line(name: impl std::fmt::Display, values: &[f32]) -> String {
    let mut line = name.to_string();
    values.iter().for_each(|value| write!(line, " {value}").expect("memory"));
    line + "\n"
}

/// A feature of a row, and its weight.
pub(crate) type Entry = (u64, f32);

/// Rows, each with the features of trees and machine, and those of the machine alone.
pub(crate) type Pairs = Vec<(Vec<Entry>, Vec<Entry>)>;

/// The scores of `rows`. They do not depend on the rows that are scored together.
pub(crate) fn score(
    model: &Model,
    rows: &[(Vec<Entry>, Vec<Entry>)],
    output: Output,
    precision: Precision,
) -> Vec<f32> {
    let options = Options { output, precision };
    let together = score_once(model, rows, &options);
    let alone = rows.iter().flat_map(|row| score_once(model, std::slice::from_ref(row), &options));
    let same = together.iter().copied().map(f32::to_bits).eq(alone.map(f32::to_bits));
    assert!(same, "rows have other scores when they are alone");
    together
}

fn score_once(model: &Model, rows: &[(Vec<Entry>, Vec<Entry>)], options: &Options) -> Vec<f32> {
    let parts = [
        Arrays::new(rows.iter().map(|(trees, _)| trees)),
        Arrays::new(rows.iter().map(|(_, machine)| machine)),
    ];
    let [trees, machine] = parts.each_ref().map(Arrays::rows);
    let mut out = vec![f32::NAN; rows.len() * model.classes()];
    model.score(Rows::new(trees, machine).expect("rows"), options, &mut out);
    out
}

struct Arrays {
    ids: Vec<u64>,
    weights: Vec<f32>,
    offsets: Vec<u32>,
}

impl Arrays {
    fn new<'a>(rows: impl Iterator<Item = &'a Vec<Entry>>) -> Self {
        let mut arrays = Self { ids: Vec::new(), weights: Vec::new(), offsets: vec![0] };
        for row in rows {
            arrays.ids.extend(row.iter().map(|(id, _)| id));
            arrays.weights.extend(row.iter().map(|(_, weight)| weight));
            arrays.offsets.push(arrays.ids.len() as u32);
        }
        arrays
    }

    fn rows(&self) -> SparseRows<'_> {
        SparseRows::new(&self.ids, &self.weights, &self.offsets).expect("whole rows")
    }
}
