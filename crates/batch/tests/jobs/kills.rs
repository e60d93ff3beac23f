//! SIGKILL at every step of a commit.

use std::{
    collections::BTreeSet,
    env,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use outrigger_batch::{Format, Size, Store, Watch, run};
use rustix::process::{Signal, getpid, kill_process};

use crate::harness::{Place, expected, host, job, lines, reasons, score, scored, text_of};

/// The step at which the child ends itself, and the file, the host and the output of its job.
const STEP: &str = "OUTRIGGER_TEST_KILLED_AT";
const FILE: &str = "OUTRIGGER_TEST_FILE";
const HOST: &str = "OUTRIGGER_TEST_HOST";
pub(crate) const OUTPUT: &str = "OUTRIGGER_TEST_OUTPUT";
const FORMAT: &str = "OUTRIGGER_TEST_FORMAT";

/// The rows of the job; two of them are dead.
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
    let mut job = job(variable(OUTPUT).into(), &[&variable(FILE)], &[&variable(HOST)]);
    job.memory = Size(64 << 20);
    job.output_format = Some(variable(FORMAT).parse().expect("a format"));
    let store = deadly(Store::local(&job.output)).expect("a child");
    run(job, store, Watch::default()).await.expect("scored");
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

#[tokio::test(flavor = "multi_thread")]
async fn check_44_the_output_is_the_same_after_a_kill_at_any_step() {
    let input = Place::new();
    check_all_steps(&input.rows("a.parquet", rows()), Format::Parquet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_the_same_after_a_kill_at_any_step() {
    let input = Place::new();
    check_all_steps(&input.text("a.jsonl", &lines(rows())), Format::Jsonl).await;
}

/// Kills the job at all steps, and compares its output in the end.
async fn check_all_steps(file: &str, format: Format) {
    let host = host().await;
    let mut texts = BTreeSet::new();
    let mut steps = 0;
    loop {
        let place = Place::new();
        let (output, format_name) =
            (place.output().to_string_lossy().into_owned(), format.to_string());
        let address = host.address();
        let variables =
            [(FILE, file), (HOST, &*address), (OUTPUT, &*output), (FORMAT, &*format_name)];
        let is_killed = is_killed_at(steps, "kills::child", &variables);
        let mut job = place.job(&[file], &[&host.address()]);
        (job.memory, job.output_format) = (Size(64 << 20), Some(format));
        let manifest = score(job).await.unwrap_or_else(|error| panic!("step {steps}: {error}"));
        assert_eq!((manifest.rows, manifest.dead), (14, 2), "step {steps}");
        let scores = expected(rows().filter(|id| *id >= 0));
        assert_eq!(scored(&place.output()), scores, "step {steps}");
        let dead = [5, 11].map(|row| (row, "invalid_input".to_owned()));
        assert_eq!(reasons(&place.output()), dead, "step {steps}");
        for directory in ["data", "dead", "commit"] {
            let entries = std::fs::read_dir(place.output().join(directory)).expect("a directory");
            assert_eq!(entries.count(), 2, "step {steps}: {directory}");
        }
        if format == Format::Jsonl {
            texts.insert(text_of(&place.output()));
            assert_eq!(texts.len(), 1, "step {steps}: the bytes are others");
        }
        if !is_killed {
            break;
        }
        steps += 1;
    }
    assert!(steps > 50, "{steps} steps");
}
