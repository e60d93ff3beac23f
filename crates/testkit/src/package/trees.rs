//! The smallest model as trees, in XGBoost's JSON.

use serde_json::{Value, json};

/// The levels of a tree below its root, and the number of its leaves.
const LEVELS: u32 = 6;
const LEAVES: i32 = 1 << LEVELS;
/// The values of neighbouring leaves differ by this.
const STEP: f64 = 0.25;
/// The value of the first leaf.
const FIRST: f64 = -8.0;

/// The content of metadata.json: a user's feature `u0` and a treatment's features `t0` and `t1`.
pub(super) fn metadata() -> Value {
    json!({
        "schema": "outrigger.dev/model/v1",
        "framework": "xgboost",
        "inputs": [{"tensor": "features", "entity": "joined", "dtype": "float32", "features": [
            {"name": "u0", "entity": "user", "default": 0},
            {"name": "t0", "entity": "treatment", "required": true},
            {"name": "t1", "entity": "treatment", "required": true},
        ]}],
        "outputs": [{"tensor": "margin", "name": "score", "kind": "per_treatment"}],
    })
}

/// A model whose score is `bias` and the sum of a treatment's features, which must be multiples of a
/// quarter from -8 to 8.
pub(super) fn model(bias: u16) -> Value {
    json!({"version": [2, 1, 4], "learner": {
        "attributes": {}, "feature_names": ["u0", "t0", "t1"], "feature_types": [],
        "objective": {"name": "reg:squarederror"},
        "learner_model_param":
            {"base_score": bias.to_string(), "num_feature": "3", "num_class": "0"},
        "gradient_booster": {"name": "gbtree", "model": {
            "gbtree_model_param": {"num_trees": "2", "num_parallel_tree": "1"},
            "iteration_indptr": [0, 1, 2], "tree_info": [0, 0],
            "trees": [identity(1), identity(2)],
        }},
    }})
}

/// A complete tree whose leaves have the value of a column. The children of node `i` are `2i + 1` and
/// `2i + 2`.
fn identity(column: i32) -> Value {
    let nodes = 2 * LEAVES - 1;
    let is_leaf = |node: &i32| *node >= LEAVES - 1;
    let child = |right: i32| {
        let of = move |node: i32| if is_leaf(&node) { -1 } else { 2 * node + 1 + right };
        (0..nodes).map(of).collect::<Vec<_>>()
    };
    let columns = (0..nodes).map(|node| if is_leaf(&node) { 0 } else { column });
    json!({
        "tree_param":
            {"num_nodes": nodes.to_string(), "num_feature": "3", "size_leaf_vector": "1"},
        "left_children": child(0),
        "right_children": child(1),
        "split_indices": columns.collect::<Vec<_>>(),
        "split_conditions": (0..nodes).map(condition).collect::<Vec<_>>(),
        "default_left": vec![0; nodes as usize],
        "split_type": vec![0; nodes as usize],
        "sum_hessian": (0..nodes).map(leaves_below).collect::<Vec<_>>(),
        "categories": [], "categories_nodes": [], "categories_segments": [],
        "categories_sizes": [],
    })
}

/// The number of leaves below a node, or 1 for a leaf.
fn leaves_below(node: i32) -> i32 {
    LEAVES >> (node + 1).ilog2()
}

/// The value of a leaf, or the threshold of a node: the value of the first leaf on its right.
fn condition(node: i32) -> f64 {
    let level = (node + 1).ilog2();
    let (position, below) = (node + 1 - (1 << level), LEVELS - level);
    let leaf = (position << below) + (1 << below) / 2;
    FIRST + STEP * f64::from(leaf)
}
