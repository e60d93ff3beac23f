//! Model files of any size, with the keys that LightGBM and CatBoost write.

use std::fmt::Display;

/// The features of every model.
pub(crate) const FEATURES: usize = 20;

/// A number that has as many digits as those of trained models.
fn number(at: usize) -> f64 {
    (at as f64 * 0.618).sin()
}

fn list<T: Display>(count: usize, separator: &str, element: impl Fn(usize) -> T) -> String {
    (0..count).map(|at| element(at).to_string()).collect::<Vec<_>>().join(separator)
}

/// A model of LightGBM: full trees with `depth` splits on the way to each leaf.
pub(crate) fn lightgbm(trees: usize, depth: u32) -> String {
    lightgbm_of(trees, depth, line("is_linear", "0".to_owned()))
}

/// A model of LightGBM whose leaves have linear models of `used` features each. Trees of at least
/// five levels split on all features.
pub(crate) fn lightgbm_linear(trees: usize, depth: u32, used: usize) -> String {
    let leaves = 1_usize << depth;
    let of_each = |element: &dyn Fn(usize) -> String| {
        list(leaves, "  ", |leaf| list(used, " ", |at| element(leaf * used + at)))
    };
    let models = [
        line("is_linear", "1".to_owned()),
        line("leaf_const", list(leaves, " ", number)),
        line("num_features", list(leaves, " ", |_| used)),
        line("leaf_features", of_each(&|at| (at % FEATURES).to_string())),
        line("leaf_coeff", of_each(&|at| number(at).to_string())),
    ];
    lightgbm_of(trees, depth, models.concat())
}

fn line(key: &str, values: String) -> String {
    format!("{key}={values}\n")
}

/// A model whose trees have the lines `models` too.
fn lightgbm_of(trees: usize, depth: u32, models: String) -> String {
    let leaves = 1_usize << depth;
    let splits = leaves - 1;
    let child = |at: usize| if at < splits { at as i64 } else { -((at - splits) as i64) - 1 };
    let tree = [
        line("num_leaves", leaves.to_string()),
        line("num_cat", "0".to_owned()),
        line("split_feature", list(splits, " ", |at| at * 7 % FEATURES)),
        line("split_gain", list(splits, " ", |at| number(at) as f32)),
        line("threshold", list(splits, " ", number)),
        line("decision_type", list(splits, " ", |at| [2, 8, 10][at % 3])),
        line("left_child", list(splits, " ", |at| child(2 * at + 1))),
        line("right_child", list(splits, " ", |at| child(2 * at + 2))),
        line("leaf_value", list(leaves, " ", number)),
        line("leaf_weight", list(leaves, " ", number)),
        line("leaf_count", list(leaves, " ", |at| 20 + at % 80)),
        line("internal_value", list(splits, " ", |at| number(at) as f32)),
        line("internal_weight", list(splits, " ", |at| number(at) as f32)),
        line("internal_count", list(splits, " ", |at| 40 + at % 1000)),
        models,
        line("shrinkage", "0.1".to_owned()),
    ]
    .concat();
    let trees = list(trees, "", |at| format!("Tree={at}\n{tree}\n\n"));
    let names = list(FEATURES, " ", |at| format!("Column_{at}"));
    let header = [
        "tree\nversion=v4\n",
        &line("num_class", "1".to_owned()),
        &line("num_tree_per_iteration", "1".to_owned()),
        &line("max_feature_idx", (FEATURES - 1).to_string()),
        &line("objective", "binary sigmoid:1".to_owned()),
        &line("feature_names", names),
    ]
    .concat();
    format!("{header}\n{trees}end of trees\n")
}

/// A model of CatBoost, whose trees have `depth` levels.
pub(crate) fn catboost(trees: usize, depth: usize) -> String {
    let split = |at: usize| {
        let (border, feature) = (number(at), at * 7 % FEATURES);
        format!("{{\"border\":{border},\"float_feature_index\":{feature}}}")
    };
    let values = list(1 << depth, ",", number);
    let weights = list(1 << depth, ",", |at| 20 + at % 80);
    let splits = list(depth, ",", split);
    let tree = format!(
        "{{\"leaf_values\":[{values}],\"leaf_weights\":[{weights}],\"splits\":[{splits}]}}"
    );
    catboost_of("oblivious_trees", vec![tree; trees])
}

/// A model of CatBoost whose trees are not symmetric: of the two nodes of each of `depth` levels the
/// right one is a leaf. Leaves have `width` values.
pub(crate) fn catboost_nested(trees: usize, depth: usize, width: usize) -> String {
    let leaf = |at: usize| {
        let value = match width {
            1 => number(at).to_string(),
            _ => format!("[{}]", list(width, ",", |output| number(at + output))),
        };
        format!("{{\"value\":{value},\"weight\":{}}}", 20 + at % 80)
    };
    let mut tree = leaf(0);
    for at in 1..=depth {
        let (border, feature, leaf) = (number(at), at * 7 % FEATURES, leaf(at));
        let split = format!(
            "{{\"border\":{border},\"float_feature_index\":{feature},\"split_index\":{at},\
             \"split_type\":\"FloatFeature\"}}"
        );
        tree = format!("{{\"left\":{tree},\"right\":{leaf},\"split\":{split}}}");
    }
    catboost_of("trees", vec![tree; trees])
}

fn catboost_of(key: &str, trees: Vec<String>) -> String {
    let feature = |at: usize| {
        let treatment = "\"nan_value_treatment\":\"AsFalse\"";
        format!("{{\"feature_index\":{at},\"flat_feature_index\":{at},{treatment}}}")
    };
    let (features, trees) = (list(FEATURES, ",", feature), trees.join(","));
    format!(
        "{{\"features_info\":{{\"float_features\":[{features}]}},\
         \"model_info\":{{\"params\":{{\"loss_function\":{{\"type\":\"RMSE\"}}}}}},\
         \"{key}\":[{trees}],\"scale_and_bias\":[1,[0.5]]}}"
    )
}
