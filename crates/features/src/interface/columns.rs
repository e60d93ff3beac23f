//! Compares the features of an input with the names that the model has for its columns.

use outrigger_core::TensorSpec;

use super::InterfaceError;
use crate::metadata::{Feature, Input};

/// Checks that each feature of the input at `path` has the column or columns of its name. A model
/// without names accepts any features.
///
/// # Errors
/// The first column with the name of another feature.
pub(super) fn check(path: &str, input: &Input, spec: &TensorSpec) -> Result<(), InterfaceError> {
    let mut columns = spec.columns.iter().enumerate();
    for (index, feature) in input.features.iter().enumerate() {
        for (at, name) in columns.by_ref().take(feature.length) {
            let own = if spec.has_no_blanks {
                feature.name.replace(' ', "_")
            } else {
                feature.name.to_string()
            };
            if !is_column(feature, &own, name) {
                return Err(InterfaceError {
                    path: format!("{path}.features[{index}].name"),
                    file: format!("column {at} is {:?}", feature.name),
                    model: format!("it is {name:?}"),
                });
            }
        }
    }
    Ok(())
}

/// True if a column called `name` may hold a value of the feature, called `own`. The entity may stand before the
/// name, because a user and a treatment may have features of the same name. The columns of a vector
/// have names that begin with the feature's.
fn is_column(feature: &Feature, own: &str, name: &str) -> bool {
    let entity = name.strip_prefix(feature.entity.as_str());
    let short = entity.and_then(|rest| rest.strip_prefix('.'));
    [Some(name), short].into_iter().flatten().any(|name| match feature.length {
        1 => name == own,
        _ => name.starts_with(own),
    })
}
