//! Model files of any size, with the keys that XGBoost writes.

use std::fmt::Write as _;

/// A model whose trees have all the same form.
pub(crate) struct Sample {
    trees: usize,
    /// The left children of the nodes of a tree in breadth-first order; -1 for leaves.
    left: Vec<i32>,
    /// The distance of the features of two splits, of which as many as [`OWN`] have one of their own;
    /// 0 if all trees have the same few.
    step: usize,
}

/// The features of a sample whose splits have none of their own.
const FEATURES: usize = 20;

/// The arrays of categorical splits, of which there are none.
const SETS: [&str; 4] =
    ["categories", "categories_nodes", "categories_segments", "categories_sizes"];

/// Splits that may have features of their own: as many as nodes of eight bytes can count.
const OWN: usize = 1 << 15;

impl Sample {
    /// Full trees, with `depth` splits on the way to each leaf.
    pub(crate) fn full(trees: usize, depth: u32) -> Self {
        let (splits, nodes) = ((1 << depth) - 1, (2 << depth) - 1);
        let left = (0..nodes).map(|at| if at < splits { 2 * at + 1 } else { -1 });
        Self { trees, left: left.collect(), step: 0 }
    }

    /// Trees of `depth` levels with `splits` splits: one on each level, the leftmost of its nodes,
    /// and the others as high as possible. A split has a feature of its own, `step` features away from
    /// that of the split before; all have the same few if it is 0. After [`OWN`] splits, they begin
    /// again with the first feature.
    pub(crate) fn uneven(trees: usize, depth: usize, splits: usize, step: usize) -> Self {
        let (mut left, mut others) = (Vec::new(), splits - depth);
        let (mut first, mut end) = (0, 1);
        for level in 0..=depth {
            let mut next = end;
            for at in first..end {
                let is_spine = at == first && level < depth;
                let is_split = is_spine || at > first && others > 0;
                others -= usize::from(is_split && !is_spine);
                left.push(if is_split { next } else { -1 });
                next += if is_split { 2 } else { 0 };
            }
            (first, end) = (end, next);
        }
        assert_eq!(left.len(), 2 * splits + 1, "the nodes of all splits");
        Self { trees, left, step }
    }

    /// The features of the model.
    fn width(&self) -> usize {
        FEATURES.max(OWN.min(self.trees * self.splits()) * self.step)
    }

    /// The splits of a tree.
    fn splits(&self) -> usize {
        self.left.len() / 2
    }

    fn right(&self) -> Vec<i32> {
        self.left.iter().map(|left| if *left < 0 { -1 } else { left + 1 }).collect()
    }

    fn parents(&self) -> Vec<i32> {
        let mut parents = vec![i32::MAX; self.left.len()];
        for (parent, left) in (0..).zip(&self.left).filter(|(_, left)| **left >= 0) {
            parents[*left as usize..][..2].fill(parent);
        }
        parents
    }

    fn features(&self, tree: usize) -> Vec<i32> {
        let mut next = tree * self.splits();
        let feature = |(at, left): (usize, &i32)| match self.step {
            0 => (at * 7 % FEATURES) as i32,
            _ if *left < 0 => 0,
            step => {
                next += 1;
                ((next - 1) % OWN * step) as i32
            }
        };
        self.left.iter().enumerate().map(feature).collect()
    }

    fn floats(&self) -> Vec<f32> {
        (0..self.left.len()).map(|at| (at as f32 * 0.618).sin()).collect()
    }

    /// The covers of the nodes: as many as there are leaves below.
    fn covers(&self) -> Vec<f32> {
        let mut covers = vec![1.0; self.left.len()];
        for (at, left) in self.left.iter().enumerate().rev().filter(|(_, left)| **left >= 0) {
            covers[at] = covers[*left as usize] + covers[*left as usize + 1];
        }
        covers
    }

    fn flags(&self) -> Vec<u8> {
        (0..self.left.len()).map(|at| (at % 2) as u8).collect()
    }

    /// The model in JSON.
    pub(crate) fn json(&self) -> Vec<u8> {
        let trees: Vec<_> = (0..self.trees).map(|tree| self.json_tree(tree)).collect();
        let groups = vec!["0"; self.trees].join(",");
        let count = self.trees;
        let all = trees.join(",");
        let ends: Vec<_> = (0..=count).map(|end| end.to_string()).collect();
        let model = format!(
            "{{\"gbtree_model_param\":{{\"num_trees\":\"{count}\"}},\"iteration_indptr\":[{}],\
             \"tree_info\":[{groups}],\"trees\":[{all}]}}",
            ends.join(",")
        );
        let booster = format!("{{\"model\":{model},\"name\":\"gbtree\"}}");
        let parameters = format!(
            "{{\"base_score\":\"5E-1\",\"num_class\":\"0\",\"num_feature\":\"{}\"}}",
            self.width()
        );
        let objective = "{\"name\":\"reg:squarederror\"}";
        let learner = format!(
            "{{\"gradient_booster\":{booster},\"learner_model_param\":{parameters},\"objective\":{objective}}}"
        );
        format!("{{\"learner\":{learner},\"version\":[3,0,0]}}").into_bytes()
    }

    fn json_tree(&self, number: usize) -> String {
        let mut tree = String::from("{");
        let mut array = |key: &str, values: Vec<String>| {
            write!(tree, "\"{key}\":[{}],", values.join(",")).expect("memory");
        };
        let integers = |values: Vec<i32>| values.iter().map(i32::to_string).collect();
        let flags = || self.flags().iter().map(u8::to_string).collect();
        let texts = |values: Vec<f32>| values.iter().map(|value| format!("{value:E}")).collect();
        let floats = || texts(self.floats());
        array("base_weights", floats());
        array("default_left", flags());
        array("left_children", integers(self.left.clone()));
        array("loss_changes", floats());
        array("parents", integers(self.parents()));
        array("right_children", integers(self.right()));
        array("split_conditions", floats());
        array("split_indices", integers(self.features(number)));
        array("split_type", self.flags().iter().map(|_| "0".to_owned()).collect());
        array("sum_hessian", texts(self.covers()));
        SETS.iter().for_each(|key| array(key, Vec::new()));
        let nodes = self.left.len();
        write!(tree, "\"tree_param\":{{\"num_nodes\":\"{nodes}\",\"size_leaf_vector\":\"1\"}}}}")
            .expect("memory");
        tree
    }

    /// The model in UBJSON.
    pub(crate) fn ubjson(&self) -> Vec<u8> {
        let trees: Vec<_> = (0..self.trees).flat_map(|tree| self.ubjson_tree(tree)).collect();
        let trees = [b"[#L".to_vec(), length(self.trees), trees].concat();
        let groups = typed(b'l', vec![0; 4 * self.trees], 4);
        let ends = (0..=self.trees as i32).flat_map(i32::to_be_bytes);
        let model = object(&[
            ("gbtree_model_param", object(&[("num_trees", string(&self.trees.to_string()))])),
            ("iteration_indptr", typed(b'l', ends, 4)),
            ("tree_info", groups),
            ("trees", trees),
        ]);
        let parameters = object(&[
            ("base_score", string("5E-1")),
            ("num_class", string("0")),
            ("num_feature", string(&self.width().to_string())),
        ]);
        let learner = object(&[
            ("gradient_booster", object(&[("model", model), ("name", string("gbtree"))])),
            ("learner_model_param", parameters),
            ("objective", object(&[("name", string("reg:squarederror"))])),
        ]);
        object(&[("learner", learner), ("version", typed(b'U', [3, 0, 0], 1))])
    }

    fn ubjson_tree(&self, number: usize) -> Vec<u8> {
        let typed_floats =
            |values: Vec<f32>| typed(b'd', values.into_iter().flat_map(f32::to_be_bytes), 4);
        let floats = typed_floats(self.floats());
        let integers =
            |values: Vec<i32>| typed(b'l', values.into_iter().flat_map(i32::to_be_bytes), 4);
        let parameters = object(&[
            ("num_nodes", string(&self.left.len().to_string())),
            ("size_leaf_vector", string("1")),
        ]);
        let sets = SETS.map(|key| (key, typed(b'l', [], 4)));
        let arrays = [
            ("base_weights", floats.clone()),
            ("default_left", typed(b'U', self.flags(), 1)),
            ("left_children", integers(self.left.clone())),
            ("loss_changes", floats.clone()),
            ("parents", integers(self.parents())),
            ("right_children", integers(self.right())),
            ("split_conditions", floats.clone()),
            ("split_indices", integers(self.features(number))),
            ("split_type", typed(b'U', self.flags().iter().map(|_| 0), 1)),
            ("sum_hessian", typed_floats(self.covers())),
            ("tree_param", parameters),
        ];
        object(&[&arrays[..], &sets].concat())
    }

    /// The model in the binary format.
    pub(crate) fn binary(&self) -> Vec<u8> {
        let mut file = b"binf".to_vec();
        let words = |file: &mut Vec<u8>, words: &[u32], reserved: usize| {
            file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            file.extend(std::iter::repeat_n(0, 4 * reserved));
        };
        words(&mut file, &[0.5_f32.to_bits(), self.width() as u32, 0, 0, 0, 1, 5, 1], 26);
        for name in ["reg:squarederror", "gbtree"] {
            file.extend((name.len() as u64).to_le_bytes());
            file.extend(name.as_bytes());
        }
        words(&mut file, &[self.trees as u32, 1], 38);
        let (left, right, parents) = (&self.left, self.right(), self.parents());
        let floats = self.floats();
        for tree in 0..self.trees {
            let features = self.features(tree);
            words(&mut file, &[1, left.len() as u32, 0, 0, self.width() as u32, 0], 31);
            for at in 0..left.len() {
                let (node, split) = ([parents[at], left[at], right[at]], features[at] as u32);
                words(&mut file, &node.map(i32::cast_unsigned), 0);
                words(&mut file, &[split | (at as u32 % 2) << 31, floats[at].to_bits()], 0);
            }
            for cover in self.covers() {
                words(&mut file, &[0, cover.to_bits()], 2);
            }
        }
        words(&mut file, &[], self.trees);
        file
    }
}

fn length(length: usize) -> Vec<u8> {
    (length as i64).to_be_bytes().to_vec()
}

fn typed(of: u8, bytes: impl IntoIterator<Item = u8>, width: usize) -> Vec<u8> {
    let bytes: Vec<_> = bytes.into_iter().collect();
    [b"[$".to_vec(), vec![of], b"#L".to_vec(), length(bytes.len() / width), bytes].concat()
}

fn string(text: &str) -> Vec<u8> {
    [b"SL".to_vec(), length(text.len()), text.as_bytes().to_vec()].concat()
}

fn object(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries = entries.iter().map(|(key, value)| [&string(key)[1..], value].concat());
    [b"{".to_vec(), entries.collect::<Vec<_>>().concat(), b"}".to_vec()].concat()
}
