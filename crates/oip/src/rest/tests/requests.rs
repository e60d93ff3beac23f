//! Requests as servers read them. Names of the kind `s18` are those of the conformance checks.

use super::*;
use crate::{Parameter, RequestedOutput};

#[test]
fn s17_s18_flat_and_nested_data_are_equal() {
    let expected = floats(&[1.0, 2.5, -3.0, 4e-3, 5.0, 6.0]);
    for text in
        ["[1,2.5,-3,4e-3,5,6]", "[[1,2.5],[-3,4e-3],[5,6.0]]", "[ [1 ,2.5 ] ,[-3,4e-3],[5,6]\n]"]
    {
        assert_eq!(data("FP32", "[3,2]", text), Ok(expected.clone()), "{text}");
    }
    assert_eq!(data("FP32", "[1]", "[7]"), Ok(floats(&[7.0])));
    assert_eq!(data("FP32", "[]", "[7]"), Ok(floats(&[7.0])));
}

#[test]
fn s19_data_nested_in_another_way_are_refused() {
    for text in [
        "[[1],[2,3,4]]",
        "[[1,2,3,4]]",
        "[[1,2],[3,4],[]]",
        "[[1,2],3,4]",
        "[[[1],[2]],[3,4]]",
        "[[1,2],[3,[4]]]",
        "[1,2,[3,4]]",
        "[[[1,2],[3,4]]]",
    ] {
        let refused = data("FP32", "[2,2]", text).unwrap_err();
        assert!(refused.starts_with("inputs[0].data: "), "{text}: {refused}");
    }
    let refused = data("FP32", "[2,2]", "[[1],[2,3,4]]").unwrap_err();
    let message = "inputs[0].data: after 1 elements, the arrays are not nested as the shape [2, 2]";
    assert_eq!(refused, message);
    assert!(data("FP32", "[2]", "[[1,2]]").is_err());
}

#[test]
fn s20_other_numbers_of_elements_are_refused() {
    let few = "inputs[0].data: fewer elements than the 4 of the shape";
    assert_eq!(data("FP32", "[2,2]", "[1,2,3]").unwrap_err(), few);
    assert_eq!(data("FP32", "[2,2]", "[]").unwrap_err(), few);
    let many = "inputs[0].data: more elements than the 4 of the shape";
    assert_eq!(data("FP32", "[2,2]", "[1,2,3,4,5]").unwrap_err(), many);
    let many = "inputs[0].data: more elements than the 1 of the shape";
    assert_eq!(data("FP32", "[]", "[1,2]").unwrap_err(), many);
}

#[test]
fn s21_s22_s24_sizes_that_are_none_are_refused() {
    let refused = |shape: &str| data("FP32", shape, "[1]").unwrap_err();
    assert_eq!(refused("[-1]"), "inputs[0].shape[0]: -1 is negative");
    let message = "inputs[0].shape[0]: is no whole number of at most 63 bits";
    for shape in ["[1.0]", "[1e0]", "[\"1\"]", "[null]", "[9223372036854775808]", "[[1]]"] {
        assert_eq!(refused(shape), message, "{shape}");
    }
    assert_eq!(refused("1"), "inputs[0].shape: is no array");
    let message = "inputs[0].shape: the product of the sizes is too large";
    assert_eq!(refused("[4294967296,4294967296]"), message);
    assert_eq!(refused("[0,4294967296,4294967296]"), message);
    assert_eq!(refused(&format!("{:?}", [1; 33])), "inputs[0].shape: more than 32 dimensions");
    let few = "inputs[0].data: fewer elements than the 4611686018427387904 of the shape";
    assert_eq!(data("INT8", "[4611686018427387904]", "[1]").unwrap_err(), few);
}

#[test]
fn s23_tensors_without_elements_are_read() {
    assert_eq!(data("FP32", "[0,2]", "[]"), Ok(Bytes::new()));
    assert_eq!(data("FP32", "[2,0]", "[[],[]]"), Ok(Bytes::new()));
    assert_eq!(data("BYTES", "[0]", "[ ]"), Ok(Bytes::new()));
    assert!(data("FP32", "[2,0]", "[[]]").is_err());
}

#[test]
fn s25_other_datatypes_are_refused() {
    let refused = data("fp32", "[1]", "[1]").unwrap_err();
    assert!(
        refused.starts_with("inputs[0].datatype: \"fp32\" is none of BOOL, UINT8"),
        "{refused}"
    );
    assert!(data("FP128", "[1]", "[1]").is_err());
}

#[test]
fn s27_s28_values_of_other_types_are_refused() {
    let refused = |datatype: &str, text: &str| data(datatype, "[2]", text).unwrap_err();
    let cases = [
        ("FP32", "[1,\"2\"]", "1 is a string, but FP32 takes numbers up to 3.4028235e38"),
        ("FP32", "[null,1]", "0 is null, but FP32 takes numbers up to 3.4028235e38"),
        ("FP32", "[1,true]", "1 is true, but FP32 takes numbers up to 3.4028235e38"),
        ("FP32", "[1,1e39]", "1 is 1e39, but FP32 takes numbers up to 3.4028235e38"),
        (
            "FP32",
            "[NaN,1]",
            "0 is NaN, which is no JSON, but FP32 takes numbers up to 3.4028235e38",
        ),
        ("FP64", "[1,-Infinity]", "1 is -Infinity, which is no JSON, but FP64 takes numbers"),
        ("FP64", "[1,1e999]", "1 is 1e999, but FP64 takes numbers"),
        ("BYTES", "[\"a\",1]", "1 is 1, but BYTES takes strings"),
        ("BYTES", "[{},1]", "0 is an object, but BYTES takes strings"),
        ("BOOL", "[1,0]", "0 is 1, but BOOL takes true and false"),
        ("BOOL", "[true,\"true\"]", "1 is a string, but BOOL takes true and false"),
        (
            "INT32",
            "[1.5,1]",
            "0 is 1.5, but INT32 takes whole numbers from -2147483648 to 2147483647",
        ),
    ];
    for (datatype, text, message) in cases {
        assert_eq!(refused(datatype, text), format!("inputs[0].data: element {message}"));
    }
}

#[test]
fn s29_s30_integers_are_exact_within_their_range() {
    let exact = |datatype: &str, least: i128, most: i128, size: usize| {
        let found = data(datatype, "[2]", &format!("[{least},{most}]")).expect("in range");
        let expected = [&least.to_le_bytes()[..size], &most.to_le_bytes()[..size]].concat();
        assert_eq!(found, expected, "{datatype}");
        for beyond in [least - 1, most + 1] {
            let refused = data(datatype, "[1]", &format!("[{beyond}]")).unwrap_err();
            let message = format!("inputs[0].data: element 0 is {beyond}, but {datatype} takes");
            assert!(refused.starts_with(&message), "{refused}");
        }
    };
    exact("INT8", i8::MIN.into(), i8::MAX.into(), 1);
    exact("INT16", i16::MIN.into(), i16::MAX.into(), 2);
    exact("INT32", i32::MIN.into(), i32::MAX.into(), 4);
    exact("INT64", i64::MIN.into(), i64::MAX.into(), 8);
    exact("UINT8", 0, u8::MAX.into(), 1);
    exact("UINT16", 0, u16::MAX.into(), 2);
    exact("UINT32", 0, u32::MAX.into(), 4);
    exact("UINT64", 0, u64::MAX.into(), 8);
    assert_eq!(data("INT32", "[1]", "[-0]"), Ok(bytes([[0; 4]])));
    let odd = "9007199254740993";
    assert_eq!(
        data("INT64", "[1]", &format!("[{odd}]")),
        Ok(bytes([9_007_199_254_740_993_i64.to_le_bytes()]))
    );
    for text in ["[1.0]", "[1e3]", "[true]", "[-]"] {
        assert!(data("INT64", "[1]", text).is_err(), "{text}");
    }
}

#[test]
fn s32_booleans_are_true_and_false() {
    assert_eq!(data("BOOL", "[2]", "[true,false]"), Ok(Bytes::from_static(&[1, 0])));
}

#[test]
fn s33_texts_survive() {
    let expected = "\u{3}\0\0\0é\0\0\0\0\0".as_bytes();
    assert_eq!(data("BYTES", "[2]", "[\"é\\u0000\",\"\"]").expect("texts"), expected);
    assert!(data("BYTES", "[1]", "[\"\\ud800\"]").is_err());
}

#[test]
fn s34_types_without_json_are_refused_with_a_hint() {
    for datatype in ["FP16", "BF16"] {
        let refused = data(datatype, "[1]", "[1]").unwrap_err();
        assert!(refused.starts_with(&format!("inputs[0].data: {datatype} has no JSON form: ")));
    }
}

#[test]
fn s35_missing_fields_are_named() {
    assert_eq!(read("{}").unwrap_err(), "inputs: is missing");
    assert_eq!(read(r#"{"inputs":{}}"#).unwrap_err(), "inputs: is no array");
    assert_eq!(read(r#"{"inputs":null}"#).unwrap_err(), "inputs: is no array");
    assert_eq!(read(r#"{"inputs":[1]}"#).unwrap_err(), "inputs[0]: is no object");
    let fields = [r#""name":"x""#, r#""datatype":"FP32""#, r#""shape":[1]"#, r#""data":[1]"#];
    for (index, name) in ["name", "datatype", "shape", "data"].into_iter().enumerate() {
        let others: Vec<_> = (0..4).filter(|other| *other != index).map(|at| fields[at]).collect();
        let refused = tensor(&others.join(",")).unwrap_err();
        assert_eq!(refused, format!("inputs[0].{name}: is missing"));
    }
}

#[test]
fn s36_no_inputs_are_read() {
    assert_eq!(read(r#"{"inputs":[]}"#), Ok(InferRequest::default()));
}

#[test]
fn s37_a_name_given_twice_is_refused() {
    let one = r#"{"name":"x","datatype":"BOOL","shape":[0],"data":[]}"#;
    let refused = read(&format!(r#"{{"inputs":[{one},{one}]}}"#)).unwrap_err();
    assert_eq!(refused, "inputs[1]: \"x\" is given twice");
    let refused = read(r#"{"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]}"#).unwrap_err();
    assert_eq!(refused, "outputs[1]: \"y\" is given twice");
    assert_eq!(read(r#"{"inputs":[],"inputs":[]}"#).unwrap_err(), "inputs: is given twice");
    let refused = tensor(r#""name":"x","name":"x""#).unwrap_err();
    assert_eq!(refused, "inputs[0].name: is given twice");
}

#[test]
fn s39_other_keys_are_ignored_if_they_are_json() {
    let json = r#"{"x":{"y":[1,{"z":null}]},"inputs":[],"w":"\u00e9"}"#;
    assert_eq!(read(json), Ok(InferRequest::default()));
    assert!(read(r#"{"x":{"y":[1,{"z":nul}]},"inputs":[]}"#).is_err());
    assert!(read(r#"{"inputs":[]} x"#).is_err());
}

#[test]
fn s40_s41_an_id_is_a_string() {
    assert_eq!(read(r#"{"id":"é-1","inputs":[]}"#).expect("an id").id, Some("é-1".to_owned()));
    assert_eq!(read(r#"{"id":"","inputs":[]}"#).expect("an id").id, Some(String::new()));
    assert_eq!(read(r#"{"id":null,"inputs":[]}"#).expect("no id").id, None);
    assert_eq!(read(r#"{"id":1,"inputs":[]}"#).unwrap_err(), "id: is no string");
}

#[test]
fn s61_the_id_of_a_malformed_request_is_found() {
    let input = r#"{"inputs":[{"data":["]",[1],{}],"name":"x"}],"id":"é""#;
    assert_eq!(find_id(format!("{input}}}").as_bytes()), Some("é".to_owned()));
    assert_eq!(find_id(input.as_bytes()), Some("é".to_owned()));
    for json in ["", "[]", "{", r#"{"id":1}"#, r#"{"x":nul,"id":"1"}"#, r#"{"inputs":[],"i":"1"}"#]
    {
        assert_eq!(find_id(json.as_bytes()), None, "{json}");
    }
    assert_eq!(find_id(b"{\"id\":\"\xff\"}"), None);
}

#[test]
fn s42_parameters_are_flat() {
    let json =
        r#"{"parameters":{"a":"t","b":1,"c":true,"d":0.5,"e":18446744073709551615},"inputs":[]}"#;
    let parameters = read(json).expect("parameters").parameters;
    assert_eq!(parameters.get("a"), Some(&Parameter::Text("t".to_owned())));
    assert_eq!(parameters.get("b"), Some(&Parameter::Integer(1)));
    assert_eq!(parameters.get("c"), Some(&Parameter::Bool(true)));
    assert_eq!(parameters.get("d"), Some(&Parameter::Real(0.5)));
    assert_eq!(parameters.get("e"), Some(&Parameter::Unsigned(u64::MAX)));
    for value in ["{}", "[]", "null", "[1]"] {
        let refused =
            read(&format!(r#"{{"parameters":{{"a":{value}}},"inputs":[]}}"#)).unwrap_err();
        assert_eq!(refused, "parameters[\"a\"]: is no string, number or boolean", "{value}");
    }
    assert_eq!(read(r#"{"parameters":1,"inputs":[]}"#).unwrap_err(), "parameters: is no object");
    let refused = tensor(r#""parameters":{"a":[]}"#).unwrap_err();
    assert_eq!(refused, "inputs[0].parameters[\"a\"]: is no string, number or boolean");
}

#[test]
fn s43_malformed_bodies_are_refused() {
    assert_eq!(read("").unwrap_err(), "the body is empty");
    assert_eq!(read(" \n").unwrap_err(), "the body is empty");
    assert_eq!(read("{\"inputs\":[}").unwrap_err(), "the body is no JSON at byte 11");
    assert_eq!(read("[]").unwrap_err(), "the body is no object");
    let short = input(r#""name":"x","datatype":"FP32","shape":[2],"data":[1 2]"#);
    assert_eq!(read(&short).unwrap_err(), "the body is no JSON at byte 63");
    let early = input(r#""name":"x","data":[1 2],"datatype":"FP32","shape":[2]"#);
    assert_eq!(read(&early).unwrap_err(), "the body is no JSON at byte 33");
    let body = Bytes::from_static(b"{\"id\":\"\xff\",\"inputs\":[]}");
    let refused = read_request(&body, None).unwrap_err().to_string();
    assert_eq!(refused, "the body is not in UTF-8 at byte 7");
    for cut in 0..short.len() {
        assert!(read(&short[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn s44_deep_nesting_is_refused() {
    let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
    assert!(read(&format!(r#"{{"x":{},"inputs":[]}}"#, deep(99))).is_ok());
    for depth in [101, 1000, 100_000] {
        assert!(read(&format!(r#"{{"x":{},"inputs":[]}}"#, deep(depth))).is_err(), "{depth}");
        assert!(data("FP32", "[1,1]", &deep(depth)).is_err(), "{depth}");
        let fields = format!(r#""name":"x","data":{},"datatype":"FP32","shape":[1]"#, deep(depth));
        assert!(tensor(&fields).is_err(), "{depth}");
    }
}

#[test]
fn fields_may_come_in_any_order() {
    let expected = new(DataType::Bytes, &[1, 2], Bytes::from_static(b"\x01\0\0\0]\x01\0\0\0\""));
    let orders = [
        r#""data":[["]","\""]],"shape":[1,2],"name":"x","datatype":"BYTES""#,
        r#""shape":[1,2],"data":["]","\""],"datatype":"BYTES","name":"x""#,
        r#""datatype":"BYTES","shape":[1,2],"data":["]","\""],"name":"x""#,
    ];
    for fields in orders {
        assert_eq!(tensor(fields).as_ref(), Ok(&expected), "{fields}");
    }
}

#[test]
fn outputs_and_their_flags_are_read() {
    let json = r#"{"inputs":[],"outputs":[{"name":"a"},
        {"name":"b","parameters":{"binary_data":true}},{"parameters":null,"name":"c"}]}"#;
    let output = |name: &str, binary| RequestedOutput { name: name.into(), binary };
    let expected = [output("a", None), output("b", Some(true)), output("c", None)];
    assert_eq!(read(json).expect("outputs").outputs, expected);
    assert_eq!(read(r#"{"inputs":[],"outputs":null}"#).expect("all").outputs, []);
    assert_eq!(read(r#"{"inputs":[],"outputs":[{}]}"#).unwrap_err(), "outputs[0].name: is missing");
    let refused = read(r#"{"inputs":[],"outputs":[{"name":"a","parameters":{"binary_data":1}}]}"#);
    let message = "outputs[0].parameters[\"binary_data\"]: is neither true nor false";
    assert_eq!(refused.unwrap_err(), message);
    let refused =
        read(r#"{"inputs":[],"outputs":[{"name":"a","parameters":{"classification":3}}]}"#);
    assert!(refused.is_err());
}
