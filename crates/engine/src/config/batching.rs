//! `BatchingParameters`, a message of TensorFlow Serving's session_bundle_config.proto.

use super::{
    Result,
    text::{self, Field},
};

pub(super) const NAME: &str = "BatchingParameters";

/// Checks the syntax and the field names. The values are not used, because the engine
/// does not batch.
pub(super) fn check(text: &str) -> Result<()> {
    for field in &text::parse(text)? {
        match field.name.as_str() {
            "max_batch_size"
            | "batch_timeout_micros"
            | "max_enqueued_batches"
            | "num_batch_threads"
            | "max_execution_batch_size" => wrapped(field, "Int64Value", Field::number::<i64>)?,
            "thread_pool_name" => wrapped(field, "StringValue", Field::string)?,
            "enable_large_batch_splitting" => wrapped(field, "BoolValue", Field::boolean)?,
            "allowed_batch_sizes" => drop(field.number::<i64>()?),
            "pad_variable_length_inputs" => drop(field.boolean()?),
            _ => return Err(field.unknown(NAME)),
        }
    }
    Ok(())
}

/// Reads a value in a wrapper message, `{ value: 1 }`, which can be absent.
fn wrapped<T>(field: &Field, message: &str, read: fn(&Field) -> Result<T>) -> Result<()> {
    for inner in field.message()? {
        match inner.name.as_str() {
            "value" => drop(read(inner)?),
            _ => return Err(inner.unknown(message)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (usize, String) {
        let problem = check(text).expect_err("the text is not valid");
        (problem.line, problem.message)
    }

    #[test]
    fn every_field_is_known() {
        let whole = r#"
            max_batch_size { value: 64 }  # rows
            batch_timeout_micros { value: 0 } max_enqueued_batches { value: 16 }
            num_batch_threads { value: 2 } max_execution_batch_size {}
            thread_pool_name { value: "batches" }
            enable_large_batch_splitting { value: false }
            allowed_batch_sizes: 16 allowed_batch_sizes: [32, 64]
            pad_variable_length_inputs: true"#;
        check(whole).unwrap();
        check("").unwrap();
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
