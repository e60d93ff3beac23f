//! Models' names as labels: never more than a bounded number of them. What every
//! request of a model counts is looked up once a model.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock, OnceLock},
};

use arc_swap::ArcSwap;
use metrics::{Histogram, SharedString};
use outrigger_core::ModelName;

use super::Recorders;
use crate::call::Method;

/// Models with a label of their own; further ones share `other`. A process that
/// has served more than this is asked about its models elsewhere.
const MOST: usize = 500;
const OTHER: &str = "other";

type Known = HashMap<Arc<str>, ModelLabel>;

static KNOWN: LazyLock<ArcSwap<Known>> = LazyLock::new(ArcSwap::default);

/// The label of a model that is being served.
#[derive(Clone)]
pub(crate) struct ModelLabel(Arc<Labelled>);

struct Labelled {
    name: Arc<str>,
    recorders: OnceLock<Recorders>,
    durations: [OnceLock<Histogram>; Method::ALL.len()],
}

impl Default for ModelLabel {
    /// No model.
    fn default() -> Self {
        static NONE: LazyLock<ModelLabel> = LazyLock::new(|| ModelLabel::new(""));
        NONE.clone()
    }
}

impl ModelLabel {
    fn new(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Self(Arc::new(Labelled { name, recorders: OnceLock::new(), durations: Default::default() }))
    }

    pub(crate) fn text(&self) -> SharedString {
        SharedString::from(Arc::clone(&self.0.name))
    }

    /// What its predictions record to.
    pub(super) fn recorders(&self) -> &Recorders {
        self.0.recorders.get_or_init(|| Recorders::new(self))
    }

    /// What its calls of a method take.
    pub(super) fn duration(&self, method: Method) -> &Histogram {
        self.0.durations[method as usize].get_or_init(|| super::duration(method, self))
    }
}

impl fmt::Debug for ModelLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.name, f)
    }
}

impl fmt::Display for ModelLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}

/// The label of `model`. Only for models that are served: names that callers
/// make up must not come here.
pub(crate) fn model_label(model: &ModelName) -> ModelLabel {
    label_in(&KNOWN, model.as_str(), MOST)
}

fn label_in(known: &ArcSwap<Known>, model: &str, most: usize) -> ModelLabel {
    if let Some(label) = known.load().get(model) {
        return label.clone();
    }
    if known.load().len() >= most {
        static SHARED: LazyLock<ModelLabel> = LazyLock::new(|| ModelLabel::new(OTHER));
        return SHARED.clone();
    }
    let name: Arc<str> = Arc::from(model);
    let label = ModelLabel::new(Arc::clone(&name));
    known.rcu(|known| {
        let mut next = Known::clone(known);
        next.insert(Arc::clone(&name), label.clone());
        next
    });
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_models_share_a_label() {
        let known = ArcSwap::default();
        let label = |model: &str| label_in(&known, model, 2).to_string();
        assert_eq!([label("a"), label("b"), label("c")], ["a", "b", "other"]);
        assert_eq!([label("a"), label("d")], ["a", "other"]);
        assert_eq!(known.load().len(), 2);
    }
}
