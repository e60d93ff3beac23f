//! Tensors in all forms are the same tensors.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::{InferResponse, Malformed, RequestedOutput, grpc, tensor::put_text};

/// Any tensor of some elements.
fn any_tensor() -> impl Strategy<Value = Tensor> {
    let shapes = vec(0..4_i64, 0..4);
    (shapes, select(&DataType::ALL[..]), vec(any::<u8>(), 8 * 27), vec(".{0,5}", 27)).prop_map(
        |(shape, datatype, random, texts)| {
            let elements = crate::shape::elements(&shape).expect("a small shape");
            let data = match datatype.size() {
                None => {
                    let mut data = bytes::BytesMut::new();
                    texts[..elements].iter().for_each(|text| put_text(text.as_bytes(), &mut data));
                    data.freeze()
                }
                Some(size) => {
                    let mut data = random[..elements * size].to_vec();
                    if datatype == DataType::Bool {
                        data.iter_mut().for_each(|byte| *byte &= 1);
                    }
                    data.into()
                }
            };
            Tensor::new("x \"é\"", datatype, shape, data).expect("a tensor")
        },
    )
}

/// True if all elements have a form in JSON.
fn has_json(tensor: &Tensor) -> bool {
    let (fours, eights) = (tensor.data.as_chunks().0, tensor.data.as_chunks().0);
    match tensor.datatype {
        DataType::Fp32 => fours.iter().all(|bytes| f32::from_le_bytes(*bytes).is_finite()),
        DataType::Fp64 => eights.iter().all(|bytes| f64::from_le_bytes(*bytes).is_finite()),
        datatype => datatype.is_typed(),
    }
}

fn request(tensor: &Tensor) -> InferRequest {
    let output = RequestedOutput { name: "y".into(), binary: Some(false) };
    InferRequest {
        id: Some("1".to_owned()),
        inputs: vec![tensor.clone()],
        outputs: vec![output],
        ..InferRequest::default()
    }
}

fn response(tensor: &Tensor) -> InferResponse {
    InferResponse {
        model_name: "m".to_owned(),
        model_version: Some("7".to_owned()),
        id: Some("1".to_owned()),
        outputs: vec![tensor.clone()],
        ..InferResponse::default()
    }
}

fn reread(encoded: Encoded) -> Result<InferRequest, Malformed> {
    let length = encoded.header_length();
    let body = encoded.into_body();
    read_request(&body, length)
}

#[test]
fn a_binary_request_for_all_outputs_asks_for_them_as_binary_tensors() {
    let tensor = new(DataType::Bool, &[1], vec![1].into());
    let asked = |outputs, form| {
        let request = InferRequest { outputs, ..request(&tensor) };
        let read = reread(write_request(&request, form).expect("a tensor")).expect("a request");
        read.parameters.flag("binary_data_output").expect("a flag")
    };
    assert_eq!(asked(Vec::new(), Form::Binary), Some(true));
    assert_eq!(asked(Vec::new(), Form::Json), None);
    assert_eq!(asked(request(&tensor).outputs, Form::Binary), None, "each output has its own");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_request_is_read_as_it_was_written(tensor in any_tensor()) {
        let request = request(&tensor);
        let binary = write_request(&request, Form::Binary).expect("any tensor");
        prop_assert_eq!(reread(binary), Ok(request.clone()));
        let json = write_request(&request, Form::Json);
        prop_assert_eq!(json.is_ok(), has_json(&tensor));
        if let Ok(json) = json {
            prop_assert_eq!(json.header_length(), None);
            prop_assert_eq!(reread(json), Ok(request.clone()));
        }
        let message = grpc::write_request(request.clone(), "m".to_owned(), String::new());
        let (read, is_raw) = grpc::read_request(message).expect("any tensor");
        let mut expected = request;
        expected.outputs[0].binary = None;
        prop_assert_eq!((read, is_raw), (expected, true));
    }

    #[test]
    fn a_response_is_read_as_it_was_written(tensor in any_tensor()) {
        let response = response(&tensor);
        for form in [Form::Binary, Form::Json] {
            let encoded = write_response(&response, |_| form, NonFinite::Refuse);
            prop_assert_eq!(encoded.is_ok(), form == Form::Binary || has_json(&tensor));
            if let Ok(encoded) = encoded {
                prop_assert_eq!(encoded.header_length().is_some(), form == Form::Binary);
                prop_assert!(form == Form::Binary || tensor.datatype == DataType::Bytes
                    || encoded.json.len() <= json_size(&tensor) + 256);
                let length = encoded.header_length();
                let read = read_response(&encoded.into_body(), length);
                prop_assert_eq!(read, Ok(response.clone()));
            }
        }
        for raw in [false, true] {
            let message = grpc::write_response(response.clone(), raw);
            let is_raw = !message.raw_output_contents.is_empty();
            prop_assert_eq!(is_raw, raw || !tensor.datatype.is_typed());
            prop_assert_eq!(grpc::read_response(message), Ok(response.clone()));
        }
    }

    #[test]
    fn no_body_is_a_panic(json in "\\PC{0,80}", behind in vec(any::<u8>(), 0..20), at in 0..100_usize) {
        let body = Bytes::from([json.as_bytes(), &behind].concat());
        for length in [None, Some(at)] {
            let _ = read_request(&body, length);
            let _ = read_response(&body, length);
        }
    }
}

#[test]
fn floats_that_are_not_finite_become_null_where_that_is_allowed() {
    let response = response(&new(DataType::Fp32, &[3], floats(&[f32::NAN, 1.0, f32::INFINITY])));
    let refused = write_response(&response, |_| Form::Json, NonFinite::Refuse).unwrap_err();
    let message = "outputs[0].data: element 0 is NaN or infinite, which JSON has no form for: ask \
                   for a binary tensor";
    assert_eq!(refused.to_string(), message);
    let encoded = write_response(&response, |_| Form::Json, NonFinite::Null).expect("nulls");
    let json = String::from_utf8(encoded.json).expect("text");
    assert!(json.ends_with(r#""shape":[3],"data":[null,1.0,null]}]}"#), "{json}");
}

#[test]
fn bytes_that_are_not_utf_8_are_refused_in_json() {
    let response = response(&new(DataType::Bytes, &[1], Bytes::from_static(b"\x01\0\0\0\xff")));
    assert!(write_response(&response, |_| Form::Json, NonFinite::Null).is_err());
}

#[test]
fn s52_members_without_content_are_left_out() {
    let response = InferResponse { model_name: "m".to_owned(), ..InferResponse::default() };
    let encoded = write_response(&response, |_| Form::Json, NonFinite::Refuse).expect("JSON");
    assert_eq!(encoded.json, br#"{"model_name":"m","outputs":[]}"#);
}

#[test]
fn s77_an_empty_binary_output_has_the_header() {
    let response = response(&new(DataType::Fp32, &[0], Bytes::new()));
    let encoded = write_response(&response, |_| Form::Binary, NonFinite::Refuse).expect("binary");
    assert_eq!(encoded.header_length(), Some(encoded.json.len()));
    assert_eq!(encoded.content_type(), "application/octet-stream");
}
