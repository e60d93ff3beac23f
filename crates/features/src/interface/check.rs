//! The checks that compare metadata.json with a model's interface.

use std::{slice, sync::Arc};

use outrigger_core::{DType, ElementType, Interface, Shape, TensorSpec};

use super::{InterfaceError, categories, columns};
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

/// The dimension of the elements of all lists.
const ELEMENTS: Dim = Dim::Free("N");

/// The types that scores may have.
pub(crate) const SCORES: [DType; 4] = [DType::Float32, DType::Float64, DType::Int32, DType::Int64];

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

/// A tensor that is fed, as metadata.json declares it.
struct Fed<'m> {
    tensor: &'m Arc<str>,
    dtype: DType,
    shape: Vec<Dim>,
    meaning: String,
    /// The paths of its name, its type and its shape.
    paths: [String; 3],
}

fn check_input(path: &str, input: &Input, interface: &Interface) -> Result<(), InterfaceError> {
    let paths = [format!("{path}.tensor"), format!("{path}.dtype"), path.to_owned()];
    let (shape, meaning) = (input_shape(input), meaning(input));
    let (tensor, dtype) = (&input.tensor, input.dtype);
    check_fed(&Fed { tensor, dtype, shape, meaning, paths }, interface)?;
    if let Some(spec) = interface.input(tensor).filter(|_| input.weights.is_none()) {
        columns::check(path, input, spec)?;
        categories::check(path, input, &spec.categories)?;
    }
    check_lists(path, input, interface)
}

/// Checks the tensors beside that of the elements, if an input consists of lists.
fn check_lists(path: &str, input: &Input, interface: &Interface) -> Result<(), InterfaceError> {
    if let Some(tensor) = &input.weights {
        let (dtype, shape) = (DType::Float32, vec![ELEMENTS]);
        let meaning = format!("the weights of the ids in {:?}", input.tensor);
        let paths = [(); 3].map(|()| format!("{path}.weights"));
        check_fed(&Fed { tensor, dtype, shape, meaning, paths }, interface)?;
    }
    let Some(tensor) = &input.lengths else { return Ok(()) };
    let shape = match input.entity {
        Entity::Treatment => vec![USERS, TREATMENTS],
        Entity::Joined => vec![ROWS],
        _ => vec![USERS],
    };
    let lists = if input.weights.is_some() { "rows of ids" } else { "lists" };
    let meaning = format!("the lengths of the {lists} in {:?}", input.tensor);
    let paths = [(); 3].map(|()| format!("{path}.lengths"));
    check_fed(&Fed { tensor, dtype: DType::Int64, shape, meaning, paths }, interface)
}

fn check_fed(fed: &Fed<'_>, interface: &Interface) -> Result<(), InterfaceError> {
    let [of_name, of_type, of_shape] = fed.paths.clone();
    let Some(spec) = interface.input(fed.tensor) else {
        let file = format!("that input {:?} is fed", fed.tensor);
        let model = format!("its inputs are {:?}", names(&interface.inputs));
        return Err(contradiction(of_name, file, model));
    };
    check_dense(&of_name, spec)?;
    if spec.dtype != ElementType::Known(fed.dtype) {
        let file = format!("{:?} is {}", fed.tensor, fed.dtype);
        return Err(contradiction(of_type, file, format!("it is {}", spec.dtype)));
    }
    if accepts(&spec.shape, slice::from_ref(&fed.shape)) {
        return Ok(());
    }
    let file = format!("{:?} is {} ({})", fed.tensor, spell(&fed.shape), fed.meaning);
    Err(contradiction(of_shape, file, spell_shape(&spec.shape)))
}

fn check_all_fed(metadata: &Metadata, interface: &Interface) -> Result<(), InterfaceError> {
    let tensors = || {
        let inputs = metadata.inputs.iter();
        let of_lists = inputs.clone().flat_map(|input| [&input.weights, &input.lengths]);
        inputs.map(|input| &input.tensor).chain(of_lists.flatten())
    };
    let fed = |name: &Arc<str>| tensors().any(|tensor| tensor == name);
    let unfed = interface.inputs.iter().filter(|spec| !spec.optional && !fed(&spec.name));
    let missing = names(unfed);
    if missing.is_empty() {
        return Ok(());
    }
    let fed: Vec<_> = tensors().collect();
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
    check_dense(&format!("{path}.tensor"), spec)?;
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
    Err(contradiction(path.to_owned(), file, format!("it is {}", spec.dtype)))
}

fn input_shape(input: &Input) -> Vec<Dim> {
    if input.lengths.is_some() {
        return vec![ELEMENTS];
    }
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
    if input.weights.is_some() {
        return format!("the ids of {entity} rows");
    }
    if input.lengths.is_some() {
        return format!("the elements of {entity} lists");
    }
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
