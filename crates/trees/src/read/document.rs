//! Models in JSON and UBJSON, which have the same keys.
//!
//! The keys are described by XGBoost's `doc/model.schema`. Keys that neither scores nor their
//! contributions depend on, such as other statistics of training, are skipped.

use std::iter;

use super::{
    Extent,
    model::{Booster, Content},
    pull::Document,
};
use crate::{Error, budget::Budget, error::invalid, tree::Arrays};

/// Reads `extent` of a model.
pub(crate) fn read<D: Document>(
    document: &mut D,
    extent: Extent,
    budget: &mut Budget,
) -> Result<Content, Error> {
    let (content, arrays) = (Content::default(), Arrays::default());
    let mut reading = Reading { content, arrays, extent, budget, lacks: None };
    let mut found = [false; 2];
    document.object(&mut |document, key| match key {
        // A model that was saved with its configuration is a document inside another.
        "Model" => document.object(&mut |document, key| reading.part(document, key, &mut found)),
        _ => reading.part(document, key, &mut found),
    })?;
    if let Some(at) = found.iter().position(|found| !found) {
        return Err(invalid(format!("it has no {}", PARTS[at])));
    }
    let Reading { content, arrays, budget, lacks, .. } = reading;
    arrays.free(budget);
    match lacks {
        Some(key) if content.version() >= (1, 3) => Err(invalid(format!("a tree has no {key}"))),
        _ if content.version() >= (2, 0) && content.iterations.is_empty() => {
            Err(invalid("model has no iteration_indptr"))
        }
        _ => Ok(content),
    }
}

/// The parts of a model.
const PARTS: [&str; 2] = ["learner", "version"];

/// The arrays of a tree that every version writes.
const ARRAYS: [&str; 6] = [
    "tree_param",
    "left_children",
    "right_children",
    "split_indices",
    "split_conditions",
    "default_left",
];

/// The arrays of categorical splits, which XGBoost writes since 1.3.
const CATEGORICAL: [&str; 5] =
    ["split_type", "categories", "categories_nodes", "categories_segments", "categories_sizes"];

struct Reading<'a> {
    content: Content,
    arrays: Arrays,
    extent: Extent,
    budget: &'a mut Budget,
    /// The first of [`CATEGORICAL`] that a tree lacks.
    lacks: Option<&'static str>,
}

impl Reading<'_> {
    /// Reads the value of a key, and marks those of [`PARTS`].
    fn part<D: Document>(
        &mut self,
        document: &mut D,
        key: &str,
        found: &mut [bool; 2],
    ) -> Result<(), Error> {
        match key {
            "learner" => {
                found[0] = true;
                self.learner(document)
            }
            "version" => {
                found[1] = true;
                document.numbers(&mut self.content.version, self.budget)
            }
            _ => document.skip(),
        }
    }

    fn learner<D: Document>(&mut self, document: &mut D) -> Result<(), Error> {
        let keys = ["learner_model_param", "gradient_booster", "objective"];
        document.object_of("learner", &keys, &mut |document, key| match key {
            "attributes" => self.attributes(document),
            "feature_names" => document.array(&mut |document| {
                let name = document.string()?;
                self.budget.push_text(&mut self.content.names, name)
            }),
            "gradient_booster" => self.booster(document),
            "learner_model_param" => self.parameters(document),
            "objective" => {
                document.object_of("objective", &["name"], &mut |document, key| match key {
                    "name" => set(&mut self.content.objective, document.string()),
                    _ => document.skip(),
                })
            }
            _ => document.skip(),
        })
    }

    fn attributes<D: Document>(&mut self, document: &mut D) -> Result<(), Error> {
        document.object(&mut |document, key| match key {
            "best_iteration" => {
                let text = document.string()?;
                self.content.best_iteration = text.parse().ok();
                Ok(())
            }
            _ => document.skip(),
        })
    }

    fn parameters<D: Document>(&mut self, document: &mut D) -> Result<(), Error> {
        let keys = ["base_score", "num_class", "num_feature"];
        document.object_of("learner_model_param", &keys, &mut |document, key| match key {
            "base_score" => {
                let text = document.string()?;
                self.content.base = base_score(&text, self.budget)?;
                Ok(())
            }
            "num_feature" => set(&mut self.content.features, number(document)),
            "num_class" => set(&mut self.content.classes, number(document)),
            "num_target" => set(&mut self.content.targets, number(document)),
            _ => document.skip(),
        })
    }

    /// The booster. That of old files with dart has another one inside.
    fn booster<D: Document>(&mut self, document: &mut D) -> Result<(), Error> {
        let name = "gradient_booster";
        let mut has_model = false;
        document.object_of(name, &["name"], &mut |document, key| match key {
            "name" => {
                let name = document.string()?;
                self.content.booster = Booster::named(&name)?;
                Ok(())
            }
            "gbtree" => document.object(&mut |document, key| match key {
                "model" => {
                    has_model = true;
                    self.model(document)
                }
                _ => document.skip(),
            }),
            "model" => {
                has_model = true;
                self.model(document)
            }
            "weight_drop" => document.numbers(&mut self.content.weights, self.budget),
            _ => document.skip(),
        })?;
        if has_model { Ok(()) } else { Err(invalid(format!("{name} has no model"))) }
    }

    fn model<D: Document>(&mut self, document: &mut D) -> Result<(), Error> {
        let keys = ["gbtree_model_param", "trees", "tree_info"];
        let mut declared = 0_usize;
        let of_parameters = "gbtree_model_param";
        document.object_of("model", &keys, &mut |document, key| match key {
            "gbtree_model_param" => {
                document.object_of(of_parameters, &["num_trees"], &mut |document, key| match key {
                    "num_trees" => set(&mut declared, number(document)),
                    "num_parallel_tree" => set(&mut self.content.parallel, number(document)),
                    _ => document.skip(),
                })
            }
            "cats" => document.object(&mut |document, key| match key {
                "enc" => {
                    let mut column = 0;
                    document.array(&mut |document| {
                        column += 1;
                        self.categories(document, column - 1)
                    })
                }
                _ => document.skip(),
            }),
            "trees" => document.array(&mut |document| {
                self.content.count += 1;
                if self.extent == Extent::Header {
                    return document.skip();
                }
                self.arrays(document)?;
                let tree = self.arrays.tree(self.budget)?;
                self.budget.push(&mut self.content.trees, tree)
            }),
            "tree_info" => document.numbers(&mut self.content.groups, self.budget),
            "iteration_indptr" => document.numbers(&mut self.content.iterations, self.budget),
            "weight_drop" => document.numbers(&mut self.content.weights, self.budget),
            // The only key of a linear model, whose name comes behind it.
            "weights" => Booster::named("gblinear").map(drop),
            _ => document.skip(),
        })?;
        if declared != self.content.count {
            let count = self.content.count;
            return Err(invalid(format!("num_trees is {declared}, but it has {count} trees")));
        }
        Ok(())
    }

    /// Reads the categories of a column, which are numbers, or the bytes of texts with the place at
    /// which each begins and the last one ends. For frames of pandas XGBoost counts these places in
    /// characters, and cuts the bytes off there, so texts that are not ASCII give a list for each
    /// way of counting, and characters that are lost are [`char::REPLACEMENT_CHARACTER`].
    fn categories<D: Document>(&mut self, document: &mut D, column: usize) -> Result<(), Error> {
        let (mut offsets, mut values) = (Vec::<u64>::new(), Vec::<f64>::new());
        document.object(&mut |document, key| match key {
            "offsets" => document.numbers(&mut offsets, self.budget),
            "values" => document.numbers(&mut values, self.budget),
            _ => document.skip(),
        })?;
        let mut words = Vec::new();
        let mut others = Vec::new();
        if offsets.is_empty() {
            for value in &values {
                self.budget.push_text(&mut words, value.to_string())?;
            }
        }
        let bytes: Vec<_> = values.iter().map(|byte| *byte as i64 as u8).collect();
        let whole = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let mut characters = whole.chars().chain(iter::repeat(char::REPLACEMENT_CHARACTER));
        for ends in offsets.windows(2) {
            let range = ends[0] as usize..ends[1] as usize;
            let length = range.len();
            let word = bytes.get(range).ok_or_else(|| invalid("the offsets of cats are wrong"))?;
            let word = String::from_utf8_lossy(word).into_owned();
            self.budget.push_text(&mut words, word)?;
            if !bytes.is_ascii() {
                let word = characters.by_ref().take(length).collect();
                self.budget.push_text(&mut others, word)?;
            }
        }
        self.budget.release::<u64>(offsets.capacity() + values.capacity());
        for words in [others, words].into_iter().filter(|words| !words.is_empty()) {
            self.budget.push(&mut self.content.categories, (Some(column), words))?;
        }
        Ok(())
    }

    fn arrays<D: Document>(&mut self, document: &mut D) -> Result<(), Error> {
        let (arrays, budget) = (&mut self.arrays, &mut *self.budget);
        // In old files a vector of a leaf is one of the weights of all nodes, whose key comes
        // before the width. The first tree decides for all.
        let weights = self.content.trees.first().is_none_or(|tree| tree.width > 1);
        arrays.clear();
        let mut nodes = 0_usize;
        let mut sets = 0_u32;
        document.object_of("a tree", &ARRAYS, &mut |document, key| {
            if let Some(at) = CATEGORICAL.iter().position(|known| *known == key) {
                sets |= 1 << at;
            }
            match key {
                "left_children" => document.numbers(&mut arrays.left, budget),
                "right_children" => document.numbers(&mut arrays.right, budget),
                "split_indices" => document.numbers(&mut arrays.feature, budget),
                "split_conditions" => document.numbers(&mut arrays.condition, budget),
                "default_left" => document.numbers(&mut arrays.default_left, budget),
                "split_type" => document.numbers(&mut arrays.split_type, budget),
                "categories" => document.numbers(&mut arrays.categories, budget),
                "categories_nodes" => document.numbers(&mut arrays.categorical, budget),
                "categories_segments" => document.numbers(&mut arrays.segments, budget),
                "categories_sizes" => document.numbers(&mut arrays.sizes, budget),
                "leaf_weights" => document.numbers(&mut arrays.vectors, budget),
                "sum_hessian" => document.numbers(&mut arrays.covers, budget),
                "base_weights" if weights => document.numbers(&mut arrays.weights, budget),
                "tree_param" => {
                    let keys = ["num_nodes", "size_leaf_vector"];
                    document.object_of("tree_param", &keys, &mut |document, key| match key {
                        "num_nodes" => set(&mut nodes, number(document)),
                        "size_leaf_vector" => set(&mut arrays.width, number(document)),
                        _ => document.skip(),
                    })
                }
                _ => document.skip(),
            }
        })?;
        if nodes != arrays.left.len() {
            let count = arrays.left.len();
            return Err(invalid(format!("num_nodes is {nodes}, but left_children has {count}")));
        }
        if let Some(key) = CATEGORICAL.get(sets.trailing_ones() as usize) {
            self.lacks = self.lacks.or(Some(key));
        }
        Ok(())
    }
}

fn set<T>(target: &mut T, value: Result<T, Error>) -> Result<(), Error> {
    *target = value?;
    Ok(())
}

/// A number that is written as a string.
fn number<D: Document, T: std::str::FromStr>(document: &mut D) -> Result<T, Error> {
    let text = document.string()?;
    text.parse().map_err(|_| invalid(format!("{text:?} is no number of a parameter")))
}

/// Base scores: one for all outputs, as `5E-1`, or, since XGBoost 3.1, a list, as `[5E-1,4E-1]`.
fn base_score(text: &str, budget: &mut Budget) -> Result<Vec<f32>, Error> {
    let list = text.trim().trim_start_matches(['[', '(']).trim_end_matches([']', ')']);
    let mut scores = Vec::new();
    for score in list.split(',') {
        let score = score.trim().parse::<f32>();
        let score = score.map_err(|_| invalid(format!("base_score is {text:?}")))?;
        budget.push(&mut scores, score)?;
    }
    Ok(scores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    #[test]
    fn base_scores_have_two_forms() {
        let read = |text| base_score(text, &mut Budget::new(&Limits::default(), 0)).ok();
        assert_eq!(read("5E-1"), Some(vec![0.5]));
        assert_eq!(read("[6.1E-1]"), Some(vec![0.61]));
        assert_eq!(read("[1E0, -2.5E-1,3]"), Some(vec![1.0, -0.25, 3.0]));
        assert_eq!(read("(1)"), Some(vec![1.0]));
        assert_eq!(read("[]"), None);
        assert_eq!(read("half"), None);
    }
}
