use outrigger_core::{Content, DType, Reason};
use outrigger_proto::outrigger::v1::ValueOrigin;

use super::{Buffer, Column, Problem, codec::bucket};
use crate::{
    metadata::Metadata,
    numbers::exact_integer,
    value::{Scalar, Value},
};

/// The values of `int(tf.raw_ops.StringToHashBucketFast(input=[text], num_buckets=2**63-1)[0])`
/// of TensorFlow 2.21, which is what `tf.strings.to_hash_bucket_fast` calls.
const TENSORFLOW: [(&str, u64); 14] = [
    ("", 1936946117179621456),
    ("a", 3694432073954588132),
    ("web", 4814298550297870402),
    ("phone", 5127098399780578086),
    ("multichannel", 2262619696990215485),
    ("hello world", 6381520714923946011),
    ("0123456789abcdef", 6105018409752412263),
    ("The quick brown fox jumps over", 7446843511751553115),
    ("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 3046993373088323128),
    ("zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", 8299915583762718517),
    ("Grüße", 4532040665262223651),
    ("日本語テキスト", 1653575045406466613),
    ("🚣 outrigger", 8198518546229732313),
    ("a\0b", 7026922943720236280),
];

/// A plan column for a feature given as JSON.
fn column(dtype: &str, feature: &str) -> Column {
    let json = format!(
        r#"{{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
            "inputs": [{{"tensor": "x", "entity": "user", "dtype": "{dtype}", "features": [{feature}]}}],
            "outputs": [{{"tensor": "y", "name": "y", "kind": "single"}}]}}"#
    );
    let metadata = Metadata::parse(json.as_bytes()).expect("valid metadata");
    Column::compile(&metadata.inputs[0].features[0], metadata.inputs[0].dtype)
}

fn required(dtype: &str) -> Column {
    column(dtype, r#"{"name": "f", "required": true}"#)
}

fn write(column: &Column, dtype: DType, value: Option<Value<'_>>) -> Result<Vec<u8>, Problem> {
    let mut buffer = Buffer::new(dtype, 1);
    column.write(value.as_ref(), &mut buffer)?;
    match buffer.into_content() {
        Content::Bytes(bytes) => Ok(bytes.into()),
        Content::Strings(texts) => Ok(texts.concat()),
    }
}

fn reason(column: &Column, dtype: DType, value: Value<'_>) -> Reason {
    write(column, dtype, Some(value)).expect_err("refused").reason
}

fn one(scalar: Scalar<'_>) -> Value<'_> {
    Value::One(scalar)
}

#[test]
fn hash_buckets_are_tensorflows() {
    for (text, hash) in TENSORFLOW {
        assert_eq!(bucket(text.as_bytes(), i64::MAX.unsigned_abs()), hash, "{text:?}");
    }
    let long = "long-".repeat(40);
    assert_eq!(bucket(long.as_bytes(), i64::MAX.unsigned_abs()), 2575871695038710067);
    // tf.strings.to_hash_bucket_fast("multichannel", n)
    let of = |n| bucket(b"multichannel", n);
    assert_eq!([of(1), of(10), of(1000), of(2147483647)], [0, 5, 485, 599015038]);
}

#[test]
fn floats_stand_for_integers_only_exactly() {
    assert_eq!(exact_integer(3.0), Some(3));
    assert_eq!(exact_integer(-0.0), Some(0));
    assert_eq!(exact_integer(-9223372036854775808.0), Some(i64::MIN));
    for inexact in [0.5, 9223372036854775808.0, 1e300, f64::NAN, f64::INFINITY] {
        assert_eq!(exact_integer(inexact), None, "{inexact}");
    }
}

#[test]
fn every_kind_of_number_feeds_a_float() {
    let float = required("float32");
    for value in [Scalar::Real(2.0), Scalar::Integer(2)] {
        assert_eq!(write(&float, DType::Float32, Some(one(value))), Ok(2f32.to_le_bytes().into()));
    }
    let tenth = write(&float, DType::Float32, Some(one(Scalar::Real(0.1))));
    assert_eq!(tenth, Ok(0.1f32.to_le_bytes().into()));
    let flag = write(&float, DType::Float32, Some(one(Scalar::Flag(true))));
    assert_eq!(flag, Ok(1f32.to_le_bytes().into()));
    for value in [Scalar::Text(b"2"), Scalar::Other] {
        assert_eq!(reason(&float, DType::Float32, one(value)), Reason::FeatureType);
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused_unless_allowed() {
    let (strict, open) = (
        required("float32"),
        column("float32", r#"{"name": "f", "required": true, "allow_non_finite": true}"#),
    );
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let value = one(Scalar::Real(value));
        assert_eq!(reason(&strict, DType::Float32, value), Reason::FeatureNotFinite);
        assert!(write(&open, DType::Float32, Some(value)).is_ok());
    }
    // The value is finite as sent and infinite when rounded to float32: it is refused
    // even if the feature allows infinity.
    for column in [&strict, &open] {
        assert_eq!(
            reason(column, DType::Float32, one(Scalar::Real(1e39))),
            Reason::FeatureNotFinite
        );
    }
    let double = required("float64");
    assert_eq!(
        write(&double, DType::Float64, Some(one(Scalar::Real(1e39)))),
        Ok(1e39f64.to_le_bytes().into())
    );
}

#[test]
fn integers_take_whole_numbers_that_fit() {
    let small = required("int32");
    let value = write(&small, DType::Int32, Some(one(Scalar::Real(-7.0))));
    assert_eq!(value, Ok((-7i32).to_le_bytes().into()));
    for value in [Scalar::Real(0.5), Scalar::Integer(1 << 31), Scalar::Text(b"1"), Scalar::Other] {
        assert_eq!(reason(&small, DType::Int32, one(value)), Reason::FeatureType, "{value:?}");
    }
    let nan = one(Scalar::Real(f64::NAN));
    assert_eq!(reason(&small, DType::Int32, nan), Reason::FeatureNotFinite);
    let large = required("int64");
    let value = write(&large, DType::Int64, Some(one(Scalar::Integer(i64::MIN))));
    assert_eq!(value, Ok(i64::MIN.to_le_bytes().into()));
}

#[test]
fn flags_are_flags_or_zero_and_one() {
    let flag = required("bool");
    for value in [Scalar::Flag(true), Scalar::Integer(1), Scalar::Real(1.0)] {
        assert_eq!(write(&flag, DType::Bool, Some(one(value))), Ok(vec![1]));
    }
    for value in
        [Scalar::Integer(2), Scalar::Real(0.5), Scalar::Real(f64::NAN), Scalar::Text(b"true")]
    {
        assert_eq!(reason(&flag, DType::Bool, one(value)), Reason::FeatureType, "{value:?}");
    }
}

#[test]
fn words_become_their_positions() {
    let json = r#"{"name": "c", "vocabulary": ["phone", "web"], "out_of_vocabulary": 9, "default": "web"}"#;
    let words = column("int64", json);
    let mut buffer = Buffer::new(DType::Int64, 4);
    let origins: Vec<_> = [Some("web"), Some("phone"), Some("fax"), None]
        .into_iter()
        .map(|word| {
            let value = word.map(|word| one(Scalar::Text(word.as_bytes())));
            words.write(value.as_ref(), &mut buffer).expect("a word")
        })
        .collect();
    let expected: Vec<u8> = [1i64, 0, 9, 1].iter().flat_map(|index| index.to_le_bytes()).collect();
    assert_eq!(buffer, Buffer::Fixed { bytes: expected, size: 8 });
    use ValueOrigin::{Default, OutOfVocabulary, Request};
    assert_eq!(origins, [Request, Request, OutOfVocabulary, Default]);
    assert_eq!(reason(&words, DType::Int64, one(Scalar::Integer(1))), Reason::FeatureType);
}

#[test]
fn a_vocabulary_of_integers_takes_integers() {
    let json = r#"{"name": "c", "vocabulary": [10, -3], "out_of_vocabulary": 2, "default": 10}"#;
    let words = column("int32", json);
    for value in [Scalar::Integer(-3), Scalar::Real(-3.0)] {
        assert_eq!(write(&words, DType::Int32, Some(one(value))), Ok(1i32.to_le_bytes().into()));
    }
    assert_eq!(reason(&words, DType::Int32, one(Scalar::Text(b"10"))), Reason::FeatureType);
}

#[test]
fn words_and_buckets_of_a_tensor_of_floats_are_whole_numbers() {
    let json = r#"{"name": "c", "vocabulary": ["phone", "web"], "out_of_vocabulary": -1, "missing": "nan"}"#;
    let words = column("float32", json);
    let written = |word: Option<&str>| {
        let value = word.map(|word| one(Scalar::Text(word.as_bytes())));
        let bytes = write(&words, DType::Float32, value).expect("a word");
        f32::from_le_bytes(bytes.try_into().expect("an element"))
    };
    assert_eq!(["phone", "web", "fax"].map(|word| written(Some(word))), [0.0, 1.0, -1.0]);
    assert!(written(None).is_nan());
    let mut buffer = Buffer::new(DType::Float32, 1);
    buffer.resize(1);
    assert!(words.put(Scalar::Text(b"web"), &mut buffer, 0));
    assert_eq!(buffer, Buffer::Fixed { bytes: 1f32.to_le_bytes().into(), size: 4 });
    let buckets = column("float64", r#"{"name": "c", "hash_buckets": 7, "required": true}"#);
    let hashed = write(&buckets, DType::Float64, Some(one(Scalar::Text(b"web"))));
    let expected = (TENSORFLOW[2].1 % 7) as f64;
    assert_eq!(hashed, Ok(expected.to_le_bytes().into()));
}

#[test]
fn vectors_have_exactly_their_length() {
    let vector = column("float32", r#"{"name": "v", "length": 2, "default": [1, 2]}"#);
    let expected: Vec<u8> = [1f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let packed = expected.clone();
    let reals: Vec<u8> = [1f64, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    for value in [
        Value::PackedReals(&reals),
        Value::PackedIntegers(&[1, 2], 2),
        Value::Integers(&[1, 2]),
        Value::PackedFloats(&packed),
    ] {
        assert_eq!(write(&vector, DType::Float32, Some(value)), Ok(expected.clone()));
    }
    assert_eq!(write(&vector, DType::Float32, None), Ok(expected));
    for value in
        [Value::PackedFloats(&packed[..4]), Value::PackedFloats(&[]), one(Scalar::Real(1.0))]
    {
        assert_eq!(reason(&vector, DType::Float32, value), Reason::FeatureLength);
    }
    let texts = Value::EncodedTexts(b"\x0a\x011\x0a\x012", 2);
    assert_eq!(reason(&vector, DType::Float32, texts), Reason::FeatureType);
    assert_eq!(reason(&vector, DType::Float32, Value::Slices(&[b"1", b"2"])), Reason::FeatureType);
}

#[test]
fn absence_is_a_default_a_nan_or_an_error() {
    let nan = column("float64", r#"{"name": "n", "missing": "nan"}"#);
    assert_eq!(write(&nan, DType::Float64, None), Ok(f64::NAN.to_le_bytes().into()));
    let text = column("string", r#"{"name": "t", "default": "none"}"#);
    assert_eq!(write(&text, DType::String, None), Ok(b"none".to_vec()));
    let missing = write(&required("string"), DType::String, None).expect_err("required");
    assert_eq!(missing.reason, Reason::FeatureMissing);
}

#[test]
fn messages_do_not_repeat_the_sent_value() {
    let problem = write(&required("int32"), DType::Int32, Some(one(Scalar::Text(b"secret"))));
    assert_eq!(problem.expect_err("refused").message, "expected an integer, found text");
}
