//! A request's options, checked against the model's outputs.

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{OnTreatmentError, ResponseOptions};

use crate::{call::Call, metadata::OutputKind, place::Place, plan::Plan};

/// The options of a response.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) top_k: usize,
    pub(crate) treatment_ids: bool,
    /// The outputs to return, as positions in metadata.json; the score first.
    pub(crate) outputs: Vec<usize>,
    pub(crate) skip: bool,
}

impl Options {
    /// An empty list with room for the ids of `count` treatments; `None` if the request
    /// does not ask for ids.
    pub(crate) fn ids<'r>(&self, count: usize) -> Option<Vec<&'r [u8]>> {
        self.treatment_ids.then(|| Vec::with_capacity(count))
    }

    /// The options that apply to a request of `call`: the batch's, else its own. A request of a
    /// batch must have neither options nor a model. Only Explain, whose calls are traced, computes
    /// contributions.
    pub(crate) fn read(
        own: Option<&ResponseOptions>,
        has_model: bool,
        call: &Call<'_>,
        plan: &Plan,
        place: &Place,
    ) -> Result<Self, Failure> {
        let Some(batch) = call.batch else {
            return own.map_or_else(
                || Self::check(&ResponseOptions::default(), call, plan, place),
                |own| Self::check(own, call, plan, place),
            );
        };
        let message = "is the batch's to give, not that of one of its requests";
        if own.is_some() {
            return Err(place.malformed("options", message));
        }
        if has_model {
            return Err(place.malformed("model", message));
        }
        Self::check(batch, call, plan, &Place::default())
    }

    fn check(
        options: &ResponseOptions,
        call: &Call<'_>,
        plan: &Plan,
        place: &Place,
    ) -> Result<Self, Failure> {
        if options.contributions && !call.traced {
            return Err(place.malformed("options.contributions", "only Explain computes them"));
        }
        let outputs = choose_outputs(&options.outputs, plan, place)?;
        let score = &plan.metadata.outputs[outputs[0]];
        if options.top_k > 0 && score.kind == OutputKind::Single {
            let message = format!("output {:?} has one score, nothing to rank by", score.name);
            return Err(place.malformed("options.top_k", message));
        }
        Ok(Self {
            top_k: options.top_k as usize,
            treatment_ids: options.treatment_ids,
            outputs,
            skip: skips(options, place)?,
        })
    }
}

/// True if any of these outputs is `single`.
pub(crate) fn any_single(outputs: &[usize], plan: &Plan) -> bool {
    outputs.iter().any(|index| plan.metadata.outputs[*index].kind == OutputKind::Single)
}

fn skips(options: &ResponseOptions, place: &Place) -> Result<bool, Failure> {
    match OnTreatmentError::try_from(options.on_treatment_error) {
        Ok(OnTreatmentError::Unspecified | OnTreatmentError::Fail) => Ok(false),
        Ok(OnTreatmentError::Skip) => Ok(true),
        Err(_) => {
            let message = format!("{} is no known choice", options.on_treatment_error);
            Err(place.malformed("options.on_treatment_error", message))
        }
    }
}

fn choose_outputs(names: &[String], plan: &Plan, place: &Place) -> Result<Vec<usize>, Failure> {
    let outputs = &plan.metadata.outputs;
    if names.is_empty() {
        return Ok((0..outputs.len()).collect());
    }
    let mut chosen = Vec::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        let path = format!("options.outputs[{index}]");
        let Some(output) = outputs.iter().position(|output| *output.name == **name) else {
            let known: Vec<_> = outputs.iter().map(|output| &*output.name).collect();
            let message = format!("the model has no output {name:?}, it has {known:?}");
            return Err(place.malformed(path, message));
        };
        if chosen.contains(&output) {
            return Err(place.malformed(path, format!("output {name:?} is asked for twice")));
        }
        chosen.push(output);
    }
    Ok(chosen)
}
