use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use outrigger_core::{Content, DType, ModelName, ServableId, ServableName, Tensor, Version};
use outrigger_proto::tensorflow::{
    DataType, TensorProto, TensorShapeProto,
    serving::{PredictRequest, PredictResponse, model_spec::VersionChoice},
    tensor_shape_proto::Dim,
};
use proptest::{collection::vec, option, prelude::*};
use prost::Message as _;
use tokio::time::Instant;

use super::*;
use crate::{Call, Target};

const LIMIT: usize = 1 << 20;

fn shape_proto(shape: &[i64]) -> TensorShapeProto {
    let dim = shape.iter().map(|&size| Dim { size, ..Default::default() }).collect();
    TensorShapeProto { dim, unknown_rank: false }
}

fn proto(dtype: DataType, shape: &[i64]) -> TensorProto {
    let mut proto = TensorProto { tensor_shape: Some(shape_proto(shape)), ..Default::default() };
    proto.set_dtype(dtype);
    proto
}

fn decode(proto: &TensorProto) -> Result<Tensor, DecodeError> {
    decode_tensor("t", proto.encode_to_vec().into(), LIMIT)
}

fn content_of(proto: &TensorProto) -> Vec<u8> {
    match decode(proto).expect("decodes").content {
        Content::Bytes(bytes) => bytes.into(),
        Content::Strings(_) => panic!("numbers were expected"),
    }
}

fn little_endian<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    values.into_iter().flatten().collect()
}

/// Generates shapes of up to four kilobytes of elements: some payloads are copied into a request,
/// some shared.
fn shapes() -> impl Strategy<Value = Vec<i64>> {
    vec(0_i64..9, 0..4)
}

fn tensors() -> impl Strategy<Value = Tensor> {
    let dtypes = prop::sample::select(vec![
        DType::Float32,
        DType::Float64,
        DType::Int32,
        DType::Int64,
        DType::Bool,
        DType::String,
    ]);
    ("[a-z_]{1,12}", dtypes, shapes()).prop_flat_map(|(name, dtype, shape)| {
        let count = shape.iter().product::<i64>() as usize;
        contents(dtype, count).prop_map(move |content| Tensor {
            name: name.as_str().into(),
            dtype,
            shape: shape.clone(),
            content,
        })
    })
}

fn contents(dtype: DType, count: usize) -> BoxedStrategy<Content> {
    let bytes = |bytes: Vec<u8>| Content::Bytes(bytes.into());
    match dtype.size() {
        None => vec(texts(), count)
            .prop_map(|texts| Content::Strings(texts.into_iter().map(Bytes::from).collect()))
            .boxed(),
        Some(1) => vec(0_u8..2, count).prop_map(bytes).boxed(),
        Some(size) => vec(any::<u8>(), count * size).prop_map(bytes).boxed(),
    }
}

fn texts() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![50 => vec(any::<u8>(), 0..9), 1 => vec(any::<u8>(), 1020..1030)]
}

fn target(model: &ModelName, version: i64, signature: &str) -> Arc<Target> {
    let id = ServableId { name: ServableName::of(model), version: Version(version) };
    Arc::new(Target::new(id, signature, [], []))
}

/// Replaces some of `names` with other names, for a prepared target.
fn known(names: Vec<Arc<str>>) -> impl Strategy<Value = Vec<Arc<str>>> {
    let others = vec(option::of("[a-z_]{1,12}"), 0..names.len() + 2);
    others.prop_map(move |others| {
        let pairs = others.into_iter().zip(names.iter().cloned().chain(["more".into()]));
        pairs.map(|(other, name)| other.map_or(name, Arc::from)).collect()
    })
}

/// Generates a call, and the same call with a target that has some of its names prepared.
fn calls_prepared() -> impl Strategy<Value = (Call, Call)> {
    calls().prop_flat_map(|call| {
        let inputs = call.inputs.iter().map(|tensor| tensor.name.clone()).collect();
        let names = (known(inputs), known(call.outputs.clone()));
        names.prop_map(move |(inputs, outputs)| {
            let Call { target, .. } = &call;
            let (servable, signature) = (target.servable().clone(), target.signature());
            let target = Target::new(servable, signature, inputs, outputs);
            (call.clone(), Call { target: Arc::new(target), ..call.clone() })
        })
    })
}

fn encoded(call: &Call) -> Bytes {
    let mut bytes = BytesMut::new();
    encode_request(call, &mut bytes);
    bytes.freeze()
}

fn calls() -> impl Strategy<Value = Call> {
    let outputs = vec("[a-z]{1,9}", 0..3);
    ("[a-z/]{1,30}", any::<i64>(), "[a-z_]{0,20}", vec(tensors(), 0..4), outputs).prop_map(
        |(name, version, signature, inputs, outputs)| {
            let model = name.replace('/', "-").parse().expect("a valid name");
            Call {
                target: target(&model, version, &signature),
                inputs,
                outputs: outputs.into_iter().map(Arc::from).collect(),
                deadline: Instant::now(),
                metadata: Default::default(),
            }
        },
    )
}

/// Encodes the tensor with its values in the list of its type.
fn listed(tensor: &Tensor) -> TensorProto {
    outrigger_testkit::engine::to_proto(tensor)
}

fn response(tensors: &[(&str, TensorProto)]) -> Bytes {
    let outputs = tensors.iter().map(|(name, proto)| ((*name).to_owned(), proto.clone())).collect();
    PredictResponse { outputs, model_spec: None }.encode_to_vec().into()
}

proptest! {
    #[test]
    fn the_request_decodes_with_the_generated_types(call in calls()) {
        let bytes = encoded(&call);
        prop_assert_eq!(bytes.len(), encoded_len(&call));
        let mut framed = frame(&call, bytes.len());
        prop_assert_eq!(framed.get_u8(), 0);
        prop_assert_eq!(framed.get_u32() as usize, bytes.len());
        prop_assert_eq!(framed.copy_to_bytes(framed.remaining()), &bytes);
        let request = PredictRequest::decode(bytes).expect("decodes");
        let spec = request.model_spec.expect("a spec");
        let servable = call.target.servable();
        prop_assert_eq!(spec.name, servable.name.as_str());
        prop_assert_eq!(spec.version_choice, Some(VersionChoice::Version(servable.version.0)));
        prop_assert_eq!(spec.signature_name, call.target.signature());
        prop_assert!(request.output_filter.iter().map(|name| name.as_str()).eq(
            call.outputs.iter().map(|name| &**name)));
        // The last of equal names counts, as in any protobuf map.
        for (name, proto) in request.inputs {
            let sent = call.inputs.iter().rfind(|tensor| *tensor.name == *name).expect("sent");
            let read = decode_tensor(&name, proto.encode_to_vec().into(), LIMIT);
            prop_assert_eq!(read.as_ref(), Ok(sent));
        }
    }

    #[test]
    fn a_request_is_the_same_whatever_names_are_known((plain, prepared) in calls_prepared()) {
        prop_assert_eq!(encoded(&prepared), encoded(&plain));
        prop_assert_eq!(encoded_len(&prepared), encoded_len(&plain));
    }

    #[test]
    fn listed_values_read_as_content_does(tensor in tensors()) {
        let proto = listed(&tensor);
        let read = decode_tensor(&tensor.name, proto.encode_to_vec().into(), LIMIT);
        prop_assert_eq!(read, Ok(tensor));
    }

    #[test]
    fn a_list_cut_short_is_filled_up_with_its_last_value(
        values in vec(any::<i64>(), 0..6),
        surplus in 0_usize..4,
    ) {
        let count = values.len() + surplus;
        let mut proto = proto(DataType::DtInt64, &[count as i64]);
        proto.int64_val.clone_from(&values);
        let last = values.last().copied().unwrap_or(0);
        let filled = values.into_iter().chain(std::iter::repeat_n(last, surplus));
        prop_assert_eq!(content_of(&proto), little_endian(filled.map(i64::to_le_bytes)));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        let message = Bytes::from(bytes);
        let _ = decode_response(message.clone(), &[], LIMIT);
        let _ = decode_tensor("t", message, LIMIT);
    }

    #[test]
    fn a_damaged_answer_is_read_or_refused(
        tensor in tensors(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = response(&[("scores", listed(&tensor))]).to_vec();
        for (index, value) in damage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        for tensor in decode_response(bytes.into(), &[], LIMIT).unwrap_or_default() {
            let count = tensor.shape.iter().product::<i64>() as usize;
            match tensor.content {
                Content::Bytes(bytes) => {
                    prop_assert_eq!(Some(bytes.len()), tensor.dtype.size().map(|size| size * count));
                }
                Content::Strings(strings) => prop_assert_eq!(strings.len(), count),
            }
        }
    }
}

#[test]
fn usual_inputs_and_outputs_are_encoded_in_advance() {
    let names = |names: &[&str]| names.iter().copied().map(Arc::from).collect::<Vec<Arc<str>>>();
    let id = ServableId {
        name: ServableName::of(&"m".parse().expect("a valid name")),
        version: Version(1),
    };
    let outputs = names(&["scores", "chances"]);
    let target = Target::new(id, "", names(&["user", "treatment"]), outputs.clone());
    let parts = target.parts();
    assert_eq!(parts.key(1, "treatment"), Some(&b"\x0a\x09treatment\x12"[..]));
    assert_eq!(parts.filter(&outputs), Some(&b"\x1a\x06scores\x1a\x07chances"[..]));
    // The target has no prepared key for other inputs, or for inputs in another order.
    assert_eq!([(0, "treatment"), (2, "user")].map(|(at, name)| parts.key(at, name)), [None; 2]);
    assert_eq!(parts.filter(&outputs[..1]), None);
}

#[test]
fn values_are_those_of_their_type() {
    let ints = |dtype, values: &[i32]| TensorProto {
        int_val: values.to_vec(),
        ..proto(dtype, &[values.len() as i64])
    };
    // 300 does not fit; TensorFlow cuts it to 44.
    assert_eq!(content_of(&ints(DataType::DtInt8, &[-3, 300])), &[0xfd, 44][..]);
    assert_eq!(content_of(&ints(DataType::DtUint8, &[250, 300])), &[250, 44][..]);
    assert_eq!(
        content_of(&ints(DataType::DtInt16, &[-300])),
        little_endian([(-300_i16).to_le_bytes()])
    );
    assert_eq!(content_of(&ints(DataType::DtUint16, &[65_535])), &[0xff, 0xff][..]);
    let half = TensorProto { half_val: vec![0x3c00, 0xc000], ..proto(DataType::DtHalf, &[2]) };
    assert_eq!(content_of(&half), &[0, 0x3c, 0, 0xc0][..]);
    let brain = TensorProto { half_val: vec![0x3f80], ..proto(DataType::DtBfloat16, &[2]) };
    assert_eq!(content_of(&brain), &[0x80, 0x3f, 0x80, 0x3f][..]);
    let uint32 = TensorProto { uint32_val: vec![u32::MAX], ..proto(DataType::DtUint32, &[1]) };
    assert_eq!(content_of(&uint32), &[0xff; 4][..]);
    let uint64 = TensorProto { uint64_val: vec![u64::MAX], ..proto(DataType::DtUint64, &[1]) };
    assert_eq!(content_of(&uint64), &[0xff; 8][..]);
    let content = |dtype, bytes: &'static [u8], count| TensorProto {
        tensor_content: Bytes::from_static(bytes),
        ..proto(dtype, &[count])
    };
    assert_eq!(content_of(&content(DataType::DtInt8, &[0xff, 1], 2)), &[0xff, 1][..]);
    assert_eq!(content_of(&content(DataType::DtHalf, &[0, 0x3c], 1)), &[0, 0x3c][..]);
}

#[test]
fn unsupported_values_are_errors_of_their_kind() {
    assert_eq!(decode(&proto(DataType::DtComplex64, &[1])), Err(DecodeError::DType(8)));
    assert_eq!(decode(&proto(DataType::DtInvalid, &[1])), Err(DecodeError::DType(0)));
    assert_eq!(decode(&proto(DataType::DtFloat, &[-1])), Err(DecodeError::Shape(vec![-1])));
    let many = vec![i64::MAX, i64::MAX];
    assert_eq!(decode(&proto(DataType::DtFloat, &many)), Err(DecodeError::Shape(many)));
    let error = DecodeError::TooLarge { size: 4 << 20, limit: LIMIT };
    assert_eq!(decode(&proto(DataType::DtFloat, &[1 << 20])), Err(error));
    let short = TensorProto {
        tensor_content: Bytes::from_static(&[0; 7]),
        ..proto(DataType::DtFloat, &[2])
    };
    assert_eq!(decode(&short), Err(DecodeError::Content { actual: 7, expected: 8 }));
}

#[test]
fn content_wins_over_values_and_only_the_field_of_the_type_counts() {
    let both = TensorProto {
        tensor_content: Bytes::from_static(&[1, 0, 0, 0]),
        int_val: vec![2],
        ..proto(DataType::DtInt32, &[1])
    };
    assert_eq!(content_of(&both), [1, 0, 0, 0]);
    let wrong = TensorProto { int_val: vec![2], ..proto(DataType::DtInt64, &[1]) };
    assert_eq!(content_of(&wrong), [0; 8]);
    let surplus = TensorProto { int_val: vec![2, 3], ..proto(DataType::DtInt32, &[1]) };
    assert_eq!(content_of(&surplus), [2, 0, 0, 0]);
}

#[test]
fn a_scalar_needs_no_shape_and_an_empty_tensor_no_values() {
    let mut scalar = TensorProto { float_val: vec![1.5], ..Default::default() };
    scalar.set_dtype(DataType::DtFloat);
    assert_eq!(decode(&scalar).expect("decodes").shape, [0_i64; 0]);
    assert_eq!(content_of(&scalar), 1.5_f32.to_le_bytes());
    assert_eq!(content_of(&proto(DataType::DtFloat, &[3, 0])), [0_u8; 0]);
}

#[test]
fn values_that_are_not_packed_are_read_too() {
    let mut bytes = BytesMut::from(&proto(DataType::DtFloat, &[2]).encode_to_vec()[..]);
    for value in [1.0_f32, 2.0] {
        // Field 5, a 32-bit value.
        bytes.put_u8(5 << 3 | 5);
        bytes.put_f32_le(value);
    }
    let tensor = decode_tensor("t", bytes.freeze(), LIMIT).expect("decodes");
    let expected = little_endian([1.0_f32, 2.0].map(f32::to_le_bytes));
    assert_eq!(tensor.content, Content::Bytes(expected.into()));
}

#[test]
fn strings_are_read_from_values_and_from_content() {
    let expected = Content::Strings(vec!["ab".into(), "".into(), "c".into()]);
    let listed = TensorProto {
        string_val: vec!["ab".into(), "".into(), "c".into(), "surplus".into()],
        ..proto(DataType::DtString, &[3])
    };
    assert_eq!(decode(&listed).expect("decodes").content, expected);
    let content = |bytes: &'static [u8]| TensorProto {
        tensor_content: Bytes::from_static(bytes),
        ..proto(DataType::DtString, &[3])
    };
    assert_eq!(decode(&content(b"\x02\x00\x01abc")).expect("decodes").content, expected);
    assert_eq!(decode(&content(b"\x02\x00\x01abcd")), Err(DecodeError::Malformed));
    assert_eq!(decode(&content(b"\x02\x00\x09abc")), Err(DecodeError::Malformed));
}

#[test]
fn outputs_come_in_the_order_asked_for() {
    let tensor = |value| TensorProto { float_val: vec![value], ..proto(DataType::DtFloat, &[1]) };
    let unread = proto(DataType::DtVariant, &[1]);
    let message = response(&[("a", tensor(1.0)), ("b", tensor(2.0)), ("c", unread)]);
    let wanted: Vec<Arc<str>> = vec!["b".into(), "a".into()];
    let outputs = decode_response(message.clone(), &wanted, LIMIT).expect("decodes");
    assert!(outputs.iter().map(|tensor| &tensor.name).eq(&wanted));
    let missing = decode_response(message.clone(), &["d".into()], LIMIT);
    assert_eq!(missing, Err(DecodeError::Missing("d".to_owned())));
    assert_eq!(decode_response(message, &[], LIMIT), Err(DecodeError::DType(21)));
}

#[test]
fn a_packed_list_of_floats_is_not_copied() {
    let values: Vec<f32> = (0..1000_u16).map(f32::from).collect();
    let proto = TensorProto { float_val: values, ..proto(DataType::DtFloat, &[1000]) };
    let message = Bytes::from(proto.encode_to_vec());
    let Content::Bytes(content) =
        decode_tensor("t", message.clone(), LIMIT).expect("decodes").content
    else {
        panic!("numbers")
    };
    assert!(message.as_ptr_range().contains(&content.as_ptr()));
}
