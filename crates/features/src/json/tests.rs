use std::{cell::Cell, sync::LazyLock};

use outrigger_json::Cursor;
use outrigger_proto::outrigger::v1::{
    Arm, OnTreatmentError, PredictResponse, ScoreList, ServedModel, TreatmentError,
    model_selector::Version, predict_response::Output,
};
use serde_json::json;

use super::{row::Row, template::Template, *};
use crate::{
    entries::{STRANGERS, STRANGERS_PER_ROW},
    fixtures::{encoded, everything, fields, floats, ints, plan},
    limits::Limits,
    meter::Meter,
    packed::Packed,
    plan::Plan,
    reference::predict_response,
    tensors::Tensors,
};

static PLAN: LazyLock<Plan> = LazyLock::new(plan);

fn pack_json(plan: &Plan, body: Value) -> Result<Packed, Failure> {
    let request = predict_request(plan, body.to_string().as_bytes())?;
    plan.pack(&[encoded(&request)], &Limits::default())
}

#[test]
fn a_request_reads_as_its_protobuf_form_does() {
    let body = json!({
        "model": {"name": "churn", "digest": "sha256:00"},
        "request_id": "r-1",
        "routing_key": "u-7",
        "user": {"recency_months": 7, "embedding": [1, 0.5, -2, 1e-3], "channel": null},
        "treatments": [{"id": "a", "features": {"discount": 0.1}}, {"features": {"discount": 1}}],
        "options": {"top_k": 1, "treatment_ids": false, "outputs": ["score"], "on_treatment_error": "skip"},
    });
    let request = predict_request(&plan(), body.to_string().as_bytes()).expect("valid");
    let model = request.model.as_ref().expect("given");
    assert_eq!(model.name, "churn");
    assert_eq!(model.version, Some(Version::Digest("sha256:00".into())));
    assert_eq!((request.request_id.as_str(), request.routing_key.as_str()), ("r-1", "u-7"));
    let options = request.options.as_ref().expect("set");
    assert_eq!((options.top_k, options.treatment_ids), (1, false));
    assert_eq!(options.outputs, ["score"]);
    assert_eq!(options.on_treatment_error(), OnTreatmentError::Skip);
    assert_eq!(request.treatments[0].id, "a");

    let packed = plan().pack(&[encoded(&request)], &Limits::default()).expect("packs");
    assert_eq!(packed.tensors[0].content, floats(&[7.0, 1.0, 0.5, -2.0, 1e-3]));
    assert_eq!(packed.tensors[2].content, floats(&[0.1, f32::NAN, 1.0, f32::NAN]));
}

#[test]
fn ids_are_returned_unless_declined() {
    let request = predict_request(&plan(), b"{}").expect("valid");
    assert!(request.options.expect("set").treatment_ids);
}

#[test]
fn values_are_typed_by_metadata() {
    let plan = everything();
    let user = json!({
        "age": 30, "vector": [1, 2], "balance": 0.1, "visits": 3.0, "city": "", "tags": ["a", "web"],
        "plan": "paid", "account": 9007199254740993i64, "zone": 7, "newbie": 1, "flags": [true, false],
        "note": "n", "nested": {"unknown": [[1], null]},
    });
    let body = json!({"user": user, "treatments": [{"features": {"discount": 1}}]});
    let packed = pack_json(&plan, body).expect("packs");
    assert_eq!(packed.tensors[2].content, ints(&[3, 0x2f90404f, 9, 9, 1]));
    let outrigger_core::Content::Bytes(doubles) = &packed.tensors[1].content else {
        panic!("expected numbers")
    };
    assert_eq!(doubles[..8], 0.1f64.to_le_bytes());
    let outrigger_core::Content::Bytes(integers) = &packed.tensors[3].content else {
        panic!("expected numbers")
    };
    assert_eq!(integers[..8], 9007199254740993i64.to_le_bytes(), "beyond what a double holds");
    assert_eq!(packed.counts.unknown, 1);
}

#[test]
fn lists_of_flags_are_zeros_and_ones() {
    let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [
          {"tensor": "x", "entity": "user", "dtype": "float32", "features": [{"name": "x", "default": 0}]},
          {"tensor": "n", "entity": "user", "dtype": "int64", "features": [{"name": "n", "length": 2, "default": [0, 0]}]},
          {"tensor": "f", "entity": "user", "dtype": "bool", "features": [{"name": "f", "length": 2, "default": [false, false]}]}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "single"}]}"#;
    let plan = Plan::compile(crate::Metadata::parse(json).expect("valid"));
    assert!(pack_json(&plan, json!({"user": {"f": [true, false]}})).is_ok());
    assert!(pack_json(&plan, json!({"user": {"n": [true, false]}})).is_ok());
    let failure = pack_json(&plan, json!({"user": {"n": [true, "a"]}})).expect_err("mixed");
    assert_eq!(failure.reason, Reason::FeatureType);
}

#[test]
fn features_that_the_model_does_not_name_are_counted_under_no_name_of_it() {
    let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [{"tensor": "x", "entity": "treatment", "dtype": "float32", "features": [{"name": "2", "missing": "nan"}]}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "per_treatment"}]}"#;
    let plan = Plan::compile(crate::Metadata::parse(json).expect("valid"));
    let strange =
        json!({"a": 1, "b": {"c": "text", "d": null}, "e": [1, "a", {}], "f": {"g": [2]}});
    let treatments = json!([{"features": strange}, {"features": strange}]);
    let packed =
        pack_json(&plan, json!({"user": strange, "treatments": treatments})).expect("packs");
    assert_eq!(packed.tensors[0].content, floats(&[f32::NAN; 2]));
    assert_eq!(packed.counts.unknown, 3 * 4);
}

#[test]
fn nested_objects_are_dotted_paths() {
    let json = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
        "inputs": [{"tensor": "x", "entity": "user", "dtype": "float32", "features": [{"name": "a.b.c", "required": true}]}],
        "outputs": [{"tensor": "y", "name": "y", "kind": "single"}]}"#;
    let plan = Plan::compile(crate::Metadata::parse(json).expect("valid"));
    let packed = pack_json(&plan, json!({"user": {"a": {"b": {"c": 5}}}})).expect("packs");
    assert_eq!(packed.tensors[0].content, floats(&[5.0]));
    for user in [json!({"a.b.c": {"d": 5}}), json!({"a": {"b": {"c": {}}}})] {
        let failure = pack_json(&plan, json!({"user": user})).expect_err("an object");
        assert_eq!(failure.reason, Reason::FeatureType, "{failure}");
        assert_eq!(fields(&failure), [r#"user["a.b.c"]"#]);
    }
    let twice = json!({"user": {"a.b.c": 1, "a": {"b": {"c": 5}}}});
    let failure = pack_json(&plan, twice).expect_err("ambiguous");
    assert_eq!(failure.reason, Reason::RequestMalformed);
    assert_eq!(fields(&failure), [r#"user["a.b.c"]"#]);
}

#[test]
fn errors_name_the_path_of_the_value() {
    let cases = [
        (json!({"modle": {}}), "modle", Reason::RequestMalformed),
        (json!({"model": {}}), "model.name", Reason::RequestMalformed),
        (json!({"model": {"name": "a", "version": 1}}), "model.version", Reason::RequestMalformed),
        (
            json!({"model": {"name": "a", "tag": "t", "digest": "d"}}),
            "model",
            Reason::RequestMalformed,
        ),
        (json!({"request_id": 7}), "request_id", Reason::RequestMalformed),
        (json!({"user": []}), "user", Reason::RequestMalformed),
        (json!({"treatments": {}}), "treatments", Reason::RequestMalformed),
        (json!({"treatments": [{"ID": "a"}]}), "treatments[0].ID", Reason::RequestMalformed),
        (json!({"treatments": [{"id": 1}]}), "treatments[0].id", Reason::RequestMalformed),
        (
            json!({"treatments": [{"features": 1}]}),
            "treatments[0].features",
            Reason::RequestMalformed,
        ),
        (json!({"options": {"k": 1}}), "options.k", Reason::RequestMalformed),
        (json!({"options": {"top_k": -1}}), "options.top_k", Reason::RequestMalformed),
        (json!({"options": {"outputs": [1]}}), "options.outputs[0]", Reason::RequestMalformed),
        (
            json!({"options": {"on_treatment_error": "ignore"}}),
            "options.on_treatment_error",
            Reason::RequestMalformed,
        ),
        (json!({"user": {"embedding": [1, "a"]}}), r#"user["embedding"]"#, Reason::FeatureType),
        (json!({"user": {"embedding": [true]}}), r#"user["embedding"]"#, Reason::FeatureLength),
        (
            json!({"treatments": [{"features": {"discount": [[1]]}}]}),
            r#"treatments[0].features["discount"]"#,
            Reason::FeatureType,
        ),
        (json!({"user": {"embedding": []}}), r#"user["embedding"]"#, Reason::FeatureLength),
        (json!({"user": {"embedding": "a"}}), r#"user["embedding"]"#, Reason::FeatureLength),
    ];
    for (body, field, reason) in cases {
        let failure = pack_json(&plan(), body.clone()).expect_err(field);
        assert_eq!((fields(&failure), failure.reason), (vec![field], reason), "{body}");
    }
    let failure = predict_request(&plan(), b"{\"user\": ").expect_err("cut short");
    assert_eq!(failure.reason, Reason::RequestMalformed);
    assert!(failure.message.contains("line 1 column 9"), "{failure}");
}

#[test]
fn routing_is_read_without_metadata() {
    let body = br#"{"user": {"x": [[1, {}]]}, "model": {"name": "churn", "tag": "live"},
        "routing_key": "k", "anything": null}"#;
    let routing = selector(body).expect("valid");
    let version = Some(Version::Tag("live".into()));
    assert_eq!(routing.model, ModelSelector { name: "churn".into(), version });
    assert_eq!((routing.routing_key.as_str(), routing.request_id.as_str()), ("k", ""));
    for (body, field) in [
        (&br#"{}"#[..], Some("model")),
        (br#"{"model": "churn"}"#, Some("model")),
        (br#"{"model": {"name": ""}}"#, Some("model.name")),
        (br#"[]"#, None),
        (br#"{"model": {"name": "a"}"#, None),
    ] {
        let failure = selector(body).expect_err("refused");
        assert_eq!(failure.reason, Reason::RequestMalformed);
        assert_eq!(fields(&failure), Vec::from_iter(field), "{failure}");
    }
}

/// Ends a call after a number of steps.
#[derive(Debug)]
struct Steps(Cell<u32>);

impl Meter for Steps {
    fn admit(&self, _: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn proceed(&self) -> Result<(), Failure> {
        let left = self.0.get().checked_sub(1);
        self.0.set(left.unwrap_or_default());
        left.map(drop).ok_or_else(|| Failure::new(Reason::Deadline, "over"))
    }
}

fn read(body: &Value) -> Request {
    Request::read(body.to_string().into()).expect("a request")
}

#[test]
fn a_call_whose_time_is_over_is_packed_no_further() {
    let user = json!({"embedding": [1, 0.5, -2, 1e-3]});
    let treatments = vec![json!({"features": {"discount": 1}}); 5000];
    let body = json!({"model": {"name": "m"}, "user": user, "treatments": treatments});
    let pack = |steps| {
        let meter = Steps(Cell::new(steps));
        plan().metered(&meter).pack_json(&read(&body), &Limits::default())
    };
    assert_eq!(pack(100).expect("packs").treatments, 5000);
    assert_eq!(pack(40).expect_err("over").reason, Reason::Deadline);
}

#[test]
fn too_many_treatments_are_refused_before_they_are_read() {
    let body = r#"{"model": {"name": "m"}, "treatments": [{}, {}, {7}, {}]}"#;
    let request = Request::read(body.into()).expect("the brackets close");
    let limits = Limits { max_treatments: 3, ..Limits::default() };
    let refused = plan().pack_json(&request, &limits).expect_err("four");
    assert_eq!(refused.reason, Reason::TooManyTreatments);
    let malformed = plan().pack_json(&request, &Limits::default()).expect_err("no JSON");
    assert_eq!(malformed.reason, Reason::RequestMalformed);
    assert_eq!(request.check().expect_err("no JSON"), malformed);
}

#[test]
fn features_that_the_model_does_not_name_are_limited_in_number() {
    let pack = |count: usize| {
        let mut user = json!({"embedding": [1, 0.5, -2, 1e-3]});
        let strange = (0..count).map(|index| (format!("n{index}"), json!(index)));
        user.as_object_mut().expect("an object").extend(strange);
        plan().pack_json(&read(&json!({"model": {"name": "m"}, "user": user})), &Limits::default())
    };
    let most = STRANGERS + STRANGERS_PER_ROW;
    assert_eq!(pack(most).expect("packs").counts.unknown, most as u64);
    let refused = pack(most + 1).expect_err("too many");
    assert_eq!(refused.reason, Reason::RequestMalformed);
    assert!(refused.message.contains("more entries"), "{refused}");
}

#[test]
fn treatments_written_alike_need_not_have_their_keys_read() {
    let treatment = |index: usize| {
        format!(r#"{{"id":"t{index}", "features": {{"discount":{index}.5,"x":null,"y":"z"}} }}"#)
    };
    let treatments: Vec<_> = (0..100).map(treatment).collect();
    let (mut row, mut tensors) =
        (Row::new(&PLAN.inputs, &PLAN.fields.treatment, false), Tensors::new(&PLAN, false, 1, 1));
    tensors.make_room(1);
    let text = treatments.join("");
    let (mut cursor, mut template) = (Cursor::new(text.as_bytes()), Template::new());
    let mut alike = 0;
    for index in 0..100 {
        let start = cursor;
        row.begin(0);
        let id = template.apply(&mut cursor, &mut row, &mut tensors.buffers, 4).expect("JSON");
        if let Some(id) = id {
            assert_eq!((id, row.unknown), (format!("t{index}").into_bytes().into(), 1));
            alike += 1;
            continue;
        }
        (cursor, row.unknown) = (start, 0);
        template.begin(cursor.rest);
        pack::treatment(&mut cursor, &mut row, &mut tensors, &mut template.shape).expect("JSON");
        template.end(cursor.rest);
    }
    assert_eq!((alike, cursor.rest), (99, &b""[..]));
}

#[test]
fn a_response_has_scores_ids_and_the_answering_version() {
    let list = ScoreList {
        values: vec![0.42, -1.0],
        treatment_ids: vec!["b".into(), String::new()],
        indices: vec![1, 0],
        width: 1,
        ..ScoreList::default()
    };
    let additional = [("risk", vec![0.1]), ("propensity", vec![0.5, 0.25])]
        .map(|(name, values)| (name.to_owned(), ScoreList { values, ..ScoreList::default() }));
    let response = PredictResponse {
        model: Some(ServedModel {
            name: "churn".into(),
            digest: "sha256:00".into(),
            tag: "latest".into(),
            arm: Arm::Canary.into(),
            ..ServedModel::default()
        }),
        output: Some(Output::Scores(list)),
        additional_outputs: additional.into(),
        request_id: "r".into(),
        degraded: None,
        treatment_errors: vec![TreatmentError {
            index: 2,
            reason: "FEATURE_TYPE".into(),
            message: "m".into(),
            ..TreatmentError::default()
        }],
        ..PredictResponse::default()
    };
    let expected = json!({
        "model": {"name": "churn", "digest": "sha256:00", "tag": "latest", "arm": "canary"},
        "request_id": "r",
        "scores": [{"id": "b", "index": 1, "score": 0.42}, {"index": 0, "score": -1.0}],
        "outputs": {"risk": 0.1, "propensity": [0.5, 0.25]},
        "treatment_errors": [{"index": 2, "reason": "FEATURE_TYPE", "message": "m"}],
    });
    assert_eq!(predict_response(&everything(), &response), expected);
    let single = PredictResponse { output: Some(Output::Score(0.1)), ..Default::default() };
    assert_eq!(predict_response(&plan(), &single), json!({"score": 0.1}));
}
