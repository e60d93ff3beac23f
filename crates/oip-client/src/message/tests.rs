use bytes::Bytes;

use super::*;

fn tensor(name: &str, shape: &[i64], values: &[f32]) -> Tensor {
    let data = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    Tensor { name: name.into(), datatype: DataType::Fp32, shape: shape.to_vec(), data: data.into() }
}

fn request(outputs: &[&str], rows: Option<u64>) -> Request {
    Request {
        model: "m".into(),
        version: None,
        inputs: vec![tensor("x", &[2, 1], &[1.0, 2.0])],
        outputs: outputs.iter().map(|name| (*name).into()).collect(),
        rows,
        row_by_row: false,
        deadline: Instant::now(),
        headers: HeaderMap::new(),
    }
}

fn answer(outputs: Vec<Tensor>) -> InferResponse {
    let (id, model_name) = (Some("7".into()), "m".into());
    InferResponse { id, model_name, outputs, ..InferResponse::default() }
}

fn fault(answer: InferResponse, request: &Request) -> String {
    let failure = check(answer, request, "7").expect_err("refused");
    assert_eq!(failure.class, crate::Class::Ambiguous, "another host may answer better");
    failure.message
}

fn both() -> Vec<Tensor> {
    vec![tensor("b", &[2], &[1.0, 2.0]), tensor("a", &[2], &[3.0, 4.0])]
}

#[test]
fn check_1_the_id_of_another_request_is_refused() {
    let other = InferResponse { id: Some("8".into()), ..answer(both()) };
    assert_eq!(fault(other, &request(&[], None)), "it has the id of another request");
}

#[test]
fn check_4_outputs_are_mapped_by_name() {
    let (outputs, _) = check(answer(both()), &request(&["a", "b"], Some(2)), "7").expect("valid");
    assert_eq!(outputs.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn check_5_another_number_of_rows_is_refused() {
    let message = "output b has the shape [2], not 3 rows";
    assert_eq!(fault(answer(both()), &request(&[], Some(3))), message);
    let scalar = answer(vec![tensor("b", &[], &[1.0])]);
    assert_eq!(fault(scalar, &request(&[], Some(1))), "output b has the shape [], not 1 rows");
}

#[test]
fn check_6_a_shape_that_differs_from_the_elements_is_refused() {
    let short = answer(vec![tensor("b", &[2, 2], &[1.0, 2.0])]);
    let message = "output b: data: 8 bytes, but FP32 [2, 2] has 16";
    assert_eq!(fault(short, &request(&[], None)), message);
    let overflow = answer(vec![tensor("b", &[1 << 32, 1 << 32], &[])]);
    assert!(fault(overflow, &request(&[], None)).contains("too large"));
}

#[test]
fn check_7_missing_and_repeated_outputs_are_refused() {
    let cases: [(Vec<Tensor>, &[&str], &str); 2] = [
        (vec![both().remove(0)], &["b", "a"], "output a is missing"),
        ([both(), both()].concat(), &[], "output b is there twice"),
    ];
    for (outputs, names, message) in cases {
        assert_eq!(fault(answer(outputs), &request(names, None)), message);
    }
}

#[test]
fn outputs_that_were_not_asked_for_are_dropped() {
    let all = [both(), vec![tensor("none", &[2, 0], &[])]].concat();
    let (outputs, _) = check(answer(all), &request(&["a"], Some(2)), "7").expect("valid");
    assert_eq!(outputs, both()[1..]);
}

#[test]
fn a_model_of_one_row_has_tensors_of_the_sizes_of_a_row() {
    let inputs = vec![tensor("x", &[1, 3], &[1.0, 2.0, 3.0]), tensor("n", &[1, 1], &[4.0])];
    let request = Request { inputs, row_by_row: true, ..request(&[], Some(1)) };
    let of_one = request.of_one_row().expect("one row");
    assert_eq!([&of_one.inputs[0].shape[..], &of_one.inputs[1].shape], [&[3][..], &[1]]);
    let (outputs, _) = check(answer(both()), &of_one, "7").expect("valid");
    assert_eq!(outputs[0].shape, [1, 2]);
    let refused = Request { inputs: both(), ..request }.of_one_row().expect_err("two rows");
    assert_eq!(refused.message, "input b: the shape [2] is not that of one row");
}

#[test]
fn check_8_another_model_is_refused() {
    let other = InferResponse { model_name: "n".into(), ..answer(both()) };
    assert_eq!(fault(other, &request(&[], None)), "it is from the model \"n\"");
}

#[test]
fn check_10_fields_that_are_missing_are_accepted() {
    let bare = InferResponse { outputs: both(), ..InferResponse::default() };
    let (_, version) = check(bare, &request(&[], Some(2)), "7").expect("valid");
    assert_eq!(version, None);
}

#[test]
fn check_13_rows_that_are_not_finite_are_found() {
    let outputs = vec![
        tensor("a", &[3, 2], &[1.0, f32::NAN, 1.0, 1.0, f32::INFINITY, 1.0]),
        tensor("b", &[3], &[1.0, 1.0, 1.0]),
    ];
    let reply =
        Reply { outputs, version: None, changed_from: None, host: "h".into(), form: Form::Json };
    assert_eq!(reply.non_finite_rows().into_iter().collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn json_has_no_form_for_some_inputs() {
    let with = |tensor: Tensor| Request { inputs: vec![tensor], ..request(&[], None) };
    let texts = |text: &'static [u8]| Tensor {
        datatype: DataType::Bytes,
        data: Bytes::from_static(text),
        ..tensor("x", &[1], &[])
    };
    assert!(!request(&[], None).needs_binary());
    assert!(with(tensor("x", &[1], &[f32::NAN])).needs_binary());
    assert!(with(texts(b"\x01\0\0\0\xff")).needs_binary());
    assert!(!with(texts(b"\x02\0\0\0\xc3\xa9")).needs_binary());
    assert!(with(Tensor { datatype: DataType::Fp16, ..tensor("x", &[1], &[]) }).needs_binary());
}
