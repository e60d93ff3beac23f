//! Scores dense rows: times and margins.

use std::{collections::HashMap, hint::black_box, path::Path};

use serde_json::Value;

use crate::{
    Result,
    lightgbm::LightGbm,
    model::{Margins, Model, Scorer},
    ours::Ours,
    timer,
    xgboost::{Library, XGBoost},
};

/// Models by their names, each with the library that scores it.
pub(crate) type Scorers<'a> = HashMap<&'a str, (&'a Model, Box<dyn Scorer + 'a>)>;

/// Reads models and their rows.
pub(crate) fn read(paths: &[&str]) -> Result<Vec<Model>> {
    paths.iter().map(|path| Model::read(Path::new(path))).collect()
}

/// Loads the models into a library.
pub(crate) fn load<'a>(library: &str, models: &'a [Model]) -> Result<Scorers<'a>> {
    let loaded =
        models.iter().map(|model| Ok((model.name.as_str(), (model, scorer(library, model)?))));
    loaded.collect()
}

fn scorer<'a>(library: &str, model: &'a Model) -> Result<Box<dyn Scorer + 'a>> {
    match library {
        "ours" => Ok(Box::new(Ours::new(model))),
        #[cfg(feature = "hessboost")]
        "hessboost" => Ok(Box::new(crate::hessboost::Hessboost::new(model)?)),
        path if path.ends_with("lib_lightgbm.so") => Ok(Box::new(LightGbm::new(path, model)?)),
        path => Ok(Box::new(XGBoost::new(Library::open(path)?, model)?)),
    }
}

/// Answers `time NAME ROWS` or `margins NAME ROWS KIND`.
pub(crate) fn answer(scorers: &mut Scorers<'_>, question: &str) -> Result<Value> {
    let words: Vec<_> = question.split(' ').collect();
    let (&[what, name, count], kind) = words.split_first_chunk().ok_or("too few words")?;
    let (model, scorer) = scorers.get_mut(name).ok_or_else(|| format!("no model {name}"))?;
    match (what, kind) {
        ("time", []) => seconds(model, &mut **scorer, count.parse()?),
        ("margins", ["dense"]) => margins(model, &mut **scorer, count.parse()?, &model.rows),
        ("margins", ["missing"]) => {
            margins(model, &mut **scorer, count.parse()?, &with_missing(&model.rows))
        }
        _ => Err(format!("not understood: {question}").into()),
    }
}

/// Seconds a call with `count` rows. Successive calls have different rows, as far as there are any.
fn seconds(model: &Model, scorer: &mut dyn Scorer, count: usize) -> Result<Value> {
    let batches = model.batches(count);
    scorer.prepare(&model.rows, model.width, &batches)?;
    timer::seconds(|at| {
        black_box(scorer.margins(&model.rows, at % batches.len())?);
        Ok(())
    })
}

/// The bits of the margins of all whole batches of `count` rows.
fn margins(model: &Model, scorer: &mut dyn Scorer, count: usize, rows: &[f32]) -> Result<Value> {
    let batches = model.batches(count);
    scorer.prepare(rows, model.width, &batches)?;
    let mut bits = Vec::new();
    for at in 0..batches.len() {
        match scorer.margins(rows, at)? {
            Margins::Single(margins) => {
                bits.extend(margins.iter().map(|margin| u64::from(margin.to_bits())));
            }
            Margins::Double(margins) => bits.extend(margins.iter().map(|margin| margin.to_bits())),
        }
    }
    Ok(bits.into())
}

/// The rows with a tenth of the values missing, spread evenly by the golden ratio.
fn with_missing(rows: &[f32]) -> Vec<f32> {
    let is_missing = |at: usize| (at as f64 * 0.618_033_988_749_895).fract() < 0.1;
    let values = rows.iter().enumerate();
    values.map(|(at, value)| if is_missing(at) { f32::NAN } else { *value }).collect()
}
