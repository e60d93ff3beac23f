//! Calls with raw tensors: the caller gives them as the model takes them.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_core::{Content, ElementType, Failure, Tensor, TensorSpec};

use super::RawPlan;
use crate::{
    limits::{Limits, check_given},
    metadata::{Entity, Metadata},
    packed::{FeatureCounts, Packed, UserRows},
    place::Place,
    plan::Plan,
};

/// The tensors of a call, as a model's signature names them.
#[derive(Debug, Clone, PartialEq)]
pub struct RawCall {
    /// The inputs.
    pub inputs: Vec<Tensor>,
    /// The names of the outputs to return, in this order; empty for all.
    pub outputs: Vec<Arc<str>>,
}

/// The part of a packed call that only those with raw tensors have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawPart {
    /// The outputs to return, in the order of the answer.
    pub(crate) outputs: Vec<Arc<str>>,
    /// The users and the treatments per user, if the model has a tensor of treatments.
    pub(crate) sizes: Option<[usize; 2]>,
}

impl RawCall {
    /// The memory of the tensors in bytes. A text takes some beside its bytes.
    pub fn size(&self) -> usize {
        let texts = |tensor: &Tensor| match &tensor.content {
            Content::Bytes(_) => 0,
            Content::Strings(texts) => size_of_val(&texts[..]),
        };
        self.inputs.iter().map(|tensor| tensor.size() + texts(tensor)).sum()
    }

    /// The same call, without the memory around the tensors.
    #[must_use]
    pub fn copied(&self) -> Self {
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let content = |content: &Content| match content {
            Content::Bytes(bytes) => Content::Bytes(copy(bytes)),
            Content::Strings(texts) => Content::Strings(texts.iter().map(copy).collect()),
        };
        let input = |input: &Tensor| Tensor { content: content(&input.content), ..input.clone() };
        Self { inputs: self.inputs.iter().map(input).collect(), outputs: self.outputs.clone() }
    }
}

impl Plan {
    /// The plan for calls with raw tensors; `None` if no call can give all that the model
    /// needs, or the plan was compiled without the model's interface.
    pub fn raw(&self) -> Option<&RawPlan> {
        self.raw.as_deref()
    }

    /// Accepts the tensors of a call. Its rows count as the treatments of one user.
    ///
    /// # Errors
    /// REQUEST_MALFORMED as [`RawPlan::pack`], also for an output that the model does not have or
    /// that is named twice, and for inputs whose numbers of rows differ; TOO_LARGE.
    pub fn pack_raw(&self, call: &RawCall, limits: &Limits) -> Result<Packed, Failure> {
        let place = Place::default();
        let Some(raw) = self.raw() else {
            return Err(place.malformed("inputs", "the model does not take tensors as they are"));
        };
        check_given(call.size(), limits)?;
        let tensors = raw.pack(call.inputs.clone())?;
        let rows = Rows::of(&self.metadata, &tensors)?;
        let outputs = raw.outputs(&call.outputs)?;
        let user = UserRows { requested: rows.count, ..UserRows::default() };
        Ok(Packed {
            tensors,
            users: vec![user],
            counts: FeatureCounts::default(),
            treatments: rows.count,
            single_wanted: false,
            raw: Some(Box::new(RawPart { outputs, sizes: rows.sizes })),
        })
    }
}

impl RawPlan {
    /// The outputs that a call names, or all that can be returned if it names none.
    fn outputs(&self, named: &[Arc<str>]) -> Result<Vec<Arc<str>>, Failure> {
        let outputs = &self.interface.outputs;
        let is_known = |spec: &&TensorSpec| matches!(spec.dtype, ElementType::Known(_));
        if named.is_empty() {
            return Ok(outputs.iter().filter(is_known).map(|it| Arc::clone(&it.name)).collect());
        }
        for (index, name) in named.iter().enumerate() {
            let refused = |message| {
                Err(Place::default().malformed(format_args!("outputs[{index}]"), message))
            };
            if named[..index].contains(name) {
                return refused(format!("output {name:?} is named twice"));
            }
            match self.interface.output(name) {
                Some(spec) if is_known(&spec) => {}
                Some(spec) => {
                    return refused(format!(
                        "output {name:?} is {}: no dense tensor of a known type",
                        spec.dtype
                    ));
                }
                None => {
                    let known: Vec<_> = outputs.iter().map(|spec| &*spec.name).collect();
                    return refused(format!("the model has no output {name:?}, it has {known:?}"));
                }
            }
        }
        Ok(named.to_vec())
    }
}

/// The numbers of rows in the tensors of a call.
struct Rows {
    /// The rows that are scored: treatments, or users if the model has no tensor of treatments.
    count: usize,
    /// The users and the treatments per user, if the model has a tensor of treatments.
    sizes: Option<[usize; 2]>,
}

impl Rows {
    /// Reads the numbers of rows, which all tensors of an entity must share.
    fn of(metadata: &Metadata, tensors: &[Tensor]) -> Result<Self, Failure> {
        let mut users = Size::default();
        let mut treatments = Size::default();
        for (index, tensor) in tensors.iter().enumerate() {
            let Some(entity) = entity_of(metadata, &tensor.name) else { continue };
            users.agree(index, tensor, 0)?;
            if entity == Entity::Treatment {
                treatments.agree(index, tensor, 1)?;
            }
        }
        // A model without features of rows runs once.
        let count = users.found.as_ref().map_or(1, |(rows, _)| *rows);
        match treatments.found {
            None => Ok(Self { count, sizes: None }),
            Some((treatments, _)) => {
                let all = count.saturating_mul(treatments);
                Ok(Self { count: all, sizes: Some([count, treatments]) })
            }
        }
    }
}

/// The entity that the rows of a tensor describe; `None` if it has the elements of lists, or
/// metadata.json does not name it.
fn entity_of(metadata: &Metadata, tensor: &str) -> Option<Entity> {
    metadata.inputs.iter().find_map(|input| {
        if input.lengths.as_deref() == Some(tensor) {
            return Some(input.entity);
        }
        (*input.tensor == *tensor && input.lengths.is_none()).then_some(input.entity)
    })
}

/// A size that several tensors have in common.
#[derive(Default)]
struct Size {
    /// The size, and the name of the first tensor that has it.
    found: Option<(usize, Arc<str>)>,
}

impl Size {
    /// Requires that a dimension of a tensor has this size, or takes it from the first tensor.
    fn agree(&mut self, index: usize, tensor: &Tensor, dimension: usize) -> Result<(), Failure> {
        let size = tensor.shape.get(dimension).and_then(|size| usize::try_from(*size).ok());
        let Some(size) = size else { return Ok(()) };
        let (expected, first) = self.found.get_or_insert_with(|| (size, Arc::clone(&tensor.name)));
        if *expected == size {
            return Ok(());
        }
        let message = format!(
            "dimension {dimension} of {:?} is {size}, but of {first:?} {expected}",
            tensor.name
        );
        Err(Place::default().malformed(format_args!("inputs[{index}].shape"), message))
    }
}

#[cfg(test)]
mod tests {
    use outrigger_core::{DType, Interface, Reason, Shape};

    use super::*;
    use crate::fixtures::{output, strings};

    fn plan() -> Plan {
        let metadata = r#"{
            "schema": "outrigger.dev/model/v1", "framework": "tensorflow",
            "inputs": [
                {"tensor": "user", "entity": "user", "dtype": "float32",
                 "features": [{"name": "u", "required": true}]},
                {"tensor": "treatment", "entity": "treatment", "dtype": "float32",
                 "features": [{"name": "t", "required": true}]}],
            "outputs": [{"tensor": "scores", "name": "score", "kind": "per_treatment"}]}"#;
        let spec = |name: &str, dtype: DType, sizes: &[i64]| {
            TensorSpec::new(name, dtype.into(), Shape::of(sizes))
        };
        let inputs = vec![
            spec("user", DType::Float32, &[-1, 1]),
            spec("treatment", DType::Float32, &[-1, -1, 1]),
        ];
        let unknown = ElementType::Unsupported("uint8".into());
        let outputs = vec![
            spec("scores", DType::Float32, &[-1, -1]),
            spec("words", DType::String, &[-1]),
            TensorSpec::new("image", unknown, Shape::Any),
        ];
        let metadata = Metadata::parse(metadata.as_bytes()).expect("valid");
        Plan::load(metadata, &Interface::new(inputs, outputs)).expect("consistent")
    }

    fn call(users: i64, treatments: i64, outputs: &[&str]) -> RawCall {
        let tensor = |name: &str, shape: &[i64]| {
            output(name, shape, &vec![1.0; shape.iter().product::<i64>() as usize])
        };
        let inputs =
            vec![tensor("treatment", &[users, treatments, 1]), tensor("user", &[users, 1])];
        RawCall { inputs, outputs: outputs.iter().map(|name| (*name).into()).collect() }
    }

    fn refused(call: &RawCall) -> String {
        let failure = plan().pack_raw(call, &Limits::default()).expect_err("refused");
        assert_eq!(failure.reason, Reason::RequestMalformed);
        failure.message
    }

    #[test]
    fn tensors_are_packed_unchanged_and_rows_are_the_treatments_of_one_user() {
        let (plan, call) = (plan(), call(2, 3, &[]));
        let packed = plan.pack_raw(&call, &Limits::default()).expect("packs");
        assert_eq!(packed.tensors, call.inputs);
        assert_eq!((packed.users.len(), packed.users[0].kept(), packed.treatments), (1, 6, 6));
        assert!(packed.needs_engine());
        assert_eq!(plan.output_names(&packed), ["scores".into(), "words".into()]);
    }

    #[test]
    fn outputs_are_returned_in_the_order_of_the_request() {
        let plan = plan();
        let packed = plan.pack_raw(&call(1, 1, &["words", "scores"]), &Limits::default());
        let packed = packed.expect("packs");
        assert_eq!(plan.output_names(&packed), ["words".into(), "scores".into()]);
    }

    #[test]
    fn other_outputs_are_refused() {
        let twice = refused(&call(1, 1, &["scores", "scores"]));
        assert_eq!(twice, r#"outputs[1]: output "scores" is named twice"#);
        let absent = refused(&call(1, 1, &["x"]));
        let known = r#"["image", "scores", "words"]"#;
        assert_eq!(absent, format!(r#"outputs[0]: the model has no output "x", it has {known}"#));
        assert!(refused(&call(1, 1, &["image"])).contains("is uint8"));
    }

    #[test]
    fn inputs_whose_rows_differ_are_refused() {
        let mut uneven = call(2, 3, &[]);
        uneven.inputs[1] = output("user", &[3, 1], &[1.0; 3]);
        let message = r#"inputs[1].shape: dimension 0 of "user" is 3, but of "treatment" 2"#;
        assert_eq!(refused(&uneven), message);
    }

    #[test]
    fn a_call_without_rows_still_runs() {
        let packed = plan().pack_raw(&call(0, 3, &[]), &Limits::default()).expect("packs");
        assert!(packed.needs_engine());
        assert_eq!(packed.treatments, 0);
    }

    #[test]
    fn tensors_beyond_the_limit_are_refused() {
        let limits = Limits { max_tensor_bytes: 31, ..Limits::default() };
        let failure = plan().pack_raw(&call(2, 3, &[]), &limits).expect_err("32 bytes");
        assert_eq!(failure.reason, Reason::TooLarge);
    }

    #[test]
    fn a_plan_without_an_interface_takes_no_tensors() {
        let compiled = Plan::compile(plan().metadata().clone());
        assert!(compiled.pack_raw(&call(1, 1, &[]), &Limits::default()).is_err());
    }

    #[test]
    fn a_copy_has_memory_of_its_own() {
        let texts = Tensor {
            dtype: DType::String,
            content: strings(&["a", "b"]),
            ..output("texts", &[2], &[])
        };
        let mut call = call(1, 2, &[]);
        call.inputs.push(texts);
        let copied = call.copied();
        assert_eq!((&copied, copied.size()), (&call, 14 + 2 * size_of::<Bytes>()));
        let at = |call: &RawCall| match &call.inputs[0].content {
            Content::Bytes(bytes) => bytes.as_ptr(),
            Content::Strings(_) => unreachable!("numbers"),
        };
        assert_ne!(at(&copied), at(&call));
    }
}
