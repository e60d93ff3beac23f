//! The frameworks of tree models: one for each library whose files the crate `trees` reads.

use std::path::{Path, PathBuf};

use outrigger_core::{Failure, Interface, PackageLayout};
use outrigger_run::{Framework, PackagedModel};
use outrigger_trees::{Library, Limits};

use crate::{describe, interface, invalid};

/// The framework of XGBoost's models.
pub const XGBOOST: Framework = Framework {
    describer: Some(describe::TREES),
    ..framework(
        "xgboost",
        &["model.ubj", "model.json", "model.bin", describe::MODEL],
        |model, signature| interface(model, signature, Library::Xgboost),
    )
};

/// The framework of LightGBM's models.
pub const LIGHTGBM: Framework = framework("lightgbm", &["model.txt"], |model, signature| {
    interface(model, signature, Library::Lightgbm)
});

/// The framework of CatBoost's models. A file in its binary format is refused with the way to write
/// it as JSON.
pub const CATBOOST: Framework =
    framework("catboost", &["model.json", "model.cbm"], |model, signature| {
        interface(model, signature, Library::Catboost)
    });

/// The directory with the models of the arms of a T-learner, in that of the model.
pub(crate) const ARMS: &str = "arms";

const ALL: [Framework; 3] = [XGBOOST, LIGHTGBM, CATBOOST];

/// A framework whose directory has its name, and one of `files`.
const fn framework(
    name: &'static str,
    files: &'static [&'static str],
    interface: fn(&PackagedModel, &str) -> Result<Interface, Failure>,
) -> Framework {
    let directory = name;
    let (max_file, versioned) = (8 << 30, false);
    let layout = PackageLayout { directory, files, parts: &[], max_file, versioned };
    Framework {
        name,
        layout,
        reading,
        interface,
        others: Some(ARMS),
        describer: None,
        remark: None,
    }
}

/// The framework of a library's models.
pub(crate) const fn of(library: Library) -> Framework {
    match library {
        Library::Xgboost => XGBOOST,
        Library::Lightgbm => LIGHTGBM,
        Library::Catboost => CATBOOST,
    }
}

/// Reading takes at most twice the file, as the crate `trees` promises.
fn reading(size: u64) -> u64 {
    size.saturating_mul(2).saturating_add(Limits::OVERHEAD)
}

/// The file of the model in `directory`, of whichever library it is. Blocks.
///
/// # Errors
/// IMAGE_INVALID if there is none.
pub(crate) fn file(directory: &Path) -> Result<PathBuf, Failure> {
    let found = ALL.iter().find_map(|framework| framework.file(directory));
    found.ok_or_else(|| {
        let names = ALL.iter().flat_map(|framework| framework.layout.files);
        let names: Vec<_> = names.copied().collect();
        invalid(format!("the model's directory has no {}", names.join(" or ")))
    })
}

/// Checks that a model is of the library whose framework metadata.json names.
///
/// # Errors
/// IMAGE_INVALID if it is of another one.
pub(crate) fn check(found: Library, declared: Library) -> Result<(), Failure> {
    if found == declared {
        return Ok(());
    }
    let (name, found, declared) = (of(found).name, found.name(), declared.name());
    Err(invalid(format!(
        "the file is a model of {found}, not of {declared}: its framework is {name}"
    )))
}

#[cfg(test)]
pub(crate) mod tests;
