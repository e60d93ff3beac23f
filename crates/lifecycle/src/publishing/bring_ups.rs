//! Traces of versions on their way into service: pull, prepare, publish, load and gate, each as a
//! child span.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_core::{
    Failure, ModelKey, ModelName, Step,
    machines::Machines,
    model::{ModelMachine, State},
};
use outrigger_trace::{Parent, Span, SpanKind, Tracer};

use crate::versions::retain_of;

/// The traces of versions on their way.
#[derive(Default)]
pub(crate) struct BringUps {
    under_way: BTreeMap<ModelKey, BringUp>,
    /// Traces that end when the routes of their versions are in force.
    ended: Vec<(BringUp, End)>,
}

/// The result of a bring-up; `None` if the version is not wanted any more.
type End = Option<Result<(), Failure>>;

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
            retain_of(&mut self.under_way, name, |key, _| machines.model(key).is_some());
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
        let step = self.under_way.get(key).map(|under_way| under_way.part.as_parent());
        step.unwrap_or_default()
    }

    /// Ends the traces of versions that serve, or failed, by now.
    pub(crate) fn show(&mut self) {
        self.ended.drain(..).for_each(|(bring_up, end)| bring_up.end(end));
    }

    fn follow_one(&mut self, tracer: &Tracer, model: &ModelMachine) {
        let key = model.key();
        let Some(step) = step(model.state()) else {
            let ended = self.under_way.remove(key);
            self.ended.extend(ended.map(|bring_up| (bring_up, end(model))));
            return;
        };
        let under_way =
            self.under_way.entry(key.clone()).or_insert_with(|| BringUp::begin(tracer, key));
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

    fn end(mut self, end: End) {
        match end {
            Some(result) => {
                self.part.end(&result);
                self.whole.end(&result);
            }
            None => self.whole.failed_with("CANCELLED", "the version is no longer wanted"),
        }
    }
}

/// The end of a bring-up: the version serves, its last step failed, or it is not wanted any more.
fn end(model: &ModelMachine) -> End {
    match (model.state(), model.trouble()) {
        (State::Serving { .. }, _) => Some(Ok(())),
        (_, trouble) => trouble.map(|trouble| Err(trouble.failure.clone())),
    }
}

/// The name of the work done in a state on the way into service.
fn step(state: &State) -> Option<&'static str> {
    state.step().filter(|step| step.leads_up()).map(Step::as_str)
}
