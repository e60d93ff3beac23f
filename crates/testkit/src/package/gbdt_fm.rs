//! The smallest model as trees with a factorisation machine: the machine adds the values that the
//! leaves of `trees` have, as weights of the leaves' features.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::trees::{self, FIRST_LEAF, LEAVES};

/// The content of metadata.json: the features of `trees::metadata`, whose ids are their columns.
pub(super) fn metadata() -> Value {
    json!({
        "schema": "outrigger.dev/model/v1",
        "framework": "gbdt_fm",
        "inputs": [{
            "tensor": "xgboost_features",
            "weights": "xgboost_features_weights",
            "lengths": "xgboost_features_lengths",
            "entity": "joined",
            "dtype": "int64",
            "features": [
                {"name": "u0", "entity": "user", "id": 0, "default": 0},
                {"name": "t0", "entity": "treatment", "id": 1, "required": true},
                {"name": "t1", "entity": "treatment", "id": 2, "required": true},
            ],
        }],
        "outputs": [{"tensor": "margin", "name": "score", "kind": "per_treatment"}],
    })
}

/// The content of deploy.fm, for a model whose score is `bias` and the sum of a treatment's
/// features, as that of `trees::model`.
pub(super) fn machine(bias: u16) -> String {
    let mut file = format!("bias {bias}\n");
    for tree in 0..trees::TREES {
        for leaf in 0..LEAVES {
            writeln!(file, "{} {}", id(tree, leaf), trees::value(leaf)).expect("memory");
        }
    }
    file
}

/// The content of deploy.leaf_mapping.
pub(super) fn leaf_mapping() -> String {
    let pair = |tree, leaf| format!(" {}:{}", FIRST_LEAF + leaf, id(tree, leaf));
    let line = |tree| (0..LEAVES).map(|leaf| pair(tree, leaf)).collect::<String>();
    (0..trees::TREES).map(|tree| format!("{tree}{}\n", line(tree))).collect()
}

/// The id of a leaf.
fn id(tree: i32, leaf: i32) -> i32 {
    1000 * (tree + 1) + leaf
}
