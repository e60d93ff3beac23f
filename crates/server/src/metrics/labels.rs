//! Labels for the version that answers: model and arm. The number of models with a label is
//! bounded. The metrics that every request of an arm records are looked up once.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock, OnceLock},
};

use arc_swap::ArcSwap;
use metrics::SharedString;
use outrigger_core::{Arm, ModelName};
use outrigger_lifecycle as lifecycle;

use super::recorders::{Calls, Recorders};
use crate::front::Method;

type Known = HashMap<Arc<str>, ModelLabel>;

/// The models that have a label of their own.
static KNOWN: LazyLock<ArcSwap<Known>> = LazyLock::new(ArcSwap::default);

/// The number of arms, including none.
const ARMS: usize = 4;

/// The label of a model that is served.
#[derive(Clone)]
pub(crate) struct ModelLabel(Arc<Labelled>);

struct Labelled {
    name: Arc<str>,
    recorders: [OnceLock<Recorders>; ARMS],
    calls: [[OnceLock<Calls>; Method::ALL.len()]; ARMS],
}

impl Default for ModelLabel {
    /// The label for no model.
    fn default() -> Self {
        static NONE: LazyLock<ModelLabel> = LazyLock::new(|| ModelLabel::new(""));
        NONE.clone()
    }
}

impl ModelLabel {
    fn new(name: impl Into<Arc<str>>) -> Self {
        let (name, recorders, calls) = (name.into(), Default::default(), Default::default());
        Self(Arc::new(Labelled { name, recorders, calls }))
    }

    pub(super) fn text(&self) -> SharedString {
        SharedString::from(Arc::clone(&self.0.name))
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

/// The model and arm that answer, if any.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServedAs {
    pub(crate) model: ModelLabel,
    pub(crate) arm: Option<Arm>,
}

impl ServedAs {
    /// The arm's label; empty if there is none.
    pub(crate) fn arm(&self) -> &'static str {
        self.arm.map_or("", Arm::as_str)
    }

    /// The handles of its metrics for predictions.
    pub(super) fn recorders(&self) -> &Recorders {
        self.model.0.recorders[self.index()].get_or_init(|| Recorders::new(self))
    }

    /// The handles of its metrics for calls of a method.
    pub(super) fn calls(&self, method: Method) -> &Calls {
        let calls = &self.model.0.calls[self.index()][method as usize];
        calls.get_or_init(|| Calls::new(method, self))
    }

    fn index(&self) -> usize {
        self.arm.map_or(ARMS - 1, |arm| arm as usize)
    }
}

/// The label of `model`. It is only for models that are served: names that callers made up must not
/// get here, because they would become labels.
pub(crate) fn model_label(model: &ModelName) -> ModelLabel {
    if let Some(label) = KNOWN.load().get(model.as_str()) {
        return label.clone();
    }
    static OTHERS: LazyLock<ModelLabel> = LazyLock::new(|| ModelLabel::new(lifecycle::OTHER));
    let Some(name) = lifecycle::model_label(model) else { return OTHERS.clone() };
    let label = ModelLabel::new(Arc::clone(&name));
    KNOWN.rcu(|known| {
        let mut next = Known::clone(known);
        next.entry(Arc::clone(&name)).or_insert_with(|| label.clone());
        next
    });
    label
}
