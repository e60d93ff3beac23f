//! The forms of tensors in a message.

use std::sync::Arc;

use crate::{InferRequest, Malformed, RequestedOutput, infer};

/// The form of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An array in the JSON.
    Json,
    /// Bytes behind the JSON.
    Binary,
}

/// The forms of the outputs that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forms {
    usual: Form,
    /// The outputs with a setting of their own.
    own: Vec<(Arc<str>, Form)>,
}

impl Forms {
    /// The forms of a request: the parameter `binary_data` of an output overrides
    /// `binary_data_output` of the request, also if that is true.
    ///
    /// # Errors
    /// The parameter of the request is neither true nor false.
    pub fn of(request: &InferRequest) -> Result<Self, Malformed> {
        let usual = request.parameters.flag(infer::BINARY_OUTPUT)?.unwrap_or(false);
        let own = |output: &RequestedOutput| Some((output.name.clone(), output.binary?.into()));
        Ok(Self { usual: usual.into(), own: request.outputs.iter().filter_map(own).collect() })
    }

    /// The form of all outputs of a request whose body is the data of its only input.
    pub const fn of_raw() -> Self {
        Self { usual: Form::Binary, own: Vec::new() }
    }

    /// The form of an output.
    pub fn form(&self, output: &str) -> Form {
        let own = self.own.iter().find(|(name, _)| &**name == output);
        own.map_or(self.usual, |(_, form)| *form)
    }
}

impl From<bool> for Form {
    /// The form where a flag asks for binary tensors.
    fn from(is_binary: bool) -> Self {
        if is_binary { Self::Binary } else { Self::Json }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, Parameters};

    #[test]
    fn s69_s70_the_flag_of_an_output_overrides_that_of_the_request() {
        let output = |name: &str, binary| RequestedOutput { name: name.into(), binary };
        let outputs = vec![output("a", None), output("b", Some(false)), output("c", Some(true))];
        let forms = |flag: Option<bool>| {
            let mut parameters = Parameters::default();
            if let Some(flag) = flag {
                parameters.insert(infer::BINARY_OUTPUT, Parameter::Bool(flag)).expect("new");
            }
            let outputs = outputs.clone();
            let request = InferRequest { parameters, outputs, ..InferRequest::default() };
            let forms = Forms::of(&request).expect("a flag");
            ["a", "b", "c", "d"].map(|name| forms.form(name) == Form::Binary)
        };
        assert_eq!(forms(None), [false, false, true, false]);
        assert_eq!(forms(Some(true)), [true, false, true, true]);
        assert_eq!(forms(Some(false)), [false, false, true, false]);
    }

    #[test]
    fn a_flag_that_is_none_is_refused() {
        let mut parameters = Parameters::default();
        parameters.insert(infer::BINARY_OUTPUT, Parameter::Integer(1)).expect("new");
        let request = InferRequest { parameters, ..InferRequest::default() };
        let message = "parameters[\"binary_data_output\"]: is neither true nor false";
        assert_eq!(Forms::of(&request).unwrap_err().to_string(), message);
    }
}
