//! Checks 1 to 14: requests, health, metadata and replies.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use outrigger_oip::{DataType, Tensor};
use outrigger_oip_client::{Class, Form, ModelRef};
use outrigger_testkit::oip::{Answer, identity};
use serde_json::{Value, json};

use crate::harness::{fault, named, of, request, rest, soon, tensor, values};

fn output(reply: &mut Value) -> &mut Value {
    &mut reply["outputs"][0]
}

/// The message of the failure that a changed answer leads to.
async fn refused(distort: fn(&mut Value)) -> String {
    let (_server, client) = rest(move |seen| identity::json_with(seen, distort)).await;
    let failure = fault(&client).await;
    assert_eq!(failure.class, Class::Ambiguous);
    failure.message
}

/// The numbers that a changed answer leads to, for the rows 1 and 2.
async fn accepted(distort: fn(&mut Value)) -> Vec<f32> {
    let (_server, client) = rest(move |seen| identity::json_with(seen, distort)).await;
    values(&client.infer(&request(&[1.0, 2.0])).await.expect("an answer"))
}

#[tokio::test]
async fn check_1_each_request_has_an_id_and_its_echo_is_checked() {
    let (server, client) = rest(identity::json).await;
    client.infer(&request(&[1.0])).await.expect("an answer");
    client.infer(&request(&[1.0])).await.expect("an answer");
    let id = |body: &[u8]| {
        let body: Value = serde_json::from_slice(body).expect("JSON");
        body["id"].as_str().expect("an id").to_owned()
    };
    let seen = server.seen();
    let [.., first, second] = &seen[..] else { panic!("two requests in JSON") };
    assert_ne!(id(&first.body), id(&second.body));
    let message = refused(|reply| reply["id"] = json!("another")).await;
    assert_eq!(message, "it has the id of another request");
}

#[tokio::test]
async fn check_2_health_is_judged_by_the_status_alone() {
    let cases = [
        (Answer::of(200, None, ""), true),
        (Answer::json(200, r#"{"ready":false}"#), true),
        (Answer::json(400, r#"{"error":"not ready"}"#), false),
        (Answer::of(503, None, ""), false),
        (Answer::json(404, r#"{"ready":true}"#), false),
    ];
    for (answer, ready) in cases {
        let (_server, client) = rest(move |_| answer.clone()).await;
        let model = ModelRef { name: "m", version: None };
        assert_eq!(client.is_ready(0, model, soon()).await.expect("a status"), ready);
    }
}

#[tokio::test]
async fn check_3_metadata_is_not_needed() {
    let (server, client) = rest(|seen| match seen.call.ends_with("/infer") {
        true => identity::json(seen),
        false => Answer::of(404, None, ""),
    })
    .await;
    client.infer(&request(&[1.0])).await.expect("an answer");
    assert_eq!(server.seen().len(), server.count("/infer"));
}

#[tokio::test]
async fn check_4_outputs_are_mapped_by_name() {
    let (_server, client) = rest(|seen| {
        identity::json_with(seen, |reply| {
            reply["outputs"].as_array_mut().expect("outputs").reverse()
        })
    })
    .await;
    let inputs = vec![tensor("a", &[1, 1], &[1.0]), tensor("b", &[1, 1], &[2.0])];
    let reply = client.infer(&of(inputs)).await.expect("an answer");
    let names: Vec<_> = reply.outputs.iter().map(|it| it.name.clone()).collect();
    assert_eq!(names, named(&["OUT_a", "OUT_b"]));
    assert_eq!(values(&reply), [1.0]);
}

#[tokio::test]
async fn check_5_another_number_of_rows_is_refused() {
    let message = refused(|reply| {
        output(reply)["shape"] = json!([3, 1]);
        output(reply)["data"] = json!([1, 2, 3]);
    });
    assert_eq!(message.await, "output OUT_x has the shape [3, 1], not 2 rows");
}

#[tokio::test]
async fn check_6_data_that_do_not_match_the_shape_are_refused() {
    let message = refused(|reply| output(reply)["data"] = json!([1, 2, 3])).await;
    assert!(message.contains("outputs[0]"), "{message}");
    let overflow =
        refused(|reply| output(reply)["shape"] = json!([1_u64 << 32, 1_u64 << 32])).await;
    assert!(overflow.contains("too large"), "{overflow}");
}

#[tokio::test]
async fn check_7_missing_and_repeated_outputs_are_refused() {
    let missing = refused(|reply| reply["outputs"] = json!([])).await;
    assert_eq!(missing, "output OUT_x is missing");
    let repeated = refused(|reply| {
        let output = output(reply).clone();
        reply["outputs"] = json!([output, output]);
    });
    assert_eq!(repeated.await, "output OUT_x is there twice");
}

#[tokio::test]
async fn check_8_another_model_is_refused_and_another_version_is_reported() {
    let message = refused(|reply| reply["model_name"] = json!("n")).await;
    assert_eq!(message, "it is from the model \"n\"");
    let calls = AtomicUsize::new(0);
    let (_server, client) = rest(move |seen| {
        let answers = |_: &mut Value| {};
        match serde_json::from_slice::<Value>(&seen.body) {
            Err(_) => identity::json_with(seen, answers),
            Ok(_) => {
                let version = if calls.fetch_add(1, Relaxed) < 2 { "1" } else { "2" };
                identity::json_with(seen, |reply| reply["model_version"] = json!(version))
            }
        }
    })
    .await;
    let mut changes = Vec::new();
    for _ in 0..4 {
        let reply = client.infer(&request(&[1.0])).await.expect("an answer");
        changes.push((reply.version, reply.changed_from));
    }
    let version = |version: &str| Some(version.to_owned());
    let steady = |it: &str| (version(it), None);
    assert_eq!(changes, [steady("1"), steady("1"), (version("2"), version("1")), steady("2")]);
}

#[tokio::test]
async fn check_9_nested_data_are_accepted() {
    assert_eq!(accepted(|reply| output(reply)["data"] = json!([[1], [2]])).await, [1.0, 2.0]);
    assert_eq!(accepted(|reply| output(reply)["data"] = json!([1, 2])).await, [1.0, 2.0]);
}

#[tokio::test]
async fn check_10_optional_fields_may_be_null_or_missing() {
    let null = accepted(|reply| {
        reply["model_version"] = Value::Null;
        reply["parameters"] = Value::Null;
        reply["id"] = Value::Null;
        output(reply)["parameters"] = Value::Null;
    });
    assert_eq!(null.await, [1.0, 2.0]);
    let missing = accepted(|reply| {
        let outputs = reply["outputs"].clone();
        *reply = json!({ "outputs": outputs });
    });
    assert_eq!(missing.await, [1.0, 2.0]);
}

#[tokio::test]
async fn check_11_integers_are_accepted_as_floats() {
    assert_eq!(accepted(|reply| output(reply)["data"] = json!([3, -4])).await, [3.0, -4.0]);
}

#[tokio::test]
async fn check_12_large_integers_are_exact() {
    let (_server, client) = rest(identity::json).await;
    let numbers = [i64::MAX, i64::MIN, 9_007_199_254_740_993];
    let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let data = data.into();
    let input = Tensor { name: "x".into(), datatype: DataType::Int64, shape: vec![3], data };
    let reply = client.infer(&of(vec![input.clone()])).await.expect("an answer");
    assert_eq!((reply.form, &reply.outputs[0].data), (Form::Json, &input.data));
}

#[tokio::test]
async fn check_13_numbers_that_are_not_finite_are_accepted_and_found() {
    for token in ["NaN", "Infinity", "-Infinity", "null"] {
        let (_server, client) = rest(move |seen| {
            let answer = identity::json_with(seen, |reply| output(reply)["data"] = json!([1, "?"]));
            let Answer::Http(status, headers, body) = answer else { panic!("HTTP") };
            let text = String::from_utf8_lossy(&body).replace("\"?\"", token);
            Answer::Http(status, headers, text.into())
        })
        .await;
        let reply = client.infer(&request(&[1.0, 2.0])).await.expect("an answer");
        assert_eq!(reply.non_finite_rows().into_iter().collect::<Vec<_>>(), [1], "{token}");
    }
}

#[tokio::test]
async fn check_14_bytes_that_are_not_utf_8_switch_the_model_to_binary() {
    let text = |text: &'static [u8]| {
        let data = [&(text.len() as u32).to_le_bytes()[..], text].concat().into();
        of(vec![Tensor { name: "x".into(), datatype: DataType::Bytes, shape: vec![1], data }])
    };
    // JSON is what the host is known to take, until it cannot write an output in it.
    let (server, client) = rest(identity::json).await;
    client.infer(&text(b"a")).await.expect("an answer");
    server.script(|seen| match seen.headers.contains_key("inference-header-content-length") {
        true => identity::binary(seen),
        false => {
            Answer::json(200, &b"{\"outputs\":[{\"name\":\"OUT_x\",\"data\":[\"\xff\"]}]}"[..])
        }
    });
    for sent in [&b"b"[..], b"\xff"] {
        let reply = client.infer(&text(sent)).await.expect("an answer");
        assert_eq!(reply.form, Form::Binary);
        assert_eq!(&reply.outputs[0].data[4..], sent);
    }
}
