//! `BatchingParameters`, a message of TensorFlow Serving's session_bundle_config.proto.

use super::{
    Result,
    text::{self, Field},
};
use crate::batching::Parameters;

pub(super) const NAME: &str = "BatchingParameters";

pub(super) fn parse(text: &str) -> Result<Parameters> {
    let mut parameters = Parameters::default();
    for field in &text::parse(text)? {
        match field.name.as_str() {
            "max_batch_size" => parameters.max_batch_size = number(field)?,
            "batch_timeout_micros" => parameters.batch_timeout_micros = number(field)?,
            "max_enqueued_batches" => parameters.max_enqueued_batches = number(field)?,
            "num_batch_threads" => parameters.num_batch_threads = Some(number(field)?),
            "max_execution_batch_size" => {
                parameters.max_execution_batch_size = Some(number(field)?);
            }
            // All batches are run by one pool of threads, so its name has no effect.
            "thread_pool_name" => drop(wrapped(field, "StringValue", Field::string)?),
            "enable_large_batch_splitting" => {
                parameters.enable_large_batch_splitting =
                    wrapped(field, "BoolValue", Field::boolean)?;
            }
            "allowed_batch_sizes" => parameters.allowed_batch_sizes.push(field.number()?),
            "pad_variable_length_inputs" => {
                parameters.pad_variable_length_inputs = field.boolean()?;
            }
            _ => return Err(field.unknown(NAME)),
        }
    }
    Ok(parameters)
}

fn number(field: &Field) -> Result<i64> {
    wrapped(field, "Int64Value", Field::number)
}

/// Reads a value in a wrapper message, `{ value: 1 }`. Without one it is zero.
fn wrapped<T: Default>(field: &Field, message: &str, read: fn(&Field) -> Result<T>) -> Result<T> {
    let mut value = T::default();
    for inner in field.message()? {
        match inner.name.as_str() {
            "value" => value = read(inner)?,
            _ => return Err(inner.unknown(message)),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (usize, String) {
        let problem = parse(text).expect_err("the text is not valid");
        (problem.line, problem.message)
    }

    #[test]
    fn every_field_is_read() {
        let whole = r#"
            max_batch_size { value: 64 }  # rows
            batch_timeout_micros { value: 0 } max_enqueued_batches { value: 16 }
            num_batch_threads { value: 2 } max_execution_batch_size { value: 32 }
            thread_pool_name { value: "batches" }
            enable_large_batch_splitting { value: true }
            allowed_batch_sizes: 16 allowed_batch_sizes: [32, 64]
            pad_variable_length_inputs: true"#;
        let expected = Parameters {
            max_batch_size: 64,
            batch_timeout_micros: 0,
            max_enqueued_batches: 16,
            num_batch_threads: Some(2),
            allowed_batch_sizes: vec![16, 32, 64],
            pad_variable_length_inputs: true,
            enable_large_batch_splitting: true,
            max_execution_batch_size: Some(32),
        };
        assert_eq!(parse(whole), Ok(expected));
        assert_eq!(parse(""), Ok(Parameters::default()));
        let none = Parameters { num_batch_threads: Some(0), ..Parameters::default() };
        assert_eq!(parse("num_batch_threads {}"), Ok(none));
    }

    #[test]
    fn problems_name_their_line() {
        let plain = problem("max_batch_size: 64");
        assert_eq!(plain, (1, "max_batch_size needs a message in braces".into()));
        let typo = problem("\nbatch_size { value: 64 }");
        assert_eq!(typo, (2, "BatchingParameters has no field batch_size".into()));
        let inner = problem("max_batch_size { values: 64 }");
        assert_eq!(inner, (1, "Int64Value has no field values".into()));
        let yes = problem("pad_variable_length_inputs: yes");
        assert_eq!(yes, (1, "pad_variable_length_inputs needs true or false".into()));
    }
}
