//! Scores dense rows: times and margins.

use std::{collections::HashMap, hint::black_box, path::Path};

use serde_json::Value;

use crate::{
    Result,
    lightgbm::LightGbm,
    model::{Model, Scorer, values},
    ours::Ours,
    rows::{Entries, Entry, dense, of_kind},
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

/// Answers `time NAME ROWS`, `margins NAME ROWS KIND` or `matrix NAME ROWS KIND`.
pub(crate) fn answer(scorers: &mut Scorers<'_>, question: &str) -> Result<Value> {
    let words: Vec<_> = question.split(' ').collect();
    let (&[what, name, count], kind) = words.split_first_chunk().ok_or("too few words")?;
    let (model, scorer) = scorers.get_mut(name).ok_or_else(|| format!("no model {name}"))?;
    let (scorer, count) = (&mut **scorer, count.parse()?);
    let rows = |kind| of_kind(kind, &model.rows).ok_or_else(|| format!("no kind {kind}"));
    match (what, kind) {
        ("time", []) => seconds(model, scorer, count),
        ("margins", [kind]) => margins(model, scorer, count, &dense(&rows(kind)?)),
        ("matrix", [kind]) => margins_of_matrix(model, scorer, count, &rows(kind)?),
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

/// The bits of the margins of all whole batches of `count` dense rows.
fn margins(model: &Model, scorer: &mut dyn Scorer, count: usize, rows: &[f32]) -> Result<Value> {
    let batches = model.batches(count);
    scorer.prepare(rows, model.width, &batches)?;
    let mut bits = Vec::new();
    for at in 0..batches.len() {
        scorer.margins(rows, at)?.append_bits(&mut bits);
    }
    Ok(bits.into())
}

/// The bits of the margins of all whole batches of `count` rows that are given as sparse ones.
fn margins_of_matrix(
    model: &Model,
    scorer: &mut dyn Scorer,
    count: usize,
    rows: &[Entry],
) -> Result<Value> {
    let mut bits = Vec::new();
    for batch in model.batches(count) {
        let entries = Entries::of(&rows[values(&batch, model.width)], model.width);
        scorer.margins_of(&entries)?.append_bits(&mut bits);
    }
    Ok(bits.into())
}
