//! `outrigger canary`: the judge of canaries.

mod decide;

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use outrigger_canary::{
    Config, Decider, LatencyLimits, Limits, NonFiniteLimits, Reference, Share,
    simulation::{Effect, Generated, Live, Log, Logged, Report, Traffic},
};

use crate::exit::{self, Exit, Output};

/// The judge that promotes canaries, or rolls them back.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Example:\n  outrigger canary simulate --canary-errors 3%")]
pub(crate) enum Command {
    Simulate(Box<Simulate>),
    Status(decide::Status),
    /// Makes a canary on trial live, as its mode says.
    #[command(after_help = "Example:\n  outrigger canary promote churn --reason 'Black Friday'")]
    Promote(decide::Decide),
    /// Rolls a canary on trial back.
    #[command(after_help = "Example:\n  outrigger canary abort churn --reason 'wrong data'")]
    Abort(decide::Decide),
}

/// Puts a canary on trial that is generated, or was logged.
///
/// Prints the verdict, when it came and from which figures, and how long the
/// usual defects would take to be seen on this traffic. A log has a JSON object a
/// line, in the order of time:
///
///   {"time": 1764241200.25, "arm": "canary", "latency_ms": 18.2, "score": 0.41}
///
/// with "error": true or "non_finite": true in place of the score, "share" where
/// the canary's share of the traffic changes, and the routing "key" of requests that
/// have one: of each key the first counts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  outrigger canary simulate --rate 200 --share 5% --canary-latency 1.2
  outrigger canary simulate --log outcomes.jsonl --share 10% -o json")]
pub(crate) struct Simulate {
    /// Requests that were logged, in place of generated ones.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Requests of live, at the beginning of the log, that only set the scale.
    #[arg(long, value_name = "N", default_value_t = Reference::REQUESTS, requires = "log")]
    reference: usize,
    /// The canary's share of the traffic.
    #[arg(long, default_value = "10%", value_parser = share)]
    share: Share,
    #[command(flatten)]
    traffic: TrafficArguments,
    #[command(flatten)]
    canary: CanaryArguments,
    #[command(flatten)]
    limits: LimitArguments,
    /// Canaries of each kind that are simulated to tell how long it takes.
    #[arg(long, value_name = "N", default_value_t = 100)]
    runs: u64,
    /// Requests on the canary after which a simulation is given up.
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    most: u64,
    /// Another seed, other chances.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How to print the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What live does.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Generated traffic")]
struct TrafficArguments {
    /// Requests a second, both arms.
    #[arg(long, default_value_t = 50.0, conflicts_with = "log", value_parser = positive)]
    rate: f64,
    /// Requests that live does not answer.
    #[arg(long, default_value = "1%", conflicts_with = "log", value_parser = proportion)]
    errors: f64,
    /// Live's median latency.
    #[arg(long, default_value = "20ms", conflicts_with = "log", value_parser = humantime::parse_duration)]
    latency: Duration,
    /// Standard deviation of the latency's logarithm.
    #[arg(long, default_value_t = 0.5, conflicts_with = "log", value_parser = positive)]
    sigma: f64,
}

/// What the canary does otherwise.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Generated canary (without any of these it does what live does)")]
struct CanaryArguments {
    /// Requests that it does not answer.
    #[arg(long, value_name = "SHARE", conflicts_with = "log", value_parser = proportion)]
    canary_errors: Option<f64>,
    /// Its latency, in times live's.
    #[arg(long, value_name = "TIMES", conflicts_with = "log", default_value_t = 1.0, value_parser = positive)]
    canary_latency: f64,
    /// By how many standard deviations its scores are moved.
    #[arg(
        long,
        value_name = "DEVIATIONS",
        conflicts_with = "log",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    canary_shift: f64,
    /// All its scores are the same.
    #[arg(long, conflicts_with = "log")]
    canary_constant: bool,
    /// Answers with NaN.
    #[arg(long, value_name = "SHARE", conflicts_with = "log", default_value = "0%", value_parser = proportion)]
    canary_non_finite: f64,
}

/// What the judge is told.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Judge")]
struct LimitArguments {
    /// How sure a verdict must be.
    #[arg(long, default_value = "99%", value_parser = proportion)]
    confidence: f64,
    /// Difference of the error rates that does not matter.
    #[arg(long, value_name = "SHARE", default_value = "0.5%", value_parser = proportion)]
    error_margin: f64,
    /// By how much the latency may be longer.
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = proportion)]
    latency_margin: f64,
    /// Which latency.
    #[arg(long, value_name = "QUANTILE", default_value = "95%", value_parser = proportion)]
    latency_quantile: f64,
    /// How far the distribution of the scores may differ (Kolmogorov-Smirnov).
    #[arg(long, value_name = "DISTANCE", default_value = "5%", value_parser = proportion)]
    score_margin: f64,
    /// How far it may differ without being held against the canary.
    #[arg(long, value_name = "DISTANCE", default_value = "0%", value_parser = proportion)]
    score_tolerance: f64,
    /// Difference of the rates of non-finite answers that does not matter.
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = proportion)]
    non_finite_margin: f64,
    /// Requests of the canary before it can be promoted.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    minimum_requests: u64,
    /// Time before it can be promoted.
    #[arg(long, default_value = "10m", value_parser = humantime::parse_duration)]
    minimum_time: Duration,
    /// Time after which it has starved.
    #[arg(long, default_value = "24h", value_parser = humantime::parse_duration)]
    maximum_time: Duration,
}

/// Runs the command.
pub(crate) fn run(command: Command) -> Result<(), Exit> {
    match command {
        Command::Simulate(arguments) => simulate(&arguments),
        Command::Status(arguments) => decide::status(arguments),
        Command::Promote(arguments) => decide::promote(arguments),
        Command::Abort(arguments) => decide::abort(arguments),
    }
}

fn simulate(arguments: &Simulate) -> Result<(), Exit> {
    let decider = decider(&arguments.limits)?;
    let report = match &arguments.log {
        Some(log) => logged(&decider, arguments, log)?,
        None => generated(&decider, arguments)?,
    };
    match arguments.output {
        Output::Text => exit::print(report),
        Output::Json => exit::print_json(&serde_json::json!(report)),
    }
}

fn generated(decider: &Decider, arguments: &Simulate) -> Result<Report, Exit> {
    let TrafficArguments { rate, errors, latency, sigma } = arguments.traffic;
    let live = Live::Generated(Generated { error_rate: errors, latency, sigma });
    let effect = arguments.canary.effect(errors)?;
    let traffic = Traffic::new(arguments.share, live, effect, arguments.seed);
    let report = Report::generated(decider, traffic.clone(), rate, arguments.most);
    Ok(report.with_power(decider, &traffic, rate, arguments.runs, arguments.most))
}

fn logged(decider: &Decider, arguments: &Simulate, path: &Path) -> Result<Report, Exit> {
    let log = Log::new(read(path)?, arguments.reference)
        .map_err(|error| Exit::Usage(format!("{}: {error}", path.display())))?;
    let report = Report::logged(decider, &log, arguments.share);
    let (live, Some(rate)) = (log.live(), log.rate()) else { return Ok(report) };
    if live.is_empty() {
        return Ok(report);
    }
    let traffic =
        Traffic::new(arguments.share, Live::Logged(live.into()), Effect::NONE, arguments.seed);
    Ok(report.with_power(decider, &traffic, rate, arguments.runs, arguments.most))
}

fn read(path: &Path) -> Result<Vec<Logged>, Exit> {
    let failed = |error| Exit::Failed(format!("{}: {error}", path.display()));
    let lines = BufReader::new(File::open(path).map_err(failed)?).lines().zip(1..);
    let mut log = Vec::new();
    for (line, number) in lines {
        let line = line.map_err(failed)?;
        if !line.trim().is_empty() {
            log.push(Logged::parse(&line).map_err(|error| {
                Exit::Usage(format!("{}: line {number}: {error}", path.display()))
            })?);
        }
    }
    Ok(log)
}

fn decider(arguments: &LimitArguments) -> Result<Decider, Exit> {
    let margin = |margin| Limits { tolerance: 0.0, margin };
    let latency = LatencyLimits {
        quantile: arguments.latency_quantile,
        limits: margin(arguments.latency_margin),
    };
    let default = Config::default();
    let config = Config {
        confidence: arguments.confidence,
        error_rate: Some(margin(arguments.error_margin)),
        latency: Some(latency),
        scores: Some(Limits {
            tolerance: arguments.score_tolerance,
            margin: arguments.score_margin,
        }),
        non_finite: default.non_finite.map(|non_finite| NonFiniteLimits {
            limits: margin(arguments.non_finite_margin),
            ..non_finite
        }),
        minimum_requests: arguments.minimum_requests,
        minimum_time: arguments.minimum_time,
        maximum_time: arguments.maximum_time,
        ..default
    };
    match config.problems() {
        problems if problems.is_empty() => Ok(Decider::new(config)),
        problems => Err(Exit::Usage(problems.join("\n"))),
    }
}

impl CanaryArguments {
    /// What it does otherwise than live, which fails a share `errors`.
    fn effect(&self, errors: f64) -> Result<Effect, Exit> {
        let canary = self.canary_errors.unwrap_or(errors);
        if canary < errors {
            let problem = "--canary-errors: a canary with fewer errors than live is not simulated";
            return Err(Exit::Usage(problem.to_owned()));
        }
        Ok(Effect {
            errors: (canary - errors) / (1.0 - errors),
            latency: self.canary_latency,
            shift: self.canary_shift,
            constant: self.canary_constant,
            non_finite: self.canary_non_finite,
        })
    }
}

/// A part of all: `5%`, or `0.05`.
fn proportion(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|error| error.to_string());
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err("not between 0 and 1".to_owned()) }
}

fn share(text: &str) -> Result<Share, String> {
    Share::new(proportion(text)?).map_err(|error| error.to_string())
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err("not above 0".to_owned()) }
}
