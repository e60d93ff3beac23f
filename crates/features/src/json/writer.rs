//! The parts of answers in JSON.

use outrigger_json::writer::{Object, put};
use outrigger_proto::outrigger::v1::{Arm, ServedModel, TreatmentError};

/// Bytes of an answer besides its rows, its texts and its errors, and of a row without its texts.
pub(crate) const ANSWER: usize = 1 << 10;
pub(crate) const ROW: usize = 64;
/// Bytes of a number, and of an integer, with its comma.
pub(crate) const NUMBER: usize = 16;
pub(crate) const INTEGER: usize = 21;

/// Writes the version that answers.
pub(crate) fn write_model(model: &ServedModel, out: &mut Vec<u8>) {
    let arm = match model.arm() {
        Arm::Unspecified => "",
        Arm::Live => "live",
        Arm::Canary => "canary",
        Arm::Pinned => "pinned",
    };
    let mut object = Object::open(out);
    object.text("arm", arm);
    object.text("digest", &model.digest);
    object.text("name", &model.name);
    object.text("platform_digest", &model.platform_digest);
    object.text("tag", &model.tag);
    object.close();
}

/// About as many bytes as the JSON of an error has.
pub(crate) fn error_room(error: &TreatmentError) -> usize {
    ROW + error.feature.len() + error.id.len() + error.message.len() + error.reason.len()
}

/// Writes why a treatment was left out.
pub(crate) fn write_error(error: &TreatmentError, out: &mut Vec<u8>) {
    let mut object = Object::open(out);
    object.text("feature", &error.feature);
    object.text("id", &error.id);
    put(error.index, object.key("index"));
    object.text("message", &error.message);
    object.text("reason", &error.reason);
    object.close();
}
