//! SIGKILL at every step of a commit.

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    pin::pin,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::join_all;
use outrigger_batch::{Environment, Format, Job, Manifest, Size, Store, Watch, run, run_in};
use outrigger_testkit::oip::Server;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::{
    harness::{
        Place, dead, expected, failing_on, job, lines, model, reasons, score, score_in, scored,
        text_of,
    },
    scripted::Scripted,
    served,
};

/// The step at which the child ends itself, and the settings of its job.
const STEP: &str = "OUTRIGGER_TEST_KILLED_AT";
const FILE: &str = "OUTRIGGER_TEST_FILE";
const HOSTS: &str = "OUTRIGGER_TEST_HOSTS";
pub(crate) const OUTPUT: &str = "OUTRIGGER_TEST_OUTPUT";
const FORMAT: &str = "OUTRIGGER_TEST_FORMAT";
const PART: &str = "OUTRIGGER_TEST_PART";
/// The time after which a chunk is committed in parts, in milliseconds.
const PERIOD: &str = "OUTRIGGER_TEST_PERIOD";
/// The socket of the store with the output, and its prefix there; the output is a directory if they
/// are not set.
const SOCKET: &str = "OUTRIGGER_TEST_SOCKET";
const PREFIX: &str = "OUTRIGGER_TEST_PREFIX";
/// The row on which the model fails.
const BAD: i64 = 9;
/// More bytes than a part of an object in a store has.
const LARGE: usize = 9 << 20;
/// The steps that are tried at the same time: a job waits more than it works.
const TOGETHER: usize = 4;
/// The time between two looks at the files of a job.
const LOOK: Duration = Duration::from_millis(5);

/// The rows of the job. Two of them cannot be sent, and the model fails on one.
fn rows() -> impl Iterator<Item = i64> {
    (0..14).map(|id| if id % 6 == 5 { -1 } else { id })
}

pub(crate) fn variable(name: &str) -> String {
    env::var(name).expect("the parent sets it")
}

/// The store in a child process, which ends at the step that its parent has set; `None` if this is
/// not a child.
pub(crate) fn deadly(store: Store) -> Option<Store> {
    let step = env::var(STEP).ok()?.parse::<usize>().expect("a number");
    let taken = AtomicUsize::new(0);
    Some(store.observed(move |_| {
        if taken.fetch_add(1, Relaxed) == step {
            kill_process(getpid(), Signal::KILL).expect("killed");
        }
    }))
}

/// The worker that is killed: a test that only does something in a process of its own.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    if env::var(STEP).is_err() {
        return;
    }
    let format = variable(FORMAT).parse().expect("a format");
    let mut job = small(variable(OUTPUT).into(), &variable(FILE), &variable(HOSTS), format);
    job.worker = variable(PART).parse().expect("a part");
    let store = match env::var_os(SOCKET) {
        Some(socket) => served::store(Path::new(&socket), &variable(PREFIX)),
        None => Store::local(&job.output),
    };
    let mut environment = Environment::default();
    if let Ok(period) = env::var(PERIOD) {
        environment.periods.part = Duration::from_millis(period.parse().expect("a number"));
    }
    let store = deadly(store).expect("a child");
    run_in(&environment, job, store, Watch::default()).await.expect("scored");
}

/// A job with one chunk open at a time. `hosts` has commas between them.
fn small(output: PathBuf, file: &str, hosts: &str, format: Format) -> Job {
    let mut job = job(output, &[file], &hosts.split(',').collect::<Vec<_>>());
    (job.memory, job.output_format) = (Size(64 << 20), Some(format));
    job
}

/// Runs a test of this binary in a process that is killed at this step. Returns true if it has come
/// so far.
pub(crate) fn is_killed_at(step: usize, test: &str, variables: &[(&str, &str)]) -> bool {
    let mut command = Command::new(env::current_exe().expect("this test"));
    command.args(["--exact", test]).env(STEP, step.to_string());
    command.envs(variables.iter().copied());
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().expect("a process");
    let is_killed = output.status.code().is_none();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(is_killed || output.status.success(), "step {step}: {errors}");
    is_killed
}

/// A job whose worker is killed again and again, on two hosts.
struct Trial {
    file: String,
    hosts: [Server; 2],
    format: Format,
    /// The dead letters, and the text if the output has lines, of the runs so far: one each, if all
    /// are the same.
    letters: Mutex<BTreeSet<String>>,
    texts: Mutex<BTreeSet<String>>,
}

impl Trial {
    async fn new(file: String, format: Format) -> Self {
        let host = || model(failing_on(|id| id == BAD));
        let hosts = [host().await, host().await];
        Self { file, hosts, format, letters: Mutex::default(), texts: Mutex::default() }
    }

    fn hosts(&self) -> String {
        self.hosts.each_ref().map(Server::address).join(",")
    }

    fn job(&self, place: &Place) -> Job {
        small(place.output(), &self.file, &self.hosts(), self.format)
    }

    /// Runs the job in a process that is killed at this step. Returns true if it has come so far.
    async fn is_killed_at(&self, step: usize, place: &Place, others: &[(&str, &str)]) -> bool {
        let (file, hosts, format) = (self.file.clone(), self.hosts(), self.format.to_string());
        let output = place.output().to_string_lossy().into_owned();
        let own = [(FILE, file), (HOSTS, hosts), (OUTPUT, output), (FORMAT, format)];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        let others = others.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables: Vec<_> = own.into_iter().chain(others).collect();
        let killed = move || {
            let variables: Vec<_> =
                variables.iter().map(|(name, value)| (&**name, &**value)).collect();
            is_killed_at(step, "kills::child", &variables)
        };
        spawn_blocking(killed).await.expect("no panic")
    }

    /// Checks the output that the job has in the end: each row once, in the order of the input, with
    /// the same dead letters as in all runs before but for times, hosts and attempts.
    fn check(&self, manifest: &Manifest, output: &Path, step: usize) {
        assert_eq!((manifest.rows, manifest.dead), (14, 3), "step {step}");
        let scores = expected(rows().filter(|id| ![-1, BAD].contains(id)));
        assert_eq!(scored(output), scores, "step {step}");
        let invalid = "invalid_input";
        let dead = [(5, invalid), (BAD as u64, "model_error"), (11, invalid)];
        assert_eq!(
            reasons(output),
            dead.map(|(row, reason)| (row, reason.to_owned())),
            "step {step}"
        );
        let files = [manifest.files().count(), manifest.dead_letters().count(), 2];
        for (directory, files) in ["data", "dead", "commit"].into_iter().zip(files) {
            let entries = std::fs::read_dir(output.join(directory)).expect("a directory");
            assert_eq!(entries.count(), files, "step {step}: {directory}");
        }
        let mut letters = self.letters.lock().expect("not poisoned");
        letters.insert(self.letters(output));
        assert_eq!(letters.len(), 1, "step {step}: {letters:#?}");
        if self.format == Format::Jsonl {
            let mut texts = self.texts.lock().expect("not poisoned");
            texts.insert(text_of(output));
            assert_eq!(texts.len(), 1, "step {step}: the bytes are others");
        }
    }

    /// The dead letters of an output without times, hosts and attempts.
    fn letters(&self, output: &Path) -> String {
        let mut letters = dead(output);
        for letter in &mut letters {
            let fields = letter.as_object_mut().expect("an object");
            for name in ["first", "last", "hosts", "attempts"] {
                fields.remove(name).expect("every letter has it");
            }
        }
        // An error names the host that it came from.
        let hosts = self.hosts.each_ref().map(Server::address);
        let text = Value::Array(letters).to_string();
        hosts.iter().fold(text, |text, host| text.replace(host, "a host"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_44_the_output_is_the_same_after_a_kill_at_any_step() {
    let input = Place::new();
    check_all_steps(input.rows("a.parquet", rows()), Format::Parquet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_the_same_after_a_kill_at_any_step() {
    let input = Place::new();
    check_all_steps(input.text("a.jsonl", &lines(rows())), Format::Jsonl).await;
}

/// Kills the job at all steps, and compares its output in the end.
async fn check_all_steps(file: String, format: Format) {
    let trial = Trial::new(file, format).await;
    let steps = all_steps(|step| is_killed_in_directory(step, &trial, &[])).await;
    assert!(steps > 50, "{steps} steps");
}

/// Each batch is a part of its chunk.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_chunks_are_the_same_after_a_kill_at_any_step() {
    let input = Place::new();
    let trial = Trial::new(input.text("a.jsonl", &lines(rows())), Format::Jsonl).await;
    let steps = all_steps(|step| is_killed_in_directory(step, &trial, &[(PERIOD, "0")])).await;
    assert!(steps > 60, "{steps} steps");
}

async fn is_killed_in_directory(step: usize, trial: &Trial, others: &[(&str, &str)]) -> bool {
    let place = Place::new();
    let variables = [&[(PART, "0/1")], others].concat();
    let is_killed = trial.is_killed_at(step, &place, &variables).await;
    let manifest = score(trial.job(&place)).await;
    let manifest = manifest.unwrap_or_else(|error| panic!("step {step}: {error}"));
    trial.check(&manifest, &place.output(), step);
    is_killed
}

/// Calls `is_killed_at` with each step, several at the same time, until there are no more.
/// Returns the number of steps.
async fn all_steps<F: Future<Output = bool>>(is_killed_at: impl Fn(usize) -> F) -> usize {
    let mut first = 0;
    loop {
        let killed = join_all((first..first + TOGETHER).map(&is_killed_at)).await;
        match killed.iter().position(|is_killed| !is_killed) {
            Some(last) => return first + last,
            None => first += TOGETHER,
        }
    }
}

/// The store is another process than the worker: this one. The first chunk has a row that is so
/// large that its file is written in parts.
#[tokio::test(flavor = "multi_thread")]
async fn objects_are_the_same_after_a_kill_at_any_step() {
    let input = Place::new();
    let file = input.padded_rows("a.parquet", rows(), LARGE);
    let trial = Trial::new(file, Format::Jsonl).await;
    let (objects, socket) = (Scripted::new(), input.path("socket"));
    served::serve(objects.clone(), &socket);
    let place = Place::new();
    let whole = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&whole);
    let observed = move |step: &str| taken.lock().expect("not poisoned").push(step.to_owned());
    let store = served::store(&socket, "whole").observed(observed);
    let manifest = score_in(store, trial.job(&place)).await;
    objects.save("whole", &place.output());
    trial.check(&manifest.expect("scored"), &place.output(), 0);
    let whole = whole.lock().expect("not poisoned").clone();
    for step in ["put", "put the last part", "complete"] {
        assert!(whole.iter().any(|it| it.ends_with(&format!(": {step}"))), "{step}: {whole:#?}");
    }
    objects.remove_below("whole");
    let steps = all_steps(|step| is_killed_in_objects(step, &trial, (&objects, &socket))).await;
    assert_eq!(steps, whole.len());
}

async fn is_killed_in_objects(
    step: usize,
    trial: &Trial,
    (objects, socket): (&Scripted, &Path),
) -> bool {
    let (place, prefix) = (Place::new(), format!("step-{step:03}"));
    let variables = [(PART, "0/1"), (SOCKET, &*socket.to_string_lossy()), (PREFIX, &*prefix)];
    let is_killed = trial.is_killed_at(step, &place, &variables).await;
    let manifest = score_in(served::store(socket, &prefix), trial.job(&place)).await;
    let manifest = manifest.unwrap_or_else(|error| panic!("step {step}: {error}"));
    objects.save(&prefix, &place.output());
    objects.remove_below(&prefix);
    trial.check(&manifest, &place.output(), step);
    is_killed
}

/// The other worker has the second chunk at the moment of the kill, and goes on after it.
#[tokio::test(flavor = "multi_thread")]
async fn the_output_is_the_same_after_a_kill_of_one_of_two_workers_at_any_step() {
    let input = Place::new();
    let trial = Trial::new(input.text("a.jsonl", &lines(rows())), Format::Jsonl).await;
    let steps = all_steps(|step| is_one_of_two_killed_at(step, &trial)).await;
    assert!(steps > 25, "{steps} steps");
}

async fn is_one_of_two_killed_at(step: usize, trial: &Trial) -> bool {
    let place = Place::new();
    let (is_there, may_go_on) = (Arc::new(Notify::new()), Arc::new(OnceLock::new()));
    let (there, go_on) = (Arc::clone(&is_there), Arc::clone(&may_go_on));
    let store = place.store().observed(move |step| {
        // On the thread of a chunk's output.
        if step.starts_with("data/") && step.ends_with(": begin") {
            there.notify_one();
            go_on.wait();
        }
    });
    let job = Job { worker: "1/2".parse().expect("a part"), ..trial.job(&place) };
    let other = tokio::spawn(run(job, store, Watch::default()));
    let minute = Duration::from_secs(60);
    timeout(minute, is_there.notified()).await.expect("the other worker has a chunk");
    let mut killed = pin!(trial.is_killed_at(step, &place, &[(PART, "0/2")]));
    let is_killed = tokio::select! {
        is_killed = &mut killed => Some(is_killed),
        // It needs the other one's chunk from here on.
        () = has_committed(place.store()) => None,
    };
    may_go_on.set(()).expect("once");
    let is_killed = match is_killed {
        Some(is_killed) => is_killed,
        None => killed.await,
    };
    let manifest = other.await.expect("no panic");
    let manifest = manifest.unwrap_or_else(|error| panic!("step {step}: {error}"));
    trial.check(&manifest, &place.output(), step);
    is_killed
}

/// Waits until a chunk is committed.
async fn has_committed(store: Store) {
    while store.list("commit").expect("listed").is_empty() {
        sleep(LOOK).await;
    }
}
