//! The servable that answers, in the form of `outrigger.v1`.

use outrigger_core::Arm;
use outrigger_lifecycle::Lease;
use outrigger_proto::outrigger::v1::{self as wire, ServedModel};
use prost::Message as _;

/// The model that answers, as the API shows it.
pub(crate) fn served(lease: &Lease) -> ServedModel {
    let ServedModel { name, digest, platform_digest, .. } = described(lease);
    ServedModel { name, digest, platform_digest, ..chosen(lease) }
}

/// [`served`] in protobuf: what is the same in all answers is encoded once.
pub(crate) fn encoded(lease: &Lease) -> Vec<u8> {
    let same = lease.described.get_or_init(|| described(lease).encode_to_vec().into());
    let chosen = chosen(lease);
    let mut encoded = Vec::with_capacity(same.len() + chosen.encoded_len());
    encoded.extend_from_slice(same);
    chosen.encode(&mut encoded).expect("a vector grows");
    encoded
}

/// The servable, however it was chosen.
fn described(lease: &Lease) -> ServedModel {
    ServedModel {
        name: lease.key.name.to_string(),
        digest: lease.key.digest.to_string(),
        platform_digest: lease.platform_digest.to_string(),
        ..ServedModel::default()
    }
}

/// How it was chosen.
fn chosen(lease: &Lease) -> ServedModel {
    let arm = match lease.arm() {
        Arm::Live => wire::Arm::Live,
        Arm::Canary => wire::Arm::Canary,
        Arm::Pinned => wire::Arm::Pinned,
    };
    ServedModel {
        tag: lease.tag().map(ToString::to_string).unwrap_or_default(),
        arm: arm.into(),
        ..ServedModel::default()
    }
}
