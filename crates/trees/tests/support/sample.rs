//! Model files of any size, with the keys that XGBoost writes.

use std::fmt::Write as _;

/// A model of full trees.
pub(crate) struct Sample {
    pub(crate) trees: usize,
    /// Splits on the way to each leaf.
    pub(crate) depth: u32,
}

/// The features of every sample.
const FEATURES: usize = 20;

impl Sample {
    fn nodes(&self) -> i32 {
        (2 << self.depth) - 1
    }

    /// The left children of the nodes in breadth-first order; -1 for leaves.
    fn left(&self) -> Vec<i32> {
        let splits = self.nodes() / 2;
        (0..self.nodes()).map(|at| if at < splits { 2 * at + 1 } else { -1 }).collect()
    }

    fn right(&self) -> Vec<i32> {
        self.left().iter().map(|left| if *left < 0 { -1 } else { left + 1 }).collect()
    }

    fn parents(&self) -> Vec<i32> {
        (0..self.nodes()).map(|at| if at == 0 { i32::MAX } else { (at - 1) / 2 }).collect()
    }

    fn features(&self) -> Vec<i32> {
        (0..self.nodes()).map(|at| at * 7 % FEATURES as i32).collect()
    }

    fn floats(&self) -> Vec<f32> {
        (0..self.nodes()).map(|at| (at as f32 * 0.618).sin()).collect()
    }

    /// The covers of the nodes: as many as there are leaves below.
    fn covers(&self) -> Vec<f32> {
        let levels = (0..self.nodes()).map(|at| (at + 1).ilog2());
        levels.map(|level| (1 << (self.depth - level)) as f32).collect()
    }

    fn flags(&self) -> Vec<u8> {
        (0..self.nodes()).map(|at| (at % 2) as u8).collect()
    }

    /// The model in JSON.
    pub(crate) fn json(&self) -> Vec<u8> {
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
        array("left_children", integers(self.left()));
        array("loss_changes", floats());
        array("parents", integers(self.parents()));
        array("right_children", integers(self.right()));
        array("split_conditions", floats());
        array("split_indices", integers(self.features()));
        array("split_type", self.flags().iter().map(|_| "0".to_owned()).collect());
        array("sum_hessian", texts(self.covers()));
        tree.push_str("\"tree_param\":{\"size_leaf_vector\":\"1\"}}");
        let trees = vec![tree; self.trees].join(",");
        let groups = vec!["0"; self.trees].join(",");
        let model = format!("{{\"tree_info\":[{groups}],\"trees\":[{trees}]}}");
        let booster = format!("{{\"model\":{model},\"name\":\"gbtree\"}}");
        let parameters = format!(
            "{{\"base_score\":\"5E-1\",\"num_class\":\"0\",\"num_feature\":\"{FEATURES}\"}}"
        );
        let objective = "{\"name\":\"reg:squarederror\"}";
        let learner = format!(
            "{{\"gradient_booster\":{booster},\"learner_model_param\":{parameters},\"objective\":{objective}}}"
        );
        format!("{{\"learner\":{learner},\"version\":[3,0,0]}}").into_bytes()
    }

    /// The model in UBJSON.
    pub(crate) fn ubjson(&self) -> Vec<u8> {
        let typed_floats =
            |values: Vec<f32>| typed(b'd', values.into_iter().flat_map(f32::to_be_bytes), 4);
        let floats = typed_floats(self.floats());
        let integers =
            |values: Vec<i32>| typed(b'l', values.into_iter().flat_map(i32::to_be_bytes), 4);
        let tree = object(&[
            ("base_weights", floats.clone()),
            ("default_left", typed(b'U', self.flags(), 1)),
            ("left_children", integers(self.left())),
            ("loss_changes", floats.clone()),
            ("parents", integers(self.parents())),
            ("right_children", integers(self.right())),
            ("split_conditions", floats.clone()),
            ("split_indices", integers(self.features())),
            ("split_type", typed(b'U', self.flags().iter().map(|_| 0), 1)),
            ("sum_hessian", typed_floats(self.covers())),
            ("tree_param", object(&[("size_leaf_vector", string("1"))])),
        ]);
        let trees = [b"[#L".to_vec(), length(self.trees), tree.repeat(self.trees)].concat();
        let groups = typed(b'l', vec![0; 4 * self.trees], 4);
        let model = object(&[("tree_info", groups), ("trees", trees)]);
        let parameters = object(&[
            ("base_score", string("5E-1")),
            ("num_class", string("0")),
            ("num_feature", string(&FEATURES.to_string())),
        ]);
        let learner = object(&[
            ("gradient_booster", object(&[("model", model), ("name", string("gbtree"))])),
            ("learner_model_param", parameters),
            ("objective", object(&[("name", string("reg:squarederror"))])),
        ]);
        object(&[("learner", learner), ("version", typed(b'U', [3, 0, 0], 1))])
    }

    /// The model in the binary format.
    pub(crate) fn binary(&self) -> Vec<u8> {
        let mut file = b"binf".to_vec();
        let words = |file: &mut Vec<u8>, words: &[u32], reserved: usize| {
            file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            file.extend(std::iter::repeat_n(0, 4 * reserved));
        };
        words(&mut file, &[0.5_f32.to_bits(), FEATURES as u32, 0, 0, 0, 1, 5, 1], 26);
        for name in ["reg:squarederror", "gbtree"] {
            file.extend((name.len() as u64).to_le_bytes());
            file.extend(name.as_bytes());
        }
        words(&mut file, &[self.trees as u32, 1], 38);
        let (left, right, parents) = (self.left(), self.right(), self.parents());
        let (features, floats) = (self.features(), self.floats());
        for _ in 0..self.trees {
            words(&mut file, &[1, self.nodes() as u32, 0, 0, FEATURES as u32, 0], 31);
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
