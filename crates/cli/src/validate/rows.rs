//! Options for the rows of a file.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use indicatif::ProgressBar;
use outrigger_tools::validate::Rows;
use outrigger_validation::{Files, Format, Options, Progress, Reserved, Root, Tolerance};

use crate::{
    exit::Exit,
    progress::{bar, follow},
};

/// The length of the progress bar: thousandths of the file.
const PARTS: f64 = 1000.0;

/// A file whose rows are scored, and one for the scores.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scoring a file")]
pub(crate) struct RowArguments {
    #[command(flatten)]
    input: InputArguments,
    /// File for the scores, one row for each row and in the same format. It is replaced when all
    /// rows have been read.
    #[arg(long, value_name = "FILE", requires = "input")]
    scores: Option<PathBuf>,
}

/// A file whose rows are scored.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scoring a file")]
pub(crate) struct InputArguments {
    /// File with rows to score, whose format follows from its name: .csv, .jsonl,
    /// .parquet.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// The settings of a run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scoring a file")]
pub(crate) struct Settings {
    /// Column with the user's id; consecutive rows with the same id are one request.
    #[arg(long, value_name = "NAME", default_value = "user")]
    user_column: String,
    /// Column with the treatment's id.
    #[arg(long, value_name = "NAME", default_value = "treatment")]
    treatment_column: String,
    /// Column with the expected score, which the score is compared with.
    #[arg(long, value_name = "NAME", default_value = "expected")]
    expected_column: String,
    /// Absolute tolerance of the comparison, which is added to the relative one.
    #[arg(long, default_value_t = Tolerance::default().atol, value_parser = tolerance)]
    atol: f64,
    /// Tolerance of the comparison, relative to the expected score.
    #[arg(long, default_value_t = Tolerance::default().rtol, value_parser = tolerance)]
    rtol: f64,
    /// End after more errors than this, without writing scores.
    #[arg(long, value_name = "COUNT", default_value_t = Options::default().max_errors)]
    max_errors: usize,
}

/// A run over the rows of a file.
#[derive(Debug)]
pub(crate) struct Run {
    files: Files,
    options: Options,
    progress: Progress,
}

/// A tolerance from its text.
pub(crate) fn tolerance(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number")?;
    if value >= 0.0 { Ok(value) } else { Err("must not be negative".to_owned()) }
}

/// True if both paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}

impl RowArguments {
    /// The run that is asked for, if there is one.
    pub(crate) fn run(self) -> Result<Option<Run>, Exit> {
        self.input.run(self.scores)
    }
}

impl InputArguments {
    /// The tolerance of the comparison.
    pub(crate) fn tolerance(&self) -> Tolerance {
        self.settings.tolerance()
    }

    /// The run that is asked for, if there is one. It writes scores to a file, if one is given.
    pub(crate) fn run(self, scores: Option<PathBuf>) -> Result<Option<Run>, Exit> {
        let Some(input) = self.input else { return Ok(None) };
        let format = Format::of(&input).ok_or_else(|| {
            let known = Format::endings();
            Exit::Usage(format!("{}: the name must end with one of {known}", input.display()))
        })?;
        let options = self.settings.options()?;
        // A missing file is reported before a model is loaded.
        File::open(&input).map_err(|error| Exit::Usage(format!("{}: {error}", input.display())))?;
        if scores.as_ref().is_some_and(|scores| is_same(scores, &input)) {
            let message = format!("--scores must not name the input: {}", input.display());
            return Err(Exit::Usage(message));
        }
        let files = Files { root: Root::Any, input, format, scores, overwrite: true };
        Ok(Some(Run { files, options, progress: Progress::default() }))
    }
}

/// A bar with the part of a file that was scored.
pub(crate) fn file_bar() -> ProgressBar {
    let bar = bar("{elapsed} {wide_bar} {percent}% {msg}");
    bar.set_length(PARTS as u64);
    bar
}

/// Shows the part of the file, and the numbers of rows and errors.
pub(crate) fn show(bar: &ProgressBar, (fraction, rows, errors): (f64, u64, u64)) {
    bar.set_position((fraction * PARTS) as u64);
    bar.set_message(format!("{rows} rows, {errors} errors"));
}

impl Settings {
    fn tolerance(&self) -> Tolerance {
        Tolerance { atol: self.atol, rtol: self.rtol }
    }

    /// The options of the run.
    pub(crate) fn options(self) -> Result<Options, Exit> {
        let tolerance = self.tolerance();
        let reserved = Reserved {
            user: self.user_column,
            treatment: self.treatment_column,
            expected: self.expected_column,
        };
        reserved.check().map_err(Exit::usage)?;
        let max_errors = self.max_errors;
        Ok(Options { reserved, tolerance, max_errors, ..Options::default() })
    }
}

impl Run {
    /// The rows, for the run itself.
    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows { files: &self.files, options: &self.options, progress: &self.progress }
    }

    /// Waits for `work`; on a terminal it shows a bar with the part of the file that was scored.
    pub(crate) async fn with_progress_bar<T>(&self, work: impl Future<Output = T>) -> T {
        let progress = &self.progress;
        let seen = || (progress.fraction(), progress.rows(), progress.errors());
        follow(&file_bar(), |bar| show(bar, seen()), work).await
    }
}
