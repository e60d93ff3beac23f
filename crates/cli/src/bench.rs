//! `outrigger bench`: measures a server's throughput, latency and cost.

mod interrupt;
mod progress;
mod target;

use std::{path::PathBuf, time::Duration};

use outrigger_bench::{
    Arrivals, Encoding, Error, Input, Job, Load, Process, Server, Shape, Source, Stop, Target, Tls,
};
use outrigger_tools::{Access, ClientSettings};

use self::{
    progress::Reporter,
    target::{FormArgument, TargetArguments},
};
use crate::{
    access,
    exit::{self, Exit, Output},
};

/// Sends requests to a server and reports throughput, latency, failures and CPU time.
///
/// Requests are generated from metadata.json or read from files, and encoded before the
/// run. Servers of the Open Inference Protocol, such as Triton, get the tensors of these requests,
/// or random ones for the inputs that they describe. With --rate each request is due at a set time, and its latency counts from that
/// time even if it was sent later: a server that stalls is charged for the requests that
/// would have come meanwhile. With --max the next request is sent when another is
/// answered. --find-rate searches for the highest rate at which no request fails and the
/// 99th percentile of the latency stays under --p99.
///
/// Ctrl-C ends the measurement, and the report covers the time until then; a second
/// Ctrl-C ends the command.
///
/// Exit code 1 if a request failed, none was answered, or no rate was found; 130
/// after Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  outrigger bench --server 127.0.0.1:9000 --model churn --package churn/ --rate 500
  outrigger bench --server 127.0.0.1:9000 --model churn --package churn/ --form columnar \\
    --find-rate --p99 20ms --duration 60s --pid control-plane=123 --pid engine=456 -o json
  outrigger bench --server 127.0.0.1:9080 --model churn --request request.json --max
  outrigger bench --server 127.0.0.1:8001 --model churn --form oip-grpc --max
  outrigger bench --direct unix:/run/engine.sock --servable churn --package churn/ --max")]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    requests: Requests,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    access: access::Scoped,
    /// A process whose CPU time is reported, under a name of your choice; may be given
    /// several times
    #[arg(long = "pid", value_name = "NAME=PID", value_parser = process, help_heading = "Report")]
    processes: Vec<Process>,
    /// Format of the report
    #[arg(short, long, value_enum, default_value_t, help_heading = "Report")]
    output: Output,
    /// Also write each different request and its first answer to this directory, as
    /// request-0.binpb, answer-0.binpb and so on: gRPC messages without their prefix; .json for
    /// JSON, .bin for JSON with binary tensors
    #[arg(long, value_name = "DIR", help_heading = "Report")]
    save: Option<PathBuf>,
    /// No progress on standard error. Without this option a terminal shows it every
    /// second, and other output gets a line every 10 seconds
    #[arg(long, help_heading = "Report")]
    quiet: bool,
}

/// The requests.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Requests")]
struct Requests {
    /// The model's package; its metadata.json defines the features to generate
    #[arg(long, value_name = "DIR")]
    package: Option<PathBuf>,
    /// A metadata.json without its package
    #[arg(long, value_name = "FILE", conflicts_with = "package")]
    metadata: Option<PathBuf>,
    /// Send this request: JSON as for `outrigger predict`, or an encoded PredictRequest,
    /// for the model given here; may be given several times
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["treatments", "users", "distinct", "seed"],
    )]
    request: Vec<PathBuf>,
    /// An input of the model, for forms of the Open Inference Protocol without a metadata.json; may
    /// be given several times [default: those that the server describes, with --treatments rows]
    #[arg(
        long = "input",
        value_name = "NAME:DATATYPE:SIZE,SIZE",
        conflicts_with_all = ["package", "metadata", "request", "direct"],
    )]
    inputs: Vec<Input>,
    /// Compress the requests to a model before the run; the server must accept that
    #[arg(long, value_enum, value_name = "ENCODING", conflicts_with = "direct")]
    compress: Option<EncodingArgument>,
    /// Layout of the features [default: kv; a file as it is]
    #[arg(long, value_enum, conflicts_with = "direct")]
    form: Option<FormArgument>,
    /// Treatments per user; rows of inputs that a server describes
    #[arg(long, value_name = "T", default_value_t = 1000)]
    treatments: usize,
    /// Users per request; several make it a BatchPredict
    #[arg(long, value_name = "B", default_value = "1", value_parser = positive)]
    users: usize,
    /// Number of different requests, which are sent in turn
    #[arg(long, value_name = "N", default_value = "8", value_parser = positive)]
    distinct: usize,
    /// Seed of the generated requests; the same seed gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The load.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
#[command(group = clap::ArgGroup::new("mode").required(true))]
struct LoadArguments {
    /// Open loop: this number of requests a second, each at a set time
    #[arg(long, value_name = "R", group = "mode", value_parser = rate)]
    rate: Option<f64>,
    /// Closed loop: always --in-flight requests at once, the next when one is answered
    #[arg(long, group = "mode")]
    max: bool,
    /// Find the highest rate at which no request fails and --p99 holds
    #[arg(long, group = "mode", requires = "p99")]
    find_rate: bool,
    /// Upper limit of the latency's 99th percentile
    #[arg(long, value_name = "TIME", requires = "find_rate", value_parser = duration)]
    p99: Option<Duration>,
    /// Duration of each trial of a rate; the rate found is confirmed for --duration
    #[arg(
        long,
        value_name = "TIME",
        default_value = "5s",
        requires = "find_rate",
        value_parser = duration,
    )]
    step: Duration,
    /// Distribution of the requests over time in an open loop
    #[arg(long, value_enum, default_value_t, conflicts_with = "max")]
    arrivals: ArrivalsArgument,
    /// Duration of the measurement
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// Duration of the load before the measurement
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    warmup: Duration,
    /// Connections to the server, at least one per thread; HTTP opens more while more
    /// requests are in flight [default: 2, or as many as threads]
    #[arg(long, value_name = "N", value_parser = positive)]
    connections: Option<usize>,
    /// Sending threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    threads: usize,
    /// Requests in flight at once, at least one per thread; in an open loop further
    /// requests fail with CLIENT_SATURATED [default: 64, in an open loop 4096]
    #[arg(long, value_name = "N", value_parser = positive)]
    in_flight: Option<usize>,
    /// Largest HTTP/2 frame of a gRPC request in bytes, up to 1 MiB. The default is what
    /// gRPC's own clients and most proxies send, however large the server's limit is
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 16 << 10,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20),
    )]
    frame_size: u32,
    /// Timeout of a request, which is also sent to the server
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    timeout: Duration,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum EncodingArgument {
    /// gzip, level 6
    Gzip,
    /// zstd, level 3
    Zstd,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum ArrivalsArgument {
    /// At equal intervals
    #[default]
    Fixed,
    /// At random intervals (Poisson process)
    Poisson,
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    let (output, quiet) = (arguments.output, arguments.quiet);
    let job = arguments.job()?;
    interrupt::stop_on_interrupt(job.stop.clone())?;
    let mut reporter = Reporter::new(quiet);
    let report = outrigger_bench::run(&job, &mut |progress| reporter.report(progress));
    reporter.finish();
    let report = report.map_err(failed)?;
    match output {
        Output::Text => exit::print(&report)?,
        Output::Json => exit::print_json(&serde_json::json!(report))?,
    }
    if report.interrupted {
        return Err(Exit::Interrupted);
    }
    report.problem().map_or(Ok(()), |problem| Err(Exit::Failed(problem)))
}

fn failed(error: Error) -> Exit {
    match error {
        Error::Interrupted => Exit::Interrupted,
        error if error.is_usage() => Exit::usage(error),
        error => Exit::failed(error),
    }
}

impl Arguments {
    fn job(self) -> Result<Job, Exit> {
        let Self { target, requests, load, access, processes, save, .. } = self;
        let plan = requests.file().map(|file| outrigger_bench::read_plan(&file)).transpose();
        let (address, target) = target.read(requests.form, &requests.inputs)?;
        let access = match target {
            Target::Model { .. } | Target::Inference(_) => access.all,
            Target::Servable(_) => access.explicit,
        };
        let server = server(&address, access.into())?;
        requests.check(&target)?;
        Ok(Job {
            server,
            target,
            plan: plan.map_err(failed)?,
            compress: requests.compress.map(Encoding::from),
            source: requests.source(),
            load: load.mode()?,
            duration: load.duration,
            warmup: load.warmup,
            connections: load.connections.unwrap_or(load.threads.max(2)),
            threads: load.threads,
            in_flight: load.in_flight,
            frame: load.frame_size as usize,
            save,
            timeout: load.timeout,
            processes,
            stop: Stop::default(),
        })
    }
}

impl Requests {
    /// The metadata.json from which requests are generated.
    fn file(&self) -> Option<PathBuf> {
        let package = self.package.as_ref().map(|package| package.join("metadata.json"));
        package.or_else(|| self.metadata.clone())
    }

    /// Checks that there is a source of requests for this target.
    fn check(&self, target: &Target) -> Result<(), Exit> {
        let is_inference = matches!(target, Target::Inference(_));
        if !is_inference && !self.inputs.is_empty() {
            return Err(Exit::usage("--input is for the forms of the Open Inference Protocol"));
        }
        if !is_inference && self.file().is_none() && self.request.is_empty() {
            return Err(Exit::usage("give --package, --metadata or --request"));
        }
        Ok(())
    }

    fn source(self) -> Source {
        let Self { request, treatments, users, distinct, seed, .. } = self;
        if request.is_empty() {
            return Source::Generated(Shape { treatments, users, distinct, seed });
        }
        Source::Files(request)
    }
}

impl LoadArguments {
    fn mode(&self) -> Result<Load, Exit> {
        let (step, arrivals) = (self.step, self.arrivals.into());
        match (self.rate, self.p99) {
            (Some(rate), _) => Ok(Load::Rate { rate, arrivals }),
            (None, Some(p99)) => Ok(Load::FindRate { p99, step, arrivals }),
            (None, None) if self.max => Ok(Load::Max),
            (None, None) => Err(Exit::usage("give --rate, --max or --find-rate")),
        }
    }
}

impl From<EncodingArgument> for Encoding {
    fn from(encoding: EncodingArgument) -> Self {
        match encoding {
            EncodingArgument::Gzip => Self::Gzip,
            EncodingArgument::Zstd => Self::Zstd,
        }
    }
}

impl From<ArrivalsArgument> for Arrivals {
    fn from(arrivals: ArrivalsArgument) -> Self {
        match arrivals {
            ArrivalsArgument::Fixed => Self::Fixed,
            ArrivalsArgument::Poisson => Self::Poisson,
        }
    }
}

/// The server at an address, with the access that the options define.
fn server(address: &str, access: Access) -> Result<Server, Exit> {
    let ClientSettings { address, tls, authorization } = access.client_settings(address)?;
    let invalid = |_| Exit::usage("an address must be HOST:PORT or unix:/PATH");
    Ok(Server {
        endpoint: address.parse().map_err(invalid)?,
        tls: tls.map(|(config, name)| Tls { config, name }),
        authorization,
    })
}

fn positive(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|number| *number > 0).ok_or("must be a number of at least 1")
}

fn rate(text: &str) -> Result<f64, &'static str> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or("must be a number over 0")
}

fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be over 0".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

fn process(text: &str) -> Result<Process, &'static str> {
    let (name, id) = text.split_once('=').ok_or("is written NAME=PID")?;
    let id = id.parse().map_err(|_| "a process id is a number")?;
    Ok(Process { name: name.to_owned(), id })
}
