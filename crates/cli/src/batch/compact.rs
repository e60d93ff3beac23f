//! `outrigger batch compact`.

use std::path::PathBuf;

use outrigger_batch::{MANIFEST, Size, Store, compact};

use super::exit_of;
use crate::exit::{self, Exit, Output};

/// Makes few large files of the many small ones of a finished job, in another directory.
///
/// The rows stay as they are, in their order. The output of the job is not changed. A compaction
/// that was ended at any moment goes on when the command is repeated.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger batch compact scored --to scored-large")]
pub(crate) struct Arguments {
    /// The output of the finished job.
    #[arg(value_name = "JOB")]
    job: PathBuf,
    /// The directory of the new output. It must be new, empty, or hold this compaction.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The most bytes of the consecutive files that become one.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    file_size: Size,
    /// Format of the summary.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Runs the command.
pub(super) fn run(arguments: Arguments) -> Result<(), Exit> {
    let Arguments { job, to, file_size, output } = arguments;
    let to = Store::at(&to).map_err(exit_of)?;
    let from = Store::at(&job).map_err(exit_of)?;
    let compacted = compact(&from, &to, file_size.0).map_err(exit_of)?;
    match output {
        Output::Text => {
            let before: usize = compacted.files.iter().map(|part| part.files).sum();
            let (rows, files) = (compacted.scored, compacted.files.len());
            let manifest = to.root().join(MANIFEST);
            exit::print(format!(
                "{rows} rows of {before} files in {files}, output: {}\n",
                manifest.display()
            ))
        }
        Output::Json => exit::print_json(&serde_json::json!(compacted)),
    }
}
