//! Compares tensor decoding and encoding with prost's.

use std::{env, path::Path};

use outrigger_proto::tensorflow::{TensorProto, TensorShapeProto, tensor_shape_proto::Dim};
use prost::Message as _;

use super::{tensor_in::decode, tensor_out::Outgoing};
use crate::tensorflow::{Runtime, Tensor, locate};

fn runtime() -> Runtime {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv");
    let named = env::var_os("OUTRIGGER_TENSORFLOW").is_none().then_some(root);
    let directory = locate(named.as_deref()).unwrap_or_else(|error| panic!("{error}"));
    Runtime::open(&directory).expect("the library opens")
}

fn shape(sizes: &[i64]) -> Option<TensorShapeProto> {
    let dim = sizes.iter().map(|&size| Dim { size, name: String::new() }).collect();
    Some(TensorShapeProto { dim, unknown_rank: false })
}

/// A tensor of this type and shape without values.
fn proto(dtype: i32, sizes: &[i64]) -> TensorProto {
    TensorProto { dtype, tensor_shape: shape(sizes), ..TensorProto::default() }
}

fn decoded(proto: &TensorProto) -> Tensor {
    decode(runtime(), &proto.encode_to_vec()).expect("the tensor is valid")
}

fn bytes(proto: &TensorProto) -> Vec<u8> {
    decoded(proto).bytes().to_vec()
}

fn refused(proto: &TensorProto) -> bool {
    decode(runtime(), &proto.encode_to_vec()).is_none()
}

fn encoded(tensor: Tensor, as_content: bool) -> TensorProto {
    let outgoing = Outgoing::new(tensor, as_content);
    let mut message = Vec::new();
    outgoing.encode(&mut message);
    assert_eq!(message.len(), outgoing.length());
    TensorProto::decode(&message[..]).expect("it is a TensorProto")
}

/// A tensor of shape [2, 2] for each type, with values in the list of that type, and the
/// size of an element.
fn every_type() -> Vec<(TensorProto, usize)> {
    let of = |dtype| proto(dtype, &[2, 2]);
    let ints = |dtype, int_val: [i32; 4]| TensorProto { int_val: int_val.into(), ..of(dtype) };
    let halves = |dtype| TensorProto { half_val: vec![0, 1, 0x7fff, 0xffff], ..of(dtype) };
    let int64 = vec![0, -1, i64::MAX, i64::MIN];
    let float = vec![0.5, -1.0, f32::INFINITY, 0.0];
    let double = vec![0.5, -1.0, f64::MAX, 0.0];
    vec![
        (TensorProto { float_val: float, ..of(1) }, 4),
        (TensorProto { double_val: double, ..of(2) }, 8),
        (ints(3, [0, -1, i32::MAX, i32::MIN]), 4),
        (ints(4, [0, 1, 128, 255]), 1),
        (ints(5, [0, -1, 32767, -32768]), 2),
        (ints(6, [0, -1, 127, -128]), 1),
        (TensorProto { int64_val: int64, ..of(9) }, 8),
        (TensorProto { bool_val: vec![true, false, false, true], ..of(10) }, 1),
        (ints(11, [0, -1, 127, -128]), 1),
        (ints(12, [0, 1, 128, 255]), 1),
        (ints(13, [0, -1, i32::MAX, i32::MIN]), 4),
        (halves(14), 2),
        (ints(15, [0, -1, 32767, -32768]), 2),
        (ints(16, [0, 1, 256, 65535]), 2),
        (ints(17, [0, 1, 256, 65535]), 2),
        (halves(19), 2),
        (TensorProto { uint32_val: vec![0, 1, 1 << 31, u32::MAX], ..of(22) }, 4),
        (TensorProto { uint64_val: vec![0, 1, 1 << 63, u64::MAX], ..of(23) }, 8),
    ]
}

#[test]
fn every_type_round_trips_as_a_list() {
    for (proto, size) in every_type() {
        assert_eq!(bytes(&proto).len(), 4 * size, "dtype {}", proto.dtype);
        assert_eq!(encoded(decoded(&proto), false), proto);
    }
}

#[test]
fn every_type_round_trips_as_content() {
    for (list, _) in every_type() {
        let content = encoded(decoded(&list), true);
        assert_eq!(content.tensor_content, bytes(&list));
        assert_eq!(
            content,
            TensorProto {
                tensor_content: content.tensor_content.clone(),
                ..proto(list.dtype, &[2, 2])
            }
        );
        assert_eq!(bytes(&content), bytes(&list));
    }
}

#[test]
fn complex_numbers_are_pairs_and_small_floats_bytes() {
    // Fields that the subset of the wire types does not have: scomplex_val = 9,
    // dcomplex_val = 12, float8_val = 18.
    let with = |dtype, field: u8, values: &[u8]| {
        let mut message = proto(dtype, &[2]).encode_to_vec();
        let mut key = Vec::new();
        prost::encoding::encode_key(
            field.into(),
            prost::encoding::WireType::LengthDelimited,
            &mut key,
        );
        message.extend(key);
        message.push(values.len().try_into().unwrap());
        message.extend(values);
        message
    };
    for (dtype, field, size) in [(8, 9, 8), (18, 12, 16), (24, 18, 1), (25, 18, 1)] {
        let values: Vec<u8> = (1..=2 * size).collect();
        let message = with(dtype, field, &values);
        let tensor = decode(runtime(), &message).expect("the tensor is valid");
        assert_eq!(tensor.bytes(), values);
        let mut back = Vec::new();
        Outgoing::new(tensor, false).encode(&mut back);
        assert_eq!(back, message);
    }
}

#[test]
fn strings_of_any_length_round_trip_in_both_forms() {
    let values: Vec<bytes::Bytes> =
        [0, 1, 22, 23, 200, 70_000].map(|length| vec![b'x'; length].into()).into();
    let list = TensorProto { string_val: values, ..proto(7, &[2, 3]) };
    assert_eq!(encoded(decoded(&list), false), list);
    let content = encoded(decoded(&list), true);
    assert!(content.string_val.is_empty());
    assert_eq!(encoded(decoded(&content), false), list);
}

#[test]
fn a_short_list_repeats_its_last_value_and_an_empty_one_is_zeros() {
    let short = TensorProto { float_val: vec![1.0, 2.0], ..proto(1, &[4]) };
    assert_eq!(encoded(decoded(&short), false).float_val, [1.0, 2.0, 2.0, 2.0]);
    let short = TensorProto { int_val: vec![-7], ..proto(5, &[3]) };
    assert_eq!(encoded(decoded(&short), false).int_val, [-7, -7, -7]);
    let short = TensorProto { string_val: vec!["a".into(), "b".into()], ..proto(7, &[3]) };
    assert_eq!(encoded(decoded(&short), false).string_val, ["a", "b", "b"]);
    assert_eq!(bytes(&proto(9, &[2])), [0; 16]);
    assert_eq!(encoded(decoded(&proto(7, &[2])), false).string_val, ["", ""]);
}

#[test]
fn a_long_list_is_cut() {
    let long = TensorProto { int64_val: vec![1, 2, 3], ..proto(9, &[2]) };
    assert_eq!(encoded(decoded(&long), false).int64_val, [1, 2]);
    let long = TensorProto { string_val: vec!["a".into(), "b".into()], ..proto(7, &[1]) };
    assert_eq!(encoded(decoded(&long), false).string_val, ["a"]);
}

#[test]
fn values_in_the_field_of_another_type_are_ignored() {
    let wrong = TensorProto { int_val: vec![5], ..proto(9, &[2]) };
    assert_eq!(bytes(&wrong), [0; 16]);
}

#[test]
fn integers_are_truncated_to_their_size() {
    let large = TensorProto { int_val: vec![300], ..proto(4, &[1]) };
    assert_eq!(bytes(&large), [44]);
}

#[test]
fn content_wins_and_must_have_the_exact_length() {
    let both =
        TensorProto { tensor_content: vec![1, 0, 0, 0].into(), int_val: vec![9], ..proto(3, &[1]) };
    assert_eq!(bytes(&both), [1, 0, 0, 0]);
    for length in [1, 3, 5, 8] {
        let content = vec![1; length].into();
        assert!(refused(&TensorProto { tensor_content: content, ..both.clone() }), "{length}");
    }
    let strings =
        |content: &[u8]| TensorProto { tensor_content: content.to_vec().into(), ..proto(7, &[2]) };
    assert!(!refused(&strings(b"\x01\x02abb")));
    for wrong in [&b"\x01\x02ab"[..], b"\x01\x02abbb", b"\x01", b"\xff\xff\xff\xff\xff\x7f\x01a"] {
        assert!(refused(&strings(wrong)), "{wrong:?}");
    }
}

#[test]
fn unpacked_lists_are_read_too() {
    let mut message = proto(9, &[3]).encode_to_vec();
    message.extend([0x50, 1, 0x52, 2, 2, 3]);
    let tensor = decode(runtime(), &message).expect("the tensor is valid");
    assert_eq!(encoded(tensor, false).int64_val, [1, 2, 3]);
}

#[test]
fn shapes_may_be_scalar_or_empty_but_neither_negative_nor_too_large() {
    let scalar = TensorProto { tensor_shape: None, float_val: vec![3.0], ..proto(1, &[]) };
    assert_eq!(
        encoded(decoded(&scalar), false),
        TensorProto { tensor_shape: shape(&[]), ..scalar }
    );
    let empty = decoded(&proto(1, &[0, 5]));
    assert_eq!((empty.dims(), empty.bytes()), (vec![0, 5], &[][..]));
    assert_eq!(encoded(empty, false), proto(1, &[0, 5]));
    assert_eq!(encoded(decoded(&proto(7, &[0])), true), proto(7, &[0]));
    for sizes in [&[-1][..], &[1 << 40], &[1 << 31, 1 << 31, 1 << 31], &[1; 255]] {
        assert!(refused(&proto(1, sizes)), "{sizes:?}");
        assert!(refused(&proto(7, sizes)), "{sizes:?}");
    }
}

#[test]
fn types_without_values_and_garbage_are_refused() {
    for dtype in [0, 20, 21, 101, 999, -1] {
        assert!(refused(&proto(dtype, &[1])), "dtype {dtype}");
    }
    assert!(decode(runtime(), b"garbage").is_none());
    assert!(refused(&TensorProto { tensor_content: vec![1].into(), ..proto(0, &[1]) }));
}
