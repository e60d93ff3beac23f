//! The view `tensors`: the inputs and outputs of the model's signature.

use std::sync::Arc;

use outrigger_core::{Content, Failure, Reason, Tensor};
use outrigger_features::{Arrived, Packed, RawCall};
use outrigger_oip::{InferRequest, InferResponse};
use outrigger_score::Scorer;

use super::version::headers;
use crate::{
    call::Call,
    predict::{Exchange, Scored},
    statistics::Observed,
};

/// A request with tensors of the signature.
pub(super) struct Tensors<'r> {
    call: &'r Call,
    observed: &'r Observed,
    id: Option<String>,
    /// The tensors; `None` once they are packed and not needed again.
    raw: Option<Arc<RawCall>>,
    /// The memory in bytes that the tensors take beside the body.
    memory: u64,
    /// True if the tensors are needed after they were packed.
    is_needed: bool,
}

impl<'r> Tensors<'r> {
    /// Takes the tensors of a request, which take `memory` bytes beside its body.
    ///
    /// # Errors
    /// There is no room for the texts.
    pub(super) fn new(
        call: &'r Call,
        observed: &'r Observed,
        request: InferRequest,
        (memory, is_needed): (u64, bool),
    ) -> Result<Self, Failure> {
        let InferRequest { id, inputs, outputs, .. } = request;
        let memory = memory + super::texts_of(&inputs);
        call.charge_work(memory)?;
        let inputs = inputs.into_iter().map(outrigger_oip::Tensor::into_core).collect();
        let outputs = outputs.into_iter().map(|output| output.name).collect();
        let raw = Some(Arc::new(RawCall { inputs, outputs }));
        Ok(Self { call, observed, id, raw, memory, is_needed })
    }
}

impl Exchange for Tensors<'_> {
    type Answer = InferResponse;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        self.call.charge_work(self.memory)?;
        let gone = || Failure::new(Reason::Internal, "the request was freed before its answer");
        let raw = self.raw.as_ref().ok_or_else(gone)?;
        let packed = self.observed.input(|| scorer.plan.pack_raw(raw, &scorer.limits()))?;
        if !self.is_needed {
            self.raw = None;
        }
        Ok(packed)
    }

    fn request(&self) -> Option<Arrived> {
        self.raw.clone().map(Arrived::Tensors)
    }

    fn kept(&self) -> u64 {
        if self.raw.is_some() { self.memory } else { 0 }
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<InferResponse, Failure> {
        let &Scored { lease, terms, packed, outputs } = scored;
        self.observed.output(packed.treatments, || {
            let outputs = lease.scorer.plan.answer_raw(packed, outputs)?;
            self.call.charge_answer(outputs.iter().map(|output| size(output)).sum())?;
            self.call.set_headers(headers(lease, terms));
            Ok(InferResponse {
                model_name: lease.key.name.to_string(),
                model_version: Some(lease.key.digest.to_string()),
                id: self.id.clone(),
                outputs: outputs.into_iter().cloned().map(Into::into).collect(),
                ..InferResponse::default()
            })
        })
    }
}

/// The memory of an output, and of its texts once more, because they are copied with their lengths.
fn size(output: &Tensor) -> u64 {
    let texts = match &output.content {
        Content::Bytes(_) => 0,
        Content::Strings(texts) => output.size() + 4 * texts.len() + size_of_val(&texts[..]),
    };
    (output.size() + texts) as u64
}
