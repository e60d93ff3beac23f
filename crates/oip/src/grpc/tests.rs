use bytes::Bytes;
use outrigger_proto::inference::{
    InferTensorContents, ModelInferRequest, ModelInferResponse,
    model_infer_request::InferInputTensor, model_infer_response::InferOutputTensor,
};

use super::*;
use crate::DataType;

fn input(datatype: &str, contents: Option<InferTensorContents>) -> InferInputTensor {
    InferInputTensor {
        name: "x".to_owned(),
        datatype: datatype.to_owned(),
        shape: vec![2],
        contents,
        ..InferInputTensor::default()
    }
}

fn read(input: InferInputTensor, raw: &[&'static [u8]]) -> Result<Bytes, String> {
    let raw_input_contents = raw.iter().map(|data| Bytes::from_static(data)).collect();
    let request =
        ModelInferRequest { inputs: vec![input], raw_input_contents, ..Default::default() };
    let read = read_request(request).map_err(|malformed| malformed.to_string());
    read.map(|(mut request, _)| request.inputs.remove(0).data)
}

fn integers(values: &[i32]) -> InferTensorContents {
    InferTensorContents { int_contents: values.to_vec(), ..Default::default() }
}

#[test]
fn s81_raw_and_other_contents_exclude_one_another() {
    let message = "inputs[0].contents: is set, and raw_input_contents too";
    for contents in [InferTensorContents::default(), integers(&[1, 2])] {
        let refused = read(input("INT8", Some(contents)), &[b"12"]);
        assert_eq!(refused.unwrap_err(), message);
    }
    assert_eq!(read(input("INT8", None), &[b"12"]).expect("raw"), "12");
}

#[test]
fn s82_raw_contents_are_those_of_the_inputs() {
    let refused = read(input("INT8", None), &[b"12", b"34"]).unwrap_err();
    assert_eq!(refused, "raw_input_contents: 2 entries for 1 inputs");
    let refused = read(input("INT8", None), &[b"123"]).unwrap_err();
    assert_eq!(refused, "inputs[0].data: 3 bytes, but INT8 [2] has 2");
}

#[test]
fn s83_contents_are_in_the_field_of_the_datatype() {
    let contents = || integers(&[1, -2]);
    assert_eq!(
        read(input("INT16", Some(contents())), &[]).expect("contents"),
        &[1, 0, 0xfe, 0xff][..]
    );
    let cases = [
        ("INT64", contents(), "int_contents is set, but INT64 is sent in int64_contents"),
        ("FP32", contents(), "int_contents is set, but FP32 is sent in fp32_contents"),
        (
            "INT32",
            InferTensorContents { bool_contents: vec![true], ..contents() },
            "bool_contents is set, but INT32 is sent in int_contents",
        ),
        ("INT8", integers(&[1, 128]), "element 1 is not in the range of INT8"),
        ("INT8", integers(&[1]), "1 elements, but INT8 [2] has 2"),
        ("INT8", InferTensorContents::default(), "0 elements, but INT8 [2] has 2"),
        (
            "FP16",
            InferTensorContents::default(),
            "FP16 has no contents: send it in raw_input_contents",
        ),
    ];
    for (datatype, contents, message) in cases {
        let refused = read(input(datatype, Some(contents)), &[]).unwrap_err();
        assert_eq!(refused, format!("inputs[0].contents: {message}"));
    }
}

#[test]
fn s84_texts_in_raw_contents_begin_with_their_lengths() {
    assert!(read(input("BYTES", None), &[b"\0\0\0\0\x01\0\0\0a"]).is_ok());
    assert!(read(input("BYTES", None), &[b"\0\0\0\0a"]).is_err());
    assert!(read(input("BF16", None), &[b"1234"]).is_ok());
}

fn response(outputs: Vec<InferOutputTensor>, raw: &[&'static [u8]]) -> ModelInferResponse {
    let raw_output_contents = raw.iter().map(|data| Bytes::from_static(data)).collect();
    ModelInferResponse { outputs, raw_output_contents, ..Default::default() }
}

fn output(shape: i64, contents: Option<InferTensorContents>) -> InferOutputTensor {
    InferOutputTensor {
        name: shape.to_string(),
        datatype: "INT8".to_owned(),
        shape: vec![shape],
        contents,
        ..InferOutputTensor::default()
    }
}

fn data(response: ModelInferResponse) -> Result<Vec<Bytes>, String> {
    let read = read_response(response).map_err(|malformed| malformed.to_string())?;
    Ok(read.outputs.into_iter().map(|output| output.data).collect())
}

#[test]
fn fewer_raw_contents_are_those_of_the_outputs_with_elements() {
    // KServe sends none for an output without elements.
    let outputs = || vec![output(0, None), output(2, None)];
    assert_eq!(data(response(outputs(), &[b"12"])).expect("outputs"), ["", "12"]);
    // Triton sends an empty one.
    assert_eq!(data(response(outputs(), &[b"", b"12"])).expect("outputs"), ["", "12"]);
    let refused = data(response(outputs(), &[b"", b"12", b""])).unwrap_err();
    assert_eq!(refused, "raw_output_contents: 3 entries for 2 outputs");
    let mixed = vec![output(2, Some(integers(&[1, 2]))), output(1, None)];
    assert_eq!(data(response(mixed, &[b"3"])).expect("outputs"), [&[1, 2][..], b"3"]);
}

#[test]
fn empty_contents_beside_raw_ones_are_ignored() {
    let outputs = vec![output(2, Some(InferTensorContents::default()))];
    assert_eq!(data(response(outputs, &[b"12"])).expect("outputs"), ["12"]);
}

#[test]
fn outputs_without_their_elements_are_refused() {
    assert!(data(response(vec![output(2, None)], &[])).is_err());
    assert!(data(response(vec![output(2, None)], &[b"1"])).is_err());
    assert!(data(response(vec![output(-1, None)], &[b""])).is_err());
}

#[test]
fn a_datatype_without_contents_makes_the_response_raw() {
    let half = crate::Tensor::new("x", DataType::Fp16, vec![1], Bytes::from_static(b"12"));
    let outputs = vec![half.expect("a tensor")];
    let written = write_response(crate::InferResponse { outputs, ..Default::default() }, false);
    assert_eq!(written.raw_output_contents, ["12"]);
    assert_eq!(written.outputs[0].contents, None);
}
