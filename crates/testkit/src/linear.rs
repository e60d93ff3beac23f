//! Linear models, scored in this process: the worked example of a framework
//! (docs/contributing.md). Tests put it beside other engines.
//!
//! A model is the file `linear.json` in the image's directory `/data/linear`:
//! `{"user": [1.0], "treatment": [0.5, 2.0], "bias": 1.0}`. Its inputs are `user`, float32
//! `[B, users]`, `treatment`, float32 `[B, T, treatments]`, and `treatment_counts`, int32
//! `[B]`; its output `scores`, float32 `[B, T]`, is the dot product of features and weights
//! plus the bias.

mod model;

use std::{fs, path::Path, sync::Arc};

use outrigger_budget::Budget;
use outrigger_core::{Failure, Interface, PackageLayout, Reason};
use outrigger_run::{
    Framework, PackagedModel,
    local::{Local, Model as _},
};

pub use model::Model;

const FILE: &str = "linear.json";

/// Parsing takes this many bytes per byte of JSON: a weight of one digit and a comma becomes four.
const PARSED: u64 = 4;

/// The framework of linear models.
pub const LINEAR: Framework = Framework {
    name: "linear",
    layout: PackageLayout {
        directory: "linear",
        files: &[FILE],
        parts: &[],
        max_file: 1 << 20,
        versioned: false,
    },
    reading: |size| size * PARSED,
    interface,
    others: None,
    describer: None,
    remark: None,
};

/// An engine for linear models, whose memory is charged to `budget`.
pub fn engine(budget: &Budget) -> Local {
    Local::new(vec![LINEAR], |model| Ok(Arc::new(read(&model.directory)?)), budget)
}

fn interface(model: &PackagedModel, signature: &str) -> Result<Interface, Failure> {
    let interface = read(model.without_uplift()?)?.interface(signature);
    interface.ok_or_else(|| invalid(format!("a linear model has no signature {signature:?}")))
}

/// Reads the model in `directory`. Blocks.
///
/// # Errors
/// IMAGE_INVALID when the file is missing or is not a linear model.
pub fn read(directory: &Path) -> Result<Model, Failure> {
    let text = fs::read(directory.join(FILE))
        .map_err(|error| invalid(format!("{FILE} cannot be read: {error}")))?;
    serde_json::from_slice(&text).map_err(|error| invalid(format!("{FILE}: {error}")))
}

fn invalid(message: String) -> Failure {
    Failure::new(Reason::ImageInvalid, message)
}
