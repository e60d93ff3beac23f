//! metadata.json held against a signature.

use outrigger_proto::tensorflow::{DataType, SignatureDef, TensorInfo, TensorShapeProto};

use super::SignatureError;
use crate::metadata::{Entity, Input, Metadata, Output, OutputKind};

/// A reference type of TF1 is its base type plus this.
const REFERENCE: i32 = 100;

/// A dimension of a shape: a size that must be met, or one that varies.
#[derive(Clone, Copy, PartialEq)]
enum Dim {
    Free(&'static str),
    Size(i64),
}

const USERS: Dim = Dim::Free("B");
const TREATMENTS: Dim = Dim::Free("T");

pub(crate) fn check(metadata: &Metadata, signature: &SignatureDef) -> Result<(), SignatureError> {
    for (index, input) in metadata.inputs.iter().enumerate() {
        check_input(&format!("inputs[{index}]"), input, signature)?;
    }
    check_all_fed(metadata, signature)?;
    for (index, output) in metadata.outputs.iter().enumerate() {
        check_output(&format!("outputs[{index}]"), output, signature)?;
    }
    Ok(())
}

fn contradiction(path: String, file: String, model: String) -> SignatureError {
    SignatureError::Contradiction { path, file, model }
}

fn check_input(path: &str, input: &Input, signature: &SignatureDef) -> Result<(), SignatureError> {
    let Some(info) = signature.inputs.get(&*input.tensor) else {
        let file = format!("that input {:?} is fed", input.tensor);
        let model = format!("its inputs are {:?}", sorted(signature.inputs.keys()));
        return Err(contradiction(format!("{path}.tensor"), file, model));
    };
    check_dense(path, &input.tensor, info)?;
    if base(info.dtype) != input.dtype.tensorflow() {
        let file = format!("{:?} is {}", input.tensor, input.dtype);
        return Err(contradiction(format!("{path}.dtype"), file, spell_dtype(info.dtype)));
    }
    let shape = input_shape(input);
    if accepts(info.tensor_shape.as_ref(), &[&shape]) {
        return Ok(());
    }
    let file = format!("{:?} is {} ({})", input.tensor, spell(&shape), meaning(input));
    Err(contradiction(path.to_owned(), file, spell_shape(info.tensor_shape.as_ref())))
}

fn check_all_fed(metadata: &Metadata, signature: &SignatureDef) -> Result<(), SignatureError> {
    let fed = |name: &str| metadata.inputs.iter().any(|input| &*input.tensor == name);
    let unfed = |name: &&String| !fed(name) && !signature.defaults.contains_key(*name);
    let missing = sorted(signature.inputs.keys().filter(unfed));
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = metadata.inputs.iter().map(|input| &*input.tensor).collect();
    let model = format!("it also needs {missing:?}");
    Err(contradiction("inputs".into(), format!("that its inputs are {names:?}"), model))
}

fn check_output(
    path: &str,
    output: &Output,
    signature: &SignatureDef,
) -> Result<(), SignatureError> {
    let Some(info) = signature.outputs.get(&*output.tensor) else {
        let file = format!("that there is an output {:?}", output.tensor);
        let model = format!("its outputs are {:?}", sorted(signature.outputs.keys()));
        return Err(contradiction(format!("{path}.tensor"), file, model));
    };
    check_dense(path, &output.tensor, info)?;
    const SCORES: [DataType; 4] =
        [DataType::DtFloat, DataType::DtDouble, DataType::DtInt32, DataType::DtInt64];
    if !SCORES.iter().any(|dtype| *dtype as i32 == base(info.dtype)) {
        let file = format!(
            "{:?} is an output of numbers (float32, float64, int32 or int64)",
            output.tensor
        );
        return Err(contradiction(path.to_owned(), file, spell_dtype(info.dtype)));
    }
    let shapes: [&[Dim]; 2] = match output.kind {
        OutputKind::PerTreatment => [&[USERS, TREATMENTS], &[USERS, TREATMENTS, Dim::Size(1)]],
        OutputKind::Single => [&[USERS], &[USERS, Dim::Size(1)]],
    };
    if accepts(info.tensor_shape.as_ref(), &shapes) {
        return Ok(());
    }
    let kind = output.kind.as_str();
    let file =
        format!("{:?} is {kind}: {} or {}", output.tensor, spell(shapes[0]), spell(shapes[1]));
    Err(contradiction(format!("{path}.kind"), file, spell_shape(info.tensor_shape.as_ref())))
}

fn check_dense(path: &str, tensor: &str, info: &TensorInfo) -> Result<(), SignatureError> {
    if !info.name.is_empty() {
        return Ok(());
    }
    let file = format!("{tensor:?} is a dense tensor");
    Err(contradiction(format!("{path}.tensor"), file, "it is sparse or composite".into()))
}

fn input_shape(input: &Input) -> Vec<Dim> {
    let width = Dim::Size(i64::try_from(input.width()).expect("lengths are bounded"));
    match input.entity {
        Entity::User => vec![USERS, width],
        Entity::Treatment => vec![USERS, TREATMENTS, width],
        Entity::TreatmentCount | Entity::Seed => vec![USERS],
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

/// Whether a signature's shape can hold tensors of one of `shapes`. A dimension
/// that varies must be unknown to the model: a fixed one would refuse requests.
fn accepts(model: Option<&TensorShapeProto>, shapes: &[&[Dim]]) -> bool {
    let Some(model) = model.filter(|model| !model.unknown_rank) else { return true };
    shapes.iter().any(|shape| {
        let mut pairs = model.dim.iter().zip(*shape);
        model.dim.len() == shape.len()
            && pairs.all(|(model, wanted)| match wanted {
                Dim::Free(_) => model.size < 0,
                Dim::Size(size) => model.size < 0 || model.size == *size,
            })
    })
}

fn base(dtype: i32) -> i32 {
    if dtype > REFERENCE { dtype - REFERENCE } else { dtype }
}

fn sorted<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn spell(shape: &[Dim]) -> String {
    let dims = shape.iter().map(|dim| match dim {
        Dim::Free(name) => (*name).to_owned(),
        Dim::Size(size) => size.to_string(),
    });
    format!("[{}]", dims.collect::<Vec<_>>().join(", "))
}

fn spell_shape(shape: Option<&TensorShapeProto>) -> String {
    let Some(shape) = shape.filter(|shape| !shape.unknown_rank) else { return "any shape".into() };
    let size = |size: i64| if size < 0 { "?".to_owned() } else { size.to_string() };
    let dims: Vec<_> = shape.dim.iter().map(|dim| size(dim.size)).collect();
    format!("it is [{}]", dims.join(", "))
}

fn spell_dtype(dtype: i32) -> String {
    let known = DataType::try_from(base(dtype)).map(|dtype| match dtype {
        DataType::DtFloat => "float32".to_owned(),
        DataType::DtDouble => "float64".to_owned(),
        other => other.as_str_name().trim_start_matches("DT_").to_lowercase(),
    });
    format!("it is {}", known.unwrap_or_else(|_| format!("of unknown type {dtype}")))
}
