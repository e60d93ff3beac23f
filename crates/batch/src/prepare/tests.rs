//! The start of a job with scripted hosts, in virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use outrigger_oip::{DataType, Tensor, metadata::TensorMetadata};
use outrigger_oip_client::{Failure, Ledger, ModelRef};
use outrigger_resilience::Class;
use tokio::time::{Instant, sleep_until};

use super::*;
use crate::{Answer, Endpoint, Output, Source, Usage, environment::Engine, job::Period};

const HOUR: Duration = Duration::from_secs(3600);

/// The reply of a host.
#[derive(Debug, Clone, Copy)]
enum Reply {
    Scored,
    /// Outputs of these names and types, with so many values in a row. A description has them too.
    Outputs(&'static [(&'static str, DataType, i64)]),
    Failed(Class),
    Never,
}

/// The outputs of most models here, and two others.
const Y: &[(&str, DataType, i64)] = &[("y", DataType::Int64, 1)];
const WIDE: &[(&str, DataType, i64)] = &[("y", DataType::Int64, 2)];
const Z: &[(&str, DataType, i64)] = &[("z", DataType::Int64, 1)];
const FLOAT: &[(&str, DataType, i64)] = &[("y", DataType::Fp64, 1)];

type Script = dyn Fn(&[i64]) -> Reply + Send + Sync;

/// A host with a script, which sees the rows of a request.
struct Scripted {
    script: Box<Script>,
    /// The reply to each question for a description, by its number.
    describes: fn(usize) -> Reply,
    asked: AtomicUsize,
    seen: Mutex<Vec<Vec<i64>>>,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    fn new(script: impl Fn(&[i64]) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Self::describing(|_| Reply::Outputs(Y), script)
    }

    fn describing(
        describes: fn(usize) -> Reply,
        script: impl Fn(&[i64]) -> Reply + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (asked, seen) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { script: Box::new(script), describes, asked, seen })
    }

    fn seen(&self) -> Vec<Vec<i64>> {
        self.seen.lock().expect("no panic").clone()
    }
}

/// The description of a model with these outputs.
fn described(outputs: &[(&str, DataType, i64)]) -> Description {
    let output = |(name, datatype, size): &(&str, DataType, i64)| TensorMetadata {
        name: (*name).to_owned(),
        datatype: datatype.as_str().to_owned(),
        shape: vec![-1, *size],
    };
    let outputs = outputs.iter().map(output).collect();
    Description {
        metadata: ModelMetadata { outputs, ..ModelMetadata::default() },
        ..Description::default()
    }
}

fn failure(class: Class) -> Failure {
    Failure::of_engine(class, format!("scripted {class:?}"))
}

impl Endpoint for Scripted {
    fn infer<'a>(
        &'a self,
        request: &'a Request,
        _: &'a dyn Ledger,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let data = &request.inputs[0].data;
            let numbers = data.as_chunks().0.iter().map(|it| i64::from_le_bytes(*it));
            let ids: Vec<_> = numbers.collect();
            self.seen.lock().expect("no panic").push(ids.clone());
            let outputs = match (self.script)(&ids) {
                Reply::Scored => Y,
                Reply::Outputs(outputs) => outputs,
                Reply::Failed(class) => return Err(failure(class)),
                Reply::Never => {
                    sleep_until(request.deadline).await;
                    return Err(failure(Class::Timeout));
                }
            };
            let output = |(name, datatype, size): &(&str, DataType, i64)| {
                let shape = vec![ids.len() as i64, *size];
                let data = data.repeat(usize::try_from(*size).expect("a size"));
                Tensor::new(*name, *datatype, shape, data.into()).expect("a tensor")
            };
            let outputs = outputs.iter().map(output).collect();
            Ok(Answer { outputs, version: None, usage: Usage::default() })
        })
    }

    fn describe<'a>(
        &'a self,
        _: ModelRef<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Description, Failure>> {
        Box::pin(async move {
            match (self.describes)(self.asked.fetch_add(1, Relaxed)) {
                Reply::Scored => Ok(Description::default()),
                Reply::Outputs(outputs) => Ok(described(outputs)),
                Reply::Failed(class) => Err(failure(class)),
                Reply::Never => {
                    sleep_until(deadline).await;
                    Err(failure(Class::Timeout))
                }
            }
        })
    }

    fn is_ready<'a>(&'a self, _: ModelRef<'a>, _: Instant) -> BoxFuture<'a, Result<bool, Failure>> {
        Box::pin(async { Ok(true) })
    }
}

/// Prepares a job over rows with these numbers.
async fn prepared(
    rows: impl IntoIterator<Item = i64>,
    engines: &[&Arc<Scripted>],
) -> Result<Plan, Error> {
    prepared_within(&Memory::new(1 << 20), rows, engines).await
}

/// Prepares a job over 100 rows on hosts that all describe and answer as they say, and returns the
/// tensors of its output. `outputs` are those of the job.
async fn tensors(
    outputs: &[(&str, Output)],
    hosts: &[&Arc<Scripted>],
) -> Result<Vec<(String, usize)>, Error> {
    let outputs = outputs.iter().map(|(name, output)| ((*name).to_owned(), output.clone()));
    let plan = prepared_with(&Memory::new(1 << 20), 0..100, hosts, outputs.collect()).await?;
    Ok(plan.scoring.outputs.into_iter().map(|it| (it.tensor, it.depth)).collect())
}

/// As [`prepared`], with this memory.
async fn prepared_within(
    memory: &Memory,
    rows: impl IntoIterator<Item = i64>,
    engines: &[&Arc<Scripted>],
) -> Result<Plan, Error> {
    prepared_with(memory, rows, engines, BTreeMap::new()).await
}

/// As [`prepared_within`], with these outputs of the job.
async fn prepared_with(
    memory: &Memory,
    rows: impl IntoIterator<Item = i64>,
    engines: &[&Arc<Scripted>],
    outputs: BTreeMap<String, Output>,
) -> Result<Plan, Error> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.jsonl");
    let lines: String = rows.into_iter().map(|id| format!("{{\"x\": {id}}}\n")).collect();
    fs::write(&path, lines).expect("a file");
    let input = Input::find(&[path.to_string_lossy().into_owned()], None).expect("a file");
    let mut job = Job::new(Vec::new(), directory.path().join("out"), "m", Vec::new());
    let source = Source { datatype: Some(DataType::Int64), ..Source::default() };
    job.inputs = BTreeMap::from([("x".to_owned(), source)]);
    (job.batch_size, job.outputs) = (3, outputs);
    job.timeout = Period(6 * HOUR);
    let engine = |(number, engine): (usize, &&Arc<Scripted>)| {
        let endpoint: Arc<dyn Endpoint> = Arc::<Scripted>::clone(engine);
        Engine { name: format!("host-{number}"), endpoint }
    };
    let engines = engines.iter().enumerate().map(engine).collect();
    let mut hosts = Hosts::new(&job, engines, 1 << 20);
    let numbers = hosts.set(&[]).expect("hosts");
    prepare(&job, input, (&hosts, &numbers), memory.clone()).await
}

/// The row that hosts are tested with.
fn reference(plan: &Plan) -> u64 {
    plan.reference.as_ref().expect("a row").row(0)
}

fn failing_on(is_bad: impl Fn(i64) -> bool + Send + Sync + 'static, class: Class) -> Arc<Scripted> {
    Scripted::new(move |ids| match ids.iter().any(|id| is_bad(*id)) {
        true => Reply::Failed(class),
        false => Reply::Scored,
    })
}

fn good() -> Arc<Scripted> {
    Scripted::new(|_| Reply::Scored)
}

#[tokio::test(start_paused = true)]
async fn the_first_rows_are_sent_once_to_one_host() {
    let hosts = [good(), good()];
    let plan = prepared(0..100, &[&hosts[0], &hosts[1]]).await.expect("a plan");
    assert_eq!((reference(&plan), plan.answer_bytes), (0, 8));
    assert!(plan.suspects.is_empty());
    let seen: Vec<_> = hosts.iter().flat_map(|host| host.seen()).collect();
    assert_eq!(seen, [[0, 1, 2]]);
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_answer_contradicts_the_description_is_left_to_the_others() {
    let nothing: &[_] = &[];
    for other in [nothing, Z, FLOAT, WIDE] {
        let wrong = Scripted::new(move |_| Reply::Outputs(other));
        let right = good();
        let found = tensors(&[], &[&wrong, &right]).await;
        assert_eq!(found, Ok(vec![("y".to_owned(), 0)]), "{other:?}");
        assert_eq!(right.seen(), [[0, 1, 2]]);
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_that_all_contradict_the_description_end_the_job_with_a_setting() {
    let wide = || Scripted::new(|_| Reply::Outputs(WIDE));
    let hosts = [wide(), wide(), wide()];
    let hosts: Vec<_> = hosts.iter().collect();
    let refused = tensors(&[], &hosts).await.expect_err("they contradict it");
    let setting = "outputs: {y: {tensor: y, datatype: INT64, shape: [2]}}";
    let is_clear = matches!(&refused, Error::Usage(it)
        if it.starts_with("outputs: ") && it.contains("not rows of") | it.contains("one value")
            && it.ends_with(setting));
    assert!(is_clear, "{refused}");
    assert!(hosts.iter().all(|host| host.seen().len() == 2), "each may correct itself");
    // A person knows better than the description.
    let shape = Some(vec![2]);
    let stated = Output { shape, ..Output::of("y") };
    assert_eq!(tensors(&[("y", stated)], &hosts).await, Ok(vec![("y".to_owned(), 1)]));
}

#[tokio::test(start_paused = true)]
async fn outputs_that_nobody_describes_are_those_on_which_two_answers_agree() {
    let silent =
        |outputs| Scripted::describing(|_| Reply::Scored, move |_| Reply::Outputs(outputs));
    let y = silent(Y);
    let wide = silent(WIDE);
    let nothing = silent(&[]);
    let z = silent(Z);
    let float = silent(FLOAT);
    let depth = |depth| Ok(vec![("y".to_owned(), depth)]);
    let other = Ok(vec![("z".to_owned(), 0)]);
    for (hosts, expected) in [
        (vec![&y], depth(0)),
        (vec![&y, &y], depth(0)),
        (vec![&z, &y, &y], depth(0)),
        (vec![&float, &y, &y], depth(0)),
        (vec![&y, &z, &z], other.clone()),
        (vec![&nothing, &z], other),
        // The size that is 1 in one answer is another one in the next.
        (vec![&y, &wide], depth(1)),
        (vec![&wide, &y], depth(1)),
    ] {
        assert_eq!(tensors(&[], &hosts).await, expected);
    }
    let refused = tensors(&[], &[&y, &float]).await.expect_err("they differ");
    assert!(refused.to_string().contains("datatype: FP64, shape: [1]"), "{refused}");
    let empty = tensors(&[], &[&nothing]).await.expect_err("no output");
    assert!(matches!(&empty, Error::Usage(it) if it.contains("it has no outputs")), "{empty}");
    // One that is away does not count, and one that fails neither.
    let away = Scripted::describing(|_| Reply::Scored, |_| Reply::Failed(Class::Unavailable));
    let failing = Scripted::describing(|_| Reply::Scored, |_| Reply::Failed(Class::Ambiguous));
    assert_eq!(tensors(&[], &[&away, &failing, &y]).await, depth(0));
}

#[tokio::test(start_paused = true)]
async fn the_description_of_one_host_is_not_that_of_all() {
    let liar = Scripted::describing(|_| Reply::Outputs(WIDE), |_| Reply::Outputs(WIDE));
    let hosts = [good(), good()];
    let found = tensors(&[], &[&liar, &hosts[0], &hosts[1]]).await;
    assert_eq!(found, Ok(vec![("y".to_owned(), 0)]));
}

#[tokio::test(start_paused = true)]
async fn a_silent_host_does_not_hold_up_the_start() {
    let all: [fn(usize) -> Reply; 2] = [|_| Reply::Outputs(Y), |_| Reply::Never];
    for describes in all {
        let (silent, good) = (Scripted::describing(describes, |_| Reply::Never), good());
        let start = Instant::now();
        prepared(0..100, &[&silent, &silent, &silent, &good]).await.expect("a plan");
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_of_two_answers_counts_however_late_it_is() {
    let slow = Scripted::new(|_| Reply::Never);
    let start = Instant::now();
    let refused = prepared(0..2, &[&slow, &slow]).await.expect_err("no answer");
    assert!(refused.to_string().contains("Timeout"), "{refused}");
    assert!(start.elapsed() >= 6 * HOUR, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn hosts_that_process_nothing_are_waited_for() {
    for class in [Class::Unavailable, Class::Overloaded] {
        let calls = AtomicUsize::new(0);
        let busy = Scripted::describing(
            |asked| if asked < 3 { Reply::Failed(Class::Overloaded) } else { Reply::Outputs(Y) },
            move |_| match calls.fetch_add(1, Relaxed) {
                0..12 => Reply::Failed(class),
                _ => Reply::Scored,
            },
        );
        let plan = prepared(0..100, &[&busy]).await.expect("a plan");
        assert_eq!(reference(&plan), 0);
        assert!(busy.seen().iter().all(|ids| *ids == [0, 1, 2]), "they are no evidence");
        // Not for ever.
        let start = Instant::now();
        let busy = Scripted::new(move |_| Reply::Failed(class));
        let refused = prepared(0..100, &[&busy, &busy]).await.expect_err("no host");
        assert!(refused.to_string().contains("no host takes a request"), "{refused}");
        assert!((600..700).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn rows_that_fail_are_sent_to_two_hosts_and_then_others_are() {
    let hosts = [(); 5].map(|()| failing_on(|id| id < 100, Class::Ambiguous));
    let all: Vec<_> = hosts.iter().collect();
    let plan = prepared(0..1000, &all).await.expect("a plan");
    assert!(reference(&plan) >= 100 && plan.suspects.is_empty());
    let seen: Vec<_> = hosts.iter().flat_map(|host| host.seen()).collect();
    for ids in seen.iter().collect::<BTreeSet<_>>() {
        assert!(seen.iter().filter(|other| *other == ids).count() <= 2, "{ids:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rows_that_end_their_host_are_not_sent_again() {
    for class in [Class::Lost, Class::Timeout] {
        let hosts = [(); 5].map(|()| failing_on(|id| id == 1, class));
        let all: Vec<_> = hosts.iter().collect();
        let plan = prepared(0..100, &all).await.expect("a plan");
        assert!(reference(&plan) >= 3);
        let hit: Vec<_> = hosts.iter().filter(|it| it.seen().concat().contains(&1)).collect();
        assert_eq!(hit.len(), 1);
        let number = hosts.iter().position(|it| Arc::ptr_eq(it, hit[0])).expect("a host");
        let expected = Suspect { file: 0, rows: 0..3, host: format!("host-{number}") };
        assert_eq!(plan.suspects, [expected]);
        // Nothing but the first rows: single ones of them are tried, at two hosts at most.
        let hosts = [(); 5].map(|()| failing_on(|id| id == 0, class));
        let all: Vec<_> = hosts.iter().collect();
        let plan = prepared(0..3, &all).await.expect("a plan");
        assert_eq!(reference(&plan), 1);
        let hit = hosts.iter().filter(|it| it.seen().concat().contains(&0));
        assert!(hit.count() <= 2, "{:?}", hosts.each_ref().map(|it| it.seen()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_on_all_rows_is_found_by_two_hosts() {
    for class in [Class::Ambiguous, Class::Refused, Class::Lost] {
        let hosts = [(); 3].map(|()| failing_on(|_| true, class));
        let all: Vec<_> = hosts.iter().collect();
        let refused = prepared(0..1000, &all).await.expect_err("a wrong model");
        let is_clear = refused.to_string().contains("the model or the columns may be wrong");
        assert!(is_clear, "{refused}");
        let failed = hosts.iter().filter(|host| !host.seen().is_empty());
        assert!(failed.count() >= 2);
        let calls: usize = hosts.iter().map(|host| host.seen().len()).sum();
        assert!(calls <= 60, "{calls} calls");
    }
    // A model that ends its hosts has not ended all.
    let hosts = [(); 20].map(|()| failing_on(|_| true, Class::Lost));
    let all: Vec<_> = hosts.iter().collect();
    prepared(0..1000, &all).await.expect_err("a wrong model");
    assert_eq!(hosts.iter().filter(|host| !host.seen().is_empty()).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_away_does_not_hold_up_another() {
    let away = Scripted::new(|_| Reply::Failed(Class::Unavailable));
    let start = Instant::now();
    let host = failing_on(|id| id < 100, Class::Ambiguous);
    prepared(0..1000, &[&away, &host]).await.expect("a plan");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // It is waited for before the model is found to be wrong.
    let host = failing_on(|_| true, Class::Ambiguous);
    prepared(0..1000, &[&away, &host]).await.expect_err("a wrong model");
    let elapsed = start.elapsed();
    assert!(elapsed > Duration::from_secs(50) && elapsed < Duration::from_secs(100), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_fails_on_all_rows_is_left_to_the_others() {
    let (bad, good) = (failing_on(|_| true, Class::Ambiguous), good());
    prepared(0..1000, &[&bad, &bad, &bad, &good]).await.expect("a plan");
}

#[tokio::test(start_paused = true)]
async fn the_rows_of_the_start_are_held_to_the_memory() {
    // A request may take an eighth of it, with two copies of 8 bytes a row.
    for (bytes, rows) in [(8 * 3 * 16, 3), (8 * 3 * 16 - 1, 2), (8 * 2 * 16, 2), (24, 1)] {
        let (memory, host) = (Memory::new(bytes), good());
        prepared_within(&memory, 0..100, &[&host]).await.expect("a plan");
        assert_eq!(host.seen(), [(0..rows).collect::<Vec<_>>()], "{bytes} bytes");
        let (used, peak) = memory.used();
        assert!(used == 0 && peak <= bytes, "{used} and {peak} of {bytes}");
    }
    let host = good();
    let refused = prepared_within(&Memory::new(15), 0..100, &[&host]).await.expect_err("too large");
    let is_clear = matches!(&refused, Error::Usage(it)
        if it.starts_with("memory: the row 0 of ") && it.contains("a.jsonl takes 8 B"));
    assert!(is_clear && host.seen().is_empty(), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_given_up_leave_the_memory_to_others() {
    // One row at a time: each is given up after two hosts.
    let (memory, hosts) =
        (Memory::new(24), [(); 2].map(|()| failing_on(|id| id < 90, Class::Refused)));
    let plan = prepared_within(&memory, 0..100, &[&hosts[0], &hosts[1]]).await.expect("a plan");
    assert!(reference(&plan) >= 90);
    assert_eq!(memory.used(), (0, 24));
}
