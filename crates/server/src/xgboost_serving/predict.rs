//! Predictions for rows, whatever the form of their request and of its answer.

use outrigger_core::{Failure, Reason};
use outrigger_features::{Arrived, GivenRows, GivenScores, Packed, Plan, Routing};
use outrigger_proto::tensorflow::serving::ModelSpec;
use outrigger_score::Scorer;
use outrigger_xgboost_serving::{Answer, Asked};
use serde::{Serialize, Serializer};

use super::version;
use crate::{
    call::Call,
    metrics::Latency,
    predict::{Exchange, Predictor, Scored},
    routing::invalid,
    trial::Attempts,
};

/// The values that answer a request.
#[derive(Debug)]
pub(super) struct Values<'a> {
    pub(super) answer: Answer,
    pub(super) rows: usize,
    pub(super) scores: GivenScores<'a>,
    /// The version that answers.
    pub(super) spec: ModelSpec,
}

/// Writes an answer, which is charged to its call.
pub(super) type Write<T> = fn(&Call, &Values<'_>) -> Result<T, Failure>;

/// Scores the rows of a request, and writes the answer.
///
/// # Errors
/// The failure of the request, the model or the engine.
pub(super) async fn predict<T>(
    predictor: &Predictor,
    call: &Call,
    asked: Asked,
    write: Write<T>,
) -> Result<T, Failure> {
    let Asked { spec, rows, answer } = asked;
    let selector = version::selector(&spec)?;
    let routing = Routing { model: Some(&selector), ..Routing::default() };
    let lease = predictor.lease(call, routing, None).await?.sampled();
    let attempts = Attempts::new(call, lease);
    let mut exchange = Rows { call, predictor, model: &spec.name, rows, answer, write };
    let packed = predictor.pack(call, attempts.lease(), &mut exchange);
    predictor.answer(call, attempts, packed, exchange).await
}

/// Rows on their way through a model.
struct Rows<'a, T> {
    call: &'a Call,
    predictor: &'a Predictor,
    /// The model's name in the request.
    model: &'a str,
    rows: GivenRows,
    answer: Answer,
    write: Write<T>,
}

impl<T> Exchange for Rows<'_, T> {
    type Answer = T;

    fn pack(&mut self, scorer: &Scorer) -> Result<Packed, Failure> {
        fits(self.answer, &scorer.plan)?;
        scorer.plan.pack_given(&self.rows, &scorer.limits())
    }

    fn request(&self) -> Option<Arrived> {
        Some(Arrived::Rows(self.rows.clone()))
    }

    fn latency(&self) -> Option<Latency> {
        Some(match self.answer {
            Answer::Value | Answer::Margin | Answer::Index => Latency::Trees,
            Answer::Score => Latency::Machine,
            Answer::Scores => Latency::Softmax,
        })
    }

    fn answer(&self, scored: &Scored<'_>) -> Result<T, Failure> {
        let &Scored { lease, packed, outputs, .. } = scored;
        let scores = lease.scorer.plan.given_scores(packed, outputs)?;
        let spec = version::answering(self.model, lease, self.predictor.models());
        let values = Values { answer: self.answer, rows: self.rows.rows, scores, spec };
        (self.write)(self.call, &values)
    }
}

/// The methods over gRPC and the verbs over REST, by the frameworks of their models.
const METHODS: [(&str, &str); 3] = [
    ("xgboost", "Predict (:predict)"),
    ("gbdt_fm", "PredictAlphafm (:predict_alphafm)"),
    ("gbdt_fm_softmax", "PredictAlphafmSoftmax (:predict_softmax)"),
];

/// Refuses a model of which another method answers.
fn fits(answer: Answer, plan: &Plan) -> Result<(), Failure> {
    let asked = match answer {
        Answer::Value | Answer::Margin | Answer::Index => METHODS[0],
        Answer::Score => METHODS[1],
        Answer::Scores => METHODS[2],
    };
    let framework = &*plan.metadata().framework;
    match METHODS.iter().find(|(known, _)| *known == framework) {
        Some(own) if *own != asked => {
            let message = format!("its model is of {framework}, for which the method is {}", own.1);
            Err(invalid("model_spec", &message))
        }
        _ => Ok(()),
    }
}

/// The leaf of a tree that the request's limit leaves out.
const NO_LEAF: i64 = -1;

impl Values<'_> {
    /// The shape of an answer of `count` values: all in a row, except for the scores of classes.
    pub(super) fn shape(&self, count: usize) -> Vec<usize> {
        match self.answer {
            Answer::Value | Answer::Margin | Answer::Index => vec![count],
            Answer::Score => vec![self.rows],
            Answer::Scores => vec![self.rows, self.scores.width],
        }
    }

    /// The numbers of the leaves of the trees that count, as many for each row: the first ones.
    ///
    /// # Errors
    /// `SCORES_INVALID`: the model's output has others.
    pub(super) fn indexes(&self) -> Result<Leaves<'_>, Failure> {
        let GivenScores { width, floats, integers } = &self.scores;
        let first = integers.iter().take(*width);
        let counted = first.take_while(|index| **index != NO_LEAF).count();
        let is_leaf = |index: &i64| u32::try_from(*index).is_ok();
        let is_valid = |row: &[i64]| {
            let (leaves, others) = row.split_at(counted.min(row.len()));
            leaves.iter().all(is_leaf) && others.iter().all(|index| *index == NO_LEAF)
        };
        let leaves = Leaves { integers, width: (*width).max(1), counted };
        let is_whole = integers.len() * size_of::<f32>() == floats.len();
        if is_whole && (counted > 0 || integers.is_empty()) && leaves.rows().all(is_valid) {
            return Ok(leaves);
        }
        let message = "output \"leaf\": its values are not the numbers of leaves";
        Err(Failure::new(Reason::ScoresInvalid, message))
    }
}

/// Numbers of leaves, read from an output whose rows also have the trees that do not count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaves<'a> {
    integers: &'a [i64],
    /// The number of trees.
    width: usize,
    /// The number of trees that count.
    counted: usize,
}

impl<'a> Leaves<'a> {
    fn rows(self) -> impl Iterator<Item = &'a [i64]> {
        self.integers.chunks(self.width)
    }

    /// The number of leaves of all rows.
    pub(super) fn len(self) -> usize {
        self.integers.len() / self.width * self.counted
    }

    /// The leaves of the trees that count, row after row.
    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        let counted = move |row: &'a [i64]| &row[..self.counted.min(row.len())];
        // The numbers have been checked.
        self.rows().flat_map(counted).map(|index| *index as u32)
    }
}

impl Serialize for Leaves<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}
