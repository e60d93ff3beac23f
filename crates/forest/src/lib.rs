//! The engine in this process for models made of decision trees.
//!
//! A model of XGBoost is one file in the image's directory `/data/xgboost`: `model.ubj`,
//! `model.json`, `model.bin` or `deploy.model`, of any format that the crate `trees` reads. An
//! optional `options.json` beside it has the settings of scoring ([`Scoring`]).
//!
//! Its input is `features`, float32 `[R, columns]`; a missing value is NaN. Its outputs are `value`,
//! the prediction, and `margin`, the prediction before the transformation of the objective; both
//! are float32, `[R]`, or `[R, groups]` for a model that predicts several numbers. The output `leaf`
//! has the number of the leaf of each tree, int32 `[R, trees]`, or `[R]` for a model of one tree.
//!
//! An uplift model ([`Uplift`]) compares the prediction for each row with that for its control, and
//! has outputs for both and for their difference.

mod files;
mod model;
mod scoring;
mod uplift;

use std::{path::Path, sync::Arc};

use outrigger_budget::Budget;
use outrigger_core::{Failure, Interface, PackageLayout, Reason};
use outrigger_run::{
    Framework,
    local::{self, Local},
};
use outrigger_trees::Limits;

pub use model::Model;
pub use scoring::{Iterations, Named, Scoring};
pub use uplift::Uplift;

/// The framework of XGBoost's models.
pub const XGBOOST: Framework = Framework {
    name: "xgboost",
    layout: PackageLayout {
        directory: "xgboost",
        files: &["model.ubj", "model.json", "model.bin", "deploy.model"],
        max_file: 8 << 30,
        versioned: false,
    },
    reading,
    interface,
    others: Some(uplift::ARMS),
};

/// An engine for tree models, whose memory is charged to `budget`.
pub fn engine(budget: &Budget) -> Local {
    Local::new(vec![XGBOOST], load, budget)
}

/// Reading takes at most twice the file, as the crate `trees` promises.
fn reading(size: u64) -> u64 {
    size.saturating_mul(2).saturating_add(Limits::OVERHEAD)
}

/// Reads the interface from the description of the trees: they are read once, by [`load`].
fn interface(directory: &Path, signature: &str) -> Result<Interface, Failure> {
    if signature != model::SIGNATURE {
        return Err(invalid(format!("a tree model has no signature {signature:?}")));
    }
    let (scoring, header) = (Scoring::read(directory)?, files::header(directory)?);
    let iterations = scoring.iterations.of(&header)?;
    match &scoring.uplift {
        None => Ok(model::interface(&header, &iterations)),
        Some(uplift) => uplift.interface(&header),
    }
}

/// Loads the model in `directory`. Blocks.
///
/// # Errors
/// IMAGE_INVALID when a file is missing or is not valid.
pub fn load(directory: &Path) -> Result<Arc<dyn local::Model>, Failure> {
    let scoring = Scoring::read(directory)?;
    let model = Model::new(files::model(directory)?, &scoring)?;
    match &scoring.uplift {
        None => Ok(Arc::new(model)),
        Some(uplift) => uplift.load(model, directory, &scoring),
    }
}

fn invalid(message: String) -> Failure {
    Failure::new(Reason::ImageInvalid, message)
}
