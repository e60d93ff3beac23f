//! Responses written directly and built by prost, for any outputs of the engine.

use outrigger_core::{Content, DType, Tensor};
use outrigger_features::{Answer, Packed, Plan, metadata::OutputKind, reference};
use outrigger_proto::outrigger::v1::{
    Arm, BatchPredictResponse, Degraded, PredictResponse, ServedModel,
};
use prost::Message;

use super::entropy::Entropy;

/// Answers a packed call by both implementations, with outputs drawn from `entropy`.
pub(crate) fn both(plan: &Plan, packed: &Packed, entropy: &mut Entropy<'_>) {
    let outputs = outputs(plan, packed, entropy);
    let model = ServedModel {
        name: "offers/spring".into(),
        digest: "sha256:00".into(),
        arm: Arm::Canary.into(),
        ..Default::default()
    };
    let named = model.encode_to_vec();
    let written = plan.answer_batch(packed, &outputs, &named, "batch-1");
    let built = reference::answer(plan, packed, &outputs, &model);
    if let Ok([response]) = built.as_deref() {
        let written = plan.answer(packed, &outputs, &named).expect("as in a batch");
        same(&written, response, response.additional_outputs.len());
        let degraded = entropy
            .chance(60)
            .then(|| Degraded { reason: "ENGINE_FAILED".into(), used: "live".into() });
        let response = PredictResponse { degraded: degraded.clone(), ..response.clone() };
        let document = reference::predict_response(plan, &response).to_string();
        let written = written.to_json(&model, degraded.as_ref());
        assert_eq!(String::from_utf8_lossy(&written), document);
    }
    match (written, built) {
        (Ok(written), Ok(responses)) => {
            let others = responses.iter().map(|response| response.additional_outputs.len()).max();
            let built = BatchPredictResponse { responses, request_id: "batch-1".into() };
            same(&written, &built, others.unwrap_or(0));
        }
        (written, built) => assert_eq!(written.err(), built.err()),
    }
}

/// The bytes written equal those of prost, except for the order of a map's entries.
fn same<M: Message + Default + PartialEq + std::fmt::Debug>(
    written: &Answer<'_>,
    built: &M,
    entries: usize,
) {
    let length = written.encoded_len();
    let written = written.to_vec();
    assert_eq!(M::decode(written.as_slice()).as_ref(), Ok(built));
    assert_eq!((written.len(), built.encoded_len()), (length, length));
    if entries < 2 {
        assert_eq!(written, built.encode_to_vec());
    }
}

/// The outputs of a model, mostly as declared in metadata.json.
fn outputs(plan: &Plan, packed: &Packed, entropy: &mut Entropy<'_>) -> Vec<Tensor> {
    let (users, treatments) = (packed.users.len(), packed.treatments);
    let joined = plan.metadata().is_joined();
    let rows = packed.users.iter().map(outrigger_features::UserRows::kept).sum();
    let output = |output: &outrigger_features::metadata::Output| {
        let mut shape = match output.kind {
            OutputKind::PerTreatment if joined => vec![rows],
            OutputKind::PerTreatment => vec![users, treatments],
            OutputKind::Single => vec![users],
        };
        let count = output.width * shape.iter().product::<usize>();
        if output.width > 1 || entropy.chance(128) {
            shape.push(output.width);
        }
        let (dtype, content) = content(count, entropy);
        let shape = shape.into_iter().map(|size| size as i64).collect();
        Tensor { name: output.tensor.clone(), dtype, shape, content }
    };
    let mut outputs: Vec<_> = plan.metadata().outputs.iter().map(output).collect();
    if entropy.chance(24) {
        let at = entropy.below(outputs.len());
        damage(&mut outputs[at], entropy);
    }
    outputs
}

/// Numbers of a random type, many of them equal.
fn content(count: usize, entropy: &mut Entropy<'_>) -> (DType, Content) {
    const TYPES: [DType; 6] = [
        DType::Float32,
        DType::Float32,
        DType::Float32,
        DType::Float64,
        DType::Int32,
        DType::Int64,
    ];
    let dtype = entropy.one_of(&TYPES);
    let number = |entropy: &mut Entropy<'_>| match entropy.byte() {
        1 => f64::NAN,
        2 => f64::NEG_INFINITY,
        3 => -0.0,
        // Differs from the next integer, but not as a float32.
        4..8 => f64::from((1 << 24) + entropy.below(2) as u32),
        8..100 => f64::from(entropy.below(4) as u8) - 1.0,
        byte => f64::from(byte) / -7.0,
    };
    let element = |_| match (dtype, number(entropy)) {
        (DType::Float64, value) => value.to_le_bytes().to_vec(),
        (DType::Int32, value) => (value as i32).to_le_bytes().to_vec(),
        (DType::Int64, value) => (value as i64).to_le_bytes().to_vec(),
        (_, value) => (value as f32).to_le_bytes().to_vec(),
    };
    (dtype, Content::Bytes((0..count).flat_map(element).collect()))
}

/// Changes an output so that it contradicts metadata.json.
fn damage(output: &mut Tensor, entropy: &mut Entropy<'_>) {
    match entropy.below(5) {
        0 => output.name = "other".into(),
        1 => output.shape.push(1),
        2 => output.shape[0] = -1,
        3 => output.dtype = entropy.one_of(&[DType::String, DType::Bool, DType::Float64]),
        _ => output.content = Content::Strings(Vec::new()),
    }
}
