//! `outrigger batch diff`.

use std::{
    fmt::{self, Write as _},
    path::PathBuf,
};

use outrigger_batch::{ColumnDifference, DiffSettings, Difference, Size, Store, Worst, diff};
use serde_json::{Map, Value};

use super::exit_of;
use crate::{
    exit::{self, Exit, Output},
    validate::rows::tolerance,
};

/// Compares the outputs of two jobs: the scores of the rows that have the same key.
///
/// The outputs may be those of jobs or of compactions. For each score column it reports how many
/// values differ, the largest and the mean absolute difference, Spearman's rank correlation, and
/// the rows that differ most; also the rows that only one output has. The exit code is 0 whatever
/// differs, unless --max-difference is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An absent value equals an absent one, and NaN equals NaN. Against anything else they are unequal, \
and have no difference. Lists are compared value by value, and their ranks within each row.

Example:
  outrigger batch diff scored-1 scored-2
  outrigger batch diff scored-1 scored-2 --key customer --max-difference 1e-5")]
pub(crate) struct Arguments {
    /// The output of a finished job.
    #[arg(value_name = "OUT_A")]
    a: PathBuf,
    /// The output that it is compared with.
    #[arg(value_name = "OUT_B")]
    b: PathBuf,
    /// A column that identifies a row; may be given several times [default: all that both outputs
    /// have besides scores].
    #[arg(long, value_name = "COLUMN")]
    key: Vec<String>,
    /// A score column to compare; may be given several times [default: all, which both outputs
    /// must have].
    #[arg(long, value_name = "COLUMN")]
    score: Vec<String>,
    /// The most rows of each column that are listed, and of those that only one output has.
    #[arg(long, value_name = "N", default_value_t = 10)]
    worst: usize,
    /// Fail if a value differs by more, or by no number, or if a row is in one output only.
    #[arg(long, value_name = "X", value_parser = tolerance)]
    max_difference: Option<f64>,
    /// The most memory for rows and ranks; what does not fit is kept in temporary files.
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    memory: Size,
    /// Format of the report.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Runs the command.
pub(super) fn run(arguments: Arguments) -> Result<(), Exit> {
    let Arguments { a, b, key, score, worst, max_difference, memory, output } = arguments;
    let settings = DiffSettings { keys: key, scores: score, memory: memory.0, listed: worst };
    let (a, b) = (Store::at(&a).map_err(exit_of)?, Store::at(&b).map_err(exit_of)?);
    let found = diff(&a, &b, &settings).map_err(exit_of)?;
    match output {
        Output::Text => exit::print(text(&found)),
        Output::Json => exit::print_json(&serde_json::json!(found)),
    }?;
    match max_difference {
        Some(most) if found.exceeds(most) => {
            Err(Exit::Failed(format!("the outputs differ by more than {most}")))
        }
        _ => Ok(()),
    }
}

/// The differences of two outputs.
fn text(found: &Difference) -> String {
    let Difference { a, b, keys, rows, only_a, only_b, columns, .. } = found;
    let mut text = format!(
        "A {}\nB {}\n{rows} rows with the same {}; {only_a} only in A, {only_b} only in B\n",
        a.display(),
        b.display(),
        keys.join(", ")
    );
    for (name, rows) in [("A", &found.first_only_a), ("B", &found.first_only_b)] {
        for row in rows {
            text.push_str(&format!("only in {name}: {}\n", Key(row)));
        }
    }
    columns.iter().for_each(|column| text.push_str(&column_text(column)));
    text
}

/// The differences of a column.
pub(super) fn column_text(found: &ColumnDifference) -> String {
    let ColumnDifference { column, values, differing, unequal, largest, mean, worst, .. } = found;
    let mut text = format!("{column}: {differing} of {values} values differ");
    if *unequal > 0 {
        text.push_str(&format!(", {unequal} of them by no number"));
    }
    text.push_str(&format!("; largest difference {largest}, mean {mean}"));
    // Writing to a string does not fail.
    let _ = match (found.rank_correlation, found.lowest_rank_correlation) {
        (Some(mean), Some(lowest)) => {
            write!(text, ", rank correlation in rows {mean:.6}, lowest {lowest:.6}")
        }
        (Some(correlation), None) => write!(text, ", rank correlation {correlation:.6}"),
        _ => Ok(()),
    };
    text.push('\n');
    for Worst { key, index, a, b, .. } in worst {
        let index = index.map_or_else(String::new, |index| format!("[{index}]"));
        text.push_str(&format!("  {}{index}: {} and {}\n", Key(key), Plain(a), Plain(b)));
    }
    text
}

/// The values of a key, with the names of their columns.
struct Key<'a>(&'a Map<String, Value>);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            let before = if at == 0 { "" } else { ", " };
            write!(f, "{before}{name} {}", Plain(value))?;
        }
        Ok(())
    }
}

/// A value, where a text has no quotes.
struct Plain<'a>(&'a Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => f.write_str(text),
            other => write!(f, "{other}"),
        }
    }
}
