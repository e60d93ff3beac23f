//! The comparison as text.

use std::fmt::{self, Display, Formatter};

use outrigger_core::printable;
use outrigger_validation::{Agreement, Tolerance};

use super::{Change, FeatureChange, Report, ScoreFailure, Scores, Summary};
use crate::inspect::{FeatureReport, size};

/// A report as text.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    report: &'a Report,
    tolerance: Tolerance,
}

impl Report {
    /// The report as text; `tolerance` is that of the comparison.
    pub fn text(&self, tolerance: Tolerance) -> Text<'_> {
        Text { report: self, tolerance }
    }
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Report { a, b, shared_blobs, features, signature, golden, rows, scores_skipped } =
            self.report;
        for (name, Summary { digest, packed_bytes, unpacked_bytes }) in [("A", a), ("B", b)] {
            let (packed, unpacked) = (size(*packed_bytes), size(*unpacked_bytes));
            writeln!(f, "{name:10} {digest}, {packed} packed, {unpacked} on disk")?;
        }
        writeln!(f, "shared     {} blobs, {}", shared_blobs.count, size(shared_blobs.bytes))?;
        features.iter().try_for_each(|feature| write!(f, "{feature}"))?;
        signature.iter().try_for_each(|change| writeln!(f, "signature  {change}"))?;
        if let Some(reason) = scores_skipped {
            writeln!(f, "scores     not compared: {reason}")?;
        }
        for (name, unit, scores) in [("golden", "line", golden), ("rows", "request", rows)] {
            if let Some(scores) = scores {
                write_scores(f, name, scores)?;
                write_agreement(f, unit, (&scores.agreement, self.tolerance))?;
            }
        }
        Ok(())
    }
}

impl Display for FeatureChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { kinds, entity, name, a, b, definition } = self;
        let kinds: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
        let name = printable(name.clone());
        write!(f, "feature    {entity} {name} {}", kinds.join(", "))?;
        match (a, b) {
            (Some(a), Some(b)) if a != b => writeln!(f, ": {} -> {}", place(a), place(b))?,
            (Some(only), None) | (None, Some(only)) => writeln!(f, ": {}", place(only))?,
            _ => writeln!(f)?,
        }
        definition.iter().try_for_each(|change| writeln!(f, "           {change}"))
    }
}

fn place(feature: &FeatureReport) -> String {
    printable(format!("{}[{}] {}", feature.tensor, feature.positions(), feature.dtype))
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        let change = format!("{}: {} -> {}", self.subject, value(&self.a), value(&self.b));
        f.write_str(&printable(change))
    }
}

fn write_scores(f: &mut Formatter<'_>, name: &str, scores: &Scores) -> fmt::Result {
    let Scores { requests, only_a, only_b, unscored, incomparable, .. } = scores;
    writeln!(f, "{name:10} {requests} requests answered by both models")?;
    if only_a + only_b + unscored > 0 {
        writeln!(
            f,
            "           {only_a} scored by A only, {only_b} by B only, {unscored} by neither"
        )?;
    }
    if *incomparable > 0 {
        writeln!(f, "           {incomparable} with other numbers of scores in A than in B")?;
    }
    if scores.stopped {
        writeln!(f, "           stopped after too many rows that were sent to neither")?;
    }
    for ScoreFailure { at, reason, message } in &scores.first_failures {
        writeln!(f, "           {at}: {reason}: {message}")?;
    }
    Ok(())
}

fn write_agreement(
    f: &mut Formatter<'_>,
    unit: &str,
    (agreement, tolerance): (&Agreement, Tolerance),
) -> fmt::Result {
    if agreement.compared == 0 {
        return Ok(());
    }
    let lines = agreement.lines(tolerance, ["A", "B"], unit);
    lines.iter().try_for_each(|line| writeln!(f, "           {line}"))
}
