//! The messages of inferences over gRPC.

mod contents;
mod memory;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use outrigger_proto::inference::{InferParameter, infer_parameter::ParameterChoice};

use crate::{Malformed, Parameter, Parameters};

pub use memory::{memory, response_memory};
pub use read::{read_request, read_response};
pub use write::{write_request, write_response};

fn read_parameters(parameters: BTreeMap<String, InferParameter>) -> Result<Parameters, Malformed> {
    let mut read = Parameters::default();
    for (name, InferParameter { parameter_choice }) in parameters {
        let value = match parameter_choice {
            Some(ParameterChoice::BoolParam(value)) => Parameter::Bool(value),
            Some(ParameterChoice::Int64Param(value)) => Parameter::Integer(value),
            Some(ParameterChoice::StringParam(value)) => Parameter::Text(value),
            Some(ParameterChoice::DoubleParam(value)) => Parameter::Real(value),
            Some(ParameterChoice::Uint64Param(value)) => Parameter::Unsigned(value),
            None => {
                let message = "has no value";
                return Err(Malformed::at(format!("parameters[{name:?}]"), message));
            }
        };
        read.insert(name, value)?;
    }
    Ok(read)
}

fn write_parameters(parameters: &Parameters) -> BTreeMap<String, InferParameter> {
    let write = |(name, value): (&str, &Parameter)| {
        let choice = match value {
            Parameter::Bool(value) => ParameterChoice::BoolParam(*value),
            Parameter::Integer(value) => ParameterChoice::Int64Param(*value),
            Parameter::Text(value) => ParameterChoice::StringParam(value.clone()),
            Parameter::Real(value) => ParameterChoice::DoubleParam(*value),
            Parameter::Unsigned(value) => ParameterChoice::Uint64Param(*value),
        };
        (name.to_owned(), InferParameter { parameter_choice: Some(choice) })
    };
    parameters.iter().map(write).collect()
}
