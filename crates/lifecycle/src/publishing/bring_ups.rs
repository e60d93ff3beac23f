//! Traces of versions on their way into service: pull, prepare, publish, load and gate, each as a
//! child span.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_core::{
    ModelKey, ModelName, Step,
    machines::Machines,
    model::{ModelMachine, State},
};
use outrigger_trace::{Parent, Span, SpanKind, Tracer};

use crate::versions::retain_of;

/// The traces of versions on their way.
#[derive(Default)]
pub(crate) struct BringUps(BTreeMap<ModelKey, BringUp>);

struct BringUp {
    step: &'static str,
    part: Span,
    whole: Span,
}

impl BringUps {
    /// Updates the traces of models that have changed.
    pub(crate) fn follow(
        &mut self,
        changed: &BTreeSet<ModelName>,
        machines: &Machines,
        tracer: &Tracer,
    ) {
        if !tracer.is_on() {
            return;
        }
        for name in changed {
            for model in machines.models_of(name) {
                self.follow_one(tracer, model);
            }
            retain_of(&mut self.0, name, |key, _| machines.model(key).is_some());
        }
    }

    /// The span of the version's current step, as the parent of the work in it.
    pub(crate) fn step_of(
        &mut self,
        key: &ModelKey,
        machines: &Machines,
        tracer: &Tracer,
    ) -> Parent {
        if let (true, Some(model)) = (tracer.is_on(), machines.model(key)) {
            self.follow_one(tracer, model);
        }
        let step = self.0.get(key).map(|under_way| under_way.part.as_parent());
        step.unwrap_or_default()
    }

    fn follow_one(&mut self, tracer: &Tracer, model: &ModelMachine) {
        let key = model.key();
        let Some(step) = step(model.state()) else {
            if let Some(ended) = self.0.remove(key) {
                ended.end(model);
            }
            return;
        };
        let under_way = self.0.entry(key.clone()).or_insert_with(|| BringUp::begin(tracer, key));
        if under_way.step != step {
            under_way.step = step;
            under_way.part = under_way.whole.child(step, SpanKind::Internal);
        }
    }
}

impl BringUp {
    fn begin(tracer: &Tracer, key: &ModelKey) -> Self {
        let mut whole = tracer.begin("bring up");
        whole.set("outrigger.model.name", key.name.to_string());
        whole.set("outrigger.model.digest", key.digest.to_string());
        Self { step: "", part: Span::none(), whole }
    }

    /// Ends the trace: the version serves, its last step failed, or it is not wanted any more.
    fn end(self, model: &ModelMachine) {
        let result = match (model.state(), model.trouble()) {
            (State::Serving { .. }, _) => Ok(()),
            (_, Some(trouble)) => Err(trouble.failure.clone()),
            (_, None) => return self.cancel(),
        };
        self.part.end(&result);
        self.whole.end(&result);
    }

    fn cancel(mut self) {
        self.whole.failed_with("CANCELLED", "the version is no longer wanted");
    }
}

/// The name of the work done in a state on the way into service.
fn step(state: &State) -> Option<&'static str> {
    state.step().filter(|step| step.leads_up()).map(Step::as_str)
}
