//! Outputs of calls with raw tensors: they are returned as the engine gives them, and their
//! scores are read for statistics only.

use std::{borrow::Cow, sync::Arc};

use outrigger_core::{Content, Failure, Tensor};

use super::{
    Best, Sample,
    output::{column, invalid, to_floats},
};
use crate::{
    column::floats,
    interface::SCORES,
    packed::Packed,
    plan::Plan,
    raw::{RawPart, has_its_size},
};

impl Plan {
    /// The outputs of a call with raw tensors, in the order in which it named them. They are
    /// not required to be finite.
    ///
    /// # Errors
    /// SCORES_INVALID: one is missing, or its content has another size than its shape.
    pub fn answer_raw<'t>(
        &self,
        packed: &Packed,
        outputs: &'t [Tensor],
    ) -> Result<Vec<&'t Tensor>, Failure> {
        let names = packed.raw.as_deref().map_or(&[][..], |raw| &raw.outputs);
        let find = |name: &Arc<str>| {
            let found = outputs.iter().find(|tensor| tensor.name == *name);
            let tensor = found.ok_or_else(|| invalid(name, "the engine did not return it"))?;
            match has_its_size(tensor) {
                true => Ok(tensor),
                false => Err(invalid(name, "its content does not have the size of its shape")),
            }
        };
        names.iter().map(find).collect()
    }
}

impl RawPart {
    /// The scores among the outputs as little-endian float32: empty if the call did not name them,
    /// or they are no numbers; `None` if one of them is not finite.
    fn scores<'t>(&self, plan: &Plan, outputs: &'t [Tensor]) -> Option<Cow<'t, [u8]>> {
        let output = &plan.metadata.outputs[0];
        let is_score = |tensor: &&Tensor| tensor.name == output.tensor && has_its_size(tensor);
        if !self.outputs.contains(&output.tensor) {
            return Some(Cow::default());
        }
        match outputs.iter().find(is_score) {
            Some(Tensor { dtype, content: Content::Bytes(bytes), .. })
                if SCORES.contains(dtype) =>
            {
                let values = to_floats(bytes, *dtype);
                floats::all_finite(&values).then(|| column(values, output))
            }
            _ => Some(Cow::default()),
        }
    }

    /// As [`Plan::sample`].
    pub(super) fn sample(&self, plan: &Plan, outputs: &[Tensor], random: u64) -> Sample {
        let scores = self.scores(plan, outputs);
        scores.map_or(Sample::NotFinite, |scores| Sample::draw(&scores, random))
    }

    /// All scores with their positions, unless one of them is not finite.
    pub(super) fn ranked(&self, plan: &Plan, outputs: &[Tensor]) -> Vec<Best> {
        let scores = self.scores(plan, outputs).unwrap_or_default();
        let (scores, _) = scores.as_chunks();
        let positions = 0..;
        positions.zip(scores).map(|(position, score)| Best::new(position, *score)).collect()
    }
}

#[cfg(test)]
mod tests {
    use outrigger_core::{DType, Interface, Reason, Shape, TensorSpec};

    use super::*;
    use crate::{
        RawCall,
        fixtures::{longs, output, strings},
        limits::Limits,
    };

    fn plan() -> Plan {
        let spec = |name: &str, dtype: DType, sizes: &[i64]| {
            TensorSpec::new(name, dtype.into(), Shape::of(sizes))
        };
        let inputs = vec![
            spec("user", DType::Float32, &[-1, 1]),
            spec("treatment", DType::Float32, &[-1, -1, 1]),
        ];
        let outputs = vec![
            spec("classes", DType::Float32, &[-1, -1, 2]),
            spec("words", DType::String, &[-1]),
        ];
        Plan::load(metadata(), &Interface::new(inputs, outputs)).expect("consistent")
    }

    fn metadata() -> crate::Metadata {
        let text = r#"{
            "schema": "outrigger.dev/model/v1", "framework": "tensorflow",
            "inputs": [
                {"tensor": "user", "entity": "user", "dtype": "float32",
                 "features": [{"name": "u", "required": true}]},
                {"tensor": "treatment", "entity": "treatment", "dtype": "float32",
                 "features": [{"name": "t", "required": true}]}],
            "outputs": [{"tensor": "classes", "name": "score", "kind": "per_treatment",
                         "width": 2, "score": {"column": 1}}]}"#;
        crate::Metadata::parse(text.as_bytes()).expect("valid")
    }

    fn packed(plan: &Plan, outputs: &[&str]) -> Packed {
        let inputs =
            vec![output("user", &[1, 1], &[1.0]), output("treatment", &[1, 3, 1], &[1.0; 3])];
        let outputs = outputs.iter().map(|name| (*name).into()).collect();
        plan.pack_raw(&RawCall { inputs, outputs }, &Limits::default()).expect("packs")
    }

    #[test]
    fn outputs_are_found_by_name_and_need_not_be_finite() {
        let plan = plan();
        let packed = packed(&plan, &["words", "classes"]);
        let words =
            Tensor { dtype: DType::String, content: strings(&["a"]), ..output("words", &[1], &[]) };
        let classes = output("classes", &[1, 1, 2], &[f32::NAN, 1.0]);
        let outputs = [classes.clone(), words.clone()];
        let answer = plan.answer_raw(&packed, &outputs).expect("complete");
        assert_eq!(answer[0], &words);
        assert_eq!(answer[1].shape, classes.shape);

        let failure = plan.answer_raw(&packed, &outputs[..1]).expect_err("no words");
        assert_eq!(failure.reason, Reason::ScoresInvalid);
        let short = [output("classes", &[1, 2, 2], &[1.0; 2]), words];
        assert!(plan.answer_raw(&packed, &short).is_err());
    }

    #[test]
    fn the_column_of_the_score_is_sampled_and_ranked() {
        let plan = plan();
        let packed = packed(&plan, &["classes"]);
        let outputs = [output("classes", &[1, 3, 2], &[9.0, 1.0, 9.0, 3.0, 9.0, 2.0])];
        assert_eq!(plan.sample(&packed, &outputs, 0, 1), Ok(Sample::Score(3.0)));
        let best = plan.best(&packed, &outputs, 0).expect("finite");
        assert_eq!(best, Some(Best { position: 1, score: 3.0 }));
        assert_eq!(plan.score_at(&packed, &outputs, 2), Some(2.0));
        let broken = [output("classes", &[1, 1, 2], &[f32::NAN, 1.0])];
        assert_eq!(plan.sample(&packed, &broken, 0, 0), Ok(Sample::NotFinite));
        assert_eq!(plan.best(&packed, &broken, 0), Ok(None));
    }

    #[test]
    fn a_call_that_does_not_name_the_score_has_no_sample() {
        let plan = plan();
        let packed = packed(&plan, &["words"]);
        let outputs =
            [Tensor { dtype: DType::Int64, content: longs(&[1]), ..output("words", &[1], &[]) }];
        assert_eq!(plan.sample(&packed, &outputs, 0, 0), Ok(Sample::Nothing));
    }

    #[test]
    fn wider_outputs_of_a_batch_are_cut_to_the_treatments_of_the_call() {
        let plan = plan();
        let packed = packed(&plan, &[]);
        let mut outputs =
            [output("classes", &[1, 4, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 9.0])];
        plan.trim(&packed, &mut outputs);
        assert_eq!(outputs[0], output("classes", &[1, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    }
}
