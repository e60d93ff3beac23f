//! The input as a request of XGBoost Serving's interface: a first byte chooses the method, and the
//! form of the rest, an encoded message or a JSON document. Rows that are read have whole tensors,
//! whose memory was asked for before.
#![no_main]

use outrigger_features::{GivenInput, Limits};
use outrigger_proto::{tensorflow::serving::ModelSpec, xgboost_serving::PredictRequest};
use outrigger_xgboost_serving::{Asked, Platform};
use prost::Message as _;
use serde_json::{Value, json};

/// The flag of a document in the first byte; the others choose the method.
const JSON: u8 = 128;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((flags, content)) = bytes.split_first() else { return };
    let platform = match flags % 3 {
        0 => Platform::Xgboost,
        1 => Platform::Alphafm,
        _ => Platform::AlphafmSoftmax,
    };
    if flags & JSON != 0 {
        document(platform, content);
    } else if let Some(asked) = message(platform, content) {
        as_decoded(platform, content, &asked);
    }
});

/// Holds that a message has the rows that prost decodes, and that they are the same as a document.
fn as_decoded(platform: Platform, content: &[u8], asked: &Asked) {
    // Inputs that the method does not take are not read. A message that prost writes with another
    // length has parts that it merges or leaves out.
    let Ok(decoded) = PredictRequest::decode(content) else { return };
    if decoded.encoded_len() != content.len() {
        return;
    }
    // XGBoost gets the lower half of an id.
    let counting = if platform == Platform::Xgboost { u64::from(u32::MAX) } else { u64::MAX };
    for input in &asked.rows.inputs {
        let theirs = decoded.inputs[input.tensor].feature_score.iter();
        let ids = |ids: &[u64]| ids.iter().map(|id| id & counting).collect();
        let bits = |scores: &[f32]| scores.iter().map(|score| score.to_bits()).collect();
        assert!(rows(input).eq(theirs.map(|row| (ids(&row.id), bits(&row.score)))));
    }
    let Some(text) = as_document(&decoded, asked) else { return };
    let again = document(platform, text.to_string().as_bytes()).expect("the same rows");
    assert_eq!((again.answer, &again.rows), (asked.answer, &asked.rows));
}

fn limits() -> Limits {
    Limits { max_treatments: 100, ..Limits::default() }
}

fn message(platform: Platform, content: &[u8]) -> Option<Asked> {
    let mut admitted = 0;
    let admit = |size| {
        admitted = size;
        Ok(())
    };
    let asked = Asked::read(platform, content, &limits(), admit).ok()?;
    check(&asked, admitted);
    Some(asked)
}

fn document(platform: Platform, content: &[u8]) -> Option<Asked> {
    let mut admitted = 0;
    let admit = |size| {
        admitted = size;
        Ok(())
    };
    let asked = Asked::read_json(platform, ModelSpec::default(), content, &limits(), admit).ok()?;
    check(&asked, admitted);
    Some(asked)
}

/// Holds that tensors have the elements of their rows, in the memory that was asked for.
fn check(asked: &Asked, admitted: usize) {
    assert!(asked.rows.size() <= admitted);
    for input in &asked.rows.inputs {
        let ids: usize = rows(input).map(|(ids, _)| ids.len()).sum();
        assert_eq!(rows(input).count(), asked.rows.rows);
        assert_eq!((input.ids.len(), input.weights.len()), (ids * 8, ids * 4));
    }
}

/// The ids of each row, and the bits of its weights.
fn rows(input: &GivenInput) -> impl Iterator<Item = (Vec<u64>, Vec<u32>)> {
    let (lengths, rest) = input.lengths.as_chunks();
    assert!(rest.is_empty());
    let mut start = 0;
    lengths.iter().map(move |length| {
        let row = start..start + usize::try_from(i64::from_le_bytes(*length)).expect("a length");
        start = row.end;
        let ids = input.ids[row.start * 8..row.end * 8].as_chunks().0.iter();
        let weights = input.weights[row.start * 4..row.end * 4].as_chunks().0.iter();
        let ids = ids.map(|id| u64::from_le_bytes(*id)).collect();
        (ids, weights.map(|weight| u32::from_le_bytes(*weight)).collect())
    })
}

/// The document of a message, unless it has a score without a form in JSON.
fn as_document(message: &PredictRequest, asked: &Asked) -> Option<Value> {
    let mut document =
        json!({"option_mask": message.option_mask, "ntree_limit": message.ntree_limit});
    for input in &asked.rows.inputs {
        let rows = message.inputs[input.tensor].feature_score.iter().map(|row| {
            let is_finite = row.score.iter().all(|score| score.is_finite());
            is_finite.then(|| json!({"feature_score": {"id": row.id, "score": row.score}}))
        });
        document[input.tensor] = rows.collect::<Option<Vec<Value>>>()?.into();
    }
    Some(document)
}
