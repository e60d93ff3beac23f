//! Metric labels for the names and tags of models, limited in number.

use std::{
    collections::HashSet,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwap;
use outrigger_core::{ModelName, machines::TagKey};

/// The label shared by models without one of their own.
pub const OTHER: &str = "other";

/// The assigned labels. Reading takes no lock, because requests read.
struct Labels {
    given: ArcSwap<HashSet<Arc<str>>>,
    giving: Mutex<()>,
    most: AtomicUsize,
}

static LABELS: LazyLock<Labels> = LazyLock::new(|| Labels::new(500));
/// Tags that have had a canary on trial, with their models.
static TRIALS: LazyLock<Labels> = LazyLock::new(|| Labels::new(500));

/// Sets the number of models that get a label of their own, in the order in which they come into
/// service, and the number of their tags that do, in the order of their trials. Labels already
/// assigned stay.
pub fn limit_models(most: usize) {
    LABELS.most.store(most, Relaxed);
    TRIALS.most.store(most, Relaxed);
}

/// The label of a served model; `None` for [`OTHER`]. Must not be called with names made up by
/// callers.
pub fn model_label(model: &ModelName) -> Option<Arc<str>> {
    LABELS.of(model.as_str())
}

/// The labels of a model and of its tag with a canary on trial; `None` if it has none.
pub(crate) fn trial_labels(key: &TagKey) -> Option<(Arc<str>, Arc<str>)> {
    let TagKey { name, tag } = key;
    let model = model_label(name)?;
    TRIALS.of(&format!("{name}:{tag}"))?;
    Some((model, Arc::from(tag.as_str())))
}

impl Labels {
    fn new(most: usize) -> Self {
        Self { given: ArcSwap::default(), giving: Mutex::default(), most: AtomicUsize::new(most) }
    }

    fn of(&self, model: &str) -> Option<Arc<str>> {
        let given = self.given.load();
        if let Some(label) = given.get(model) {
            return Some(Arc::clone(label));
        }
        if given.len() >= self.most.load(Relaxed) { None } else { self.give(model) }
    }

    fn give(&self, model: &str) -> Option<Arc<str>> {
        let _one = self.giving.lock().unwrap_or_else(PoisonError::into_inner);
        let given = self.given.load();
        if let Some(label) = given.get(model) {
            return Some(Arc::clone(label));
        }
        if given.len() >= self.most.load(Relaxed) {
            return None;
        }
        let label: Arc<str> = Arc::from(model);
        let mut more = HashSet::clone(&given);
        more.insert(Arc::clone(&label));
        self.given.store(Arc::new(more));
        Some(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_models_have_no_label_of_their_own() {
        let labels = Labels::new(2);
        let label = |model| labels.of(model).map(|label| label.to_string());
        let own = |model: &str| Some(model.to_owned());
        assert_eq!([label("a"), label("b"), label("c")], [own("a"), own("b"), None]);
        assert_eq!([label("a"), label("d")], [own("a"), None]);
        labels.most.store(3, Relaxed);
        assert_eq!([label("d"), label("c")], [own("d"), None]);
    }

    #[test]
    fn threads_that_race_do_not_get_more() {
        let labels = Labels::new(3);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let labels = &labels;
                scope.spawn(move || {
                    for model in 0..100 {
                        labels.of(&format!("{thread}-{model}"));
                    }
                });
            }
        });
        assert_eq!(labels.given.load().len(), 3);
    }
}
