//! What packed requests ask of the engine.

use std::sync::Arc;

use outrigger_backend::{Call, Target};
use outrigger_core::ServableId;
use outrigger_features::{Packed, Plan};
use tokio::time::Instant;

/// What requests packed by `plan` run of `id`.
pub(crate) fn target(id: &ServableId, plan: &Plan) -> Arc<Target> {
    let metadata = plan.metadata();
    let inputs = metadata.inputs.iter().map(|input| Arc::clone(&input.tensor));
    let outputs = metadata.outputs.iter().map(|output| Arc::clone(&output.tensor));
    let signature = Arc::clone(plan.signature());
    Arc::new(Target::new(id.clone(), signature, inputs, outputs))
}

/// The run of `target` that `packed` needs. Takes the tensors.
pub(crate) fn call(
    target: &Arc<Target>,
    plan: &Plan,
    packed: &mut Packed,
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

#[cfg(test)]
mod tests {
    use outrigger_core::{ModelName, ServableName, Version};
    use outrigger_features::Metadata;
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    fn plan() -> Plan {
        let metadata = json!({
            "schema": "outrigger.dev/model/v1",
            "framework": "tensorflow",
            "inputs": [
                {"tensor": "offers", "entity": "treatment", "dtype": "float32",
                 "features": [{"name": "price", "missing": "nan"}]},
                {"tensor": "ages", "entity": "user", "dtype": "int64",
                 "features": [{"name": "age", "default": 40}]},
                {"tensor": "counts", "entity": "treatment_count", "dtype": "int32"},
            ],
            "outputs": [
                {"tensor": "scores", "name": "score", "kind": "per_treatment"},
                {"tensor": "chances", "name": "chance", "kind": "per_treatment"},
            ],
        });
        Plan::compile(Metadata::parse(metadata.to_string().as_bytes()).expect("valid"))
    }

    #[test]
    fn a_target_knows_the_names_of_a_usual_call() {
        let (plan, model) = (plan(), "m".parse::<ModelName>().expect("a valid name"));
        let id = ServableId { name: ServableName::of(&model), version: Version(1) };
        let request = plan.smoke_request().encode_to_vec();
        let mut packed = plan.pack(&[&request], &Default::default()).expect("a valid request");
        let target = target(&id, &plan);
        let call = call(&target, &plan, &mut packed, Instant::now());
        let inputs = call.inputs.iter().map(|tensor| Arc::clone(&tensor.name));
        let usual = Target::new(id, &**plan.signature(), inputs, call.outputs.clone());
        assert!(*target == usual, "other names");
    }
}
