//! Models in JSON and UBJSON, which have the same keys.
//!
//! The keys are described by XGBoost's `doc/model.schema`. Keys that neither scores nor their
//! contributions depend on, such as other statistics of training, are skipped.

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
    let mut reading = Reading { content, arrays, extent, budget };
    let mut found = false;
    document.object(&mut |document, key| match key {
        // A model that was saved with its configuration is a document inside another.
        "Model" => document.object(&mut |document, key| match key {
            "learner" => {
                found = true;
                reading.learner(document)
            }
            _ => reading.version(document, key),
        }),
        "learner" => {
            found = true;
            reading.learner(document)
        }
        _ => reading.version(document, key),
    })?;
    if !found {
        return Err(invalid("it has no learner"));
    }
    let Reading { content, arrays, budget, .. } = reading;
    arrays.free(budget);
    Ok(content)
}

struct Reading<'a> {
    content: Content,
    arrays: Arrays,
    extent: Extent,
    budget: &'a mut Budget,
}

impl Reading<'_> {
    fn version<D: Document>(&mut self, document: &mut D, key: &str) -> Result<(), Error> {
        match key {
            "version" => document.numbers(&mut self.content.version, self.budget),
            _ => document.skip(),
        }
    }

    fn learner<D: Document>(&mut self, document: &mut D) -> Result<(), Error> {
        document.object(&mut |document, key| match key {
            "attributes" => self.attributes(document),
            "feature_names" => document.array(&mut |document| {
                let name = document.string()?;
                self.budget.charge::<u8>(name.len())?;
                self.budget.push(&mut self.content.names, name)
            }),
            "gradient_booster" => self.booster(document),
            "learner_model_param" => self.parameters(document),
            "objective" => document.object(&mut |document, key| match key {
                "name" => set(&mut self.content.objective, document.string()),
                _ => document.skip(),
            }),
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
        document.object(&mut |document, key| match key {
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
        document.object(&mut |document, key| match key {
            "name" => {
                let name = document.string()?;
                self.content.booster = Booster::named(&name)?;
                Ok(())
            }
            "gbtree" => document.object(&mut |document, key| match key {
                "model" => self.model(document),
                _ => document.skip(),
            }),
            "model" => self.model(document),
            "weight_drop" => document.numbers(&mut self.content.weights, self.budget),
            _ => document.skip(),
        })
    }

    fn model<D: Document>(&mut self, document: &mut D) -> Result<(), Error> {
        document.object(&mut |document, key| match key {
            "gbtree_model_param" => document.object(&mut |document, key| match key {
                "num_parallel_tree" => set(&mut self.content.parallel, number(document)),
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
            _ => document.skip(),
        })
    }

    fn arrays<D: Document>(&mut self, document: &mut D) -> Result<(), Error> {
        let (arrays, budget) = (&mut self.arrays, &mut *self.budget);
        // In old files a vector of a leaf is one of the weights of all nodes, whose key comes
        // before the width. The first tree decides for all.
        let weights = self.content.trees.first().is_none_or(|tree| tree.width > 1);
        arrays.clear();
        document.object(&mut |document, key| match key {
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
            "tree_param" => document.object(&mut |document, key| match key {
                "size_leaf_vector" => set(&mut arrays.width, number(document)),
                _ => document.skip(),
            }),
            _ => document.skip(),
        })
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
