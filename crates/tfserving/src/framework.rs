//! The framework of the models that TensorFlow Serving runs.

use std::fs::File;

use outrigger_core::{Describer, Failure, Interface, PackageLayout, Reason};
use outrigger_run::{Framework, PackagedModel};

use crate::{describe::describe, read_interface};

/// The file that holds a model's graph and signatures.
pub(crate) const FILE: &str = "saved_model.pb";
/// The largest size allowed for that file, in bytes.
const MAX_FILE: u64 = 2 << 30;

/// The memory for the encoded signatures of a SavedModel, which have at most 512 KiB and take up to
/// 32 times that when they are decoded. The graph is skipped.
const READING: u64 = 16 << 20;
const _: () = assert!(READING <= Describer::MEMORY, "a description takes no more");

/// TensorFlow models: SavedModels.
pub const TENSORFLOW: Framework = Framework {
    name: "tensorflow",
    layout: PackageLayout {
        directory: "tensorflow_serving_model/model",
        files: &[FILE],
        parts: &[],
        max_file: MAX_FILE,
        versioned: true,
    },
    reading: |_| READING,
    interface,
    others: None,
    describer: Some(Describer { file: FILE, describe }),
    remark: None,
};

pub(crate) fn interface(model: &PackagedModel, signature: &str) -> Result<Interface, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new(Reason::ImageInvalid, format!("{FILE} cannot be read: {error}"))
    };
    let file = File::open(model.without_uplift()?.join(FILE)).map_err(unreadable)?;
    read_interface(file, signature).map_err(|error| Failure::because(error.reason(), &error))
}
