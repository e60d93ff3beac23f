use outrigger_proto::outrigger::v1::{PredictRequest, ValueOrigin};
use prost::Message;

use super::*;
use crate::fixtures::{embedding, everything, number, pack, plan, request, text, user};

fn explain(plan: &Plan, requests: &[PredictRequest]) -> Vec<ExplainResponse> {
    let encoded: Vec<_> = requests.iter().map(Message::encode_to_vec).collect();
    let slices: Vec<_> = encoded.iter().map(Vec::as_slice).collect();
    plan.explain(&slices, &Limits::default()).expect("packs")
}

fn origins(tensor: &ExplainedTensor) -> Vec<ValueOrigin> {
    tensor.origins().collect()
}

#[test]
fn the_tensors_explained_are_those_packed() {
    let plan = everything();
    let request = plan.smoke_request();
    let packed = pack(&plan, std::slice::from_ref(&request)).expect("packs");
    let explained = explain(&plan, &[request]).remove(0);
    assert_eq!(explained.tensors.len(), packed.tensors.len());
    for (explained, tensor) in explained.tensors.iter().zip(&packed.tensors) {
        assert_eq!(explained.name, *tensor.name);
        assert_eq!(explained.shape, tensor.shape);
        match &tensor.content {
            Content::Bytes(bytes) => assert_eq!(explained.content, *bytes),
            Content::Strings(texts) => assert_eq!(explained.texts, *texts),
        }
    }
}

#[test]
fn every_value_says_where_it_came_from() {
    use ValueOrigin::{Computed, Default, Missing, OutOfVocabulary, Request};
    let mut sent = request(&[0.1, 0.2]);
    sent.treatments[1].features.insert(
        "days_live".into(),
        outrigger_proto::outrigger::v1::Value { kind: Some(number(3.0)) },
    );
    sent.user = Some(user([
        ("embedding", embedding()),
        ("channel", text("fax")),
        ("unheard_of", number(1.0)),
        ("also_not", number(1.0)),
    ]));
    let explained = explain(&plan(), &[sent]).remove(0);
    assert_eq!(explained.request_id, "r");
    assert_eq!(explained.unknown_features, ["also_not", "unheard_of"]);
    let [numeric, segment, treatments, counts] = explained.tensors.as_slice() else {
        panic!("expected four tensors")
    };
    assert_eq!(origins(numeric), [Default, Request]);
    assert_eq!(origins(segment), [OutOfVocabulary]);
    assert_eq!(origins(treatments), [Request, Missing, Request, Request]);
    assert_eq!(origins(counts), [Computed]);
    let columns: Vec<_> = numeric
        .columns
        .iter()
        .map(|column| (column.feature.as_str(), column.offset, column.length))
        .collect();
    assert_eq!(columns, [("recency_months", 0, 1), ("embedding", 1, 4)]);
    assert!(counts.columns.is_empty());
}

#[test]
fn padding_shows_in_a_batch() {
    use ValueOrigin::{Missing, Padding, Request};
    let requests = [request(&[0.1]), request(&[0.2, 0.3])];
    let explained = explain(&plan(), &requests);
    let treatments = |user: usize| &explained[user].tensors[2];
    assert_eq!(treatments(0).shape, [1, 2, 2]);
    assert_eq!(origins(treatments(0)), [Request, Missing, Padding, Padding]);
    assert_eq!(origins(treatments(1)), [Request, Missing, Request, Missing]);
    assert_eq!(treatments(0).content[8..], [0; 8]);
}
