//! Turns packed requests into runs of a model.

use std::sync::Arc;

use outrigger_core::ServableId;
use outrigger_features::{Packed, Plan};
use outrigger_run::{Call, Target};
use tokio::time::Instant;

/// Creates the target for runs of `id` with requests packed by `plan`.
pub(crate) fn target(id: &ServableId, plan: &Plan) -> Target {
    let metadata = plan.metadata();
    Target {
        id: id.clone(),
        signature: Arc::clone(plan.signature()),
        inputs: metadata.inputs.iter().map(|input| Arc::clone(&input.tensor)).collect(),
        outputs: metadata.outputs.iter().map(|output| Arc::clone(&output.tensor)).collect(),
    }
}

/// Creates the run for `packed`, and takes its tensors.
pub(crate) fn call(plan: &Plan, packed: &mut Packed, deadline: Instant) -> Call {
    Call {
        inputs: std::mem::take(&mut packed.tensors),
        outputs: plan.output_names(packed),
        deadline,
        headers: Default::default(),
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
        let call = call(&plan, &mut packed, Instant::now());
        let inputs: Vec<_> = call.inputs.iter().map(|tensor| Arc::clone(&tensor.name)).collect();
        assert_eq!((target.inputs, target.outputs), (inputs, call.outputs));
    }
}
