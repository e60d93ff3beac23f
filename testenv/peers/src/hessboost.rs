//! hessboost, on one thread.

use std::{env, fs, ops::Range, path::Path, process};

use ::hessboost::model::{BoostedModel, ModelFormat, Predictions};
use serde_json::Value;

use crate::{
    Result,
    model::{Margins, Model, Scorer, values},
};

/// A model loaded into hessboost.
pub(crate) struct Hessboost {
    model: BoostedModel,
    width: usize,
    batches: Vec<Range<usize>>,
    row: [f32; 1],
    rows: Option<Predictions>,
}

impl Hessboost {
    pub(crate) fn new(model: &Model) -> Result<Self> {
        // Fails if there are threads already, and then they are these.
        rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().ok();
        let name = format!("outrigger-hessboost-{}-{}.json", process::id(), model.name);
        let file = env::temp_dir().join(name);
        fs::write(&file, newest(&model.file)?)?;
        let read = BoostedModel::load(&file, ModelFormat::XgboostJson);
        fs::remove_file(&file)?;
        let read = read?;
        Ok(Self { model: read, width: model.width, batches: Vec::new(), row: [0.0], rows: None })
    }
}

/// A model file in which the base score is a list. XGBoost writes that since 3.1, and hessboost reads
/// nothing else.
fn newest(file: &Path) -> Result<String> {
    let mut content: Value = serde_json::from_slice(&fs::read(file)?)?;
    let base = &mut content["learner"]["learner_model_param"]["base_score"];
    let number = base.as_str().ok_or("there is no base score")?.trim_matches(['[', ']']);
    *base = format!("[{number}]").into();
    Ok(content.to_string())
}

impl Scorer for Hessboost {
    fn prepare(&mut self, _: &[f32], width: usize, batches: &[Range<usize>]) -> Result<()> {
        self.width = width;
        self.batches = batches.to_vec();
        Ok(())
    }

    fn margins(&mut self, rows: &[f32], at: usize) -> Result<Margins<'_>> {
        let batch = &self.batches[at];
        let rows = &rows[values(batch, self.width)];
        // Its function for a single row is the faster one.
        if batch.len() == 1 {
            self.model.predict_margin_row_into(rows, .., &mut self.row)?;
            return Ok(Margins::Single(&self.row));
        }
        let predicted = self.rows.insert(self.model.predict_margin_rows(rows, ..)?);
        Ok(Margins::Single(predicted.as_slice()))
    }
}
