//! The text format of LightGBM.
//!
//! The keys are those of `GBDT::SaveModelToString` and `Tree::ToString` in LightGBM's sources. Those
//! that scores do not depend on, such as statistics of training, are skipped. Behind the trees, only
//! the categories of columns are read.

mod block;
mod linear;

use super::{
    Extent,
    json::Json,
    lines::{Line, Lines},
    model::{Content, Library},
    pull::Document as _,
};
use crate::{
    Error,
    budget::Budget,
    double::{Double, Transform},
    error::invalid,
};
use block::Block;

/// Reads a model. Its splits keep their thresholds in f64 if `extent` says so.
pub(crate) fn read(
    mut source: Lines<'_>,
    extent: Extent,
    budget: &mut Budget,
) -> Result<Content, Error> {
    let lines = &mut source;
    let mut header = Header::default();
    let first = header.read(lines, budget)?;
    let mut content = header.content(budget)?;
    let mut block = Block::new(extent == Extent::Doubles);
    let mut nodes = 0;
    let mut line = first;
    loop {
        match line {
            Line::Key(key) if key == "Tree" => {
                lines.skip()?;
                line = block.read(lines, budget)?;
                let tree = block.tree(budget)?;
                block.models.add_to(&mut content.linear, nodes, &tree, budget)?;
                nodes += tree.nodes.len();
                let group = content.trees.len() % content.outputs();
                budget.push(&mut content.trees, tree)?;
                budget.push(&mut content.groups, group as u32)?;
            }
            Line::Word(word) if is_end(&word) => break,
            Line::Key(other) | Line::Word(other) => {
                return Err(invalid(format!("{other:?} is in the place of a tree")));
            }
            Line::End => return Err(invalid("it has no \"end of trees\"")),
        }
    }
    header.check(&content)?;
    content.count = content.trees.len();
    if let Some(rest) = source.behind(b"pandas_categorical:")? {
        categories(&mut Json::new(rest), &mut content.categories, budget)?;
        header.place(&mut content.categories);
    }
    Ok(content)
}

/// Reads the categories of the columns that had some in the training's frame of pandas, which is null
/// if there was none.
fn categories(
    json: &mut Json<'_>,
    into: &mut Vec<(Option<usize>, Vec<String>)>,
    budget: &mut Budget,
) -> Result<(), Error> {
    if json.next()? == b'n' {
        return json.skip();
    }
    json.array(&mut |json| {
        let mut words = Vec::new();
        json.array(&mut |json| {
            let word = match json.next()? {
                b'"' => json.string()?,
                b't' | b'f' => (json.number::<u8>()? == 1).to_string(),
                _ => json.number::<f64>()?.to_string(),
            };
            budget.push_text(&mut words, word)
        })?;
        budget.push(into, (None, words))
    })
}

/// True for the line behind the last tree. LightGBM before 2.2 wrote none of its own.
fn is_end(line: &str) -> bool {
    matches!(line, "end of trees" | "feature importances:" | "feature_importances:")
}

/// The lines before the first tree.
#[derive(Debug, Default)]
struct Header {
    version: u32,
    /// Trees of an iteration, which are the outputs of a row.
    outputs: usize,
    last_feature: Option<usize>,
    objective: String,
    averaged: bool,
    names: Vec<String>,
    /// The number of trees, if the file has it.
    trees: Option<usize>,
    /// The columns with categories, each with its largest code in the training.
    categorical: Vec<(usize, i64)>,
}

impl Header {
    /// Reads the header, and returns the line behind it.
    fn read(&mut self, lines: &mut Lines<'_>, budget: &mut Budget) -> Result<Line, Error> {
        loop {
            let line = lines.next()?;
            match &line {
                Line::Key(key) if key != "Tree" => self.value(key, lines, budget)?,
                Line::Word(word) if word == "average_output" => self.averaged = true,
                Line::Word(word) if !is_end(word) => {}
                _ => return Ok(line),
            }
        }
    }

    fn value(
        &mut self,
        key: &str,
        lines: &mut Lines<'_>,
        budget: &mut Budget,
    ) -> Result<(), Error> {
        match key {
            "version" => {
                let text = lines.text()?;
                // Before version 2 the format had no versions, and was another one.
                self.version = text.trim().trim_start_matches('v').parse().unwrap_or_default();
            }
            // Before `num_tree_per_iteration` existed, its value was this.
            "num_class" if self.outputs == 0 => self.outputs = lines.number(key)?,
            "num_tree_per_iteration" => self.outputs = lines.number(key)?,
            "max_feature_idx" => self.last_feature = Some(lines.number(key)?),
            "objective" => self.objective = lines.text()?,
            "feature_names" => {
                while let Some(name) = lines.word()? {
                    budget.push_text(&mut self.names, name)?;
                }
            }
            "feature_infos" => self.categorical = lines.largest(budget)?,
            "tree_sizes" => {
                let mut count = 0;
                while lines.word()?.is_some() {
                    count += 1;
                }
                self.trees = Some(count);
            }
            _ => lines.skip()?,
        }
        Ok(())
    }

    /// A model without trees.
    fn content(&mut self, budget: &mut Budget) -> Result<Content, Error> {
        if self.version < 2 {
            return Err(Error::Unsupported(
                "it has no version of the format, as LightGBM before 2.0 wrote it; load it with a \
                 newer LightGBM and save it again"
                    .to_owned(),
            ));
        }
        let last = self.last_feature.ok_or_else(|| invalid("it has no max_feature_idx"))?;
        if self.outputs == 0 {
            return Err(invalid("it has no outputs: num_class is missing or 0"));
        }
        if self.names.is_empty() {
            return Err(invalid("it has no feature_names"));
        }
        // The names of features that have none.
        let unnamed = |(at, name): (usize, &String)| *name == format!("Column_{at}");
        if self.names.iter().enumerate().all(unnamed) {
            let bytes = self.names.iter().map(String::capacity).sum();
            budget.release::<u8>(bytes);
            budget.release::<String>(self.names.capacity());
            self.names = Vec::new();
        }
        let transform = transform(&self.objective)?;
        Ok(Content {
            library: Library::Lightgbm,
            base: vec![0.0],
            features: last.saturating_add(1),
            names: std::mem::take(&mut self.names),
            classes: self.outputs,
            double: Some(Double { averaged: self.averaged, ..Double::plain(transform) }),
            ..Content::default()
        })
    }

    /// Gives lists of categories their columns, where each list fits to a column that the trees have
    /// categories of: others may be those of a column that is compared as a number.
    fn place(&self, lists: &mut [(Option<usize>, Vec<String>)]) {
        let fits = |((_, words), (_, largest)): (&(_, Vec<_>), &(_, i64))| {
            usize::try_from(*largest).map_or(true, |largest| largest < words.len())
        };
        if lists.len() == self.categorical.len() && lists.iter().zip(&self.categorical).all(fits) {
            for ((place, _), (column, _)) in lists.iter_mut().zip(&self.categorical) {
                *place = Some(*column);
            }
        }
    }

    /// Checks the number of trees.
    fn check(&self, content: &Content) -> Result<(), Error> {
        let count = content.trees.len();
        if self.trees.is_some_and(|trees| trees != count) {
            return Err(invalid(format!(
                "tree_sizes has not one element for each of {count} trees"
            )));
        }
        if !count.is_multiple_of(self.outputs) {
            let outputs = self.outputs;
            return Err(invalid(format!("it has {count} trees, {outputs} in an iteration")));
        }
        Ok(())
    }
}

/// The transformation of an objective: its name, and its parameters. One that is not known has
/// margins for values, as a custom objective does.
fn transform(objective: &str) -> Result<Transform, Error> {
    let mut words = objective.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let factor = match words.clone().find_map(|word| word.strip_prefix("sigmoid:")) {
        None => 1.0,
        Some(text) => text
            .parse()
            .ok()
            .filter(|factor: &f64| *factor > 0.0)
            .ok_or_else(|| invalid(format!("the sigmoid of its objective is {text:?}")))?,
    };
    Ok(match name {
        "binary" | "multiclassova" | "multiclass_ova" | "ova" | "ovr" => Transform::Sigmoid(factor),
        "cross_entropy" | "xentropy" => Transform::Sigmoid(1.0),
        "cross_entropy_lambda" | "xentlambda" => Transform::Softplus,
        "multiclass" | "softmax" => Transform::Softmax,
        "poisson" | "gamma" | "tweedie" => Transform::Exponential,
        "regression" | "regression_l1" | "fair" | "quantile" | "mape"
            if words.any(|word| word == "sqrt") =>
        {
            Transform::SignedSquare
        }
        _ => Transform::Identity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::source::Source;

    #[test]
    fn lists_of_categories_have_their_columns() {
        let of = |infos: &str| {
            let text = format!(
                "tree\nversion=v4\nnum_class=1\nmax_feature_idx=3\nfeature_names=a b c d\n\
                 feature_infos={infos}\nend of trees\npandas_categorical:[[\"x\", \"y\"], [7]]\n"
            );
            let mut file = text.as_bytes();
            let size = text.len() as u64;
            let mut budget = Budget::new(&crate::Limits::default(), size);
            let source = Source::new(&mut file, size, &mut budget).expect("memory");
            let content = read(Lines::new(source), Extent::Header, &mut budget).expect("a model");
            content.categories
        };
        let columns =
            |infos: &str| of(infos).into_iter().map(|(column, _)| column).collect::<Vec<_>>();
        let words = of("").into_iter().map(|(_, words)| words).collect::<Vec<_>>();
        assert_eq!(words, [&["x", "y"][..], &["7"]]);
        let range = "[-1.5:2]";
        assert_eq!(columns(&format!("{range} 1:0 none 0:-1")), [Some(1), Some(3)]);
        assert_eq!(columns(&format!("-1:1  {range}\r {range} -1")), [Some(0), Some(3)]);
        for other in
            ["", "1:0 none none none", "1:0 0 0 [0:1]", "0:2 0 none none", "0 1:0 none none"]
        {
            assert_eq!(columns(other), [None, None], "{other:?}");
        }
        let long = format!("{}:0 {range}{} 0 none", "1:".repeat(1 << 20), "7".repeat(1 << 20));
        assert_eq!(columns(&long), [Some(0), Some(2)]);
    }

    #[test]
    fn objectives_have_parameters() {
        let cases = [
            ("binary sigmoid:1", Transform::Sigmoid(1.0)),
            ("multiclassova num_class:3 sigmoid:0.5", Transform::Sigmoid(0.5)),
            ("cross_entropy", Transform::Sigmoid(1.0)),
            ("multiclass num_class:3", Transform::Softmax),
            ("regression", Transform::Identity),
            ("regression sqrt", Transform::SignedSquare),
            ("huber sqrt", Transform::Identity),
            ("tweedie tweedie_variance_power:1.5", Transform::Exponential),
            ("cross_entropy_lambda", Transform::Softplus),
            ("lambdarank", Transform::Identity),
            ("custom", Transform::Identity),
            ("", Transform::Identity),
        ];
        for (objective, expected) in cases {
            assert_eq!(transform(objective).expect("a transformation"), expected, "{objective}");
        }
        for objective in ["binary sigmoid:", "binary sigmoid:-1", "binary sigmoid:NaN"] {
            assert!(transform(objective).is_err(), "{objective}");
        }
    }
}
