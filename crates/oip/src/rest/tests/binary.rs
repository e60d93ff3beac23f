//! Requests with binary tensors. Names of the kind `s71` are those of the conformance checks.

use super::*;

/// A body of JSON and bytes, read with the length of the JSON.
fn binary(json: &str, behind: &[u8]) -> Result<InferRequest, String> {
    let body = Bytes::from([json.as_bytes(), behind].concat());
    read_request(&body, Some(json.len())).map_err(|malformed| malformed.to_string())
}

const BINARY: &str = r#"{"inputs":[
    {"name":"a","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}},
    {"name":"b","datatype":"INT8","shape":[1],"data":[7]},
    {"name":"c","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":9}}]}"#;

#[test]
fn s71_binary_and_json_tensors_are_mixed() {
    let request = binary(BINARY, b"1234\0\0\0\0\x01\0\0\0z").expect("a request");
    let data: Vec<_> = request.inputs.iter().map(|input| &*input.data).collect();
    assert_eq!(data, [&b"1234"[..], &[7], b"\0\0\0\0\x01\0\0\0z"]);
}

#[test]
fn s72_s75_binary_tensors_have_the_size_that_is_said() {
    let refused = |behind: &[u8]| binary(BINARY, behind).unwrap_err();
    assert_eq!(
        refused(b"1234\0\0\0\0\x01\0\0\0"),
        "inputs[2].parameters[\"binary_data_size\"]: 9, but 8 bytes are left behind the JSON"
    );
    assert_eq!(
        refused(b"1234\0\0\0\0\x01\0\0\0zz"),
        "inputs: 1 bytes follow the last binary tensor"
    );
    assert_eq!(
        refused(b"1234\0\0\0\0\x02\0\0\0z"),
        "inputs[2].data: the length at byte 4 is that of no element"
    );
    let short = BINARY.replace(
        "\"shape\":[2],\"parameters\":{\"binary_data_size\":4}",
        "\"shape\":[3],\"parameters\":{\"binary_data_size\":4}",
    );
    let message = "inputs[0].data: 4 bytes, but FP16 [3] has 6";
    assert_eq!(binary(&short, b"1234\0\0\0\0\x01\0\0\0z").unwrap_err(), message);
}

#[test]
fn s73_data_are_here_or_behind() {
    let json = input(
        r#""name":"x","datatype":"INT8","shape":[1],"data":[1],"parameters":{"binary_data_size":1}"#,
    );
    let message = "inputs[0].data: is given, and binary_data_size too";
    assert_eq!(binary(&json, b"\x01").unwrap_err(), message);
}

#[test]
fn s74_lengths_that_lie_are_refused() {
    let of = |size: &str| {
        let fields = format!(
            r#""name":"x","datatype":"INT8","shape":[1],"parameters":{{"binary_data_size":{size}}}"#
        );
        binary(&input(&fields), b"\x01")
    };
    assert!(of("1").is_ok());
    for size in ["-1", "1.0", "\"1\"", "true", "2", "18446744073709551615", "4294967297"] {
        let refused = of(size).unwrap_err();
        assert!(refused.starts_with("inputs[0].parameters[\"binary_data_size\"]: "), "{refused}");
    }
    let body = Bytes::from_static(b"{}");
    let refused = read_request(&body, Some(3)).unwrap_err().to_string();
    assert_eq!(refused, "inference-header-content-length: 3, but the body has 2 bytes");
    // Without the header, the whole body is JSON.
    let body = Bytes::from([BINARY.as_bytes(), b"1234\0\0\0\0\x01\0\0\0z"].concat());
    assert!(read_request(&body, None).is_err());
    assert!(read_request(&body, Some(usize::MAX)).is_err());
}

#[test]
fn binary_tensors_share_the_memory_of_the_body() {
    let json =
        input(r#""name":"x","datatype":"INT8","shape":[1],"parameters":{"binary_data_size":1}"#);
    let body = Bytes::from([json.as_bytes(), b"\x01"].concat());
    let request = read_request(&body, Some(json.len())).expect("a request");
    assert_eq!(request.inputs[0].data.as_ptr(), body[json.len()..].as_ptr());
}
