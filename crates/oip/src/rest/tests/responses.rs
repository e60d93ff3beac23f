//! Responses as clients read them, from servers with quirks. Names of the kind `b7` are those of the
//! list of quirks.

use super::*;

fn read(json: &str) -> Result<crate::InferResponse, Unreadable> {
    read_response(&Bytes::copy_from_slice(json.as_bytes()), None)
}

/// The only output of a response.
fn output(fields: &str) -> Result<Tensor, String> {
    match read(&format!(r#"{{"outputs":[{{{fields}}}]}}"#)) {
        Ok(mut response) => Ok(response.outputs.remove(0)),
        Err(error) => Err(error.to_string()),
    }
}

fn of(datatype: &str, shape: &str, data: &str) -> Result<Bytes, String> {
    let fields = format!(
        r#""name":"y","shape":{shape},"datatype":"{datatype}","parameters":null,"data":{data}"#
    );
    output(&fields).map(|output| output.data)
}

#[test]
fn b6_null_and_missing_fields_are_none() {
    let json = r#"{"model_name":"m","model_version":null,"id":"1","parameters":null,"outputs":[
        {"name":"y","shape":[1],"datatype":"FP32","parameters":{},"data":[3]}]}"#;
    let response = read(json).expect("a response");
    assert_eq!((response.model_name.as_str(), response.model_version), ("m", None));
    assert_eq!(response.outputs[0].data, floats(&[3.0]));
    let response = read(r#"{"outputs":[]}"#).expect("a response");
    assert_eq!(response, crate::InferResponse::default());
    let version = |value: &str| {
        let json = format!(r#"{{"model_version":{value},"outputs":[]}}"#);
        read(&json).expect("a response").model_version
    };
    assert_eq!(version("\"v1\""), Some("v1".to_owned()));
    assert_eq!(version("3"), Some("3".to_owned()));
    let nested = read(r#"{"outputs":[],"parameters":{"a":{"b":[1]}}}"#).expect("a response");
    assert!(nested.parameters.is_empty());
}

#[test]
fn b7_floats_that_are_not_finite_are_read() {
    let data = of("FP32", "[5]", "[NaN,null,Infinity,-Infinity,1e39]").expect("floats");
    let values: Vec<_> =
        data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert!(values[0].is_nan() && values[1].is_nan());
    assert_eq!(values[2..], [f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY]);
    let data = of("FP64", "[2]", "[NaN,-Infinity]").expect("floats");
    assert_eq!(data[8..], f64::NEG_INFINITY.to_le_bytes());
    // In front of the datatype too.
    let early = output(r#""data":[NaN,1],"name":"y","datatype":"FP32","shape":[2]"#);
    assert_eq!(early.expect("floats").data[4..], 1_f32.to_le_bytes());
    for (datatype, data) in [("INT32", "[null]"), ("BYTES", "[null]"), ("INT64", "[NaN]")] {
        assert!(of(datatype, "[1]", data).is_err(), "{datatype}");
    }
}

#[test]
fn b8_json_that_is_not_utf_8_is_reported() {
    let body = b"{\"outputs\":[{\"name\":\"y\",\"shape\":[1],\"datatype\":\"BYTES\",\"data\":[\"\xff\"]}]}";
    let error = read_response(&Bytes::from_static(body), None).unwrap_err();
    assert_eq!(error, Unreadable::NotUtf8);
}

#[test]
fn b10_data_may_be_nested_in_any_way() {
    let expected = floats(&[1.0, 2.0, 3.0, 4.0]);
    for data in ["[1,2,3,4]", "[[1,2],[3,4]]", "[[1,2,3,4]]", "[[[1],[2]],[[3],[4]]]"] {
        assert_eq!(of("FP32", "[2,2]", data), Ok(expected.clone()), "{data}");
    }
    let few = "outputs[0].data: fewer elements than the 4 of the shape";
    assert_eq!(of("FP32", "[2,2]", "[[1,2],[3]]").unwrap_err(), few);
    let many = "outputs[0].data: more elements than the 4 of the shape";
    assert_eq!(of("FP32", "[2,2]", "[[1,2],[3,4,5]]").unwrap_err(), many);
    assert!(of("FP32", "[1]", &("[".repeat(10_000) + &"]".repeat(10_000))).is_err());
}

#[test]
fn integers_are_exact_and_taken_for_floats_and_booleans() {
    let most = u64::MAX.to_le_bytes();
    assert_eq!(of("UINT64", "[1]", "[18446744073709551615]"), Ok(bytes([most])));
    assert_eq!(of("FP64", "[1]", "[3]"), Ok(bytes([3_f64.to_le_bytes()])));
    assert_eq!(of("BOOL", "[3]", "[1,0,true]"), Ok(Bytes::from_static(&[1, 0, 1])));
    assert!(of("BOOL", "[1]", "[2]").is_err());
}

#[test]
fn an_output_without_elements_needs_no_data() {
    let empty = r#""name":"y","datatype":"FP32","shape":[0,3]"#;
    assert_eq!(output(empty).expect("empty").data, Bytes::new());
    let zero = format!(r#"{empty},"parameters":{{"binary_data_size":0}}"#);
    assert_eq!(output(&zero).expect("empty").data, Bytes::new());
    let missing = output(r#""name":"y","datatype":"FP32","shape":[1,3]"#);
    assert_eq!(missing.unwrap_err(), "outputs[0].data: is missing");
}

#[test]
fn binary_and_json_outputs_are_mixed() {
    let json = r#"{"model_name":"m","outputs":[{"name":"a","datatype":"BF16","shape":[1],
        "parameters":{"binary_data_size":2}},{"name":"b","datatype":"INT8","shape":[1],"data":[-1]}]}"#;
    let body = Bytes::from([json.as_bytes(), b"12"].concat());
    let response = read_response(&body, Some(json.len())).expect("a response");
    assert_eq!(response.outputs[0].data, "12");
    assert_eq!(response.outputs[1].data, &[0xff][..]);
    let short = body.slice(..body.len() - 1);
    assert!(read_response(&short, Some(json.len())).is_err());
    assert!(read_response(&short, Some(json.len() + 2)).is_err());
}

#[test]
fn an_error_with_a_successful_status_is_noticed() {
    let error = |json: &str| read(json).unwrap_err();
    assert_eq!(error(r#"{"error":"no model"}"#), Unreadable::Error("no model".to_owned()));
    assert_eq!(error(r#"{"detail":"no model"}"#), Unreadable::Error("no model".to_owned()));
    assert!(matches!(error("{}"), Unreadable::Malformed(_)));
    assert!(matches!(error("<html>"), Unreadable::Malformed(_)));
    assert!(matches!(error(""), Unreadable::Malformed(_)));
}
