//! Jobs as text for people.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use outrigger_batch::{Health, HostProgress, Manifest, Progress, Status};
use outrigger_tools::output::Table;
use serde::Serialize;

/// The end of a job that is finished.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    job: String,
    rows: u64,
    scored: u64,
    dead: u64,
    chunks: usize,
    manifest: PathBuf,
    seconds: f64,
}

impl Summary {
    /// The summary of a job that took `time`, without its earlier runs.
    pub(super) fn new(manifest: &Manifest, path: &Path, time: Duration) -> Self {
        Self {
            job: manifest.job.clone(),
            rows: manifest.rows,
            scored: manifest.scored,
            dead: manifest.dead,
            chunks: manifest.chunks.len(),
            manifest: path.to_owned(),
            seconds: time.as_secs_f64(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, scored, dead, chunks, manifest, seconds, .. } = self;
        writeln!(f, "{scored} of {rows} rows scored, {dead} dead, in {chunks} chunks")?;
        writeln!(f, "{seconds:.1} s, output: {}", manifest.display())
    }
}

/// The progress of a worker: one line, and one for each host.
pub(super) fn progress(progress: &Progress) -> String {
    let Progress { rows, dead, rows_per_second, .. } = progress;
    let done = progress.done();
    let percent = if *rows == 0 { 100.0 } else { 100.0 * done as f64 / *rows as f64 };
    let mut line = format!("{done}/{rows} rows ({percent:.1} %), {dead} dead");
    if progress.is_paused {
        line.push_str(", paused");
    } else if *rows_per_second >= 1.0 {
        let left = rows.saturating_sub(done) as f64 / rows_per_second;
        let left = humantime::format_duration(Duration::from_secs(left as u64));
        line.push_str(&format!(", {rows_per_second:.0} rows/s, {left} left"));
    }
    progress.hosts.iter().for_each(|it| line.push_str(&format!("\n  {}", host(it))));
    progress.unresolved.iter().for_each(|it| line.push_str(&format!("\n  {it}")));
    line
}

fn host(host: &HostProgress) -> String {
    let HostProgress { host, limit, bound, in_flight, breaker, rows_per_second, health, .. } = host;
    let place = match breaker.as_str() {
        "closed" => String::new(),
        other => format!(", {other}"),
    };
    let health = match health {
        None | Some(Health::Ready) => "",
        Some(Health::NotReady) => ", not ready when it was asked",
        Some(Health::Silent) => ", no answer when it was asked",
    };
    let requests = format!("{in_flight} of {limit} requests ({bound})");
    format!("{host}: {rows_per_second:.0} rows/s, {requests}{place}{health}")
}

/// The state of a job.
pub(super) fn status(status: &Status) -> String {
    let Status { output, job, created, model, version, state, rows, scored, dead, .. } = status;
    let version =
        version.as_ref().map_or_else(String::new, |version| format!(" version {version}"));
    let mut text = format!(
        "job {job} in {}: {}\nmodel {model}{version}, planned {created}\n\
         {scored} of {rows} rows scored, {dead} dead, {} of {} chunks committed\n",
        output.display(),
        state.as_str(),
        status.committed,
        status.chunks
    );
    for worker in &status.workers {
        text.push_str(&format!("worker {}: {}\n", worker.worker, progress(worker)));
    }
    text
}

/// The states of jobs, a line each.
pub(super) fn list(jobs: &[Status]) -> String {
    let mut table = Table::new(&["OUTPUT", "STATE", "MODEL", "ROWS", "SCORED", "DEAD"]);
    for job in jobs {
        table.row([
            job.output.display().to_string(),
            job.state.as_str().to_owned(),
            job.model.clone(),
            job.rows.to_string(),
            job.scored.to_string(),
            job.dead.to_string(),
        ]);
    }
    table.to_string()
}
