//! The scores that two models give to the same requests.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::{join, try_join};
use outrigger_core::{Failure, Reason};
use outrigger_features::{GoldenCases, Metadata, Plan};
use outrigger_proto::outrigger::v1::{PredictRequest, PredictResponse, predict_response::Output};
use outrigger_validation::{
    Agreement, Answer, Batching, Features, Loaded, Predictor, RowError, Tolerance,
};
use prost::Message as _;
use serde::Serialize;

use super::{Package, Settings};
use crate::{Error, engine::Program, fetch::blocking, in_engine::InEngine, validate::Rows};

/// The most failures that are listed.
const LISTED: usize = 10;

/// The scores of two models for the same requests.
#[derive(Debug, Default, Serialize)]
pub struct Scores {
    /// The number of requests that both models have answered.
    pub requests: u64,
    /// The number of requests, and of treatments of other requests, that only A has scored.
    pub only_a: u64,
    /// The number of requests, and of treatments of other requests, that only B has scored.
    pub only_b: u64,
    /// The number of requests, treatments and rows that neither has scored.
    pub unscored: u64,
    /// The first failures.
    pub first_failures: Vec<ScoreFailure>,
    /// The scores of B compared with those of A, which are the expected ones. `row` is the number of
    /// the request, or the line of a golden case.
    pub agreement: Agreement,
}

/// A request, treatment or row that a model, or neither, has scored.
#[derive(Debug, Serialize)]
pub struct ScoreFailure {
    /// Its place, such as `A line 3` (of golden.jsonl), `request 3` or `row 3`.
    pub at: String,
    /// The stable reason.
    pub reason: Reason,
    /// The cause, with the model that has scored it, if one has.
    pub message: String,
}

impl Scores {
    /// True if a score differs, or only one model has one.
    pub(super) fn differ(&self) -> bool {
        self.agreement.differing > 0 || self.only_a > 0 || self.only_b > 0
    }

    /// Counts what one of the models, or neither, has scored.
    fn add_failure(&mut self, at: &str, a: Option<&Failure>, b: Option<&Failure>) {
        let (count, what, failure) = match (a, b) {
            (None, None) => return,
            (None, Some(failure)) => (&mut self.only_a, "only A scores it: ", failure),
            (Some(failure), None) => (&mut self.only_b, "only B scores it: ", failure),
            (Some(failure), Some(_)) => (&mut self.unscored, "", failure),
        };
        *count += 1;
        if self.first_failures.len() < LISTED {
            let message = format!("{what}{}", failure.message);
            let (at, reason) = (at.to_owned(), failure.reason);
            self.first_failures.push(ScoreFailure { at, reason, message });
        }
    }
}

/// The comparisons of scores.
pub(super) struct Compared {
    pub(super) golden: Scores,
    pub(super) rows: Option<Scores>,
}

/// Loads both models and compares their scores.
pub(super) async fn compare(
    program: &Program,
    [a, b]: [Package; 2],
    settings: Settings<'_>,
) -> Result<Compared, Error> {
    let golden = [&a, &b].map(|package| (package.fetched.tree.golden(), Arc::clone(&package.plan)));
    let digests = [&a, &b].map(|package| package.fetched.image.digest);
    let timeout = settings.timeout;
    let load = |package: Package| async move {
        InEngine::load(program, package.fetched, &package.plan, timeout).await
    };
    let (a, b) = try_join(load(a), load(b)).await?;
    let both = || Both {
        a: Loaded::new(&a.scorer, &digests[0], timeout),
        b: Loaded::new(&b.scorer, &digests[1], timeout),
        tolerance: settings.tolerance,
        scores: RefCell::default(),
        sent: Cell::new(0),
    };
    let rows = match settings.rows {
        Some(rows) => {
            let metadata = [&a, &b].map(|model| model.scorer.plan.metadata());
            Some(both().compare_rows(rows, metadata).await?)
        }
        None => None,
    };
    Ok(Compared { golden: both().compare_golden(golden).await?, rows })
}

/// Two models that score the same requests.
struct Both<'a> {
    a: Loaded<'a>,
    b: Loaded<'a>,
    tolerance: Tolerance,
    scores: RefCell<Scores>,
    /// The number of requests so far.
    sent: Cell<u64>,
}

impl Both<'_> {
    /// Compares the scores for the golden cases of both packages; once, if they have the same.
    async fn compare_golden(
        self,
        [a, b]: [(Option<PathBuf>, Arc<Plan>); 2],
    ) -> Result<Scores, Error> {
        let same = match (a.0.clone(), b.0.clone()) {
            (Some(a), Some(b)) => blocking(move || is_same(&a, &b)).await?,
            _ => false,
        };
        for (package, (path, plan)) in [("A", a), ("B", b)] {
            let Some(path) = path.filter(|_| package == "A" || !same) else { continue };
            let mut cases = Some(blocking(move || open(&path)).await?);
            while let Some(mut reader) = cases.take() {
                let plan = Arc::clone(&plan);
                let read = move || {
                    let case = reader.next(&plan);
                    let case = case.map_err(|error| Failure::because(error.reason(), &error))?;
                    Ok(case.map(|case| (reader, case)))
                };
                if let Some((reader, case)) = blocking(read).await? {
                    let request = case.request.encode_to_vec();
                    let unit = format!("{package} line");
                    self.compare((&unit, case.line as u64), &[&request]).await?;
                    cases = Some(reader);
                }
            }
        }
        Ok(self.scores.into_inner())
    }

    /// Compares the scores for the rows of a file.
    async fn compare_rows(self, rows: Rows<'_>, metadata: [&Metadata; 2]) -> Result<Scores, Error> {
        let features = Features::of(&features_of_both(metadata));
        let report = rows.score(&self, features).await?;
        let mut scores = self.scores.into_inner();
        // Those that were not sent to the models.
        scores.unscored += report.errors;
        let of_rows = report.first_errors.into_iter().map(|RowError { row, reason, message }| {
            ScoreFailure { at: format!("row {row}"), reason, message }
        });
        scores.first_failures.splice(0..0, of_rows);
        scores.first_failures.truncate(LISTED);
        Ok(scores)
    }

    /// Sends requests to both models. The first one has the number `first`, in units of `unit`.
    async fn compare(&self, (unit, first): (&str, u64), requests: &[&[u8]]) -> Result<(), Failure> {
        let (a, b) = join(self.a.predict(requests), self.b.predict(requests)).await;
        for (((a, b), request), number) in a?.into_iter().zip(b?).zip(requests).zip(first..) {
            self.add((unit, number), request, (a, b))?;
        }
        Ok(())
    }

    /// Compares the answers to one request.
    fn add(
        &self,
        (unit, number): (&str, u64),
        request: &[u8],
        answers: (Answer, Answer),
    ) -> Result<(), Failure> {
        let (mut scores, at) = (self.scores.borrow_mut(), format!("{unit} {number}"));
        let (a, b) = match answers {
            (Ok(a), Ok(b)) => (a, b),
            (a, b) => {
                scores.add_failure(&at, a.err().as_ref(), b.err().as_ref());
                return Ok(());
            }
        };
        scores.requests += 1;
        for index in [&a, &b].iter().flat_map(|response| failed(response)).collect::<BTreeSet<_>>()
        {
            let [a, b] = [&a, &b].map(|response| failure(response, index));
            scores.add_failure(&at, a.as_ref(), b.as_ref());
        }
        let request = decoded(request)?;
        scores.agreement.add_response((number, &request), &b, &a, self.tolerance)
    }
}

impl Predictor for Both<'_> {
    fn batching(&self) -> Batching {
        let (a, b) = (self.a.batching(), self.b.batching());
        Batching {
            requests: a.requests.min(b.requests),
            treatments: a.treatments.min(b.treatments),
            mixed: a.mixed && b.mixed,
        }
    }

    /// Every request gets a score, whatever the models say: the comparison is made here, and rows
    /// that are not sent are the only errors of the run.
    async fn predict(&self, requests: &[&[u8]]) -> Result<Vec<Answer>, Failure> {
        let first = self.sent.get() + 1;
        self.sent.set(self.sent.get() + requests.len() as u64);
        self.compare(("request", first), requests).await?;
        let score = Some(Output::Score(0.0));
        let scored = PredictResponse { output: score, ..PredictResponse::default() };
        Ok(vec![Ok(scored); requests.len()])
    }
}

fn decoded(request: &[u8]) -> Result<PredictRequest, Failure> {
    PredictRequest::decode(request).map_err(|error| {
        Failure::new(Reason::Internal, format!("a request that was encoded wrongly: {error}"))
    })
}

/// The indices of the treatments that a response has no score for.
fn failed(response: &PredictResponse) -> impl Iterator<Item = u32> {
    response.treatment_errors.iter().map(|error| error.index)
}

fn failure(response: &PredictResponse, index: u32) -> Option<Failure> {
    let error = response.treatment_errors.iter().find(|error| error.index == index)?;
    let reason = Reason::named(&error.reason).unwrap_or(Reason::Internal);
    Some(Failure::new(reason, format!("treatments[{index}]: {}: {}", error.feature, error.message)))
}

/// Metadata with the features of both models: a file has the columns of both.
fn features_of_both([a, b]: [&Metadata; 2]) -> Metadata {
    let inputs = a.inputs.iter().chain(&b.inputs).cloned().collect();
    // Scores that the file expects are not compared.
    Metadata { inputs, deterministic: false, ..a.clone() }
}

fn open(path: &Path) -> Result<GoldenCases<BufReader<File>>, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    Ok(GoldenCases::new(BufReader::new(file)))
}

/// True if both files have the same content.
fn is_same(a: &Path, b: &Path) -> Result<bool, Failure> {
    let reader = |path: &Path| File::open(path).map(BufReader::new);
    let compare = || -> io::Result<bool> {
        let (mut a, mut b) = (reader(a)?, reader(b)?);
        loop {
            let (of_a, of_b) = (a.fill_buf()?, b.fill_buf()?);
            let length = of_a.len().min(of_b.len());
            if length == 0 || of_a[..length] != of_b[..length] {
                return Ok(of_a.len() == of_b.len() && length == 0);
            }
            a.consume(length);
            b.consume(length);
        }
    };
    compare().map_err(|error| unreadable(a, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Reason::Internal, format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_the_same_if_all_bytes_are() {
        let scratch = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = scratch.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let long = vec![7; 20_000];
        let (a, same) = (file("a", &long), file("same", &long));
        assert!(is_same(&a, &same).unwrap());
        assert!(is_same(&file("empty", b""), &file("void", b"")).unwrap());
        let mut other = long.clone();
        other[15_000] = 8;
        for (name, content) in [("other", &other[..]), ("shorter", &long[1..]), ("none", b"")] {
            assert!(!is_same(&a, &file(name, content)).unwrap(), "{name}");
        }
    }

    #[test]
    fn what_one_model_scores_alone_is_counted_for_it() {
        let (mut scores, failure) =
            (Scores::default(), Failure::new(Reason::FeatureMissing, "x is missing"));
        scores.add_failure("row 1", None, Some(&failure));
        assert!(scores.differ());
        assert_eq!(scores.first_failures[0].message, "only A scores it: x is missing");
        let mut neither = Scores::default();
        neither.add_failure("row 1", Some(&failure), Some(&failure));
        assert!(!neither.differ());
        assert_eq!((scores.only_a, scores.only_b, neither.unscored), (1, 0, 1));
    }
}
