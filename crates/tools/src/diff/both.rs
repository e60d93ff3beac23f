//! Two models that score the same requests.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::{join, try_join};
use outrigger_core::{Failure, Reason};
use outrigger_features::{GoldenCases, Metadata, Plan};
use outrigger_proto::outrigger::v1::{PredictRequest, PredictResponse, predict_response::Output};
use outrigger_validation::{Answer, Batching, Features, Loaded, Predictor, Tolerance};
use prost::Message as _;

use super::{Package, Scores, Settings};
use crate::{
    Error,
    engine::Program,
    fetch::blocking,
    in_engine::{InEngine, only},
    validate::Rows,
};

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
        let model = (&only(), Arc::new(package.fetched));
        InEngine::load(program, model, &package.plan, timeout).await
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
        let run = rows.score(&self, features).await?;
        let mut scores = self.scores.into_inner();
        scores.add_unsent(run);
        Ok(scores)
    }

    /// Sends requests to both models. The first one has the number `first`, in units of `unit`.
    async fn compare(&self, (unit, first): (&str, u64), requests: &[&[u8]]) -> Result<(), Failure> {
        let (a, b) = join(self.a.predict(requests), self.b.predict(requests)).await;
        let mut scores = self.scores.borrow_mut();
        for ((answers, request), number) in a?.into_iter().zip(b?).zip(requests).zip(first..) {
            let (at, request) = (format!("{unit} {number}"), decoded(request)?);
            scores.compare((&at, number), &request, answers, self.tolerance);
        }
        Ok(())
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
}
