//! The framework of ONNX models.

use outrigger_core::{Failure, Interface, PackageLayout, Reason};
use outrigger_run::{Framework, PackagedModel};

use crate::file::{self, FILE};

/// The signature of every model.
pub(crate) const SIGNATURE: &str = "serving_default";
/// The largest size allowed for a model's file, in bytes: that of a protobuf message. Larger models
/// have files of weights.
const MAX_FILE: u64 = 2 << 30;
/// The memory for the names and types of a file, which have at most 4 MiB.
const READING: u64 = 16 << 20;

/// ONNX models.
pub const ONNX: Framework = Framework {
    name: "onnx",
    layout: PackageLayout {
        directory: "onnx",
        files: &[FILE],
        parts: &[],
        max_file: MAX_FILE,
        versioned: false,
    },
    reading: |_| READING,
    interface,
    others: None,
    describer: None,
    remark: None,
};

fn interface(model: &PackagedModel, signature: &str) -> Result<Interface, Failure> {
    if signature != SIGNATURE {
        let message = format!("an ONNX model has no signature {signature:?}, only {SIGNATURE:?}");
        return Err(Failure::new(Reason::ImageInvalid, message));
    }
    Ok(file::read(model.without_uplift()?)?)
}
