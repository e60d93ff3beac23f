//! Jobs as text for people.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use outrigger_batch::{Control, Manifest, Status};
use outrigger_core::printable;
use outrigger_tools::output::Table;
use serde::Serialize;
use serde_json::{Value, json};

use super::{plot::plot, progress};

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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
}

impl Summary {
    /// The summary of a job that took `time`, without its earlier runs.
    pub(super) fn new(manifest: &Manifest, path: &Path, time: Duration) -> Self {
        Self {
            job: manifest.job.clone(),
            rows: manifest.rows,
            scored: manifest.scored,
            dead: manifest.dead,
            chunks: manifest.chunks.iter().filter(|part| part.start == 0).count(),
            manifest: path.to_owned(),
            seconds: time.as_secs_f64(),
            remarks: manifest.remarks.iter().cloned().map(printable).collect(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, scored, dead, chunks, manifest, seconds, remarks, .. } = self;
        writeln!(f, "{scored} of {rows} rows scored, {dead} dead, in {chunks} chunks")?;
        remarks.iter().try_for_each(|remark| writeln!(f, "{remark}"))?;
        writeln!(f, "{seconds:.1} s, output: {}", manifest.display())
    }
}

/// The state of a job, in lines of at most `width` columns as far as its plot is concerned.
pub(super) fn status(status: &Status, width: usize) -> String {
    let Status { output, job, created, model, version, state, rows, scored, dead, .. } = status;
    let version =
        version.as_ref().map_or_else(String::new, |version| format!(" version {version}"));
    let job = format!("job {job} in {}: {}", output.display(), state.as_str());
    let model = format!("model {model}{version}, planned {created}");
    let mut text = format!(
        "{}\n{}\n{scored} of {rows} rows scored, {dead} dead, {} of {} chunks committed\n",
        printable(job),
        printable(model),
        status.committed,
        status.chunks
    );
    for worker in &status.workers {
        let name = printable(worker.worker.clone());
        text.push_str(&format!("worker {name}: {}\n", progress::text(worker)));
    }
    text.push_str(&plot(&status.history, width));
    text
}

/// The settings that differ from those of the job, a line each, as `outrigger batch set` takes them.
pub(super) fn settings(control: &Control) -> String {
    let json = json!(control);
    let line = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::Null | Value::Bool(false) => return None,
            Value::Array(values) => {
                let values: Vec<_> = values.iter().filter_map(Value::as_str).collect();
                values.join(",")
            }
            value => value.to_string(),
        };
        Some(printable(format!("{name}={value}")) + "\n")
    };
    let lines: String = json.as_object().into_iter().flatten().filter_map(line).collect();
    match lines.as_str() {
        "" => "the settings are those of the job\n".to_owned(),
        _ => lines,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_settings_have_the_form_of_the_command() {
        let mut control = Control::default();
        assert_eq!(settings(&control), "the settings are those of the job\n");
        for setting in ["batch_size=512", "hosts=a:8001, b:8001", "paused=true"] {
            control.set(setting).expect(setting);
        }
        assert_eq!(settings(&control), "batch_size=512\nhosts=a:8001,b:8001\npaused=true\n");
    }

    #[test]
    fn the_summary_has_the_documented_keys() {
        let manifest = Manifest {
            job: "j".to_owned(),
            fingerprint: String::new(),
            model: "m".to_owned(),
            version: None,
            digest: None,
            rows: 3,
            scored: 2,
            dead: 1,
            remarks: vec!["a remark".to_owned()],
            chunks: Vec::new(),
        };
        let path = Path::new("out/manifest.json");
        let summary = Summary::new(&manifest, path, Duration::from_millis(1500));
        let expected = serde_json::json!({
            "job": "j", "rows": 3, "scored": 2, "dead": 1, "chunks": 0,
            "manifest": "out/manifest.json", "seconds": 1.5, "remarks": ["a remark"],
        });
        assert_eq!(serde_json::json!(summary), expected);
    }
}
