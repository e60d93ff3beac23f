//! Predictions as encoded messages.

use bytes::{BufMut as _, Bytes, BytesMut};
use outrigger_core::Failure;
use outrigger_proto::{
    raw::{unary, write as wire},
    tensorflow::DataType,
};
use outrigger_xgboost_serving::{Answer, Asked, Platform};
use prost::Message as _;

use super::predict::{Leaves, Values, predict};
use crate::{call::Call, grpc::InPlace, predict::Predictor};

impl InPlace for Platform {
    fn is_heavy(self) -> bool {
        false
    }

    async fn answer(
        self,
        predictor: &Predictor,
        call: &Call,
        message: Bytes,
        _named: Option<&[u8]>,
    ) -> Result<Bytes, Failure> {
        let held = call.held();
        let admit = |rows: usize| held.receive(message.len() + rows, None);
        let asked = Asked::read(self, &message, &predictor.limits(), admit)?;
        // The rows have been copied out of it, and become the tensors.
        drop(message);
        held.keep_body(asked.rows.size());
        predict(predictor, call, asked, framed).await
    }
}

/// A `TensorProto` that is written from the values of an answer.
struct Tensor<'a> {
    shape: Vec<usize>,
    content: Content<'a>,
}

enum Content<'a> {
    /// Little-endian float32.
    Floats(&'a [u8]),
    Indexes(Leaves<'a>),
}

/// Encodes a `PredictResponse` with its prefix.
fn framed(call: &Call, values: &Values<'_>) -> Result<Bytes, Failure> {
    let tensor = Tensor::of(values)?;
    let key = values.answer.key();
    let tensor_len = tensor.encoded_len();
    let entry = wire::bytes_len(1, key.len()) + wire::bytes_len(2, tensor_len);
    let spec = values.spec.encoded_len();
    let length = wire::bytes_len(1, entry) + wire::bytes_len(2, spec);
    call.charge_answer((unary::PREFIX + length) as u64)?;
    let mut framed = BytesMut::with_capacity(unary::PREFIX + length);
    framed.put_slice(&unary::prefix(length));
    wire::put_header(1, entry, &mut framed);
    wire::put_bytes(1, key.as_bytes(), &mut framed);
    wire::put_header(2, tensor_len, &mut framed);
    tensor.encode(&mut framed);
    wire::put_header(2, spec, &mut framed);
    values.spec.encode_raw(&mut framed);
    Ok(framed.freeze())
}

/// Fields of `TensorProto`, `TensorShapeProto` and its `Dim`.
const DTYPE: u32 = 1;
const SHAPE: u32 = 2;
const FLOATS: u32 = 5;
const INDEXES: u32 = 16;
const DIM: u32 = 2;
const SIZE: u32 = 1;

impl<'a> Tensor<'a> {
    fn of(values: &'a Values<'_>) -> Result<Self, Failure> {
        let content = match values.answer {
            Answer::Index => Content::Indexes(values.indexes()?),
            _ => Content::Floats(&values.scores.floats),
        };
        let count = match &content {
            Content::Floats(floats) => floats.len() / size_of::<f32>(),
            Content::Indexes(all) => all.len(),
        };
        Ok(Self { shape: values.shape(count), content })
    }

    fn dtype(&self) -> u64 {
        let dtype = match self.content {
            Content::Floats(_) => DataType::DtFloat,
            Content::Indexes(_) => DataType::DtUint32,
        };
        dtype as u64
    }

    fn shape_len(&self) -> usize {
        let dims = self.shape.iter();
        dims.map(|size| wire::bytes_len(DIM, wire::int_len(SIZE, *size as u64))).sum()
    }

    fn encoded_len(&self) -> usize {
        let content = match &self.content {
            Content::Floats(floats) => wire::filled_len(FLOATS, floats.len()),
            Content::Indexes(all) => wire::filled_len(INDEXES, packed_len(*all)),
        };
        wire::int_len(DTYPE, self.dtype()) + wire::bytes_len(SHAPE, self.shape_len()) + content
    }

    fn encode(&self, out: &mut BytesMut) {
        wire::put_int(DTYPE, self.dtype(), out);
        wire::put_header(SHAPE, self.shape_len(), out);
        for size in &self.shape {
            wire::put_header(DIM, wire::int_len(SIZE, *size as u64), out);
            wire::put_int(SIZE, *size as u64, out);
        }
        match &self.content {
            Content::Floats(floats) => {
                wire::put_filled_header(FLOATS, floats.len(), out);
                out.put_slice(floats);
            }
            Content::Indexes(all) => {
                wire::put_filled_header(INDEXES, packed_len(*all), out);
                all.iter().for_each(|index| wire::put_varint(index.into(), out));
            }
        }
    }
}

fn packed_len(indexes: Leaves<'_>) -> usize {
    indexes.iter().map(|index| wire::varint_len(index.into())).sum()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use outrigger_budget::Budget;
    use outrigger_core::Reason;
    use outrigger_features::GivenScores;
    use outrigger_proto::{
        tensorflow::{TensorProto, serving::ModelSpec},
        xgboost_serving::PredictResponse,
    };
    use outrigger_trace::Span;
    use tokio::time::Instant;

    use super::*;
    use crate::{front::Method, held::Held, xgboost_serving::GRPC};

    fn read(answer: Answer, rows: usize, scores: GivenScores<'_>) -> TensorProto {
        let now = Instant::now();
        let call = Call::begin(&GRPC, Method::Predict, now, now, Span::none());
        call.seat(Held::on(&Budget::new(256 << 20)));
        let spec = ModelSpec { name: "ads".into(), ..ModelSpec::default() };
        let values = Values { answer, rows, scores, spec: spec.clone() };
        let framed = framed(&call, &values).unwrap();
        assert_eq!(&framed[..unary::PREFIX], unary::prefix(framed.len() - unary::PREFIX));
        let response = PredictResponse::decode(&framed[unary::PREFIX..]).unwrap();
        assert_eq!(response.model_spec, Some(spec));
        let [(key, tensor)] = response.outputs.into_iter().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(key, answer.key());
        tensor
    }

    fn scores(width: usize, floats: &[f32], integers: &[i64]) -> GivenScores<'static> {
        let floats: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
        GivenScores { width, floats: Cow::Owned(floats), integers: integers.to_vec() }
    }

    fn sizes(tensor: &TensorProto) -> Vec<i64> {
        tensor.tensor_shape.iter().flat_map(|shape| &shape.dim).map(|dim| dim.size).collect()
    }

    #[test]
    fn scores_are_in_the_shapes_of_xgboost_serving() {
        let floats = [0.5, -1.0, 2.0, 3.5];
        for (answer, width, shape) in [
            (Answer::Value, 2, vec![4]),
            (Answer::Margin, 1, vec![4]),
            (Answer::Score, 1, vec![4]),
            (Answer::Scores, 2, vec![2, 2]),
        ] {
            let tensor = read(answer, 4 / width, scores(width, &floats, &[]));
            assert_eq!((tensor.float_val, tensor.dtype), (floats.to_vec(), 1));
            assert_eq!(sizes(&TensorProto { float_val: vec![], ..tensor }), shape);
        }
    }

    #[test]
    fn leaves_are_unsigned() {
        let leaves = [3, 1 << 25, 0, 300];
        let tensor = read(Answer::Index, 2, scores(2, &[0.0; 4], &leaves));
        assert_eq!(sizes(&tensor), [4]);
        assert_eq!((tensor.dtype, tensor.uint32_val), (22, vec![3, 1 << 25, 0, 300]));
        // The third tree does not count.
        let tensor = read(Answer::Index, 2, scores(3, &[0.0; 6], &[3, 5, -1, 0, 4, -1]));
        assert_eq!((sizes(&tensor), tensor.uint32_val), (vec![4], vec![3, 5, 0, 4]));
    }

    #[test]
    fn other_numbers_than_those_of_leaves_are_refused() {
        for (width, floats, integers) in [
            (2, 4, &[3, -2, 0, 4][..]),
            (2, 4, &[3, -1, 0, 4]),
            (2, 4, &[3, 5, 0, -1]),
            (2, 4, &[-1, 5, -1, 4]),
            (2, 2, &[-1, -1]),
            (2, 2, &[3, 1 << 32]),
            (2, 2, &[]),
        ] {
            let (scores, spec) =
                (scores(width, &vec![0.0; floats], integers), ModelSpec::default());
            let rows = floats / width;
            let values = Values { answer: Answer::Index, rows, scores, spec };
            let failure = values.indexes().expect_err("not leaves");
            assert_eq!(failure.reason, Reason::ScoresInvalid, "{integers:?}");
        }
    }

    #[test]
    fn no_rows_have_an_answer_without_values() {
        let tensor = read(Answer::Scores, 0, scores(6, &[], &[]));
        assert_eq!((sizes(&tensor), tensor.float_val), (vec![0, 6], vec![]));
        assert_eq!(sizes(&read(Answer::Index, 0, scores(6, &[], &[]))), [0]);
    }
}
