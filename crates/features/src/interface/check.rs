//! The checks that compare metadata.json with a model's interface.

use std::{slice, sync::Arc};

use outrigger_core::{DType, ElementType, Interface, Shape, TensorSpec};

use super::InterfaceError;
use crate::metadata::{Entity, Input, Metadata, Output, OutputKind};

/// A dimension of an expected shape: a fixed size, or a variable one.
#[derive(Clone, Copy, PartialEq)]
enum Dim {
    Free(&'static str),
    Size(u64),
}

const USERS: Dim = Dim::Free("B");
const TREATMENTS: Dim = Dim::Free("T");
/// The dimension of joined rows: the treatments of all users.
const ROWS: Dim = Dim::Free("R");

/// The types that scores may have.
const SCORES: [DType; 4] = [DType::Float32, DType::Float64, DType::Int32, DType::Int64];

pub(crate) fn check(metadata: &Metadata, interface: &Interface) -> Result<(), InterfaceError> {
    for (index, input) in metadata.inputs.iter().enumerate() {
        check_input(&format!("inputs[{index}]"), input, interface)?;
    }
    check_all_fed(metadata, interface)?;
    for (index, output) in metadata.outputs.iter().enumerate() {
        check_output(&format!("outputs[{index}]"), output, metadata.is_joined(), interface)?;
    }
    Ok(())
}

fn contradiction(path: String, file: String, model: String) -> InterfaceError {
    InterfaceError { path, file, model }
}

fn check_input(path: &str, input: &Input, interface: &Interface) -> Result<(), InterfaceError> {
    let Some(spec) = interface.input(&input.tensor) else {
        let file = format!("that input {:?} is fed", input.tensor);
        let model = format!("its inputs are {:?}", names(&interface.inputs));
        return Err(contradiction(format!("{path}.tensor"), file, model));
    };
    check_dense(path, spec)?;
    if spec.dtype != ElementType::Known(input.dtype) {
        let file = format!("{:?} is {}", input.tensor, input.dtype);
        return Err(contradiction(format!("{path}.dtype"), file, format!("it is {}", spec.dtype)));
    }
    let shape = input_shape(input);
    if accepts(&spec.shape, slice::from_ref(&shape)) {
        return Ok(());
    }
    let file = format!("{:?} is {} ({})", input.tensor, spell(&shape), meaning(input));
    Err(contradiction(path.to_owned(), file, spell_shape(&spec.shape)))
}

fn check_all_fed(metadata: &Metadata, interface: &Interface) -> Result<(), InterfaceError> {
    let fed = |name: &Arc<str>| metadata.inputs.iter().any(|input| input.tensor == *name);
    let unfed = interface.inputs.iter().filter(|spec| !spec.optional && !fed(&spec.name));
    let missing = names(unfed);
    if missing.is_empty() {
        return Ok(());
    }
    let fed: Vec<_> = metadata.inputs.iter().map(|input| &*input.tensor).collect();
    let model = format!("it also needs {missing:?}");
    Err(contradiction("inputs".into(), format!("that its inputs are {fed:?}"), model))
}

fn check_output(
    path: &str,
    output: &Output,
    joined: bool,
    interface: &Interface,
) -> Result<(), InterfaceError> {
    let Some(spec) = interface.output(&output.tensor) else {
        let file = format!("that there is an output {:?}", output.tensor);
        let model = format!("its outputs are {:?}", names(&interface.outputs));
        return Err(contradiction(format!("{path}.tensor"), file, model));
    };
    check_dense(path, spec)?;
    if !SCORES.iter().any(|dtype| spec.dtype == ElementType::Known(*dtype)) {
        let file = format!(
            "{:?} is an output of numbers (float32, float64, int32 or int64)",
            output.tensor
        );
        return Err(contradiction(path.to_owned(), file, format!("it is {}", spec.dtype)));
    }
    let shapes = output_shapes(output, joined);
    if accepts(&spec.shape, &shapes) {
        return Ok(());
    }
    let (kind, shapes) = (output.kind.as_str(), shapes.iter().map(|shape| spell(shape)));
    let shapes = shapes.collect::<Vec<_>>().join(" or ");
    let file = format!("{:?} is {kind}: {shapes}", output.tensor);
    Err(contradiction(format!("{path}.kind"), file, spell_shape(&spec.shape)))
}

/// The shapes that an output may have: a width of 1 may be left out.
fn output_shapes(output: &Output, joined: bool) -> Vec<Vec<Dim>> {
    let rows = match output.kind {
        OutputKind::PerTreatment if joined => vec![ROWS],
        OutputKind::PerTreatment => vec![USERS, TREATMENTS],
        OutputKind::Single => vec![USERS],
    };
    let width = Dim::Size(u64::try_from(output.width).expect("widths are bounded"));
    let whole = [&rows[..], &[width]].concat();
    if output.width == 1 { vec![rows, whole] } else { vec![whole] }
}

fn check_dense(path: &str, spec: &TensorSpec) -> Result<(), InterfaceError> {
    if spec.dtype != ElementType::Composite {
        return Ok(());
    }
    let file = format!("{:?} is a dense tensor", spec.name);
    Err(contradiction(format!("{path}.tensor"), file, format!("it is {}", spec.dtype)))
}

fn input_shape(input: &Input) -> Vec<Dim> {
    let width = Dim::Size(u64::try_from(input.width()).expect("lengths are bounded"));
    match input.entity {
        Entity::User => vec![USERS, width],
        Entity::Treatment => vec![USERS, TREATMENTS, width],
        Entity::TreatmentCount | Entity::Seed => vec![USERS],
        Entity::Joined => vec![ROWS, width],
    }
}

fn meaning(input: &Input) -> String {
    let entity = input.entity.as_str();
    match input.features.len() {
        0 => entity.to_owned(),
        1 => format!("1 {entity} feature, width {}", input.width()),
        count => format!("{count} {entity} features, width {}", input.width()),
    }
}

/// Whether the model's shape accepts tensors of one of `shapes`. A variable dimension
/// must be unknown to the model: a fixed one would refuse requests.
fn accepts(model: &Shape, shapes: &[Vec<Dim>]) -> bool {
    let Shape::Sizes(model) = model else { return true };
    shapes.iter().any(|shape| {
        let mut pairs = model.iter().zip(shape);
        model.len() == shape.len()
            && pairs.all(|(model, wanted)| match wanted {
                Dim::Free(_) => model.is_none(),
                Dim::Size(size) => model.is_none_or(|model| model == *size),
            })
    })
}

fn names<'a>(specs: impl IntoIterator<Item = &'a TensorSpec>) -> Vec<&'a str> {
    specs.into_iter().map(|spec| &*spec.name).collect()
}

fn spell(shape: &[Dim]) -> String {
    let dims = shape.iter().map(|dim| match dim {
        Dim::Free(name) => (*name).to_owned(),
        Dim::Size(size) => size.to_string(),
    });
    format!("[{}]", dims.collect::<Vec<_>>().join(", "))
}

fn spell_shape(shape: &Shape) -> String {
    match shape {
        Shape::Any => shape.to_string(),
        Shape::Sizes(_) => format!("it is {shape}"),
    }
}
