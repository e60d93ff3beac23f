//! The version that answers, in the form of `outrigger.v1`.

use outrigger_core::Arm;
use outrigger_lifecycle::Lease;
use outrigger_proto::outrigger::v1::{self as wire, ServedModel};
use prost::Message as _;

/// The version that answers, as the API shows it.
pub(crate) fn served(lease: &Lease) -> ServedModel {
    let ServedModel { name, digest, platform_digest, .. } = described(lease);
    ServedModel { name, digest, platform_digest, ..chosen(lease) }
}

/// Encodes [`served`] in protobuf. The part that all answers share is encoded once.
pub(crate) fn encoded(lease: &Lease) -> Vec<u8> {
    let same = lease.described.get_or_init(|| described(lease).encode_to_vec().into());
    let chosen = chosen(lease);
    let mut encoded = Vec::with_capacity(same.len() + chosen.encoded_len());
    encoded.extend_from_slice(same);
    chosen.encode(&mut encoded).expect("a vector grows");
    encoded
}

/// The fields that do not depend on how the version was chosen.
fn described(lease: &Lease) -> ServedModel {
    ServedModel {
        name: lease.key.name.to_string(),
        digest: lease.key.digest.to_string(),
        platform_digest: lease.platform_digest.to_string(),
        ..ServedModel::default()
    }
}

/// The fields that say how the version was chosen.
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
