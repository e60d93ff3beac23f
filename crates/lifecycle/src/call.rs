//! What a packed request asks of the engine.

use std::sync::Arc;

use outrigger_backend::{Call, Target};
use outrigger_features::{Packed, Plan};
use tokio::time::Instant;

/// The run of `target` that `packed` needs. Takes the tensors.
pub(crate) fn call(
    target: &Arc<Target>,
    plan: &Plan,
    packed: &mut Packed<'_>,
    deadline: Instant,
) -> Call {
    Call {
        target: Arc::clone(target),
        inputs: std::mem::take(&mut packed.tensors),
        outputs: plan.output_names(packed),
        deadline,
        metadata: Default::default(),
    }
}
