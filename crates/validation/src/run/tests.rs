use std::{cell::RefCell, fs, path::Path};

use outrigger_proto::outrigger::v1::{
    PredictRequest, PredictResponse, ScoreList, ServedModel, TreatmentError, Value,
    predict_request::User, predict_response::Output, value,
};
use prost::Message as _;

use super::*;

/// Scores a treatment with the sum of its feature `a` and the user's feature `x`.
#[derive(Default)]
struct Sums {
    /// The numbers of requests that came together.
    calls: RefCell<Vec<usize>>,
}

fn number(features: &std::collections::HashMap<String, Value>, name: &str) -> Option<f32> {
    match features.get(name)?.kind.clone()? {
        value::Kind::Integer(value) => Some(value as f32),
        value::Kind::Number(value) => Some(value),
        value::Kind::Real(value) => Some(value as f32),
        _ => None,
    }
}

fn answer(request: &[u8]) -> Answer {
    let request = PredictRequest::decode(request).expect("a request");
    let Some(User::UserFeatures(user)) = &request.user else { panic!("no features") };
    let Some(x) = number(&user.features, "x") else {
        return Err(Failure::new(Reason::FeatureMissing, "x: required, but not sent"));
    };
    let mut response = PredictResponse::default();
    let mut list = ScoreList::default();
    for (index, treatment) in (0..).zip(&request.treatments) {
        match number(&treatment.features, "a") {
            Some(a) => {
                list.values.push(x + a);
                list.indices.push(index);
            }
            None => response.treatment_errors.push(TreatmentError {
                index,
                reason: "FEATURE_TYPE".to_owned(),
                feature: "a".to_owned(),
                message: "expected a number".to_owned(),
                ..TreatmentError::default()
            }),
        }
    }
    response.output = Some(Output::Scores(list));
    response.model = Some(ServedModel { digest: "sha256:d".to_owned(), ..Default::default() });
    Ok(response)
}

impl Predictor for Sums {
    fn batching(&self) -> Batching {
        Batching { requests: 2, treatments: 100, mixed: true }
    }

    async fn predict(&self, requests: &[&[u8]]) -> Result<Vec<Answer>, Failure> {
        self.calls.borrow_mut().push(requests.len());
        Ok(requests.iter().map(|request| answer(request)).collect())
    }
}

/// Files of CSV without an input.
fn files(scores: &Path) -> Files {
    let (root, input, scores) = (Root::Any, scores.to_owned(), Some(scores.to_owned()));
    Files { root, input, format: Format::Csv, scores, overwrite: true }
}

/// Runs over a file with this content; returns the report and the scores, if they were written.
async fn scored(name: &str, content: &str, options: &Options) -> (Report, Option<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let (input, scores) = (directory.path().join(name), directory.path().join("scores"));
    fs::write(&input, content).expect("a file");
    let format = Format::of(Path::new(name)).expect("a format");
    let files = Files { input, format, ..files(&scores) };
    let (predictor, progress) = (Sums::default(), Progress::default());
    let report = run(&files, (&predictor, Features::unknown([])), options, &progress).await;
    let report = report.expect("a report");
    assert_eq!((progress.rows(), progress.errors()), (report.rows, report.errors));
    assert!(predictor.calls.borrow().iter().all(|requests| (1..=2).contains(requests)));
    (report, fs::read_to_string(scores).ok())
}

#[tokio::test]
async fn each_row_gets_its_score() {
    let content = "user,treatment,x,a,expected\nu,t1,1,2,3\nu,t2,1,3,5\nv,t1,2,0.5,\n";
    let (report, scores) = scored("a.csv", content, &Options::default()).await;
    assert_eq!((report.rows, report.scored, report.requests, report.errors), (3, 3, 2, 0));
    assert_eq!(report.digests, [("sha256:d".to_owned(), 2)].into());
    let agreement = report.agreement.as_ref().expect("expected scores");
    assert_eq!((agreement.compared, agreement.differing, agreement.largest), (2, 1, 1.0));
    assert!(!report.passed());
    let expected = "user,treatment,expected,score,digest,error\n\
                    u,t1,3,3,sha256:d,\nu,t2,5,4,sha256:d,\nv,t1,,2.5,sha256:d,\n";
    assert_eq!(scores.as_deref(), Some(expected));
    let text = report.to_string();
    assert!(text.contains("row 2 (u t2): expected 5, score 4"), "{text}");
}

#[tokio::test]
async fn a_row_without_a_score_is_reported_and_the_others_are_scored() {
    let content = concat!(
        "{\"user\": \"u\", \"x\": 1, \"a\": 1}\n",
        "{\"user\": \"u\", \"x\": 1, \"a\": \"b\"}\n",
        "{\"user\": \"v\", \"a\": 1}\n",
        "{\"user\": \"v\", \"a\": 2}\n",
        "[]\n",
        "{\"treatments\": [{\"features\": {\"a\": 1}}], \"user\": {\"x\": 2}}\n",
    );
    let (report, scores) = scored("a.jsonl", content, &Options::default()).await;
    assert_eq!((report.rows, report.scored, report.errors), (6, 2, 3));
    let errors: Vec<_> = report.first_errors.iter().map(|it| (it.row, it.reason)).collect();
    let missing = (3, Reason::FeatureMissing);
    assert_eq!(errors, [(2, Reason::FeatureType), missing, (5, Reason::RequestMalformed)]);
    assert!(report.agreement.is_none() && !report.passed());
    let scores = scores.expect("scores");
    let lines: Vec<_> = scores.lines().collect();
    assert_eq!(lines[0], r#"{"user":"u","score":2.0,"digest":"sha256:d"}"#);
    assert!(lines[1].ends_with(r#""error":"FEATURE_TYPE: a: expected a number"}"#), "{}", lines[1]);
    assert_eq!(lines[3], r#"{"user":"v","error":"FEATURE_MISSING: x: required, but not sent"}"#);
    assert_eq!(lines[5], r#"{"score":[3.0],"digest":"sha256:d"}"#);
}

#[tokio::test]
async fn too_many_errors_end_the_run_without_scores() {
    let mut content = "x,a\n1,1\n".to_owned();
    content.push_str(&"1,b\n".repeat(100_000));
    let options = Options { max_errors: 3, ..Options::default() };
    let (report, scores) = scored("a.csv", &content, &options).await;
    assert!(report.stopped && report.rows < 100_000, "{} rows", report.rows);
    assert_eq!(report.first_errors.len(), 4);
    let line =
        "error    4 rows (2, 3, 4, 5): FEATURE_TYPE: a: expected a number; first value \"b\"\n";
    assert!(report.to_string().contains(line), "{report}");
    assert_eq!(scores, None);
}

#[tokio::test]
async fn an_input_without_rows_gives_scores_without_rows() {
    let (report, scores) = scored("a.csv", "user,x\n", &Options::default()).await;
    assert_eq!((report.rows, report.requests), (0, 0));
    assert_eq!(scores.as_deref(), Some("user,score,digest,error\n"));
}

#[tokio::test]
async fn a_predictor_that_fails_ends_the_run() {
    struct Lost;
    impl Predictor for Lost {
        fn batching(&self) -> Batching {
            Sums::default().batching()
        }

        async fn predict(&self, _: &[&[u8]]) -> Result<Vec<Answer>, Failure> {
            Err(Failure::new(Reason::EngineUnavailable, "the engine has ended"))
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (input, scores) = (directory.path().join("a.csv"), directory.path().join("b.csv"));
    fs::write(&input, "x\n1\n").expect("a file");
    let files = Files { input, ..files(&scores) };
    let predictor = (&Lost, Features::unknown([]));
    let ended = run(&files, predictor, &Options::default(), &Progress::default()).await;
    assert!(matches!(ended, Err(Error::Failed(_))), "{ended:?}");
    assert!(!scores.exists());
}

fn cells(values: &[f32]) -> Cell {
    Cell::List(values.iter().copied().map(Cell::Single).collect())
}

#[tokio::test]
async fn lists_of_parquet_are_scored_and_keep_their_types() {
    let directory = tempfile::tempdir().expect("a directory");
    let [input, scores] = ["a.parquet", "b.parquet"].map(|name| directory.path().join(name));
    let list = || Kind::List(Box::new(Kind::Single));
    let columns =
        [("user", Kind::Integer), ("x", Kind::Single), ("a", list()), ("expected", list())]
            .map(|(name, kind)| Column::new(name, kind));
    let mut writer = Writer::create((&Root::Any, &input, true), Format::Parquet, columns.to_vec())
        .expect("created");
    let rows = [
        [Cell::Integer(7), Cell::Single(1.0), cells(&[2.0, 3.0]), cells(&[3.0, 4.5])],
        [Cell::Integer(8), Cell::Single(1.0), cells(&[2.0]), cells(&[3.0, 4.5])],
    ];
    rows.iter().for_each(|row| writer.write(row).expect("written"));
    writer.finish().expect("finished");

    let files = Files { input: input.clone(), format: Format::Parquet, ..files(&scores) };
    let predictor = (&Sums::default(), Features::unknown([]));
    let report = run(&files, predictor, &Options::default(), &Progress::default()).await;
    let report = report.expect("a report");
    // The second row has one value of `a` for two treatments.
    assert_eq!((report.scored, report.errors), (1, 1), "{report}");
    assert_eq!(report.agreement.expect("expected scores").differing, 1);

    let mut reader =
        Reader::open(&Root::Any, &scores, Format::Parquet, Default::default()).expect("scores");
    let columns = reader.columns().expect("columns").iter().map(|column| &*column.name);
    assert_eq!(columns.collect::<Vec<_>>(), ["user", "expected", "score", "digest", "error"]);
    let first = reader.read().expect("readable").expect("a row").expect("a row");
    assert_eq!(first.cells[..3], [Cell::Integer(7), cells(&[3.0, 4.5]), cells(&[3.0, 4.0])]);
    assert_eq!(first.cells[4], Cell::Absent);
    let second = reader.read().expect("readable").expect("a row").expect("a row");
    assert!(!second.cells[4].is_absent());
}
