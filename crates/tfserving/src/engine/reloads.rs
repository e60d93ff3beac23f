//! A trace of each reload: the call, and the wait until the engine's status shows the
//! end of every version's load.

use std::collections::BTreeMap;

use outrigger_core::{Failure, ServableName, Version};
use outrigger_trace::{Span, SpanKind, Tracer};

use crate::machine::{EngineState, Event, PushOutcome, Seen, ServingSet};

const RELOAD: &str = "tensorflow.serving.ModelService/HandleReloadConfigRequest";

/// The reload under way, if it is traced.
#[derive(Default)]
pub(super) struct Reloads(Option<Reload>);

struct Reload {
    set: ServingSet,
    answered: bool,
    part: Span,
    whole: Span,
}

impl Reloads {
    /// Starts the trace of a new configuration, in place of the previous trace.
    pub(super) fn begin(&mut self, tracer: &Tracer, set: &ServingSet) {
        self.0 = None;
        if !tracer.is_on() {
            return;
        }
        let mut whole = tracer.begin("reload");
        whole.set("outrigger.models", set.len() as i64);
        whole.set("outrigger.versions", set.values().map(|it| it.len() as i64).sum::<i64>());
        let part = whole.child(RELOAD, SpanKind::Client);
        self.0 = Some(Reload { set: set.clone(), answered: false, part, whole });
    }

    /// Records an event that may end the reload or a part of it.
    pub(super) fn record(&mut self, event: &Event) {
        let Some(reload) = &mut self.0 else { return };
        let goes_on = match event {
            Event::Pushed(_, outcome) => reload.answered(outcome),
            Event::Probed(_, Ok(seen)) => reload.seen(seen),
            _ => true,
        };
        if !goes_on {
            self.0 = None;
        }
    }
}

impl Reload {
    /// Handles the answer to a reload. Returns true while the engine is, or may be, still working
    /// on it.
    fn answered(&mut self, outcome: &PushOutcome) -> bool {
        self.answered = true;
        match outcome {
            PushOutcome::Refused(failure) | PushOutcome::Lost(failure) => {
                self.failed(failure);
                return false;
            }
            PushOutcome::Taken(Some(failure)) => self.part.failed(failure),
            PushOutcome::TimedOut => self.part.failed_with("DEADLINE", "no answer yet"),
            PushOutcome::Taken(None) => {}
        }
        self.part = self.whole.child("wait", SpanKind::Internal);
        true
    }

    /// Handles a status. Returns true while versions are still to be loaded.
    fn seen(&mut self, seen: &BTreeMap<ServableName, Vec<Seen>>) -> bool {
        if !self.answered {
            return true;
        }
        // A name without an answer was not probed, because nothing is pending for it.
        let became =
            self.set.iter().filter_map(|(name, versions)| Some((seen.get(name)?, versions)));
        let became = became
            .flat_map(|(seen, versions)| versions.iter().map(|version| settled(seen, *version)));
        let Some(became) = became.collect::<Option<Vec<_>>>() else { return true };
        let failure = became.into_iter().find_map(Result::err).cloned();
        failure.iter().for_each(|failure| self.failed(failure));
        false
    }

    fn failed(&mut self, failure: &Failure) {
        self.part.failed(failure);
        self.whole.failed(failure);
    }
}

/// The result of loading a version; `None` while it is not known.
fn settled(seen: &[Seen], version: Version) -> Option<Result<(), &Failure>> {
    let seen = seen.iter().find(|seen| seen.version == version)?;
    match (&seen.failure, seen.state) {
        (Some(failure), _) => Some(Err(failure)),
        (None, EngineState::Available) => Some(Ok(())),
        _ => None,
    }
}
