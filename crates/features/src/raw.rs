//! Tensors sent by the caller unchanged, for models without features.

mod call;

use outrigger_core::{Content, ElementType, Failure, Interface, Tensor, TensorSpec};

use crate::{interface::InterfaceError, place::Place};

pub use call::RawCall;
pub(crate) use call::RawPart;

/// The plan of a model that is called with tensors instead of features: the tensors are
/// only checked. Share it in an [`Arc`](std::sync::Arc).
#[derive(Debug, Clone, PartialEq)]
pub struct RawPlan {
    interface: Interface,
}

impl RawPlan {
    /// Creates a plan for a model with this interface.
    ///
    /// # Errors
    /// The model needs an input that no call can supply: its element type is unknown, or
    /// it is not a dense tensor.
    pub fn new(interface: Interface) -> Result<Self, InterfaceError> {
        let unknown =
            |spec: &&TensorSpec| !spec.optional && !matches!(spec.dtype, ElementType::Known(_));
        match interface.inputs.iter().find(unknown) {
            None => Ok(Self { interface }),
            Some(spec) => Err(InterfaceError {
                path: "inputs".to_owned(),
                file: "that tensors are given as they are".to_owned(),
                model: format!("input {:?} is {}", spec.name, spec.dtype),
            }),
        }
    }

    /// The input and output tensors of the model.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Accepts the tensors of a call, in the order given, if they match the model's
    /// inputs.
    ///
    /// # Errors
    /// REQUEST_MALFORMED naming the tensor: the model has no such input, it is given
    /// twice, its type or shape does not match, its content does not have the size of its
    /// shape, or an input is missing.
    pub fn pack(&self, tensors: Vec<Tensor>) -> Result<Vec<Tensor>, Failure> {
        for (index, tensor) in tensors.iter().enumerate() {
            let refused = |message: String| {
                Place::default().malformed(format_args!("inputs[{index}]"), message)
            };
            if tensors[..index].iter().any(|other| other.name == tensor.name) {
                return Err(refused(format!("input {:?} is given twice", tensor.name)));
            }
            self.check(tensor).map_err(refused)?;
        }
        let given = |spec: &TensorSpec| tensors.iter().any(|tensor| tensor.name == spec.name);
        match self.interface.inputs.iter().find(|spec| !spec.optional && !given(spec)) {
            None => Ok(tensors),
            Some(spec) => {
                let message = format!("input {:?} is missing", spec.name);
                Err(Place::default().malformed("inputs", message))
            }
        }
    }

    /// Checks a tensor on its own; the error describes what is wrong.
    fn check(&self, tensor: &Tensor) -> Result<(), String> {
        let Some(spec) = self.interface.input(&tensor.name) else {
            let known: Vec<_> = self.interface.inputs.iter().map(|spec| &*spec.name).collect();
            return Err(format!("the model has no input {:?}, it has {known:?}", tensor.name));
        };
        if spec.dtype != ElementType::Known(tensor.dtype) {
            return Err(format!("{:?} is {}, not {}", spec.name, spec.dtype, tensor.dtype));
        }
        if !spec.shape.admits(&tensor.shape) {
            return Err(format!("{:?} is {}, not {:?}", spec.name, spec.shape, tensor.shape));
        }
        match has_its_size(tensor) {
            true => Ok(()),
            false => {
                let message = "has another size than its type and shape";
                Err(format!("the content of {:?} {message}", spec.name))
            }
        }
    }
}

/// True if the content of a tensor has the size of its type and shape.
pub(crate) fn has_its_size(tensor: &Tensor) -> bool {
    let found = found_size(&tensor.content);
    expected_size(tensor).is_some_and(|expected| found == (expected, tensor.dtype.size().is_none()))
}

/// The number of bytes, or of strings, in a tensor of this type and shape; `None` if a
/// size is negative or the product overflows.
fn expected_size(tensor: &Tensor) -> Option<usize> {
    let mut sizes = tensor.shape.iter().map(|size| usize::try_from(*size).ok());
    let elements = sizes.try_fold(1, |product: usize, size| product.checked_mul(size?))?;
    elements.checked_mul(tensor.dtype.size().unwrap_or(1))
}

/// The size of a content, and whether it consists of strings.
fn found_size(content: &Content) -> (usize, bool) {
    match content {
        Content::Bytes(bytes) => (bytes.len(), false),
        Content::Strings(texts) => (texts.len(), true),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use outrigger_core::{DType, Reason, Shape};

    use super::*;

    fn plan() -> RawPlan {
        let spec = |name: &str, dtype: DType, sizes: &[i64]| {
            TensorSpec::new(name, dtype.into(), Shape::of(sizes))
        };
        let extra = TensorSpec { optional: true, ..spec("extra", DType::Int32, &[]) };
        let inputs =
            vec![spec("x", DType::Float32, &[-1, 2]), spec("t", DType::String, &[-1]), extra];
        RawPlan::new(Interface::new(inputs, Vec::new())).expect("known types")
    }

    fn x(shape: &[i64], bytes: usize) -> Tensor {
        let content = Content::Bytes(Bytes::from(vec![0; bytes]));
        Tensor { name: "x".into(), dtype: DType::Float32, shape: shape.into(), content }
    }

    fn t(texts: usize) -> Tensor {
        let content = Content::Strings(vec![Bytes::new(); texts]);
        Tensor { name: "t".into(), dtype: DType::String, shape: vec![1], content }
    }

    fn refused(tensors: Vec<Tensor>) -> String {
        let failure = plan().pack(tensors).expect_err("refused");
        assert_eq!(failure.reason, Reason::RequestMalformed);
        failure.message
    }

    #[test]
    fn tensors_that_fit_pass_unchanged() {
        let tensors = vec![t(1), x(&[3, 2], 24)];
        assert_eq!(plan().pack(tensors.clone()), Ok(tensors));
        assert!(plan().pack(vec![t(1), x(&[0, 2], 0)]).is_ok());
    }

    #[test]
    fn others_are_refused_by_name() {
        let other = Tensor { name: "y".into(), ..x(&[1, 2], 8) };
        let wrong = Tensor { dtype: DType::Int32, ..x(&[1, 2], 8) };
        let strings = Tensor { content: Content::Strings(vec![Bytes::new(); 8]), ..x(&[1, 2], 8) };
        let size = r#"inputs[0]: the content of "x" has another size than its type and shape"#;
        let cases = [
            (vec![other], r#"inputs[0]: the model has no input "y", it has ["extra", "t", "x"]"#),
            (vec![t(1), t(1)], r#"inputs[1]: input "t" is given twice"#),
            (vec![wrong], r#"inputs[0]: "x" is float32, not int32"#),
            (vec![x(&[1, 3], 12)], r#"inputs[0]: "x" is [?, 2], not [1, 3]"#),
            (vec![x(&[1, 2], 9)], size),
            (vec![x(&[-1, 2], 8)], size),
            (vec![x(&[i64::MAX, 2], 8)], size),
            (vec![strings], size),
            (vec![t(1)], r#"inputs: input "x" is missing"#),
        ];
        for (tensors, message) in cases {
            assert_eq!(refused(tensors), message);
        }
    }

    #[test]
    fn a_model_that_no_call_can_feed_is_refused() {
        let sparse = TensorSpec::new("s", ElementType::Composite, Shape::Any);
        let optional = TensorSpec { optional: true, ..sparse.clone() };
        assert!(RawPlan::new(Interface::new(vec![optional], Vec::new())).is_ok());
        let error = RawPlan::new(Interface::new(vec![sparse], Vec::new())).expect_err("refused");
        assert!(error.to_string().ends_with(r#"input "s" is sparse or composite"#), "{error}");
    }
}
