//! Requests and responses of an inference, the same in all forms.

use std::{collections::HashSet, sync::Arc};

use crate::{Malformed, Parameters, Tensor};

/// The parameter of a request that asks for all outputs as binary tensors.
pub(crate) const BINARY_OUTPUT: &str = "binary_data_output";
/// The parameter of a requested output that asks for it as a binary tensor.
pub(crate) const BINARY: &str = "binary_data";
/// The parameter of a tensor whose data follow the JSON: their size in bytes.
pub(crate) const BINARY_SIZE: &str = "binary_data_size";
/// Parameters of tensors that change the result, and that no server of ours obeys.
const REFUSED: [&str; 2] = ["classification", "shared_memory_region"];

/// A request. Its model is named beside it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InferRequest {
    /// The caller's name for the request, which the response repeats.
    pub id: Option<String>,
    /// Parameters of the whole request.
    pub parameters: Parameters,
    /// The inputs, in the order of the message.
    pub inputs: Vec<Tensor>,
    /// The outputs to return, in this order; none stands for all.
    pub outputs: Vec<RequestedOutput>,
}

/// An output that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedOutput {
    /// The model's name for it.
    pub name: Arc<str>,
    /// True if it is to be a binary tensor, false if it is to be JSON; `None` if the request does
    /// not say.
    pub binary: Option<bool>,
}

/// A response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InferResponse {
    /// The model that answered; empty if the server does not say.
    pub model_name: String,
    /// The version of the model that answered, if the server has versions.
    pub model_version: Option<String>,
    /// The id of the request.
    pub id: Option<String>,
    /// Parameters of the whole response.
    pub parameters: Parameters,
    /// The outputs, in the order of the message.
    pub outputs: Vec<Tensor>,
}

impl RequestedOutput {
    /// Creates a requested output from its parameters.
    ///
    /// # Errors
    /// A parameter has a wrong type, or asks for a classification or for shared memory.
    pub fn new(name: impl Into<Arc<str>>, parameters: &Parameters) -> Result<Self, Malformed> {
        refuse(parameters)?;
        Ok(Self { name: name.into(), binary: parameters.flag(BINARY)? })
    }
}

/// Refuses parameters of a tensor that would change the result if they were obeyed.
///
/// # Errors
/// There is such a parameter.
pub(crate) fn refuse(parameters: &Parameters) -> Result<(), Malformed> {
    match REFUSED.into_iter().find(|name| parameters.get(name).is_some()) {
        None => Ok(()),
        Some(name) => {
            let field = format!("parameters[{name:?}]");
            Err(Malformed::at(field, "this server has no such extension"))
        }
    }
}

impl InferRequest {
    /// Checks that each input and each requested output is named once.
    ///
    /// # Errors
    /// One is named twice.
    pub fn check(&self) -> Result<(), Malformed> {
        once("inputs", self.inputs.iter().map(|input| &*input.name))?;
        once("outputs", self.outputs.iter().map(|output| &*output.name))
    }
}

fn once<'a>(field: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Malformed> {
    let mut seen = HashSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            let message = format!("{name:?} is given twice");
            return Err(Malformed::at(format!("{field}[{index}]"), message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataType, Parameter};

    fn flags(name: &str, value: bool) -> Parameters {
        let mut parameters = Parameters::default();
        parameters.insert(name, Parameter::Bool(value)).expect("new");
        parameters
    }

    #[test]
    fn names_are_given_once() {
        let input = Tensor::new("x", DataType::Bool, vec![0], Default::default()).expect("empty");
        let request =
            InferRequest { inputs: vec![input.clone(), input], ..InferRequest::default() };
        let message = "inputs[1]: \"x\" is given twice";
        assert_eq!(request.check().unwrap_err().to_string(), message);
        let output = RequestedOutput { name: "y".into(), binary: None };
        let outputs = vec![output.clone(), output];
        let request = InferRequest { outputs, ..InferRequest::default() };
        let message = "outputs[1]: \"y\" is given twice";
        assert_eq!(request.check().unwrap_err().to_string(), message);
    }

    #[test]
    fn extensions_that_do_not_exist_are_refused() {
        for name in REFUSED {
            let refused = RequestedOutput::new("y", &flags(name, true)).unwrap_err();
            let message = format!("parameters[{name:?}]: this server has no such extension");
            assert_eq!(refused.to_string(), message);
        }
        assert!(RequestedOutput::new("y", &flags("other", true)).is_ok());
    }
}
