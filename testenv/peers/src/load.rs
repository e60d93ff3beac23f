//! Times the reading of a model file: until it is ready to score, and until it is freed.

use std::path::Path;

use serde_json::Value;

use crate::{
    Result,
    model::read_trees,
    timer,
    xgboost::{Booster, Library, Threads},
};

/// Seconds that this project takes.
pub(crate) fn ours(file: &Path) -> Result<Value> {
    timer::seconds(|_| read_trees(file).map(drop))
}

/// Seconds that XGBoost takes.
pub(crate) fn xgboost(library: &'static Library, file: &Path) -> Result<Value> {
    timer::seconds(|_| Booster::load(library, file, Threads::One).map(drop))
}
