//! Reads metadata.json as a whole and checks the rules between its parts.

use std::{collections::HashSet, sync::Arc};

use super::{Entity, Feature, Input, Metadata, Output, OutputKind, SCHEMA, input, output, uplift};
use crate::reader::{Node, Object, Wrong};

pub(super) fn read(root: Node<'_>) -> Result<Metadata, Wrong> {
    const KEYS: &[&str] = &[
        "schema",
        "framework",
        "signature",
        "inputs",
        "outputs",
        "deterministic",
        "uplift",
        "remote",
        "annotations",
    ];
    let file = root.object()?;
    file.only(KEYS)?;
    file.required("schema")?.one_of(&[(SCHEMA, ())])?;
    let framework: Arc<str> = file.required("framework")?.name()?.into();
    check_remote(&file, &framework)?;
    let signature = match file.optional("signature") {
        Some(node) => node.name()?.into(),
        None => "serving_default".into(),
    };
    let deterministic = file.flag("deterministic", true)?;
    let inputs = read_inputs(&file, deterministic)?;
    let joined = inputs.iter().any(|input| input.entity == Entity::Joined);
    let outputs = read_outputs(&file, deterministic, joined)?;
    let uplift = file.optional("uplift").map(|node| uplift::read(&node)).transpose()?.map(Arc::new);
    let annotations = file.optional("annotations").map(|node| node.object()).transpose()?;
    let annotations = annotations.map(|object| object.map.clone()).unwrap_or_default();
    Ok(Metadata { framework, signature, inputs, outputs, deterministic, uplift, annotations })
}

/// The framework of models on servers of the Open Inference Protocol.
const REMOTE: &str = "oip";

/// Checks the key `remote`, which the engine reads: it names the model on the servers, and no other
/// framework has one.
fn check_remote(file: &Object<'_>, framework: &str) -> Result<(), Wrong> {
    if framework != REMOTE {
        let message = "only models of the framework oip are on a server";
        return file.optional("remote").map_or(Ok(()), |_| Err(file.at("remote", message)));
    }
    let remote = file.required("remote")?.object()?;
    remote.only(&["model", "version", "row_by_row"])?;
    remote.required("model")?.name()?;
    remote.flag("row_by_row", false)?;
    remote.optional("version").map_or(Ok(()), |version| version.name().map(drop))
}

fn read_inputs(file: &Object<'_>, deterministic: bool) -> Result<Vec<Input>, Wrong> {
    let nodes = file.required("inputs")?.filled_array("at least one input is needed")?;
    let mut inputs: Vec<Input> = Vec::with_capacity(nodes.len());
    let (mut names, mut tensors) = (HashSet::new(), HashSet::new());
    for node in nodes {
        let object = node.object()?;
        let input = input::read(&object)?;
        let tensors_of_rows =
            [("lengths", input.lengths.as_ref()), ("weights", input.weights.as_ref())];
        for (key, tensor) in [("tensor", Some(&input.tensor))].into_iter().chain(tensors_of_rows) {
            if tensor.is_some_and(|tensor| !tensors.insert(Arc::clone(tensor))) {
                return Err(object.at(key, "another input feeds this tensor already"));
            }
        }
        if input.entity == Entity::Seed && deterministic {
            let message = "a seed is only for models that draw: \"deterministic\": false";
            return Err(object.at("entity", message));
        }
        if inputs.iter().any(|it| (it.entity == Entity::Joined) != (input.entity == Entity::Joined))
        {
            return Err(object.at("entity", "joined inputs and others exclude each other"));
        }
        refuse_repeated_features(&object, &input, &mut names)?;
        inputs.push(input);
    }
    Ok(inputs)
}

/// Refuses a repeated name within an entity. A user feature and a treatment feature may
/// share a name, since requests keep the entities apart.
fn refuse_repeated_features(
    object: &Object<'_>,
    input: &Input,
    names: &mut HashSet<(&'static str, Arc<str>)>,
) -> Result<(), Wrong> {
    let mut features = input.features.iter();
    let repeated = |it: &Feature| !names.insert((it.entity.as_str(), it.name.clone()));
    match features.position(repeated) {
        None => Ok(()),
        Some(index) => {
            let entity = input.features[index].entity.as_str();
            let message = format!("the {entity} has a feature of this name already");
            Err(object.at(&format!("features[{index}].name"), &message))
        }
    }
}

fn read_outputs(
    file: &Object<'_>,
    deterministic: bool,
    joined: bool,
) -> Result<Vec<Output>, Wrong> {
    let nodes = file.required("outputs")?.filled_array("at least one output is needed")?;
    let mut outputs: Vec<Output> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let object = node.object()?;
        let output = output::read(&object)?;
        if outputs.iter().any(|other| other.tensor == output.tensor) {
            return Err(object.at("tensor", "another output reads this tensor already"));
        }
        if outputs.iter().any(|other| other.name == output.name) {
            return Err(object.at("name", "another output has this name already"));
        }
        if joined && output.kind == OutputKind::Single {
            let message = "a model with joined inputs has no row for a user: per_treatment only";
            return Err(object.at("kind", message));
        }
        if output.role.is_some() && deterministic {
            let message = "a propensity is only for models that draw: \"deterministic\": false";
            return Err(object.at("role", message));
        }
        if output.role.is_some() && outputs.iter().any(|other| other.role == output.role) {
            return Err(object.at("role", "another output has this role already"));
        }
        outputs.push(output);
    }
    Ok(outputs)
}
