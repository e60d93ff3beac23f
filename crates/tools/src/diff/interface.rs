//! The differences in the signatures of two models, and in the use of their tensors.

use outrigger_features::{
    Metadata,
    metadata::{Input, Output, Role},
};

use super::{Change, Package};
use crate::inspect::TensorReport;

/// The properties that differ.
pub(super) fn changes(a: &Package, b: &Package) -> Vec<Change> {
    differing(&properties(a), &properties(b))
}

/// A property's name and value.
type Property = (String, String);

fn properties(package: &Package) -> Vec<Property> {
    let metadata = package.plan.metadata();
    let own = [("framework", &metadata.framework), ("signature", &metadata.signature)];
    let mut properties: Vec<Property> =
        own.map(|(name, value)| (name.to_owned(), value.to_string())).into();
    properties.push(("deterministic".to_owned(), metadata.deterministic.to_string()));
    properties.push(("score".to_owned(), metadata.outputs[0].name.to_string()));
    properties.extend(metadata.uplift.iter().map(|it| ("uplift".to_owned(), it.to_string())));
    for (direction, tensors) in [("input", &package.inputs), ("output", &package.outputs)] {
        properties.extend(tensors.iter().map(|tensor| shape(direction, tensor)));
    }
    properties.extend(uses(metadata));
    properties
}

fn shape(direction: &str, tensor: &TensorReport) -> Property {
    (format!("{direction} {}", tensor.name), format!("{} {}", tensor.dtype, tensor.sizes()))
}

/// The use of the tensors, as metadata.json declares it.
fn uses(metadata: &Metadata) -> impl Iterator<Item = Property> {
    let input = |input: &Input| {
        let lengths = input.lengths.as_ref().map(|tensor| format!(", lengths in {tensor}"));
        let weights = input.weights.as_ref().map(|tensor| format!(", weights in {tensor}"));
        let tensors = weights.into_iter().chain(lengths).collect::<String>();
        let entity = format!("{}{tensors}", input.entity.as_str());
        (format!("entity of input {}", input.tensor), entity)
    };
    let output = |output: &Output| {
        let role = match output.role {
            Some(Role::Propensity) => ", propensity",
            None => "",
        };
        let (kind, columns) = (output.kind.as_str(), columns(output));
        (
            format!("score {} of requests", output.name),
            format!("{} {kind}{columns}{role}", output.tensor),
        )
    };
    metadata.inputs.iter().map(input).chain(metadata.outputs.iter().map(output))
}

/// The columns of an output with several.
fn columns(output: &Output) -> String {
    match output.width {
        1 => String::new(),
        width => format!(", column {} of {width}", output.score_column),
    }
}

/// The properties that one of the lists does not have, or with another value.
fn differing(a: &[Property], b: &[Property]) -> Vec<Change> {
    let find = |properties: &[Property], subject: &str| {
        let found = properties.iter().find(|(name, _)| name == subject);
        found.map(|(_, value)| value.clone())
    };
    let added = b.iter().filter(|(name, _)| find(a, name).is_none());
    let changes = a.iter().chain(added).map(|(subject, _)| Change {
        subject: subject.clone(),
        a: find(a, subject),
        b: find(b, subject),
    });
    changes.filter(|change| change.a != change.b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_either_are_compared() {
        let properties = |of: &[(&str, &str)]| {
            of.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<Vec<_>>()
        };
        let a = properties(&[("same", "1"), ("other", "1"), ("only a", "1")]);
        let b = properties(&[("only b", "1"), ("other", "2"), ("same", "1")]);
        let change = |subject: &str, a: Option<&str>, b: Option<&str>| Change {
            subject: subject.to_owned(),
            a: a.map(str::to_owned),
            b: b.map(str::to_owned),
        };
        let expected = [
            change("other", Some("1"), Some("2")),
            change("only a", Some("1"), None),
            change("only b", None, Some("1")),
        ];
        assert_eq!(differing(&a, &b), expected);
    }
}
