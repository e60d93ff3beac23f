//! The engine in this process for models made of decision trees.
//!
//! # XGBoost, LightGBM and CatBoost
//!
//! A model of XGBoost is one file in the image's directory `/data/xgboost`: `model.ubj`,
//! `model.json`, `model.bin` or `deploy.model`, of any format that the crate `trees` reads. One of
//! LightGBM is `/data/lightgbm/model.txt`, and one of CatBoost `/data/catboost/model.json`. An
//! optional `options.json` beside the file has the settings of scoring ([`Scoring`]).
//!
//! Its input is `features`, float32 or float64 `[R, columns]`; a missing value is NaN. Its outputs are `value`,
//! the prediction, and `margin`, the prediction before the transformation of the objective; both
//! are float32, `[R]`, or `[R, groups]` for a model that predicts several numbers. The output `leaf`
//! has the number of the leaf of each tree, int32 `[R, trees]`, or `[R]` for a model of one tree.
//!
//! An uplift model ([`Uplift`](outrigger_core::Uplift) in metadata.json) compares the prediction for
//! each row with that for its control, and has outputs for both and for their difference.
//!
//! The signature `sparse` has rows of ids with weights in place of `features`: the inputs
//! `xgboost_features`, int64 `[N]`, the ids of all rows; `xgboost_features_weights`, float32 `[N]`;
//! and `xgboost_features_lengths`, int64 `[R]`, the number of ids of each row. An id is the number of
//! a column. The optional input `ntree_limit`, int64 `[1]`, limits the trees of each output that
//! count, to those of whole iterations; 0 is no limit. The leaf of a tree that does not count is -1.
//!
//! # Trees with a factorisation machine
//!
//! A model of the frameworks `gbdt_fm` (two classes) and `gbdt_fm_softmax` is three files in
//! `/data/gbdt_fm`: `deploy.model` (or `model.ubj`, `model.json`, `model.bin`), `deploy.fm` and
//! `deploy.leaf_mapping`, as the crate `fm` reads them; and an optional `options.json`. Its inputs are
//! sparse rows: `xgboost_features` for trees and machine, and optional `fm_features` for the machine
//! alone, both in three tensors as above. Its outputs are `score` and `margin`, float32 `[R]`, or
//! `[R, classes]`. An optional `deploy.names` has the ids of features that have names in `deploy.fm`.
//!
//! # Models without metadata.json
//!
//! Files of XGBoost Serving are described by what they are: `deploy.model` alone, or with the other
//! files of a factorisation machine. The features of a treatment are the sparse rows, and the outputs
//! those of XGBoost Serving.

mod cell;
mod describe;
mod divide;
mod files;
mod gbdt_fm;
mod libraries;
mod model;
mod scoring;
mod sparse;
#[cfg(test)]
mod testing;
mod uplift;

use std::sync::Arc;

use outrigger_budget::Budget;
use outrigger_core::{Failure, Interface, Reason};
use outrigger_run::{
    Framework, PackagedModel,
    local::{self, Local},
};
use outrigger_trees::{Library, Limits};

pub use gbdt_fm::{GBDT_FM, GBDT_FM_SOFTMAX, GbdtFm};
pub use libraries::{CATBOOST, LIGHTGBM, XGBOOST};
pub use model::Model;
pub use scoring::{Iterations, Named, Scoring};

/// All frameworks of [`engine`].
pub const FRAMEWORKS: [Framework; 5] = [XGBOOST, LIGHTGBM, CATBOOST, GBDT_FM, GBDT_FM_SOFTMAX];

/// An engine for tree models, whose memory is charged to `budget`.
pub fn engine(budget: &Budget) -> Local {
    Local::new(FRAMEWORKS.into(), load, budget)
}

/// Reads the interface of a model of `library` from the description of its trees. Those of XGBoost
/// are read once, by [`load`].
fn interface(
    model: &PackagedModel,
    signature: &str,
    library: Library,
) -> Result<Interface, Failure> {
    let directory = &model.directory;
    if gbdt_fm::is_in(directory) {
        let frameworks = [GBDT_FM, GBDT_FM_SOFTMAX].map(|framework| framework.name).join(" or ");
        return Err(invalid(format!("its files are those of a model of {frameworks}")));
    }
    let no_signature = |model: &str| invalid(format!("{model} has no signature {signature:?}"));
    if !model::SIGNATURES.contains(&signature) {
        return Err(no_signature("a tree model"));
    }
    let (scoring, header) =
        (Scoring::read(directory)?, files::header(directory, &Limits::default())?);
    libraries::check(header.library(), library)?;
    let iterations = scoring.iterations.of(&header)?;
    match &model.uplift {
        None => model::interface(&header, (&iterations, model.is_double), signature)
            .ok_or_else(|| no_signature(&format!("a model of {}", libraries::of(library).name))),
        Some(uplift) if signature == model::SIGNATURE => {
            uplift::interface(uplift, &header, model.is_double)
        }
        Some(_) => Err(no_signature("an uplift model, whose rows are dense,")),
    }
}

/// Loads a model, of whichever framework its files are. Blocks.
///
/// # Errors
/// IMAGE_INVALID when a file is missing or is not valid.
pub fn load(packaged: &PackagedModel) -> Result<Arc<dyn local::Model>, Failure> {
    let directory = &packaged.directory;
    if gbdt_fm::is_in(directory) {
        return Ok(Arc::new(gbdt_fm::read(packaged.without_uplift()?)?));
    }
    let scoring = Scoring::read(directory)?;
    let mut model = Model::new(files::model(directory, packaged.is_double)?, &scoring)?;
    model.is_double = packaged.is_double;
    match &packaged.uplift {
        None => Ok(Arc::new(model)),
        Some(uplift) => uplift::load(uplift, model, directory, &scoring),
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(Reason::ImageInvalid, message)
}
