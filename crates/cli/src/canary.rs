//! `outrigger canary`: simulates canaries, and shows and decides those of a server.

mod decide;

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use outrigger_canary::{
    Config, Decider, LatencyLimits, Limits, NonFiniteLimits, Reference, Share,
    simulation::{Effect, Generated, Live, Log, Logged, Overload, Report, Traffic},
};

use crate::exit::{self, Exit, Output};

/// Simulates canary trials, shows those of a server and decides on them.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Example:\n  outrigger canary simulate --canary-errors 3%")]
pub(crate) enum Command {
    Simulate(Box<Simulate>),
    Status(decide::Status),
    /// Promotes a canary on trial, in the way that its mode defines.
    #[command(after_help = "Example:\n  outrigger canary promote churn --reason 'Black Friday'")]
    Promote(decide::Decide),
    /// Rolls back a canary on trial.
    #[command(after_help = "Example:\n  outrigger canary abort churn --reason 'wrong data'")]
    Abort(decide::Decide),
}

/// Runs the canary judge on generated or logged traffic.
///
/// Prints the verdict with its time and its figures, and how long it takes to detect
/// common defects on this traffic. A log has one JSON object per line, in the order of
/// time:
///
///   {"time": 1764241200.25, "arm": "canary", "latency_ms": 18.2, "score": 0.41}
///
/// with "error": true or "non_finite": true instead of the score, "share" where the
/// canary's share of the traffic changes, and the routing "key" of requests that have
/// one: only the first request of each key counts.
///
/// With --servers, both arms share an engine, so that a canary that costs much slows live
/// down too. It prints what callers notice until the verdict.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  outrigger canary simulate --rate 200 --share 5% --canary-latency 1.2
  outrigger canary simulate --rate 400 --latency 1ms --canary-latency 200 --servers 2
  outrigger canary simulate --log outcomes.jsonl --share 10% -o json")]
pub(crate) struct Simulate {
    /// Logged requests, instead of generated ones.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Requests of live at the beginning of the log that only make the reference.
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
    engine: EngineArguments,
    #[command(flatten)]
    limits: LimitArguments,
    /// Simulated canaries of each kind, to estimate the time until a decision.
    #[arg(long, value_name = "N", default_value_t = 100)]
    runs: u64,
    /// Requests on the canary after which a simulation ends without a decision.
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    most: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Format of the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Live's behaviour.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Generated traffic")]
struct TrafficArguments {
    /// Requests a second, both arms.
    #[arg(long, default_value_t = 50.0, conflicts_with = "log", value_parser = positive)]
    rate: f64,
    /// Share of requests that live fails.
    #[arg(long, default_value = "1%", conflicts_with = "log", value_parser = proportion)]
    errors: f64,
    /// Live's median latency.
    #[arg(long, default_value = "20ms", conflicts_with = "log", value_parser = humantime::parse_duration)]
    latency: Duration,
    /// Standard deviation of the latency's logarithm.
    #[arg(long, default_value_t = 0.5, conflicts_with = "log", value_parser = positive)]
    sigma: f64,
}

/// The canary's difference from live.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Generated canary (by default like live)")]
struct CanaryArguments {
    /// Share of requests that the canary fails.
    #[arg(long, value_name = "SHARE", conflicts_with = "log", value_parser = proportion)]
    canary_errors: Option<f64>,
    /// Factor on live's latency.
    #[arg(long, value_name = "TIMES", conflicts_with = "log", default_value_t = 1.0, value_parser = positive)]
    canary_latency: f64,
    /// Shift of the scores, in standard deviations.
    #[arg(
        long,
        value_name = "DEVIATIONS",
        conflicts_with = "log",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    canary_shift: f64,
    /// Give all its answers the same score.
    #[arg(long, conflicts_with = "log")]
    canary_constant: bool,
    /// Share of answers with NaN.
    #[arg(long, value_name = "SHARE", conflicts_with = "log", default_value = "0%", value_parser = proportion)]
    canary_non_finite: f64,
}

/// The engine, if both arms share its capacity.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Shared engine")]
struct EngineArguments {
    /// Requests that the engine works on at a time, for example its cores. The latency is then
    /// the time that a request takes there, and its wait comes on top.
    #[arg(long, value_name = "N", conflicts_with = "log", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    servers: Option<u32>,
    /// Time after which callers give up.
    #[arg(long, default_value = "1s", requires = "servers", value_parser = humantime::parse_duration)]
    deadline: Duration,
}

/// The judge's configuration.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Judge")]
struct LimitArguments {
    /// Confidence of a verdict.
    #[arg(long, default_value = "99%", value_parser = proportion)]
    confidence: f64,
    /// Harmless difference of the error rates.
    #[arg(long, value_name = "SHARE", default_value = "0.5%", value_parser = proportion)]
    error_margin: f64,
    /// Harmless relative increase of the latency.
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = proportion)]
    latency_margin: f64,
    /// Quantile of the latency.
    #[arg(long, value_name = "QUANTILE", default_value = "95%", value_parser = proportion)]
    latency_quantile: f64,
    /// Harmless Kolmogorov-Smirnov distance of the score distributions.
    #[arg(long, value_name = "DISTANCE", default_value = "5%", value_parser = proportion)]
    score_margin: f64,
    /// Distance of the score distributions up to which the canary is not rolled back.
    #[arg(long, value_name = "DISTANCE", default_value = "0%", value_parser = proportion)]
    score_tolerance: f64,
    /// Harmless difference of the rates of non-finite answers.
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = proportion)]
    non_finite_margin: f64,
    /// Requests on the canary before it can be promoted.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    minimum_requests: u64,
    /// Time on trial before it can be promoted.
    #[arg(long, default_value = "10m", value_parser = humantime::parse_duration)]
    minimum_time: Duration,
    /// Time on trial after which it has starved.
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
    if let Some(servers) = arguments.engine.servers {
        let report = overload(arguments, servers)?.run(decider.config().clone(), arguments.seed);
        return match arguments.output {
            Output::Text => exit::print(report),
            Output::Json => exit::print_json(&serde_json::json!(report)),
        };
    }
    let report = match &arguments.log {
        Some(log) => logged(&decider, arguments, log)?,
        None => generated(&decider, arguments)?,
    };
    match arguments.output {
        Output::Text => exit::print(report),
        Output::Json => exit::print_json(&serde_json::json!(report)),
    }
}

fn traffic(arguments: &Simulate) -> Result<Traffic, Exit> {
    let TrafficArguments { errors, latency, sigma, .. } = arguments.traffic;
    let live = Live::Generated(Generated { error_rate: errors, latency, sigma });
    let effect = arguments.canary.effect(errors)?;
    Ok(Traffic::new(arguments.share, live, effect, arguments.seed))
}

/// A trial on an engine that both arms share.
fn overload(arguments: &Simulate, servers: u32) -> Result<Overload, Exit> {
    Ok(Overload {
        traffic: traffic(arguments)?,
        rate: arguments.traffic.rate,
        servers: servers as usize,
        deadline: arguments.engine.deadline,
        most: arguments.most,
    })
}

fn generated(decider: &Decider, arguments: &Simulate) -> Result<Report, Exit> {
    let (traffic, rate) = (traffic(arguments)?, arguments.traffic.rate);
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
    /// The canary's difference from a live that fails a share `errors`.
    fn effect(&self, errors: f64) -> Result<Effect, Exit> {
        let canary = self.canary_errors.unwrap_or(errors);
        if canary < errors {
            let problem = "--canary-errors: must not be below --errors";
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

/// Parses a share: `5%` or `0.05`.
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
