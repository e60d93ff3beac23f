//! The message of `ModelInfer` over gRPC.

use bytes::{BufMut as _, Bytes, BytesMut};
use outrigger_core::Failure;
use outrigger_oip::{InferResponse, grpc};
use outrigger_proto::{inference::ModelInferRequest, raw::unary};
use prost::Message as _;

use super::{
    infer::{Asked, Content, infer},
    version::Target,
};
use crate::{call::Call, grpc::InPlace, predict::Predictor, routing};

/// A `ModelInferRequest`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelInfer;

impl InPlace for ModelInfer {
    fn is_heavy(self) -> bool {
        false
    }

    async fn answer(
        self,
        predictor: &Predictor,
        call: &Call,
        message: Bytes,
        named: Option<&[u8]>,
    ) -> Result<Bytes, Failure> {
        let memory = grpc::memory(&message)?;
        call.charge_work(memory)?;
        let mut request: ModelInferRequest = routing::read(&message)?;
        drop(message);
        let (model, version) =
            (std::mem::take(&mut request.model_name), std::mem::take(&mut request.model_version));
        let (request, is_raw) = grpc::read_request(request)?;
        let target = Target { model: &model, version: &version };
        let asked = Asked { target, content: Content::Request(request), memory, named };
        let response = infer(predictor, call, asked).await?;
        written(call, response, is_raw)
    }
}

/// The response with its prefix.
fn written(call: &Call, response: InferResponse, is_raw: bool) -> Result<Bytes, Failure> {
    let data: usize = response.outputs.iter().map(|output| output.data.len()).sum();
    // Typed contents have a vector of their own: texts of 32 bytes each, which have 4 in the data.
    let typed = if is_raw { 0 } else { 9 * data };
    call.charge_answer((2 * data + typed) as u64)?;
    let response = grpc::write_response(response, is_raw);
    let length = response.encoded_len();
    call.charge_answer((data + typed + unary::PREFIX + length) as u64)?;
    let mut framed = BytesMut::with_capacity(unary::PREFIX + length);
    framed.put_slice(&unary::prefix(length));
    response.encode_raw(&mut framed);
    Ok(framed.freeze())
}
