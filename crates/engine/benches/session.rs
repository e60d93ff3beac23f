//! Measures the cost of TensorFlow alone: the reference model runs in this process
//! through the crate's own [`Session`](outrigger_engine::tensorflow::Session), with the
//! options that the engine uses for models of its size. The difference to a measurement
//! through the engine is the engine's own cost from the wire to a run and back.
//!
//! Each caller repeats the work of one request: copy packed values into new tensors, run
//! the model, read the scores.
//!
//! Prints one JSON line: `throughput` in runs a second, `cpu_seconds_per_request` of the
//! whole process (user and system), `callers`. Arguments are `--model DIR` (its
//! SavedModel), `--callers N`, `--seconds S` and the engine's flags for TensorFlow's
//! threads, with the same names. libtensorflow is taken from the directory in
//! `OUTRIGGER_TENSORFLOW`, else from the repository's `.venv`.

#![allow(missing_docs)]

use std::{
    env,
    hint::black_box,
    mem::MaybeUninit,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use outrigger_engine::{
    environment,
    servable::Servable,
    tensorflow::{DType, Endpoint, Executor, Runtime, Tensor, Threads, locate},
};

const USER_FEATURES: usize = 4;
const TREATMENTS: usize = 1000;
const TREATMENT_FEATURES: usize = 20;
/// Runs of each caller before the clock starts.
const WARM_UP: usize = 200;

fn main() -> ExitCode {
    environment::prepare();
    match Arguments::parse(env::args().skip(1)).and_then(|arguments| measure(&arguments)) {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("session: {problem}");
            ExitCode::FAILURE
        }
    }
}

struct Arguments {
    model: PathBuf,
    callers: u32,
    duration: Duration,
    threads: Threads,
}

impl Arguments {
    fn parse(mut given: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut model, mut callers, mut seconds) = (None, 2, 5.0);
        let mut threads = Threads::default();
        while let Some(name) = given.next() {
            // Cargo passes this to every benchmark.
            if name == "--bench" {
                continue;
            }
            let value = given.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--model" => model = Some(PathBuf::from(value)),
                "--callers" => callers = number(&name, &value)?,
                "--seconds" => seconds = number(&name, &value)?,
                "--tensorflow_intra_op_parallelism" => threads.intra_op = number(&name, &value)?,
                "--tensorflow_inter_op_parallelism" => threads.inter_op = number(&name, &value)?,
                _ => return Err(format!("{name} is not known")),
            }
        }
        let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
        let model = model.ok_or("--model DIR is missing")?;
        Ok(Self { model, callers, duration, threads })
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} is a number, not {value}"))
}

/// Runs the model from `callers` threads for `duration`; returns the figures as JSON.
fn measure(arguments: &Arguments) -> Result<String, String> {
    let model = Model::load(&arguments.model, arguments.threads)?;
    let run_for = |stop: &(dyn Fn(usize, Instant) -> bool + Sync)| -> usize {
        thread::scope(|scope| {
            let callers: Vec<_> =
                (0..arguments.callers).map(|_| scope.spawn(|| model.run_until(stop))).collect();
            callers.into_iter().map(|caller| caller.join().expect("a run does not panic")).sum()
        })
    };
    run_for(&|runs, _| runs == WARM_UP);
    let (cpu, start) = (cpu_seconds(), Instant::now());
    let end = start + arguments.duration;
    let runs = run_for(&|_, now| now >= end) as f64;
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    Ok(format!(
        r#"{{"throughput":{:.1},"cpu_seconds_per_request":{:.9},"callers":{}}}"#,
        runs / elapsed,
        cpu / runs,
        arguments.callers
    ))
}

/// The reference model and one packed request to it.
struct Model {
    runtime: Runtime,
    servable: Servable,
    inputs: [(Endpoint, DType, Vec<i64>, Vec<u8>); 3],
    outputs: Vec<Endpoint>,
}

impl Model {
    fn load(directory: &Path, threads: Threads) -> Result<Self, String> {
        let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv");
        let named = env::var_os("OUTRIGGER_TENSORFLOW").is_none().then_some(environment);
        let library = locate(named.as_deref()).map_err(|error| error.to_string())?;
        let runtime = Runtime::open(&library).map_err(|error| error.to_string())?;
        let servable = Servable::load(runtime, directory, threads)
            .map_err(|status| format!("{}: {status}", directory.display()))?;
        let signature = servable.signatures.get("serving_default").ok_or("no serving_default")?;
        let port = |alias: &str| -> Result<Endpoint, String> {
            let port = signature.inputs.get(alias).ok_or_else(|| format!("no input {alias}"))?;
            port.endpoint().map_err(|status| status.to_string())
        };
        let counts = (TREATMENTS as i32).to_le_bytes().to_vec();
        let shape = |sizes: &[usize]| sizes.iter().map(|&size| size as i64).collect();
        let inputs = [
            (port("user")?, DType::FLOAT, shape(&[1, USER_FEATURES]), floats(USER_FEATURES)),
            (
                port("treatment")?,
                DType::FLOAT,
                shape(&[1, TREATMENTS, TREATMENT_FEATURES]),
                floats(TREATMENTS * TREATMENT_FEATURES),
            ),
            (port("treatment_count")?, DType::INT32, shape(&[1]), counts),
        ];
        let outputs = signature.outputs.values().map(|port| port.endpoint());
        let outputs = outputs.collect::<Result<_, _>>().map_err(|status| status.to_string())?;
        Ok(Self { runtime, servable, inputs, outputs })
    }

    /// Runs the model until `stop` returns true; returns the number of runs.
    fn run_until(&self, stop: &(dyn Fn(usize, Instant) -> bool + Sync)) -> usize {
        let mut runs = 0;
        while !stop(runs, Instant::now()) {
            self.run();
            runs += 1;
        }
        runs
    }

    fn run(&self) {
        let inputs = self.inputs.each_ref().map(|(endpoint, dtype, shape, values)| {
            let tensor = Tensor::plain(self.runtime, *dtype, shape, |to| to.put(values));
            (*endpoint, tensor.expect("a small tensor"))
        });
        let scores = self.servable.session.run(&inputs, &self.outputs, Executor::Caller);
        let scores = scores.expect("it runs");
        assert_eq!(scores[0].bytes().len(), TREATMENTS * size_of::<f32>());
        black_box(scores[0].bytes().to_vec());
    }
}

/// Values between -2 and 2, the same in every run.
fn floats(count: usize) -> Vec<u8> {
    let values = (0..count).map(|at| (at * 7919 % 4001) as f32 / 1000.0 - 2.0);
    values.flat_map(f32::to_le_bytes).collect()
}

/// CPU time of all threads of this process, user and system.
fn cpu_seconds() -> f64 {
    let mut usage = MaybeUninit::uninit();
    // SAFETY: the call writes the whole structure if it returns zero.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
